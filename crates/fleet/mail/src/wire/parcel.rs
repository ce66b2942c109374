//! A parcel: letters of one stream that follow each other, and where they stand in it.

use super::{Kind, MESSAGE_BYTES_MAX, WireError, begin, seal};
use crate::bytes::{Reader, put_mark, put_short};
use crate::{Chain, Household, LETTER_BYTES_MAX, Mark};

/// Letters of one parcel; what is more goes into the next one.
pub const LETTERS_MAX: usize = 1_024;

/// Letters of one household to another. Without letters it asks how far the receiver is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel<'a> {
    pub from: Household,
    pub to: Household,
    /// The epoch of the sending household's home.
    pub epoch: u64,
    /// Counts the histories of the stream. A sender that was restored from a backup begins another one.
    pub incarnation: u64,
    /// The number at which this incarnation began.
    pub begun: u64,
    /// Counts what the sender has sent in this life; the receipt names it.
    pub serial: u64,
    /// Up to here the sender has been told that its letters are durable, or the incarnation began here. It has no
    /// letter up to here any more.
    pub base: Mark,
    /// The place just before the first letter.
    pub before: Mark,
    /// Each letter with the place it stands at.
    pub letters: Vec<(&'a [u8], Mark)>,
}

impl<'a> Parcel<'a> {
    /// Adds the letter that follows. Whether there was room.
    pub fn add(&mut self, letter: &'a [u8], mark: Mark) -> bool {
        let has_room = self.letters.len() < LETTERS_MAX;
        if has_room {
            self.letters.push((letter, mark));
        }
        has_room
    }

    /// The place after the last letter.
    pub fn after(&self) -> Mark {
        self.letters.last().map_or(self.before, |(_, mark)| *mark)
    }

    /// The bytes of this parcel. A programmer keeps to the bounds of letters and of the parcel.
    pub fn write(&self) -> Vec<u8> {
        let letters_bytes: usize = self.letters.iter().map(|(letter, _)| 4 + letter.len()).sum();
        let mut out = begin(Kind::Parcel, 256 + letters_bytes);
        for number in [self.epoch, self.incarnation, self.begun, self.serial] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put_mark(&mut out, &self.base);
        put_mark(&mut out, &self.before);
        out.extend_from_slice(&self.after().chain.0);
        out.extend_from_slice(&(self.letters.len() as u32).to_le_bytes());
        put_short(&mut out, self.from.as_str().as_bytes());
        put_short(&mut out, self.to.as_str().as_bytes());
        let head_bytes = out.len();
        for (letter, _) in &self.letters {
            out.extend_from_slice(&(letter.len() as u32).to_le_bytes());
            out.extend_from_slice(letter);
        }
        assert!(seal(&mut out, head_bytes) && out.len() <= MESSAGE_BYTES_MAX, "a parcel of {} bytes", out.len());
        out
    }
}

pub fn read<'a>(head: &[u8], letters: &'a [u8]) -> Result<Parcel<'a>, WireError> {
    let (mut parcel, after, count) = head_of(head).ok_or(WireError::Head)?;
    let is_ordered = parcel.begun <= parcel.base.number && parcel.base.number <= parcel.before.number;
    if !is_ordered || count > LETTERS_MAX {
        return Err(WireError::Head);
    }
    let mut reader = Reader(letters);
    // Each letter has a length, so a count that promises more than is there makes no room for it.
    parcel.letters.reserve(count.min(letters.len() / 4));
    for _ in 0..count {
        let bytes = reader.u32().filter(|bytes| *bytes as usize <= LETTER_BYTES_MAX).ok_or(WireError::Letters)?;
        let letter = reader.take(bytes as usize).ok_or(WireError::Letters)?;
        let mark = parcel.after().then(letter).ok_or(WireError::Letters)?;
        parcel.letters.push((letter, mark));
    }
    if reader.0.is_empty() && parcel.after().chain == after { Ok(parcel) } else { Err(WireError::Letters) }
}

/// All but the letters; the chain after them, and how many there are.
fn head_of<'a>(head: &[u8]) -> Option<(Parcel<'a>, Chain, usize)> {
    let mut reader = Reader(head);
    let [epoch, incarnation, begun, serial] = [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?];
    let (base, before, after) = (reader.mark()?, reader.mark()?, reader.chain()?);
    let count = reader.u32()? as usize;
    let (from, to) = (reader.household()?, reader.household()?);
    let is_read = reader.0.is_empty() && incarnation > 0 && from != to;
    let parcel = Parcel { from, to, epoch, incarnation, begun, serial, base, before, letters: Vec::new() };
    is_read.then_some((parcel, after, count))
}

/// Where the chain after the last letter stands.
#[cfg(any(test, fuzzing))]
pub const AFTER: std::ops::Range<usize> = 96..112;

/// The chain after as many letters as can be read.
#[cfg(any(test, fuzzing))]
pub fn chain_after(message: &[u8], head_bytes: usize) -> Chain {
    let mut chain = Chain(std::array::from_fn(|at| message[AFTER.start - Chain::BYTES + at]));
    let mut reader = Reader(message.get(head_bytes..).unwrap_or_default());
    while let Some(letter) = reader.u32().and_then(|bytes| reader.take(bytes as usize)) {
        chain = chain.then(letter);
    }
    chain
}
