//! A receipt: how far a receiver has the letters of one sender on its disk, and what it wants next.

use super::{Kind, begin, seal};
use crate::bytes::{Reader, put_mark, put_short};
use crate::{Household, Mark};

/// What became of the parcel that a receipt answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// All of it is here, now or since before.
    Taken = 1,
    /// Letters before it are missing: they are to be sent from [`Receipt::expects`] on.
    Gap = 2,
    /// The queue of the letter [`Receipt::expects`] is full, or the receiver has no room for another sender.
    Full = 3,
    /// The sending household has had another home since.
    Over = 4,
    /// The receiver does not know yet that the sending household has this home.
    Unknown = 5,
}

impl Verdict {
    const ALL: [Self; 5] = [Self::Taken, Self::Gap, Self::Full, Self::Over, Self::Unknown];
}

/// What a receiving household says to a sending one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The receiving household, which writes this.
    pub from: Household,
    /// The sending household, which reads this.
    pub to: Household,
    /// The epoch of the home of `from`.
    pub epoch: u64,
    /// The epoch of the parcel that is answered.
    pub epoch_answered: u64,
    /// The incarnation of the stream, as the receiver knows it.
    pub incarnation: u64,
    /// The parcel that is answered, or the last one that came.
    pub answers: u64,
    /// All letters up to here are on the receiver's disk.
    pub durable: Mark,
    /// The number that the receiver takes next. It may have more than is durable.
    pub expects: u64,
    pub verdict: Verdict,
}

impl Receipt {
    pub fn write(&self) -> Vec<u8> {
        let mut out = begin(Kind::Receipt, 256);
        for number in [self.epoch, self.epoch_answered, self.incarnation, self.answers, self.expects] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        put_mark(&mut out, &self.durable);
        out.push(self.verdict as u8);
        put_short(&mut out, self.from.as_str().as_bytes());
        put_short(&mut out, self.to.as_str().as_bytes());
        let head_bytes = out.len();
        assert!(seal(&mut out, head_bytes), "a head is shorter than 64 KiB");
        out
    }
}

pub fn read(head: &[u8]) -> Option<Receipt> {
    let mut reader = Reader(head);
    let [epoch, epoch_answered, incarnation] = [reader.u64()?, reader.u64()?, reader.u64()?];
    let [answers, expects] = [reader.u64()?, reader.u64()?];
    let durable = reader.mark()?;
    let verdict = reader.u8()?;
    let verdict = Verdict::ALL.into_iter().find(|known| *known as u8 == verdict)?;
    let (from, to) = (reader.household()?, reader.household()?);
    let is_read = reader.0.is_empty() && from != to && expects > durable.number;
    is_read.then_some(Receipt { from, to, epoch, epoch_answered, incarnation, answers, durable, expects, verdict })
}
