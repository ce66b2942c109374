//! Mail between households whose nodes crash and whose ways lose, double, delay and damage it, in virtual time.
//!
//! One seed decides everything: what is pushed when, which node is killed or loses what its disk had not synced, what
//! the engine forgets, which backup is put back and which household moves. Then everything works again, and: what was
//! pushed has arrived exactly once, in order for each pair of households; nothing else has; what was lost with a
//! restored disk was told. `LIGHTER_SEEDS=100000 cargo test --release -p mail --test simulation` runs more seeds,
//! `LIGHTER_SEEDS=100000..200000` the next ones, and `LIGHTER_SEED=7` one of them.

mod disk;
mod history;
mod net;
mod node;
mod world;

use history::Fate;
use node::{PLANTS, Plant};
use std::ops::Range;
use world::World;

/// Without `LIGHTER_SEEDS`.
const SEEDS: u64 = 200;
/// Within so many seeds each planted fault is found.
const PLANTED_SEEDS: u64 = 1_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("LIGHTER_SEEDS") else { return 0..SEEDS };
    let (first, end) = text.split_once("..").unwrap_or(("0", &text));
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text:?} in LIGHTER_SEEDS is no number"));
    let seeds = number(first)..number(end);
    assert!(!seeds.is_empty(), "LIGHTER_SEEDS={text} is no seed");
    seeds
}

#[test]
fn what_is_pushed_arrives_exactly_once() {
    let run = |seed: u64| {
        let played = World::new(seed, Plant::None).run();
        played.unwrap_or_else(|fault| panic!("seed {seed}: {fault}; LIGHTER_SEED={seed} runs it again"))
    };
    if let Some(seed) = number("LIGHTER_SEED") {
        run(seed);
        return;
    }
    let seeds = seeds();
    let (mut kept, mut gone, mut forgotten, mut stale, mut rolled_back, mut lost) = (0, 0, 0, 0, 0, 0);
    for seed in seeds.clone() {
        let history = run(seed);
        let count = |fate: Fate| history.pushes.iter().filter(|push| push.fate == fate).count();
        kept += count(Fate::Kept);
        gone += count(Fate::Gone);
        forgotten += count(Fate::Forgotten);
        stale += count(Fate::Stale);
        rolled_back += history.rolled_back.len();
        lost += history.lost.len();
    }
    // A simulation in which nothing happens proves nothing.
    println!(
        "{seeds:?}: {kept} letters kept, {gone} gone in power cuts, {forgotten} forgotten by restores, {stale} stale; \
         {rolled_back} outboxes rolled back, {lost} inboxes with losses"
    );
    assert!(
        [kept, gone, forgotten, stale, rolled_back, lost].into_iter().all(|count| count > 0)
            || seeds.count() < SEEDS as usize
    );
}

#[test]
fn each_planted_fault_is_found() {
    for plant in PLANTS {
        let found = (0..PLANTED_SEEDS).find_map(|seed| Some((seed, World::new(seed, plant).run().err()?)));
        let (seed, fault) = found.unwrap_or_else(|| panic!("{plant:?} is not found in {PLANTED_SEEDS} seeds"));
        println!("{plant:?}: seed {seed}: {fault}");
    }
}
