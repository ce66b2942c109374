//! `bench fill`: fills a queue and a bucket directly, without a node, and measures how fast they are then, as JSON.
//!
//! Directly, because ten million events by HTTP would take most of an hour and say nothing else of the queue. The
//! folder is one that a node can be started on afterwards.

use crate::client::message;
use crate::report::median;
use anyhow::Context as _;
use event::Event;
use serde::{Deserialize, Serialize};
use state::{Options, Push, Queue, QueueConfig, State, Ticket};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Events or keys of one transaction while it is filled.
const BATCH: u64 = 500;
/// Batches that may wait for the disk together.
const BATCHES: u64 = 32;
/// Events in flight while it is measured, and how often.
const IN_FLIGHT: u64 = 64;
const ROUNDS: u64 = 200;
const LEASE: Duration = Duration::from_secs(60);
const BUCKET: &str = "readings";

#[derive(Debug, Clone, clap::Args)]
pub struct FillOptions {
    /// The data folder of a node that does not run.
    folder: PathBuf,
    #[arg(long, default_value_t = 0)]
    events: u64,
    #[arg(long, default_value_t = 0)]
    keys: u64,
    #[arg(long, default_value = "sift")]
    queue: String,
}

/// Times are medians for one event, in microseconds, where 64 share a sync of the disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Filled {
    pub filled_per_s: f64,
    /// Until it is durable.
    pub append_us: f64,
    pub lease_us: f64,
    /// Until it is durable.
    pub ack_us: f64,
    /// Reading one key of the bucket, and a page of 100; none without keys.
    pub get_us: Option<f64>,
    pub list_us: Option<f64>,
    /// Setting one key until that is durable.
    pub set_us: Option<f64>,
    pub resident_bytes: u64,
    pub disk_bytes: u64,
}

/// Fills and measures.
pub fn run(options: &FillOptions) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("{}", serde_json::to_string(&runtime.block_on(fill(options))?)?);
    Ok(())
}

async fn fill(options: &FillOptions) -> anyhow::Result<Filled> {
    let state = State::open(&options.folder, Options::default())?;
    let queue = state.queue(&options.queue)?;
    queue.configure(QueueConfig { events_max: u64::MAX, bytes_max: u64::MAX, ..QueueConfig::default() });
    let filler = Filler { state: &state, queue: &options.queue, now_ms: now_ms() };
    let begin = Instant::now();
    filler.all(options.events, |transaction, number| filler.push(transaction, number)).await?;
    filler.all(options.keys, set).await?;
    let filled_per_s = (options.events + options.keys) as f64 / begin.elapsed().as_secs_f64();
    let mut times = Times::default();
    for round in 0..ROUNDS {
        filler.round(round, options, &queue, &mut times).await?;
    }
    let some = |times: &[f64]| (!times.is_empty()).then(|| median(times));
    Ok(Filled {
        filled_per_s,
        append_us: median(&times.append),
        lease_us: median(&times.lease),
        ack_us: median(&times.ack),
        get_us: some(&times.get),
        list_us: some(&times.list),
        set_us: some(&times.set),
        resident_bytes: crate::process::own_resident_bytes()?,
        disk_bytes: state.statistics().disk_bytes,
    })
}

#[derive(Default)]
struct Times {
    append: Vec<f64>,
    lease: Vec<f64>,
    ack: Vec<f64>,
    get: Vec<f64>,
    list: Vec<f64>,
    set: Vec<f64>,
}

struct Filler<'a> {
    state: &'a State,
    queue: &'a str,
    now_ms: u64,
}

impl Filler<'_> {
    async fn all(
        &self,
        count: u64,
        mut add: impl FnMut(&mut state::Transaction, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut last = None;
        for first in (0..count).step_by(BATCH as usize) {
            let mut transaction = self.state.begin();
            for number in first..count.min(first + BATCH) {
                add(&mut transaction, number)?;
            }
            last = Some(commit(transaction)?);
            if (first / BATCH).is_multiple_of(BATCHES) {
                self.durable(last.take()).await?;
            }
        }
        self.durable(last).await
    }

    async fn durable(&self, ticket: Option<Ticket>) -> anyhow::Result<()> {
        match ticket {
            Some(ticket) => Ok(self.state.durable(ticket).await?),
            None => Ok(()),
        }
    }

    fn push(&self, transaction: &mut state::Transaction, number: u64) -> anyhow::Result<()> {
        let event = Event {
            id: format!("{number:016x}"),
            source: "/bench".to_owned(),
            kind: "reading".to_owned(),
            time_ms: self.now_ms,
            attempt: 1,
            data: message(number, 0),
            ..Event::default()
        };
        transaction.push(self.queue, &Push { event, delay: Duration::ZERO, ttl: None }, self.now_ms)?;
        Ok(())
    }

    /// One more measurement of each thing.
    async fn round(&self, round: u64, options: &FillOptions, queue: &Queue, times: &mut Times) -> anyhow::Result<()> {
        let numbers = options.events + round * IN_FLIGHT..options.events + (round + 1) * IN_FLIGHT;
        let each_us = |begin: Instant| begin.elapsed().as_secs_f64() * 1e6 / IN_FLIGHT as f64;

        let begin = Instant::now();
        let mut last = None;
        for number in numbers.clone() {
            let mut transaction = self.state.begin();
            self.push(&mut transaction, number)?;
            last = Some(commit(transaction)?);
        }
        self.durable(last).await?;
        times.append.push(each_us(begin));

        let begin = Instant::now();
        let mut leased = Vec::new();
        for _ in numbers.clone() {
            leased.extend(queue.lease(self.now_ms, self.now_ms + LEASE.as_millis() as u64, 1)?);
        }
        times.lease.push(each_us(begin));

        let begin = Instant::now();
        let mut last = None;
        for leased in &leased {
            let mut transaction = self.state.begin();
            transaction.ack(leased);
            last = Some(commit(transaction)?);
        }
        self.durable(last).await?;
        times.ack.push(each_us(begin));

        if options.keys > 0 {
            self.keys_round(round, options.keys, times, each_us).await?;
        }
        Ok(())
    }

    async fn keys_round(
        &self,
        round: u64,
        keys: u64,
        times: &mut Times,
        each_us: impl Fn(Instant) -> f64,
    ) -> anyhow::Result<()> {
        // Far apart, so that no two are in one block of a table.
        let places: Vec<_> = (0..IN_FLIGHT).map(|n| (round * IN_FLIGHT + n).wrapping_mul(7_919) % keys).collect();
        let begin = Instant::now();
        for place in &places {
            self.state.begin().get(BUCKET, &key(*place))?.context("a key that was set is there")?;
        }
        times.get.push(each_us(begin));

        let begin = Instant::now();
        self.state.begin().list(BUCKET, "kit/", Some(&key(places[0])), 100)?;
        times.list.push(begin.elapsed().as_secs_f64() * 1e6);

        let begin = Instant::now();
        let mut last = None;
        for place in &places {
            let mut transaction = self.state.begin();
            set(&mut transaction, *place)?;
            last = Some(commit(transaction)?);
        }
        self.durable(last).await?;
        times.set.push(each_us(begin));
        Ok(())
    }
}

fn key(number: u64) -> String {
    format!("kit/{number:010}")
}

fn set(transaction: &mut state::Transaction, number: u64) -> anyhow::Result<()> {
    Ok(transaction.set(BUCKET, &key(number), message(number, 0))?)
}

fn commit(transaction: state::Transaction) -> anyhow::Result<Ticket> {
    transaction.commit().map_err(|why| anyhow::anyhow!("could not commit: {why}"))
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
