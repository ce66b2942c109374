//! One transaction: reads see one moment and its own writes; the writes happen together at the end, or not at all.
//!
//! Writes stay in memory until the commit, so giving up costs nothing. What is read, keys and ranges alike, is noted,
//! and the commit is refused if another transaction wrote any of it meanwhile.

use crate::Inner;
use crate::envelope::{self, Header};
use crate::error::{CommitError, StoreError};
use crate::group::Ticket;
use crate::keys::{self, VALUE_BYTES_MAX};
use crate::ledger::Growth;
use crate::oracle::{CommitNumber, ReadSet};
use crate::page::{self, Overlay, Page};
use fjall::{Readable, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Most keys one transaction writes.
pub const WRITES_MAX: usize = 10_000;
/// Most bytes of keys and values one transaction writes.
pub const WRITE_BYTES_MAX: usize = 16 << 20;

/// What a transaction changes, by encoded key.
pub type Writes = BTreeMap<Vec<u8>, Write>;

/// One change.
#[derive(Debug)]
pub struct Write {
    /// What is stored from now on; none deletes.
    pub value: Option<Vec<u8>>,
    /// What was stored when the transaction began. For buckets only.
    pub before: Option<Header>,
    /// What is stored from now on. For buckets only.
    pub after: Option<Header>,
}

/// A transaction on the buckets. Made by [`State::begin`](crate::State::begin); dropping it undoes it.
///
/// It keeps the state of the moment it began alive: keep it short.
#[must_use = "dropping a transaction undoes it"]
pub struct Transaction {
    snapshot: Snapshot,
    reads: ReadSet,
    writes: Writes,
    write_bytes: usize,
    /// What the writes so far add to each bucket.
    growth: BTreeMap<String, Growth>,
    /// The state's own time, as of when the transaction first had to know it.
    now_ms: Option<u64>,
    /// Whether anything it did depends on a key having expired.
    saw_expired: bool,
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
        Self {
            snapshot,
            reads: ReadSet::default(),
            writes: Writes::new(),
            write_bytes: 0,
            growth: BTreeMap::new(),
            now_ms: None,
            saw_expired: false,
            began,
        }
    }

    pub fn get(&mut self, bucket: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let encoded = keys::encode(bucket, key)?;
        let (header, stored) = self.look(&encoded)?;
        Ok(stored.filter(|_| !self.has_expired(header)))
    }

    /// Writes `value` under `key`. It lives as long as the bucket's [`ttl`](crate::BucketConfig::ttl) says, whatever was
    /// there before.
    pub fn set(&mut self, bucket: &str, key: &str, value: Vec<u8>) -> Result<(), StoreError> {
        let expires_ms = self.default_expiry(bucket);
        self.put(bucket, keys::encode(bucket, key)?, &value, expires_ms, None)
    }

    /// As [`set`](Self::set), but the key lives for `ttl`: from then on it is as if it had been deleted.
    pub fn set_with_ttl(&mut self, bucket: &str, key: &str, value: Vec<u8>, ttl: Duration) -> Result<(), StoreError> {
        let expires_ms = self.in_future(ttl);
        self.put(bucket, keys::encode(bucket, key)?, &value, Some(expires_ms), None)
    }

    /// Deleting a key that is not there is no error.
    pub fn delete(&mut self, bucket: &str, key: &str) -> Result<(), StoreError> {
        self.write(bucket, keys::encode(bucket, key)?, None, None)
    }

    /// Adds `delta` to the decimal integer stored under `key`, where a missing one counts as 0, and returns the sum. A
    /// key that is there expires when it would have; a new one lives as one that is [`set`](Self::set).
    pub fn increment(&mut self, bucket: &str, key: &str, delta: i64) -> Result<i64, StoreError> {
        let encoded = keys::encode(bucket, key)?;
        let (header, stored) = self.look(&encoded)?;
        let value = stored.filter(|_| !self.has_expired(header));
        let is_there = value.is_some();
        let number = match value {
            None => 0,
            Some(value) => std::str::from_utf8(&value)
                .ok()
                .and_then(|text| text.parse::<i64>().ok())
                .ok_or_else(|| StoreError::NotANumber { key: key.to_owned() })?,
        };
        let sum = number.checked_add(delta).ok_or_else(|| StoreError::Overflow { key: key.to_owned() })?;
        let expires_ms = match header {
            Some(header) if is_there => header.expires_ms,
            _ => self.default_expiry(bucket),
        };
        self.put(bucket, encoded, sum.to_string().as_bytes(), expires_ms, Some(header))?;
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
        let encoded = keys::encode(bucket, key)?;
        let (header, stored) = self.look(&encoded)?;
        if stored.filter(|_| !self.has_expired(header)).as_deref() != expected {
            return Ok(false);
        }
        match value {
            Some(value) => {
                let expires_ms = self.default_expiry(bucket);
                self.put(bucket, encoded, &value, expires_ms, Some(header))?;
            }
            None => self.write(bucket, encoded, None, Some(header))?,
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
        let (time, mut now_ms, mut saw_expired) = (&self.began.inner.time, self.now_ms, false);
        let (page, seen) = page::fill(bucket, limit, Overlay::new(below, above), |sealed| {
            let (header, value) = envelope::open(&sealed)?;
            let expired = header.expires_ms.is_some_and(|at| at <= *now_ms.get_or_insert_with(|| time.now_ms()));
            saw_expired |= expired;
            Ok((!expired).then(|| value.to_vec()))
        })?;
        self.now_ms = now_ms;
        self.saw_expired |= saw_expired;
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
    /// - [`CommitError::BucketFull`]: nothing was written.
    /// - [`CommitError::Unavailable`]: nothing was written, unless its code is `DiskFailed`.
    pub fn commit(self) -> Result<Ticket, CommitError> {
        if self.writes.is_empty() {
            return Ok(Ticket::NOTHING_WRITTEN);
        }
        let inner = &self.began.inner;
        inner.write(&inner.buckets, &self.writes, self.write_bytes, |oracle| {
            if oracle.has_conflict(self.began.number, &self.reads) {
                return Err(CommitError::Conflict);
            }
            inner.keep_books(oracle, self.began.number, &self.writes, &self.growth, self.saw_expired)
        })
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Deletes a key that expires at `at_ms`, if it still does. For the sweep.
    pub(crate) fn remove_expired(&mut self, encoded: &[u8], at_ms: u64) -> Result<bool, StoreError> {
        let (header, _) = self.look(encoded)?;
        let expires = header.is_some_and(|header| header.expires_ms == Some(at_ms));
        if let (true, Some((bucket, _))) = (expires && self.has_expired(header), keys::parts(encoded)) {
            self.write(bucket, encoded.to_vec(), None, Some(header))?;
            return Ok(true);
        }
        Ok(false)
    }

    /// What is there, expired or not, and its value. Notes that it was read.
    fn look(&mut self, encoded: &[u8]) -> Result<(Option<Header>, Option<Vec<u8>>), StoreError> {
        let opened = |sealed: &[u8]| envelope::open(sealed).map(|(header, value)| (Some(header), Some(value.to_vec())));
        if let Some(own) = self.writes.get(encoded) {
            return own.value.as_deref().map_or(Ok((None, None)), opened);
        }
        self.reads.add_key(encoded);
        let stored =
            self.snapshot.get(&self.began.inner.buckets, encoded).map_err(|error| page::read_failed(&error))?;
        stored.as_deref().map_or(Ok((None, None)), opened)
    }

    fn has_expired(&mut self, header: Option<Header>) -> bool {
        let Some(at) = header.and_then(|header| header.expires_ms) else { return false };
        let expired = at <= self.now_ms();
        self.saw_expired |= expired;
        expired
    }

    fn now_ms(&mut self) -> u64 {
        *self.now_ms.get_or_insert_with(|| self.began.inner.time.now_ms())
    }

    fn in_future(&mut self, ttl: Duration) -> u64 {
        self.now_ms().saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
    }

    fn default_expiry(&mut self, bucket: &str) -> Option<u64> {
        let ttl = self.began.inner.ledger.ttl(bucket)?;
        Some(self.in_future(ttl))
    }

    fn put(
        &mut self,
        bucket: &str,
        encoded: Vec<u8>,
        value: &[u8],
        expires_ms: Option<u64>,
        known: Option<Option<Header>>,
    ) -> Result<(), StoreError> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(StoreError::ValueLength { bytes: value.len() });
        }
        self.write(bucket, encoded, Some(envelope::seal(value, expires_ms)), known)
    }

    /// Notes a change of `encoded` in `bucket`, unless it goes beyond a bound. `known` is what is stored there, if that
    /// has been looked at.
    fn write(
        &mut self,
        bucket: &str,
        encoded: Vec<u8>,
        value: Option<Vec<u8>>,
        known: Option<Option<Header>>,
    ) -> Result<(), StoreError> {
        let after = match &value {
            Some(sealed) => Some(envelope::open(sealed)?.0),
            None => None,
        };
        let own = self.writes.get(&encoded);
        if own.is_none() && self.writes.len() == WRITES_MAX {
            return Err(StoreError::WriteCount);
        }
        let (before, held) = match own {
            Some(own) => (own.before, own.after),
            None => {
                let before = match known {
                    Some(known) => known,
                    None => self.began.inner.header(&self.snapshot, &encoded)?,
                };
                (before, before)
            }
        };
        let size = |header: Option<Header>| encoded.len() + header.map_or(0, |header| header.value_bytes);
        let written_before = own.map_or(0, |own| size(own.after));
        let bytes = self.write_bytes - written_before + size(after);
        if bytes > WRITE_BYTES_MAX {
            return Err(StoreError::WriteBytes);
        }
        let key_bytes = encoded.len() - bucket.len() - 1;
        let size = |header: Header| key_bytes + header.value_bytes;
        let change = Growth::of(held.map(size), after.map(size));
        self.grow(bucket, change)?;
        self.write_bytes = bytes;
        self.writes.insert(encoded, Write { value, before, after });
        Ok(())
    }

    fn grow(&mut self, bucket: &str, change: Growth) -> Result<(), StoreError> {
        let mut growth = self.growth.get(bucket).copied().unwrap_or_default();
        growth.add(change);
        if change.keys > 0 || change.bytes > 0 {
            self.began.inner.ledger.admit(bucket, growth).map_err(StoreError::BucketFull)?;
        }
        match self.growth.get_mut(bucket) {
            Some(held) => *held = growth,
            None => drop(self.growth.insert(bucket.to_owned(), growth)),
        }
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
