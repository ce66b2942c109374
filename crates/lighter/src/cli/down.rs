//! `lighter down`: ask the node to stop, and wait until it has.

use super::stop::{Result, Stop};
use super::{Session, words};
use problem::Code;
use std::thread;
use std::time::{Duration, Instant};

/// A node that drains longer than this is left to it.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);

pub fn run(session: &Session) -> Result {
    let client = session.client()?;
    let url = client.url();
    client.send("POST", "/v1/stop", &[])?;
    let progress = session.out.progress();
    progress.step(format!("stopping the node at {url}: it ends its calls first"));
    let since = Instant::now();
    while !is_gone(&client) {
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

fn is_gone(client: &super::Client) -> bool {
    match client.ask("GET", "/healthz", ()) {
        Err(Stop::Problem(problem)) => problem.code == Code::NodeUnreachable,
        _ => false,
    }
}
