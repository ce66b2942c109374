//! A backup is of one instant, whatever is committed meanwhile, and what is restored is that instant.

use crate::common;
use crate::common::{durable, open, wait};
use event::Event;
use problem::{Code, Problem};
use state::{Backup, Push, Restoring, Space, State, StoredEntry};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

const NOW_MS: u64 = 1_700_000_000_000;

fn all(mut backup: Backup) -> Vec<(Space, Vec<StoredEntry>)> {
    std::iter::from_fn(|| backup.next_entries().unwrap()).collect()
}

fn restore(data: &Path, pieces: &[(Space, Vec<StoredEntry>)]) -> Result<(), Problem> {
    let mut restoring = Restoring::begin(data)?;
    for (part, entries) in pieces {
        entries.iter().try_for_each(|(key, value)| restoring.put(*part, key, value))?;
    }
    assert_eq!(restoring.entries() as usize, pieces.iter().map(|(_, entries)| entries.len()).sum::<usize>());
    restoring.finish()
}

fn push(state: &State, number: u64) {
    let event = Event { id: number.to_string(), source: "/test".into(), data: vec![7; 300], ..Default::default() };
    let push = Push { event, delay: Duration::ZERO, ttl: None };
    let done = state.transact(|transaction| {
        transaction.push("work", &push, NOW_MS).map_err(Problem::from)?;
        transaction.increment("counts", "pushed", 1).map_err(Problem::from)
    });
    let (_, _ticket) = done.unwrap();
}

/// Handles one event; says whether there was one.
fn handle(state: &State) -> bool {
    let queue = state.queue("work").unwrap();
    let leased = queue.lease(NOW_MS, NOW_MS + 30_000, 1).unwrap();
    for leased in &leased {
        let mut handling = state.begin();
        handling.increment("counts", "handled", 1).unwrap();
        handling.ack(leased);
        let _ticket = handling.commit().unwrap();
    }
    !leased.is_empty()
}

fn count(state: &State, key: &str) -> u64 {
    let value = state.begin().get("counts", key).unwrap();
    value.map_or(0, |value| String::from_utf8(value).unwrap().parse().unwrap())
}

/// Each push and each handling counts itself in the same transaction: at any instant the sums are right.
#[test]
fn under_load_each_backup_is_of_one_instant() {
    let folder = common::folder();
    let state = open(folder.path());
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..).take_while(|_| !ends.load(Relaxed)) {
                // Whoever pushes and never waits for the disk is refused at some time.
                while state.queue("work").is_ok_and(|queue| queue.counts().ready > 1_000) && !ends.load(Relaxed) {
                    std::thread::yield_now();
                }
                push(&state, number);
            }
        });
        scope.spawn(|| {
            while !ends.load(Relaxed) {
                if !handle(&state) {
                    std::thread::yield_now();
                }
            }
        });
        let mut last = 0;
        for _ in 0..10 {
            while count(&state, "handled") < last + 200 {
                std::thread::yield_now();
            }
            let before = (count(&state, "pushed"), count(&state, "handled"));
            let restored = common::folder();
            restore(restored.path(), &all(wait(state.backup()).unwrap())).unwrap();
            let restored = open(restored.path());
            let (pushed, handled) = (count(&restored, "pushed"), count(&restored, "handled"));
            let counts = restored.queue("work").unwrap().counts();
            assert_eq!(pushed, handled + counts.ready, "{counts:?}");
            assert_eq!(counts.leased, 0, "what was being handled is handled again");
            assert!(pushed >= before.0 && handled >= before.1, "nothing that was there before is missing");
            // It is a state like any other: the rest is handled, and an id that was used is known.
            while handle(&restored) {}
            assert_eq!(count(&restored, "handled"), pushed);
            push(&restored, 1 << 40);
            assert_eq!(restored.queue("work").unwrap().counts().ready, 1);
            last = handled;
        }
        ends.store(true, Relaxed);
    });
}

#[test]
fn what_is_restored_is_entry_by_entry_what_was_there() {
    let (from, to) = (common::folder(), common::folder());
    let state = open(from.path());
    for number in 0..50 {
        push(&state, number);
    }
    let mut transaction = state.begin();
    for number in 0..40 {
        transaction.set("large", &format!("{number:02}"), vec![number; 100_000]).unwrap();
    }
    transaction.set_with_ttl("short", "k", b"v".to_vec(), Duration::from_secs(60)).unwrap();
    durable(&state, transaction.commit().unwrap()).unwrap();
    wait(state.records("functions").put(&[("f", b"a record")])).unwrap();
    handle(&state);

    let pieces = all(wait(state.backup()).unwrap());
    assert!(pieces.len() > 10, "a piece is bounded: {}", pieces.len());
    let table = |key: &[u8]| state::table_of(key).unwrap().to_owned();
    let of_node: Vec<_> = pieces.iter().filter(|(part, _)| *part == Space::Node).flat_map(|(_, all)| all).collect();
    assert!(of_node.iter().any(|(key, _)| table(key) == "functions" && state::name_of_record(key) == Some("f")));
    restore(to.path(), &pieces).unwrap();
    assert!(!to.path().join("restoring").exists());
    assert_eq!(open(to.path()).records("functions").get("f").unwrap().unwrap(), b"a record");
    let again = all(wait(open(to.path()).backup()).unwrap());
    let flat = |pieces: &[(Space, Vec<StoredEntry>)]| {
        let entries = pieces.iter().flat_map(|(part, all)| all.iter().map(move |entry| (part.number(), entry.clone())));
        // The state's own time goes on.
        entries.filter(|(_, (key, _))| key != b"\x03clock").collect::<Vec<_>>()
    };
    assert_eq!(flat(&again), flat(&pieces));
    assert_eq!(open(to.path()).queue("work").unwrap().counts().ready, 49);
}

#[test]
fn a_restore_that_ended_early_is_no_state_and_the_next_one_begins_anew() {
    let (from, to) = (common::folder(), common::folder());
    let state = open(from.path());
    push(&state, 1);
    let pieces = all(wait(state.backup()).unwrap());
    let mut restoring = Restoring::begin(to.path()).unwrap();
    restoring.put(Space::Buckets, b"\x05half", b"of it").unwrap();
    assert_eq!(Restoring::begin(to.path()).err().unwrap().code, Code::DataLocked);
    drop(restoring);
    let problem = State::open(to.path(), state::Options::default()).err().unwrap();
    assert_eq!(problem.code, Code::RestoreUnfinished);
    restore(to.path(), &pieces).unwrap();
    assert_eq!(open(to.path()).queue("work").unwrap().counts().ready, 1);
    // And a folder that holds a state is not written over, in use or not.
    assert_eq!(Restoring::begin(to.path()).err().unwrap().code, Code::FolderNotEmpty);
    assert_eq!(Restoring::begin(from.path()).err().unwrap().code, Code::DataLocked);
    assert_eq!(count(&open(to.path()), "pushed"), 1);
}

#[test]
fn entries_of_a_newer_format_are_refused_and_nothing_is_in_place() {
    let (from, to) = (common::folder(), common::folder());
    let state = open(from.path());
    push(&state, 1);
    let mut pieces = all(wait(state.backup()).unwrap());
    for (key, value) in pieces.iter_mut().flat_map(|(_, entries)| entries) {
        if key == b"\x03format" {
            *value = b"3".to_vec();
        }
    }
    assert_eq!(restore(to.path(), &pieces).unwrap_err().code, Code::DataNewer);
    assert!(!to.path().join("state").exists());
}

#[test]
fn an_entry_that_no_state_has_is_refused() {
    let folder = common::folder();
    let mut restoring = Restoring::begin(folder.path()).unwrap();
    for key in [vec![], vec![1; 65_536]] {
        assert_eq!(restoring.put(Space::Node, &key, b"value").unwrap_err().code, Code::BackupBroken);
    }
    restoring.put(Space::Node, &[1; 65_535], b"value").unwrap();
}
