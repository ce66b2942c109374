//! One event after the other through a workflow that is otherwise idle: published by MQTT, and seen again where the
//! workflow ends, at a subscriber, at a webhook, or as an event that was acked.

use super::message::now_ns;
use super::mqtt::{connect, publish, received, subscribe, take_packets};
use super::pump::Replies;
use crate::http1;
use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// An event that is not through by then never will be.
const THROUGH_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, clap::Args)]
pub struct ProbeOptions {
    /// The broker.
    address: SocketAddr,
    workload: Workload,
    #[arg(long, default_value_t = 100)]
    events: u64,
    /// Pause after each event.
    #[arg(long, default_value_t = 10)]
    pause_ms: u64,
    /// Where to be the webhook.
    #[arg(long)]
    webhook: Option<SocketAddr>,
    /// The API, to be asked of acked events, and the header that lets us in.
    #[arg(long, requires = "header")]
    api: Option<SocketAddr>,
    #[arg(long)]
    header: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    Lights,
    Health,
    Alert,
    Fridge,
    Fibonacci,
    Co2,
}

/// Milliseconds of each event, in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Probed {
    /// Until the broker confirmed the publish.
    pub confirmed_ms: Vec<f64>,
    /// Until it was seen at the end of the workflow.
    pub through_ms: Vec<f64>,
}

/// What one step publishes: the event that is measured, and what must follow it for the next to be like it.
struct Step {
    topic: &'static str,
    event: String,
    after: Option<String>,
}

impl Workload {
    fn step(self, n: u64) -> Step {
        let step = |topic, event| Step { topic, event, after: None };
        let (second, minute) = (n % 60, n / 60);
        let time = format!("2026-11-21T08:{minute:02}:{second:02}Z");
        let sequence = n + 1;
        match self {
            Self::Lights => {
                step("home/hall/motion", format!(r#"{{"sequence": {sequence}, "motion": {}}}"#, n.is_multiple_of(2)))
            }
            Self::Health => step("health/ann/heart", format!(r#"{{"time": "{time}", "rate": 72, "unit": "bpm"}}"#)),
            Self::Alert => {
                let density = if n.is_multiple_of(2) { 0.3 } else { 0.01 };
                let event = format!(r#"{{"sequence": {sequence}, "density": {density}, "unit": "1/m"}}"#);
                step("home/hall/smoke", event)
            }
            Self::Fridge => Step {
                topic: "fridge/kitchen/door",
                event: format!(r#"{{"sequence": {}, "open": true}}"#, 2 * n + 1),
                after: Some(format!(r#"{{"sequence": {}, "open": false}}"#, 2 * n + 2)),
            },
            Self::Fibonacci => step("fibonacci/ask/me", "20".to_owned()),
            Self::Co2 => {
                let ppm = if n.is_multiple_of(2) { 1_200 } else { 800 };
                let event = format!(
                    r#"{{"data": [{{"recorded_at": "{time}", "sensors": [{{"id": 158, "value": {ppm}}}, {{"id": 55, "value": 21.5}}, {{"id": 53, "value": 40.1}}]}}]}}"#
                );
                step("device/sck/kit-1/readings", event)
            }
        }
    }

    /// Where its results are published, of those that publish.
    fn results(self) -> Option<&'static str> {
        match self {
            Self::Lights => Some("home/+/bulb"),
            Self::Fridge => Some("fridge/+/count"),
            Self::Fibonacci => Some("fibonacci/answer/+"),
            Self::Health | Self::Alert | Self::Co2 => None,
        }
    }

    /// The queue whose acks are its results, of that which neither publishes nor posts.
    fn queue(self) -> Option<&'static str> {
        (self == Self::Health).then_some("record")
    }
}

/// Sends the events through.
///
/// # Errors
/// One of them did not come through.
pub fn run(options: &ProbeOptions) -> anyhow::Result<Probed> {
    let (seen, through) = channel();
    watch(options, &seen)?;
    let publisher = Publisher { stream: connect(options.address, "probe")?, replies: Replies::new() };
    measure(options, publisher, &through)
}

/// Starts what sees the results, and tells of each when it came.
fn watch(options: &ProbeOptions, seen: &Sender<u64>) -> anyhow::Result<()> {
    if let Some(filter) = options.workload.results() {
        let stream = connect(options.address, "results")?;
        subscribe(&stream, filter)?;
        let seen = seen.clone();
        thread::spawn(move || hear(&stream, &seen));
    }
    if let Some(address) = options.webhook {
        let listener = TcpListener::bind(address)?;
        let seen = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = seen.clone();
                thread::spawn(move || answer_posts(&stream, &seen));
            }
        });
    }
    if let (Some(queue), Some(api), Some(header)) = (options.workload.queue(), options.api, options.header.clone()) {
        let path = format!("/v1/queues/{queue}");
        let acked = move || -> anyhow::Result<u64> {
            let answer = http1::once_with(api, "GET", &path, std::slice::from_ref(&header), b"", THROUGH_MAX)?;
            let queue: serde_json::Value = serde_json::from_slice(&answer.body)?;
            queue["acked"].as_u64().context("the API says how many were acked")
        };
        let (mut known, seen) = (acked()?, seen.clone());
        thread::spawn(move || {
            while let Ok(now) = acked() {
                for _ in known..now {
                    // Whoever waited has gone with the process.
                    let _ = seen.send(now_ns());
                }
                known = now;
            }
        });
    }
    Ok(())
}

/// Confirms what is published to us.
fn hear(stream: &TcpStream, seen: &Sender<u64>) -> anyhow::Result<()> {
    stream.set_read_timeout(None)?;
    let mut replies = Replies::new();
    loop {
        let bytes = replies.more(stream)?;
        let now = now_ns();
        take_packets(bytes, |kind, body| {
            if let (Some(packet_id), _) = received(kind, body)? {
                let ack = [&[0x40, 2], &packet_id[..]].concat();
                (&*stream).write_all(&ack)?;
            }
            // What was kept from before comes with the retain flag.
            if kind & 1 == 0 {
                seen.send(now)?;
            }
            Ok(())
        })?;
    }
}

/// Answers every request of one connection with 200.
fn answer_posts(mut stream: &TcpStream, seen: &Sender<u64>) -> anyhow::Result<()> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 16 << 10]);
    stream.set_nodelay(true)?;
    loop {
        let read = stream.read(&mut chunk)?;
        if read == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&chunk[..read]);
        while let Some(length) = request_length(&bytes)? {
            seen.send(now_ns())?;
            bytes.drain(..length);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")?;
        }
    }
}

/// Bytes of the request at the front, if it is all there.
fn request_length(bytes: &[u8]) -> anyhow::Result<Option<usize>> {
    let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..head])?.to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let body: usize = length.context("a webhook without content-length")?.trim().parse()?;
    Ok((bytes.len() >= head + 4 + body).then_some(head + 4 + body))
}

/// A connection that waits for each confirmation.
struct Publisher {
    stream: TcpStream,
    replies: Replies,
}

impl Publisher {
    fn publish(&mut self, topic: &str, message: &str) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        publish(&mut bytes, topic, 1, message.as_bytes());
        self.stream.write_all(&bytes)?;
        let mut confirmed = false;
        while !confirmed {
            take_packets(self.replies.more(&self.stream)?, |kind, _| {
                confirmed |= kind >> 4 == 4;
                Ok(())
            })?;
        }
        Ok(())
    }
}

fn measure(options: &ProbeOptions, mut publisher: Publisher, through: &Receiver<u64>) -> anyhow::Result<Probed> {
    let mut probed = Probed { confirmed_ms: Vec::new(), through_ms: Vec::new() };
    let ms_since = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
    // The first starts what is started once: it is not one of those that are counted.
    for n in 0..=options.events {
        let step = options.workload.step(n);
        let begin = now_ns();
        publisher.publish(step.topic, &step.event)?;
        let confirmed = now_ns();
        let Ok(seen) = through.recv_timeout(THROUGH_MAX) else {
            bail!("event {n} of {:?} is not through after {THROUGH_MAX:?}", options.workload)
        };
        if n > 0 {
            probed.confirmed_ms.push(ms_since(begin, confirmed));
            probed.through_ms.push(ms_since(begin, seen));
        }
        if let Some(after) = step.after {
            publisher.publish(step.topic, &after)?;
        }
        thread::sleep(Duration::from_millis(options.pause_ms));
    }
    Ok(probed)
}
