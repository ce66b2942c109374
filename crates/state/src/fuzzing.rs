//! What the state reads from its disk, for the fuzz targets: any bytes are refused, or read as what was written.

use crate::journal::{batch, mark};
use crate::queue::{keys::Numbers, record};
use crate::{envelope, keys, ledger::BucketCounts, names::Holding};

/// Reads `bytes` as a journal, batch by batch. Says how many are sound.
pub fn journal(bytes: &[u8]) -> usize {
    let (mut at, mut sound) = (0, 0);
    loop {
        let rest = &bytes[at..];
        match batch::parse(rest) {
            whole @ batch::Parsed::Whole { bytes, .. } => {
                assert_eq!(batch::parse(&rest[..bytes]), whole, "what comes after a batch does not matter");
                let cut = batch::parse(&rest[..bytes - 1]);
                assert!(matches!(cut, batch::Parsed::NeedsMore { bytes: needed } if needed <= bytes), "{cut:?}");
                (at, sound) = (at + bytes, sound + 1);
            }
            batch::Parsed::NeedsMore { bytes: needed } => {
                assert!(needed > rest.len(), "it has {} bytes and asks for {needed}", rest.len());
                return sound;
            }
            batch::Parsed::Nothing | batch::Parsed::Flawed(_) => return sound,
        }
    }
}

/// The same bytes with sound checksums and lengths, as far as they go: chance alone never gets past them.
pub fn journal_with_sound_checksums(bytes: &[u8]) -> Vec<u8> {
    batch::with_sound_checksums(bytes)
}

/// Reads `bytes` as a mark of what is synced.
pub fn mark(bytes: &[u8]) {
    let mut slot = [0; 512];
    let length = bytes.len().min(slot.len());
    slot[..length].copy_from_slice(&bytes[..length]);
    let _ = mark::decode(&slot);
    mark::seal(&mut slot);
    if let Some(mark) = mark::decode(&slot) {
        assert!(mark.journals.len() <= mark::JOURNALS_MAX);
    }
}

/// Reads `bytes` as each kind of thing that is stored in the database.
pub fn stored(bytes: &[u8]) {
    if let Some((head, event)) = record::decode(bytes) {
        let again = record::decode(&record::encode(&head, &event)).expect("what was written can be read");
        assert_eq!((again.0.pushed_ms, again.1), (head.pushed_ms, event));
    }
    if let Some(numbers) = Numbers::decode(bytes) {
        assert_eq!(Numbers::decode(&numbers.encode()), Some(numbers));
    }
    if let Ok((header, value)) = envelope::open(bytes) {
        assert_eq!(envelope::seal(value, header.expires_ms), bytes);
    }
    if let Some(counts) = BucketCounts::decode(bytes) {
        assert_eq!(counts.encode(), bytes);
    }
    if let Some((at, encoded)) = keys::expiring(bytes) {
        assert_eq!(keys::expiry(at, encoded), bytes);
    }
    if let Some(holding) = Holding::decode(bytes) {
        assert_eq!(holding.encode(), bytes);
    }
    if let Some((bucket, key_bytes)) = keys::parts(bytes) {
        assert_eq!([keys::bucket_of(bytes), &bytes[bytes.len() - key_bytes..]].concat(), bytes);
        assert_eq!(bucket.encode(), keys::bucket_of(bytes));
    }
    if let Some((table, key)) = keys::of_record(bytes) {
        assert_eq!([table, key].join("\0").as_bytes(), bytes);
    }
}
