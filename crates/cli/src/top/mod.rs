//! `lighter top`: watch functions live, on a terminal of 80 × 24 and more; JSON lines where there is none.

mod model;
mod view;

use super::Session;
use super::client::Client;
use super::screen::{Looks, Screen};
use super::stop::Result;
use api_types::{FunctionStats, NodeInfo};
use clap::Args;
use model::{Model, Sort};
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use serde_json::json;
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub struct Top {
    #[command(flatten)]
    looks: Looks,
    /// Column to sort by at first
    #[arg(long, value_enum, default_value_t = Sort::Calls)]
    sort: Sort,
}

/// What one look at the node found.
pub struct Sample {
    node: NodeInfo,
    stats: Vec<FunctionStats>,
    at: Duration,
}

impl Top {
    pub fn run(&self, session: &Session) -> Result {
        Looks::check(session, "lighter stats")?;
        let client = session.client()?;
        let url = client.url().to_owned();
        // The first look is taken here: what is wrong with the node is told like everywhere else.
        let start = Instant::now();
        let first = look(&client, start)?;
        let mut model = Model::new(url, self.sort);
        Screen::take(&mut model, first);
        if session.out.json {
            return self.looks.print(
                || look(&client, start),
                |sample| {
                    Screen::take(&mut model, sample);
                    session.out.json_line(&json!({ "node": model.node, "functions": model.rows }))
                },
            );
        }
        let client = client.silent();
        self.looks.show(&mut model, move || look(&client, start))
    }
}

impl Screen for Model {
    type Sample = Sample;

    fn draw(&self, frame: &mut Frame<'_>) {
        view::draw(frame, self);
    }

    fn take(&mut self, sample: Sample) {
        self.take(sample.node, sample.stats, sample.at);
    }

    fn trouble(&mut self, detail: String) {
        self.trouble = Some(detail);
    }

    fn press(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('s') => self.sort_by(self.sort.next()),
            KeyCode::Char('f') => self.sort_by(Sort::Function),
            KeyCode::Char('c') => self.sort_by(Sort::Calls),
            KeyCode::Char('w') => self.sort_by(Sort::Waiting),
            KeyCode::Char('p') => self.sort_by(Sort::P99),
            KeyCode::Char('e') => self.sort_by(Sort::Errors),
            KeyCode::Down | KeyCode::Char('j') => self.scroll_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll_by(-1),
            KeyCode::PageDown => self.scroll_by(10),
            KeyCode::PageUp => self.scroll_by(-10),
            _ => {}
        }
    }
}

fn look(client: &Client, start: Instant) -> Result<Sample> {
    let node = client.get("/v1/node")?;
    let stats = client.get("/v1/stats")?;
    Ok(Sample { node, stats, at: start.elapsed() })
}
