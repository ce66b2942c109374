//! How a bucket and a key become one key of the database, and what their bounds are.
//!
//! ```text
//! bucket "a", key "k"   ->  61 00 6b          A bucket's name has no zero byte, so no bucket's keys
//! bucket "ab", key "k"  ->  61 62 00 6b       begin with those of another, whatever the names.
//!
//! 01 · bucket                       what the bucket holds     Beside them, what is kept about buckets: no name
//! 02 · own time, 8 bytes · key      when a key expires        begins with such a byte.
//! 03 · word                         about all of it
//! ```

use crate::error::StoreError;

/// Longest name of a bucket, in bytes.
pub const BUCKET_BYTES_MAX: usize = 64;
/// Longest name of one of the node's own, which begin with a dot: a word, and the name of what it belongs to.
const OWN_BYTES_MAX: usize = 80;
/// Longest key, in bytes. A key has at least one.
pub const KEY_BYTES_MAX: usize = 1_024;
/// Largest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

const COUNTS: u8 = 1;
const EXPIRY: u8 = 2;
/// Under which format all this is written: [`FORMAT_VALUE`].
pub const FORMAT: &[u8] = b"\x03format";
pub const FORMAT_VALUE: &[u8] = b"1";
/// The state's own time, as [`crate::clock::Moment`].
pub const CLOCK: &[u8] = b"\x03clock";

/// Half-open: from the first key up to, but not including, the second.
pub type KeyRange = (Vec<u8>, Vec<u8>);

/// The database's key for `key` in `bucket`.
pub fn encode(bucket: &str, key: &str) -> Result<Vec<u8>, StoreError> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(StoreError::KeyLength { bytes: key.len() });
    }
    join(bucket, key)
}

/// The range of keys in `bucket` that begin with `prefix` and come after `after`; none when there can be no such key.
pub fn listing(bucket: &str, prefix: &str, after: Option<&str>) -> Result<Option<KeyRange>, StoreError> {
    for part in [Some(prefix), after].into_iter().flatten() {
        if part.len() > KEY_BYTES_MAX {
            return Err(StoreError::KeyLength { bytes: part.len() });
        }
    }
    let first = join(bucket, prefix)?;
    let end = successor(&first);
    let start = match after {
        // The least key after another is that key with a zero byte at its end.
        Some(after) => first.max(just_after(&join(bucket, after)?)),
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

/// The database's key for what `bucket` holds.
pub fn counts(bucket: &str) -> Vec<u8> {
    [&[COUNTS], bucket.as_bytes()].concat()
}

/// The bucket of a key that [`counts`] made.
pub fn counted(encoded: &[u8]) -> Option<&str> {
    std::str::from_utf8(encoded.strip_prefix(&[COUNTS])?).ok()
}

/// All keys that [`counts`] makes.
pub fn all_counts() -> KeyRange {
    (vec![COUNTS], vec![COUNTS + 1])
}

/// The database's key for the note that `encoded` expires at `at_ms`.
pub fn expiry(at_ms: u64, encoded: &[u8]) -> Vec<u8> {
    [&[EXPIRY], &at_ms.to_be_bytes()[..], encoded].concat()
}

/// When which key expires, from a key that [`expiry`] made.
pub fn expiring(note: &[u8]) -> Option<(u64, &[u8])> {
    let (at, encoded) = note.strip_prefix(&[EXPIRY])?.split_first_chunk()?;
    Some((u64::from_be_bytes(*at), encoded))
}

/// Notes of what expires from `from_ms` on.
pub fn expiries_from(from_ms: u64) -> KeyRange {
    (expiry(from_ms, &[]), vec![EXPIRY + 1])
}

/// The bucket of a key that [`encode`] made, and how many bytes of it the user gave.
pub fn parts(encoded: &[u8]) -> Option<(&str, usize)> {
    let end = encoded.iter().position(|byte| *byte == 0)?;
    Some((std::str::from_utf8(&encoded[..end]).ok()?, encoded.len() - end - 1))
}

/// What all keys of the bucket begin with that [`encode`] made this one for, and no others.
pub fn bucket_of(encoded: &[u8]) -> &[u8] {
    let end = encoded.iter().position(|byte| *byte == 0).map_or(encoded.len(), |end| end + 1);
    &encoded[..end]
}

/// The part of a database key that the user gave; none if the database holds something we never wrote.
pub fn decode<'a>(bucket: &str, encoded: &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(encoded.get(bucket.len() + 1..)?).ok()
}

/// Whether a bucket, a table of records or a queue may be named so.
pub fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    let bytes_max = if name.starts_with('.') { OWN_BYTES_MAX } else { BUCKET_BYTES_MAX };
    !name.is_empty() && name.len() <= bytes_max && name.bytes().all(allowed)
}

fn join(bucket: &str, key: &str) -> Result<Vec<u8>, StoreError> {
    if !is_name(bucket) {
        return Err(StoreError::BucketName { name: bucket.chars().take(BUCKET_BYTES_MAX).collect() });
    }
    let mut encoded = Vec::with_capacity(bucket.len() + 1 + key.len());
    encoded.extend_from_slice(bucket.as_bytes());
    encoded.push(0);
    encoded.extend_from_slice(key.as_bytes());
    Ok(encoded)
}

/// The least key that is greater than every key that begins with `prefix`.
fn successor(prefix: &[u8]) -> Vec<u8> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX).expect("a bucket's name never ends in 0xff");
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bucket_reaches_into_another() {
        for other in ["ab", "a.", "a-b", "a0"] {
            let (start, end) = listing("a", "", None).unwrap().unwrap();
            let stranger = encode(other, "k").unwrap();
            assert!(!(start..end).contains(&stranger), "{other}");
        }
        let (start, end) = listing("a", "", None).unwrap().unwrap();
        assert!((start..end).contains(&encode("a", "\u{10ffff}").unwrap()));
    }

    #[test]
    fn a_listing_holds_its_prefix_and_what_comes_after() {
        let (start, end) = listing("a", "k", Some("k1")).unwrap().unwrap();
        let held = |key: &str| (start.clone()..end.clone()).contains(&encode("a", key).unwrap());
        assert_eq!(
            [held("k1"), held("k1\0"), held("k2"), held("k\u{10ffff}"), held("l"), held("j")],
            [false, true, true, true, false, false]
        );
        assert_eq!(listing("a", "k", Some("l")).unwrap(), None);
        assert_eq!(listing("a", "k", Some("a")).unwrap(), listing("a", "k", None).unwrap());
    }

    #[test]
    fn what_is_kept_about_buckets_is_in_none_of_them() {
        let (start, end) = listing("0", "", None).unwrap().unwrap();
        for kept in [counts("0"), expiry(u64::MAX, &encode("0", "k").unwrap()), FORMAT.to_vec(), CLOCK.to_vec()] {
            assert!(kept < start && kept < end, "{kept:?}");
        }
        assert_eq!(counted(&counts("a-b")), Some("a-b"));
        let key = encode("a", "k\0").unwrap();
        assert_eq!(expiring(&expiry(7, &key)), Some((7, &key[..])));
        assert_eq!(parts(&key), Some(("a", 2)));
    }

    #[test]
    fn bounds_are_named() {
        assert_eq!(encode("a", ""), Err(StoreError::KeyLength { bytes: 0 }));
        assert!(encode("a", &"k".repeat(1_024)).is_ok());
        assert_eq!(encode("a", &"k".repeat(1_025)), Err(StoreError::KeyLength { bytes: 1_025 }));
        for name in ["", "A", "a/b", "a\0", "ä", &"a".repeat(65)] {
            assert!(matches!(encode(name, "k"), Err(StoreError::BucketName { .. })), "{name:?}");
        }
        assert!(encode(&"a".repeat(64), "k").is_ok());
        assert!(encode(&format!(".word.{}", "a".repeat(64)), "k").is_ok());
        assert!(encode(&format!(".{}", "a".repeat(80)), "k").is_err());
    }
}
