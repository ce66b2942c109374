//! `kill -9` at random moments while producers and handlers work: no acknowledged event is lost, and what a handler
//! writes happens exactly once for each.
//!
//! The test starts itself again as a child, in which two threads push numbered events and two handle them. Handling an
//! event counts up its key in a bucket, pushes an echo to a second queue and acks, in one transaction.

use crate::common::{durable, open};
use event::Event;
use random::Random;
use state::{CommitError, Failed, Part, Push, QueueConfig, State};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const ROUNDS: u64 = 12;
const FOLDER: &str = "QUEUE_CRASH_FOLDER";
const FIRST: &str = "QUEUE_CRASH_FIRST";

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

fn event(number: u64) -> Event {
    Event { id: number.to_string(), source: "/crash".into(), kind: "k".into(), ..Event::default() }
}

fn push(number: u64, delay_ms: u64) -> Push {
    Push { event: event(number), delay: Duration::from_millis(delay_ms), ttl: None }
}

#[test]
fn child_works_until_it_is_killed() {
    // Does nothing unless the test below started it.
    let (Ok(folder), Ok(first)) = (std::env::var(FOLDER), std::env::var(FIRST)) else { return };
    let state = open(Path::new(&folder));
    let next = AtomicU64::new(first.parse().unwrap());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    produce(&state, next.fetch_add(1, Ordering::Relaxed));
                }
            });
            scope.spawn(|| {
                loop {
                    state.queue("work").unwrap().do_due(now_ms()).unwrap();
                    if handle(&state, now_ms()) == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
}

fn produce(state: &State, number: u64) {
    let mut transaction = state.begin();
    let delay_ms = if number.is_multiple_of(5) { 3 } else { 0 };
    transaction.push("work", &push(number, delay_ms), now_ms()).unwrap();
    durable(state, transaction.commit().unwrap()).unwrap();
    let mut out = std::io::stdout().lock();
    writeln!(out, "acknowledged {number}").unwrap();
}

/// Handles up to three events, each in a transaction of its own. Every seventh try fails first.
fn handle(state: &State, now: u64) -> usize {
    let queue = state.queue("work").unwrap();
    let leased = queue.lease(now, now + 2, 3).unwrap();
    for leased in &leased {
        let number: u64 = leased.event.id.parse().unwrap();
        let mut transaction = state.begin();
        if number.is_multiple_of(7) && leased.event.attempt == 1 {
            transaction.fail(leased, Failed::Retry { at_ms: now + 1, reason: "try again".into() });
        } else {
            transaction.increment("done", &leased.event.id, 1).unwrap();
            transaction.push("echo", &push(number, 0), now).unwrap();
            transaction.ack(leased);
        }
        match transaction.commit() {
            Ok(ticket) => durable(state, ticket).unwrap(),
            Err(CommitError::LeaseLost | CommitError::Conflict) => {}
            Err(error) => panic!("{error}"),
        }
    }
    leased.len()
}

#[test]
fn kill_9_loses_no_acknowledged_event_and_doubles_no_effect() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeSet::new();
    for seed in 0..ROUNDS {
        let wanted = 1 + Random(seed).below(600);
        let mut child = start(folder.path(), seed * 1_000_000);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let numbers =
            lines.map_while(Result::ok).filter_map(|line| line.rsplit_once("acknowledged ")?.1.parse::<u64>().ok());
        for (count, number) in numbers.enumerate() {
            acknowledged.insert(number);
            if count as u64 + 1 == wanted {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
    }
    assert!(acknowledged.len() as u64 > ROUNDS * 50, "the child hardly ran: {}", acknowledged.len());
    check(folder.path(), &acknowledged);
}

fn start(folder: &Path, first: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "queue_crash::child_works_until_it_is_killed", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn check(folder: &Path, acknowledged: &BTreeSet<u64>) {
    let state = open(folder);
    let queue = state.queue("work").unwrap();
    // What the last child left is handled now.
    let mut now = now_ms();
    while queue.counts().bytes > 0 {
        now += 10;
        queue.do_due(now).unwrap();
        handle(&state, now);
    }
    assert!(queue.list(Part::Ready, None, 1).unwrap().is_empty());
    let mut after = None::<String>;
    let mut done = BTreeSet::new();
    loop {
        let page = state.begin().list("done", "", after.as_deref(), 1_000).unwrap();
        for entry in page.entries {
            assert_eq!(entry.value, b"1", "the effect of {} happened more than once", entry.key);
            done.insert(entry.key.parse::<u64>().unwrap());
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let lost: Vec<_> = acknowledged.difference(&done).collect();
    assert!(lost.is_empty(), "acknowledged and never handled: {lost:?}");
    // The echoes are exactly the effects, in whatever order.
    let echo = state.queue("echo").unwrap();
    echo.configure(QueueConfig { events_max: 1_000_000, ..QueueConfig::default() });
    assert_eq!(echo.counts().ready, done.len() as u64);
    let mut echoes = BTreeSet::new();
    loop {
        let leased = echo.lease(now, now + 1_000, 500).unwrap();
        if leased.is_empty() {
            break;
        }
        echoes.extend(leased.into_iter().map(|leased| leased.event.id.parse::<u64>().unwrap()));
    }
    assert_eq!(echoes, done);
}
