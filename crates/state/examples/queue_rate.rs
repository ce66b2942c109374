//! Measures queues on this machine: cycles of push, lease and ack, and how cost grows with length.
//!
//! cargo run --release -p state --example queue_rate -- [cycles|length EVENTS|all] [FOLDER]
//!
//! With SYNC_MICROSECONDS=5000 in the environment, a disk whose syncs take that long stands in for this machine's.

use event::Event;
use state::{Disk, Options, Push, QueueConfig, RealDisk, State};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const RUN: Duration = Duration::from_secs(3);
const NOW: u64 = 1_700_000_000_000;
/// Bytes of data in one event.
const DATA_BYTES: usize = 100;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let what = arguments.first().map_or("all", String::as_str);
    let own = tempfile::tempdir().expect("a temporary folder can be made");
    let folder = arguments.iter().skip(1).find(|text| text.contains('/')).map_or(own.path().to_owned(), PathBuf::from);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("the runtime starts");
    if matches!(what, "cycles" | "all") {
        for in_flight in [1, 16, 64, 256] {
            runtime.block_on(cycles(&folder, in_flight, None, false));
        }
        runtime.block_on(cycles(&folder, 64, Some(Duration::from_secs(1)), false));
        runtime.block_on(cycles(&folder, 1, None, true));
        runtime.block_on(cycles(&folder, 64, None, true));
    }
    let lengths: Vec<u64> = match what {
        "length" => arguments.iter().skip(1).filter_map(|text| text.parse().ok()).collect(),
        "all" => vec![1_000, 100_000],
        _ => Vec::new(),
    };
    for length in lengths {
        runtime.block_on(length_of(&folder.join(length.to_string()), length));
    }
}

/// A disk that takes a given time for each sync, as others than this machine's do.
struct SlowDisk(Duration);

impl Disk for SlowDisk {
    fn sync(&self, _: &File) -> std::io::Result<()> {
        std::thread::sleep(self.0);
        Ok(())
    }

    fn bytes_free(&self, _: &Path) -> std::io::Result<u64> {
        Ok(u64::MAX)
    }
}

fn open(folder: &Path) -> State {
    let disk: Arc<dyn Disk> = match std::env::var("SYNC_MICROSECONDS").ok().and_then(|text| text.parse().ok()) {
        Some(microseconds) => Arc::new(SlowDisk(Duration::from_micros(microseconds))),
        None => Arc::new(RealDisk),
    };
    let state = State::open(folder, Options { disk, ..Options::default() }).expect("the state opens");
    let config = QueueConfig { events_max: u64::MAX, bytes_max: u64::MAX, ..QueueConfig::default() };
    state.queue("rate").expect("a name").configure(config);
    state
}

fn push_of(number: u64) -> Push {
    let event = Event {
        id: format!("{number:016x}"),
        source: "/rate".to_owned(),
        kind: "rate".to_owned(),
        time_ms: NOW,
        data: vec![b'd'; DATA_BYTES],
        ..Event::default()
    };
    Push { event, delay: Duration::ZERO, ttl: None }
}

/// Each of `in_flight` tasks pushes an event, waits until that is durable, leases one, acks it and waits again. With
/// `effect`, what acks also reads and writes a key of its own.
async fn cycles(folder: &Path, in_flight: u64, relaxed: Option<Duration>, effect: bool) {
    let state = open(&folder.join(format!("cycles-{in_flight}-{}-{effect}", relaxed.is_some())));
    state.set_sync_every(relaxed);
    let (before, io, cpu) = (state.statistics(), written_bytes(), cpu_time());
    let started = Instant::now();
    let tasks: Vec<_> = (0..in_flight)
        .map(|task| {
            let state = state.clone();
            tokio::spawn(async move {
                let queue = state.queue("rate").expect("a name");
                let mut latencies = Vec::new();
                while started.elapsed() < RUN {
                    let began = Instant::now();
                    let mut transaction = state.begin();
                    transaction
                        .push("rate", &push_of(task << 32 | latencies.len() as u64), NOW)
                        .expect("there is room");
                    state.durable(transaction.commit().expect("no conflict")).await.expect("the disk works");
                    let leased = queue.lease(NOW, NOW + 30_000, 1).expect("the disk works").pop();
                    let mut transaction = state.begin();
                    if effect {
                        transaction.increment("effects", &task.to_string(), 1).expect("a number");
                    }
                    transaction.ack(&leased.expect("each leases what one pushed"));
                    state.durable(transaction.commit().expect("no conflict")).await.expect("the disk works");
                    latencies.push(began.elapsed());
                }
                latencies
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.expect("no task panics"));
    }
    let (took, after) = (started.elapsed(), state.statistics());
    latencies.sort_unstable();
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    println!(
        "{in_flight:4} in flight{}{}: {:7.0} cycles/s, p50 {:?}, p99 {:?}, {} syncs of {:?}, {:.1} µs CPU and {} bytes written a cycle",
        if relaxed.is_some() { ", relaxed" } else { "" },
        if effect { ", with an effect" } else { "" },
        latencies.len() as f64 / took.as_secs_f64(),
        at(0.5),
        at(0.99),
        after.syncs - before.syncs,
        (after.sync_time - before.sync_time) / u32::try_from((after.syncs - before.syncs).max(1)).unwrap_or(1),
        (cpu_time() - cpu).as_secs_f64() * 1e6 / latencies.len() as f64,
        (written_bytes() - io) / latencies.len() as u64,
    );
}

/// Fills a queue to `length`; then how fast it takes and gives, what it holds in memory, and how fast it opens.
async fn length_of(folder: &Path, length: u64) {
    const BATCH: u64 = 1_000;
    let state = open(folder);
    let (resident, io, started) = (resident_kb(), written_bytes(), Instant::now());
    let mut number = 0;
    let mut last = None;
    while number < length {
        let mut transaction = state.begin();
        for _ in 0..BATCH.min(length - number) {
            transaction.push("rate", &push_of(number), NOW).expect("there is room");
            number += 1;
        }
        match transaction.commit() {
            Ok(ticket) => last = Some(ticket),
            Err(error) => panic!("{error}"),
        }
        if number % (64 * BATCH) == 0 {
            state.durable(last.take().expect("just committed")).await.expect("the disk works");
        }
    }
    if let Some(ticket) = last {
        state.durable(ticket).await.expect("the disk works");
    }
    println!(
        "{length:9} events: filled at {:.0}/s, {} bytes written each, {} kB resident more, {} MB on disk",
        length as f64 / started.elapsed().as_secs_f64(),
        (written_bytes() - io) / length,
        resident_kb().saturating_sub(resident),
        state.statistics().disk_bytes >> 20,
    );
    take_and_give(&state, "before reopening").await;
    drop(state);
    let started = Instant::now();
    let state = open(folder);
    let opened = started.elapsed();
    let queue = state.queue("rate").expect("a name");
    let started = Instant::now();
    queue.lease(NOW, NOW, 1).expect("the disk works");
    println!(
        "          opened in {opened:?}, first lease after {:?}, {} ready",
        started.elapsed(),
        queue.counts().ready
    );
    take_and_give(&state, "after reopening").await;
}

async fn take_and_give(state: &State, when: &str) {
    const TIMES: u32 = 5_000;
    let queue = state.queue("rate").expect("a name");
    let (mut append, mut lease, mut ack) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for number in 0..TIMES {
        let started = Instant::now();
        let mut transaction = state.begin();
        transaction.push("rate", &push_of(u64::from(number)), NOW).expect("there is room");
        let ticket = transaction.commit().expect("no conflict");
        append += started.elapsed();
        let started = Instant::now();
        let leased = queue.lease(NOW, NOW + 30_000, 1).expect("the disk works").pop().expect("there is one");
        lease += started.elapsed();
        let started = Instant::now();
        let mut transaction = state.begin();
        transaction.ack(&leased);
        let acked = transaction.commit().expect("no conflict");
        ack += started.elapsed();
        if number % 64 == 0 {
            state.durable(ticket.max(acked)).await.expect("the disk works");
        }
    }
    println!(
        "          {when}: append {:?}, lease {:?}, ack {:?} (means, without the sync), {} kB resident",
        append / TIMES,
        lease / TIMES,
        ack / TIMES,
        resident_kb(),
    );
}

fn written_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok()).unwrap_or(0)
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or(0)
}

fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
