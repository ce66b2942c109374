//! What choosing and planning cost in a large town: `cargo run --release -p choice --example town [NODES [CALLS]]`.
//!
//! CALLS are those of each node, 100 if it is not said. The last line is one JSON object.

#[path = "../tests/town/world.rs"]
mod world;

use choice::{Asked, Choice, Copies, Demand, NodeId, Planner, Report, Truth};
use random::Random;
use std::hint::black_box;
use std::time::Instant;
use world::{Policy, Town, World};

const CANDIDATES: u32 = 32;
const TURNS: u32 = 100_000;
const FUNCTIONS: usize = 1_000;
const ENTRIES: usize = 32;

fn main() {
    let nodes = std::env::args().nth(1).map_or(10_000, |nodes| nodes.parse().expect("a number of nodes"));
    let calls: usize = std::env::args().nth(2).map_or(100, |calls| calls.parse().expect("a number of calls"));
    let mut worst = (0.0f64, 0.0f64);
    for load in [0.3, 0.5, 0.7] {
        let town = Town { nodes, calls: (calls * nodes).max(60_000), ..Town::of(load) };
        let began = Instant::now();
        let (ours, oracle) = (World::new(1, Policy::Ours, town).run(), World::new(1, Policy::Oracle, town).run());
        let (mean, p99) = (ours.mean() / oracle.mean() - 1.0, ours.p99() / oracle.p99() - 1.0);
        worst = (worst.0.max(mean), worst.1.max(p99));
        println!(
            "load {load}: ours {:.1} ms, p99 {:.1}; oracle {:.1}, p99 {:.1}; {} refusals of {} calls; {:.0} s",
            ours.mean() * 1e3,
            ours.p99() * 1e3,
            oracle.mean() * 1e3,
            oracle.p99() * 1e3,
            ours.refused,
            town.calls,
            began.elapsed().as_secs_f64()
        );
    }
    for policy in [Policy::Believing, Policy::Nearest] {
        let town = Town { nodes, calls: calls * nodes * 3 / 10, ..Town::of(0.5) };
        let outcome = World::new(1, policy, town).run();
        println!("load 0.5, {policy:?}: {:.1} ms, p99 {:.1}", outcome.mean() * 1e3, outcome.p99() * 1e3);
    }
    println!(
        "{{\"sim_nodes\": {nodes}, \"sim_regret_mean\": {:.3}, \"sim_regret_p99\": {:.3}, \"choice_us\": {:.2}, \
         \"plan_ms_{nodes}\": {:.1}}}",
        worst.0,
        worst.1,
        choice_us(),
        plan_ms(nodes)
    );
}

/// One choice among [`CANDIDATES`] nodes for a function that is known on all of them.
fn choice_us() -> f64 {
    let mut choice = Choice::new(0, 1.0);
    let nodes: Vec<NodeId> = (1..=CANDIDATES).collect();
    for node in &nodes {
        let report = Report { truth: Truth { backlog: 0.0 }, places: 4, speed: 1.0 };
        choice.hear(*node, report, Some(0.002), 0.0);
        for turn in 0..10 {
            choice.ran(*node, "f", 1_000 << turn, 0.001, f64::from(turn));
        }
    }
    let began = Instant::now();
    for turn in 0..TURNS {
        let here = Some(Truth { backlog: 0.02 });
        let asked = Asked { function: "f", bytes: 5_000, usual: None, here, refused: &[] };
        black_box(choice.choose(&asked, &nodes, 10.0 + f64::from(turn) * 1e-3));
    }
    began.elapsed().as_secs_f64() * 1e6 / f64::from(TURNS)
}

/// A square lattice of nodes, a tenth of a millisecond apart.
struct Lattice {
    side: usize,
    near: Vec<Vec<NodeId>>,
}

impl Lattice {
    fn new(nodes: usize) -> Self {
        let side = (nodes as f64).sqrt() as usize;
        let near = (0..side * side).map(|node| {
            let (x, y) = ((node % side) as i64, (node / side) as i64);
            let around = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1)];
            let wrap = |at: i64| at.rem_euclid(side as i64) as usize;
            around.iter().map(|(right, down)| (wrap(y + down) * side + wrap(x + right)) as NodeId).collect()
        });
        Self { side, near: near.collect() }
    }
}

impl choice::Town for Lattice {
    fn round_trip(&self, from: NodeId, to: NodeId) -> f64 {
        let place = |node: NodeId| ((node as usize % self.side) as f64, (node as usize / self.side) as f64);
        let ((x, y), (u, v)) = (place(from), place(to));
        0.001 + 1e-4 * (x - u).hypot(y - v)
    }

    fn near(&self, node: NodeId) -> &[NodeId] {
        &self.near[node as usize]
    }

    fn fits(&self, _: &str, _: NodeId) -> bool {
        true
    }

    fn spare(&self, _: NodeId) -> f64 {
        3.0
    }
}

/// The longest turn of the planner in a minute in which nothing changes. Each function is planned anew once.
fn plan_ms(nodes: usize) -> f64 {
    let lattice = Lattice::new(nodes);
    let mut random = Random(1);
    let copies = Copies { least: 1, most: 20, round_trip: Some(0.005) };
    let demands: Vec<Demand> = (0..FUNCTIONS)
        .map(|number| Demand {
            function: format!("f{number}"),
            entries: (0..ENTRIES)
                .map(|_| ((random.share() * (lattice.side * lattice.side) as f64) as NodeId, random.share() * 10.0))
                .collect(),
            run: 0.005,
            copies,
        })
        .collect();
    let mut planner = Planner::default();
    let began = Instant::now();
    let first = planner.plan(&lattice, &demands, 0.0);
    let took = began.elapsed();
    println!(
        "{} copies for {FUNCTIONS} functions, planned from nothing in {:.0} ms",
        first.len(),
        took.as_secs_f64() * 1e3
    );
    let mut worst = 0.0f64;
    for turn in 1..=60 {
        let began = Instant::now();
        black_box(planner.plan(&lattice, &demands, f64::from(turn)));
        worst = worst.max(began.elapsed().as_secs_f64() * 1e3);
    }
    worst
}
