//! What each bucket holds, exactly, and how much it may hold.
//!
//! The counts of a bucket are written in the same commit as what changes them, so they are never looked for: opening
//! reads one small record a bucket. Bounds are the node's to set at each start; they are not kept here.
//!
//! Keys that have expired count until the sweep has removed them.

use crate::error::StoreError;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Bounds of a bucket, and how long its keys live. By default there are none, and for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BucketConfig {
    /// Keys it holds. A write of another one is refused.
    pub keys_max: Option<u64>,
    /// Bytes of keys and values it holds. A write that would go beyond is refused.
    pub bytes_max: Option<u64>,
    /// How long a key lives after it was last set, where the write does not say.
    pub ttl: Option<Duration>,
}

/// What a bucket holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BucketCounts {
    pub keys: u64,
    /// Bytes of keys and values, without what keeping them costs.
    pub bytes: u64,
}

impl BucketCounts {
    pub(crate) fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.keys.to_be_bytes());
        bytes[8..].copy_from_slice(&self.bytes.to_be_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (keys, held) = bytes.split_at_checked(8)?;
        Some(Self { keys: u64::from_be_bytes(keys.try_into().ok()?), bytes: u64::from_be_bytes(held.try_into().ok()?) })
    }

    /// None when more would be taken away than there is: the counts on disk are not right.
    fn grown(self, growth: Growth) -> Option<Self> {
        Some(Self {
            keys: self.keys.checked_add_signed(growth.keys)?,
            bytes: self.bytes.checked_add_signed(growth.bytes)?,
        })
    }
}

/// What a transaction adds to a bucket, or takes away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Growth {
    pub keys: i64,
    pub bytes: i64,
}

impl Growth {
    /// One key was `before` bytes large (key and value; none: missing) and is now `after`.
    pub fn of(before: Option<usize>, after: Option<usize>) -> Self {
        let (keys, bytes) =
            (|held: Option<usize>| i64::from(held.is_some()), |held: Option<usize>| held.unwrap_or(0) as i64);
        Self { keys: keys(after) - keys(before), bytes: bytes(after) - bytes(before) }
    }

    pub fn add(&mut self, other: Self) {
        self.keys += other.keys;
        self.bytes += other.bytes;
    }
}

/// Why a bucket takes no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Full {
    pub bucket: String,
    pub bound: Bound,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    Keys { would: u64, max: u64 },
    Bytes { would: u64, max: u64 },
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bucket = &self.bucket;
        match self.bound {
            Bound::Keys { would, max } => write!(f, "bucket {bucket:?} would hold {would} keys, keys_max is {max}"),
            Bound::Bytes { would, max } => write!(f, "bucket {bucket:?} would hold {would} bytes, bytes_max is {max}"),
        }
    }
}

impl From<Full> for Problem {
    fn from(full: Full) -> Self {
        Self::new(Code::BucketFull, full.to_string())
    }
}

/// Whether a bucket that holds `counts` takes `growth`. What does not grow is always taken, also beyond a bound that
/// was lowered.
fn admit(bucket: &str, config: &BucketConfig, counts: BucketCounts, growth: Growth) -> Result<(), Full> {
    let full = |bound| Full { bucket: bucket.to_owned(), bound };
    let would = |held: u64, more: i64| held.saturating_add_signed(more);
    match config.keys_max {
        Some(max) if growth.keys > 0 && would(counts.keys, growth.keys) > max => {
            return Err(full(Bound::Keys { would: would(counts.keys, growth.keys), max }));
        }
        _ => {}
    }
    match config.bytes_max {
        Some(max) if growth.bytes > 0 && would(counts.bytes, growth.bytes) > max => {
            Err(full(Bound::Bytes { would: would(counts.bytes, growth.bytes), max }))
        }
        _ => Ok(()),
    }
}

/// All buckets. Its lock is held for moments only.
#[derive(Default)]
pub struct Ledger {
    buckets: Mutex<BTreeMap<String, Account>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Account {
    config: BucketConfig,
    counts: BucketCounts,
}

impl Ledger {
    pub fn new(counts: BTreeMap<String, BucketCounts>) -> Self {
        let account = |(name, counts)| (name, Account { counts, ..Account::default() });
        Self { buckets: Mutex::new(counts.into_iter().map(account).collect()) }
    }

    pub fn configure(&self, bucket: &str, config: BucketConfig) {
        self.change(bucket, |account| account.config = config);
    }

    /// How long a key of `bucket` lives where the write does not say.
    pub fn ttl(&self, bucket: &str) -> Option<Duration> {
        self.buckets.lock().get(bucket)?.config.ttl
    }

    /// Whether `bucket` would take `growth` now. It may be another matter at the commit.
    pub fn admit(&self, bucket: &str, growth: Growth) -> Result<(), Full> {
        match self.buckets.lock().get(bucket) {
            Some(account) => admit(bucket, &account.config, account.counts, growth),
            None => Ok(()),
        }
    }

    /// What `bucket` will hold with `growth`.
    ///
    /// # Errors
    /// [`StoreError::BucketFull`], and `StateCorrupt` if the counts on disk are not right.
    pub fn judge(&self, bucket: &str, growth: Growth) -> Result<BucketCounts, StoreError> {
        let account = self.buckets.lock().get(bucket).copied().unwrap_or_default();
        admit(bucket, &account.config, account.counts, growth).map_err(StoreError::BucketFull)?;
        account.counts.grown(growth).ok_or_else(|| {
            let detail = format!("bucket {bucket:?} is counted as {:?} and would change by {growth:?}", account.counts);
            StoreError::Unavailable(Problem::new(Code::StateCorrupt, detail))
        })
    }

    /// What `from` holds is what `to` holds from now on. Bounds and time to live stay with the names.
    pub fn rename(&self, from: &str, to: &str) {
        let counts = self.counts(from);
        self.set(from, BucketCounts::default());
        self.set(to, counts);
    }

    /// Notes what `bucket` holds after a commit.
    pub fn set(&self, bucket: &str, counts: BucketCounts) {
        self.change(bucket, |account| account.counts = counts);
    }

    /// A bucket that holds nothing and has no bounds is forgotten: names come and go.
    fn change(&self, bucket: &str, change: impl FnOnce(&mut Account)) {
        let mut buckets = self.buckets.lock();
        match buckets.get_mut(bucket) {
            Some(account) => {
                change(account);
                if *account == Account::default() {
                    buckets.remove(bucket);
                }
            }
            None => {
                let mut account = Account::default();
                change(&mut account);
                if account != Account::default() {
                    buckets.insert(bucket.to_owned(), account);
                }
            }
        }
    }

    pub fn counts(&self, bucket: &str) -> BucketCounts {
        self.buckets.lock().get(bucket).map(|account| account.counts).unwrap_or_default()
    }

    /// Buckets that hold something, by name.
    pub fn all(&self) -> Vec<(String, BucketCounts)> {
        let buckets = self.buckets.lock();
        let held = buckets.iter().filter(|(_, account)| account.counts.keys > 0);
        held.map(|(name, account)| (name.clone(), account.counts)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_grows_beyond_a_bound_is_refused() {
        let config = BucketConfig { keys_max: Some(2), bytes_max: Some(10), ttl: None };
        let judge = |keys, bytes, more_keys, more_bytes| {
            admit("b", &config, BucketCounts { keys, bytes }, Growth { keys: more_keys, bytes: more_bytes })
                .map_err(|full| full.bound)
        };
        assert_eq!(judge(1, 5, 1, 5), Ok(()));
        assert_eq!(judge(2, 5, 1, 1), Err(Bound::Keys { would: 3, max: 2 }));
        assert_eq!(judge(1, 5, 1, 6), Err(Bound::Bytes { would: 11, max: 10 }));
        assert_eq!(judge(9, 90, 0, -1), Ok(()), "a lowered bound does not keep anybody from deleting");
        assert_eq!(judge(9, 90, 0, 1), Err(Bound::Bytes { would: 91, max: 10 }));
    }

    #[test]
    fn counts_survive_encoding_and_never_fall_below_nothing() {
        let counts = BucketCounts { keys: 3, bytes: 1 << 40 };
        assert_eq!(BucketCounts::decode(&counts.encode()), Some(counts));
        assert_eq!(BucketCounts::decode(&[0; 17]), None);
        assert_eq!(counts.grown(Growth { keys: -4, bytes: 0 }), None);
    }

    #[test]
    fn a_bucket_that_holds_nothing_and_has_no_bounds_is_forgotten() {
        let ledger = Ledger::default();
        let known = || ledger.buckets.lock().len();
        ledger.set("b", BucketCounts { keys: 1, bytes: 1 });
        ledger.configure("b", BucketConfig { keys_max: Some(2), ..BucketConfig::default() });
        ledger.set("b", BucketCounts::default());
        assert_eq!(known(), 1, "its bounds count still");
        ledger.configure("b", BucketConfig::default());
        assert_eq!(known(), 0);
        ledger.set("b", BucketCounts { keys: 1, bytes: 1 });
        ledger.set("b", BucketCounts::default());
        ledger.configure("c", BucketConfig::default());
        assert_eq!(known(), 0);
    }

    #[test]
    fn growth_is_what_changed() {
        assert_eq!(Growth::of(None, Some(5)), Growth { keys: 1, bytes: 5 });
        assert_eq!(Growth::of(Some(7), Some(5)), Growth { keys: 0, bytes: -2 });
        assert_eq!(Growth::of(Some(7), None), Growth { keys: -1, bytes: -7 });
        assert_eq!(Growth::of(None, None), Growth::default());
    }
}
