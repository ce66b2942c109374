//! The screen of `lighter top`: two lines about the node, a line a function, a line of keys. No colour is needed.

use super::super::words;
use super::model::{Model, Row, Sort};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row as Cells, Table};
use std::time::Duration;

/// Widths of the columns after the name.
const WIDTHS: [u16; 8] = [4, 9, 6, 6, 8, 8, 8, 10];

pub fn draw(frame: &mut Frame<'_>, model: &Model) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(3), Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
    frame.render_widget(Paragraph::new(about_node(model)), head);
    let mark = |sort, heading: &str| if model.sort == sort { format!("{heading}↓") } else { heading.to_owned() };
    let headings = [
        mark(Sort::Function, "FUNCTION"),
        "VER".to_owned(),
        mark(Sort::Calls, "CALLS/S"),
        "RUN".to_owned(),
        mark(Sort::Waiting, "WAIT"),
        "P50".to_owned(),
        mark(Sort::P99, "P99"),
        mark(Sort::Errors, "ERR/S"),
        "QUEUED".to_owned(),
    ];
    let widths = [Constraint::Fill(1)].into_iter().chain(WIDTHS.map(Constraint::Length));
    let rows = model.rows.iter().skip(model.scroll).take(usize::from(body.height)).map(|row| cells(row_text(row)));
    let table = Table::new(rows, widths)
        .column_spacing(1)
        .header(cells(headings).style(Style::new().add_modifier(Modifier::BOLD)));
    frame.render_widget(table, body);
    let keys = format!("q quit · s sort ({}) · f c w p e sort by a column · ↑↓ scroll", model.sort.as_str());
    frame.render_widget(Paragraph::new(keys), foot);
}

fn about_node(model: &Model) -> Vec<Line<'static>> {
    let Some(node) = &model.node else { return Vec::new() };
    let first = format!(
        "lighter {} at {}, up {}",
        node.version,
        model.url,
        words::duration(Duration::from_secs(node.uptime_seconds))
    );
    let second = match &model.trouble {
        Some(trouble) => format!("! {}", words::harmless(trouble)),
        None => format!(
            "memory {} · units {} of {} · {} function{} · {} calls/s · {} errors/s",
            words::bytes(node.rss_bytes),
            node.units_running,
            node.units_max,
            node.functions,
            words::plural(node.functions),
            rate(model.calls_per_second()),
            rate(model.errors_per_second()),
        ),
    };
    vec![Line::from(first), Line::from(second)]
}

fn row_text(row: &Row) -> [String; 9] {
    [
        row.function.clone(),
        row.version.to_string(),
        rate(row.calls_per_second),
        row.running.to_string(),
        row.waiting.to_string(),
        words::microseconds(row.p50_us),
        words::microseconds(row.p99_us),
        rate(row.errors_per_second),
        row.queued.map_or_else(|| "-".to_owned(), |queued| queued.to_string()),
    ]
}

fn cells(texts: [String; 9]) -> Cells<'static> {
    let cell =
        |(index, text): (usize, String)| if index == 0 { Line::from(text) } else { Line::from(text).right_aligned() };
    Cells::new(texts.into_iter().enumerate().map(cell))
}

/// `0`, `0.5`, `17`, `12.3k`.
fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate < 0.05 => "0".to_owned(),
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate if rate < 9_999.5 => format!("{rate:.0}"),
        rate => format!("{:.1}k", rate / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{node, stats};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(model: &Model) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..24).map(row).collect()
    }

    #[test]
    fn eighty_columns_are_enough() {
        let mut model = Model::new("http://127.0.0.1:8701".into(), Sort::Calls);
        model.take(node(), vec![stats("hello", 0, 0), stats("a-function-with-a-very-long-name", 0, 0)], Duration::ZERO);
        model.take(
            node(),
            vec![stats("hello", 12_345, 3), stats("a-function-with-a-very-long-name", 0, 0)],
            Duration::from_secs(1),
        );
        let screen = screen(&model);
        assert_eq!(screen[0], "lighter 0.1.0 at http://127.0.0.1:8701, up 2 h 3 min");
        assert_eq!(screen[1], "memory 31.2 MB · units 3 of 1000 · 2 functions · 12.3k calls/s · 3.0 errors/s");
        assert_eq!(screen[3], "FUNCTION       VER  CALLS/S↓    RUN   WAIT      P50      P99    ERR/S     QUEUED");
        assert_eq!(screen[4], "hello            1     12.3k      1      0    29 µs   1.2 ms      3.0          -");
        assert!(screen[5].starts_with("a-function-wi"));
        assert!(screen[23].starts_with("q quit"));
    }

    #[test]
    fn trouble_is_shown_and_the_rows_stay() {
        let mut model = Model::new("url".into(), Sort::Calls);
        model.take(node(), vec![stats("hello", 0, 0)], Duration::ZERO);
        model.trouble = Some("no node answers".into());
        let screen = screen(&model);
        assert_eq!(screen[1], "! no node answers");
        assert!(screen[4].starts_with("hello"));
    }
}
