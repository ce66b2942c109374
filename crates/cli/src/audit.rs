//! `lighter audit`: who did what on the node, and who failed to log in.

use super::client::Client;
use super::output::Output;
use super::stop::{Result, Stop};
use super::table::Table;
use super::{Session, words};
use api_types::AuditEntry;
use clap::Args;
use problem::Code;

#[derive(Debug, Args)]
pub struct Audit {
    /// How many of the newest entries to show
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Keep printing entries as they come; failed logins come when their minute is over
    #[arg(long, short)]
    follow: bool,
}

impl Audit {
    pub fn run(self, session: &Session) -> Result {
        let (out, client) = (session.out, session.client()?);
        if self.follow {
            return follow(&client, out, self.limit);
        }
        let entries: Vec<AuditEntry> = client.get(&format!("/v1/audit?limit={}", self.limit))?;
        match out.json {
            true => out.json(&entries),
            false => out.table(&table(&entries)),
        }
    }
}

/// Prints entries until the node ends the stream.
fn follow(client: &Client, out: Output, limit: u32) -> Result {
    let request = client.request("GET", &format!("/v1/audit?limit={limit}&follow=true"));
    let answer = client.exchange(request, ()).and_then(|response| client.succeeded(response))?;
    for entry in client.lines::<AuditEntry>(answer) {
        let entry = entry?;
        match out.json {
            true => out.json_line(&entry)?,
            false => out.line(text(&entry))?,
        }
    }
    Err(Stop::new(Code::NodeUnreachable, format!("the node at {} ended the audit", client.url())))
}

/// `2026-11-21 03:54:19.123 ci from 192.0.2.7:4711: rm hello, done`, and how often if more than once.
fn text(entry: &AuditEntry) -> String {
    let token = entry.token.as_deref().unwrap_or("-");
    let from = entry.peer.as_ref().map(|peer| format!(" from {peer}")).unwrap_or_default();
    let times = if entry.count == 1 { String::new() } else { format!(", {} times", entry.count) };
    let AuditEntry { time_ms, action, target, outcome, .. } = entry;
    format!("{} {token}{from}: {action} {target}, {outcome}{times}", words::time(*time_ms))
}

fn table(entries: &[AuditEntry]) -> Table {
    let mut table = Table::new(&["TIME (UTC)", "TOKEN", "FROM", "DID", "TO", "OUTCOME", ">COUNT"]);
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    for entry in entries {
        table.row([
            words::time(entry.time_ms),
            text(&entry.token),
            text(&entry.peer),
            entry.action.clone(),
            entry.target.clone(),
            entry.outcome.clone(),
            entry.count.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_who_did_what_to_what() {
        let entry = AuditEntry {
            time_ms: 1_795_233_259_123,
            action: "rm".into(),
            token: Some("ci".into()),
            peer: Some("192.0.2.7:4711".into()),
            target: "hello".into(),
            outcome: "done".into(),
            count: 1,
        };
        let line = "2026-11-21 03:54:19.123  ci     192.0.2.7:4711  rm   hello  done         1";
        assert_eq!(table(std::slice::from_ref(&entry)).lines()[1], line);
        assert_eq!(text(&entry), "2026-11-21 03:54:19.123 ci from 192.0.2.7:4711: rm hello, done");
        let login = AuditEntry { token: None, action: "login".into(), target: "mqtt".into(), count: 7, ..entry };
        assert_eq!(text(&login), "2026-11-21 03:54:19.123 - from 192.0.2.7:4711: login mqtt, done, 7 times");
    }
}
