//! What is known of one function: how long it runs by size, and how much faster or slower that is on each node.

use crate::NodeId;
use crate::curve::Curve;
use crate::guess::Guess;
use crate::level::Level;
use std::collections::BTreeMap;

/// Of a function that nobody has ever seen: a millisecond, give or take a factor of twenty.
const FIRST_SECONDS: f64 = 1e-3;
const FIRST_VARIANCE: f64 = 9.0;
/// How far calls of one function are from what is usual of it.
const USUAL_VARIANCE: f64 = 0.25;
/// How unsure a node's speed is, which was measured with work of one kind.
const SPEED_VARIANCE: f64 = 0.12;
const SPEED_DRIFT: f64 = 5e-3;
/// Nodes of which a function remembers how fast it ran there. The one that was measured longest ago goes.
const NODES_MAX: usize = 64;

/// Run times are those of a node of speed 1.
#[derive(Debug, Clone)]
pub struct RunTimes {
    run: Curve,
    ratios: BTreeMap<NodeId, (Level, f64)>,
}

impl Default for RunTimes {
    fn default() -> Self {
        Self { run: Curve::new(0.3, 1.0, 0.1), ratios: BTreeMap::new() }
    }
}

impl RunTimes {
    /// What a call of this many bytes takes on a node of speed 1. It was measured at least once.
    pub fn usual(&self, bytes: f64) -> Guess {
        self.run.guess(bytes)
    }

    /// The same on a node, which says that it has this speed.
    pub fn on(&self, usual: Guess, node: NodeId, speed: f64, now: f64) -> f64 {
        let (log, variance) = match self.ratios.get(&node) {
            Some((ratio, _)) => {
                let ratio = ratio.guess(now);
                (ratio.log, ratio.variance)
            }
            None => (0.0, SPEED_VARIANCE),
        };
        Guess { log: usual.log - speed.ln() + log, variance: usual.variance + variance, noise: 0.0 }.mean()
    }

    /// It ran there for so long.
    pub fn ran(&mut self, node: NodeId, speed: f64, bytes: f64, seconds: f64, now: f64) {
        let before = self.run.count().gt(&0).then(|| self.run.guess(bytes));
        // A node that says a wrong speed must not change what is thought of the others.
        let slower = self.ratios.get(&node).map_or(1.0, |(ratio, _)| ratio.guess(now).log.exp());
        self.run.observe(bytes, seconds * speed / slower, 0.0);
        let Some(before) = before else { return };
        if !self.ratios.contains_key(&node) && self.ratios.len() >= NODES_MAX {
            let oldest = self.ratios.iter().min_by(|one, other| one.1.1.total_cmp(&other.1.1)).map(|(id, _)| *id);
            oldest.and_then(|oldest| self.ratios.remove(&oldest));
        }
        let (ratio, at) =
            self.ratios.entry(node).or_insert_with(|| (Level::new(1.0, SPEED_VARIANCE, SPEED_DRIFT), now));
        ratio.observe(seconds * speed / before.log.exp(), now, before.variance);
        *at = now;
    }

    pub fn forget(&mut self, node: NodeId) {
        self.ratios.remove(&node);
    }
}

/// What a function takes on a node of speed 1 that this gate has not measured yet, by what others have.
pub fn first(usual: Option<f64>) -> Guess {
    match usual {
        Some(usual) => Guess { log: usual.max(FIRST_SECONDS / 1e3).ln(), variance: USUAL_VARIANCE, noise: 0.0 },
        None => Guess { log: FIRST_SECONDS.ln(), variance: FIRST_VARIANCE, noise: 0.0 },
    }
}
