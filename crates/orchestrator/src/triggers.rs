//! UniFaaS's policy: triggers on the size of the queue, each with a grace period, up to a maximum.
//!
//! | trigger | when | does |
//! |---|---|---|
//! | first | events are ready and nobody works | starts a worker |
//! | threshold | as many events are ready as the threshold, or more | starts another worker |
//! | emptied | nothing is ready any more | workers end, by themselves |
//!
//! Checked before a start: the step has fewer workers than its maximum, the workflow fewer than its own, and the grace
//! period since the last start by the same trigger is over. A worker that ends sets both grace periods to zero: what
//! they give time to, a worker that has just been started, is not there any more. The paper starts one unit at a time;
//! so does this.

use crate::overload::{Growth, Refusals};
use crate::{Decision, Observation, Overload, Policy, excess};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriggersConfig {
    /// Workers at once. 0 pauses the queue.
    pub maximum: u32,
    /// Ready events from which on another worker starts.
    pub threshold: u64,
    /// Pause after a start before the same trigger starts another.
    pub grace: Duration,
    /// Whether the workflow ends when a push was refused for want of room while the maximum was at work. Else the push
    /// is refused and that is all.
    pub ends_when_full: bool,
    /// Whether the workflow ends when the queue, at its threshold, has grown for a grace period while the maximum was
    /// at work.
    pub ends_when_growing: bool,
}

pub struct Triggers {
    config: TriggersConfig,
    first: Option<Duration>,
    threshold: Option<Duration>,
    /// Workers that had ended at the last decision.
    ended: u64,
    refusals: Refusals,
    growth: Growth,
}

impl Triggers {
    pub fn new(config: TriggersConfig) -> Self {
        Self {
            config,
            first: None,
            threshold: None,
            ended: 0,
            refusals: Refusals::default(),
            growth: Growth::default(),
        }
    }

    /// Why the workflow ends, if it does; else when to look whether it should.
    fn overload(&mut self, now: Duration, seen: &Observation) -> (Option<Overload>, Option<Duration>) {
        let TriggersConfig { maximum, threshold, grace, ends_when_full, ends_when_growing } = self.config;
        let reachable = seen.reachable(maximum);
        if ends_when_full && self.refusals.are_there(seen, reachable) {
            return (Some(Overload::Full), None);
        }
        if !ends_when_growing {
            return (None, None);
        }
        let (has_grown, look_after) = self.growth.is_there(now, seen, reachable, (threshold, grace));
        (has_grown.then_some(Overload::Growing), look_after)
    }
}

impl Policy for Triggers {
    fn decide(&mut self, now: Duration, seen: &Observation) -> Decision {
        let TriggersConfig { maximum, threshold, grace, .. } = self.config;
        let (overload, look_after) = self.overload(now, seen);
        if let Some(overload) = overload {
            return Decision::end(overload);
        }
        if seen.ended > self.ended {
            (self.first, self.threshold, self.ended) = (None, None, seen.ended);
        }
        let rest = Decision { stop: excess(seen.workers, maximum), look_after, ..Decision::default() };
        let last_start = match (seen.ready, seen.workers) {
            (0, _) => return rest,
            (_, 0) => &mut self.first,
            (ready, _) if ready >= threshold => &mut self.threshold,
            _ => return rest,
        };
        if seen.workers >= seen.reachable(maximum) {
            return rest;
        }
        match remaining(*last_start, grace, now) {
            Duration::ZERO => {
                *last_start = Some(now);
                // The queue may stay at the threshold without anything else happening.
                Decision { start: 1, look_after: Some(grace), ..Decision::default() }
            }
            left => Decision { look_after: Some(left), ..Decision::default() },
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

    const CONFIG: TriggersConfig = TriggersConfig {
        maximum: 2,
        threshold: 10,
        grace: Duration::from_secs(1),
        ends_when_full: true,
        ends_when_growing: false,
    };

    fn seen(ready: u64, workers: u32) -> Observation {
        Observation { ready, workers, busy: workers, ..Observation::default() }
    }

    fn at(policy: &mut Triggers, ms: u64, seen: Observation) -> Decision {
        policy.decide(Duration::from_millis(ms), &seen)
    }

    #[test]
    fn the_first_event_starts_a_worker_and_the_grace_period_holds_the_next_start_up() {
        let mut policy = Triggers::new(CONFIG);
        assert_eq!(at(&mut policy, 0, seen(1, 0)).start, 1);
        // It has not come to count as a worker yet.
        let early = at(&mut policy, 400, seen(1, 0));
        assert_eq!((early.start, early.look_after), (0, Some(Duration::from_millis(600))));
        assert_eq!(at(&mut policy, 1_000, seen(1, 0)).start, 1);
    }

    /// The paper sets the grace period to zero when a unit ends; it used to last on here, so that the first event after
    /// a worker had emptied the queue waited for the rest of it.
    #[test]
    fn a_worker_that_ends_sets_the_grace_periods_to_zero() {
        let ended = |ready, workers, ended| Observation { ended, ..seen(ready, workers) };
        let mut policy = Triggers::new(CONFIG);
        assert_eq!(at(&mut policy, 0, ended(1, 0, 0)).start, 1);
        assert_eq!(at(&mut policy, 10, ended(0, 0, 1)), Decision::default());
        assert_eq!(at(&mut policy, 11, ended(1, 0, 1)).start, 1);
        // Of both triggers; and only once for each end.
        assert_eq!(at(&mut policy, 12, ended(10, 1, 1)).start, 1);
        assert_eq!(at(&mut policy, 13, ended(10, 1, 2)).start, 1);
        assert_eq!(at(&mut policy, 14, ended(10, 1, 2)).start, 0);
    }

    #[test]
    fn the_threshold_has_a_grace_period_of_its_own_and_stops_at_the_maximum() {
        let mut policy = Triggers::new(CONFIG);
        assert_eq!(at(&mut policy, 0, seen(50, 0)).start, 1);
        assert_eq!(at(&mut policy, 1, seen(9, 1)).start, 0);
        assert_eq!(at(&mut policy, 2, seen(10, 1)).start, 1, "it is reached, not passed");
        assert_eq!(at(&mut policy, 2_000, seen(99, 2)).start, 0);
    }

    #[test]
    fn the_maximum_of_the_workflow_holds_a_start_up_until_another_step_leaves_room() {
        let mut policy = Triggers::new(CONFIG);
        let room = |ready, workers, room| Observation { workflow_room: Some(room), ..seen(ready, workers) };
        assert_eq!(at(&mut policy, 0, room(5, 0, 0)).start, 0);
        assert_eq!(at(&mut policy, 1, room(5, 0, 1)).start, 1, "what was held up has begun no grace period");
        assert_eq!(at(&mut policy, 2, room(10, 1, 0)).start, 0);
        assert_eq!(at(&mut policy, 3, room(10, 1, 3)).start, 1);
        assert_eq!(at(&mut policy, 4, room(10, 2, 3)).start, 0);
    }

    #[test]
    fn a_step_at_its_maximum_that_is_full_ends_the_workflow_only_where_the_manifest_says_so() {
        let refused = |workers, refused| Observation { refused, ..seen(99, workers) };
        let mut policy = Triggers::new(CONFIG);
        // What was refused before the maximum was at work does not count.
        assert_eq!(at(&mut policy, 0, refused(1, 7)).ends_workflow, None);
        assert_eq!(at(&mut policy, 1, refused(2, 9)).ends_workflow, None);
        assert_eq!(at(&mut policy, 2, refused(2, 10)).ends_workflow, Some(Overload::Full));

        let mut patient = Triggers::new(TriggersConfig { ends_when_full: false, ..CONFIG });
        assert_eq!(at(&mut patient, 0, refused(2, 0)), Decision::default());
        assert_eq!(at(&mut patient, 1, refused(2, 50)), Decision::default());
    }

    #[test]
    fn a_step_at_its_maximum_whose_queue_grows_for_a_grace_period_ends_the_workflow_where_it_says_so() {
        let config = TriggersConfig { ends_when_growing: true, ..CONFIG };
        let mut policy = Triggers::new(config);
        assert_eq!(at(&mut policy, 0, seen(50, 1)).ends_workflow, None, "it is not at its maximum");
        assert_eq!(at(&mut policy, 1, seen(50, 2)).look_after, Some(Duration::from_secs(1)));
        assert_eq!(at(&mut policy, 500, seen(90, 2)).ends_workflow, None);
        assert_eq!(at(&mut policy, 1_001, seen(49, 2)).ends_workflow, None, "it came and went");
        assert_eq!(at(&mut policy, 2_001, seen(50, 2)).ends_workflow, Some(Overload::Growing));

        let mut below = Triggers::new(config);
        for (ms, ready) in [(0, 1), (1_000, 5), (2_000, 9)] {
            assert_eq!(at(&mut below, ms, seen(ready, 2)).ends_workflow, None, "the threshold is not reached");
        }
        let mut patient = Triggers::new(CONFIG);
        for ms in [0, 1_000, 2_000] {
            assert_eq!(at(&mut patient, ms, seen(100 + ms, 2)), Decision::default());
        }
    }

    #[test]
    fn a_lower_maximum_ends_workers() {
        let mut policy = Triggers::new(TriggersConfig { maximum: 0, ..CONFIG });
        assert_eq!(at(&mut policy, 0, seen(5, 3)), Decision { stop: 3, ..Decision::default() });
    }
}
