//! CPU time that a zygote may use outside of its calls: a decision on plain numbers, with the time as a parameter.
//!
//! A zygote has work of its own: it forks children, and empties the folders they leave. This earns it CPU time. The
//! passing of time earns some too, for threads of libraries that look up now and then. It starts with some savings;
//! when those are used up, something in it works that no call asked for. A unit that waits for a call has less: it
//! has nothing to do.

use std::time::{Duration, Instant};

/// The most it can have saved, and what it begins with: threads that the module has started wind up.
const SAVED_MAX: Duration = Duration::from_secs(3);
/// Earned with each child. It takes a few milliseconds, unless the child has left a great many files.
const EARNED_A_CHILD: Duration = Duration::from_millis(50);
/// Of the time that passes, one part in so many is earned.
const EARNED_IN_TIME: u32 = 100;

/// What a unit may use while it waits, beside what it earns in time: threads of its runtime wind down. A virtual
/// machine that has just loaded a function still compiles some of it.
const RESTING: Duration = Duration::from_millis(200);
const RESTING_MACHINE: Duration = Duration::from_secs(1);
/// After so long it has shown whether it rests.
const LASTED: Duration = Duration::from_secs(1);

/// What a unit that waits had used when it began to.
#[derive(Debug, Clone, Copy)]
pub struct Rest {
    since: Instant,
    used: Duration,
    is_machine: bool,
}

impl Rest {
    pub fn new(since: Instant, used: Duration, is_machine: bool) -> Self {
        Self { since, used, is_machine }
    }

    /// Whether it has been looked at for long enough to tell that it rests.
    pub fn has_lasted(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= LASTED
    }

    /// Whether it still rests, with so much CPU time used by now. No call's limits watch one that waits.
    pub fn suffices(&self, now: Instant, used: Duration) -> bool {
        let earned = now.saturating_duration_since(self.since) / EARNED_IN_TIME;
        used.saturating_sub(self.used) <= earned + if self.is_machine { RESTING_MACHINE } else { RESTING }
    }
}

#[derive(Debug)]
pub struct Allowance {
    saved: Duration,
    seen: Instant,
    used: Duration,
    children: u64,
}

impl Allowance {
    /// `used` is the CPU time used so far, which counts for loading the function.
    pub fn new(now: Instant, used: Duration) -> Self {
        Self { saved: SAVED_MAX, seen: now, used, children: 0 }
    }

    /// Compares what has been used with what has been earned, by so many children since the first look. False: too
    /// much.
    pub fn suffices(&mut self, now: Instant, used: Duration, children: u64) -> bool {
        let more = used.saturating_sub(self.used);
        let born = u32::try_from(children.saturating_sub(self.children)).unwrap_or(u32::MAX);
        let passed = now.saturating_duration_since(self.seen);
        let earned = EARNED_A_CHILD.saturating_mul(born).saturating_add(passed / EARNED_IN_TIME);
        let have = self.saved.saturating_add(earned);
        (self.seen, self.used, self.children) = (now, used, children);
        self.saved = have.saturating_sub(more).min(SAVED_MAX);
        more <= have
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Looks every five seconds, as a node does, until it is too much; none: it never is.
    fn looks(cpu_a_second: Duration, children_a_second: u64) -> Option<u32> {
        let now = Instant::now();
        let mut allowance = Allowance::new(now, 20 * SECOND);
        (1..10_000).find(|look| {
            let seconds = look * 5;
            let used = 20 * SECOND + cpu_a_second * seconds;
            !allowance.suffices(now + SECOND * seconds, used, children_a_second * u64::from(seconds))
        })
    }

    #[test]
    fn a_thread_that_spins_is_too_much_at_the_first_look_and_one_that_looks_up_now_and_then_never() {
        assert_eq!(looks(SECOND, 0), Some(1));
        assert_eq!(looks(SECOND / 5, 0), Some(4), "a fifth of a core");
        assert_eq!(looks(SECOND / 100, 0), None);
        assert_eq!(looks(Duration::ZERO, 0), None);
    }

    #[test]
    fn a_unit_that_waits_may_look_up_now_and_then_and_not_work() {
        let now = Instant::now();
        let suffices = |seconds: u32, used: Duration| {
            Rest::new(now, 7 * SECOND, false).suffices(now + SECOND * seconds, 7 * SECOND + used)
        };
        assert!(suffices(0, SECOND / 5) && suffices(3_600, 36 * SECOND));
        let machine = Rest::new(now, SECOND, true);
        assert!(machine.suffices(now, 2 * SECOND) && !machine.suffices(now, 3 * SECOND));
        assert!(!suffices(1, SECOND / 4) && !suffices(5, SECOND) && !suffices(3_600, 37 * SECOND));
    }

    #[test]
    fn children_earn_what_they_cost() {
        assert_eq!(looks(SECOND, 20), None);
        assert_eq!(looks(SECOND, 10), Some(2));
    }

    #[test]
    fn no_more_than_the_first_savings_are_ever_saved() {
        let now = Instant::now();
        let mut allowance = Allowance::new(now, Duration::ZERO);
        assert!(allowance.suffices(now + 86_400 * SECOND, Duration::ZERO, 1_000_000));
        assert!(allowance.suffices(now + 86_401 * SECOND, 3 * SECOND, 1_000_000));
        assert!(!allowance.suffices(now + 86_402 * SECOND, 4 * SECOND, 1_000_000));
    }
}
