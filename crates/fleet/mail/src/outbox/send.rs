//! What is sent next, and when there will be something to send.

use super::Outbox;
use super::stream::{Next, Stream};
use crate::records::{Point, letter_key, read_letter};
use crate::{Config, Household, LETTER_BYTES_MAX, LETTERS_MAX, Parcel, Records};
use random::Random;
use std::ops::Bound;
use std::time::Duration;

/// A message to send: to the home of `to`, over any ways there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub to: Household,
    pub bytes: Vec<u8>,
}

/// Streams of one lane take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Live,
    Behind,
}

impl Outbox {
    /// The next message; none for now. Streams take turns, and those that are behind go last.
    pub fn poll(&mut self, now: Duration, records: &impl Records) -> Option<Sent> {
        self.poll_lane(Lane::Live, now, records).or_else(|| {
            let is_open = self.bucket.is_open(now);
            let sent = if is_open { self.poll_lane(Lane::Behind, now, records) } else { None };
            sent.inspect(|sent| self.bucket.pay(sent.bytes.len() as u64))
        })
    }

    /// When [`Outbox::poll`] is to be asked again if nothing happens before: `now` if at once, none if never.
    pub fn next_poll(&self, now: Duration) -> Option<Duration> {
        let when = |to: &Household| {
            let stream = self.streams.get(to)?;
            match stream.next(now, self.config.window_bytes) {
                Next::Nothing => None,
                Next::At(time) => Some(time),
                Next::Letters if lane(stream, Next::Letters, &self.config) == Lane::Behind => {
                    Some(self.bucket.opens().max(now))
                }
                Next::Letters | Next::Offer | Next::Ask => Some(now),
            }
        };
        self.busy.iter().filter_map(when).min()
    }

    /// A way to the home of `to` is there again.
    pub fn wake(&mut self, to: &Household, now: Duration) {
        if let Some(stream) = self.streams.get_mut(to) {
            stream.wake(now);
        }
    }

    fn poll_lane(&mut self, wanted: Lane, now: Duration, records: &impl Records) -> Option<Sent> {
        let after = self.turn.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let upto = self.turn.as_ref().map_or(Bound::Unbounded, Bound::Included);
        let later = self.busy.range::<Household, _>((after, Bound::Unbounded));
        // Without a turn all are later.
        let earlier = self.busy.range::<Household, _>((Bound::Unbounded, upto)).filter(|_| self.turn.is_some());
        for to in later.chain(earlier) {
            let Some(stream) = self.streams.get_mut(to) else { continue };
            let next = stream.next(now, self.config.window_bytes);
            if lane(stream, next, &self.config) != wanted {
                continue;
            }
            let mut way = Way { to, stream, config: &self.config, random: &mut self.random, serial: self.serial + 1 };
            let bytes = match next {
                Next::Letters => way.letters(self.config.parcel_bytes.min(LETTER_BYTES_MAX as u64), now, records),
                Next::Offer => way.letters(1, now, records),
                Next::Ask => Some(way.ask(now)),
                Next::At(_) | Next::Nothing => None,
            };
            if let Some(bytes) = bytes {
                self.serial += 1;
                let to = to.clone();
                self.turn = Some(to.clone());
                return Some(Sent { to, bytes });
            }
        }
        None
    }
}

/// Questions are short and go with what is live.
fn lane(stream: &Stream, next: Next, config: &Config) -> Lane {
    let to_send = stream.last.mark.number - stream.cursor.mark.number;
    if next == Next::Letters && to_send > config.live_letters { Lane::Behind } else { Lane::Live }
}

/// A stream while it sends.
struct Way<'a> {
    to: &'a Household,
    stream: &'a mut Stream,
    config: &'a Config,
    random: &'a mut Random,
    serial: u64,
}

impl Way<'_> {
    /// Letters from the cursor on, up to `bytes_max` of them, and one in any case. None: the next one cannot be read
    /// now.
    fn letters(&mut self, bytes_max: u64, now: Duration, records: &impl Records) -> Option<Vec<u8>> {
        let mut values = Vec::new();
        let (mut number, mut bytes) = (self.stream.cursor.mark.number, 0);
        while number < self.stream.durable && values.len() < LETTERS_MAX {
            let Some(value) = records.get(&letter_key(self.to, number + 1)) else { break };
            bytes += value.len() as u64;
            if bytes > bytes_max && !values.is_empty() {
                break;
            }
            number += 1;
            values.push(value);
        }
        let first = self.stream.cursor.mark.number + 1;
        let sound = (first..)
            .zip(&values)
            .map_while(|(number, value)| read_letter(value).filter(|(point, _)| self.stream.holds(number, point)));
        let letters: Vec<(Point, &[u8])> = sound.collect();
        let Some((cursor, _)) = letters.last().copied() else {
            // Damaged, or the disk does not answer: it is tried again later.
            self.stream.rest(now, self.random.next());
            return None;
        };
        let mut parcel = self.parcel();
        parcel.letters = letters.into_iter().map(|(point, letter)| (letter, point.mark)).collect();
        let bytes = parcel.write();
        self.stream.sent(cursor, now, self.random.next());
        Some(bytes)
    }

    fn ask(&mut self, now: Duration) -> Vec<u8> {
        self.stream.has_asked(now, self.random.next());
        self.parcel().write()
    }

    /// Without letters.
    fn parcel<'b>(&self) -> Parcel<'b> {
        Parcel {
            from: self.config.household.clone(),
            to: self.to.clone(),
            epoch: self.config.epoch,
            incarnation: self.stream.incarnation,
            begun: self.stream.begun,
            serial: self.serial,
            base: self.stream.confirmed.mark,
            before: self.stream.cursor.mark,
            letters: Vec::new(),
        }
    }
}
