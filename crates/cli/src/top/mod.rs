//! `lighter top`: watch functions live, on a terminal of 80 × 24 and more; JSON lines where there is none.
//!
//! ```text
//! sampler thread ──GET /v1/node, /v1/stats──▶ channel ──▶ Model ──▶ view ──▶ terminal
//!                                             keys ──────▶ ┘
//! ```

mod model;
mod view;

use super::Session;
use super::client::Client;
use super::stop::{Result, Stop};
use api_types::{FunctionStats, NodeInfo};
use clap::Args;
use model::{Model, Sort};
use problem::{Code, Problem};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::json;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often the terminal is looked at for keys.
const KEY_POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub struct Top {
    /// Seconds between two looks at the node
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// End after this many looks [default: never]
    #[arg(long, short = 'n', value_name = "LOOKS")]
    count: Option<u64>,
    /// Column to begin sorting by
    #[arg(long, value_enum, default_value_t = Sort::Calls)]
    sort: Sort,
}

/// What one look at the node found.
struct Sample {
    node: NodeInfo,
    stats: Vec<FunctionStats>,
    at: Duration,
}

impl Top {
    pub fn run(&self, session: &Session) -> Result {
        if !session.out.json && !session.out.is_terminal() {
            let problem = Problem::new(Code::Usage, "standard output is not a terminal");
            return Err(problem.with_hint("add --json for a document a second, or use `lighter stats`").into());
        }
        let client = session.client()?;
        let url = client.url().to_owned();
        // The first look is taken here: what is wrong with the node is told like everywhere else.
        let start = Instant::now();
        let first = look(&client, start)?;
        let mut model = Model::new(url, self.sort);
        model.take(first.node, first.stats, first.at);
        if session.out.json {
            return self.print(session, &client, model, start);
        }
        let samples = sampler(client.silent(), Duration::from_secs_f64(self.interval), start);
        let mut terminal = ratatui::try_init().map_err(|error| broken(&error))?;
        let ended = self.watch(&mut terminal, &mut model, &samples);
        ratatui::try_restore().map_err(|error| broken(&error))?;
        ended
    }

    fn print(&self, session: &Session, client: &Client, mut model: Model, start: Instant) -> Result {
        let mut looks = 0;
        while self.count.is_none_or(|count| looks < count) {
            thread::sleep(Duration::from_secs_f64(self.interval));
            let sample = look(client, start)?;
            model.take(sample.node, sample.stats, sample.at);
            session.out.json_line(&json!({ "node": model.node, "functions": model.rows }))?;
            looks += 1;
        }
        Ok(())
    }

    fn watch(&self, terminal: &mut DefaultTerminal, model: &mut Model, samples: &Receiver<Result<Sample>>) -> Result {
        let mut looks = 0;
        loop {
            terminal.draw(|frame| view::draw(frame, model)).map_err(|error| broken(&error))?;
            if event::poll(KEY_POLL).map_err(|error| broken(&error))?
                && let Event::Key(key) = event::read().map_err(|error| broken(&error))?
            {
                match pressed(key) {
                    Some(Wish::End) => return Ok(()),
                    Some(Wish::Interrupt) => return Err(Stop::Interrupted),
                    Some(Wish::Sort(sort)) => model.sort_by(sort),
                    Some(Wish::NextSort) => model.sort_by(model.sort.next()),
                    Some(Wish::Scroll(rows)) => model.scroll_by(rows),
                    None => {}
                }
            }
            while let Ok(sample) = samples.try_recv() {
                match sample {
                    Ok(sample) => {
                        model.take(sample.node, sample.stats, sample.at);
                        looks += 1;
                    }
                    Err(Stop::Problem(problem)) => model.trouble = Some(problem.detail.into_owned()),
                    Err(stop) => return Err(stop),
                }
            }
            if self.count.is_some_and(|count| looks >= count) {
                return Ok(());
            }
        }
    }
}

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    End,
    Interrupt,
    Sort(Sort),
    NextSort,
    Scroll(isize),
}

fn pressed(key: KeyEvent) -> Option<Wish> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Wish::Interrupt,
        KeyCode::Char('q') | KeyCode::Esc => Wish::End,
        KeyCode::Char('s') => Wish::NextSort,
        KeyCode::Char('f') => Wish::Sort(Sort::Function),
        KeyCode::Char('c') => Wish::Sort(Sort::Calls),
        KeyCode::Char('w') => Wish::Sort(Sort::Waiting),
        KeyCode::Char('p') => Wish::Sort(Sort::P99),
        KeyCode::Char('e') => Wish::Sort(Sort::Errors),
        KeyCode::Down | KeyCode::Char('j') => Wish::Scroll(1),
        KeyCode::Up | KeyCode::Char('k') => Wish::Scroll(-1),
        KeyCode::PageDown => Wish::Scroll(10),
        KeyCode::PageUp => Wish::Scroll(-10),
        _ => return None,
    })
}

fn look(client: &Client, start: Instant) -> Result<Sample> {
    let node = client.get("/v1/node")?;
    let stats = client.get("/v1/stats")?;
    Ok(Sample { node, stats, at: start.elapsed() })
}

/// Looks at the node in a thread of its own, so that a slow node does not make the keys slow. Ends with the receiver.
fn sampler(client: Client, interval: Duration, start: Instant) -> Receiver<Result<Sample>> {
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || {
        loop {
            thread::sleep(interval);
            if sender.send(look(&client, start)).is_err() {
                return;
            }
        }
    });
    receiver
}

fn broken(error: &io::Error) -> Stop {
    Stop::new(Code::FileUnusable, format!("the terminal: {error}"))
}

fn interval(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(seconds @ 0.1..=3_600.0) => Ok(seconds),
        _ => Err("it must be between 0.1 and 3600".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_c_interrupts_and_a_plain_c_sorts() {
        let key = |code, modifiers| pressed(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::Interrupt));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), Some(Wish::Sort(Sort::Calls)));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Wish::End));
        assert_eq!(key(KeyCode::Char('z'), KeyModifiers::NONE), None);
    }
}
