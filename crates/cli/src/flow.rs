//! `lighter flow`: the workflow of a manifest, or of all that is deployed, checked and drawn.

use super::Session;
use super::images::{self, Project};
use super::stop::{Result, Stop};
use api_types::QueueInfo;
use clap::Args;
use drawing::Counts;
use manifest::Manifest;
use manifest::flow::{Flow as Graph, Warning};
use ratatui::crossterm::terminal;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Characters of a line where there is no terminal to ask.
const WIDTH: usize = 80;

#[derive(Debug, Args)]
pub struct Flow {
    /// Folder with lighter.toml, or the manifest itself
    #[arg(default_value = ".", hide_default_value = true)]
    dir: PathBuf,
    /// Show the workflows on the node, with the events that wait in their queues now
    #[arg(long, conflicts_with = "dir")]
    live: bool,
    /// Write an SVG picture to FILE instead; - is standard output
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Characters in a line [default: the width of the terminal, or 80]
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(20..))]
    width: Option<u16>,
}

/// The graph for machines.
#[derive(Debug, Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    graph: &'a Graph,
    warnings: &'a [Warning],
    /// By queue; empty unless the graph is that of a node.
    counts: &'a BTreeMap<String, Counts>,
}

impl Flow {
    pub fn run(&self, session: &Session) -> Result {
        let (manifest, counts) = match self.live {
            true => live(session)?,
            false => (images::project(&self.dir, &session.brought.images)?.manifest, BTreeMap::new()),
        };
        let graph = Graph::of(&manifest);
        let warnings = graph.check(&manifest).warnings;
        if let Some(file) = &self.svg {
            write(session, file, &drawing::svg(&graph, &counts))?;
        } else if session.out.json {
            return session.out.json(&Document { graph: &graph, warnings: &warnings, counts: &counts });
        } else {
            self.draw(session, &graph, &counts)?;
        }
        warn(session, &warnings);
        Ok(())
    }

    fn draw(&self, session: &Session, graph: &Graph, counts: &BTreeMap<String, Counts>) -> Result {
        let terminal = || match session.out.is_terminal() {
            true => terminal::size().map_or(WIDTH, |(columns, _)| usize::from(columns)),
            false => WIDTH,
        };
        let width = self.width.map_or_else(terminal, usize::from);
        drawing::text(graph, counts, width).lines().try_for_each(|line| session.out.line(line))
    }
}

/// All that is deployed, and what is in its queues.
fn live(session: &Session) -> Result<(Manifest, BTreeMap<String, Counts>)> {
    let client = session.client()?;
    let queues: Vec<QueueInfo> = client.get("/v1/queues")?;
    let counts = |queue: QueueInfo| {
        let QueueInfo { name, ready, leased, delayed, dead, .. } = queue;
        (name, Counts { ready, leased, delayed, dead })
    };
    Ok((client.get("/v1/deployments")?, queues.into_iter().map(counts).collect()))
}

/// Says what may be wrong with the workflows of a project. What surely is has been an error before.
pub fn warn_of(session: &Session, project: &Project) {
    warn(session, &Graph::of(&project.manifest).check(&project.manifest).warnings);
}

fn warn(session: &Session, warnings: &[Warning]) {
    for warning in warnings {
        session.out.advise(warning);
    }
}

fn write(session: &Session, file: &Path, document: &str) -> Result {
    match file == Path::new("-") {
        true => session.out.raw(document.as_bytes()),
        false => fs::write(file, document).map_err(|error| Stop::file(file, &error)),
    }
}
