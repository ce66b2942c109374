//! One transaction: reads see one moment and its own writes; the writes happen together at the end, or not at all.
//!
//! Writes stay in memory until the commit, so giving up costs nothing. What is read, keys and ranges alike, is noted,
//! and the commit is refused if another transaction wrote any of it meanwhile.

use crate::Inner;
use crate::error::{CommitError, StoreError};
use crate::group::Ticket;
use crate::keys::{self, VALUE_BYTES_MAX};
use crate::oracle::{CommitNumber, ReadSet};
use crate::page::{self, Overlay, Page};
use fjall::{Readable, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most keys one transaction writes.
pub const WRITES_MAX: usize = 10_000;
/// Most bytes of keys and values one transaction writes.
pub const WRITE_BYTES_MAX: usize = 16 << 20;

/// What a transaction changes: encoded keys, and their values or none to delete them.
pub type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A transaction on the buckets. Made by [`State::begin`](crate::State::begin); dropping it undoes it.
///
/// It keeps the state of the moment it began alive: keep it short.
#[must_use = "dropping a transaction undoes it"]
pub struct Transaction {
    snapshot: Snapshot,
    reads: ReadSet,
    writes: Writes,
    write_bytes: usize,
    began: Began,
}

impl Transaction {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        let (snapshot, number) = {
            // No commit is half applied while the oracle is locked, so the snapshot holds whole transactions.
            let mut oracle = inner.oracle.lock();
            (inner.database.snapshot(), oracle.begin())
        };
        let began = Began { inner, number };
        Self { snapshot, reads: ReadSet::default(), writes: Writes::new(), write_bytes: 0, began }
    }

    pub fn get(&mut self, bucket: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let encoded = keys::encode(bucket, key)?;
        if let Some(own) = self.writes.get(&encoded) {
            return Ok(own.clone());
        }
        self.reads.add_key(&encoded);
        let stored = self.snapshot.get(&self.began.inner.buckets, &encoded);
        stored.map(|value| value.map(|value| value.to_vec())).map_err(|error| page::read_failed(&error))
    }

    pub fn set(&mut self, bucket: &str, key: &str, value: Vec<u8>) -> Result<(), StoreError> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(StoreError::ValueLength { bytes: value.len() });
        }
        self.write(keys::encode(bucket, key)?, Some(value))
    }

    /// Deleting a key that is not there is no error.
    pub fn delete(&mut self, bucket: &str, key: &str) -> Result<(), StoreError> {
        self.write(keys::encode(bucket, key)?, None)
    }

    /// Adds `delta` to the decimal integer stored under `key`, where a missing one counts as 0, and returns the sum.
    pub fn increment(&mut self, bucket: &str, key: &str, delta: i64) -> Result<i64, StoreError> {
        let number = match self.get(bucket, key)? {
            None => 0,
            Some(value) => std::str::from_utf8(&value)
                .ok()
                .and_then(|text| text.parse::<i64>().ok())
                .ok_or_else(|| StoreError::NotANumber { key: key.to_owned() })?,
        };
        let sum = number.checked_add(delta).ok_or_else(|| StoreError::Overflow { key: key.to_owned() })?;
        self.set(bucket, key, sum.to_string().into_bytes())?;
        Ok(sum)
    }

    /// Writes `value` (none: deletes) only if the key holds `expected` (none: is missing). Says whether it did.
    pub fn compare_and_set(
        &mut self,
        bucket: &str,
        key: &str,
        expected: Option<&[u8]>,
        value: Option<Vec<u8>>,
    ) -> Result<bool, StoreError> {
        if self.get(bucket, key)?.as_deref() != expected {
            return Ok(false);
        }
        match value {
            Some(value) => self.set(bucket, key, value)?,
            None => self.delete(bucket, key)?,
        }
        Ok(true)
    }

    /// Entries whose keys begin with `prefix`, in byte order, after the key `after`: at most `limit` of them (1 to
    /// [`page::LIMIT_MAX`]) and at most [`page::PAGE_BYTES_MAX`] bytes.
    pub fn list(&mut self, bucket: &str, prefix: &str, after: Option<&str>, limit: u32) -> Result<Page, StoreError> {
        page::check_limit(limit)?;
        let Some((start, end)) = keys::listing(bucket, prefix, after)? else {
            return Ok(Page::default());
        };
        let below = page::stored(self.snapshot.range(&self.began.inner.buckets, start.clone()..end.clone()));
        let above = self.writes.range(start.clone()..end.clone());
        let (page, seen) = page::fill(bucket, limit, Overlay::new(below, above))?;
        // Only what was looked at is noted: a key written beyond the page does not disturb its reader.
        self.reads.add_range((start, seen.map_or(end, |last| keys::just_after(&last))));
        Ok(page)
    }

    /// How many keys the transaction writes so far.
    pub fn write_count(&self) -> usize {
        self.writes.len()
    }

    /// Applies all writes at once; others see them from now on. They are durable once
    /// [`State::durable`](crate::State::durable) has returned for the ticket: acknowledge nothing before. A transaction
    /// that wrote nothing always succeeds, and its ticket never waits.
    ///
    /// # Errors
    /// - [`CommitError::Conflict`]: nothing was written; run the whole transaction again.
    /// - [`CommitError::Unavailable`]: nothing was written, unless its code is `DiskFailed`.
    pub fn commit(self) -> Result<Ticket, CommitError> {
        if self.writes.is_empty() {
            return Ok(Ticket::NOTHING_WRITTEN);
        }
        let inner = &self.began.inner;
        inner.write(&inner.buckets, &self.writes, self.write_bytes, |oracle| {
            !oracle.has_conflict(self.began.number, &self.reads)
        })
    }

    fn write(&mut self, encoded: Vec<u8>, value: Option<Vec<u8>>) -> Result<(), StoreError> {
        let size = |value: &Option<Vec<u8>>| encoded.len() + value.as_ref().map_or(0, Vec::len);
        let before = self.writes.get(&encoded).map(size);
        let bytes = self.write_bytes - before.unwrap_or(0) + size(&value);
        if before.is_none() && self.writes.len() == WRITES_MAX {
            return Err(StoreError::WriteCount);
        }
        if bytes > WRITE_BYTES_MAX {
            return Err(StoreError::WriteBytes);
        }
        self.write_bytes = bytes;
        self.writes.insert(encoded, value);
        Ok(())
    }
}

/// The oracle's knowledge that a transaction is open. Dropped last, with or without a commit.
struct Began {
    inner: Arc<Inner>,
    number: CommitNumber,
}

impl Drop for Began {
    fn drop(&mut self) {
        self.inner.oracle.lock().end(self.number);
    }
}
