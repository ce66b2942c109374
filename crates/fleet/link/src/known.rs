//! What a gate has learned of the other nodes: the choice for a call, under names that nodes have.

use crate::fields::{self, ReplyField};
use choice::{Asked, Candidate, Choice, LastHeard, Pick, Report, Truth};
use fleet_trust::NodeId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Instant;

/// This node's number in the choice.
const ME: choice::NodeId = 0;

/// A call, before it is decided where it runs.
#[derive(Debug, Clone, Copy)]
pub struct Undecided<'a> {
    pub function: &'a str,
    /// Of its body, as far as that is announced.
    pub bytes: u64,
    /// How busy this node is for it; none where it may not run here.
    pub here: Option<Truth>,
    /// The other nodes that have the function.
    pub nodes: &'a [NodeId],
}

/// Where a call goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    Here,
    There {
        node: NodeId,
        /// The seconds of waiting with which this node puts up there.
        bears: f64,
    },
    /// No node may run it.
    Nowhere,
}

/// What a call is expected to take at a node, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// None: this node.
    pub node: Option<NodeId>,
    /// On the way there and back.
    pub hop: f64,
    /// Of its body.
    pub transfer: f64,
    pub wait: f64,
    pub run: f64,
}

/// Why a call would go where it would go now.
#[derive(Debug, Clone, PartialEq)]
pub struct Weighed {
    /// Of all nodes that could run it and were heard, the soonest first.
    pub forecasts: Vec<Forecast>,
    pub way: Way,
}

/// How another node was when it was last heard, and what was sent there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Neighbour {
    pub last_heard: LastHeard,
    /// Calls of this node that ran there, since this node was started.
    pub ran: u64,
}

pub(crate) struct Known {
    begin: Instant,
    inner: Mutex<Inner>,
}

struct Inner {
    choice: Choice,
    numbers: BTreeMap<NodeId, choice::NodeId>,
    /// By their number, which is one more than their place.
    nodes: Vec<NodeId>,
    /// How many calls ran there, by the same place.
    ran: Vec<u64>,
}

impl Known {
    /// `speed` is this node's own.
    pub fn new(speed: f64) -> Self {
        let choice = Choice::new(ME, speed);
        let inner = Inner { choice, numbers: BTreeMap::new(), nodes: Vec::new(), ran: Vec::new() };
        Self { begin: Instant::now(), inner: Mutex::new(inner) }
    }

    pub fn choose(&self, call: &Undecided<'_>, refused: &[NodeId]) -> Way {
        let now = self.now();
        let inner = &mut *self.inner.lock();
        let (nodes, refused) = (inner.numbers(call.nodes), inner.numbers(refused));
        let asked = asked(call, &refused);
        match inner.choice.choose(&asked, &nodes, now) {
            Pick::Here => Way::Here,
            Pick::Nowhere => Way::Nowhere,
            Pick::There { node, bears } => Way::There { node: inner.nodes[node as usize - 1], bears },
        }
    }

    /// What the choice for a call would be now, and by what.
    pub fn weigh(&self, call: &Undecided<'_>) -> Weighed {
        let now = self.now();
        let inner = self.inner.lock();
        let (nodes, asked) = (inner.numbers(call.nodes), asked(call, &[]));
        let here = inner.choice.predict_here(&asked, now);
        let mut candidates: Vec<Candidate> =
            here.into_iter().chain(inner.choice.predict(&asked, &nodes, now)).collect();
        candidates.sort_by(|one, other| one.total().total_cmp(&other.total()));
        let forecasts = candidates.iter().map(|candidate| inner.forecast(candidate)).collect();
        let way = match inner.choice.best(&asked, &nodes, now) {
            Some(best) => Way::There { node: inner.nodes[best.node as usize - 1], bears: best.bears() },
            None if here.is_some() => Way::Here,
            None => Way::Nowhere,
        };
        Weighed { forecasts, way }
    }

    /// None: it was not heard, or could not be reached since.
    pub fn neighbour(&self, node: &NodeId) -> Option<Neighbour> {
        let now = self.now();
        let inner = self.inner.lock();
        let number = *inner.numbers.get(node)?;
        let ran = inner.ran[number as usize - 1];
        inner.choice.last_heard(number, now).map(|last_heard| Neighbour { last_heard, ran })
    }

    /// The way to each node that was heard and can be reached, there and back, in seconds, where it was measured; the
    /// nearest first. Of two nodes one asks and measures, and the other has only heard.
    pub fn round_trips(&self) -> Vec<(NodeId, f64)> {
        let now = self.now();
        let inner = self.inner.lock();
        let heard = inner.numbers.iter().filter_map(|(node, number)| {
            let last_heard = inner.choice.last_heard(*number, now).filter(|heard| heard.is_measured)?;
            Some((*node, last_heard.round_trip))
        });
        let mut all: Vec<(NodeId, f64)> = heard.collect();
        all.sort_by(|one, other| one.1.total_cmp(&other.1));
        all
    }

    /// A node says how it is. `round_trip` in seconds, where it was measured.
    pub fn hear(&self, node: NodeId, report: Report, round_trip: Option<f64>) {
        let now = self.now();
        let inner = &mut *self.inner.lock();
        let number = *inner.numbers.entry(node).or_insert_with(|| {
            inner.nodes.push(node);
            inner.ran.push(0);
            inner.nodes.len() as choice::NodeId
        });
        inner.choice.hear(number, report, round_trip, now);
    }

    /// A node cannot be reached: no call goes there until it is heard again.
    pub fn forget(&self, node: &NodeId) {
        let inner = &mut *self.inner.lock();
        if let Some(number) = inner.numbers.get(node) {
            inner.choice.forget(*number);
        }
    }

    /// A call ran on another node; `whole` is the time from its head to that of its reply, in seconds, as this node has
    /// measured it. No part of it was longer, whatever the other node says.
    pub fn ran_there(&self, node: &NodeId, call: &Undecided<'_>, whole: f64, reply: ReplyField) {
        let ReplyField::Ran { took, run } = reply else { return };
        let now = self.now();
        let inner = &mut *self.inner.lock();
        let Some(number) = inner.numbers.get(node).copied() else { return };
        inner.ran[number as usize - 1] += 1;
        inner.choice.travelled(number, (whole - took).max(fields::SECONDS_MIN), None, now);
        let run = run.unwrap_or(took).min(whole).max(fields::SECONDS_MIN);
        inner.choice.ran(number, call.function, call.bytes, run, now);
    }

    /// A call ran here for so many seconds.
    pub fn ran_here(&self, function: &str, bytes: u64, seconds: f64) {
        let now = self.now();
        self.inner.lock().choice.ran(ME, function, bytes, seconds.max(fields::SECONDS_MIN), now);
    }

    fn now(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }
}

impl Inner {
    /// Of those that were heard.
    fn numbers(&self, nodes: &[NodeId]) -> Vec<choice::NodeId> {
        nodes.iter().filter_map(|node| self.numbers.get(node).copied()).collect()
    }

    fn forecast(&self, candidate: &Candidate) -> Forecast {
        let Candidate { node, hop, transfer, wait, run } = *candidate;
        let node = (node != ME).then(|| self.nodes[node as usize - 1]);
        Forecast { node, hop, transfer, wait, run }
    }
}

fn asked<'a>(call: &Undecided<'a>, refused: &'a [choice::NodeId]) -> Asked<'a> {
    let Undecided { function, bytes, here, .. } = *call;
    Asked { function, bytes, usual: None, here, refused }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [NodeId; 2] = [NodeId([1; 16]), NodeId([2; 16])];

    fn report(backlog: f64) -> Report {
        Report { truth: Truth { backlog }, places: 2, speed: 1.0 }
    }

    #[test]
    fn what_is_weighed_is_what_is_chosen() {
        let known = Known::new(1.0);
        known.hear(NODES[0], report(0.0), Some(0.001));
        known.hear(NODES[1], report(5.0), Some(0.001));
        let call = |backlog| Undecided { function: "f", bytes: 0, here: Some(Truth { backlog }), nodes: &NODES };
        let node = |way: Way| match way {
            Way::There { node, bears } => Some((node, bears < 0.01)),
            Way::Here | Way::Nowhere => None,
        };
        for (backlog, goes_to) in [(0.0, None), (3.0, Some((NODES[0], true)))] {
            let weighed = known.weigh(&call(backlog));
            let ways = [weighed.way, known.weigh(&call(backlog)).way, known.choose(&call(backlog), &[])];
            assert_eq!(ways.map(node), [goes_to; 3], "it changes nothing");
            let order: Vec<_> = weighed.forecasts.iter().map(|forecast| forecast.node).collect();
            assert_eq!(order.last(), Some(&Some(NODES[1])), "the busiest is the last");
        }
        let elsewhere = Undecided { here: None, nodes: &[NodeId([9; 16])], ..call(0.0) };
        assert_eq!(known.weigh(&elsewhere), Weighed { forecasts: vec![], way: Way::Nowhere });
    }

    #[test]
    fn calls_that_ran_there_are_counted_by_node() {
        let known = Known::new(1.0);
        known.hear(NODES[1], report(0.5), Some(0.002));
        let call = Undecided { function: "f", bytes: 0, here: None, nodes: &NODES };
        let ran = ReplyField::Ran { took: 0.1, run: Some(0.1) };
        (0..3).for_each(|_| known.ran_there(&NODES[1], &call, 0.102, ran));
        let neighbour = known.neighbour(&NODES[1]).unwrap();
        assert_eq!((neighbour.ran, neighbour.last_heard.places, known.neighbour(&NODES[0])), (3, 2, None));
        known.hear(NODES[0], report(0.5), None);
        assert_eq!(known.round_trips().len(), 1, "a way that nobody measured is not known");
        known.hear(NODES[0], report(0.5), Some(0.001));
        let ways: Vec<NodeId> = known.round_trips().into_iter().map(|(node, _)| node).collect();
        assert_eq!(ways, NODES, "the nearest first");
        known.forget(&NODES[1]);
        assert_eq!((known.neighbour(&NODES[1]), known.round_trips().len()), (None, 1));
    }

    /// Such a time, on a node that says that it is fast, used to be infinite, and all that was expected of the function
    /// no number any more, on every node and until this one was started again.
    #[test]
    fn a_run_is_never_longer_than_its_call_took() {
        let known = Known::new(1.0);
        known.hear(NODES[0], Report { speed: 100.0, ..report(0.0) }, Some(0.001));
        known.hear(NODES[1], report(0.0), Some(0.001));
        let call = Undecided { function: "f", bytes: 0, here: Some(Truth { backlog: 0.0 }), nodes: &NODES };
        for lie in [f64::MAX, 1e308, 0.0] {
            for ran in [ReplyField::Ran { took: lie, run: Some(lie) }, ReplyField::Ran { took: lie, run: None }] {
                known.ran_there(&NODES[0], &call, 0.1, ran);
                known.ran_there(&NODES[1], &call, 0.1, ReplyField::Ran { took: 0.1, run: Some(0.1) });
            }
            let forecasts = known.weigh(&call).forecasts;
            assert_eq!(forecasts.len(), 3);
            assert!(forecasts.iter().all(|one| one.run < 100.0 && one.hop < 1.0), "{lie}: {forecasts:?}");
        }
    }
}
