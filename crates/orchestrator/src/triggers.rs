//! UniFaaS's policy: triggers on the size of the queue, each with a grace period, up to a maximum.
//!
//! | trigger | when | does |
//! |---|---|---|
//! | first | events are ready and nobody works | starts a worker |
//! | threshold | more events are ready than the threshold | starts another worker |
//! | emptied | nothing is ready any more | workers end, by themselves |
//!
//! Checked before a start: there are fewer workers than the maximum, and the grace period since the last start by the
//! same trigger is over. The paper starts one unit at a time; so does this.

use crate::overflow::Overflow;
use crate::{Decision, Observation, Policy, excess};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriggersConfig {
    /// Workers at once. 0 pauses the queue.
    pub maximum: u32,
    /// Ready events over which another worker starts.
    pub threshold: u64,
    /// Pause after a start before the same trigger starts another.
    pub grace: Duration,
    /// Whether the workflow ends when a push was refused for want of room while the maximum was at work. Else the push
    /// is refused and that is all.
    pub ends_workflow: bool,
}

pub struct Triggers {
    config: TriggersConfig,
    first: Option<Duration>,
    threshold: Option<Duration>,
    overflow: Overflow,
}

impl Triggers {
    pub fn new(config: TriggersConfig) -> Self {
        Self { config, first: None, threshold: None, overflow: Overflow::default() }
    }
}

impl Policy for Triggers {
    fn decide(&mut self, now: Duration, seen: &Observation) -> Decision {
        let TriggersConfig { maximum, threshold, grace, .. } = self.config;
        let stop = excess(seen.workers, maximum);
        if self.config.ends_workflow && self.overflow.is_there(seen, maximum) {
            return Overflow::DECISION;
        }
        let last_start = match (seen.ready, seen.workers) {
            (0, _) => return Decision { stop, ..Decision::default() },
            (_, 0) => &mut self.first,
            (ready, _) if ready > threshold => &mut self.threshold,
            _ => return Decision { stop, ..Decision::default() },
        };
        if seen.workers >= maximum {
            return Decision { stop, ..Decision::default() };
        }
        match remaining(*last_start, grace, now) {
            Duration::ZERO => {
                *last_start = Some(now);
                // The queue may stay over the threshold without anything else happening.
                Decision { start: 1, look_after: Some(grace), ..Decision::default() }
            }
            rest => Decision { look_after: Some(rest), ..Decision::default() },
        }
    }
}

/// How much of the grace period is left.
fn remaining(last_start: Option<Duration>, grace: Duration, now: Duration) -> Duration {
    last_start.map_or(Duration::ZERO, |last| (last + grace).saturating_sub(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: TriggersConfig =
        TriggersConfig { maximum: 2, threshold: 10, grace: Duration::from_secs(1), ends_workflow: true };

    fn at(policy: &mut Triggers, ms: u64, ready: u64, workers: u32, refused: u64) -> Decision {
        let seen = Observation { ready, workers, busy: workers, refused, ..Observation::default() };
        policy.decide(Duration::from_millis(ms), &seen)
    }

    #[test]
    fn the_first_event_starts_a_worker_and_the_grace_period_holds_the_next_start_up() {
        let mut policy = Triggers::new(CONFIG);
        assert_eq!(at(&mut policy, 0, 1, 0, 0).start, 1);
        assert_eq!(at(&mut policy, 10, 0, 0, 0), Decision::default());
        let early = at(&mut policy, 400, 1, 0, 0);
        assert_eq!((early.start, early.look_after), (0, Some(Duration::from_millis(600))));
        assert_eq!(at(&mut policy, 1_000, 1, 0, 0).start, 1);
    }

    #[test]
    fn the_threshold_has_a_grace_period_of_its_own_and_stops_at_the_maximum() {
        let mut policy = Triggers::new(CONFIG);
        assert_eq!(at(&mut policy, 0, 50, 0, 0).start, 1);
        assert_eq!(at(&mut policy, 1, 10, 1, 0).start, 0);
        assert_eq!(at(&mut policy, 2, 11, 1, 0).start, 1);
        assert_eq!(at(&mut policy, 2_000, 99, 2, 0).start, 0);
    }

    #[test]
    fn a_step_at_its_maximum_that_still_grows_ends_the_workflow_only_where_the_manifest_says_so() {
        let mut policy = Triggers::new(CONFIG);
        // What was refused before the maximum was at work does not count.
        assert!(!at(&mut policy, 0, 99, 1, 7).ends_workflow);
        assert!(!at(&mut policy, 1, 99, 2, 9).ends_workflow);
        assert!(at(&mut policy, 2, 99, 2, 10).ends_workflow);

        let mut patient = Triggers::new(TriggersConfig { ends_workflow: false, ..CONFIG });
        assert_eq!(at(&mut patient, 0, 99, 2, 0), Decision::default());
        assert_eq!(at(&mut patient, 1, 99, 2, 50), Decision::default());
    }

    #[test]
    fn a_lower_maximum_ends_workers() {
        let mut policy = Triggers::new(TriggersConfig { maximum: 0, ..CONFIG });
        assert_eq!(at(&mut policy, 0, 5, 3, 0), Decision { stop: 3, ..Decision::default() });
    }
}
