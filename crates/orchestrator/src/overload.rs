//! Notices that a step at its maximum still grows: where the manifest says so the workflow ends, as in UniFaaS.
//!
//! | | the step is at its maximum, and |
//! |---|---|
//! | full | a push was refused, because the queue holds all it may |
//! | growing | the queue has reached its threshold, and holds more than a grace period before |

use crate::{Decision, Observation};
use std::time::Duration;

/// What is taken for growth is seen over at least this time: one push more is none.
const GROWTH_PERIOD_MIN: Duration = Duration::from_millis(100);

/// Why a workflow ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overload {
    /// The queue was full.
    Full,
    /// The queue went on growing.
    Growing,
}

impl Decision {
    /// Workers end once the shell has ended the workflow.
    pub(crate) fn end(overload: Overload) -> Self {
        Self { ends_workflow: Some(overload), ..Self::default() }
    }
}

#[derive(Default)]
pub struct Refusals {
    /// Refusals when the maximum was first seen at work; none while there are fewer workers.
    before: Option<u64>,
}

impl Refusals {
    /// Whether pushes were refused for want of room while `maximum` workers were at work. A paused queue only refuses.
    pub fn are_there(&mut self, seen: &Observation, maximum: u32) -> bool {
        if seen.workers < maximum || maximum == 0 {
            self.before = None;
            return false;
        }
        seen.refused > *self.before.get_or_insert(seen.refused)
    }
}

#[derive(Default)]
pub struct Growth {
    /// When it was last looked, and how much was ready then; none while it cannot be growth.
    last: Option<(Duration, u64)>,
}

impl Growth {
    /// Whether the queue has grown, and else after which time to look again; none if there is nothing to look for.
    pub fn is_there(
        &mut self,
        now: Duration,
        seen: &Observation,
        maximum: u32,
        (threshold, grace): (u64, Duration),
    ) -> (bool, Option<Duration>) {
        if seen.workers < maximum || maximum == 0 || seen.ready < threshold {
            self.last = None;
            return (false, None);
        }
        let period = grace.max(GROWTH_PERIOD_MIN);
        let (since, ready) = *self.last.get_or_insert((now, seen.ready));
        let passed = now.saturating_sub(since);
        if passed < period {
            return (false, Some(period - passed));
        }
        self.last = Some((now, seen.ready));
        (seen.ready > ready, Some(period))
    }
}
