//! `lighter push`: put events into a queue. Once it prints their ids they are durable.

use super::call::{Data, guessed_type};
use super::client::{Client, announced, encoded};
use super::nearest::explain;
use super::output::Output;
use super::stop::{Result, Stop};
use super::{DataFolder, Session};
use api_types::PushReply;
use clap::Args;
use manifest::Span;
use problem::{Code, Problem};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use ureq::http::header::CONTENT_TYPE;

/// Events of one request; more are sent in several.
const EVENTS_PER_REQUEST: u32 = 1_000;
/// Bytes of one request, below what the node takes.
const BYTES_PER_REQUEST: usize = 8 << 20;

#[derive(Debug, Args)]
pub struct Push {
    /// Queue to push to; a function with triggers has one of its own name
    queue: String,
    #[command(flatten)]
    data: Data,
    /// Type of the event
    #[arg(long = "type", value_name = "TYPE", default_value = "push")]
    kind: String,
    /// Subject of the event
    #[arg(long)]
    subject: Option<String>,
    /// Id of the event, by which a queue with `deduplicate` recognises it [default: a new one]
    #[arg(long)]
    id: Option<String>,
    /// Key of the event: a queue with order = "key" handles the events of one key one after the other
    #[arg(long)]
    key: Option<String>,
    /// How long the event waits before it is handled, such as 10s or 5m
    #[arg(long, value_name = "SPAN", value_parser = span)]
    delay: Option<Span>,
    /// How many times to push it, with ids that end in -1, -2 and so on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// Push the CloudEvents of this file instead: one JSON document on each line, as `lighter salvage` writes them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "file", "id", "count", "delay"])]
    events: Option<PathBuf>,
    /// Media type of the data [default: guessed from the data]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    #[command(flatten)]
    _folder: DataFolder,
}

pub fn span(text: &str) -> std::result::Result<Span, String> {
    Span::try_from(text.to_owned())
}

impl Push {
    pub fn run(&self, session: &Session) -> Result {
        let (out, client) = (session.out, session.client()?);
        if let Some(file) = &self.events {
            return self.push_events(&client, out, file);
        }
        let data = self.data.read(out)?;
        let per_request = u32::try_from(BYTES_PER_REQUEST / data.len().max(1)).unwrap_or(u32::MAX);
        let per_request = per_request.clamp(1, EVENTS_PER_REQUEST);
        let progress = out.progress();
        let (mut pushed, mut duplicates) = (0, 0);
        let mut all = PushReply { queue: self.queue.clone(), ids: Vec::new(), duplicates: 0 };
        while pushed < self.count {
            let count = per_request.min(self.count - pushed);
            progress.step(format!("pushing to {} ({pushed} of {})", self.queue, self.count));
            let reply = self.push(&client, &data, pushed, count).map_err(|stop| match pushed {
                0 => stop,
                pushed => {
                    out.complain(format!("{pushed} of {} events had been pushed", self.count));
                    stop
                }
            })?;
            pushed += count;
            duplicates += reply.duplicates;
            match out.json {
                true => all.ids.extend(reply.ids),
                false => reply.ids.iter().try_for_each(|id| out.line(id))?,
            }
        }
        drop(progress);
        if out.json {
            return out.json(&PushReply { duplicates, ..all });
        }
        if duplicates > 0 {
            out.say(format!("{duplicates} of them the queue had already"));
        }
        Ok(())
    }

    /// Sends the lines of `file` in batches, each of which is taken as a whole or not at all.
    fn push_events(&self, client: &Client, out: Output, file: &Path) -> Result {
        let failed = |error: std::io::Error| Stop::file(file, &error);
        let mut lines = BufReader::new(File::open(file).map_err(failed)?).lines().peekable();
        let progress = out.progress();
        let mut all = PushReply { queue: self.queue.clone(), ids: Vec::new(), duplicates: 0 };
        let mut pushed = 0;
        while lines.peek().is_some() {
            progress.step(format!("pushing to {} ({pushed} events)", self.queue));
            let (mut batch, mut count) = (String::from("["), 0);
            while count < EVENTS_PER_REQUEST {
                let is_full = |line: &String| count > 0 && batch.len() + line.len() + 2 > BYTES_PER_REQUEST;
                if lines.peek().is_some_and(|line| line.as_ref().is_ok_and(is_full)) {
                    break;
                }
                let Some(line) = lines.next() else { break };
                let line = line.map_err(failed)?;
                if !line.trim().is_empty() {
                    batch += if count > 0 { "," } else { "" };
                    batch += &line;
                    count += 1;
                }
            }
            batch += "]";
            let request = client.request("POST", &format!("/v1/queues/{}/events", encoded(&self.queue)));
            let request = request.header(CONTENT_TYPE, cloudevents::BATCHED);
            let response = client.exchange(request, batch.as_bytes()).and_then(|response| client.succeeded(response));
            let reply: PushReply = client.read(response.map_err(|stop| {
                out.complain(format!("the first {pushed} events of {} had been pushed", file.display()));
                explain(client, &self.queue, stop)
            })?)?;
            pushed += count;
            all.duplicates += reply.duplicates;
            match out.json {
                true => all.ids.extend(reply.ids),
                false => reply.ids.iter().try_for_each(|id| out.line(id))?,
            }
        }
        drop(progress);
        if out.json { out.json(&all) } else { Ok(()) }
    }

    fn push(&self, client: &Client, data: &[u8], before: u32, count: u32) -> Result<PushReply> {
        let mut query = vec![("type", self.kind.clone())];
        query.extend(self.subject.clone().map(|subject| ("subject", subject)));
        query.extend(self.key.clone().map(|key| ("key", key)));
        query.extend(self.delay.map(|delay| ("delay_ms", delay.duration().as_millis().to_string())));
        if let Some(id) = &self.id {
            // Requests after the first go on where the one before ended. One event alone gets its number here.
            let id = match (before, count) {
                (0, _) => id.clone(),
                (_, 1) => format!("{id}-{before}-1"),
                _ => format!("{id}-{before}"),
            };
            query.push(("id", id));
        }
        if count > 1 {
            query.push(("count", count.to_string()));
        }
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let path = format!("/v1/queues/{}/events?{}", encoded(&self.queue), query.join("&"));
        let mut request = announced(client.request("POST", &path), data.len());
        if let Some(kind) = self.content_type.as_deref().or((!data.is_empty()).then(|| guessed_type(data))) {
            request = request.header(CONTENT_TYPE, kind);
        }
        let response = client.succeeded(client.exchange(request, data)?);
        let response = response.map_err(|stop| explain(client, &self.queue, stop))?;
        let bytes = client.bytes(response, 64 << 20)?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Stop::Problem(Problem::new(Code::Unknown, format!("the node's answer: {error}"))))
    }
}
