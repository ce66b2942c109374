//! Which nodes have copies of a stateless function: near its callers, enough for its load, and no more.
//!
//! ```text
//!   who calls from where ─▶ cover: 95 of 100 calls within the bound ─▶ load: at most 70 % of what they have ─▶ least
//!                                                                                                             number
//! ```
//! What is there is kept where it is as good as another, and a copy goes only when it was not needed for a minute: a
//! plan that answers its own steps would flap. A function whose copies are enough is looked at in full once a minute,
//! and at once when they are enough no longer: a turn costs little in a large town.

use crate::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// The part of the calls that find a copy within the bound.
const COVERED: f64 = 0.95;
/// The part of what its nodes have to give that a function may use.
const USED_MAX: f64 = 0.7;
/// How much better a new place must be than a copy that is there.
const KEEPS: f64 = 1.25;
/// Seconds for which a copy is not needed before it goes.
const UNNEEDED: f64 = 60.0;
/// Seconds after which a function is planned anew although its copies are enough.
const PLANNED: f64 = 60.0;
/// Seconds after which a function is planned again that has not enough although all was looked at.
const WANTING: f64 = 5.0;
/// Neighbours of an entry that are looked at.
const NEIGHBOURS: usize = 8;

/// The nodes, as the planner sees them.
pub trait Town {
    /// Seconds from one node to another and back.
    fn round_trip(&self, from: NodeId, to: NodeId) -> f64;
    /// The nodes nearest to one, itself first.
    fn near(&self, node: NodeId) -> &[NodeId];
    /// Whether it is there, and has what the function needs.
    fn fits(&self, function: &str, node: NodeId) -> bool;
    /// Seconds of work (of a node of speed 1) that it can do in a second and that other functions leave it.
    fn spare(&self, node: NodeId) -> f64;
}

/// What is wanted of a function, and how it is used.
#[derive(Debug, Clone)]
pub struct Demand {
    pub function: String,
    /// Calls a second by the node where they enter the fleet.
    pub entries: Vec<(NodeId, f64)>,
    /// What a call takes on a node of speed 1.
    pub run: f64,
    pub copies: Copies,
}

/// `copies` and `rtt` of `[function.F.place]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Copies {
    pub least: usize,
    pub most: usize,
    /// Seconds within which 95 of 100 calls find a copy.
    pub round_trip: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Prepare { function: String, node: NodeId },
    Drop { function: String, node: NodeId },
}

#[derive(Debug, Default)]
pub struct Planner {
    placed: BTreeMap<String, Placed>,
}

/// What one function has.
#[derive(Debug, Default)]
struct Placed {
    /// Each copy with the time since which it is not needed.
    copies: BTreeMap<NodeId, Option<f64>>,
    /// When all of it is looked at next.
    due: f64,
    /// Before then what it lacks is not looked for again: nothing was found.
    again: f64,
}

impl Planner {
    /// Where a function has copies.
    pub fn copies(&self, function: &str) -> Vec<NodeId> {
        self.placed.get(function).map(|placed| placed.copies.keys().copied().collect()).unwrap_or_default()
    }

    /// One turn: what is to be done so that each function is where it should be. A function without a demand keeps
    /// what it has.
    pub fn plan(&mut self, town: &impl Town, demands: &[Demand], now: f64) -> Vec<Step> {
        let mut steps = Vec::new();
        for (number, demand) in demands.iter().enumerate() {
            let placed = self.placed.entry(demand.function.clone()).or_insert_with(|| {
                // Not all in one turn, for ever.
                let share = number as f64 / demands.len() as f64;
                Placed { copies: BTreeMap::new(), due: now + PLANNED * share, again: now }
            });
            let before = placed.copies.len();
            placed.copies.retain(|node, _| town.fits(&demand.function, *node));
            let has_lost = placed.copies.len() < before;
            let is_due = now >= placed.due;
            if is_due || has_lost || (now >= placed.again && !suffices(town, demand, &placed.copies)) {
                placed.turn(town, demand, now, &mut steps);
                placed.due = if is_due { now + PLANNED } else { placed.due };
                placed.again = if suffices(town, demand, &placed.copies) { now } else { now + WANTING };
            }
        }
        steps
    }

    /// The function is no longer there, and its copies go with it.
    pub fn forget(&mut self, function: &str) {
        self.placed.remove(function);
    }
}

impl Placed {
    fn turn(&mut self, town: &impl Town, demand: &Demand, now: f64, steps: &mut Vec<Step>) {
        let wanted = Covering::new(town, demand, &self.copies).nodes();
        for node in &wanted {
            if self.copies.insert(*node, None).is_none() {
                steps.push(Step::Prepare { function: demand.function.clone(), node: *node });
            }
        }
        self.copies.retain(|node, unneeded| {
            *unneeded = if wanted.contains(node) { None } else { Some(unneeded.unwrap_or(now)) };
            let stays = unneeded.is_none_or(|since| now - since < UNNEEDED);
            if !stays {
                steps.push(Step::Drop { function: demand.function.clone(), node: *node });
            }
            stays
        });
    }
}

/// Whether these copies are enough, not whether they are too many.
fn suffices(town: &impl Town, demand: &Demand, copies: &BTreeMap<NodeId, Option<f64>>) -> bool {
    let calls: f64 = demand.entries.iter().map(|(_, rate)| rate).sum();
    let room: f64 = copies.keys().map(|node| town.spare(*node)).sum();
    if copies.len() >= demand.copies.most {
        return true;
    }
    if copies.len() < demand.copies.least || calls * demand.run > USED_MAX * room {
        return false;
    }
    let reached = |entry: NodeId| copies.keys().any(|node| is_within(town, demand, entry, *node));
    let covered: f64 = demand.entries.iter().filter(|(entry, _)| reached(*entry)).map(|(_, rate)| rate).sum();
    covered >= COVERED * calls
}

fn is_within(town: &impl Town, demand: &Demand, entry: NodeId, node: NodeId) -> bool {
    demand.copies.round_trip.is_none_or(|most| entry == node || town.round_trip(entry, node) <= most)
}

/// The greedy cover of one function's callers.
struct Covering<'a, T> {
    town: &'a T,
    demand: &'a Demand,
    present: &'a BTreeMap<NodeId, Option<f64>>,
    candidates: Vec<NodeId>,
    /// By candidate: the entries it reaches within the bound.
    reaches: Vec<Vec<usize>>,
    is_covered: Vec<bool>,
    chosen: BTreeSet<NodeId>,
}

impl<'a, T: Town> Covering<'a, T> {
    fn new(town: &'a T, demand: &'a Demand, present: &'a BTreeMap<NodeId, Option<f64>>) -> Self {
        let near = demand.entries.iter().flat_map(|(entry, _)| town.near(*entry).iter().take(NEIGHBOURS));
        let candidates: BTreeSet<NodeId> = present.keys().chain(near).copied().collect();
        let candidates: Vec<NodeId> =
            candidates.into_iter().filter(|node| town.fits(&demand.function, *node)).collect();
        let within = |node: NodeId| {
            let entries = demand.entries.iter().enumerate();
            entries.filter(|(_, (entry, _))| is_within(town, demand, *entry, node)).map(|(number, _)| number).collect()
        };
        let reaches = candidates.iter().map(|node| within(*node)).collect();
        let is_covered = vec![false; demand.entries.len()];
        Self { town, demand, present, candidates, reaches, is_covered, chosen: BTreeSet::new() }
    }

    fn nodes(mut self) -> BTreeSet<NodeId> {
        let (least, most) = (self.demand.copies.least, self.demand.copies.most.max(1));
        let calls: f64 = self.demand.entries.iter().map(|(_, rate)| rate).sum();
        while self.chosen.len() < most && self.covered() < COVERED * calls && self.add(true) {}
        while self.chosen.len() < most && calls * self.demand.run > USED_MAX * self.room() && self.add(false) {}
        while self.chosen.len() < least.min(most) && self.add(false) {}
        self.chosen
    }

    fn covered(&self) -> f64 {
        let entries = self.demand.entries.iter().zip(&self.is_covered);
        entries.filter(|(_, is_covered)| **is_covered).map(|((_, rate), _)| rate).sum()
    }

    fn room(&self) -> f64 {
        self.chosen.iter().map(|node| self.town.spare(*node)).sum()
    }

    /// Adds the candidate that serves the most calls: of those no copy serves yet, or of all. Says whether there was
    /// one.
    fn add(&mut self, only_new: bool) -> bool {
        let worth = |number: usize| {
            let node = self.candidates[number];
            let open = self.reaches[number].iter().filter(|entry| !only_new || !self.is_covered[**entry]);
            let calls: f64 = open.map(|entry| self.demand.entries[*entry].1).sum();
            // It cannot serve more than it has room for, however many it reaches.
            let served = calls.min(USED_MAX * self.town.spare(node) / self.demand.run.max(1e-6));
            served * if self.present.contains_key(&node) { KEEPS } else { 1.0 }
        };
        let best = (0..self.candidates.len())
            .filter(|number| !self.chosen.contains(&self.candidates[*number]))
            .map(|number| (number, worth(number)))
            .max_by(|one, other| one.1.total_cmp(&other.1));
        let Some((number, _)) = best.filter(|(_, worth)| *worth > 0.0 || !only_new) else { return false };
        self.chosen.insert(self.candidates[number]);
        for entry in &self.reaches[number] {
            self.is_covered[*entry] = true;
        }
        true
    }
}
