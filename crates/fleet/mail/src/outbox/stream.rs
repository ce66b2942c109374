//! One stream: the letters to one household, and where each of them stands.
//!
//! ```text
//!  begun ≤ confirmed ≤ cursor ≤ durable ≤ last
//!          └─ in flight ─┘        └─ not on this disk yet
//! ```

use super::Counts;
use crate::patience;
use crate::records::{Point, StreamRecord};
use crate::{Chain, Household, Mark};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Stream {
    pub incarnation: u64,
    /// The number at which the incarnation began.
    pub begun: u64,
    /// The receiver's disk has the letters up to here.
    pub confirmed: Point,
    pub last: Point,
    /// Letters up to this number are on this disk.
    pub durable: u64,
    /// Letters up to here are sent.
    pub cursor: Point,
    /// The incarnation is not durable yet.
    pub is_held: bool,
    /// When the receiver is asked how far it is. Set while something is in flight.
    pub ask_at: Option<Duration>,
    /// Questions that were not answered. Until one is, nothing else is sent.
    pub asked: u32,
    /// The receiver does not take the next letter now; it is offered again at this time.
    pub rests_until: Option<Duration>,
    pub refused: u32,
    /// Verdicts on messages before this serial are old: the cursor was set back since.
    pub serial_min: u64,
}

/// What a stream would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Send letters.
    Letters,
    /// Offer one letter: the queue was full.
    Offer,
    /// Ask how far the receiver is.
    Ask,
    /// Nothing before this time.
    At(Duration),
    Nothing,
}

impl Stream {
    pub fn new(nonce: &[u8; 16], to: &Household) -> Self {
        let chain = Chain::begin(nonce).then(to.as_str().as_bytes());
        let start = Point { mark: Mark { number: 0, chain }, bytes: 0 };
        Self::opened(StreamRecord { incarnation: 1, begun: 0, confirmed: start, last: start })
    }

    pub fn opened(record: StreamRecord) -> Self {
        let StreamRecord { incarnation, begun, confirmed, last } = record;
        Self {
            incarnation,
            begun,
            confirmed,
            last,
            durable: last.mark.number,
            cursor: confirmed,
            is_held: false,
            ask_at: None,
            asked: 0,
            rests_until: None,
            refused: 0,
            serial_min: 0,
        }
    }

    pub fn record(&self) -> StreamRecord {
        let Self { incarnation, begun, confirmed, last, .. } = *self;
        StreamRecord { incarnation, begun, confirmed, last }
    }

    /// Gives the next number to a letter. None: numbers are used up.
    pub fn append(&mut self, letter: &[u8]) -> Option<Point> {
        let bytes = self.last.bytes.checked_add(letter.len() as u64)?;
        self.last = Point { mark: self.last.mark.then(letter)?, bytes };
        Some(self.last)
    }

    pub fn waiting(&self) -> Counts {
        Counts {
            letters: self.last.mark.number - self.confirmed.mark.number,
            bytes: self.last.bytes - self.confirmed.bytes,
        }
    }

    /// Whether `point`, which was read from a record, can be the place of the letter `number` that waits.
    pub fn holds(&self, number: u64, point: &Point) -> bool {
        let is_within = (self.confirmed.bytes..=self.last.bytes).contains(&point.bytes);
        point.mark.number == number && number <= self.last.mark.number && is_within
    }

    fn is_in_flight(&self) -> bool {
        self.cursor.mark.number > self.confirmed.mark.number
    }

    pub fn next(&self, now: Duration, window_bytes: u64) -> Next {
        let has_more = self.durable > self.cursor.mark.number;
        if self.is_held {
            return Next::Nothing;
        }
        if let Some(until) = self.rests_until {
            return match now < until {
                true => Next::At(until),
                false if has_more => Next::Offer,
                false if self.is_in_flight() => Next::Ask,
                false => Next::Nothing,
            };
        }
        if self.ask_at.is_some_and(|at| now >= at) {
            return Next::Ask;
        }
        if self.asked == 0 && has_more && self.cursor.bytes - self.confirmed.bytes < window_bytes {
            return Next::Letters;
        }
        self.ask_at.map_or(Next::Nothing, Next::At)
    }

    /// Letters up to `cursor` are sent.
    pub fn sent(&mut self, cursor: Point, now: Duration, random: u64) {
        self.cursor = cursor;
        if self.rests_until.take().is_some() {
            // The offer is a question too.
            self.asked = 1;
        }
        self.ask_at.get_or_insert(now + patience::receipt(0, random));
    }

    pub fn has_asked(&mut self, now: Duration, random: u64) {
        self.asked = self.asked.saturating_add(1);
        self.rests_until = None;
        self.ask_at = Some(now + patience::receipt(self.asked, random));
    }

    /// The receiver has the letters up to `point` on its disk.
    pub fn confirm(&mut self, point: Point) {
        self.confirmed = point;
        self.refused = 0;
        if self.cursor.mark.number < point.mark.number {
            self.cursor = point;
        }
    }

    /// The receiver answered.
    pub fn heard(&mut self, now: Duration, random: u64) {
        self.asked = 0;
        self.ask_at = self.is_in_flight().then(|| now + patience::receipt(0, random));
    }

    /// What was sent beyond `point` has not been taken. `serial_min` is that of the next message.
    pub fn set_back(&mut self, point: Point, serial_min: u64) {
        self.cursor = point;
        self.serial_min = serial_min;
    }

    /// The next letter is not taken now.
    pub fn rest(&mut self, now: Duration, random: u64) {
        self.rests_until = Some(now + patience::full(self.refused, random));
        self.refused = self.refused.saturating_add(1);
        self.ask_at = None;
    }

    /// Begins another history: no letter has been sent under it.
    pub fn renew(&mut self, incarnation: u64) {
        self.incarnation = incarnation;
        self.begun = self.confirmed.mark.number;
        self.cursor = self.confirmed;
        self.is_held = true;
        (self.asked, self.ask_at) = (0, None);
        (self.refused, self.rests_until) = (0, None);
    }

    /// There is a way to the receiver again: no need to wait any longer.
    pub fn wake(&mut self, now: Duration) {
        self.asked = 0;
        self.refused = 0;
        self.rests_until = self.rests_until.map(|_| now);
        self.ask_at = self.ask_at.map(|_| now);
    }
}
