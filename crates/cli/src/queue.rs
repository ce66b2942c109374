//! `lighter queue`: shows what waits in queues and what died in them, and changes it.

use super::client::{Client, encoded, json};
use super::nearest::{check_all, explain};
use super::output::Output;
use super::stop::{Result, Stop};
use super::table::Table;
use super::{Session, words};
use api_types::{
    EventInfo, EventPage, NodeInfo, PauseRequest, Paused, QueueInfo, QueuePart, RemovedReply, ReplayReply,
    ReplayRequest,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::{Args, Subcommand};
use problem::{Code, Problem};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Characters of an event's data in a table.
const DATA_SHOWN: usize = 40;
/// Events of one page of the API.
const PAGE_EVENTS: u32 = 100;

#[derive(Debug, Subcommand)]
pub enum Queue {
    /// List the queues with their handlers and contents
    Ls,
    /// Show waiting events, the oldest first; they stay in the queue
    Peek(Peek),
    /// Show dead letters and why they died, the oldest first
    Dead(Dead),
    /// Put dead letters back into the queue to be tried again
    Replay {
        /// Queue of the dead letters
        queue: String,
        /// Numbers of the dead letters, from `lighter queue dead` [default: all]
        sequences: Vec<u64>,
        #[command(flatten)]
        how: How,
    },
    /// Remove events, except those that are being handled
    Purge(Purge),
    /// Pause these queues, or all, until they are resumed, even after a restart; pushes go on
    Pause {
        /// Queues to pause [default: all, and those that come later]
        #[arg(value_name = "QUEUE")]
        queues: Vec<String>,
    },
    /// Resume these queues, or all
    Resume {
        /// Queues to resume [default: all]
        #[arg(value_name = "QUEUE")]
        queues: Vec<String>,
    },
    /// Remove queues and their contents; remove the function or sink that handles them first
    Rm {
        /// Queues to remove
        #[arg(required = true, value_name = "QUEUE")]
        queues: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub struct Peek {
    /// Queue to look into
    queue: String,
    /// Which events
    #[arg(long, default_value = "ready")]
    part: QueuePart,
    #[command(flatten)]
    page: Page,
}

#[derive(Debug, Args)]
pub struct Dead {
    /// Queue to look into
    queue: String,
    #[command(flatten)]
    page: Page,
}

#[derive(Debug, Args)]
pub struct Purge {
    /// Queue to purge
    queue: String,
    /// Numbers of the dead letters to remove, from `lighter queue dead` [default: all events]
    sequences: Vec<u64>,
    /// Only these [default: all of them]
    #[arg(long)]
    part: Option<QueuePart>,
    /// Only dead letters whose reason contains this text, such as L6003
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only say how many dead letters would be removed
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub struct How {
    /// Only those whose reason contains this text, such as L6003
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// File with other data for a single dead letter; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only say how many would be replayed
    #[arg(long)]
    dry_run: bool,
    /// Also replay those that were already replayed five times
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct Page {
    /// How many to show at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
    /// Continue where an earlier listing ended
    #[arg(long, value_name = "PLACE")]
    after: Option<String>,
    /// Only those whose reason contains this text, such as L6003
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Queue {
    pub fn run(self, session: &Session) -> Result {
        let (out, client) = (session.out, session.client()?);
        match self {
            Self::Ls => list(&client, out),
            Self::Peek(Peek { queue, part, page }) => page.show(&client, out, &queue, part),
            Self::Dead(Dead { queue, page }) => page.show(&client, out, &queue, QueuePart::Dead),
            Self::Replay { queue, sequences, how } => how.replay(&client, out, &queue, sequences),
            Self::Purge(purge) => purge.run(&client, out),
            Self::Pause { queues } => pause(&client, out, queues, true),
            Self::Resume { queues } => pause(&client, out, queues, false),
            Self::Rm { queues } => {
                check_all(&client, Code::QueueUnknown, &queues, "queue")?;
                for queue in &queues {
                    let removed = client.send("DELETE", &path(queue, ""), ());
                    removed.map_err(|stop| explain(&client, queue, stop))?;
                    out.advise(format!("removed the queue {queue}"));
                }
                match out.json {
                    true => out.json(&serde_json::json!({ "removed": queues })),
                    false => Ok(()),
                }
            }
        }
    }
}

fn pause(client: &Client, out: Output, queues: Vec<String>, paused: bool) -> Result {
    check_all(client, Code::QueueUnknown, &queues, "queue")?;
    let (path, word) = if paused { ("/v1/pause", "paused") } else { ("/v1/resume", "resumed") };
    let what = if queues.is_empty() { "all queues".to_owned() } else { queues.join(", ") };
    let reply: Paused = client.post(path, &PauseRequest { queues })?;
    said(out, &reply, format!("{word} {what}"))
}

fn said(out: Output, reply: &impl serde::Serialize, words: String) -> Result {
    match out.json {
        true => out.json(reply),
        false => {
            out.say(words);
            Ok(())
        }
    }
}

fn list(client: &Client, out: Output) -> Result {
    let queues: Vec<QueueInfo> = client.get("/v1/queues")?;
    if out.json {
        return out.json(&queues);
    }
    if queues.is_empty() {
        out.say("there are no queues: a function gets one with `queue = \"NAME\"`, or with a trigger that is not http");
        return Ok(());
    }
    out.table(&overview(&queues))?;
    for QueueInfo { name, damaged, .. } in queues.iter().filter(|queue| queue.damaged > 0) {
        out.say(format!(
            "{damaged} events of {name} stand in damaged places of the disk, the node's log names the files; \
             `lighter queue purge {name}` forgets them"
        ));
    }
    let node: NodeInfo = client.get("/v1/node")?;
    if let Some(reason) = node.queues_paused {
        out.advise(format!("the queues are paused, because {reason}: `lighter queue resume` goes on"));
    }
    Ok(())
}

fn overview(queues: &[QueueInfo]) -> Table {
    let mut table = Table::new(&[
        "QUEUE", "HANDLER", ">READY", ">DELAYED", ">LEASED", ">DEAD", ">OLDEST", ">WORKERS", ">PUSHED", ">ACKED",
    ]);
    for queue in queues {
        let handler = queue.handler.as_ref();
        table.row([
            queue.name.clone(),
            handler.map_or(if queue.paused { "- (paused)" } else { "-" }.to_owned(), |handler| match &handler.ended {
                Some(_) => format!("{} {} (ended)", handler.kind, handler.name),
                None if handler.workers_max == 0 || queue.paused => {
                    format!("{} {} (paused)", handler.kind, handler.name)
                }
                None => format!("{} {}", handler.kind, handler.name),
            }),
            queue.ready.to_string(),
            queue.delayed.to_string(),
            queue.leased.to_string(),
            queue.dead.to_string(),
            queue.oldest_age_ms.map_or("-".to_owned(), |ms| words::duration(Duration::from_millis(ms))),
            handler.map_or("-".to_owned(), |handler| format!("{}/{}", handler.workers, handler.workers_max)),
            queue.pushed.to_string(),
            queue.acked.to_string(),
        ]);
    }
    table
}

impl Purge {
    fn run(self, client: &Client, out: Output) -> Result {
        let Self { queue, sequences, part, reason, dry_run } = self;
        // What chooses among dead letters means dead letters.
        let chooses = !sequences.is_empty() || reason.is_some() || dry_run;
        let mut query: Vec<String> = Vec::new();
        let part = part.or(chooses.then_some(QueuePart::Dead));
        query.extend(part.map(|part| format!("part={}", word(part))));
        query.extend(reason.map(|reason| format!("reason={}", encoded(&reason))));
        if !sequences.is_empty() {
            let numbers: Vec<String> = sequences.iter().map(u64::to_string).collect();
            query.push(format!("sequences={}", numbers.join(",")));
        }
        query.extend(dry_run.then(|| "dry_run=true".to_owned()));
        let response = client.ask("DELETE", &path(&queue, &format!("/events?{}", query.join("&"))), ());
        let response = response.map_err(|stop| explain(client, &queue, stop))?;
        let reply: RemovedReply = client.read(response)?;
        let what = if chooses { "dead letters" } else { "events" };
        let would = if dry_run { "would be" } else { "are" };
        said(out, &reply, format!("{} {what} of {queue} {would} gone", reply.removed))
    }
}

impl How {
    fn replay(self, client: &Client, out: Output, queue: &str, sequences: Vec<u64>) -> Result {
        let Self { reason, file, dry_run, force } = self;
        let wanted = sequences.len() as u64;
        let sequences = (!sequences.is_empty()).then_some(sequences);
        let data_base64 = file.map(|file| Ok::<_, Stop>(BASE64.encode(read(&file)?))).transpose()?;
        let request = ReplayRequest { sequences, reason, data: None, data_base64, dry_run, force };
        let reply: ReplayReply =
            client.post(&path(queue, "/replay"), &request).map_err(|stop| explain(client, queue, stop))?;
        let missing = wanted.saturating_sub(reply.replayed + reply.stayed);
        if missing == wanted && wanted > 0 {
            let problem = Problem::new(Code::EventUnknown, format!("{queue} has no such dead letter"));
            return Err(problem.with_hint(format!("`lighter queue dead {queue}` lists them")).into());
        }
        let missing = if missing > 0 { format!(", {missing} are not there") } else { String::new() };
        let stayed = match reply.stayed {
            0 => String::new(),
            stayed => format!(", {stayed} stay: they were replayed five times, --force does it once more"),
        };
        let would = if dry_run { "would be" } else { "are" };
        said(out, &reply, format!("{} dead letters {would} back in {queue}{missing}{stayed}", reply.replayed))
    }
}

/// What a file holds, or standard input.
fn read(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = match file == Path::new("-") {
        true => io::stdin().lock().read_to_end(&mut bytes).map(drop),
        false => fs::read(file).map(|content| bytes = content),
    };
    read.map(|()| bytes).map_err(|error| Stop::file(file, &error))
}

impl Page {
    fn show(self, client: &Client, out: Output, queue: &str, part: QueuePart) -> Result {
        let (mut after, mut left) = (self.after, self.limit);
        let mut all = EventPage { events: Vec::new(), next: None };
        while left > 0 {
            let mut query = format!("?part={}&limit={}", word(part), left.min(PAGE_EVENTS));
            if let Some(after) = &after {
                query += &format!("&after={}", encoded(after));
            }
            if let Some(reason) = &self.reason {
                query += &format!("&reason={}", encoded(reason));
            }
            let page: EventPage =
                client.get(&path(queue, &format!("/events{query}"))).map_err(|stop| explain(client, queue, stop))?;
            left = left.saturating_sub(u32::try_from(page.events.len()).unwrap_or(u32::MAX));
            all.events.extend(page.events);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        all.next = after;
        if out.json {
            return out.json(&all);
        }
        if all.events.is_empty() {
            out.say(format!("{queue} has no such events"));
            return Ok(());
        }
        out.table(&events(&all.events, part, now_ms()))?;
        if left == 0
            && let Some(next) = all.next
        {
            out.say(format!("there may be more: --after {next}"));
        }
        Ok(())
    }
}

fn events(events: &[EventInfo], part: QueuePart, now_ms: u64) -> Table {
    let heading = match part {
        QueuePart::Ready => ["#", "ID", "TYPE", "SUBJECT", "PUSHED (UTC)", ">TRIES", "", "DATA"],
        QueuePart::Delayed => ["#", "ID", "TYPE", "SUBJECT", "PUSHED (UTC)", ">TRIES", "READY IN", "DATA"],
        QueuePart::Dead => ["#", "ID", "TYPE", "SUBJECT", "PUSHED (UTC)", ">TRIES", "WHY", "DATA"],
    };
    let mut table = Table::new(&heading);
    for info in events {
        let text = |key: &str| info.event[key].as_str().unwrap_or_default().to_owned();
        let more = match part {
            QueuePart::Ready => String::new(),
            QueuePart::Delayed => {
                words::duration(Duration::from_millis(info.at_ms.unwrap_or(now_ms).saturating_sub(now_ms)))
            }
            QueuePart::Dead => info.reason.clone().unwrap_or_default(),
        };
        table.row([
            info.sequence.to_string(),
            text("id"),
            text("type"),
            text("subject"),
            words::time(info.pushed_ms),
            info.tries.to_string(),
            more,
            data(&info.event),
        ]);
    }
    table
}

/// The beginning of the data, in one line.
fn data(event: &serde_json::Value) -> String {
    let text = match (&event["data"], &event["data_base64"]) {
        (serde_json::Value::String(text), _) => text.clone(),
        (serde_json::Value::Null, serde_json::Value::String(text)) => format!("base64 {text}"),
        (serde_json::Value::Null, _) => String::new(),
        (json, _) => json.to_string(),
    };
    let mut line: String = text.chars().take(DATA_SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(DATA_SHOWN).is_some() {
        line.push('…');
    }
    line
}

fn path(queue: &str, rest: &str) -> String {
    format!("/v1/queues/{}{rest}", encoded(queue))
}

fn word(part: QueuePart) -> String {
    String::from_utf8_lossy(&json(&part)).trim_matches('"').to_owned()
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_dead_letter_says_why_it_died() {
        let info = EventInfo {
            sequence: 7,
            tries: 5,
            pushed_ms: 1_795_233_259_123,
            at_ms: Some(0),
            reason: Some("L6001: unreachable (try 5 of 5)".into()),
            event: json!({ "id": "a", "type": "reading", "subject": "s", "data": { "co2": 1200 } }),
        };
        assert_eq!(
            events(&[info], QueuePart::Dead, 0).lines(),
            [
                "#  ID  TYPE     SUBJECT  PUSHED (UTC)             TRIES  WHY                              DATA",
                "7  a   reading  s        2026-11-21 03:54:19.123      5  L6001: unreachable (try 5 of 5)  {\"co2\":1200}",
            ]
        );
    }

    #[test]
    fn data_is_shown_in_one_short_line() {
        assert_eq!(data(&json!({ "data": "a\nb" })), "a b");
        assert_eq!(data(&json!({ "data_base64": "AAE=" })), "base64 AAE=");
        assert_eq!(data(&json!({})), "");
        assert_eq!(data(&json!({ "data": "x".repeat(50) })).chars().count(), DATA_SHOWN + 1);
    }
}
