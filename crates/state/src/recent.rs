//! Which commit wrote a key last, as far as a reader may have to wait for it. The rule it serves is at [`Ticket`].
//!
//! ```text
//!  commit in batch 7 writes x ─▶ place of x: 7        who reads x waits for batch 7
//!  commit in batch 8 writes y ─▶ place of y: 8        who reads z waits for none, whatever else is written
//! ```
//! Keys share places, chosen by a hash: a key that shares with a newer one waits for a sync it would not need, but
//! never for one too few. So a read beside a stream of writes to other keys waits for nothing, and after a failed write
//! keys that it did not touch can still be read.
//!
//! [`Ticket`]: crate::Ticket

use crate::keys;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Places for keys. 8 bytes each; with as many commits on their way to the disk, one read in two would share.
const PLACES: usize = 4_096;

/// Written under the lock of the commit order. Whoever looks has held that lock after what it saw happened, so it looks
/// late enough.
pub struct Recent {
    places: Box<[AtomicU64]>,
    hasher: RandomState,
    /// Of all commits.
    newest: AtomicU64,
}

impl Recent {
    pub fn new() -> Self {
        let places = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { places, hasher: RandomState::new(), newest: AtomicU64::new(0) }
    }

    /// A commit in this batch wrote these keys of buckets, in their order, and noted these names.
    pub fn note<'a>(&self, batch: u64, keys: impl Iterator<Item = &'a [u8]>, names: &[Vec<u8>]) {
        self.newest.store(batch, Relaxed);
        let mut last_bucket = &[][..];
        for key in keys {
            self.place(key).store(batch, Relaxed);
            let bucket = keys::bucket_of(key);
            if bucket != last_bucket {
                self.place(bucket).store(batch, Relaxed);
                last_bucket = bucket;
            }
        }
        names.iter().for_each(|name| self.place(name).store(batch, Relaxed));
    }

    /// The batch of the newest commit.
    pub fn newest(&self) -> u64 {
        self.newest.load(Relaxed)
    }

    /// No commit that wrote this key, or noted this name, is in a later batch. For a whole bucket, [`keys::bucket_of`]
    /// any of its keys.
    pub fn wrote(&self, key: &[u8]) -> u64 {
        self.place(key).load(Relaxed)
    }

    fn place(&self, key: &[u8]) -> &AtomicU64 {
        &self.places[self.hasher.hash_one(key) as usize % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::BucketId;

    #[test]
    fn a_key_and_its_bucket_are_as_new_as_the_last_commit_that_wrote_there() {
        let recent = Recent::new();
        let a = BucketId::NONE.next().unwrap();
        let key = |bucket, key: &str| keys::entry(bucket, key).unwrap();
        let (x, y, z) = (key(a, "x"), key(a, "y"), key(a.next().unwrap(), "z"));
        recent.note(3, [&x[..], &y].into_iter(), &[]);
        recent.note(5, [&y[..]].into_iter(), &[b"\0name".to_vec()]);
        let wrote = |key: &[u8]| recent.wrote(key);
        assert_eq!([wrote(&x), wrote(&y), wrote(keys::bucket_of(&x)), wrote(b"\0name")], [3, 5, 5, 5]);
        assert!([wrote(&z), wrote(keys::bucket_of(&z))].contains(&0), "both shared a place with others");
        assert_eq!(recent.newest(), 5);
    }
}
