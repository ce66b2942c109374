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
        if !is_at_work(seen, maximum) {
            self.before = None;
            return false;
        }
        seen.refused > *self.before.get_or_insert(seen.refused)
    }
}

/// Whether as many work as may. Where the other steps of the workflow have all units at the moment, that is none: they
/// take turns.
fn is_at_work(seen: &Observation, maximum: u32) -> bool {
    seen.workers >= maximum && (maximum > 0 || seen.workflow_room == Some(0))
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
        if !is_at_work(seen, maximum) || seen.ready < threshold {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A step in turn with others of its workflow: it has a unit, and it has none while another one has it.
    fn turns(ready: u64, refused: u64) -> [Observation; 2] {
        [1, 0].map(|workers| Observation { ready, refused, workers, workflow_room: Some(0), ..Observation::default() })
    }

    #[test]
    fn steps_that_take_turns_with_all_units_are_overloaded_too() {
        let mut growth = Growth::default();
        let seen = (0..200).flat_map(|at| turns(100 + at, 0).map(|seen| (Duration::from_millis(2 * at), seen)));
        let grown = |(now, seen): (Duration, Observation)| {
            growth.is_there(now, &seen, seen.reachable(1), (10, Duration::ZERO)).0
        };
        assert!(seen.map(grown).any(|has_grown| has_grown));
        let mut refusals = Refusals::default();
        let refused = [turns(9, 0), turns(9, 1)].concat().into_iter();
        assert!(refused.map(|seen| refusals.are_there(&seen, seen.reachable(1))).any(|are_there| are_there));
    }

    #[test]
    fn a_paused_step_is_not_overloaded() {
        let paused = |refused| Observation { ready: 9, refused, ..Observation::default() };
        let mut refusals = Refusals::default();
        assert!((0..9).all(|refused| !refusals.are_there(&paused(refused), 0)));
    }
}
