//! The units of one function: spares made ahead of need, those kept for reuse, and who waits for one.
//!
//! What is to be made now is a pure decision on plain numbers. Making one is the kind's own: forking a process,
//! starting a machine.

use crate::Entry;
use problem::Problem;
use std::collections::VecDeque;
use std::time::Instant;
use tokio::sync::oneshot;

/// Spares that are always there while a function is in use.
const SPARES_MIN: u32 = 2;

/// How many units there are and are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ready for work.
    pub spares: u32,
    /// Being made.
    pub coming: u32,
    /// At work.
    pub busy: u32,
    /// Calls without a unit.
    pub waiting: u32,
    /// The most at work at once of late.
    pub peak: u32,
    /// One is used for a single call: each call wants a fresh one after it.
    pub are_fresh: bool,
}

impl Counts {
    /// How many to begin making. `in_call`: a call has just begun, and making one beside it would take its core.
    pub fn to_make(&self, in_call: bool, spares_max: u32) -> u32 {
        let have = self.spares + self.coming;
        let needed = self.waiting.saturating_sub(have);
        let spares = if self.are_fresh { self.peak.clamp(SPARES_MIN, spares_max) } else { 1 };
        // With a spare left the next call has one, and this one need not share its core.
        if in_call && have > 0 {
            return needed;
        }
        needed.max((self.waiting + spares).saturating_sub(have))
    }
}

/// The units of one function that are at nobody's service, and the calls without one.
pub struct Pool<T> {
    pub spares: VecDeque<T>,
    /// Waiting to be used again, the most recently used last.
    pub kept: Vec<(T, Entry)>,
    pub waiting: VecDeque<oneshot::Sender<Result<T, Problem>>>,
    pub coming: u32,
    pub busy: u32,
    pub peak: u32,
    pub used: Option<Instant>,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        let (spares, kept, waiting) = Default::default();
        Self { spares, kept, waiting, coming: 0, busy: 0, peak: 0, used: None }
    }
}

impl<T> Pool<T> {
    /// One of them goes to work.
    pub fn begins(&mut self) {
        self.busy += 1;
        self.peak = self.peak.max(self.busy);
    }

    pub fn counts(&self, are_fresh: bool) -> Counts {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Counts {
            spares: number(self.spares.len()),
            coming: self.coming,
            busy: self.busy,
            waiting: number(self.waiting.len()),
            peak: self.peak,
            are_fresh,
        }
    }

    /// A unit that was made goes to the call that waits longest, or is a spare.
    pub fn give(&mut self, mut unit: T) {
        while let Some(waiting) = self.waiting.pop_front() {
            match waiting.send(Ok(unit)) {
                Ok(()) => return,
                Err(Ok(back)) => unit = back,
                Err(Err(_)) => unreachable!("a unit was sent"),
            }
        }
        self.spares.push_back(unit);
    }

    /// None can be made: every call that waits is told why.
    pub fn refuse(&mut self, problem: &Problem) {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().for_each(|waiting| _ = waiting.send(Err(problem.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> Counts {
        Counts { are_fresh: true, ..Counts::default() }
    }

    #[test]
    fn a_call_finds_a_spare_and_the_next_one_too() {
        assert_eq!(counts().to_make(false, 8), 2);
        assert_eq!(Counts { spares: 2, ..counts() }.to_make(false, 8), 0);
        assert_eq!(Counts { spares: 1, busy: 1, ..counts() }.to_make(true, 8), 0, "not while the call runs");
        assert_eq!(Counts { spares: 0, busy: 2, ..counts() }.to_make(true, 8), 2, "unless there is none left");
        assert_eq!(Counts { spares: 1, ..counts() }.to_make(false, 8), 1);
    }

    #[test]
    fn a_burst_makes_units_for_all_who_wait_and_keeps_as_many_spares_as_it_may() {
        assert_eq!(Counts { waiting: 10, ..counts() }.to_make(true, 8), 12);
        assert_eq!(Counts { waiting: 10, coming: 10, peak: 20, ..counts() }.to_make(true, 8), 0);
        assert_eq!(Counts { peak: 20, ..counts() }.to_make(false, 8), 8);
    }

    #[test]
    fn a_unit_goes_to_the_call_that_waits_longest_and_still_waits() {
        let mut pool = Pool::default();
        let (gone, _) = oneshot::channel();
        let (first, mut first_waits) = oneshot::channel();
        let (second, mut second_waits) = oneshot::channel();
        pool.waiting.extend([gone, first, second]);
        pool.give(1);
        assert_eq!(first_waits.try_recv().unwrap().unwrap(), 1);
        pool.refuse(&Problem::new(problem::Code::NodeFull, "no room"));
        assert_eq!(second_waits.try_recv().unwrap().unwrap_err().code, problem::Code::NodeFull);
        pool.give(2);
        assert_eq!((pool.spares.len(), pool.counts(true).waiting), (1, 0));
    }

    #[test]
    fn units_that_are_used_again_need_few_spares() {
        assert_eq!(Counts { peak: 5, are_fresh: false, ..counts() }.to_make(false, 8), 1);
    }
}
