//! `lighter down`: ask the node to stop, and wait until it has.

use super::locate::{data_folder, is_node, known_node};
use super::stop::{Result, Stop};
use super::{Client, Session, words};
use problem::Code;
use std::thread;
use std::time::{Duration, Instant};

/// A node that drains longer than this is left to it.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

pub fn run(session: &Session) -> Result {
    let client = session.client()?;
    let url = client.url();
    // Asked before it stops: it takes its file with it.
    let process = process(session, url);
    client.send("POST", "/v1/stop", &[])?;
    let progress = session.out.progress();
    progress.step(format!("stopping the node at {url}: it ends its calls first"));
    let since = Instant::now();
    while !is_gone(&client, process) {
        if since.elapsed() > PATIENCE {
            return Err(Stop::new(
                Code::Draining,
                format!("the node at {url} still ends its calls after {}", words::duration(PATIENCE)),
            ));
        }
        thread::sleep(POLL);
    }
    match session.out.json {
        true => session.out.json(&serde_json::json!({ "stopped": url })),
        false => {
            progress.done(format!("stopped the node at {url}"));
            Ok(())
        }
    }
}

/// The node's process, if it is the one of this data folder.
fn process(session: &Session, url: &str) -> Option<u32> {
    let known = known_node(&data_folder(session.global.data_folder.as_deref()).ok()?)?;
    (known.api == url && is_node(known.pid)).then_some(known.pid)
}

/// Of a node on another machine no more can be seen than that it does not listen any more.
fn is_gone(client: &Client, process: Option<u32>) -> bool {
    match (process, client.ask("GET", "/healthz", ())) {
        (Some(process), _) => !is_node(process),
        (None, Err(Stop::Problem(problem))) => problem.code == Code::NodeUnreachable,
        (None, _) => false,
    }
}
