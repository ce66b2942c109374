//! Buckets keep to their bounds and count exactly; keys live as long as they are given, whatever the wall clock does.

use crate::common;
use crate::common::durable;
use problem::Code;
use random::Random;
use state::{Bound, BucketConfig, BucketCounts, Clock, CommitError, Options, State, StoreError};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Clocks that go when the test says so.
#[derive(Default)]
struct Hands {
    wall_ms: AtomicU64,
    steady_ms: AtomicU64,
}

impl Hands {
    fn pass(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
        self.steady_ms.fetch_add(ms, Ordering::SeqCst);
    }

    fn set_wall(&self, ms: u64) {
        self.wall_ms.store(ms, Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn wall_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn steady_ms(&self) -> u64 {
        self.steady_ms.load(Ordering::SeqCst)
    }
}

const YEAR_MS: u64 = 365 * 86_400_000;
const BEGAN_MS: u64 = 50 * YEAR_MS;

fn hands() -> Arc<Hands> {
    let hands = Hands::default();
    hands.set_wall(BEGAN_MS);
    Arc::new(hands)
}

fn open(path: &Path, clock: &Arc<Hands>) -> State {
    State::open(path, Options { clock: clock.clone(), ..Options::default() }).unwrap()
}

fn set(state: &State, key: &str, value: &str, ttl_ms: u64) {
    let mut transaction = state.begin();
    transaction.set_with_ttl("b", key, value.into(), Duration::from_millis(ttl_ms)).unwrap();
    durable(state, transaction.commit().unwrap()).unwrap();
}

fn keys(state: &State) -> Vec<String> {
    let page = state.begin().list("b", "", None, 1_000).unwrap();
    page.entries.into_iter().map(|entry| entry.key).collect()
}

fn full(bound: Bound) -> state::Full {
    state::Full { bucket: "b".to_owned(), bound }
}

#[test]
fn a_bucket_takes_no_more_keys_or_bytes_than_it_may() {
    let folder = common::folder();
    let state = common::open(folder.path());
    state.configure_bucket("b", BucketConfig { keys_max: Some(2), bytes_max: Some(100), ttl: None }).unwrap();
    let mut transaction = state.begin();
    transaction.set("b", "1", b"v".to_vec()).unwrap();
    transaction.set("b", "2", b"v".to_vec()).unwrap();
    let keys_full = full(Bound::Keys { would: 3, max: 2 });
    assert_eq!(transaction.set("b", "3", b"v".to_vec()), Err(StoreError::BucketFull(keys_full.clone())));
    assert_eq!(transaction.increment("b", "3", 1), Err(StoreError::BucketFull(keys_full.clone())));
    transaction.set("other", "3", b"v".to_vec()).unwrap();
    transaction.set("b", "1", b"changed".to_vec()).unwrap();
    transaction.delete("b", "2").unwrap();
    transaction.set("b", "3", b"v".to_vec()).unwrap();
    let bytes_full = full(Bound::Bytes { would: 101, max: 100 });
    assert_eq!(transaction.set("b", "1", vec![b'v'; 98]), Err(StoreError::BucketFull(bytes_full)));
    durable(&state, transaction.commit().unwrap()).unwrap();
    assert_eq!(state.bucket_counts("b"), BucketCounts { keys: 2, bytes: 10 });
    let problem = problem::Problem::from(StoreError::BucketFull(keys_full));
    assert_eq!(problem.code, Code::BucketFull);
}

#[test]
fn of_two_that_would_fill_a_bucket_together_the_second_is_refused_at_its_commit() {
    let folder = common::folder();
    let state = common::open(folder.path());
    state.configure_bucket("b", BucketConfig { keys_max: Some(1), ..BucketConfig::default() }).unwrap();
    let [mut first, mut second] = [state.begin(), state.begin()];
    first.set("b", "1", vec![]).unwrap();
    second.set("b", "2", vec![]).unwrap();
    durable(&state, first.commit().unwrap()).unwrap();
    assert_eq!(second.commit(), Err(CommitError::BucketFull(full(Bound::Keys { would: 2, max: 1 }))));
    assert_eq!(keys(&state), ["1"]);
}

#[test]
fn both_may_write_the_same_new_key_and_it_counts_once() {
    let folder = common::folder();
    let state = common::open(folder.path());
    state.configure_bucket("b", BucketConfig { keys_max: Some(1), ..BucketConfig::default() }).unwrap();
    let [mut first, mut second] = [state.begin(), state.begin()];
    first.set("b", "1", b"short".to_vec()).unwrap();
    second.set("b", "1", b"longer".to_vec()).unwrap();
    durable(&state, first.commit().unwrap()).unwrap();
    durable(&state, second.commit().unwrap()).unwrap();
    assert_eq!(state.bucket_counts("b"), BucketCounts { keys: 1, bytes: 7 });
}

#[test]
fn a_lowered_bound_keeps_what_is_there_and_lets_it_shrink() {
    let folder = common::folder();
    let state = common::open(folder.path());
    for key in ["1", "2", "3"] {
        common::set(&state, key, "value");
    }
    state.configure_bucket("b", BucketConfig { keys_max: Some(1), bytes_max: Some(1), ttl: None }).unwrap();
    let mut transaction = state.begin();
    transaction.set("b", "1", b"v".to_vec()).unwrap();
    transaction.delete("b", "2").unwrap();
    transaction.set("b", "4", vec![]).unwrap();
    assert!(transaction.set("b", "5", vec![]).is_err());
    durable(&state, transaction.commit().unwrap()).unwrap();
    assert_eq!(keys(&state), ["1", "3", "4"]);
}

#[test]
fn an_expired_key_is_gone_for_every_operation_at_once() {
    let (folder, clock) = (common::folder(), hands());
    let state = open(folder.path(), &clock);
    for key in ["get", "cas", "counted", "kept"] {
        set(&state, key, "7", 1_000);
    }
    clock.pass(999);
    assert_eq!(keys(&state), ["cas", "counted", "get", "kept"]);
    let mut transaction = state.begin();
    assert_eq!(transaction.increment("b", "kept", 1), Ok(8));
    durable(&state, transaction.commit().unwrap()).unwrap();
    clock.pass(1);
    let mut transaction = state.begin();
    assert_eq!(transaction.get("b", "get"), Ok(None));
    assert_eq!(transaction.get("b", "kept"), Ok(None), "an increment does not give a key more time");
    assert_eq!(transaction.increment("b", "counted", 1), Ok(1));
    assert_eq!(transaction.compare_and_set("b", "cas", Some(b"7"), None), Ok(false));
    assert_eq!(transaction.compare_and_set("b", "cas", None, Some(b"new".to_vec())), Ok(true));
    durable(&state, transaction.commit().unwrap()).unwrap();
    assert_eq!(keys(&state), ["cas", "counted"]);
    assert_eq!(state.bucket_counts("b").keys, 4, "what is not removed yet counts");
    assert_eq!(state.sweep().unwrap().keys, 2);
    assert_eq!(state.bucket_counts("b").keys, 2);
    clock.pass(YEAR_MS);
    assert_eq!(keys(&state), ["cas", "counted"], "set anew without a time to live");
}

#[test]
fn a_transaction_sees_one_time_from_beginning_to_end() {
    let (folder, clock) = (common::folder(), hands());
    let state = open(folder.path(), &clock);
    set(&state, "k", "v", 1_000);
    let mut transaction = state.begin();
    assert_eq!(transaction.get("b", "k"), Ok(Some(b"v".to_vec())));
    clock.pass(2_000);
    assert_eq!(transaction.list("b", "", None, 10).unwrap().entries.len(), 1);
    assert_eq!(state.begin().get("b", "k"), Ok(None));
}

#[test]
fn the_time_to_live_of_a_bucket_is_for_keys_that_bring_none() {
    let (folder, clock) = (common::folder(), hands());
    let state = open(folder.path(), &clock);
    common::set(&state, "before", "v");
    let config = BucketConfig { ttl: Some(Duration::from_secs(60)), ..BucketConfig::default() };
    state.configure_bucket("b", config).unwrap();
    common::set(&state, "default", "v");
    set(&state, "own", "v", 120_000);
    clock.pass(59_999);
    common::set(&state, "again", "v");
    assert_eq!(state.sweep().unwrap().next, Some(Duration::from_millis(1)));
    clock.pass(1);
    assert_eq!(keys(&state), ["again", "before", "own"]);
    assert_eq!(state.sweep().unwrap(), state::Swept { keys: 1, next: Some(Duration::from_millis(59_999)) });
    clock.pass(60_000);
    assert_eq!(keys(&state), ["before"]);
}

#[test]
fn a_wall_clock_that_jumps_neither_ends_lives_nor_gives_them_back() {
    let (folder, clock) = (common::folder(), hands());
    let mut state = open(folder.path(), &clock);
    set(&state, "short", "v", 1_000);
    set(&state, "long", "v", 3_600_000);
    clock.pass(1_000);
    for wall in [0, 90 * YEAR_MS, BEGAN_MS - YEAR_MS] {
        clock.set_wall(wall);
        assert_eq!(keys(&state), ["long"], "wall clock at {wall}");
        state.sweep().unwrap();
    }
    // Started again with the wall clock still behind: no time was off, as far as one can know.
    drop(state);
    state = open(folder.path(), &clock);
    assert_eq!(keys(&state), ["long"]);
    // And after half an hour off, as the clock says.
    drop(state);
    clock.pass(1_800_000);
    state = open(folder.path(), &clock);
    assert_eq!(keys(&state), ["long"]);
    drop(state);
    clock.pass(1_800_000);
    assert_eq!(keys(&open(folder.path(), &clock)), [""; 0]);
}

#[test]
fn what_was_decided_because_a_key_had_expired_stays_decided_after_the_clock_fell_back() {
    let (folder, clock) = (common::folder(), hands());
    let state = open(folder.path(), &clock);
    set(&state, "claim", "somebody", 1_000);
    clock.pass(1_000);
    let mut transaction = state.begin();
    assert_eq!(transaction.get("b", "claim"), Ok(None));
    transaction.set("b", "seen", b"free".to_vec()).unwrap();
    durable(&state, transaction.commit().unwrap()).unwrap();
    drop(state);
    // Not swept yet, and the machine has lost its clock while it was off.
    clock.set_wall(0);
    assert_eq!(keys(&open(folder.path(), &clock)), ["seen"]);
}

#[test]
fn the_sweep_is_bounded_and_leaves_no_note_behind() {
    let (folder, clock) = (common::folder(), hands());
    let state = open(folder.path(), &clock);
    assert_eq!(state.sweep().unwrap(), state::Swept { keys: 0, next: None });
    let mut transaction = state.begin();
    for number in 0..2_500 {
        let ttl = Duration::from_millis(1 + number % 3);
        transaction.set_with_ttl("b", &format!("{number:05}"), b"v".to_vec(), ttl).unwrap();
    }
    durable(&state, transaction.commit().unwrap()).unwrap();
    common::set(&state, "00000", "lasts");
    clock.pass(10);
    let more = Some(Duration::ZERO);
    let swept: Vec<_> = (0..4).map(|_| state.sweep().unwrap()).map(|swept| (swept.keys, swept.next)).collect();
    assert_eq!(swept, [(1_000, more), (1_000, more), (499, None), (0, None)]);
    assert_eq!(state.bucket_counts("b"), BucketCounts { keys: 1, bytes: 10 });
    assert_eq!(keys(&state), ["00000"]);
}

#[test]
fn a_key_that_is_set_while_it_is_swept_is_not_lost() {
    let (folder, clock) = (common::folder(), hands());
    let state = open(folder.path(), &clock);
    set(&state, "k", "old", 10);
    clock.pass(5);
    // Begun before the sweep and committed after it, with a key that is due earlier than what the sweep looked at.
    let mut late = state.begin();
    late.set_with_ttl("b", "late", b"v".to_vec(), Duration::from_millis(1)).unwrap();
    clock.pass(20);
    set(&state, "k", "new", 60_000);
    assert_eq!(state.sweep().unwrap().keys, 0);
    durable(&state, late.commit().unwrap()).unwrap();
    assert_eq!(common::get(&state, "k").unwrap(), "new");
    assert_eq!(state.sweep().unwrap().keys, 1);
    assert_eq!(state.bucket_counts("b").keys, 1);
}

#[test]
fn counts_are_exact_through_everything() {
    for seed in 0..3 {
        let (folder, clock) = (common::folder(), hands());
        let options = || Options { memtable_bytes: 64 << 10, clock: clock.clone(), ..Options::default() };
        let mut state = State::open(folder.path(), options()).unwrap();
        let mut rng = Random(seed);
        for _ in 0..200 {
            // Two at once, so that one finds keys changed under its hands.
            let mut both = [state.begin(), state.begin()];
            for _ in 0..rng.below(12) {
                let transaction = &mut both[rng.below(2) as usize];
                let (bucket, key) = (["a", "b"][rng.below(2) as usize], rng.below(20).to_string());
                let value = vec![b'v'; rng.below(3_000) as usize];
                match rng.below(4) {
                    0 => transaction.set(bucket, &key, value).unwrap(),
                    1 => transaction.set_with_ttl(bucket, &key, value, Duration::from_millis(rng.below(50))).unwrap(),
                    2 => transaction.delete(bucket, &key).unwrap(),
                    _ => drop(transaction.increment(bucket, &key, 1)),
                }
            }
            for transaction in both {
                match transaction.commit() {
                    Ok(ticket) => durable(&state, ticket).unwrap(),
                    Err(error) => assert_eq!(error, CommitError::Conflict),
                }
            }
            clock.pass(rng.below(20));
            match rng.below(20) {
                0 => {
                    drop(state);
                    state = State::open(folder.path(), options()).unwrap();
                }
                1..10 => drop(state.sweep().unwrap()),
                _ => {}
            }
        }
        // Without the keys that expired, the rest is counted by looking.
        while state.sweep().unwrap().next == Some(Duration::ZERO) {}
        let counted: BTreeMap<String, BucketCounts> = state.buckets().into_iter().collect();
        for bucket in ["a", "b"] {
            let entries = state.begin().list(bucket, "", None, 1_000).unwrap().entries;
            let bytes = entries.iter().map(|entry| (entry.key.len() + entry.value.len()) as u64).sum();
            let looked = BucketCounts { keys: entries.len() as u64, bytes };
            assert_eq!(counted.get(bucket).copied().unwrap_or_default(), looked, "seed {seed}, bucket {bucket}");
        }
    }
}
