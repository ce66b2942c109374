//! Random operations answer exactly as a plain `BTreeMap` does, through commits, roll-backs, flushes and reopening.

use crate::common;
use random::Random;
use state::{Entry, Options, Page, State, StoreError, Transaction};
use std::collections::BTreeMap;

/// Names and keys of which one begins with another, on purpose.
const BUCKETS: [&str; 3] = ["a", "ab", "a.b"];
const KEYS: [&str; 8] = ["k", "k0", "k00", "k1", "l", "\u{1}", "é", "k\u{10ffff}"];
const PREFIXES: [&str; 5] = ["", "k", "k0", "é", "z"];
const OPERATIONS: u64 = 1_500;

type Model = BTreeMap<(String, String), Vec<u8>>;

#[test]
fn the_state_answers_as_a_map_does() {
    for seed in 0..8 {
        run(seed);
    }
}

fn run(seed: u64) {
    let mut rng = Random(seed);
    let folder = common::folder();
    // Small enough for tables to be written and merged all the time.
    let options = || Options { memtable_bytes: 64 << 10, ..Options::default() };
    let mut state = State::open(folder.path(), options()).unwrap();
    let (mut committed, mut operations) = (Model::new(), 0);
    while operations < OPERATIONS {
        let mut transaction = state.begin();
        let mut model = committed.clone();
        for _ in 0..rng.below(8) {
            operations += 1;
            operate(&mut rng, &mut transaction, &mut model, &format!("seed {seed}, operation {operations}"));
        }
        if rng.below(4) > 0 {
            common::durable(&state, transaction.commit().unwrap()).unwrap();
            committed = model;
        } else {
            drop(transaction);
        }
        if rng.below(60) == 0 {
            drop(state);
            state = State::open(folder.path(), options()).unwrap();
        }
    }
}

fn operate(rng: &mut Random, transaction: &mut Transaction, model: &mut Model, at: &str) {
    let bucket = BUCKETS[rng.below(3) as usize];
    let key = KEYS[rng.below(8) as usize];
    let place = (bucket.to_owned(), key.to_owned());
    match rng.below(8) {
        0 | 1 => {
            let value = value(rng);
            transaction.set(bucket, key, value.clone()).unwrap();
            model.insert(place, value);
        }
        2 => {
            transaction.delete(bucket, key).unwrap();
            model.remove(&place);
        }
        3 => assert_eq!(transaction.get(bucket, key).unwrap(), model.get(&place).cloned(), "{at}"),
        4 => {
            let delta = rng.next() as i64 >> rng.below(64);
            assert_eq!(transaction.increment(bucket, key, delta), increment(model, place, delta), "{at}");
        }
        5 => {
            let expected = if rng.below(2) == 0 { model.get(&place).cloned() } else { Some(b"7".to_vec()) };
            let value = (rng.below(3) > 0).then(|| value(rng));
            let holds = model.get(&place) == expected.as_ref();
            let did = transaction.compare_and_set(bucket, key, expected.as_deref(), value.clone()).unwrap();
            assert_eq!(did, holds, "{at}");
            match value {
                Some(value) if holds => drop(model.insert(place, value)),
                None if holds => drop(model.remove(&place)),
                _ => {}
            }
        }
        _ => {
            let prefix = PREFIXES[rng.below(5) as usize];
            let after = (rng.below(2) == 0).then_some(key);
            let limit = 1 + rng.below(4) as u32;
            let page = transaction.list(bucket, prefix, after, limit).unwrap();
            assert_eq!(page, list(model, bucket, prefix, after, limit), "{at}");
        }
    }
}

fn value(rng: &mut Random) -> Vec<u8> {
    match rng.below(4) {
        0 => vec![b'x'; rng.below(9_000) as usize],
        1 => Vec::new(),
        _ => rng.below(1_000).to_string().into_bytes(),
    }
}

fn increment(model: &mut Model, place: (String, String), delta: i64) -> Result<i64, StoreError> {
    let key = place.1.clone();
    let number: i64 = match model.get(&place) {
        None => 0,
        Some(value) => {
            let text = std::str::from_utf8(value).unwrap();
            text.parse().map_err(|_| StoreError::NotANumber { key: key.clone() })?
        }
    };
    let sum = number.checked_add(delta).ok_or(StoreError::Overflow { key })?;
    model.insert(place, sum.to_string().into_bytes());
    Ok(sum)
}

fn list(model: &Model, bucket: &str, prefix: &str, after: Option<&str>, limit: u32) -> Page {
    let mut entries: Vec<Entry> = model
        .iter()
        .filter(|((held, key), _)| {
            held == bucket && key.starts_with(prefix) && after.is_none_or(|after| &**key > after)
        })
        .map(|((_, key), value)| Entry { key: key.clone(), value: value.clone() })
        .collect();
    let more = entries.len() > limit as usize;
    entries.truncate(limit as usize);
    Page { next: entries.last().filter(|_| more).map(|entry| entry.key.clone()), entries }
}
