//! A town of nodes and callers in virtual time: how much longer calls take than they must.
//!
//! The measure is an oracle that knows all queues at every moment and goes the same way as we do: a call enters at the
//! node nearest to its caller, and runs there or one hop away.

mod world;

use world::{Outcome, Policy, Town, World};

const SEEDS: u64 = 2;

fn run(seed: u64, policy: Policy, town: Town) -> Outcome {
    World::new(seed, policy, town).run()
}

/// How much more than the oracle's: of the mean, and of the 99th percentile.
fn regret(seed: u64, town: Town) -> (f64, f64) {
    let (ours, oracle) = (run(seed, Policy::Ours, town), run(seed, Policy::Oracle, town));
    (ours.mean() / oracle.mean() - 1.0, ours.p99() / oracle.p99() - 1.0)
}

#[test]
fn calls_take_little_longer_than_an_oracle_would_have_them_take() {
    for load in [0.3, 0.5, 0.7] {
        for seed in 0..SEEDS {
            let (mean, p99) = regret(seed, Town::of(load));
            assert!(mean <= 0.3 && p99 <= 1.0, "load {load}, seed {seed}: mean +{mean:.2}, p99 +{p99:.2}");
        }
    }
}

/// A town that has just begun: each gate has made a hundred calls, and knows each way by one measurement. Receivers
/// that refused whatever was 10 ms busier than expected made this town's calls take 0.37 longer than the oracle's: a
/// refusal cost more than the wait that it spared.
#[test]
fn a_cold_town_is_no_exception() {
    let (mean, p99) = regret(1, Town { nodes: 1_000, calls: 100_000, ..Town::of(0.3) });
    assert!(mean <= 0.3 && p99 <= 1.0, "mean +{mean:.2}, p99 +{p99:.2}");
}

/// A fifth of all callers are at one place. What its gates may use is their cells: a larger crowd would fill those.
#[test]
fn a_stadium_is_served_by_the_town_around_it() {
    for seed in 0..SEEDS {
        let (mean, p99) = regret(seed, Town { stadium: 0.2, ..Town::of(0.5) });
        assert!(mean <= 0.6 && p99 <= 3.0, "seed {seed}: mean +{mean:.2}, p99 +{p99:.2}");
    }
}

/// Why receivers refuse: gates that believe what they heard seconds ago send all their calls to the same node.
#[test]
fn without_refusals_there_is_a_herd() {
    let town = Town { calls: 20_000, ..Town::of(0.5) };
    let (ours, believing) = (run(1, Policy::Ours, town), run(1, Policy::Believing, town));
    assert!(believing.mean() > 5.0 * ours.mean(), "{} beside {}", believing.mean(), ours.mean());
    let nearest = run(1, Policy::Nearest, town);
    assert!(nearest.mean() > 5.0 * ours.mean(), "{} beside {}", nearest.mean(), ours.mean());
}

#[test]
fn one_seed_is_one_history() {
    let town = Town { calls: 5_000, ..Town::of(0.7) };
    let (one, other) = (run(7, Policy::Ours, town), run(7, Policy::Ours, town));
    assert_eq!((one.mean(), one.p99(), one.refused), (other.mean(), other.p99(), other.refused));
}
