//! Writes a data folder in format 1, key by key, as the versions did that wrote it.
#![allow(dead_code, reason = "each test binary uses its own part")]

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use state::State;
use std::collections::BTreeMap;
use std::path::Path;

/// One entry of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub bucket: String,
    pub key: String,
    pub value: Vec<u8>,
    /// In the state's own time.
    pub expires_ms: Option<u64>,
}

const BATCH: usize = 5_000;

/// Makes `entries` all that is in the buckets of `folder`, whose state has none. `now_ms` is its own time and the wall
/// clock's.
pub fn write(folder: &Path, entries: impl Iterator<Item = Entry>, now_ms: u64) {
    drop(State::open(folder, state::Options::default()).unwrap());
    let (database, buckets) = open(folder);
    let mut counts = BTreeMap::<String, (u64, u64)>::new();
    let mut entries = entries.peekable();
    while entries.peek().is_some() {
        let mut batch = database.batch();
        for Entry { bucket, key, value, expires_ms } in entries.by_ref().take(BATCH) {
            let held = counts.entry(bucket.clone()).or_default();
            *held = (held.0 + 1, held.1 + (key.len() + value.len()) as u64);
            let encoded = [bucket.as_bytes(), &[0], key.as_bytes()].concat();
            if let Some(at) = expires_ms {
                batch.insert(&buckets, [&[2], &at.to_be_bytes()[..], &encoded].concat(), []);
            }
            let sealed = match expires_ms {
                None => [&[1], &value[..]].concat(),
                Some(at) => [&[2], &at.to_be_bytes()[..], &value].concat(),
            };
            batch.insert(&buckets, encoded, sealed);
        }
        batch.commit().unwrap();
    }
    let mut batch = database.batch();
    for (bucket, (keys, bytes)) in counts {
        let held = [keys.to_be_bytes(), bytes.to_be_bytes()].concat();
        batch.insert(&buckets, [&[1], bucket.as_bytes()].concat(), held);
    }
    batch.insert(&buckets, b"\x03clock", [now_ms.to_be_bytes(), now_ms.to_be_bytes()].concat());
    batch.insert(&buckets, b"\x03format", b"1");
    batch.commit().unwrap();
    database.persist(PersistMode::SyncAll).unwrap();
}

/// Every key of the part that has the buckets, with its value, as it is in the database.
pub fn stored(folder: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (_database, buckets) = open(folder);
    let pair = |guard: fjall::Guard| guard.into_inner().map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap();
    buckets.iter().map(pair).collect()
}

fn open(folder: &Path) -> (Database, Keyspace) {
    let database = Database::builder(folder.join("state")).worker_threads(1).open().unwrap();
    let buckets = database.keyspace("buckets", KeyspaceCreateOptions::default).unwrap();
    (database, buckets)
}

/// Says that `folder` is written in another format.
pub fn set_format(folder: &Path, format: &[u8]) {
    let (database, buckets) = open(folder);
    buckets.insert(b"\x03format", format).unwrap();
    database.persist(PersistMode::SyncAll).unwrap();
}

/// Has everything written out as tables.
pub fn write_tables(folder: &Path) {
    let (_database, buckets) = open(folder);
    buckets.rotate_memtable_and_wait().unwrap();
}
