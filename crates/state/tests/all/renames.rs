//! A bucket gets another name whole and at once, and no transaction sees half of that. Names whose buckets are empty
//! come and go as unseen.

use crate::common::{self, FaultyDisk, GatedDisk, durable, open};
use crate::format_one::stored;
use problem::Code;
use random::Random;
use state::{BucketConfig, BucketCounts, CommitError, Options, RenameError, State, StoreError, Ticket};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const HIDDEN: &str = ".in.7.b";

fn set(state: &State, bucket: &str, key: &str, value: &str) {
    let mut transaction = state.begin();
    transaction.set(bucket, key, value.into()).unwrap();
    durable(state, transaction.commit().unwrap()).unwrap();
}

fn delete(state: &State, bucket: &str, key: &str) {
    let mut transaction = state.begin();
    transaction.delete(bucket, key).unwrap();
    durable(state, transaction.commit().unwrap()).unwrap();
}

fn get(state: &State, bucket: &str, key: &str) -> Option<String> {
    state.begin().get(bucket, key).unwrap().map(|value| String::from_utf8(value).unwrap())
}

fn rename(state: &State, from: &str, to: &str) {
    durable(state, state.rename_bucket(from, to).unwrap()).unwrap();
}

/// More names than may be empty and kept.
fn use_many_names(state: &State) {
    (0..5_000).for_each(|number| assert_eq!(get(state, &format!("unused-{number}"), "k"), None));
}

#[test]
fn a_renamed_bucket_has_all_it_had_and_no_entry_is_written_again() {
    let folder = common::folder();
    let mut state = open(folder.path());
    // More than one commit could write.
    for part in 0..3 {
        let mut transaction = state.begin();
        for number in 0..8_000 {
            let (key, ttl) = (format!("{part}/{number:04}"), Duration::from_secs(3_600));
            transaction.set_with_ttl(HIDDEN, &key, b"v".to_vec(), ttl).unwrap();
        }
        durable(&state, transaction.commit().unwrap()).unwrap();
    }
    let held = BucketCounts { keys: 24_000, bytes: 24_000 * 7 };
    drop(state);
    let entries = |folder| stored(folder).into_iter().filter(|(key, _)| key[0] != 1).collect::<Vec<_>>();
    let before = entries(folder.path());
    state = open(folder.path());
    state.configure_bucket("b", BucketConfig { keys_max: Some(1), ..BucketConfig::default() }).unwrap();
    rename(&state, HIDDEN, "b");
    for _ in 0..2 {
        assert_eq!(state.buckets(), [("b".to_owned(), held)]);
        assert_eq!([get(&state, HIDDEN, "0/0000"), get(&state, "b", "0/0000")], [None, Some("v".to_owned())]);
        assert_eq!(state.begin().list("b", "2/", None, 1_000).unwrap().entries.len(), 1_000);
        assert!(state.begin().list(HIDDEN, "", None, 1).unwrap().entries.is_empty());
        let mut export = state.export("b").unwrap();
        assert!(export.next_lines().unwrap().unwrap().starts_with(b"{\"key\":\"0/0000\""));
        assert_eq!(state.export(HIDDEN).unwrap().next_lines().unwrap(), None);
        drop((export, state));
        assert_eq!(entries(folder.path()), before);
        state = open(folder.path());
    }
    // The old name is free, and a bucket that gets it has nothing to do with this one.
    set(&state, HIDDEN, "k", "another");
    delete(&state, "b", "0/0000");
    assert_eq!([HIDDEN, "b"].map(|name| state.bucket_counts(name).keys), [1, 23_999]);
}

#[test]
fn the_bounds_of_the_new_name_count_and_expired_keys_are_swept_from_it() {
    let folder = common::folder();
    let state = open(folder.path());
    let mut transaction = state.begin();
    transaction.set_with_ttl(HIDDEN, "short", b"v".to_vec(), Duration::ZERO).unwrap();
    transaction.set(HIDDEN, "k", b"v".to_vec()).unwrap();
    durable(&state, transaction.commit().unwrap()).unwrap();
    state.configure_bucket("b", BucketConfig { keys_max: Some(1), ..BucketConfig::default() }).unwrap();
    rename(&state, HIDDEN, "b");
    assert_eq!(state.bucket_counts("b").keys, 2);
    assert!(matches!(state.begin().set("b", "new", vec![]), Err(StoreError::BucketFull(full)) if full.bucket == "b"));
    state.begin().set(HIDDEN, "new", vec![]).unwrap();
    assert_eq!(state.sweep().unwrap().keys, 1);
    assert_eq!(state.bucket_counts("b"), BucketCounts { keys: 1, bytes: 2 });
}

#[test]
fn what_cannot_be_renamed_is_said_and_stays() {
    let folder = common::folder();
    let disk = Arc::new(FaultyDisk::new());
    let state = State::open(folder.path(), Options { disk: disk.clone(), ..Options::default() }).unwrap();
    let refused = |from: &str, to: &str| state.rename_bucket(from, to).unwrap_err();
    let name = |name: &str| name.to_owned();
    assert_eq!(refused("a", "b"), RenameError::Missing { bucket: name("a") });
    set(&state, "a", "k", "a");
    set(&state, "b", "k", "b");
    for to in ["a", "b"] {
        assert_eq!(refused("a", to), RenameError::Taken { bucket: name(to) });
    }
    for (from, to) in [("a", "B"), ("B", "c")] {
        assert_eq!(refused(from, to), RenameError::BucketName { name: name("B") });
    }
    delete(&state, "b", "k");
    disk.fails.store(true, Ordering::SeqCst);
    let ticket = state.rename_bucket("a", "b").unwrap();
    assert_eq!(durable(&state, ticket).unwrap_err().code, Code::DiskFailed);
    assert!(matches!(refused("b", "c"), RenameError::Unavailable(problem) if problem.code == Code::DiskFailed));
    drop(state);
    let state = open(folder.path());
    assert!(
        ["a", "b"].into_iter().filter_map(|name| get(&state, name, "k")).eq(["a".to_owned()]),
        "one of them has it"
    );
}

#[test]
fn first_writers_of_a_bucket_agree() {
    let folder = common::folder();
    let state = open(folder.path());
    let mut both = ["1", "2"].map(|key| {
        let mut transaction = state.begin();
        transaction.set("b", key, key.into()).unwrap();
        transaction
    });
    let mut reader = state.begin();
    assert!(reader.list("b", "", None, 9).unwrap().entries.is_empty());
    reader.set("other", "k", vec![]).unwrap();
    for transaction in &mut both {
        durable(&state, std::mem::replace(transaction, state.begin()).commit().unwrap()).unwrap();
    }
    assert_eq!(reader.commit(), Err(CommitError::Conflict), "it has seen the bucket without them");
    drop((both, state));
    let state = open(folder.path());
    assert_eq!(["1", "2"].map(|key| get(&state, "b", key).unwrap()), ["1", "2"]);
}

#[test]
fn a_transaction_that_had_to_do_with_either_name_does_not_commit_after_it() {
    type Use = fn(&mut state::Transaction);
    let uses: [(&str, Use); 5] = [
        ("found the new name empty", |transaction| assert_eq!(transaction.get("b", "k").unwrap(), None)),
        ("listed the new name", |transaction| drop(transaction.list("b", "", None, 9).unwrap())),
        ("wrote under the new name", |transaction| transaction.set("b", "x", vec![]).unwrap()),
        ("read under the old name", |transaction| assert!(transaction.get(HIDDEN, "k").unwrap().is_some())),
        ("wrote under the old name", |transaction| transaction.set(HIDDEN, "x", vec![]).unwrap()),
    ];
    for (what, before) in uses {
        let folder = common::folder();
        let state = open(folder.path());
        set(&state, HIDDEN, "k", "v");
        let [mut uses, mut other] = [state.begin(), state.begin()];
        before(&mut uses);
        uses.set("elsewhere", "k", vec![]).unwrap();
        other.set("elsewhere", "k", vec![]).unwrap();
        rename(&state, HIDDEN, "b");
        assert_eq!(uses.commit(), Err(CommitError::Conflict), "{what}");
        durable(&state, other.commit().unwrap()).unwrap();
        assert_eq!([state.bucket_counts("b").keys, state.bucket_counts(HIDDEN).keys], [1, 0], "{what}");
    }
}

#[test]
fn a_transaction_sees_all_names_as_of_its_one_moment() {
    let folder = common::folder();
    let state = open(folder.path());
    set(&state, HIDDEN, "k", "v");
    set(&state, "short", "k", "lived");
    set(&state, "other", "k", "v");
    let early = || {
        let mut transaction = state.begin();
        assert!(transaction.get("other", "k").unwrap().is_some());
        transaction
    };
    let [mut reader, mut writer, mut untouched] = [early(), early(), early()];
    rename(&state, HIDDEN, "b");
    delete(&state, "short", "k");
    use_many_names(&state);
    assert_eq!(get(&state, "short", "k"), None);
    let mut now = early();
    for transaction in [&mut reader, &mut writer] {
        let seen = ["b", HIDDEN, "short"].map(|name| transaction.get(name, "k").unwrap());
        assert_eq!(seen, [None, Some(b"v".to_vec()), Some(b"lived".to_vec())]);
        assert_eq!(transaction.list(HIDDEN, "", None, 9).unwrap().entries.len(), 1);
    }
    assert!(reader.commit().is_ok());
    writer.set("other", "k", vec![]).unwrap();
    assert_eq!(writer.commit(), Err(CommitError::Conflict));
    assert_eq!(["b", HIDDEN, "short"].map(|name| now.get(name, "k").unwrap().is_some()), [true, false, false]);
    untouched.set("other", "x", vec![]).unwrap();
    durable(&state, untouched.commit().unwrap()).unwrap();
}

#[test]
fn a_bucket_that_is_made_anew_has_nothing_of_an_earlier_one() {
    let folder = common::folder();
    let mut state = open(folder.path());
    let mut ids = BTreeSet::new();
    for round in 0..6 {
        assert_eq!(get(&state, "b", "old"), None);
        set(&state, "b", "old", "v");
        delete(&state, "b", "old");
        set(&state, "b", &format!("{round}"), "v");
        assert_eq!(state.begin().list("b", "", None, 9).unwrap().entries.len(), 1);
        drop(state);
        let ids_stored = stored(folder.path()).into_keys().filter(|key| key[0] == 4).map(|key| key[..6].to_vec());
        ids.extend(ids_stored);
        state = open(folder.path());
        delete(&state, "b", &format!("{round}"));
        if round % 2 == 0 {
            use_many_names(&state);
        } else {
            drop(state);
            state = open(folder.path());
        }
    }
    assert_eq!(ids.len(), 6, "no id is given twice: {ids:?}");
    drop(state);
    assert!(stored(folder.path()).keys().all(|key| key[0] == 3), "an empty bucket costs nothing");
}

fn answers(state: &State, ticket: Ticket) -> bool {
    let polled = pin!(state.durable(ticket)).poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Ok(())))
}

#[test]
fn an_answer_that_rests_on_a_name_waits_for_what_changed_it() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(GatedDisk::default());
    let state = State::open(folder.path(), Options { disk: disk.clone(), ..Options::default() }).unwrap();
    set(&state, HIDDEN, "k", "v");
    set(&state, "gone", "k", "v");
    disk.set_shut(true);
    let look = |name: &str| {
        let mut transaction = state.begin();
        let found = transaction.get(name, "k").unwrap().is_some();
        (found, transaction.commit().unwrap())
    };
    let renamed = state.rename_bucket(HIDDEN, "b").unwrap();
    let mut transaction = state.begin();
    transaction.delete("gone", "k").unwrap();
    let deleted = transaction.commit().unwrap();
    use_many_names(&state);
    for (name, is_there) in [("b", true), (HIDDEN, false), ("gone", false)] {
        let (found, ticket) = look(name);
        assert_eq!((found, answers(&state, ticket)), (is_there, false), "{name}");
    }
    disk.set_shut(false);
    durable(&state, renamed.max(deleted)).unwrap();
    assert!(["b", HIDDEN, "gone"].iter().all(|name| answers(&state, look(name).1)));
}

/// Four threads count in whichever of two buckets there is, while that changes its name again and again.
#[test]
fn nothing_is_lost_or_doubled_while_a_bucket_changes_its_name() {
    const THREADS: u64 = 4;
    const EACH_MIN: u64 = 300;
    const RENAMES_MIN: u64 = 6;
    let folder = common::folder();
    let state = open(folder.path());
    set(&state, "a", "n", "0");
    let is_over = AtomicBool::new(false);
    let renames = AtomicU64::new(0);
    let count = |transaction: &mut state::Transaction| {
        let name = if transaction.get("a", "n")?.is_some() { "a" } else { "b" };
        let other = if name == "a" { "b" } else { "a" };
        assert!(transaction.list(other, "", None, 1)?.entries.is_empty(), "both names have something");
        transaction.increment(name, "n", 1).map_err(problem::Problem::from)
    };
    let counted: u64 = std::thread::scope(|scope| {
        let (state, count, is_over, renames) = (&state, &count, &is_over, &renames);
        let counters: Vec<_> = (0..THREADS)
            .map(|seed| {
                scope.spawn(move || {
                    let (mut rng, mut counted) = (Random(seed), 0);
                    while counted < EACH_MIN || renames.load(Ordering::Relaxed) < RENAMES_MIN {
                        while let Err(problem) = state.transact(count) {
                            assert_eq!(problem.code, Code::Conflict, "{problem}");
                        }
                        counted += 1;
                        (0..rng.below(20)).for_each(|_| std::thread::yield_now());
                    }
                    counted
                })
            })
            .collect();
        scope.spawn(move || {
            let mut names = ("a", "b");
            while !is_over.load(Ordering::Relaxed) {
                let _not_waited_for = state.rename_bucket(names.0, names.1).unwrap();
                names = (names.1, names.0);
                renames.fetch_add(1, Ordering::Relaxed);
                (0..50).for_each(|_| std::thread::yield_now());
            }
        });
        let counted = counters.into_iter().map(|counter| counter.join().unwrap()).sum();
        is_over.store(true, Ordering::Relaxed);
        counted
    });
    drop(state);
    let state = open(folder.path());
    let kept: Vec<_> = ["a", "b"].into_iter().filter_map(|name| get(&state, name, "n")).collect();
    assert_eq!(kept, [counted.to_string()]);
    assert_eq!(state.buckets().len(), 1);
}
