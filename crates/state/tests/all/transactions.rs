//! Transactions are serializable, and their bounds are named.

use crate::common::{durable, get, open, set};
use state::{CommitError, LIMIT_MAX, PAGE_BYTES_MAX, State, StoreError, Ticket, VALUE_BYTES_MAX, WRITES_MAX};

fn with_state(test: impl FnOnce(&State)) {
    let folder = tempfile::tempdir().unwrap();
    test(&open(folder.path()));
}

#[test]
fn a_transaction_sees_one_moment_and_its_own_writes() {
    with_state(|state| {
        set(state, "x", "old");
        let mut reader = state.begin();
        assert_eq!(reader.get("b", "y").unwrap(), None);
        set(state, "x", "new");
        assert_eq!(reader.get("b", "x").unwrap().unwrap(), b"old");
        reader.set("b", "x", b"own".to_vec()).unwrap();
        assert_eq!(reader.get("b", "x").unwrap().unwrap(), b"own");
        assert_eq!(get(state, "x").unwrap(), "new");
        drop(reader);
        assert_eq!(get(state, "x").unwrap(), "new");
    });
}

#[test]
fn write_skew_is_a_conflict() {
    // Two doctors on call; each sees the other and goes home.
    with_state(|state| {
        set(state, "ann", "on");
        set(state, "bob", "on");
        let mut leave = [("ann", "bob"), ("bob", "ann")].map(|(who, other)| {
            let mut transaction = state.begin();
            assert_eq!(transaction.get("b", other).unwrap().unwrap(), b"on");
            transaction.set("b", who, b"off".to_vec()).unwrap();
            Some(transaction)
        });
        let mut commit = |index: usize| leave[index].take().unwrap().commit();
        assert!(commit(0).is_ok());
        assert_eq!(commit(1), Err(CommitError::Conflict));
        assert_eq!(get(state, "bob").unwrap(), "on");
    });
}

#[test]
fn a_key_that_appears_in_a_listed_range_is_a_conflict() {
    with_state(|state| {
        let mut counter = state.begin();
        assert!(counter.list("b", "room/", None, 10).unwrap().entries.is_empty());
        counter.set("b", "count", b"0".to_vec()).unwrap();
        set(state, "room/1", "taken");
        assert_eq!(counter.commit(), Err(CommitError::Conflict));
    });
}

#[test]
fn a_key_that_is_deleted_from_a_listed_range_is_a_conflict() {
    with_state(|state| {
        set(state, "room/1", "taken");
        let mut counter = state.begin();
        assert_eq!(counter.list("b", "room/", None, 10).unwrap().entries.len(), 1);
        counter.set("b", "count", b"1".to_vec()).unwrap();
        let mut other = state.begin();
        other.delete("b", "room/1").unwrap();
        durable(state, other.commit().unwrap()).unwrap();
        assert_eq!(counter.commit(), Err(CommitError::Conflict));
    });
}

#[test]
fn what_a_page_did_not_reach_is_no_conflict() {
    with_state(|state| {
        for key in ["k1", "k2", "k3", "k4"] {
            set(state, key, "v");
        }
        // A page of two looks at the third key to know that there is more.
        let read_two = |written: &str| {
            let mut reader = state.begin();
            assert_eq!(reader.list("b", "k", None, 2).unwrap().next.as_deref(), Some("k2"));
            reader.set("b", "seen", b"2".to_vec()).unwrap();
            set(state, written, "w");
            reader.commit().is_ok()
        };
        assert_eq!([read_two("k4"), read_two("k30"), read_two("l")], [true, true, true]);
        assert_eq!([read_two("k2"), read_two("k15")], [false, false]);
    });
}

#[test]
fn a_missing_key_that_was_looked_for_is_a_conflict_once_it_is_there() {
    with_state(|state| {
        let mut first = state.begin();
        assert!(first.compare_and_set("b", "leader", None, Some(b"first".to_vec())).unwrap());
        set(state, "leader", "second");
        assert_eq!(first.commit(), Err(CommitError::Conflict));
        assert_eq!(get(state, "leader").unwrap(), "second");
    });
}

#[test]
fn blind_writes_and_reads_alone_never_conflict() {
    with_state(|state| {
        let (mut blind, mut reader) = (state.begin(), state.begin());
        blind.set("b", "x", b"blind".to_vec()).unwrap();
        assert_eq!(reader.get("b", "x").unwrap(), None);
        set(state, "x", "other");
        assert!(blind.commit().is_ok());
        assert_eq!(reader.commit(), Ok(Ticket::NOTHING_WRITTEN));
        assert_eq!(get(state, "x").unwrap(), "blind");
    });
}

#[test]
fn increments_from_many_threads_add_up() {
    const THREADS: i64 = 16;
    const EACH: i64 = 50;
    with_state(|state| {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..EACH).for_each(|_| increment(state)));
            }
        });
        assert_eq!(get(state, "n").unwrap(), (THREADS * EACH).to_string());
        let statistics = state.statistics();
        assert_eq!(statistics.commits, (THREADS * EACH) as u64);
        assert_eq!(statistics.transactions_open, 0);
    });
}

fn increment(state: &State) {
    loop {
        let mut transaction = state.begin();
        transaction.increment("b", "n", 1).unwrap();
        match transaction.commit() {
            Ok(ticket) => return durable(state, ticket).unwrap(),
            Err(CommitError::Conflict) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn numbers_are_checked() {
    with_state(|state| {
        let mut transaction = state.begin();
        assert_eq!(transaction.increment("b", "n", i64::MAX), Ok(i64::MAX));
        assert_eq!(transaction.increment("b", "n", 1), Err(StoreError::Overflow { key: "n".into() }));
        assert_eq!(transaction.increment("b", "n", -1), Ok(i64::MAX - 1));
        for not_a_number in ["", "1.5", "one", " 1", "9223372036854775808"] {
            transaction.set("b", "n", not_a_number.into()).unwrap();
            assert_eq!(transaction.increment("b", "n", 1), Err(StoreError::NotANumber { key: "n".into() }));
        }
    });
}

#[test]
fn bounds_are_errors_and_change_nothing() {
    with_state(|state| {
        let mut transaction = state.begin();
        let long = "k".repeat(1_025);
        assert_eq!(transaction.get("b", ""), Err(StoreError::KeyLength { bytes: 0 }));
        assert_eq!(transaction.set("b", &long, vec![]), Err(StoreError::KeyLength { bytes: 1_025 }));
        assert_eq!(transaction.list("b", &long, None, 1), Err(StoreError::KeyLength { bytes: 1_025 }));
        assert_eq!(transaction.get("B", "k"), Err(StoreError::BucketName { name: "B".into() }));
        let large = VALUE_BYTES_MAX + 1;
        assert_eq!(transaction.set("b", "k", vec![0; large]), Err(StoreError::ValueLength { bytes: large }));
        for limit in [0, LIMIT_MAX + 1] {
            assert_eq!(transaction.list("b", "", None, limit), Err(StoreError::ListLimit { limit }));
        }
        assert_eq!(transaction.write_count(), 0);

        for number in 0..15 {
            transaction.set("b", &format!("{number}"), vec![0; VALUE_BYTES_MAX]).unwrap();
        }
        assert_eq!(transaction.set("b", "too much", vec![0; VALUE_BYTES_MAX]), Err(StoreError::WriteBytes));
        // Writing less under a key that is already written makes room again.
        transaction.set("b", "0", vec![]).unwrap();
        transaction.set("b", "now it fits", vec![0; VALUE_BYTES_MAX]).unwrap();
        durable(state, transaction.commit().unwrap()).unwrap();

        let mut transaction = state.begin();
        for number in 0..WRITES_MAX {
            transaction.set("c", &format!("{number}"), vec![]).unwrap();
        }
        assert_eq!(transaction.delete("c", "one more"), Err(StoreError::WriteCount));
        transaction.set("c", "0", b"again".to_vec()).unwrap();
        durable(state, transaction.commit().unwrap()).unwrap();
    });
}

#[test]
fn pages_are_bounded_in_entries_and_bytes_and_join_up() {
    with_state(|state| {
        let mut transaction = state.begin();
        for number in 0..2_500 {
            transaction.set("many", &format!("{number:04}"), vec![]).unwrap();
        }
        for number in 0..5 {
            transaction.set("large", &format!("{number}"), vec![0; VALUE_BYTES_MAX * 2 / 5]).unwrap();
        }
        transaction.set("large", "9", vec![0; VALUE_BYTES_MAX]).unwrap();
        durable(state, transaction.commit().unwrap()).unwrap();
        assert_eq!(page_sizes(state, "many", LIMIT_MAX), [1_000, 1_000, 500]);
        assert_eq!(page_sizes(state, "large", LIMIT_MAX), [2, 2, 1, 1]);
    });
}

fn page_sizes(state: &State, bucket: &str, limit: u32) -> Vec<usize> {
    let mut transaction = state.begin();
    let (mut sizes, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = transaction.list(bucket, "", after.as_deref(), limit).unwrap();
        let bytes: usize = page.entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum();
        assert!(bytes <= PAGE_BYTES_MAX || page.entries.len() == 1);
        sizes.push(page.entries.len());
        match page.next {
            Some(next) => after = Some(next),
            None => return sizes,
        }
    }
}
