//! Letters that come back: their receiver is gone for good, and they are put elsewhere.

use super::{Counts, Outbox};
use crate::records::{Point, letter_key, read_letter};
use crate::{Household, Records, Write};

/// Bytes that come back at once: a transaction that puts them elsewhere has room for a few letters more.
const BACK_BYTES_MAX: usize = 1 << 20;

/// The oldest letters for one household, ready to be put elsewhere.
#[derive(Debug)]
#[must_use]
pub struct TakenBack {
    pub letters: Vec<Vec<u8>>,
    /// For the transaction that puts the letters elsewhere.
    pub writes: Vec<Write>,
    to: Household,
    upto: Point,
    version: u64,
}

impl Outbox {
    /// All households that letters wait for.
    pub fn receivers(&self) -> impl Iterator<Item = &Household> {
        self.busy.iter()
    }

    /// Up to `count` letters that wait for `to`, the oldest first; fewer, once they have a mebibyte. None: none
    /// waits, or the oldest cannot be read. Nothing is changed here before [`Outbox::taken_back`]; nothing else may
    /// be asked of the outbox in between. Letters that were sent, and whose receipt did not come, are among them.
    pub fn take_back(&self, to: &Household, count: usize, records: &impl Records) -> Option<TakenBack> {
        let stream = self.streams.get(to).filter(|stream| stream.waiting().letters > 0)?;
        let (mut letters, mut bytes, mut upto) = (Vec::new(), 0, stream.confirmed);
        let numbers = stream.confirmed.mark.number + 1..=stream.last.mark.number;
        for number in numbers.take(count) {
            let value = records.get(&letter_key(to, number));
            let read = value.as_deref().and_then(read_letter).filter(|(point, _)| stream.holds(number, point));
            // Perhaps the disk reads it later.
            let Some((point, letter)) = read else { break };
            letters.push(letter.to_vec());
            upto = point;
            bytes += letter.len();
            if bytes >= BACK_BYTES_MAX {
                break;
            }
        }
        if letters.is_empty() {
            return None;
        }
        let mut after = stream.clone();
        after.confirm(upto);
        let gone = stream.confirmed.mark.number + 1..=upto.mark.number;
        let mut writes: Vec<Write> = gone.map(|number| Write { key: letter_key(to, number), value: None }).collect();
        writes.push(after.record().write(to));
        Some(TakenBack { letters, writes, to: to.clone(), upto, version: self.version })
    }

    /// The transaction with the writes of `back` is committed.
    pub fn taken_back(&mut self, back: TakenBack) {
        assert_eq!(back.version, self.version, "nothing happens between the two");
        self.version += 1;
        let Some(stream) = self.streams.get_mut(&back.to) else { return };
        let before = stream.waiting();
        stream.confirm(back.upto);
        let after = stream.waiting();
        self.counts.subtract(Counts { letters: before.letters - after.letters, bytes: before.bytes - after.bytes });
        if after.letters == 0 {
            self.busy.remove(&back.to);
        }
    }
}
