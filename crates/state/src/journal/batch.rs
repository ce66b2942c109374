//! One batch of a journal, as the database writes it; all numbers low byte first.
//!
//! ```text
//! start  01 · items 4 · sequence number 8                         not covered by the checksum
//! item   02 · kind 1 · compression 1 · keyspace 8 · key length 2 · value length 4 · stored length 4 · key · value
//! clear  04 · keyspace 8                                          in place of an item
//! end    03 · checksum of all items (XXH3, 64 bits) 8 · "FJL" 03
//! ```
//! Batches follow one another. After the last one there are zeros, or nothing.

use std::fmt;
use xxhash_rust::xxh3::xxh3_64;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const START_BYTES: usize = 13;
const ITEM_BYTES: usize = 21;
const CLEAR_BYTES: usize = 9;
const END_BYTES: usize = 13;
const TRAILER: &[u8] = b"FJL\x03";
/// A value, a deletion, a deletion of what was written once.
const KIND_MAX: u8 = 2;

/// What the bytes at some place of a journal are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// A sound batch.
    Whole { bytes: usize, sequence: u64 },
    /// Nothing was written here: the bytes are at an end, or the first of them is zero.
    Nothing,
    /// A batch that goes on beyond the bytes given: it has at least so many.
    NeedsMore { bytes: usize },
    /// What the database never writes.
    Flawed(Flaw),
}

/// What is wrong with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    Tag(u8),
    Items { found: u32, announced: u32 },
    Item,
    Checksum,
    Trailer,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => write!(f, "a part that begins with {tag:#04x}"),
            Self::Items { found, announced } => write!(f, "a batch of {announced} items in which there are {found}"),
            Self::Item => f.write_str("an item of a kind or with lengths that are not written"),
            Self::Checksum => f.write_str("a batch with a wrong checksum"),
            Self::Trailer => f.write_str("a batch that does not end as it should"),
        }
    }
}

/// Looks at the batch that begins with `bytes`, and at nothing beyond it.
pub fn parse(bytes: &[u8]) -> Parsed {
    match bytes.first() {
        None | Some(0) => return Parsed::Nothing,
        Some(&START) => {}
        Some(&tag) => return Parsed::Flawed(Flaw::Tag(tag)),
    }
    if bytes.len() < START_BYTES {
        return Parsed::NeedsMore { bytes: START_BYTES + END_BYTES };
    }
    let (announced, sequence) = (u32_at(bytes, 1), u64_at(bytes, 5));
    let (mut at, mut found) = (START_BYTES, 0);
    loop {
        let rest = &bytes[at..];
        let needs = |more: usize| Parsed::NeedsMore { bytes: at.saturating_add(more) };
        let part = match rest.first() {
            None => return needs(END_BYTES),
            Some(&END) if found != announced => return Parsed::Flawed(Flaw::Items { found, announced }),
            Some(&END) if rest.len() < END_BYTES => return needs(END_BYTES),
            Some(&END) => return end(&bytes[START_BYTES..at], rest, at + END_BYTES, sequence),
            Some(&(ITEM | CLEAR)) if found == announced => {
                return Parsed::Flawed(Flaw::Items { found: found.saturating_add(1), announced });
            }
            Some(&ITEM) if rest.len() < ITEM_BYTES => return needs(ITEM_BYTES),
            Some(&ITEM) => {
                let [value, stored] = [u32_at(rest, 13), u32_at(rest, 17)];
                if rest[1] > KIND_MAX || rest[2] != 0 || value != stored {
                    return Parsed::Flawed(Flaw::Item);
                }
                ITEM_BYTES + usize::from(u16::from_le_bytes([rest[11], rest[12]])) + value as usize
            }
            Some(&CLEAR) => CLEAR_BYTES,
            Some(&tag) => return Parsed::Flawed(Flaw::Tag(tag)),
        };
        if rest.len() < part {
            return needs(part.saturating_add(END_BYTES));
        }
        at += part;
        found += 1;
    }
}

/// Calls `each` with every item of every sound batch in `bytes`: sequence number, part, kind (0 is a value), key and
/// value. Says where there is something that is no batch.
pub fn items(bytes: &[u8], mut each: impl FnMut(u64, u64, u8, &[u8], &[u8])) -> Vec<usize> {
    let (mut at, mut holes, mut in_hole) = (0, Vec::new(), false);
    while at < bytes.len() {
        match parse(&bytes[at..]) {
            Parsed::Whole { bytes: length, sequence } => {
                items_of(&bytes[at + START_BYTES..at + length - END_BYTES], sequence, &mut each);
                (at, in_hole) = (at + length, false);
                continue;
            }
            // Space that was made ahead.
            Parsed::Nothing if bytes[at..].iter().all(|byte| *byte == 0) => break,
            _ if !in_hole => holes.push(at),
            _ => {}
        }
        in_hole = true;
        // The next place where a batch may begin.
        let Some(next) = bytes[at + 1..].iter().position(|byte| *byte == START) else { break };
        at += 1 + next;
    }
    holes
}

fn items_of(mut rest: &[u8], sequence: u64, each: &mut impl FnMut(u64, u64, u8, &[u8], &[u8])) {
    while let Some(tag) = rest.first() {
        if *tag == CLEAR {
            rest = &rest[CLEAR_BYTES..];
            continue;
        }
        let (key, value) = (usize::from(u16::from_le_bytes([rest[11], rest[12]])), u32_at(rest, 13) as usize);
        let (key, value_end) = (ITEM_BYTES + key, ITEM_BYTES + key + value);
        each(sequence, u64_at(rest, 3), rest[1], &rest[ITEM_BYTES..key], &rest[key..value_end]);
        rest = &rest[value_end..];
    }
}

fn end(items: &[u8], end: &[u8], bytes: usize, sequence: u64) -> Parsed {
    if &end[9..END_BYTES] != TRAILER {
        Parsed::Flawed(Flaw::Trailer)
    } else if xxh3_64(items) != u64_at(end, 1) {
        Parsed::Flawed(Flaw::Checksum)
    } else {
        Parsed::Whole { bytes, sequence }
    }
}

/// The same bytes made sound as far as they look like batches: numbers of items, checksums and trailers are put right.
/// For fuzzing.
pub fn with_sound_checksums(bytes: &[u8]) -> Vec<u8> {
    let (mut sound, mut start) = (bytes.to_vec(), 0);
    loop {
        let (mut at, mut items) = (start + START_BYTES, 0_u32);
        if sound.len() < at {
            return sound;
        }
        sound[start] = START;
        while let Some(rest) = sound.get_mut(at..).filter(|rest| rest.len() >= ITEM_BYTES + END_BYTES) {
            // Every fourth byte value ends the batch.
            if rest[0] % 4 == 0 {
                break;
            }
            let room = rest.len() - ITEM_BYTES - END_BYTES;
            rest[0] = ITEM;
            rest[1] %= KIND_MAX + 1;
            rest[2] = 0;
            let key = usize::from(rest[11]).min(room);
            let value = usize::from(rest[13]).min(room - key);
            rest[11..13].copy_from_slice(&(key as u16).to_le_bytes());
            rest[13..17].copy_from_slice(&(value as u32).to_le_bytes());
            rest[17..21].copy_from_slice(&(value as u32).to_le_bytes());
            at += ITEM_BYTES + key + value;
            items += 1;
        }
        if sound.len() < at + END_BYTES {
            return sound;
        }
        sound[start + 1..start + 5].copy_from_slice(&items.to_le_bytes());
        let checksum = xxh3_64(&sound[start + START_BYTES..at]);
        sound[at] = END;
        sound[at + 1..at + 9].copy_from_slice(&checksum.to_le_bytes());
        sound[at + 9..at + END_BYTES].copy_from_slice(TRAILER);
        start = at + END_BYTES;
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A batch of items with these keys and values.
    pub fn written(sequence: u64, items: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut batch = vec![START];
        batch.extend((items.len() as u32).to_le_bytes());
        batch.extend(sequence.to_le_bytes());
        for (key, value) in items {
            batch.extend([ITEM, 0, 0]);
            batch.extend(1_u64.to_le_bytes());
            batch.extend((key.len() as u16).to_le_bytes());
            batch.extend([(value.len() as u32).to_le_bytes(); 2].concat());
            batch.extend([*key, *value].concat());
        }
        let checksum = xxh3_64(&batch[START_BYTES..]);
        batch.push(END);
        batch.extend(checksum.to_le_bytes());
        batch.extend(TRAILER);
        batch
    }

    #[test]
    fn a_batch_is_read_to_its_end_and_no_further() {
        let batch = written(7, &[(b"k", b"value"), (b"l", b"")]);
        let whole = Parsed::Whole { bytes: batch.len(), sequence: 7 };
        assert_eq!(parse(&batch), whole);
        assert_eq!(parse(&[&batch[..], &[0; 100]].concat()), whole);
        assert_eq!(parse(&[&batch[..], &[0xff; 100]].concat()), whole);
        assert_eq!((parse(&[]), parse(&[0, 1])), (Parsed::Nothing, Parsed::Nothing));
    }

    #[test]
    fn a_batch_cut_anywhere_asks_for_no_more_than_it_has() {
        let batch = written(7, &[(b"k", b"value"), (b"l", b"")]);
        for cut in 1..batch.len() {
            let Parsed::NeedsMore { bytes } = parse(&batch[..cut]) else { panic!("cut at {cut}") };
            assert!(cut < bytes && bytes <= batch.len(), "cut at {cut}: {bytes}");
        }
    }

    #[test]
    fn no_changed_bit_is_taken_for_the_same_batch() {
        let batch = written(7, &[(b"key", b"value"), (b"other", &[3; 40])]);
        for bit in 0..batch.len() * 8 {
            let mut changed = batch.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let parsed = parse(&changed);
            // The sequence number stands alone: who reads batches one after the other checks it.
            let is_sequence = (5..13).contains(&(bit / 8));
            assert_eq!(matches!(parsed, Parsed::Whole { .. }), is_sequence, "bit {bit}: {parsed:?}");
            assert_ne!(parsed, Parsed::Whole { bytes: batch.len(), sequence: 7 }, "bit {bit}");
        }
    }
}
