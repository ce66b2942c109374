//! Where a queue keeps what, and its numbers as one small record.
//!
//! ```text
//! 00                          last id given to a queue
//! 00 NAME                     numbers of the queue: its id, how many events, where they begin and end
//! ID r SEQUENCE               ready events, in order           ID and SEQUENCE are a length and as few bytes as
//! ID d DUE SEQUENCE           delayed ones, by time            hold the number, so that they sort as numbers do:
//! ID x SEQUENCE               dead letters, in order of death  a key has some seven bytes.
//! ID i HASH                   event ids that are remembered, and until when
//! ```

use super::Part;
use super::varint::{self, Reader};
use fjall::Slice;

pub const LAST_ID: &[u8] = &[0];

const READY: u8 = b'r';
const DELAYED: u8 = b'd';
const DEAD: u8 = b'x';
const IDS: u8 = b'i';

/// Source and id of an event.
pub type IdHash = [u8; 16];

pub fn numbers(name: &str) -> Slice {
    [LAST_ID, name.as_bytes()].concat().into()
}

/// The name in a key of [`numbers`].
pub fn name_of(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.strip_prefix(LAST_ID)?).ok().filter(|name| !name.is_empty())
}

/// Makes keys without taking memory for each.
struct Builder {
    bytes: [u8; 40],
    length: usize,
}

impl Builder {
    fn part(id: u32, part: u8) -> Self {
        let mut builder = Self { bytes: [0; 40], length: 0 };
        builder.number(u64::from(id));
        builder.put(&[part]);
        builder
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    fn number(&mut self, number: u64) {
        let bytes = number.to_be_bytes();
        let zeros = (number.leading_zeros() / 8) as usize;
        self.put(&[(8 - zeros) as u8]);
        self.put(&bytes[zeros..]);
    }

    fn finish(self) -> Slice {
        Slice::from(&self.bytes[..self.length])
    }
}

fn with_number(id: u32, part: u8, number: u64) -> Slice {
    let mut builder = Builder::part(id, part);
    builder.number(number);
    builder.finish()
}

/// Greater than all keys of a part.
fn end(id: u32, part: u8) -> Slice {
    Builder::part(id, part + 1).finish()
}

pub fn ready(id: u32, sequence: u64) -> Slice {
    with_number(id, READY, sequence)
}

pub fn ready_end(id: u32) -> Slice {
    end(id, READY)
}

pub fn dead(id: u32, sequence: u64) -> Slice {
    with_number(id, DEAD, sequence)
}

pub fn dead_end(id: u32) -> Slice {
    end(id, DEAD)
}

pub fn delayed(id: u32, due: u64, sequence: u64) -> Slice {
    let mut builder = Builder::part(id, DELAYED);
    builder.number(due);
    builder.number(sequence);
    builder.finish()
}

pub fn delayed_end(id: u32) -> Slice {
    end(id, DELAYED)
}

pub fn id_hash(id: u32, hash: &IdHash) -> Slice {
    let mut builder = Builder::part(id, IDS);
    builder.put(hash);
    builder.finish()
}

pub fn id_hash_end(id: u32) -> Slice {
    end(id, IDS)
}

/// A number as [`Builder::number`] put it.
fn number(reader: &mut Reader<'_>) -> Option<u64> {
    let length = reader.byte().filter(|length| *length <= 8)?;
    let mut number = 0;
    for _ in 0..length {
        number = number << 8 | u64::from(reader.byte()?);
    }
    Some(number)
}

/// The numbers at the end of a key: one, or two of a delayed event.
fn tail<const COUNT: usize>(key: &[u8]) -> Option<[u64; COUNT]> {
    let mut reader = Reader(key);
    let (_id, _part) = (number(&mut reader)?, reader.byte()?);
    let mut numbers = [0; COUNT];
    for place in &mut numbers {
        *place = number(&mut reader)?;
    }
    reader.0.is_empty().then_some(numbers)
}

/// Of a ready event or a dead letter.
pub fn sequence_of(key: &[u8]) -> Option<u64> {
    tail::<1>(key).map(|[sequence]| sequence)
}

/// The id of its queue, and in which part of it an event is.
pub fn place_of(key: &[u8]) -> Option<(u32, Part)> {
    let mut reader = Reader(key);
    let id = u32::try_from(number(&mut reader)?).ok()?;
    let part = match reader.byte()? {
        READY => Part::Ready,
        DELAYED => Part::Delayed,
        DEAD => Part::Dead,
        _ => return None,
    };
    Some((id, part))
}

/// When a delayed event is due, and its sequence.
pub fn due_of(key: &[u8]) -> Option<(u64, u64)> {
    tail::<2>(key).map(|[due, sequence]| (due, sequence))
}

pub fn id_hash_of(key: &[u8]) -> Option<IdHash> {
    key.last_chunk().copied().filter(|_| key.len() > 16)
}

/// The numbers of a queue: written in every batch that changes it, so that opening reads nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Numbers {
    pub id: u32,
    /// The next sequence number.
    pub tail: u64,
    /// No ready event has a lower one.
    pub head: u64,
    /// No dead letter has a lower one.
    pub dead_head: u64,
    /// No delayed event is due earlier.
    pub due_floor: u64,
    pub ready: u64,
    pub ready_bytes: u64,
    pub delayed: u64,
    pub delayed_bytes: u64,
    pub dead: u64,
    pub dead_bytes: u64,
    pub ids: u64,
    /// The queue's own time, which never goes back.
    pub time: u64,
}

const NUMBERS_VERSION: u8 = 1;

impl Numbers {
    fn fields(&mut self) -> [&mut u64; 12] {
        let Self {
            id: _,
            tail,
            head,
            dead_head,
            due_floor,
            ready,
            ready_bytes,
            delayed,
            delayed_bytes,
            dead,
            dead_bytes,
            ids,
            time,
        } = self;
        [tail, head, dead_head, due_floor, ready, ready_bytes, delayed, delayed_bytes, dead, dead_bytes, ids, time]
    }

    pub fn encode(&self) -> Slice {
        let mut out = Vec::with_capacity(48);
        out.push(NUMBERS_VERSION);
        varint::put(&mut out, u64::from(self.id));
        for field in self.clone().fields() {
            varint::put(&mut out, *field);
        }
        out.into()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if reader.byte()? != NUMBERS_VERSION {
            return None;
        }
        let mut numbers = Self { id: u32::try_from(reader.number()?).ok()?, ..Self::default() };
        for field in numbers.fields() {
            *field = reader.number()?;
        }
        reader.0.is_empty().then_some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_numbers_do_and_parts_never_mix() {
        let numbers = [0, 1, 255, 256, 65_535, 65_536, 1 << 32, u64::MAX];
        let ids = [1, 255, 256, u32::MAX];
        let mut keys = Vec::new();
        for id in ids {
            keys.extend(numbers.iter().flat_map(|due| numbers.map(|sequence| delayed(id, *due, sequence))));
            keys.push(delayed_end(id));
            keys.push(id_hash(id, &[0; 16]));
            keys.push(id_hash(id, &[255; 16]));
            keys.push(id_hash_end(id));
            keys.extend(numbers.map(|sequence| ready(id, sequence)));
            keys.push(ready_end(id));
            keys.extend(numbers.map(|sequence| dead(id, sequence)));
            keys.push(dead_end(id));
        }
        assert!(keys.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn keys_are_read_back() {
        for id in [1, 300] {
            for number in [0, 7, 70_000, u64::MAX] {
                assert_eq!(sequence_of(&ready(id, number)), Some(number));
                assert_eq!(sequence_of(&dead(id, number)), Some(number));
                assert_eq!(due_of(&delayed(id, number, 9)), Some((number, 9)));
            }
            assert_eq!(id_hash_of(&id_hash(id, &[7; 16])), Some([7; 16]));
        }
        assert_eq!(name_of(&numbers("a")), Some("a"));
        for bytes in [&b""[..], &[9; 30], &[1, 1, b'r', 8], &[1, 1, b'r', 1, 1, 1]] {
            assert_eq!(sequence_of(bytes), None);
        }
    }

    #[test]
    fn the_numbers_of_a_queue_come_back() {
        let numbers = Numbers { id: 3, tail: 1 << 40, ready: 5, due_floor: u64::MAX, time: 77, ..Numbers::default() };
        assert_eq!(Numbers::decode(&numbers.encode()), Some(numbers.clone()));
        assert_eq!(Numbers::decode(&numbers.encode()[..5]), None);
    }
}
