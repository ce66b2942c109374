//! Which bucket a name stands for. All names are in memory, so no commit and no read asks the disk for one.
//!
//! ```text
//!  "visits" ─▶ Bucket 7 ◀── every transaction that uses it, until it ends
//!     │            │
//!     │            └─ entries 7·k1, 7·k2, …
//!     └─ on disk one record: 7, and what the bucket holds. There is none while it holds nothing
//! ```
//! The first use of a name, to read or to write, gives it an id in memory, so first writers agree on one. It reaches
//! the disk with the first commit that leaves something in the bucket, together with the last id that was given. A name
//! whose bucket holds nothing and is not in use is forgotten, and its id with it: the next user brings a new one.
//!
//! **A name can change what it stands for**, when its bucket is renamed, or forgotten and made again. A transaction
//! that used the name before the first of these cannot commit afterwards; one that began before, and uses the name
//! afterwards, finds in its own snapshot what the name stood for. So every transaction sees names as of one moment.

use crate::error::StoreError;
use crate::keys::{self, BucketId, ID_BYTES};
use crate::ledger::BucketCounts;
use crate::oracle::CommitNumber;
use parking_lot::RwLock;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Names whose buckets hold nothing that may be kept. Beyond, and beyond as many as hold something, those that are not
/// in use are forgotten.
const VACANT_MAX: usize = 1_024;

/// What is stored under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    pub id: BucketId,
    pub counts: BucketCounts,
}

impl Holding {
    pub fn encode(self) -> Vec<u8> {
        [&self.id.encode()[..], &self.counts.encode()].concat()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (id, counts) = bytes.split_first_chunk::<ID_BYTES>()?;
        Some(Self { id: BucketId::decode(*id)?, counts: BucketCounts::decode(counts)? })
    }
}

/// A bucket, by the name it has.
#[derive(Debug)]
pub struct NamedBucket {
    pub name: Arc<str>,
    pub id: BucketId,
    /// The name may have stood for something else until this commit.
    since: CommitNumber,
    /// Whether the name stands for something else by now.
    is_past: AtomicBool,
    /// Since which commit it holds nothing; [`HOLDS`] while it holds something.
    vacant_since: AtomicU64,
}

const HOLDS: CommitNumber = CommitNumber::MAX;

/// What is stored under this name is not a [`Holding`].
pub fn damaged(name: &str) -> StoreError {
    let detail = format!("what is stored under the name of bucket {name:?} cannot be read");
    StoreError::Unavailable(Problem::new(Code::StateCorrupt, detail))
}

impl NamedBucket {
    fn new(name: &str, id: BucketId, since: CommitNumber, vacant_since: CommitNumber) -> Arc<Self> {
        let (is_past, vacant_since) = (AtomicBool::new(false), AtomicU64::new(vacant_since));
        Arc::new(Self { name: name.into(), id, since, is_past, vacant_since })
    }

    /// What a name stood for in an earlier moment: good for reading only.
    pub fn past(name: &str, id: BucketId) -> Arc<Self> {
        let bucket = Self::new(name, id, 0, 0);
        bucket.is_past.store(true, Ordering::Relaxed);
        bucket
    }

    /// Whether a transaction that began after this commit finds in its snapshot what the name stands for now.
    pub fn is_known_to(&self, began: CommitNumber) -> bool {
        self.since <= began
    }

    /// Asked under the lock of the commit order, where commits are decided.
    pub fn is_past(&self) -> bool {
        self.is_past.load(Ordering::Relaxed)
    }

    /// It holds something, or nothing, since this commit.
    pub fn set_vacant(&self, is_vacant: bool, since: CommitNumber) {
        self.vacant_since.store(if is_vacant { since } else { HOLDS }, Ordering::Relaxed);
    }

    fn is_vacant(&self) -> bool {
        self.vacant_since.load(Ordering::Relaxed) != HOLDS
    }
}

/// All names.
pub struct Names(RwLock<Known>);

struct Known {
    by_name: ByName,
    by_id: BTreeMap<BucketId, Arc<NamedBucket>>,
    /// The last id that was given, and the last one that is written down.
    last: BucketId,
    last_written: BucketId,
    /// With so many names it is looked which can be forgotten.
    tidy_at: usize,
    /// Names that are not known may have stood for something until this commit.
    forgotten: CommitNumber,
}

impl Names {
    /// Those that are on disk, and the last id that is written there.
    pub fn new(holdings: impl Iterator<Item = (String, BucketId)>, last: BucketId) -> Self {
        let (mut by_name, mut by_id) = (ByName::default(), BTreeMap::new());
        for (name, id) in holdings {
            let bucket = NamedBucket::new(&name, id, 0, HOLDS);
            by_id.insert(id, Arc::clone(&bucket));
            by_name.insert(bucket);
        }
        let tidy_at = by_name.len() + VACANT_MAX.max(by_name.len());
        Self(RwLock::new(Known { by_name, by_id, last, last_written: last, tidy_at, forgotten: 0 }))
    }

    /// The bucket of this name, which begins to exist in memory if need be.
    ///
    /// # Errors
    /// `BucketName`; names that are known need no check.
    pub fn get(&self, name: &str) -> Result<Arc<NamedBucket>, StoreError> {
        if let Some(bucket) = self.find(name) {
            return Ok(bucket);
        }
        keys::check_name(name)?;
        let mut known = self.0.write();
        if let Some(bucket) = known.by_name.get(name) {
            return Ok(Arc::clone(bucket));
        }
        if known.by_name.len() >= known.tidy_at {
            known.tidy();
        }
        known.last = known.last.next().ok_or_else(|| {
            StoreError::Unavailable(Problem::new(Code::Internal, "all ids that buckets can have are used"))
        })?;
        let bucket = NamedBucket::new(name, known.last, known.forgotten, 0);
        known.insert(Arc::clone(&bucket));
        Ok(bucket)
    }

    /// The bucket of this name, if it has one.
    pub fn find(&self, name: &str) -> Option<Arc<NamedBucket>> {
        self.0.read().by_name.get(name).cloned()
    }

    /// The bucket that has this id, if it has a name.
    pub fn of(&self, id: BucketId) -> Option<Arc<NamedBucket>> {
        self.0.read().by_id.get(&id).cloned()
    }

    /// The last of these ids, if it is to be written down as the last one given.
    pub fn unwritten(&self, ids: impl Iterator<Item = BucketId>) -> Option<BucketId> {
        let last = ids.max()?;
        (last > self.0.read().last_written).then_some(last)
    }

    pub fn set_written(&self, last: BucketId) {
        self.0.write().last_written = last;
    }

    /// From this commit on, what had the name of `bucket` has the name `to`; what had that was vacant.
    pub fn rename(&self, bucket: &NamedBucket, to: &str, commit: CommitNumber) {
        let mut known = self.0.write();
        for name in [&*bucket.name, to] {
            if let Some(past) = known.by_name.remove(name) {
                past.is_past.store(true, Ordering::Relaxed);
                known.by_id.remove(&past.id);
            }
        }
        known.forgotten = commit;
        known.insert(NamedBucket::new(to, bucket.id, commit, HOLDS));
    }
}

impl Known {
    fn insert(&mut self, bucket: Arc<NamedBucket>) {
        self.by_id.insert(bucket.id, Arc::clone(&bucket));
        self.by_name.insert(bucket);
    }

    /// Forgets names whose buckets hold nothing and are not in use.
    fn tidy(&mut self) {
        let Self { by_name, by_id, forgotten, .. } = self;
        by_name.retain(|bucket| {
            // Here and in the other map: nobody else has it, and nobody gets it while this lock is held.
            if !bucket.is_vacant() || Arc::strong_count(bucket) > 2 {
                return true;
            }
            *forgotten = (*forgotten).max(bucket.vacant_since.load(Ordering::Relaxed));
            by_id.remove(&bucket.id);
            false
        });
        self.tidy_at = self.by_name.len() + VACANT_MAX.max(self.by_name.len());
    }
}

/// Buckets by length of name, and then by name: most names that are compared have other lengths, and this happens for
/// every bucket of every transaction.
#[derive(Default)]
struct ByName {
    by_length: BTreeMap<usize, BTreeMap<Arc<str>, Arc<NamedBucket>>>,
    buckets: usize,
}

impl ByName {
    fn get(&self, name: &str) -> Option<&Arc<NamedBucket>> {
        self.by_length.get(&name.len())?.get(name)
    }

    fn len(&self) -> usize {
        self.buckets
    }

    fn insert(&mut self, bucket: Arc<NamedBucket>) {
        let same_length = self.by_length.entry(bucket.name.len()).or_default();
        self.buckets += usize::from(same_length.insert(Arc::clone(&bucket.name), bucket).is_none());
    }

    fn remove(&mut self, name: &str) -> Option<Arc<NamedBucket>> {
        let removed = self.by_length.get_mut(&name.len())?.remove(name)?;
        self.buckets -= 1;
        Some(removed)
    }

    fn retain(&mut self, mut keep: impl FnMut(&Arc<NamedBucket>) -> bool) {
        self.by_length.values_mut().for_each(|same_length| same_length.retain(|_, bucket| keep(bucket)));
        self.buckets = self.by_length.values().map(BTreeMap::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new(std::iter::empty(), BucketId::NONE)
    }

    fn known(names: &Names) -> usize {
        let known = names.0.read();
        assert_eq!(known.by_name.len(), known.by_id.len());
        known.by_name.len()
    }

    #[test]
    fn a_name_has_one_id_and_no_two_names_the_same() {
        let names = names();
        let [a, b, again] = ["a", "b", "a"].map(|name| names.get(name).unwrap());
        assert_eq!((a.id == again.id, a.id == b.id), (true, false));
        assert_eq!(names.of(b.id).unwrap().name, b.name);
        assert!(names.find("c").is_none());
        assert_eq!(names.unwritten([a.id, b.id].into_iter()), Some(b.id));
        names.set_written(b.id);
        assert_eq!(names.unwritten([a.id, b.id].into_iter()), None);
    }

    #[test]
    fn names_without_contents_are_bounded_and_those_in_use_or_with_contents_stay() {
        let names = names();
        let (used, full) = (names.get("used").unwrap(), names.get("full").unwrap());
        full.set_vacant(false, 5);
        let gone = names.get("gone").unwrap();
        gone.set_vacant(true, 7);
        let ids = (full.id, gone.id);
        drop((full, gone));
        for number in 0..10 * VACANT_MAX {
            names.get(&number.to_string()).unwrap();
            assert!(known(&names) <= 2 * VACANT_MAX);
        }
        assert_eq!((names.get("used").unwrap().id, names.get("full").unwrap().id), (used.id, ids.0));
        let anew = names.get("gone").unwrap();
        assert!(anew.id > ids.1, "no id is given twice");
        assert_eq!([6, 7].map(|began| anew.is_known_to(began)), [false, true]);
    }

    #[test]
    fn a_renamed_bucket_is_past_under_its_old_name_and_what_had_the_new_one_too() {
        let names = names();
        let [from, to] = ["from", "to"].map(|name| names.get(name).unwrap());
        names.rename(&from, "to", 9);
        let now = names.get("to").unwrap();
        assert_eq!((now.id, now.is_past(), from.is_past(), to.is_past()), (from.id, false, true, true));
        assert_eq!(names.of(from.id).unwrap().name, now.name);
        assert!(names.of(to.id).is_none());
        for name in ["from", "to", "another"] {
            assert_eq!([8, 9].map(|began| names.get(name).unwrap().is_known_to(began)), [false, true], "{name}");
        }
        assert_eq!(known(&names), 3);
    }

    #[test]
    fn ids_end_with_an_error() {
        let last = BucketId::decode([b'-' - 1, 255, 255, 255, 255, 255]).unwrap();
        let names = Names::new(std::iter::empty(), last);
        assert!(matches!(names.get("a"), Err(StoreError::Unavailable(problem)) if problem.code == Code::Internal));
    }

    #[test]
    fn what_is_stored_under_a_name_comes_back() {
        let id = BucketId::NONE.next().unwrap();
        let holding = Holding { id, counts: BucketCounts { keys: 3, bytes: 1 << 40 } };
        assert_eq!(Holding::decode(&holding.encode()), Some(holding));
        assert_eq!(Holding::decode(&[0; 22]), None);
        assert_eq!(Holding::decode(&holding.encode()[..21]), None);
    }
}
