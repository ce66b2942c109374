//! `lighter event`: follows an event through its handlings, and lists the newest ones.

use super::Session;
use super::client::{Client, encoded};
use super::nearest::explain;
use super::stop::Result;
use super::table::Table;
use super::words::{self, microseconds};
use api_types::HandlingInfo;
use clap::Args;

#[derive(Debug, Args)]
pub struct Event {
    /// Id of the event to follow, with the events that functions pushed because of it [default: the newest handlings]
    #[arg(value_name = "ID", conflicts_with_all = ["queue", "failed", "limit"])]
    id: Option<String>,
    /// Only handlings of this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only handlings that failed
    #[arg(long)]
    failed: bool,
    /// How many of the newest handlings to show
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
}

impl Event {
    pub fn run(self, session: &Session) -> Result {
        let (out, client) = (session.out, session.client()?);
        let handlings = self.ask(&client)?;
        if out.json {
            return out.json(&handlings);
        }
        if handlings.is_empty() {
            out.say("no such handling is known: the node remembers the last ones since its start");
            return Ok(());
        }
        out.table(&table(&handlings))
    }

    fn ask(&self, client: &Client) -> Result<Vec<HandlingInfo>> {
        if let Some(id) = &self.id {
            return client.get(&format!("/v1/events?id={}", encoded(id)));
        }
        let failed = if self.failed { "&failed=true" } else { "" };
        let queue = self.queue.as_ref().map_or(String::new(), |queue| format!("&queue={}", encoded(queue)));
        let answer = client.get(&format!("/v1/events?limit={}{failed}{queue}", self.limit));
        answer.map_err(|stop| match &self.queue {
            Some(queue) => explain(client, queue, stop),
            None => stop,
        })
    }
}

fn table(handlings: &[HandlingInfo]) -> Table {
    let mut table = Table::new(&["BEGAN (UTC)", "EVENT", "QUEUE", "BY", ">TRY", ">WAITED", ">TOOK", "OUTCOME", "WHY"]);
    for one in handlings {
        let by = match (&one.function, one.version) {
            (Some(function), Some(version)) => format!("{function} v{version}"),
            _ => "-".to_owned(),
        };
        let waited_ms = one.began_ms.saturating_sub(one.pushed_ms);
        table.row([
            words::time(one.began_ms),
            one.id.clone(),
            one.queue.clone(),
            by,
            one.attempt.to_string(),
            words::duration(std::time::Duration::from_millis(waited_ms)),
            microseconds(one.total_us as f64),
            one.outcome.clone(),
            one.reason.clone().unwrap_or_default(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handling_is_a_line() {
        let one = HandlingInfo {
            id: "7".into(),
            queue: "readings".into(),
            function: Some("alarm".into()),
            version: Some(3),
            attempt: 2,
            pushed_ms: 1_795_233_259_023,
            began_ms: 1_795_233_259_123,
            total_us: 1_234,
            outcome: "dead".into(),
            reason: Some("L6003: no JSON".into()),
            ..HandlingInfo::default()
        };
        let line = "2026-11-21 03:54:19.123  7      readings  alarm v3    2  100 ms  1.2 ms  dead     L6003: no JSON";
        assert_eq!(table(&[one]).lines()[1], line);
    }
}
