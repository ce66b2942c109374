//! `kill -9` at random moments: what was acknowledged is there, and no transaction is torn.
//!
//! The test starts itself again as a child that commits numbered records from several threads and prints each number
//! once it is durable. The kernel survives here; what a power cut does is for the disk faults of other tests.

use crate::common::{durable, open};
use random::Random;
use state::State;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

const ROUNDS: u64 = 20;
const FOLDER: &str = "STATE_CRASH_FOLDER";
const FIRST: &str = "STATE_CRASH_FIRST";
/// Keys of one record, all with the record's number as value.
const PARTS: [&str; 3] = ["a", "m", "z"];

#[test]
fn child_commits_until_it_is_killed() {
    // Does nothing unless the test below started it.
    let (Ok(folder), Ok(first)) = (std::env::var(FOLDER), std::env::var(FIRST)) else { return };
    let state = open(Path::new(&folder));
    let next = AtomicU64::new(first.parse().unwrap());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    commit(&state, next.fetch_add(1, Ordering::Relaxed));
                }
            });
        }
    });
}

fn commit(state: &State, number: u64) {
    let mut transaction = state.begin();
    for part in PARTS {
        transaction.set(part, &format!("{number:012}"), number.to_string().into_bytes()).unwrap();
    }
    durable(state, transaction.commit().unwrap()).unwrap();
    let mut out = std::io::stdout().lock();
    writeln!(out, "acknowledged {number}").unwrap();
}

#[test]
fn what_was_acknowledged_survives_kill_9_and_nothing_is_torn() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeSet::new();
    let mut first = 0;
    for seed in 0..ROUNDS {
        let wanted = 1 + Random(seed).below(400);
        let mut child = start(folder.path(), first);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let numbers = lines.map_while(Result::ok).filter_map(|line| line.rsplit_once("acknowledged ")?.1.parse().ok());
        for (count, number) in numbers.enumerate() {
            acknowledged.insert(number);
            if count as u64 + 1 == wanted {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        first = check(folder.path(), &acknowledged, seed);
    }
    assert!(acknowledged.len() as u64 > ROUNDS * 50, "the child hardly ran: {}", acknowledged.len());
}

fn start(folder: &Path, first: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_commits_until_it_is_killed", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Checks all that is there and returns a number no record has yet.
fn check(folder: &Path, acknowledged: &BTreeSet<u64>, seed: u64) -> u64 {
    let state = open(folder);
    let [first, second, third] = PARTS.map(|part| records(&state, part));
    assert!(first == second && second == third, "seed {seed}: a transaction is torn");
    let lost: Vec<_> = acknowledged.difference(&first).collect();
    assert!(lost.is_empty(), "seed {seed}: acknowledged and gone: {lost:?}");
    first.last().map_or(0, |last| last + 1_000)
}

fn records(state: &State, bucket: &str) -> BTreeSet<u64> {
    let (mut numbers, mut after) = (BTreeSet::new(), None::<String>);
    loop {
        let page = state.begin().list(bucket, "", after.as_deref(), 1_000).unwrap();
        for entry in page.entries {
            assert_eq!(String::from_utf8(entry.value).unwrap().parse(), entry.key.parse::<u64>());
            numbers.insert(entry.key.parse().unwrap());
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return numbers,
        }
    }
}
