//! Our node as a contestant: events come by HTTP or MQTT, a wasm function handles each in a fresh unit, or several at
//! once where its manifest says so.

use super::clients::{Client, Flow};
use super::contest::{Contestant, Run};
use crate::client::{Sent, TOPIC, message, now_ns};
use crate::http1;
use crate::lighter::{Node, Project};
use crate::load::{Latency, histogram};
use crate::process::{Cores, Process};
use crate::run::Bench;
use anyhow::{Context as _, bail, ensure};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The function that handles the events, and its queue.
pub const FUNCTION: &str = "sift";
/// The same image, several events at once, in a unit that is used again.
pub const TOGETHER: &str = "sift-together";
/// Between two probes, and between two questions whether one is through.
const PROBE_EVERY: Duration = Duration::from_millis(5);
const PROBE_ASKS_EVERY: Duration = Duration::from_micros(100);
/// How often the node is asked how far it is.
const ASK_EVERY: Duration = Duration::from_millis(2);
/// A node that handles nothing for so long never will.
const STALLED_AFTER: Duration = Duration::from_secs(20);

/// Lines of the manifest: a queue that takes what a benchmark pushes, and as many units as it has events in flight. The
/// route is for the probe.
pub fn manifest(image: &str, units: u64) -> String {
    format!(
        "[function.{FUNCTION}]\nimage = \"{image}.wasm\"\nqueue = \"{FUNCTION}\"\nmqtt = \"{TOPIC}\"\n\
         http = {{ route = \"/{FUNCTION}\", async = true }}\nunits.maximum = {units}\n\
         [queue.{FUNCTION}]\nevents_max = 100_000_000\nbytes_max = 100_000_000_000\n"
    )
}

/// The same for [`TOGETHER`].
fn together(image: &str) -> String {
    format!(
        "[function.{TOGETHER}]\nimage = \"{image}.wasm\"\nqueue = \"{TOGETHER}\"\n\
         http = {{ route = \"/{TOGETHER}\", async = true }}\n\
         units = {{ batch = 64, reuse_calls = 1_000 }}\n\
         [queue.{TOGETHER}]\nevents_max = 100_000_000\nbytes_max = 100_000_000_000\n"
    )
}

/// A node with the functions deployed; `arguments` are more of `lighter up`.
pub fn node(bench: &Bench, name: &str, units: u64, arguments: &[String]) -> anyhow::Result<Node> {
    let mut project = Project::new(bench.folder(name))?;
    project.add_image(FUNCTION, &bench.guest(FUNCTION)?)?;
    project.add_lines(&manifest(FUNCTION, units));
    project.add_lines(&together(FUNCTION));
    let data = bench.folder(&format!("{name}-data"));
    let node = Node::start_with(&bench.lighter, &data, Cores::All, arguments)?;
    node.deploy(project.folder()?)?;
    Ok(node)
}

pub struct Ours<'a> {
    pub name: &'static str,
    pub node: &'a Node,
    /// The client that pushes, where to, and its further arguments.
    pub client: &'static str,
    pub to: SocketAddr,
    pub arguments: Vec<String>,
    pub queue: &'static str,
}

impl<'a> Ours<'a> {
    /// Pushed to the queue's endpoint of the API, `batch` events a request.
    pub fn by_http(name: &'static str, node: &'a Node, queue: &'static str, batch: u64) -> anyhow::Result<Self> {
        let path = format!("/v1/functions/{queue}/events");
        let words = ["--path", &path, "--batch", &batch.to_string(), "--header", &node.authorization()?];
        let arguments = words.map(str::to_owned).to_vec();
        Ok(Self { name, node, client: "http-push", to: node.api, arguments, queue })
    }

    fn counted(&self) -> anyhow::Result<Counted> {
        let queue = self.node.ask(&format!("/v1/queues/{}", self.queue))?;
        let count = |name: &str| queue[name].as_u64().unwrap_or(0);
        Ok(Counted { acked: count("acked"), failed: count("died") + count("retried") + count("expired") })
    }
}

/// Of a queue, since the node started.
struct Counted {
    acked: u64,
    failed: u64,
}

impl Contestant for Ours<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn server(&self) -> &Process {
        &self.node.process
    }

    fn run(&self, flow: Flow) -> anyhow::Result<Run> {
        let before = self.counted()?;
        let client = Client::start(self.client, self.to, flow, &self.arguments)?;
        // In an open loop some events more take the same way and are asked for, which a closed loop's rate would not
        // bear.
        let probe = flow.rate.map(|_| Probe::start(self.node.gate, self.queue));
        let sent: Sent = client.finish()?;
        let (probed, acked_us) = probe.map_or(Ok((0, Latency::NONE)), Probe::finish)?;
        let (mut acked, mut last_progress) = (0, Instant::now());
        loop {
            let now = self.counted()?;
            ensure!(now.failed == before.failed, "{}: {} events failed", self.name, now.failed - before.failed);
            if now.acked - before.acked >= flow.events + probed {
                break;
            }
            if now.acked > acked {
                (acked, last_progress) = (now.acked, Instant::now());
            }
            if last_progress.elapsed() > STALLED_AFTER {
                bail!("{}: {} of {} events were acked, and no more come", self.name, acked - before.acked, flow.events);
            }
            thread::sleep(ASK_EVERY);
        }
        Ok(Run {
            pushed: sent.events,
            handled: flow.events,
            took: Duration::from_nanos(now_ns().saturating_sub(sent.first_ns)),
            handled_us: Latency::NONE,
            acked_us,
        })
    }
}

/// Events that are pushed one after the other beside all others, and seen through: each is posted to an async route,
/// and its result asked for until it is there, which it is when the handling is durable.
struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<(u64, Latency)>>,
}

impl Probe {
    fn start(gate: SocketAddr, queue: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut acked = histogram();
            let mut connection = http1::Connection::open(gate)?;
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                let begin = now_ns();
                let taken = connection.send("POST", &format!("/{queue}"), &message(number, begin))?;
                ensure!(taken.status == 202, "the async route answers {}", taken.status);
                let taken: serde_json::Value = serde_json::from_slice(&taken.body)?;
                let place = taken["results"][0].as_str().context("an async route says where the result will be")?;
                while connection.send("GET", place, b"")?.status == 202 {
                    thread::sleep(PROBE_ASKS_EVERY);
                }
                acked.saturating_record(now_ns() - begin);
                number += 1;
                thread::sleep(PROBE_EVERY);
            }
            Ok((number, Latency::of(&acked)))
        });
        Self { stop, thread }
    }

    /// How many there were, and how long they took.
    fn finish(self) -> anyhow::Result<(u64, Latency)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the probe does not panic")
    }
}
