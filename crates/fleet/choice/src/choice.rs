//! The choice for one call at one gate, and what is learned from how it went.

use crate::NodeId;
use crate::guess::Guess;
use crate::level::Level;
use crate::load::{Load, Report};
use crate::run_times::{RunTimes, first};
use crate::truth::Truth;
use std::collections::BTreeMap;

/// Another node must be better than this one by this part of the time, and by so many seconds: a hop is work for two.
const HYSTERESIS: f64 = 0.03;
const HOP_MIN: f64 = 2e-4;
/// Nodes that are remembered. The one not heard for longest goes.
const NODES_MAX: usize = 1_024;
/// Functions that are remembered. The one not used for longest goes.
const RUN_TIMES_MAX: usize = 1_000;
const ROUND_TRIP_FIRST: f64 = 2e-3;
const RATE_FIRST: f64 = 12.5e6;
/// A transfer of fewer bytes says little about the rate.
const RATE_BYTES_MIN: u64 = 16_384;

/// A call, before it is decided where it runs.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub function: &'a str,
    pub bytes: u64,
    /// Seconds that the fleet has measured on a node of speed 1; they count until this gate has measured its own.
    pub usual: Option<f64>,
    /// How busy this node is; none where the function may not run here.
    pub here: Option<Truth>,
    /// Who refused this call before.
    pub refused: &'a [NodeId],
}

/// Where a call goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pick {
    Here,
    /// `bears`: the seconds of waiting with which the gate puts up there, which the receiver holds against the truth.
    /// They are those that it expects, and the way there and back: a refusal costs that.
    There {
        node: NodeId,
        bears: f64,
    },
    /// No node may run it.
    Nowhere,
}

/// A node that may run the function, with its prediction in seconds: what `lighter fleet why` shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    pub node: NodeId,
    pub hop: f64,
    pub transfer: f64,
    pub wait: f64,
    pub run: f64,
}

impl Candidate {
    pub fn total(&self) -> f64 {
        self.hop + self.transfer + self.wait + self.run
    }

    /// The seconds of waiting with which a gate puts up there.
    pub fn bears(&self) -> f64 {
        self.wait + self.hop
    }

    /// Whether this node is so much better than `here` that a call goes there.
    pub fn is_worth_a_hop(&self, here: &Self) -> bool {
        self.total() * (1.0 + HYSTERESIS) + HOP_MIN < here.total()
    }
}

/// How another node was when it was last heard.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LastHeard {
    /// Seconds there and back.
    pub round_trip: f64,
    /// Whether that was measured, and is no first guess.
    pub is_measured: bool,
    /// Seconds until a call would begin.
    pub wait: f64,
    pub places: u32,
    pub speed: f64,
}

/// What is known of one node, whatever the function.
#[derive(Debug, Clone)]
struct Known {
    round_trip: Level,
    rate: Level,
    load: Load,
    places: u32,
    speed: f64,
    heard: f64,
}

/// One gate's knowledge. Not for threads: its caller holds a lock.
#[derive(Debug)]
pub struct Choice {
    me: NodeId,
    speed: f64,
    nodes: BTreeMap<NodeId, Known>,
    run_times: BTreeMap<String, (RunTimes, u64)>,
    calls: u64,
}

impl Choice {
    /// `speed` is this node's own, as its reports say it.
    pub fn new(me: NodeId, speed: f64) -> Self {
        Self { me, speed, nodes: BTreeMap::new(), run_times: BTreeMap::new(), calls: 0 }
    }

    /// A node reports how it is. `round_trip` in seconds, where it was measured.
    pub fn hear(&mut self, node: NodeId, report: Report, round_trip: Option<f64>, now: f64) {
        let report = report.believed();
        if !self.nodes.contains_key(&node) && self.nodes.len() >= NODES_MAX {
            let oldest = self.nodes.iter().min_by(|one, other| one.1.heard.total_cmp(&other.1.heard));
            let oldest = oldest.map(|(id, _)| *id).expect("there are many");
            self.forget(oldest);
        }
        let known = self.nodes.entry(node).or_insert_with(|| Known {
            round_trip: Level::new(ROUND_TRIP_FIRST, 1.0, 2e-3),
            rate: Level::new(RATE_FIRST, 1.5, 2e-3),
            load: Load::new(report.truth, now),
            places: report.places,
            speed: report.speed,
            heard: now,
        });
        known.load.told(report.truth, now);
        (known.places, known.speed, known.heard) = (report.places, report.speed, now);
        if let Some(round_trip) = round_trip {
            known.round_trip.observe(round_trip, now, 0.0);
        }
    }

    /// A node is gone.
    pub fn forget(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        for (times, _) in self.run_times.values_mut() {
            times.forget(node);
        }
    }

    /// How a node is by now, as far as is known. None: it was not heard.
    pub fn last_heard(&self, node: NodeId, now: f64) -> Option<LastHeard> {
        let known = self.nodes.get(&node)?;
        Some(LastHeard {
            round_trip: known.round_trip.guess(now).mean(),
            is_measured: known.round_trip.is_observed(),
            wait: known.load.backlog(now).max(0.0),
            places: known.places,
            speed: known.speed,
        })
    }

    /// What this node would take; none where the function may not run here.
    pub fn predict_here(&self, call: &Asked<'_>, now: f64) -> Option<Candidate> {
        let times = self.run_times.get(call.function).map(|(times, _)| times);
        let run = || self.run_on(times, usual(times, call), self.me, self.speed, now);
        call.here.map(|truth| Candidate { node: self.me, hop: 0.0, transfer: 0.0, wait: truth.wait(), run: run() })
    }

    /// What each of `nodes` would take; those nobody has heard of are left out.
    pub fn predict(&self, call: &Asked<'_>, nodes: &[NodeId], now: f64) -> Vec<Candidate> {
        let times = self.run_times.get(call.function).map(|(times, _)| times);
        let usual = usual(times, call);
        nodes.iter().filter_map(|node| self.candidate(*node, times, usual, call.bytes, now)).collect()
    }

    /// Chooses among this node and `nodes`, which have a copy of the function.
    pub fn choose(&mut self, call: &Asked<'_>, nodes: &[NodeId], now: f64) -> Pick {
        self.calls += 1;
        let Some(best) = self.best(call, nodes, now) else {
            return if call.here.is_some() { Pick::Here } else { Pick::Nowhere };
        };
        let known = self.nodes.get_mut(&best.node).expect("it was predicted");
        known.load.sent(best.run, known.places);
        Pick::There { node: best.node, bears: best.bears() }
    }

    /// Where [`Choice::choose`] would send it now; none: nowhere. Changes nothing.
    pub fn best(&self, call: &Asked<'_>, nodes: &[NodeId], now: f64) -> Option<Candidate> {
        let times = self.run_times.get(call.function).map(|(times, _)| times);
        let usual = usual(times, call);
        let best = nodes
            .iter()
            .filter(|node| **node != self.me && !call.refused.contains(node))
            .filter_map(|node| self.candidate(*node, times, usual, call.bytes, now))
            .min_by(|one, other| one.total().total_cmp(&other.total()));
        let here = self.predict_here(call, now);
        best.filter(|best| here.is_none_or(|here| best.is_worth_a_hop(&here)))
    }

    /// A node answered or refused: this is how busy it was.
    pub fn told(&mut self, node: NodeId, truth: Truth, now: f64) {
        if let Some(known) = self.nodes.get_mut(&node) {
            known.load.told(truth, now);
        }
    }

    /// How long a call was on its way, without waiting and running; and what its body took.
    pub fn travelled(&mut self, node: NodeId, round_trip: f64, body: Option<(u64, f64)>, now: f64) {
        let Some(known) = self.nodes.get_mut(&node) else { return };
        known.round_trip.observe(round_trip, now, 0.0);
        if let Some((bytes, seconds)) = body.filter(|(bytes, seconds)| *bytes >= RATE_BYTES_MIN && *seconds > 0.0) {
            known.rate.observe(bytes as f64 / seconds, now, 0.0);
        }
    }

    /// A call ran there (or here) for so many seconds.
    pub fn ran(&mut self, node: NodeId, function: &str, bytes: u64, seconds: f64, now: f64) {
        let speed = match self.nodes.get(&node) {
            _ if node == self.me => self.speed,
            Some(known) => known.speed,
            None => return,
        };
        if !self.run_times.contains_key(function) && self.run_times.len() >= RUN_TIMES_MAX {
            let oldest = self.run_times.iter().min_by_key(|(_, (_, used))| *used).map(|(name, _)| name.clone());
            oldest.and_then(|oldest| self.run_times.remove(&oldest));
        }
        let (times, used) = self.run_times.entry(function.to_owned()).or_default();
        times.ran(node, speed, bytes as f64, seconds, now);
        *used = self.calls;
    }

    fn candidate(
        &self,
        node: NodeId,
        times: Option<&RunTimes>,
        usual: Guess,
        bytes: u64,
        now: f64,
    ) -> Option<Candidate> {
        let known = self.nodes.get(&node)?;
        Some(Candidate {
            node,
            hop: known.round_trip.guess(now).mean(),
            transfer: bytes as f64 / known.rate.guess(now).log.exp(),
            wait: known.load.backlog(now).max(0.0),
            run: self.run_on(times, usual, node, known.speed, now),
        })
    }

    fn run_on(&self, times: Option<&RunTimes>, usual: Guess, node: NodeId, speed: f64, now: f64) -> f64 {
        match times {
            Some(times) => times.on(usual, node, speed, now),
            None => usual.mean() / speed,
        }
    }
}

/// What the call takes on a node of speed 1.
fn usual(times: Option<&RunTimes>, call: &Asked<'_>) -> Guess {
    match times {
        Some(times) => times.usual(call.bytes as f64),
        None => first(call.usual),
    }
}
