//! Counts of buckets, written in the same commit as the change itself: what each bucket holds, and what expires when.
//!
//! ```text
//! commit ─▶ for each key written: what was there, how large, expiring when?
//!             │ read when the transaction wrote it; what commits since then left there, the oracle knows
//!             ▼
//!           counts of its buckets · notes of what expires ─▶ the same batch as the writes themselves
//! ```
//! Notes are in the order of time, so the sweep reads only what is due. It begins at the earliest possible note, and so
//! does not look again at what it removed.

use crate::clock::{Clock, Moment, OwnTime};
use crate::damage;
use crate::engine::{Commit, Opened};
use crate::envelope::{self, Header};
use crate::error::{CommitError, StoreError, from_database};
use crate::keys::{self, BucketId};
use crate::ledger::{BucketConfig, BucketCounts, Growth, Ledger};
use crate::names::{Holding, NamedBucket, Names};
use crate::oracle::{CommitNumber, Oracle, Since};
use crate::page::read_failed;
use crate::pending::Space;
use crate::transaction::{Used, Writes};
use crate::{Inner, State};
use fjall::{PersistMode, Readable, Snapshot};
use problem::{Code, Problem};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A key of the database, and what to store under it; none deletes.
pub type Note = (Vec<u8>, Option<Vec<u8>>);

/// What is noted beside the writes of a commit.
#[derive(Default)]
pub struct Books {
    pub notes: Vec<Note>,
    /// Names of which something is noted that no written key tells: a bucket has become empty, or has another name.
    pub names: Vec<Vec<u8>>,
    /// What buckets hold once it has happened.
    counts: Vec<(Arc<NamedBucket>, BucketCounts)>,
    /// A bucket, and the name it gets.
    renamed: Option<(Arc<NamedBucket>, String)>,
    /// The number of the commit.
    commit: CommitNumber,
    /// The id of a bucket that is written down as the last one given.
    last_id: Option<BucketId>,
    /// The time that is written down.
    moment: Option<Moment>,
}

impl Books {
    /// `bucket`, which holds so much, gets the name `to`.
    pub fn of_rename(commit: CommitNumber, bucket: Arc<NamedBucket>, to: &str, counts: BucketCounts) -> Self {
        let holding = Holding { id: bucket.id, counts };
        Self {
            notes: vec![(keys::name(&bucket.name), None), (keys::name(to), Some(holding.encode()))],
            names: [&bucket.name, to].map(|name| name.as_bytes().to_vec()).into(),
            renamed: Some((bucket, to.to_owned())),
            commit,
            ..Self::default()
        }
    }

    /// `bucket` will hold so much. Its record is there while it holds anything.
    fn note_counts(&mut self, bucket: &Arc<NamedBucket>, counts: BucketCounts) {
        let is_empty = counts == BucketCounts::default();
        let holding = Holding { id: bucket.id, counts };
        self.notes.push((keys::name(&bucket.name), (!is_empty).then(|| holding.encode())));
        if is_empty {
            self.names.push(bucket.name.as_bytes().to_vec());
        }
        self.counts.push((Arc::clone(bucket), counts));
    }

    fn note_time(&mut self, moment: Moment) {
        self.notes.push((keys::CLOCK.to_vec(), Some(moment.encode().to_vec())));
        self.moment = Some(moment);
    }
}

/// Most keys one call of the sweep removes.
const SWEEP_KEYS_MAX: usize = 1_000;

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swept {
    /// Keys it removed.
    pub keys: u64,
    /// How long nothing is due from now on, as far as is known; zero: there is more to remove. None: nothing expires.
    pub next: Option<Duration>,
}

impl State {
    /// Sets bounds and time to live of a bucket, until the state is closed. What is stored already stays, also beyond a
    /// bound: then nothing that grows is taken. A new time to live counts for what is set from now on.
    pub fn configure_bucket(&self, bucket: &str, config: BucketConfig) -> Result<(), Problem> {
        keys::check_name(bucket)?;
        self.inner.ledger.configure(bucket, config);
        Ok(())
    }

    /// What a bucket holds, expired keys that are not removed yet among it. Costs no disk.
    pub fn bucket_counts(&self, bucket: &str) -> BucketCounts {
        self.inner.ledger.counts(bucket)
    }

    /// All buckets that hold something, by name. Costs no disk.
    pub fn buckets(&self) -> Vec<(String, BucketCounts)> {
        self.inner.ledger.all()
    }

    /// Removes up to 1,000 keys that have expired; nobody sees them any more in any case. Call it when it says, and
    /// about every second while there are keys with a time to live. Reads and writes the disk, and does not wait for
    /// it.
    ///
    /// # Errors
    /// Those of a commit; nothing was removed then.
    pub fn sweep(&self) -> Result<Swept, Problem> {
        let inner = &self.inner;
        if inner.time.is_saved() && inner.time.is_stale() {
            inner.write_time().map_err(Problem::from)?;
        }
        let now = inner.time.now_ms();
        // Commits that note something earlier meanwhile lower it again.
        let from = inner.sweep_from.swap(u64::MAX, Ordering::AcqRel);
        let swept = inner.sweep(self, from, now);
        let first_left = swept.as_ref().map_or(from, |(_, first_left)| *first_left);
        inner.sweep_from.fetch_min(first_left, Ordering::AcqRel);
        let (keys, _) = swept.map_err(Problem::from)?;
        let next = (first_left < u64::MAX).then(|| Duration::from_millis(first_left.saturating_sub(now)));
        Ok(Swept { keys, next })
    }
}

impl Inner {
    /// The commit that `books` are about has happened.
    pub(crate) fn close(&self, books: &Books) {
        for (bucket, counts) in &books.counts {
            self.ledger.set(&bucket.name, *counts);
            bucket.set_vacant(*counts == BucketCounts::default(), books.commit);
        }
        if let Some((bucket, to)) = &books.renamed {
            self.ledger.rename(&bucket.name, to);
            self.names.rename(bucket, to, books.commit);
        }
        if let Some(last) = books.last_id {
            self.names.set_written(last);
        }
        if let Some(moment) = books.moment {
            self.time.set_saved(moment);
        }
    }

    /// What `snapshot` has stored under `encoded`, without its value.
    pub(crate) fn header(&self, snapshot: &Snapshot, encoded: &[u8]) -> Result<Option<Header>, StoreError> {
        let stored = snapshot.get(&self.engine.buckets, encoded).map_err(|error| read_failed(&error))?;
        stored.map(|sealed| envelope::open(&sealed).map(|(header, _)| header)).transpose()
    }

    /// What has to be noted about `writes`, which are about to be committed. Touches no disk.
    pub(crate) fn keep_books(
        &self,
        oracle: &Oracle,
        began: CommitNumber,
        writes: &Writes,
        used: &Used,
        saw_expired: bool,
    ) -> Result<Books, CommitError> {
        if used.buckets.iter().any(|bucket| bucket.is_past()) {
            return Err(CommitError::Conflict);
        }
        let mut growth = Cow::Borrowed(&used.growth);
        let mut books = Books { commit: oracle.next(), ..Books::default() };
        let mut earliest = u64::MAX;
        for (encoded, write) in writes {
            let before = match oracle.since(began, encoded) {
                Since::Unchanged => write.before,
                Since::Written(now) => {
                    correct(growth.to_mut(), encoded, write.before, now);
                    now
                }
                Since::Forgotten => return Err(CommitError::Conflict),
            };
            let [before, after] = [before, write.after].map(|header| header.and_then(|header| header.expires_ms));
            if let Some(at) = after {
                earliest = earliest.min(at);
            }
            if before == after {
                continue;
            }
            books.notes.extend(before.map(|at| (keys::expiry(at, encoded), None)));
            books.notes.extend(after.map(|at| (keys::expiry(at, encoded), Some(Vec::new()))));
        }
        for bucket in &used.buckets {
            let growth = growth.get(&bucket.id).copied().unwrap_or_default();
            if growth != Growth::default() {
                let held = self.ledger.judge(&bucket.name, growth).map_err(unavailable)?;
                books.note_counts(bucket, held);
            }
        }
        books.last_id = self.names.unwritten(books.counts.iter().map(|(bucket, _)| bucket.id));
        books.notes.extend(books.last_id.map(|last| (keys::LAST_ID.to_vec(), Some(last.encode().to_vec()))));
        // Whatever depends on a key having expired must find it expired after a restart as well, whatever the wall
        // clock says then.
        if saw_expired || (earliest < u64::MAX && !self.time.is_saved()) {
            books.note_time(self.time.moment());
        }
        self.sweep_from.fetch_min(earliest, Ordering::AcqRel);
        Ok(books)
    }

    /// Removes what expired from `from` up to `now`. Says how many keys, and when the first note that is left is due.
    fn sweep(&self, state: &State, from: u64, now: u64) -> Result<(u64, u64), CommitError> {
        if from > now {
            return Ok((0, from));
        }
        let mut count = SWEEP_KEYS_MAX;
        loop {
            match self.sweep_some(state, from, now, count) {
                // Others write these very keys. Fewer at once have a better chance.
                Err(CommitError::Conflict) if count > 1 => count /= 8,
                // And there is always the next time.
                Err(CommitError::Conflict) => return Ok((0, from)),
                other => return other,
            }
        }
    }

    fn sweep_some(&self, state: &State, from: u64, now: u64, count: usize) -> Result<(u64, u64), CommitError> {
        let mut transaction = state.begin();
        let (mut start, end) = keys::expiries_from(from);
        let (mut keys, mut first_left) = (0, u64::MAX);
        let mut notes = transaction.snapshot().range(&self.engine.buckets, start.clone()..end.clone());
        while let Some(note) = notes.next() {
            let note = match note.key() {
                Ok(note) => note,
                Err(error) => {
                    self.engine.damage.note(&error);
                    // What stands in a damaged place is not removed. What comes after it is.
                    start = damage::behind(&error, &start).ok_or_else(|| unavailable(read_failed(&error)))?;
                    if start >= end {
                        break;
                    }
                    notes = transaction.snapshot().range(&self.engine.buckets, start.clone()..end.clone());
                    continue;
                }
            };
            let Some((at, encoded)) = keys::expiring(&note) else {
                let detail = "a note of what expires is not one";
                return Err(CommitError::Unavailable(Problem::new(Code::StateCorrupt, detail)));
            };
            if at > now || keys as usize == count {
                first_left = at;
                break;
            }
            keys += u64::from(transaction.remove_expired(encoded, at).map_err(unavailable)?);
        }
        let _removed_again_if_lost = transaction.commit()?;
        Ok((keys, first_left))
    }

    /// Writes the time down after the wall clock was set, so that the jump does not count as time off.
    fn write_time(&self) -> Result<(), CommitError> {
        let commit = Commit {
            space: Space::Buckets,
            writes: Writes::new(),
            bytes: 0,
            ops: Vec::new(),
            records: Default::default(),
        };
        let mut books = Books::default();
        books.note_time(self.time.moment());
        let _not_waited_for = self.commit(commit, |_, _| Ok(books))?;
        Ok(())
    }
}

/// Corrects the growth of `encoded`'s bucket: what was there before is not what it was taken for.
fn correct(growth: &mut BTreeMap<BucketId, Growth>, encoded: &[u8], taken: Option<Header>, real: Option<Header>) {
    let Some((bucket, key_bytes)) = keys::parts(encoded) else { return };
    let size = |header: Header| key_bytes + header.value_bytes;
    if let Some(growth) = growth.get_mut(&bucket) {
        growth.add(Growth::of(real.map(size), taken.map(size)));
    }
}

fn unavailable(error: StoreError) -> CommitError {
    match error {
        StoreError::BucketFull(full) => CommitError::BucketFull(full),
        other => CommitError::Unavailable(other.into()),
    }
}

/// Reads the books, and begins them in a new state.
pub fn open(opened: &Opened, clock: Arc<dyn Clock>, folder: &Path) -> Result<(Ledger, Names, OwnTime), Problem> {
    let Opened { database, buckets, .. } = opened;
    let what = format!("read the books of {}", folder.display());
    let failed = |error: fjall::Error| from_database(&what, &error);
    let corrupt = |detail: &str| Problem::new(Code::StateCorrupt, format!("cannot {what}: {detail}"));
    if buckets.get(keys::FORMAT).map_err(failed)?.is_none() {
        let mut batch = database.batch();
        batch.insert(buckets, keys::FORMAT, keys::FORMAT_VALUE);
        batch.commit().and_then(|()| database.persist(PersistMode::SyncAll)).map_err(failed)?;
    }
    let (mut counts, mut ids) = (BTreeMap::new(), Vec::new());
    let (start, end) = keys::all_names();
    for entry in buckets.range(start..end) {
        let (key, value) = entry.into_inner().map_err(failed)?;
        let entry = keys::named(&key).zip(Holding::decode(&value));
        let (name, Holding { id, counts: held }) =
            entry.ok_or_else(|| corrupt("what a bucket holds cannot be read"))?;
        ids.push((name.to_owned(), id));
        counts.insert(name.to_owned(), held);
    }
    let last = buckets.get(keys::LAST_ID).map_err(failed)?;
    let last = last.map(|bytes| (*bytes).try_into().ok().and_then(BucketId::decode));
    let last = last.unwrap_or(Some(BucketId::NONE)).ok_or_else(|| corrupt("the last id of a bucket cannot be read"))?;
    let saved = buckets.get(keys::CLOCK).map_err(failed)?;
    let saved = saved.map(|bytes| Moment::decode(&bytes).ok_or_else(|| corrupt("its time cannot be read")));
    let names = Names::new(ids.into_iter(), last);
    Ok((Ledger::new(counts), names, OwnTime::resume(clock, saved.transpose()?)))
}
