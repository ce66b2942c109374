//! How a bucket and a key become one key of the database, and what their bounds are.
//!
//! ```text
//! 01 · name                         which bucket has this name, and what it holds: one record
//! 02 · own time, 8 bytes · entry    when an entry expires
//! 03 · word                         about all of it
//! ID · key                          an entry: what a user has stored. ID is that of its bucket, six bytes, high
//!                                   first, and the first of them is 04 to 2c
//! ```
//! Ids have one width, so no bucket's entries begin with the id of another. They sort as they were given, after what is
//! kept about buckets, and before all keys of format 1, which began with a name. A bucket has another name by writing
//! one record; its entries stay where they are.
//!
//! The node's own records are in a part of their own, where nothing is ever renamed: `table · 00 · key`. A table's name
//! has no zero byte.

use crate::backup::STATE_FORMAT;
use crate::error::StoreError;
use std::fmt;

/// Longest name of a bucket, in bytes.
pub const BUCKET_BYTES_MAX: usize = 64;
/// Longest name of one of the node's own, which begin with a dot: a word, and the name of what it belongs to.
const OWN_BYTES_MAX: usize = 80;
/// Longest key, in bytes. A key has at least one.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Largest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

const NAME: u8 = 1;
const EXPIRY: u8 = 2;
/// Under which format all this is written: [`FORMAT_VALUE`].
pub const FORMAT: &[u8] = b"\x03format";
pub const FORMAT_VALUE: &[u8] = STATE_FORMAT.as_bytes();
/// The state's own time, as [`crate::clock::Moment`].
pub const CLOCK: &[u8] = b"\x03clock";
/// The last id that was given to a bucket and written down: six bytes.
pub const LAST_ID: &[u8] = b"\x03last-id";

/// Bytes of a bucket's id.
pub const ID_BYTES: usize = 6;

/// The number of a bucket. It never has another one, and no other bucket ever has this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BucketId(u64);

impl BucketId {
    /// Before all that are given: nothing is ever stored under it.
    pub const NONE: Self = Self(4 << 40);
    /// The first one that cannot be given: its keys would be where those of format 1 are.
    const END: Self = Self((b'-' as u64) << 40);

    /// The one to give after this one; none when all are given: with 100,000 new buckets a second, after 14 years.
    pub fn next(self) -> Option<Self> {
        Some(Self(self.0 + 1)).filter(|next| *next < Self::END)
    }

    pub fn encode(self) -> [u8; ID_BYTES] {
        let [_, _, id @ ..] = self.0.to_be_bytes();
        id
    }

    pub fn decode(bytes: [u8; ID_BYTES]) -> Option<Self> {
        let [a, b, c, d, e, f] = bytes;
        let id = Self(u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
        (Self::NONE..Self::END).contains(&id).then_some(id)
    }
}

impl fmt::Display for BucketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0 - Self::NONE.0)
    }
}

/// Half-open: from the first key up to, but not including, the second.
pub type KeyRange = (Vec<u8>, Vec<u8>);

/// The database's key of the entry `key` in a bucket.
pub fn entry(bucket: BucketId, key: &str) -> Result<Vec<u8>, StoreError> {
    join(&bucket.encode(), key)
}

/// The id of its bucket, and how many bytes the user gave, of a key that [`entry`] made.
pub fn parts(entry: &[u8]) -> Option<(BucketId, usize)> {
    let (id, key) = entry.split_first_chunk()?;
    Some((BucketId::decode(*id)?, key.len()))
}

/// What all entries of the bucket begin with that [`entry`] made this one for, and no others.
pub fn bucket_of(entry: &[u8]) -> &[u8] {
    &entry[..ID_BYTES.min(entry.len())]
}

/// What the keys of all records in `table` begin with, and no others.
pub fn table(table: &str) -> Result<Vec<u8>, StoreError> {
    check_name(table)?;
    Ok([table.as_bytes(), &[0]].concat())
}

/// The database's key of the record `key` in a table.
pub fn record(table: &str, key: &str) -> Result<Vec<u8>, StoreError> {
    join(&self::table(table)?, key)
}

/// Table and key of a key that [`record`] made.
pub fn of_record(record: &[u8]) -> Option<(&str, &str)> {
    let end = record.iter().position(|byte| *byte == 0)?;
    Some((std::str::from_utf8(&record[..end]).ok()?, std::str::from_utf8(&record[end + 1..]).ok()?))
}

/// The range of keys that begin with `lead`, the bytes of a bucket or a table, and `prefix`, and come after `after`;
/// none when there can be no such key.
pub fn listing(lead: &[u8], prefix: &str, after: Option<&str>) -> Result<Option<KeyRange>, StoreError> {
    for part in [Some(prefix), after].into_iter().flatten() {
        if part.len() > KEY_BYTES_MAX {
            return Err(StoreError::KeyLength { bytes: part.len() });
        }
    }
    let first = [lead, prefix.as_bytes()].concat();
    let end = successor(&first);
    let start = match after {
        // The least key after another is that key with a zero byte at its end.
        Some(after) => first.max([lead, after.as_bytes(), &[0]].concat()),
        None => first,
    };
    Ok((start < end).then_some((start, end)))
}

/// The least key that is greater than `key`.
pub fn just_after(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// The database's key of the record about the bucket that has this name.
pub fn name(bucket: &str) -> Vec<u8> {
    [&[NAME], bucket.as_bytes()].concat()
}

/// The name in a key that [`name`] made.
pub fn named(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.strip_prefix(&[NAME])?).ok()
}

/// All keys that [`name`] makes.
pub fn all_names() -> KeyRange {
    (vec![NAME], vec![NAME + 1])
}

/// The database's key of the note that `entry` expires at `at_ms`.
pub fn expiry(at_ms: u64, entry: &[u8]) -> Vec<u8> {
    [&[EXPIRY], &at_ms.to_be_bytes()[..], entry].concat()
}

/// When which entry expires, from a key that [`expiry`] made.
pub fn expiring(note: &[u8]) -> Option<(u64, &[u8])> {
    let (at, entry) = note.strip_prefix(&[EXPIRY])?.split_first_chunk()?;
    Some((u64::from_be_bytes(*at), entry))
}

/// Notes of what expires from `from_ms` on.
pub fn expiries_from(from_ms: u64) -> KeyRange {
    (expiry(from_ms, &[]), vec![EXPIRY + 1])
}

/// The part of a database key that the user gave, after `lead`; none if the database holds something we never wrote.
pub fn decode<'a>(lead: &[u8], encoded: &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(encoded.get(lead.len()..)?).ok()
}

/// Whether a bucket, a table of records or a queue may be named so.
pub fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    let bytes_max = if name.starts_with('.') { OWN_BYTES_MAX } else { BUCKET_BYTES_MAX };
    !name.is_empty() && name.len() <= bytes_max && name.bytes().all(allowed)
}

/// # Errors
/// `BucketName` when nothing may be named so.
pub fn check_name(name: &str) -> Result<(), StoreError> {
    match is_name(name) {
        true => Ok(()),
        false => Err(StoreError::BucketName { name: name.chars().take(BUCKET_BYTES_MAX).collect() }),
    }
}

/// # Errors
/// `KeyLength` when no key is as long.
pub fn check_key(key: &str) -> Result<(), StoreError> {
    match key.len() {
        1..=KEY_BYTES_MAX => Ok(()),
        bytes => Err(StoreError::KeyLength { bytes }),
    }
}

fn join(lead: &[u8], key: &str) -> Result<Vec<u8>, StoreError> {
    check_key(key)?;
    Ok([lead, key.as_bytes()].concat())
}

/// The least key that is greater than every key that begins with `prefix`.
fn successor(prefix: &[u8]) -> Vec<u8> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX).expect("neither ids nor names are all 0xff");
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The id that is given after so many others.
    fn id(number: u64) -> BucketId {
        BucketId(BucketId::NONE.0 + number)
    }

    #[test]
    fn no_bucket_reaches_into_another() {
        let ids = [1, 2, 255, 256, 65_535, 65_536, 1 << 32, (1 << 40) - 1, 1 << 40, (40 << 40) - 1].map(id);
        for (bucket, other) in ids.iter().flat_map(|bucket| ids.map(|other| (*bucket, other))) {
            let (start, end) = listing(&bucket.encode(), "", None).unwrap().unwrap();
            for key in ["\0", "k", "\u{10ffff}"] {
                let held = (start.clone()..end.clone()).contains(&entry(other, key).unwrap());
                assert_eq!(held, bucket == other, "{bucket} {other} {key:?}");
            }
        }
        for other in ["ab", "a.", "a-b", "a0"] {
            let (start, end) = listing(&table("a").unwrap(), "", None).unwrap().unwrap();
            let stranger = record(other, "k").unwrap();
            assert!(!(start..end).contains(&stranger), "{other}");
        }
    }

    #[test]
    fn ids_sort_as_they_are_given_and_end_before_any_name() {
        let ids = [0, 1, 255, 256, 1 << 40, (41 << 40) - 1].map(id);
        assert!(ids.map(BucketId::encode).is_sorted());
        for id in ids {
            assert_eq!(BucketId::decode(id.encode()), Some(id));
            assert!(entry(id, "k").unwrap() < b"-\0k".to_vec());
            assert!(entry(id, "k").unwrap() > vec![3, 255]);
        }
        assert_eq!((ids[1].next(), ids[5].next()), (Some(id(2)), None));
        assert_eq!([[3, 255, 255, 255, 255, 255], [b'-', 0, 0, 0, 0, 0]].map(BucketId::decode), [None, None]);
    }

    #[test]
    fn a_listing_holds_its_prefix_and_what_comes_after() {
        let lead = id(7).encode();
        let (start, end) = listing(&lead, "k", Some("k1")).unwrap().unwrap();
        let held = |key: &str| (start.clone()..end.clone()).contains(&entry(id(7), key).unwrap());
        assert_eq!(
            [held("k1"), held("k1\0"), held("k2"), held("k\u{10ffff}"), held("l"), held("j")],
            [false, true, true, true, false, false]
        );
        assert_eq!(listing(&lead, "k", Some("l")).unwrap(), None);
        assert_eq!(listing(&lead, "k", Some("a")).unwrap(), listing(&lead, "k", None).unwrap());
    }

    #[test]
    fn what_is_kept_about_buckets_is_in_none_of_them() {
        let (start, end) = listing(&id(0).encode(), "", None).unwrap().unwrap();
        let expiry_of = |id, key| expiry(u64::MAX, &entry(id, key).unwrap());
        for kept in [name("0"), expiry_of(id(0), "k"), FORMAT.to_vec(), CLOCK.to_vec(), LAST_ID.to_vec()] {
            assert!(kept < start && kept < end, "{kept:?}");
        }
        assert_eq!(named(&name("a-b")), Some("a-b"));
        let key = entry(id(3), "k\0").unwrap();
        assert_eq!(expiring(&expiry(7, &key)), Some((7, &key[..])));
        assert_eq!(parts(&key), Some((id(3), 2)));
        assert_eq!(bucket_of(&key), id(3).encode());
        assert_eq!(of_record(&record("a", "k\0").unwrap()), Some(("a", "k\0")));
    }

    #[test]
    fn bounds_are_named() {
        assert_eq!(record("a", ""), Err(StoreError::KeyLength { bytes: 0 }));
        assert!(entry(id(1), &"k".repeat(1_024)).is_ok());
        assert_eq!(entry(id(1), &"k".repeat(1_025)), Err(StoreError::KeyLength { bytes: 1_025 }));
        for name in ["", "A", "a/b", "a\0", "ä", &"a".repeat(65)] {
            assert!(matches!(check_name(name), Err(StoreError::BucketName { .. })), "{name:?}");
        }
        assert!(check_name(&"a".repeat(64)).is_ok());
        assert!(check_name(&format!(".word.{}", "a".repeat(64))).is_ok());
        assert!(check_name(&format!(".{}", "a".repeat(80))).is_err());
    }
}
