//! One transaction: reads see one moment and its own writes; the writes happen together at the end, or not at all.
//!
//! Writes stay in memory until the commit, so giving up costs nothing. What is read, keys and ranges alike, is noted,
//! and the commit is refused if another transaction wrote any of it meanwhile.

use crate::Inner;
use crate::books::Books;
use crate::engine::{self, Commit};
use crate::envelope::{self, Header};
use crate::error::{CommitError, StoreError};
use crate::group::Ticket;
use crate::keys::{self, BucketId, VALUE_BYTES_MAX};
use crate::ledger::Growth;
use crate::names::{self, Holding, NamedBucket};
use crate::oracle::{CommitNumber, ReadSet};
use crate::page::{self, Overlay, Page};
use crate::part::{self, Part, Undo};
use crate::pending::Space;
use crate::queue::{self, LeaseId, OwnOps, QueueInner};
use fjall::{Readable, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Most keys one transaction writes.
pub const WRITES_MAX: usize = 10_000;
/// Most bytes of keys and values one transaction writes.
pub const WRITE_BYTES_MAX: usize = 16 << 20;
/// What one change takes beside its key and value.
const CHANGE_BYTES: usize = 256;

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

/// A transaction on buckets and queues. Made by [`State::begin`](crate::State::begin); dropping it undoes it.
///
/// Once it has read it keeps the state of that moment alive: keep it short.
#[must_use = "dropping a transaction undoes it"]
pub struct Transaction {
    snapshot: Option<Snapshot>,
    /// The newest batch that the snapshot shows, if it was not durable when it was taken; else 0.
    shows: u64,
    /// Of the commits it has seen something of, the batch of the newest. 0: of none that was not durable.
    rests_on: u64,
    pub(crate) reads: ReadSet,
    pub(crate) writes: Writes,
    pub(crate) write_bytes: usize,
    pub(crate) records: engine::Records,
    /// The buckets it has to do with, and what the writes so far add to them.
    pub(crate) used: Used,
    /// The state's own time, as of when the transaction, or its present part, first had to know it.
    pub(crate) now_ms: Option<u64>,
    /// Whether anything it did depends on a key having expired.
    saw_expired: bool,
    /// What it does with queues.
    pub(crate) ops: OwnOps,
    /// What of all this can be undone by itself; none in most.
    pub(crate) part: Option<Part>,
    /// Given back when it is dropped.
    pub(crate) popped: Vec<(Arc<QueueInner>, LeaseId)>,
    began: Option<Began>,
    pub(crate) inner: Arc<Inner>,
}

impl Transaction {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self {
            snapshot: None,
            shows: 0,
            rests_on: 0,
            reads: ReadSet::default(),
            writes: Writes::new(),
            write_bytes: 0,
            records: engine::Records::new(),
            used: Used::default(),
            now_ms: None,
            saw_expired: false,
            ops: OwnOps::default(),
            part: None,
            popped: Vec::new(),
            began: None,
            inner,
        }
    }

    /// The bucket that has this name, as of the moment of the snapshot.
    fn bucket(&mut self, name: &str) -> Result<&Arc<NamedBucket>, StoreError> {
        let at = match self.used.place(name) {
            Ok(at) => return Ok(&self.used.buckets[at]),
            Err(at) => at,
        };
        self.snapshot();
        let mut bucket = self.inner.names.get(name)?;
        let began = self.began.as_ref().expect("it has a snapshot").number;
        if !bucket.is_known_to(began) {
            bucket = self.bucket_then(name)?;
        }
        self.rest_on_key(name.as_bytes());
        self.used.buckets.insert(at, bucket);
        Ok(&self.used.buckets[at])
    }

    /// The bucket that had this name in the moment of the snapshot; since then names have changed. A commit that has
    /// to do with it is a conflict.
    fn bucket_then(&mut self, name: &str) -> Result<Arc<NamedBucket>, StoreError> {
        let buckets = self.inner.engine.buckets.clone();
        let stored = self.snapshot().get(&buckets, keys::name(name)).map_err(|error| page::read_failed(&error))?;
        let holding = stored.map(|stored| Holding::decode(&stored).ok_or_else(|| names::damaged(name))).transpose()?;
        Ok(NamedBucket::past(name, holding.map_or(BucketId::NONE, |holding| holding.id)))
    }

    /// The database's key of `key` in the bucket that has this name, and the bucket.
    fn entry(&mut self, name: &str, key: &str) -> Result<(Arc<NamedBucket>, Vec<u8>), StoreError> {
        keys::check_key(key)?;
        let bucket = Arc::clone(self.bucket(name)?);
        let encoded = keys::entry(bucket.id, key)?;
        Ok((bucket, encoded))
    }

    /// The state of the moment of the first read.
    pub(crate) fn snapshot(&mut self) -> &Snapshot {
        let Self { inner, snapshot, shows, began, .. } = self;
        snapshot.get_or_insert_with(|| {
            let (snapshot, number, newest) = inner.engine.begin();
            *shows = if inner.engine.group.newest_durable() < newest { newest } else { 0 };
            let new = Began { inner: Arc::clone(inner), number };
            // An earlier one stays: judged by that, no conflict is missed.
            began.get_or_insert(new);
            snapshot
        })
    }

    /// From here on, writes of others to what this one reads are conflicts.
    pub(crate) fn watch_reads(&mut self) {
        let inner = &self.inner;
        self.began.get_or_insert_with(|| {
            let number = inner.engine.order.lock().oracle.begin();
            Began { inner: Arc::clone(inner), number }
        });
    }

    /// What has to be durable before anybody outside hears of what was read until now; see [`Ticket`].
    pub fn seen(&self) -> Ticket {
        Ticket(self.rests_on)
    }

    /// It has seen what is, or is not, under this key, or in the bucket that [`keys::bucket_of`] gives, or what a name
    /// stands for.
    fn rest_on_key(&mut self, key: &[u8]) {
        if self.shows > 0 {
            // Whatever was written later, the snapshot does not show it.
            self.rest_on(self.inner.engine.recent.wrote(key).min(self.shows));
        }
    }

    pub(crate) fn rest_on(&mut self, batch: u64) {
        self.rests_on = self.rests_on.max(batch);
    }

    pub fn get(&mut self, bucket: &str, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        keys::check_key(key)?;
        let encoded = keys::entry(self.bucket(bucket)?.id, key)?;
        let (header, stored) = self.look(&encoded)?;
        Ok(stored.filter(|_| !self.has_expired(header)))
    }

    /// Writes `value` under `key`. It lives as long as the bucket's [`ttl`](crate::BucketConfig::ttl) says, whatever
    /// was there before.
    pub fn set(&mut self, bucket: &str, key: &str, value: Vec<u8>) -> Result<(), StoreError> {
        let (bucket, encoded) = self.entry(bucket, key)?;
        let expires_ms = self.default_expiry(&bucket);
        self.put(bucket, encoded, &value, expires_ms, None)
    }

    /// As [`set`](Self::set), but the key lives for `ttl`: from then on it is as if it had been deleted.
    pub fn set_with_ttl(&mut self, bucket: &str, key: &str, value: Vec<u8>, ttl: Duration) -> Result<(), StoreError> {
        let (bucket, encoded) = self.entry(bucket, key)?;
        let expires_ms = self.in_future(ttl);
        self.put(bucket, encoded, &value, Some(expires_ms), None)
    }

    /// Deleting a key that is not there is no error.
    pub fn delete(&mut self, bucket: &str, key: &str) -> Result<(), StoreError> {
        let (bucket, encoded) = self.entry(bucket, key)?;
        self.write(bucket, encoded, None, None)
    }

    /// Adds `delta` to the decimal integer stored under `key`, where a missing one counts as 0, and returns the sum. A
    /// key that is there expires when it would have; a new one lives as one that is [`set`](Self::set).
    pub fn increment(&mut self, bucket: &str, key: &str, delta: i64) -> Result<i64, StoreError> {
        let (bucket, encoded) = self.entry(bucket, key)?;
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
            _ => self.default_expiry(&bucket),
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
        let (bucket, encoded) = self.entry(bucket, key)?;
        let (header, stored) = self.look(&encoded)?;
        if stored.filter(|_| !self.has_expired(header)).as_deref() != expected {
            return Ok(false);
        }
        match value {
            Some(value) => {
                let expires_ms = self.default_expiry(&bucket);
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
        let lead = self.bucket(bucket)?.id.encode();
        let Some((start, end)) = keys::listing(&lead, prefix, after)? else {
            return Ok(Page::default());
        };
        let buckets = self.inner.engine.buckets.clone();
        let below = page::stored(self.snapshot().range(&buckets, start.clone()..end.clone()));
        let above = self.writes.range(start.clone()..end.clone());
        let (time, mut now_ms, mut saw_expired) = (&self.inner.time, self.now_ms, false);
        let (page, seen) = page::fill(&lead, limit, Overlay::new(below, above), |sealed| {
            let (header, value) = envelope::open(&sealed)?;
            let expired = header.expires_ms.is_some_and(|at| at <= *now_ms.get_or_insert_with(|| time.now_ms()));
            saw_expired |= expired;
            Ok((!expired).then(|| value.to_vec()))
        })?;
        self.now_ms = now_ms;
        self.saw_expired |= saw_expired;
        // Only what was looked at is noted: a key written beyond the page does not disturb its reader.
        self.rest_on_key(&lead);
        self.reads.add_range((start, seen.map_or(end, |last| keys::just_after(&last))));
        Ok(page)
    }

    /// How many keys and events the transaction changes so far.
    pub fn write_count(&self) -> usize {
        self.writes.len() + self.ops.count() + self.records.len()
    }

    /// Bytes it holds in memory until it is committed: what it writes and pushes, and what finding that again takes.
    pub fn held_bytes(&self) -> usize {
        self.write_bytes + self.write_count() * CHANGE_BYTES
    }

    /// The same of its present part alone.
    pub fn part_bytes(&self) -> usize {
        let before = self.part.as_ref().map_or(0, |part| part.bytes + part.count * CHANGE_BYTES);
        self.held_bytes().saturating_sub(before)
    }

    fn check_count(&self) -> Result<(), StoreError> {
        let before = self.part.as_ref().map_or(0, |part| part.count);
        if self.write_count() >= before + WRITES_MAX { Err(StoreError::WriteCount) } else { Ok(()) }
    }

    fn check_bytes(&self, write_bytes: usize) -> Result<(), StoreError> {
        let before = self.part.as_ref().map_or(0, |part| part.bytes);
        if write_bytes > before + WRITE_BYTES_MAX { Err(StoreError::WriteBytes) } else { Ok(()) }
    }

    /// Counts a change of a queue, of so many bytes.
    pub(crate) fn count_op(&mut self, bytes: usize) -> Result<(), StoreError> {
        self.check_count()?;
        self.check_bytes(self.write_bytes + bytes)?;
        self.write_bytes += bytes;
        Ok(())
    }

    /// Writes a record of the node in `table`, or deletes it, when the transaction commits. Records are not read by
    /// transactions, so they cause no conflicts; the last change of one counts.
    pub fn record(&mut self, table: &str, key: &str, value: Option<Vec<u8>>) -> Result<(), StoreError> {
        let bytes = value.as_ref().map_or(0, Vec::len);
        if bytes > VALUE_BYTES_MAX {
            return Err(StoreError::ValueLength { bytes });
        }
        let encoded = keys::record(table, key)?;
        self.count_op(encoded.len() + bytes)?;
        match &mut self.part {
            None => drop(self.records.insert(encoded, value)),
            Some(part) => {
                let before = self.records.insert(encoded.clone(), value);
                part.note(Undo::Record(encoded, before));
            }
        }
        Ok(())
    }

    /// Applies all writes at once; others see them from now on. They are durable once
    /// [`State::durable`](crate::State::durable) has returned for the ticket: acknowledge nothing before. A transaction
    /// that wrote nothing always succeeds, and its ticket waits for what it has read.
    ///
    /// # Errors
    /// - [`CommitError::Conflict`]: nothing was written; run the whole transaction again.
    /// - [`CommitError::BucketFull`], [`CommitError::QueueFull`], [`CommitError::QueueEnded`]: nothing was written.
    /// - [`CommitError::LeaseLost`]: nothing was written; the event is ready again, or in other hands.
    /// - [`CommitError::Unavailable`]: nothing was written, unless its code is `DiskFailed`.
    pub fn commit(mut self) -> Result<Ticket, CommitError> {
        if self.write_count() == 0 {
            return Ok(self.seen());
        }
        let (writes, ops) = (std::mem::take(&mut self.writes), std::mem::take(&mut self.ops).into_list());
        let began = self.began.as_ref().map(|began| began.number);
        let records = std::mem::take(&mut self.records);
        let commit = Commit { space: Space::Buckets, writes, bytes: self.write_bytes, ops, records };
        let (ticket, over) = self.inner.commit(commit, |oracle, writes| {
            let Some(began) = began else { return Ok(Books::default()) };
            if oracle.has_conflict(began, &self.reads) {
                return Err(CommitError::Conflict);
            }
            self.inner.keep_books(oracle, began, writes, &self.used, self.saw_expired)
        })?;
        self.popped.clear();
        queue::trim(&self.inner, over);
        Ok(ticket)
    }

    /// Drops what it, or its present part, would write. What it has read stays: a commit waits for that.
    pub fn undo(&mut self) {
        if self.part.is_some() {
            return self.undo_part();
        }
        (self.writes, self.records, self.ops) = (Writes::new(), engine::Records::new(), OwnOps::default());
        (self.write_bytes, self.used.growth) = (0, BTreeMap::new());
        part::give_back(self.popped.drain(..));
    }

    /// Deletes a key that expires at `at_ms`, if it still does. For the sweep.
    pub(crate) fn remove_expired(&mut self, encoded: &[u8], at_ms: u64) -> Result<bool, StoreError> {
        let (header, _) = self.look(encoded)?;
        let expires = header.is_some_and(|header| header.expires_ms == Some(at_ms));
        if !expires || !self.has_expired(header) {
            return Ok(false);
        }
        let Some(bucket) = keys::parts(encoded).and_then(|(id, _)| self.inner.names.of(id)) else { return Ok(false) };
        if let Err(at) = self.used.place(&bucket.name) {
            self.used.buckets.insert(at, Arc::clone(&bucket));
        }
        self.write(bucket, encoded.to_vec(), None, Some(header))?;
        Ok(true)
    }

    /// What is there, expired or not, and its value. Notes that it was read.
    fn look(&mut self, encoded: &[u8]) -> Result<(Option<Header>, Option<Vec<u8>>), StoreError> {
        let opened = |sealed: &[u8]| envelope::open(sealed).map(|(header, value)| (Some(header), Some(value.to_vec())));
        if let Some(own) = self.writes.get(encoded) {
            return own.value.as_deref().map_or(Ok((None, None)), opened);
        }
        self.reads.add_key(encoded);
        let buckets = self.inner.engine.buckets.clone();
        let stored = self.snapshot().get(&buckets, encoded);
        let stored = stored.map_err(|error| {
            self.inner.engine.damage.note(&error);
            page::read_failed(&error)
        })?;
        self.rest_on_key(encoded);
        stored.as_deref().map_or(Ok((None, None)), opened)
    }

    fn has_expired(&mut self, header: Option<Header>) -> bool {
        let Some(at) = header.and_then(|header| header.expires_ms) else { return false };
        let expired = at <= self.now_ms();
        self.saw_expired |= expired;
        expired
    }

    fn now_ms(&mut self) -> u64 {
        *self.now_ms.get_or_insert_with(|| self.inner.time.now_ms())
    }

    fn in_future(&mut self, ttl: Duration) -> u64 {
        self.now_ms().saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
    }

    fn default_expiry(&mut self, bucket: &NamedBucket) -> Option<u64> {
        let ttl = self.inner.ledger.ttl(&bucket.name)?;
        Some(self.in_future(ttl))
    }

    fn put(
        &mut self,
        bucket: Arc<NamedBucket>,
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
        bucket: Arc<NamedBucket>,
        encoded: Vec<u8>,
        value: Option<Vec<u8>>,
        known: Option<Option<Header>>,
    ) -> Result<(), StoreError> {
        let after = match &value {
            Some(sealed) => Some(envelope::open(sealed)?.0),
            None => None,
        };
        if !self.writes.contains_key(&encoded) {
            self.snapshot();
        }
        let own = self.writes.get(&encoded);
        if own.is_none() {
            self.check_count()?;
        }
        let (before, held) = match own {
            Some(own) => (own.before, own.after),
            None => {
                let before = match known {
                    Some(known) => known,
                    None => self.inner.header(self.snapshot.as_ref().expect("taken above"), &encoded)?,
                };
                (before, before)
            }
        };
        let size = |header: Option<Header>| encoded.len() + header.map_or(0, |header| header.value_bytes);
        let written_before = own.map_or(0, |own| size(own.after));
        let bytes = self.write_bytes - written_before + size(after);
        self.check_bytes(bytes)?;
        let key_bytes = encoded.len() - keys::ID_BYTES;
        let size = |header: Header| key_bytes + header.value_bytes;
        let change = Growth::of(held.map(size), after.map(size));
        self.grow(&bucket, change)?;
        self.write_bytes = bytes;
        let write = Write { value, before, after };
        match &mut self.part {
            None => drop(self.writes.insert(encoded, write)),
            Some(part) => {
                let before = self.writes.insert(encoded.clone(), write);
                part.note(Undo::Write(encoded, before));
            }
        }
        Ok(())
    }

    fn grow(&mut self, bucket: &NamedBucket, change: Growth) -> Result<(), StoreError> {
        let held = self.used.growth.entry(bucket.id).or_default();
        let mut growth = *held;
        growth.add(change);
        if change.keys > 0 || change.bytes > 0 {
            self.inner.ledger.admit(&bucket.name, growth).map_err(StoreError::BucketFull)?;
        }
        let before = std::mem::replace(held, growth);
        if let Some(part) = &mut self.part {
            part.note(Undo::Growth(bucket.id, before));
        }
        Ok(())
    }
}

/// The buckets that one transaction has to do with. While it has them, their names keep their ids.
#[derive(Default)]
pub struct Used {
    /// By length of name, and then by name: mostly one or two.
    pub buckets: Vec<Arc<NamedBucket>>,
    /// What its writes add to them.
    pub growth: BTreeMap<BucketId, Growth>,
}

impl Used {
    /// Where the bucket is that has this name, or where it belongs.
    fn place(&self, name: &str) -> Result<usize, usize> {
        self.buckets
            .binary_search_by(|bucket| bucket.name.len().cmp(&name.len()).then_with(|| (*bucket.name).cmp(name)))
    }
}

/// The oracle's knowledge that a transaction is open. Dropped last, with or without a commit.
struct Began {
    inner: Arc<Inner>,
    number: CommitNumber,
}

impl Drop for Began {
    fn drop(&mut self) {
        self.inner.engine.order.lock().oracle.end(self.number);
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        part::give_back(self.popped.drain(..));
    }
}
