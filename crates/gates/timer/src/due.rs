//! The decision: which ticks are due, and when to ask again.

use crate::{Progress, Tick, Timer};
use manifest::CatchUp;
use std::time::Duration;

/// Events that `catch_up = "all"` makes at once; the latest ones are kept.
pub const TICKS_MAX: usize = 1_000;

/// The most a tick says to have missed; it stands for as many or more.
pub const MISSED_MAX: usize = 1_000;

/// With `catch_up = "skip"`, a time that passed longer ago than this was missed. What is later by less is the node's
/// own slowness and fires.
pub const LATE_MAX: Duration = Duration::from_secs(10);

/// What a timer wants now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The oldest first.
    pub ticks: Vec<Tick>,
    /// To be kept once all of them are pushed.
    pub progress: Progress,
    /// Where they begin.
    from: Progress,
    /// When to ask again; none where the calendar ends.
    pub next_ms: Option<u64>,
}

impl Due {
    /// To be kept once only the first `count` ticks are pushed, because there is no room for more. The others are due
    /// again when the timer is asked the next time.
    pub fn progress_after(&self, count: usize) -> Progress {
        match self.ticks.get(..count) {
            None | Some([]) => self.from,
            Some(pushed) if pushed.len() == self.ticks.len() => self.progress,
            Some([.., last]) => self.from.reached(last.scheduled_ms),
        }
    }
}

impl Timer {
    /// What is due now, for a timer that has come so far. If the ticks cannot be pushed, ask again with the old
    /// progress: it is as if the node had been down meanwhile.
    pub fn due(&self, progress: Progress, now_ms: u64) -> Due {
        let progress = progress.at(now_ms, self.schedule.wait_ms());
        let passed = self.passed(progress.last_ms, now_ms);
        let reached = passed.first().map_or(progress, |latest| progress.reached(*latest));
        Due {
            ticks: self.ticks(&passed, now_ms),
            progress: reached,
            from: progress,
            next_ms: self.schedule.next(now_ms.max(reached.last_ms)),
        }
    }

    /// The times after `last_ms` that have passed, the latest first, as far as they matter.
    fn passed(&self, last_ms: u64, now_ms: u64) -> Vec<u64> {
        let events_max = if self.catch_up == CatchUp::All { TICKS_MAX } else { 1 };
        let times =
            std::iter::successors(self.schedule.latest(now_ms), |time| self.schedule.latest(time.checked_sub(1)?));
        times.take_while(|time| *time > last_ms).take(events_max + MISSED_MAX).collect()
    }

    /// One tick for all that passed, or one for each; what has no tick of its own is counted by the oldest one.
    fn ticks(&self, passed: &[u64], now_ms: u64) -> Vec<Tick> {
        let own = match self.catch_up {
            CatchUp::All => TICKS_MAX,
            CatchUp::One => 1,
            CatchUp::Skip => {
                passed.first().map_or(0, |latest| usize::from(now_ms - latest <= LATE_MAX.as_millis() as u64))
            }
        };
        let (own, missed) = passed.split_at(own.min(passed.len()));
        let mut ticks: Vec<Tick> = own.iter().rev().map(|time| Tick { scheduled_ms: *time, missed: 0 }).collect();
        if let Some(oldest) = ticks.first_mut() {
            oldest.missed = missed.len();
        }
        ticks
    }
}
