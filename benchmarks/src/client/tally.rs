//! What a client counted.

use super::message::{now_ns, read};
use crate::load::{Latency, histogram};
use crate::reading::is_high;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// What became of the events that were sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sent {
    /// Confirmed, all of them.
    pub events: u64,
    /// When the first one was sent.
    pub first_ns: u64,
    /// When the last one was confirmed.
    pub last_ns: u64,
    /// From due to confirmed.
    pub confirmed_us: Latency,
}

/// What became of the events that were received.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Handled {
    /// Different ones.
    pub events: u64,
    pub duplicates: u64,
    pub high: u64,
    /// When the last one was acked.
    pub last_ns: u64,
    /// From due to handled.
    pub handled_us: Latency,
    /// From due to acked, or to the ack's sending where the protocol does not confirm it.
    pub acked_us: Latency,
}

/// Counts confirmations.
pub struct Sending {
    first_ns: u64,
    events: u64,
    confirmed: Histogram<u64>,
}

impl Sending {
    pub fn new() -> Self {
        Self { first_ns: now_ns(), events: 0, confirmed: histogram() }
    }

    pub fn confirmed(&mut self, due_ns: u64) {
        self.events += 1;
        self.confirmed.saturating_record(now_ns().saturating_sub(due_ns));
    }

    /// Adds what another connection counted.
    ///
    /// # Errors
    /// Two histograms could not be added up.
    pub fn add(&mut self, other: &Self) -> Result<(), hdrhistogram::AdditionError> {
        self.first_ns = self.first_ns.min(other.first_ns);
        self.events += other.events;
        self.confirmed.add(&other.confirmed)
    }

    pub fn done(&self) -> Sent {
        Sent {
            events: self.events,
            first_ns: self.first_ns,
            last_ns: now_ns(),
            confirmed_us: Latency::of(&self.confirmed),
        }
    }
}

/// Handles events and counts them.
pub struct Handling {
    seen: Vec<bool>,
    events: u64,
    duplicates: u64,
    high: u64,
    last_ns: u64,
    handled: Histogram<u64>,
    acked: Histogram<u64>,
}

impl Handling {
    /// Of events numbered from 0 to `events`.
    pub fn new(events: u64) -> Self {
        let seen = vec![false; usize::try_from(events).expect("as many events as fit in memory")];
        Self { seen, events: 0, duplicates: 0, high: 0, last_ns: 0, handled: histogram(), acked: histogram() }
    }

    /// Does a handler's work. Gives the time the event was due.
    ///
    /// # Errors
    /// This is no event of ours.
    pub fn handle(&mut self, message: &[u8]) -> anyhow::Result<u64> {
        let (number, due_ns) = read(message).ok_or_else(|| anyhow::anyhow!("{message:?} is no event of ours"))?;
        let high = is_high(message).ok_or_else(|| anyhow::anyhow!("there is no reading"))?;
        let seen = usize::try_from(number).ok().and_then(|number| self.seen.get_mut(number));
        let seen = seen.ok_or_else(|| anyhow::anyhow!("event {number} was never sent"))?;
        if std::mem::replace(seen, true) {
            self.duplicates += 1;
        } else {
            self.events += 1;
        }
        self.high += u64::from(high);
        self.last_ns = now_ns();
        self.handled.saturating_record(self.last_ns.saturating_sub(due_ns));
        Ok(due_ns)
    }

    pub fn acked(&mut self, due_ns: u64) {
        self.last_ns = now_ns();
        self.acked.saturating_record(self.last_ns.saturating_sub(due_ns));
    }

    pub fn done(&self) -> Handled {
        Handled {
            events: self.events,
            duplicates: self.duplicates,
            high: self.high,
            last_ns: self.last_ns,
            handled_us: Latency::of(&self.handled),
            acked_us: Latency::of(&self.acked),
        }
    }
}
