//! Measures single operations on this machine: reads, writes and scans of buckets, and the way of an event.
//!
//! cargo run --release -p state --example operations -- NAME TIMES
//!
//! It prints the shortest of ten rounds of so many operations. To compare two versions on a busy machine, count
//! instructions: run it under `valgrind --tool=callgrind` with two numbers of times, and divide the difference.

use event::Event;
use state::{Clock, Options, Push, State};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROUNDS: u32 = 10;
const KEYS: u64 = 1_000;
const BUCKETS: [&str; 8] = ["visits", "settings", "sensors", "shared-settings", "a", "b", "c", "d"];
const NOW_MS: u64 = 1_700_000_000_000;
const LEASE_MS: u64 = 30_000;

/// Stands still: valgrind does not have what the real one reads the time from.
struct StoppedClock;

impl Clock for StoppedClock {
    fn wall_ms(&self) -> u64 {
        NOW_MS
    }

    fn steady_ms(&self) -> u64 {
        NOW_MS
    }
}

/// One operation, the n-th.
type Operation = fn(&State, u64);

const OPERATIONS: [(&str, Operation); 6] =
    [("get", get), ("get-8", get_many), ("scan", scan), ("set", set), ("increment", increment), ("event", event)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, times] = &arguments[..] else { panic!("NAME TIMES") };
    let times: u64 = times.parse().expect("how many times");
    let (_, operation) = OPERATIONS.iter().find(|(known, _)| known == name).expect("one of the operations");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let options = Options { clock: Arc::new(StoppedClock), ..Options::default() };
    let state = State::open(folder.path(), options).expect("the state opens");
    for bucket in BUCKETS {
        let mut transaction = state.begin();
        (0..KEYS).for_each(|number| transaction.set(bucket, &key(number), vec![b'1'; 10]).expect("within bounds"));
        let _durable_or_not = transaction.commit().expect("nothing else writes");
    }
    let round = |_| {
        let began = Instant::now();
        (0..times).for_each(|number| operation(&state, number));
        began.elapsed()
    };
    let shortest: Duration = (0..ROUNDS).map(round).min().expect("there are rounds");
    println!("{name} {} ns", shortest.as_nanos() / u128::from(times.max(1)));
}

fn key(number: u64) -> String {
    format!("sensor/{:06}", number % KEYS)
}

fn get(state: &State, number: u64) {
    let mut transaction = state.begin();
    assert!(transaction.get(BUCKETS[3], &key(number)).expect("the disk works").is_some());
    let _nothing_to_wait_for = transaction.commit().expect("nothing was written");
}

/// Reads in eight buckets, and twice in each.
fn get_many(state: &State, number: u64) {
    let mut transaction = state.begin();
    for bucket in BUCKETS.iter().chain(&BUCKETS) {
        assert!(transaction.get(bucket, &key(number)).expect("the disk works").is_some());
    }
    let _nothing_to_wait_for = transaction.commit().expect("nothing was written");
}

fn scan(state: &State, number: u64) {
    let mut transaction = state.begin();
    let page = transaction.list(BUCKETS[3], "sensor/", Some(&key(number % 800)), 100).expect("the disk works");
    assert_eq!(page.entries.len(), 100);
    let _nothing_to_wait_for = transaction.commit().expect("nothing was written");
}

fn set(state: &State, number: u64) {
    let mut transaction = state.begin();
    transaction.set(BUCKETS[0], &key(number), vec![b'v'; 100]).expect("within bounds");
    let _durable_or_not = transaction.commit().expect("nothing else writes");
}

fn increment(state: &State, number: u64) {
    let mut transaction = state.begin();
    transaction.increment(BUCKETS[0], &key(number), 1).expect("a number");
    let _durable_or_not = transaction.commit().expect("nothing else writes");
}

/// Pushed, leased, and acked together with a write.
fn event(state: &State, number: u64) {
    let event = Event { id: number.to_string(), source: "/door".into(), ..Event::default() };
    let mut transaction = state.begin();
    transaction.push("doors", &Push { event, delay: Duration::ZERO, ttl: None }, NOW_MS).expect("within bounds");
    let _durable_or_not = transaction.commit().expect("nothing else writes");
    let leased = state.queue("doors").expect("the disk works").lease(NOW_MS, NOW_MS + LEASE_MS, 1);
    let mut transaction = state.begin();
    transaction.increment(BUCKETS[2], "doors", 1).expect("a number");
    transaction.ack(&leased.expect("the disk works")[0]);
    let _durable_or_not = transaction.commit().expect("nothing else writes");
}
