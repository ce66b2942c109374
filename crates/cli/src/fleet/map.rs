//! `lighter fleet map`: the fleet around this node, looked at each second.
//!
//! ```text
//!   pi-7   this node                                            plate, sum
//!   ├──── 400 µs ── server-1 ⚓  waits 3.1 ms   12.0 calls/s     plate
//!   └────────────── pi-9        not reached, heard 3 h ago
//! ```
//! Lines are ways that calls can take from here, with the time there and back. What is drawn is what the choice for a
//! call uses, and nothing else.

use super::heard;
use super::show::ms;
use crate::client::Client;
use crate::screen::{Looks, Screen};
use crate::stop::Result;
use crate::{Session, words};
use api_types::{FleetInfo, FleetNode};
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What one query found.
pub struct Sample {
    fleet: FleetInfo,
    at: Duration,
}

/// Everything on the screen.
struct Map {
    fleet: FleetInfo,
    at: Duration,
    /// Calls a second that go to each node, by its id.
    rates: BTreeMap<String, f64>,
    trouble: Option<String>,
    /// Nodes above the screen.
    scroll: usize,
}

pub fn run(session: &Session, looks: &Looks) -> Result {
    Looks::check(session, "lighter fleet")?;
    let client = session.client()?;
    let start = Instant::now();
    let Sample { fleet, at } = look(&client, start)?;
    if session.out.json {
        return looks.print(|| look(&client, start), |sample| session.out.json_line(&sample.fleet));
    }
    let mut map = Map { fleet, at, rates: BTreeMap::new(), trouble: None, scroll: 0 };
    let client = client.silent();
    looks.show(&mut map, move || look(&client, start))
}

fn look(client: &Client, start: Instant) -> Result<Sample> {
    Ok(Sample { fleet: client.get("/v1/fleet")?, at: start.elapsed() })
}

fn calls(fleet: &FleetInfo) -> BTreeMap<String, u64> {
    fleet.nodes.iter().filter_map(|node| Some((node.id.clone(), node.load?.calls))).collect()
}

impl Screen for Map {
    type Sample = Sample;

    fn draw(&self, frame: &mut Frame<'_>) {
        frame.render_widget(Paragraph::new(self.lines(usize::from(frame.area().height))), frame.area());
    }

    fn take(&mut self, Sample { fleet, at }: Sample) {
        let (before, now) = (calls(&self.fleet), calls(&fleet));
        let seconds = at.saturating_sub(self.at).as_secs_f64().max(1e-3);
        // A counter that went back is of a node that was started again, or was heard again.
        let rate = |(id, now): (String, u64)| {
            let new = before.get(&id).and_then(|before| now.checked_sub(*before)).unwrap_or(0);
            (id, new as f64 / seconds)
        };
        self.rates = now.into_iter().map(rate).collect();
        (self.fleet, self.at, self.trouble) = (fleet, at, None);
    }

    fn trouble(&mut self, detail: String) {
        self.trouble = Some(detail);
    }

    fn press(&mut self, key: KeyCode) {
        let last = self.fleet.nodes.len().saturating_sub(1);
        self.scroll = match key {
            KeyCode::Down | KeyCode::Char('j') => self.scroll.saturating_add(1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.scroll.saturating_sub(1),
            _ => self.scroll,
        };
    }
}

impl Map {
    /// The screen, of so many lines.
    fn lines(&self, height: usize) -> Vec<Line<'static>> {
        let FleetInfo { name, nodes, .. } = &self.fleet;
        let reached = nodes.iter().filter(|node| node.load.is_some()).count();
        let head = match &self.trouble {
            Some(trouble) => format!("! {}", words::harmless(trouble)),
            None => format!(
                "{name} · {reached} of {} others reached · engine {}",
                nodes.len().saturating_sub(1),
                self.engine()
            ),
        };
        let room = height.saturating_sub(3);
        let shown = nodes.iter().enumerate().skip(self.scroll).take(room);
        let rows = shown.map(|(at, node)| Line::from(self.row(node, at + 1 == nodes.len())));
        let foot = Line::from("q quit · ↑↓ scroll");
        [Line::from(head), Line::default()].into_iter().chain(rows).chain([foot]).collect()
    }

    fn engine(&self) -> String {
        match &self.fleet.engine {
            Some(engine) if engine.connected => "reached".to_owned(),
            Some(engine) => engine.trouble.as_ref().map_or("not reached", |trouble| &trouble.code).to_owned(),
            None => "none".to_owned(),
        }
    }

    fn row(&self, node: &FleetNode, is_last: bool) -> String {
        let name = format!("{}{}", node.name, if node.anchor { " ⚓" } else { "" });
        let functions = node.functions.join(", ");
        if node.this_node {
            return format!("{name:<44}  {:<32}  {functions}", "this node");
        }
        let branch = if is_last { '└' } else { '├' };
        let Some(load) = &node.load else {
            return format!("{branch}{}  {name:<28}  not reached, heard {}", "─".repeat(12), heard(node));
        };
        let way = format!("{:─>12}", format!(" {} ", ms(load.round_trip_ms)));
        let busy = format!("waits {}", ms(load.wait_ms));
        let rate = self.rates.get(&node.id).copied().unwrap_or_default();
        format!("{branch}{way}  {name:<28}  {busy:<16}{rate:>8.1} calls/s  {functions}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_types::{FleetEngine, FleetLoad};

    fn node(name: &str, calls: Option<u64>) -> FleetNode {
        let load = |calls| FleetLoad { round_trip_ms: 0.4, wait_ms: 3.1, places: 2, speed: 1.0, calls };
        FleetNode {
            id: name.to_owned(),
            name: name.to_owned(),
            address: None,
            anchor: name == "server-1",
            this_node: name == "pi-7",
            version: None,
            heard_ms: Some(61_000),
            mail_waiting: 0,
            load: calls.map(load),
            functions: vec!["plate".to_owned()],
        }
    }

    fn fleet(calls: u64) -> FleetInfo {
        FleetInfo {
            name: "campus".to_owned(),
            id: "0".to_owned(),
            anchor: false,
            nodes: vec![node("pi-7", None), node("server-1", Some(calls)), node("pi-9", None)],
            copies: Vec::new(),
            trouble: None,
            engine: Some(FleetEngine { connected: true, process: None, trouble: None }),
            doubled: false,
        }
    }

    #[test]
    fn the_map_has_every_node_and_the_calls_that_go_there() {
        let (fleet_then, at) = (fleet(10), Duration::from_secs(1));
        let mut map = Map { fleet: fleet_then, at, rates: BTreeMap::new(), trouble: None, scroll: 0 };
        Screen::take(&mut map, Sample { fleet: fleet(34), at: Duration::from_secs(3) });
        let said: Vec<String> = map.lines(24).iter().map(ToString::to_string).collect();
        assert_eq!(said[0], "campus · 1 of 2 others reached · engine reached");
        assert!(said[2].starts_with("pi-7  ") && said[2].contains("this node"), "{said:?}");
        assert!(said[3].starts_with("├──── 400 µs   server-1 ⚓") && said[3].contains("    12.0 calls/s  plate"));
        assert!(
            said[4].starts_with("└────────────  pi-9") && said[4].ends_with("not reached, heard 61 s ago"),
            "{said:?}"
        );
        // A node that was started again counts from the beginning.
        Screen::take(&mut map, Sample { fleet: fleet(2), at: Duration::from_secs(4) });
        assert!(map.lines(24)[3].to_string().contains("     0.0 calls/s"));
        map.trouble("it is gone".to_owned());
        assert_eq!(map.lines(24)[0].to_string(), "! it is gone");
        (0..9).for_each(|_| map.press(KeyCode::Down));
        assert!(map.lines(24)[2].to_string().contains("pi-9"), "it scrolls to the last one");
    }
}
