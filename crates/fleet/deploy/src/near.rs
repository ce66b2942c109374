//! How far nodes are from those that a group is to be near to, as nodes have measured it.
//!
//! Each node measures the way to others on its link and tells the anchors. Of two nodes that have measured each other
//! the shorter time counts: what made the other one longer was no part of the way.

use crate::groups::PartGroup;
use crate::places::Candidate;
use fleet_trust::NodeId;
use manifest::{Manifest, Near, Place};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A node that has a function may be farther than `within` by a quarter: what is measured swings, and a copy is not to
/// come and go with it.
const STAYS: (u32, u32) = (5, 4);

/// What the functions of a group demand, with what was measured. Of a group without `near` it is empty.
#[derive(Debug, Default)]
pub(crate) struct Nearness(Vec<Wanted>);

/// What one function wants.
#[derive(Debug)]
struct Wanted {
    near: Near,
    within: Option<Duration>,
    /// Whether any node is named by it.
    names_some: bool,
    /// From each node to the nearest that is named and back, where that was measured.
    round_trips: BTreeMap<NodeId, Duration>,
}

impl Nearness {
    pub fn of(group: &PartGroup, manifest: &Manifest, candidates: &[Candidate]) -> Self {
        let functions = group.functions.iter().filter_map(|name| manifest.function.get(name));
        let places = functions.filter_map(|function| function.place.as_ref());
        Self(places.filter_map(|place| Wanted::of(place, candidates)).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a node may be too far.
    pub fn is_demanded(&self) -> bool {
        self.0.iter().any(|wanted| wanted.within.is_some())
    }

    /// What no node of the fleet is called.
    pub fn nobody(&self) -> Option<&Near> {
        self.0.iter().find(|wanted| !wanted.names_some).map(|wanted| &wanted.near)
    }

    /// The way there and back; of several functions the longest. None: it was not measured, or is not asked for.
    pub fn round_trip(&self, node: &NodeId) -> Option<Duration> {
        let all: Option<Vec<Duration>> = self.0.iter().map(|wanted| wanted.round_trips.get(node).copied()).collect();
        all?.into_iter().max()
    }

    /// What a node lacks, in words. `has_it`: until now it has the function, and stays where nothing is known.
    pub fn lacks(&self, node: &NodeId, has_it: bool) -> BTreeSet<String> {
        self.0.iter().filter_map(|wanted| wanted.lack(node, has_it)).collect()
    }
}

impl Wanted {
    fn of(place: &Place, candidates: &[Candidate]) -> Option<Self> {
        let near = place.near.clone()?;
        let named: BTreeSet<NodeId> =
            candidates.iter().filter(|candidate| is_named(&near, candidate)).map(|one| one.node).collect();
        let mut round_trips: BTreeMap<NodeId, Duration> = named.iter().map(|node| (*node, Duration::ZERO)).collect();
        for candidate in candidates {
            for (other, measured) in &candidate.round_trips {
                let mut note = |node: NodeId| {
                    let known = round_trips.entry(node).or_insert(*measured);
                    *known = (*known).min(*measured);
                };
                if named.contains(other) {
                    note(candidate.node);
                }
                if named.contains(&candidate.node) {
                    note(*other);
                }
            }
        }
        let within = place.within.map(manifest::Span::duration);
        Some(Self { near, within, names_some: !named.is_empty(), round_trips })
    }

    fn lack(&self, node: &NodeId, has_it: bool) -> Option<String> {
        let within = self.within?;
        let bound = if has_it { within * STAYS.0 / STAYS.1 } else { within };
        let term = format!("place.within of {}", in_words(within));
        match self.round_trips.get(node) {
            Some(measured) if *measured <= bound => None,
            Some(measured) => Some(format!("{term} ({} is {} away)", self.near, in_words(*measured))),
            None if has_it => None,
            None => Some(format!("{term} (its way to {} is not measured)", self.near)),
        }
    }
}

/// Whether the way to what a manifest wants to be near to is known of all nodes that are there.
pub fn is_measured(manifest: &Manifest, candidates: &[Candidate]) -> bool {
    let places = manifest.function.values().filter_map(|function| function.place.as_ref());
    let mut all = places.filter_map(|place| Wanted::of(place, candidates));
    let there = || candidates.iter().filter(|candidate| candidate.is_there);
    all.all(|wanted| !wanted.names_some || there().all(|one| wanted.round_trips.contains_key(&one.node)))
}

fn is_named(near: &Near, candidate: &Candidate) -> bool {
    match near {
        Near::Node(name) => candidate.name == *name || NodeId::read(name) == Some(candidate.node),
        Near::Label { key, values } => {
            let label = candidate.profile.as_ref().and_then(|profile| profile.labels.get(key));
            label.is_some_and(|value| values.contains(value))
        }
    }
}

/// As `350 µs` or `12.5 ms`.
fn in_words(time: Duration) -> String {
    match time.as_micros() {
        micros if micros < 1_000 => format!("{micros} µs"),
        micros if micros % 1_000 == 0 => format!("{} ms", micros / 1_000),
        micros => format!("{:.1} ms", micros as f64 / 1e3),
    }
}
