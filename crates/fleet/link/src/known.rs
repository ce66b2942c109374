//! What a gate has learned of the other nodes: the choice for a call, under names that nodes have.

use crate::fields::{self, ReplyField};
use choice::{Asked, Choice, Pick, Report, Truth};
use fleet_trust::NodeId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Instant;

/// This node's number in the choice.
const ME: choice::NodeId = 0;

/// A call, before it is decided where it runs.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
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
        /// The seconds of waiting that are expected there.
        expected: f64,
    },
    /// No node may run it.
    Nowhere,
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
}

impl Known {
    /// `speed` is this node's own.
    pub fn new(speed: f64) -> Self {
        let inner = Inner { choice: Choice::new(ME, speed), numbers: BTreeMap::new(), nodes: Vec::new() };
        Self { begin: Instant::now(), inner: Mutex::new(inner) }
    }

    pub fn choose(&self, call: &Wanted<'_>, refused: &[NodeId]) -> Way {
        let now = self.now();
        let inner = &mut *self.inner.lock();
        let numbers =
            |nodes: &[NodeId]| -> Vec<_> { nodes.iter().filter_map(|node| inner.numbers.get(node).copied()).collect() };
        let (nodes, refused) = (numbers(call.nodes), numbers(refused));
        let Wanted { function, bytes, here, .. } = *call;
        let asked = Asked { function, bytes, usual: None, here, refused: &refused };
        match inner.choice.choose(&asked, &nodes, now) {
            Pick::Here => Way::Here,
            Pick::Nowhere => Way::Nowhere,
            Pick::There { node, expected } => Way::There { node: inner.nodes[node as usize - 1], expected },
        }
    }

    /// A node says how it is. `round_trip` in seconds, where it was measured.
    pub fn hear(&self, node: NodeId, report: Report, round_trip: Option<f64>) {
        let now = self.now();
        let inner = &mut *self.inner.lock();
        let number = *inner.numbers.entry(node).or_insert_with(|| {
            inner.nodes.push(node);
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

    /// A call ran on another node; `whole` is the time from its head to that of its reply, in seconds.
    pub fn ran_there(&self, node: &NodeId, call: &Wanted<'_>, whole: f64, reply: ReplyField) {
        let ReplyField::Ran { took, run } = reply else { return };
        let now = self.now();
        let inner = &mut *self.inner.lock();
        let Some(number) = inner.numbers.get(node).copied() else { return };
        inner.choice.travelled(number, (whole - took).max(fields::SECONDS_MIN), None, now);
        inner.choice.ran(number, call.function, call.bytes, run.unwrap_or(took).max(fields::SECONDS_MIN), now);
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
