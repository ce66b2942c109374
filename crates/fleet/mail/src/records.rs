//! What outbox and inbox keep in the state of their household: records as keys and values.
//!
//! | record | key | value |
//! |---|---|---|
//! | a stream of the outbox | `1`, receiver | version, incarnation, where it began, what is confirmed, what is last |
//! | a letter of the outbox | `2`, receiver behind its length, number (big-endian) | version, place in the stream, letter |
//! | a sender of the inbox | `3`, sender | version, epoch, incarnation, the last letter taken |
//!
//! The node that keeps them puts a prefix of the household before the keys. They move with the household.

use crate::bytes::{Reader, put_mark, put_short};
use crate::{Household, Mark};
use std::fmt;

const VERSION: u8 = 1;

const STREAM: u8 = 1;
const LETTER: u8 = 2;
const SENDER: u8 = 3;

/// One record to write in a transaction, or to delete if there is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// Where committed records are read. Called once for each letter that is sent or confirmed.
pub trait Records {
    /// The value of `key`: none if there is no such record, or if it cannot be read now.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
}

/// A record that we did not write, or that was damaged since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    pub key: Vec<u8>,
}

/// A place in a stream, with the bytes of all letters up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    pub mark: Mark,
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamRecord {
    pub incarnation: u64,
    pub begun: u64,
    pub confirmed: Point,
    pub last: Point,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderRecord {
    pub epoch: u64,
    pub incarnation: u64,
    pub taken: Mark,
}

/// What the keys begin with of the records that [`crate::Outbox::open`] wants.
pub const OUTBOX_KEYS: &[u8] = &[STREAM];
/// The same of those that [`crate::Inbox::open`] wants.
pub const INBOX_KEYS: &[u8] = &[SENDER];

/// Whether this is the key of a record that [`crate::Outbox::open`] wants. Letters are read one by one, later.
pub fn is_outbox(key: &[u8]) -> bool {
    key.first() == Some(&STREAM)
}

/// Whether this is the key of a record that [`crate::Inbox::open`] wants.
pub fn is_inbox(key: &[u8]) -> bool {
    key.first() == Some(&SENDER)
}

pub fn letter_key(to: &Household, number: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(2 + to.as_str().len() + 8);
    key.push(LETTER);
    put_short(&mut key, to.as_str().as_bytes());
    // So that letters lie in their order.
    key.extend_from_slice(&number.to_be_bytes());
    key
}

fn named(kind: u8, name: &Household) -> Vec<u8> {
    [&[kind], name.as_str().as_bytes()].concat()
}

fn name_of(kind: u8, key: &[u8]) -> Option<Household> {
    Household::read(key.strip_prefix(&[kind])?)
}

fn put_point(out: &mut Vec<u8>, point: &Point) {
    put_mark(out, &point.mark);
    out.extend_from_slice(&point.bytes.to_le_bytes());
}

fn point(reader: &mut Reader<'_>) -> Option<Point> {
    Some(Point { mark: reader.mark()?, bytes: reader.u64()? })
}

fn begin(value: &[u8]) -> Option<Reader<'_>> {
    let mut reader = Reader(value);
    (reader.u8()? == VERSION).then_some(reader)
}

impl StreamRecord {
    pub fn write(&self, to: &Household) -> Write {
        let mut value = vec![VERSION];
        value.extend_from_slice(&self.incarnation.to_le_bytes());
        value.extend_from_slice(&self.begun.to_le_bytes());
        put_point(&mut value, &self.confirmed);
        put_point(&mut value, &self.last);
        Write { key: named(STREAM, to), value: Some(value) }
    }

    pub fn read(key: &[u8], value: &[u8]) -> Result<(Household, Self), Unreadable> {
        let record = || {
            let mut reader = begin(value)?;
            let (incarnation, begun) = (reader.u64()?, reader.u64()?);
            let (confirmed, last) = (point(&mut reader)?, point(&mut reader)?);
            let is_ordered = begun <= confirmed.mark.number
                && confirmed.mark.number <= last.mark.number
                && confirmed.bytes <= last.bytes;
            let is_sound = reader.0.is_empty() && is_ordered && incarnation > 0;
            is_sound.then_some((name_of(STREAM, key)?, Self { incarnation, begun, confirmed, last }))
        };
        record().ok_or_else(|| Unreadable { key: key.to_owned() })
    }
}

/// A letter of the outbox: `point` is the place after it.
pub fn write_letter(to: &Household, point: &Point, letter: &[u8]) -> Write {
    let mut value = Vec::with_capacity(1 + 32 + letter.len());
    value.push(VERSION);
    put_point(&mut value, point);
    value.extend_from_slice(letter);
    Write { key: letter_key(to, point.mark.number), value: Some(value) }
}

pub fn read_letter(value: &[u8]) -> Option<(Point, &[u8])> {
    let mut reader = begin(value)?;
    Some((point(&mut reader)?, reader.0))
}

impl SenderRecord {
    pub fn write(&self, from: &Household) -> Write {
        let mut value = vec![VERSION];
        value.extend_from_slice(&self.epoch.to_le_bytes());
        value.extend_from_slice(&self.incarnation.to_le_bytes());
        put_mark(&mut value, &self.taken);
        Write { key: named(SENDER, from), value: Some(value) }
    }

    pub fn read(key: &[u8], value: &[u8]) -> Result<(Household, Self), Unreadable> {
        let record = || {
            let mut reader = begin(value)?;
            let (epoch, incarnation, taken) = (reader.u64()?, reader.u64()?, reader.mark()?);
            let is_sound = reader.0.is_empty() && incarnation > 0;
            is_sound.then_some((name_of(SENDER, key)?, Self { epoch, incarnation, taken }))
        };
        record().ok_or_else(|| Unreadable { key: key.to_owned() })
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the record {} is not one that mail wrote", self.key.escape_ascii())
    }
}

impl std::error::Error for Unreadable {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Chain;

    fn point_at(number: u64) -> Point {
        Point { mark: Mark { number, chain: Chain([number as u8; 16]) }, bytes: number * 10 }
    }

    #[test]
    fn records_are_read_as_they_were_written_and_nothing_else_is() {
        let name = Household::new("meters").expect("it is a name");
        let stream = StreamRecord { incarnation: 2, begun: 3, confirmed: point_at(4), last: point_at(7) };
        let sender = SenderRecord { epoch: 1, incarnation: 2, taken: point_at(9).mark };
        let (a, b) = (stream.write(&name), sender.write(&name));
        let (stream_value, sender_value) = (a.value.expect("written"), b.value.expect("written"));
        assert!(is_outbox(&a.key) && is_inbox(&b.key) && !is_outbox(&b.key) && !is_inbox(&a.key));
        assert_eq!(StreamRecord::read(&a.key, &stream_value), Ok((name.clone(), stream)));
        assert_eq!(SenderRecord::read(&b.key, &sender_value), Ok((name.clone(), sender)));
        for cut in 0..stream_value.len() {
            assert!(StreamRecord::read(&a.key, &stream_value[..cut]).is_err());
        }
        for cut in 0..sender_value.len() {
            assert!(SenderRecord::read(&b.key, &sender_value[..cut]).is_err());
        }
        let letter = write_letter(&name, &point_at(5), b"letter");
        assert_eq!(letter.key, letter_key(&name, 5));
        assert_eq!(read_letter(&letter.value.expect("written")), Some((point_at(5), &b"letter"[..])));
    }

    #[test]
    fn letters_lie_in_the_order_of_their_numbers() {
        let name = Household::new("a").expect("it is a name");
        let keys: Vec<_> = [1, 255, 256, 65_536, u64::MAX].map(|number| letter_key(&name, number)).into();
        assert!(keys.is_sorted());
    }
}
