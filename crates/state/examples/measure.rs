//! Measures the state on this machine: opening, memory, and durable commits with 1 and 64 committers.
//!
//! cargo run --release -p state --example measure [FOLDER]

use state::{Options, State};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const RUN: Duration = Duration::from_secs(2);
const RECORDS: usize = 1_000;

fn main() {
    let own = tempfile::tempdir().expect("a temporary folder can be made");
    let folder = std::env::args_os().nth(1).map_or_else(|| own.path().to_owned(), PathBuf::from);
    let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("the runtime starts");
    let before = resident_kb();
    let (state, took) = open(&folder);
    println!("first open       {took:?}, {} kB resident more", resident_kb() - before);
    runtime.block_on(fill(&state));
    println!("{RECORDS} records     {} kB resident more", resident_kb() - before);
    drop(state);
    let (state, took) = open(&folder);
    println!("open again       {took:?}");
    println!("read-only        {:?} for begin, get and commit", read_only(&state));
    for committers in [1, 64] {
        runtime.block_on(commit(&state, committers));
    }
    println!("after all that   {} kB resident more, {:?}", resident_kb() - before, state.statistics());
    drop(state);
    println!("open after load  {:?}", open(&folder).1);
}

fn open(folder: &Path) -> (State, Duration) {
    let started = Instant::now();
    let state = State::open(folder, Options::default()).expect("the state opens");
    (state, started.elapsed())
}

async fn fill(state: &State) {
    let mut transaction = state.begin();
    for number in 0..RECORDS {
        transaction.set("fill", &number.to_string(), vec![b'v'; 100]).expect("within bounds");
    }
    state.durable(transaction.commit().expect("nothing else writes")).await.expect("the disk works");
}

fn read_only(state: &State) -> Duration {
    const READS: u32 = 100_000;
    let started = Instant::now();
    for number in 0..READS {
        let mut transaction = state.begin();
        transaction.get("fill", &(number % RECORDS as u32).to_string()).expect("the disk works");
        let _nothing_to_wait_for = transaction.commit().expect("nothing was written");
    }
    started.elapsed() / READS
}

/// Each committer reads a key of its own, writes it back and waits until that is durable.
async fn commit(state: &State, committers: usize) {
    let before = state.statistics();
    let started = Instant::now();
    let tasks: Vec<_> = (0..committers)
        .map(|committer| {
            let state = state.clone();
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                while started.elapsed() < RUN {
                    let began = Instant::now();
                    let mut transaction = state.begin();
                    transaction.increment("count", &committer.to_string(), 1).expect("a number");
                    let ticket = transaction.commit().expect("nobody else writes this key");
                    state.durable(ticket).await.expect("the disk works");
                    latencies.push(began.elapsed());
                }
                latencies
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.expect("a committer does not panic"));
    }
    let took = started.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
    let after = state.statistics();
    let (commits, syncs) = (after.commits - before.commits, after.syncs - before.syncs);
    println!(
        "{committers:>2} committers    {:.0} commits/s, p50 {:?}, p99 {:?}; {:.1} commits a sync, sync {:?} on average",
        commits as f64 / took,
        at(50),
        at(99),
        commits as f64 / syncs as f64,
        (after.sync_time - before.sync_time) / syncs as u32,
    );
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("every process has it");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number of kB")
}
