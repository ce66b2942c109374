//! A queue, its workers and a policy in virtual time, many seeds each. A failure names its seed.
//!
//! What is checked holds for every policy: never above the maximum, every event is taken, an idle queue has no worker,
//! and an event that comes when nobody works has a worker at once, also within the grace period of one that has ended.

mod world;

use orchestrator::{Latency, LatencyConfig, Overload, Policy, Triggers, TriggersConfig};
use std::time::Duration;
use world::{Jump, Load, Report, World};

const SEEDS: u64 = 100;
const SECOND: Duration = Duration::from_secs(1);
const TARGET: Duration = Duration::from_millis(100);
const GRACE: Duration = Duration::from_millis(500);

fn latency(maximum: u32) -> Box<dyn Policy> {
    Box::new(Latency::new(LatencyConfig { maximum, target: TARGET, ends_workflow: false }))
}

fn triggers(maximum: u32) -> Box<dyn Policy> {
    Box::new(triggers_that_end(maximum, false))
}

fn triggers_that_end(maximum: u32, ends_when_growing: bool) -> Triggers {
    let (threshold, grace, ends_when_full) = (10, GRACE, false);
    Triggers::new(TriggersConfig { maximum, threshold, grace, ends_when_full, ends_when_growing })
}

/// Runs all seeds of a load with both policies; `check` hears which, and what happened.
fn each(load: impl Fn(u64) -> Load, check: impl Fn(&str, &Report)) {
    type Make = fn(u32) -> Box<dyn Policy>;
    for (name, make) in [("latency", latency as Make), ("triggers", triggers as Make)] {
        for seed in 0..SEEDS {
            let maximum = [1, 3, 10, 64][(seed % 4) as usize];
            let load = load(seed);
            let report = World::new(seed, make(maximum), load).run();
            let place = format!("{name}, seed {seed}, maximum {maximum}");
            assert!(report.workers_max <= maximum, "{place}: {} workers", report.workers_max);
            assert_eq!(report.handled, report.arrived, "{place}: not all were handled");
            assert_eq!(report.workers_at_the_end, 0, "{place}");
            assert_eq!(report.reaction_max, Duration::ZERO, "{place}: nobody came");
            assert_eq!(report.ended, None, "{place}");
            check(name, &report);
        }
    }
}

#[test]
fn bursts_are_drained() {
    each(|seed| Load::bursts(seed, 200, Duration::from_millis(5)), |_, _| {});
}

#[test]
fn a_trickle_holds_no_worker_between_its_events() {
    each(
        |seed| Load::steady(seed, 2.0, 30 * SECOND, Duration::from_millis(3)),
        |name, report| assert!(report.busy_share < 0.02, "{name}: workers for {} of the time", report.busy_share),
    );
}

#[test]
fn slow_handlers_are_drained_by_more_workers() {
    each(|seed| Load::bursts(seed, 60, Duration::from_millis(700)), |_, _| {});
}

#[test]
fn hung_handlers_hold_up_only_their_own_worker() {
    each(|seed| Load { hang_share: 0.1, ..Load::steady(seed, 20.0, 20 * SECOND, Duration::from_millis(4)) }, |_, _| {});
}

#[test]
fn clock_jumps_back_and_forth_change_nothing_that_matters() {
    let jumps = vec![
        Jump { at: 3 * SECOND, by_ms: 3_600_000 },
        Jump { at: 6 * SECOND, by_ms: -7_200_000 },
        Jump { at: 9 * SECOND, by_ms: 86_400_000 },
    ];
    each(
        |seed| Load { jumps: jumps.clone(), ..Load::steady(seed, 50.0, 12 * SECOND, Duration::from_millis(4)) },
        |name, report| {
            // A load of a fifth of one worker.
            assert!(report.workers_max <= 3, "{name}: {} workers", report.workers_max);
        },
    );
}

#[test]
fn latency_keeps_the_wait_within_reach_of_its_target_and_does_not_swing() {
    for seed in 0..SEEDS {
        // 5 workers are busy four fifths of the time.
        let load = Load::steady(seed, 400.0, 30 * SECOND, Duration::from_millis(10));
        let report = World::new(seed, latency(64), load).run();
        assert!(report.wait_p99 <= 2 * TARGET, "seed {seed}: p99 of the wait is {:?}", report.wait_p99);
        assert!(report.workers_max <= 12, "seed {seed}: {} workers for a load of 4", report.workers_max);
        assert_eq!(report.stopped, 0, "seed {seed}: workers were ended while there was work");
    }
}

#[test]
fn latency_helps_when_every_worker_hangs() {
    for seed in 0..SEEDS {
        let load = Load { hang_share: 0.5, ..Load::steady(seed, 10.0, 20 * SECOND, Duration::from_millis(4)) };
        let report = World::new(seed, latency(1_000), load).run();
        // Two hang each second for ten seconds; the others get through.
        assert!(report.wait_p99 <= 4 * TARGET, "seed {seed}: p99 of the wait is {:?}", report.wait_p99);
    }
}

#[test]
fn steps_share_the_maximum_of_their_workflow_and_all_events_are_handled() {
    let workflow_max = Some(12);
    each(
        |seed| Load { workflow_max, ..Load::bursts(seed, 200, Duration::from_millis(5)) },
        |name, report| assert!(report.workers_max <= 12, "{name}: {} workers", report.workers_max),
    );
    each(|seed| Load { workflow_max, ..Load::steady(seed, 40.0, 20 * SECOND, Duration::from_millis(20)) }, |_, _| {});
}

#[test]
fn a_step_at_its_maximum_that_goes_on_growing_ends_its_workflow_and_one_that_keeps_up_does_not() {
    for seed in 0..SEEDS {
        // Two workers can do 200 a second.
        let run = |per_second, ends| {
            let load = Load::steady(seed, per_second, 20 * SECOND, Duration::from_millis(10));
            World::new(seed, Box::new(triggers_that_end(2, ends)), load).run()
        };
        let (overload, at) = run(400.0, true).ended.unwrap_or_else(|| panic!("seed {seed}: it goes on"));
        assert_eq!(overload, Overload::Growing, "seed {seed}");
        // The maximum is at work after one grace period at most, and it grows for another.
        assert!(at <= 4 * GRACE, "seed {seed}: it took {at:?}");
        assert_eq!(run(60.0, true).ended, None, "seed {seed}");
        assert_eq!(run(400.0, false).ended, None, "seed {seed}: it is not asked for");
    }
}
