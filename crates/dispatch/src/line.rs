//! The line before a function: which calls run, which wait, which are refused. Pure: it takes the time as a
//! parameter and wakes nobody.
//!
//! Waiting only happens while all places are taken, so that nobody who arrives overtakes those who wait.

use crate::bucket::{Bucket, Rate};
use crate::refusal::Refusal;
use std::collections::VecDeque;
use std::time::Duration;

/// What a line lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Calls that run at once. The next ones wait.
    pub running_max: u32,
    /// Calls that wait. The next one is refused (L3007).
    pub waiting_max: u32,
    /// How long one waits before it is refused (L3009). 0: nobody waits.
    pub wait_max: Duration,
    /// How fast calls may come; faster ones are refused (L3008).
    pub rate: Option<Rate>,
}

/// One line. `W` is whatever wakes a waiter.
#[derive(Debug)]
pub struct WaitingLine<W> {
    limits: Limits,
    running: u32,
    /// In the order of arrival and thus of their tickets.
    waiting: VecDeque<(Ticket, W)>,
    next_ticket: u64,
    bucket: Bucket,
    is_draining: bool,
    counts: Counts,
}

/// A place among those who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What became of a call that arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It runs. [`WaitingLine::leave`] has to be called when it is done.
    Runs,
    /// It waits until [`WaitingLine::leave`] or [`WaitingLine::set_limits`] returns its waker, or
    /// [`WaitingLine::withdraw`] is called.
    Waits(Ticket),
    Refused(Refusal),
}

/// Figures for metrics. All but the first two only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub running: u32,
    pub waiting: u32,
    /// Calls that ran, at once or after a wait.
    pub admitted: u64,
    /// L3007.
    pub refused_line_full: u64,
    /// L3008.
    pub refused_rate: u64,
    /// L3009.
    pub refused_wait: u64,
    /// L3010.
    pub refused_node_full: u64,
    /// L4010.
    pub refused_draining: u64,
    /// Calls whose caller went away while they waited.
    pub cancelled: u64,
}

impl<W> WaitingLine<W> {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            running: 0,
            waiting: VecDeque::new(),
            next_ticket: 0,
            bucket: Bucket::default(),
            is_draining: false,
            counts: Counts::default(),
        }
    }

    /// A call arrives at `now`, the time since a start of the caller's choice. `waker` is made only if it waits.
    pub fn arrive(&mut self, now: Duration, waker: impl FnOnce() -> W) -> Arrival {
        match self.decide(now) {
            Ok(true) => {
                self.running += 1;
                self.counts.admitted += 1;
                Arrival::Runs
            }
            Ok(false) => {
                let ticket = Ticket(self.next_ticket);
                self.next_ticket += 1;
                self.waiting.push_back((ticket, waker()));
                Arrival::Waits(ticket)
            }
            Err(refusal) => {
                self.count_refusal(refusal);
                Arrival::Refused(refusal)
            }
        }
    }

    /// A call is done. Returns the waker of the one that runs in its place.
    #[must_use = "who is returned counts as running and must be woken"]
    pub fn leave(&mut self) -> Option<W> {
        assert!(self.running > 0, "more calls left than arrived");
        self.running -= 1;
        self.promote()
    }

    /// A waiter goes away. `false`: it does not wait any more, it runs.
    pub fn withdraw(&mut self, ticket: Ticket) -> bool {
        let found = self.waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket);
        found.ok().and_then(|index| self.waiting.remove(index)).is_some()
    }

    /// Changes the limits. Returns the wakers of those who run now; those beyond lower limits are not sent away.
    #[must_use = "who is returned counts as running and must be woken"]
    pub fn set_limits(&mut self, limits: Limits, now: Duration) -> Vec<W> {
        self.limits = limits;
        if let Some(rate) = limits.rate {
            self.bucket.adopt(rate, now);
        }
        std::iter::from_fn(|| self.promote()).collect()
    }

    /// From now on every arrival is refused. Those who wait still get their turn.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Nobody runs and nobody waits.
    pub fn is_empty(&self) -> bool {
        self.running == 0 && self.waiting.is_empty()
    }

    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Notes a refusal that was decided elsewhere: after a wait, or by the node.
    pub fn count_refusal(&mut self, refusal: Refusal) {
        let count = match refusal {
            Refusal::LineFull { .. } => &mut self.counts.refused_line_full,
            Refusal::TooFast { .. } => &mut self.counts.refused_rate,
            Refusal::WaitedTooLong { .. } => &mut self.counts.refused_wait,
            Refusal::NodeFull { .. } => &mut self.counts.refused_node_full,
            Refusal::Draining => &mut self.counts.refused_draining,
        };
        *count += 1;
    }

    pub fn count_cancelled(&mut self) {
        self.counts.cancelled += 1;
    }

    pub fn counts(&self) -> Counts {
        // As many as the limit of u32 allows.
        Counts { running: self.running, waiting: self.waiting.len() as u32, ..self.counts }
    }

    /// Does it run (true) or wait? A call that is refused for want of a place costs no token.
    fn decide(&mut self, now: Duration) -> Result<bool, Refusal> {
        let limits = self.limits;
        if self.is_draining {
            return Err(Refusal::Draining);
        }
        let runs = self.running < limits.running_max;
        if let Some(rate) = limits.rate {
            self.bucket.check(rate, now).map_err(|retry_after| Refusal::TooFast { rate, retry_after })?;
        }
        if !runs && (limits.wait_max.is_zero() || self.waiting.len() as u64 >= u64::from(limits.waiting_max)) {
            return Err(Refusal::LineFull { running_max: limits.running_max, waiting_max: limits.waiting_max });
        }
        if let Some(rate) = limits.rate {
            self.bucket.take(rate, now).map_err(|retry_after| Refusal::TooFast { rate, retry_after })?;
        }
        Ok(runs)
    }

    fn promote(&mut self) -> Option<W> {
        if self.running >= self.limits.running_max {
            return None;
        }
        let (_, waker) = self.waiting.pop_front()?;
        self.running += 1;
        self.counts.admitted += 1;
        Some(waker)
    }
}
