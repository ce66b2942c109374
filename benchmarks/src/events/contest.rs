//! Contestants that take, hand out and forget events, measured in turns: how many a second, and how late each is.

use super::clients::{Client, Flow};
use crate::client::{Handled, Sent};
use crate::load::Latency;
use crate::process::Process;
use crate::report::{Table, median, number, quantile};
use anyhow::ensure;
use std::net::SocketAddr;
use std::time::Duration;

/// Events on their way at once, at either end.
pub const IN_FLIGHT: u64 = 64;
/// Events of the run that finds out how many a longer one should have.
const TRIAL_EVENTS: u64 = 2_000;
const EVENTS_MAX: u64 = 2_000_000;

pub trait Contestant {
    fn name(&self) -> &str;

    fn server(&self) -> &Process;

    /// The events of `flow`, numbered from 0, are pushed, handled and acked.
    fn run(&self, flow: Flow) -> anyhow::Result<Run>;
}

/// What became of one run.
#[derive(Debug, Clone)]
pub struct Run {
    pub pushed: u64,
    /// Different ones.
    pub handled: u64,
    /// From the first push to the last ack.
    pub took: Duration,
    /// From when an event was due until it was handled.
    pub handled_us: Latency,
    /// From when an event was due until it was acked.
    pub acked_us: Latency,
}

impl Run {
    pub fn events_per_s(&self) -> f64 {
        self.handled as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// A server with a client process on either end.
pub struct Peer<'a> {
    pub name: &'static str,
    /// The clients are called `CLIENT-push` and `CLIENT-handle`.
    pub client: &'static str,
    pub process: &'a Process,
    pub address: SocketAddr,
    /// More arguments of the one that pushes.
    pub push: Vec<String>,
    /// Whether events may get lost.
    pub lossy: bool,
}

impl Contestant for Peer<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn server(&self) -> &Process {
        self.process
    }

    fn run(&self, flow: Flow) -> anyhow::Result<Run> {
        let start =
            |end, flow, more: &[String]| Client::start(&format!("{}-{end}", self.client), self.address, flow, more);
        let handler = start("handle", Flow { rate: None, ..flow }, &[])?.ready()?;
        let sent: Sent = start("push", flow, &self.push)?.finish()?;
        let handled: Handled = handler.finish()?;
        let all = handled.events == flow.events && handled.duplicates == 0;
        ensure!(self.lossy || all, "{}: of {} events came {handled:?}", self.name, flow.events);
        Ok(Run {
            pushed: sent.events,
            handled: handled.events,
            took: Duration::from_nanos(handled.last_ns.saturating_sub(sent.first_ns)),
            handled_us: handled.handled_us,
            acked_us: handled.acked_us,
        })
    }
}

/// What the rounds came to for one contestant.
pub struct Standing {
    pub name: String,
    pub runs: Vec<Run>,
    /// CPU time of the server for one event, in microseconds, one value a round.
    cpu_us: Vec<f64>,
    /// Bytes the server had written to the disk for one event, one value a round.
    written: Vec<f64>,
    events: u64,
    pub failure: Option<anyhow::Error>,
}

impl Standing {
    pub fn events_per_s(&self) -> f64 {
        median(&self.runs.iter().map(Run::events_per_s).collect::<Vec<_>>())
    }

    pub fn written(&self) -> f64 {
        median(&self.written)
    }

    /// The median over the rounds of this one's events a second divided by the other's in the same round.
    pub fn ratio_to(&self, other: &Self) -> f64 {
        let pairs = self.runs.iter().zip(&other.runs);
        median(&pairs.map(|(mine, theirs)| mine.events_per_s() / theirs.events_per_s()).collect::<Vec<_>>())
    }

    /// Why it was given up, or nothing.
    ///
    /// # Errors
    /// It was given up.
    pub fn well(&self) -> anyhow::Result<&Self> {
        match &self.failure {
            None => Ok(self),
            Some(why) => Err(anyhow::anyhow!("{}: {why:#}", self.name)),
        }
    }

    fn round(&mut self, contestant: &dyn Contestant, window: u64) -> anyhow::Result<()> {
        let server = contestant.server();
        let (cpu, written) = (server.cpu_time()?, server.written_bytes()?);
        let run = contestant.run(Flow { events: self.events, window, rate: None })?;
        let each = |total: f64| total / run.handled.max(1) as f64;
        self.cpu_us.push(each((server.cpu_time()? - cpu).as_secs_f64() * 1e6));
        self.written.push(each((server.written_bytes()? - written) as f64));
        self.runs.push(run);
        Ok(())
    }
}

/// Runs each contestant in turn, A B C C B A A B C …, so that whatever else happens on the machine hits all alike. Each
/// run has about as many events as that contestant handles in `seconds`. One that fails is given up and costs the
/// others nothing.
pub fn side_by_side(contestants: &[&dyn Contestant], window: u64, rounds: usize, seconds: f64) -> Vec<Standing> {
    let trial = |contestant: &&dyn Contestant| {
        let run = contestant.run(Flow { events: TRIAL_EVENTS, window, rate: None });
        let events = run.as_ref().map_or(0, |run| (run.events_per_s() * seconds) as u64);
        Standing {
            name: contestant.name().to_owned(),
            runs: Vec::new(),
            cpu_us: Vec::new(),
            written: Vec::new(),
            events: events.clamp(TRIAL_EVENTS, EVENTS_MAX),
            failure: run.err(),
        }
    };
    let mut standings: Vec<_> = contestants.iter().map(trial).collect();
    for round in 0..rounds {
        let mut turn: Vec<_> = standings.iter_mut().zip(contestants).collect();
        if round % 2 == 1 {
            turn.reverse();
        }
        for (standing, contestant) in turn {
            if standing.failure.is_none() {
                standing.failure = standing.round(*contestant, window).err();
            }
        }
    }
    standings
}

/// A table of what the rounds came to.
pub fn print(title: &str, standings: &[Standing]) {
    let columns =
        ["", "events/s", "worst", "best", "server CPU us/event", "disk bytes/event", "lost", "events a round"];
    let mut table = Table::new(title, &columns);
    for standing in standings {
        let rates: Vec<_> = standing.runs.iter().map(Run::events_per_s).collect();
        let cells = [median(&rates), quantile(&rates, 0.0), quantile(&rates, 1.0)].map(number);
        let costs = [median(&standing.cpu_us), median(&standing.written)].map(number);
        let lost: u64 = standing.runs.iter().map(|run| run.pushed - run.handled).sum();
        let counts = [lost, standing.events].map(|count| count.to_string());
        table.row([standing.name.clone()].into_iter().chain(cells).chain(costs).chain(counts));
    }
    table.print();
    for standing in standings {
        if let Err(why) = standing.well() {
            println!("given up: {why:#}");
        }
    }
}

/// A table of latencies in an open loop, at these shares of each contestant's own highest rate.
pub fn latencies(contestants: &[&dyn Contestant], standings: &[Standing], shares: &[f64], seconds: f64) {
    let mut table = Table::new(
        "From when an event was due, in us, at a steady share of each one's own rate",
        &["", "share", "events/s", "handled p50", "p90", "p99", "acked p50", "p90", "p99", "max"],
    );
    for (contestant, standing) in contestants.iter().zip(standings) {
        if standing.failure.is_some() {
            continue;
        }
        for share in shares {
            let rate = standing.events_per_s() * share;
            let events = (rate * seconds) as u64;
            let cells = match contestant.run(Flow { events, window: IN_FLIGHT, rate: Some(rate) }) {
                Ok(Run { handled_us: handled, acked_us: acked, .. }) => {
                    let handled = [handled.p50, handled.p90, handled.p99].map(|us| match us {
                        // Ours ends with the ack: what is handled is not seen before it.
                        0.0 => "-".to_owned(),
                        us => number(us),
                    });
                    let acked = [acked.p50, acked.p90, acked.p99, acked.max].map(number);
                    [number(rate)].into_iter().chain(handled).chain(acked).collect()
                }
                Err(why) => vec![number(rate), format!("failed: {why:#}")],
            };
            let share = format!("{} %", share * 100.0);
            table.row([standing.name.clone(), share].into_iter().chain(cells));
        }
    }
    table.print();
}
