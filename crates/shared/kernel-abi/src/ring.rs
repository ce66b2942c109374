//! The log ring: lines gathered without an exit, taken out by the tender at the next one.
//!
//! One writer, one reader, never at once: whoever reads does so while the kernel waits for an answer. It is a plain run of
//! records that begins anew after each reading, so there is nothing to wrap around and little to lie about.
//!
//! ```text
//!   0..4 bytes used │ record: 0..4 length, 4..8 level, text, zeros to 4 │ record │ …
//! ```

/// Bytes before the first record.
pub const HEAD: usize = 4;
/// Bytes before the text of a record.
pub const RECORD_HEAD: usize = 8;

/// Levels as numbers, from the chattiest.
pub const LEVELS: [&str; 5] = ["trace", "debug", "info", "warn", "error"];

/// In the place of a level: bytes that were written to a stream of `wasi:cli`, not a line of the log.
pub const STDOUT: u32 = 5;
pub const STDERR: u32 = 6;

/// Writes a record behind the others; false if it does not fit.
#[must_use]
pub fn write(ring: &mut [u8], level: u32, text: &[u8]) -> bool {
    let used = used(ring);
    let Some(end) = text.len().checked_next_multiple_of(4).and_then(|bytes| used.checked_add(RECORD_HEAD + bytes))
    else {
        return false;
    };
    let (Ok(length), Ok(now_used)) = (u32::try_from(text.len()), u32::try_from(end)) else { return false };
    let Some(record) = ring.get_mut(used..end) else { return false };
    record[..4].copy_from_slice(&length.to_le_bytes());
    record[4..8].copy_from_slice(&level.to_le_bytes());
    record[RECORD_HEAD..RECORD_HEAD + text.len()].copy_from_slice(text);
    ring[..HEAD].copy_from_slice(&now_used.to_le_bytes());
    true
}

/// The text that fits into an empty ring.
pub const fn text_max(ring_bytes: usize) -> usize {
    ring_bytes.saturating_sub(HEAD + RECORD_HEAD + 4)
}

/// Empties it.
pub fn clear(ring: &mut [u8]) {
    if let Some(head) = ring.get_mut(..HEAD) {
        head.fill(0);
    }
}

/// The records, as far as they make sense: whoever wrote them is not trusted.
pub fn records(ring: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut rest = ring.get(HEAD..used(ring)).unwrap_or_default();
    core::iter::from_fn(move || {
        let length = usize::try_from(word(rest, 0)?).ok()?;
        let level = word(rest, 4)?;
        let text = rest.get(RECORD_HEAD..RECORD_HEAD.checked_add(length)?)?;
        rest = rest.get(RECORD_HEAD + length.checked_next_multiple_of(4)?..).unwrap_or_default();
        Some((level, text))
    })
}

fn used(ring: &[u8]) -> usize {
    let used = word(ring, 0).and_then(|used| usize::try_from(used).ok()).unwrap_or(HEAD);
    used.clamp(HEAD, ring.len().max(HEAD))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    fn read(ring: &[u8]) -> Vec<(u32, Vec<u8>)> {
        records(ring).map(|(level, text)| (level, text.to_vec())).collect()
    }

    #[test]
    fn what_is_written_is_read_in_order_until_it_is_cleared() {
        let mut ring = [0; 64];
        assert!(write(&mut ring, 2, b"one") && write(&mut ring, 4, b"") && write(&mut ring, 3, b"three"));
        assert_eq!(read(&ring), [(2, b"one".to_vec()), (4, b"".to_vec()), (3, b"three".to_vec())]);
        assert!(!write(&mut ring, 2, &[b'x'; 40]), "no room");
        clear(&mut ring);
        assert!(read(&ring).is_empty());
        assert!(write(&mut ring, 2, &[b'x'; text_max(64)]));
    }

    #[test]
    fn lies_end_the_reading() {
        let mut ring = [0xff; 64];
        assert!(read(&ring).is_empty());
        ring[..4].copy_from_slice(&60_u32.to_le_bytes());
        assert!(read(&ring).is_empty());
        ring[4..8].copy_from_slice(&4_u32.to_le_bytes());
        assert_eq!(read(&ring).len(), 1);
        assert!(read(&[]).is_empty() && read(&[1, 2]).is_empty());
        assert!(!write(&mut [], 0, b"x"));
    }
}
