//! As few workers as keep events from waiting longer than the target.
//!
//! ```text
//!   wanted = ready · service time / target          the last of those ready begins within the target
//!   wanted > arrivals a second · service time       as many come as go
//!   wanted = workers + half of them                 if the oldest waits longer all the same and everybody is busy
//! ```
//! The first two lines act at once, before anything has gone wrong. The third is for what they do not know: handlers
//! that hang, service times that change. It acts at most once in a target's time, and only upwards: workers end by
//! themselves when the queue is empty, never because a measurement wavers, so nothing swings.

use crate::overload::Refusals;
use crate::{Decision, Observation, Overload, Policy, excess};
use std::time::Duration;

/// How often a queue that is worked on is looked at, as a part of the target.
const LOOKS_PER_TARGET: u32 = 4;
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencyConfig {
    /// Workers at once. 0 pauses the queue.
    pub maximum: u32,
    /// How long an event may wait before another worker starts.
    pub target: Duration,
    /// Whether the workflow ends when a push was refused for want of room while the maximum was at work. Else the push
    /// is refused and that is all.
    pub ends_workflow: bool,
}

pub struct Latency {
    config: LatencyConfig,
    /// When the age of an event last started a worker.
    grown: Option<Duration>,
    /// Since when events have been ready without a break: an age the wall clock cannot change.
    ready_since: Option<Duration>,
    refusals: Refusals,
}

impl Latency {
    pub fn new(config: LatencyConfig) -> Self {
        Self { config, grown: None, ready_since: None, refusals: Refusals::default() }
    }

    /// Workers that begin the last of the ready events within the target, as far as can be known.
    fn needed(&self, seen: &Observation) -> u32 {
        let Some(service) = seen.service_time else { return 1 };
        let backlog = service.as_secs_f64() * seen.ready as f64 / self.config.target.as_secs_f64();
        let load = service.as_secs_f64() * seen.arrival_rate;
        // Casts that saturate.
        (backlog.ceil() as u32).max((load as u32).saturating_add(1))
    }

    /// Whether somebody has to help those who work.
    fn is_late(&mut self, now: Duration, seen: &Observation) -> bool {
        let LatencyConfig { target, .. } = self.config;
        let since = *self.ready_since.get_or_insert(now);
        // The wall clock alone would start workers when it jumps ahead, time since the queue filled alone when there is
        // always something ready but nothing waits for long.
        let is_old = seen.oldest_age > target && now.saturating_sub(since) > target;
        // Nobody takes anything: told without the wall clock, which may have jumped back.
        let is_stuck = now.saturating_sub(since.max(seen.last_lease)) > target;
        let has_rested = self.grown.is_none_or(|grown| now.saturating_sub(grown) >= target);
        (is_old || is_stuck) && has_rested && seen.busy >= seen.workers
    }
}

impl Policy for Latency {
    fn decide(&mut self, now: Duration, seen: &Observation) -> Decision {
        let LatencyConfig { maximum, target, ends_workflow } = self.config;
        let reachable = seen.reachable(maximum);
        if ends_workflow && self.refusals.are_there(seen, reachable) {
            return Decision::end(Overload::Full);
        }
        if seen.ready == 0 {
            self.ready_since = None;
            return Decision { stop: excess(seen.workers, maximum), ..Decision::default() };
        }
        let mut wanted = self.needed(seen).max(seen.workers);
        if seen.workers > 0 && self.is_late(now, seen) {
            self.grown = Some(now);
            wanted = wanted.max(seen.workers + seen.workers.div_ceil(2));
        }
        // Nobody is started for whom there is no event.
        let idle = seen.workers.saturating_sub(seen.busy);
        let useful = u32::try_from(seen.ready).unwrap_or(u32::MAX).saturating_sub(idle);
        let start = wanted.min(reachable).saturating_sub(seen.workers).min(useful);
        let look_after = (maximum > 0).then(|| (target / LOOKS_PER_TARGET).clamp(LOOK_MIN, LOOK_MAX));
        Decision { start, stop: excess(seen.workers, maximum), look_after, ends_workflow: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: LatencyConfig =
        LatencyConfig { maximum: 8, target: Duration::from_millis(100), ends_workflow: false };

    fn seen(ready: u64, workers: u32, service_ms: u64, age_ms: u64) -> Observation {
        let service_time = (service_ms > 0).then(|| Duration::from_millis(service_ms));
        let oldest_age = Duration::from_millis(age_ms);
        // Somebody has just taken one, whenever that is.
        let last_lease = Duration::MAX;
        Observation { ready, workers, busy: workers, service_time, oldest_age, last_lease, ..Observation::default() }
    }

    fn start(policy: &mut Latency, ms: u64, seen: Observation) -> u32 {
        policy.decide(Duration::from_millis(ms), &seen).start
    }

    #[test]
    fn a_burst_starts_at_once_as_many_as_it_needs_and_no_more_than_there_are_events() {
        assert_eq!(start(&mut Latency::new(CONFIG), 0, seen(1, 0, 0, 0)), 1);
        assert_eq!(start(&mut Latency::new(CONFIG), 0, seen(100, 0, 0, 0)), 1);
        assert_eq!(start(&mut Latency::new(CONFIG), 0, seen(100, 0, 5, 0)), 5);
        assert_eq!(start(&mut Latency::new(CONFIG), 0, seen(100, 2, 5, 0)), 3);
        assert_eq!(start(&mut Latency::new(CONFIG), 0, seen(10_000, 2, 5, 0)), 6);
        assert_eq!(start(&mut Latency::new(CONFIG), 0, seen(3, 0, 1_000, 0)), 3);
    }

    #[test]
    fn an_old_event_gets_help_once_in_a_targets_time() {
        let mut policy = Latency::new(CONFIG);
        assert_eq!(start(&mut policy, 0, seen(5, 2, 1, 0)), 0);
        assert_eq!(start(&mut policy, 101, seen(5, 2, 1, 101)), 1);
        assert_eq!(start(&mut policy, 150, seen(5, 3, 1, 150)), 0);
        assert_eq!(start(&mut policy, 201, seen(5, 3, 1, 201)), 2);
    }

    #[test]
    fn a_wall_clock_that_jumps_starts_nobody() {
        let mut policy = Latency::new(CONFIG);
        assert_eq!(start(&mut policy, 0, seen(2, 1, 1, 0)), 0);
        assert_eq!(start(&mut policy, 10, seen(2, 1, 1, 3_600_000)), 0);
        assert_eq!(start(&mut policy, 20, seen(0, 1, 1, 0)), 0);
        assert_eq!(start(&mut policy, 30, seen(1, 1, 1, 3_600_000)), 0);
    }

    #[test]
    fn workers_that_all_hang_get_help_though_the_clock_says_nothing_is_old() {
        let mut policy = Latency::new(CONFIG);
        let hung = |workers| Observation { last_lease: Duration::ZERO, ..seen(5, workers, 1, 0) };
        assert_eq!(start(&mut policy, 0, hung(1)), 0);
        assert_eq!(start(&mut policy, 101, hung(1)), 1);
    }

    #[test]
    fn as_many_work_as_the_load_needs_before_a_backlog_says_so() {
        let load = Observation { arrival_rate: 450.0, ..seen(8, 1, 10, 0) };
        assert_eq!(start(&mut Latency::new(CONFIG), 0, load), 4);
    }

    #[test]
    fn no_more_are_started_than_the_workflow_leaves() {
        let full = |room| Observation { workflow_room: Some(room), ..seen(100, 2, 50, 0) };
        assert_eq!([0, 2, 9].map(|room| start(&mut Latency::new(CONFIG), 0, full(room))), [0, 2, 6]);
    }

    #[test]
    fn a_paused_queue_is_not_even_looked_at() {
        let mut policy = Latency::new(LatencyConfig { maximum: 0, ..CONFIG });
        assert_eq!(policy.decide(Duration::ZERO, &seen(5, 0, 1, 500)), Decision::default());
    }
}
