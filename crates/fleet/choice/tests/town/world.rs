//! A town in virtual time: nodes, callers who walk, calls that travel. One seed replays all of it.

use choice::{Asked, Choice, Judgement, NodeId, Pick, Report, Truth, judge};
use random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What the gates do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    /// What ships.
    Ours,
    /// Whatever a gate would choose that knew all queues at this moment.
    Oracle,
    /// The node where the call enters.
    Nearest,
    /// What ships, but receivers never refuse.
    Believing,
}

/// How large the town is and what happens in it.
#[derive(Debug, Clone, Copy)]
pub struct Town {
    pub nodes: usize,
    /// The part of all capacity that is asked for.
    pub load: f64,
    pub calls: usize,
    /// Seconds between two reports of a node.
    pub reports: f64,
    /// Other nodes that a gate hears.
    pub cell: usize,
    /// Functions that are called, each with a run time of its own.
    pub functions: usize,
    /// The part of all callers who are at one place.
    pub stadium: f64,
}

impl Town {
    pub fn of(load: f64) -> Self {
        Self { nodes: 120, load, calls: 60_000, reports: 10.0, cell: 32, functions: 60, stadium: 0.0 }
    }

    /// Kilometres: as dense as 120 nodes on ten by ten.
    fn side(&self) -> f64 {
        10.0 * (self.nodes as f64 / 120.0).sqrt()
    }
}

/// Seconds that calls took from the gate's point of view, sorted.
#[derive(Debug)]
pub struct Outcome {
    took: Vec<f64>,
    pub refused: usize,
}

impl Outcome {
    pub fn mean(&self) -> f64 {
        self.took.iter().sum::<f64>() / self.took.len() as f64
    }

    pub fn p99(&self) -> f64 {
        self.took[self.took.len() * 99 / 100]
    }
}

struct Node {
    x: f64,
    y: f64,
    access: f64,
    speed: f64,
    /// When each of its places is free.
    free: Vec<f64>,
    cell: Vec<NodeId>,
    /// Those whose cell it is in.
    hearers: Vec<usize>,
    /// What an oracle looks at, if the policy is one.
    around: Vec<NodeId>,
    choice: Choice,
}

struct Call {
    gate: usize,
    function: usize,
    /// Seconds on a node of speed 1.
    work: f64,
    began: f64,
    refused: Vec<NodeId>,
}

enum Event {
    Enters,
    Reports(usize),
    Arrives { call: Call, node: usize, bears: f64 },
    Refused { call: Call, node: usize, truth: Truth },
    Answered { call: Call, node: usize, truth: Truth, run: f64 },
}

/// The nodes nearest to a gate that an oracle looks at; all of them in a small town.
const ORACLE_LOOKS_AT: usize = 512;

pub struct World {
    town: Town,
    policy: Policy,
    random: Random,
    nodes: Vec<Node>,
    squares: Squares,
    names: Vec<String>,
    works: Vec<f64>,
    rate: f64,
    now: f64,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::HashMap<u64, Event>,
    number: u64,
    entered: usize,
    outcome: Outcome,
}

impl World {
    pub fn new(seed: u64, policy: Policy, town: Town) -> Self {
        let mut random = Random(seed);
        let mut nodes: Vec<Node> = (0..town.nodes).map(|id| Node::new(&mut random, id, town.side())).collect();
        let works: Vec<f64> = (0..town.functions).map(|_| lognormal(&mut random, 0.004, 0.8)).collect();
        let work = works.iter().sum::<f64>() / works.len() as f64;
        let capacity: f64 = nodes.iter().map(Node::capacity).sum();
        // Fifty calls a second for each node, on machines as slow as it takes to be loaded by them.
        let rate = 50.0 * town.nodes as f64;
        let scale = rate * work * (0.045f64).exp() / (town.load * capacity);
        for node in &mut nodes {
            node.speed *= scale;
        }
        let most = nodes.iter().map(Node::capacity).fold(0.0, f64::max);
        for id in 0..nodes.len() {
            nodes[id].choice = Choice::new(id as NodeId, nodes[id].speed);
            nodes[id].cell = cell(&nodes, id, town.cell, most);
            if policy == Policy::Oracle {
                nodes[id].around = cell(&nodes, id, ORACLE_LOOKS_AT, most);
            }
            for other in nodes[id].cell.clone() {
                nodes[other as usize].hearers.push(id);
            }
        }
        let squares = Squares::new(&nodes, town.side());
        let names = (0..town.functions).map(|number| format!("f{number}")).collect();
        let outcome = Outcome { took: Vec::new(), refused: 0 };
        let (heap, events) = Default::default();
        let (now, number, entered) = Default::default();
        Self { town, policy, random, nodes, squares, names, works, rate, now, heap, events, number, entered, outcome }
    }

    pub fn run(mut self) -> Outcome {
        self.after(0.0, Event::Enters);
        for node in 0..self.nodes.len() {
            let first = self.random.share() * self.town.reports;
            // Everybody has been heard once before the first call.
            self.report(node);
            self.after(first, Event::Reports(node));
        }
        while let Some(Reverse((at, number))) = self.heap.pop() {
            self.now = at as f64 / 1e9;
            let event = self.events.remove(&number).expect("it was put there");
            if self.entered >= self.town.calls && matches!(event, Event::Reports(_)) {
                continue;
            }
            self.happens(event);
        }
        self.outcome.took.sort_by(f64::total_cmp);
        self.outcome
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Enters => self.enters(),
            Event::Reports(node) => {
                self.report(node);
                let pause = self.town.reports * (0.9 + 0.2 * self.random.share());
                self.after(pause, Event::Reports(node));
            }
            Event::Arrives { call, node, bears } => self.arrives(call, node, bears),
            Event::Refused { mut call, node, truth } => {
                self.outcome.refused += 1;
                let gate = &mut self.nodes[call.gate];
                gate.choice.told(node as NodeId, truth, self.now);
                call.refused.push(node as NodeId);
                self.choose(call);
            }
            Event::Answered { call, node, truth, run } => {
                let bytes = 1_000;
                let gate = &mut self.nodes[call.gate];
                gate.choice.told(node as NodeId, truth, self.now);
                gate.choice.ran(node as NodeId, &self.names[call.function], bytes, run, self.now);
                self.outcome.took.push(self.now - call.began);
            }
        }
    }

    fn enters(&mut self) {
        if self.entered >= self.town.calls {
            return;
        }
        self.entered += 1;
        let pause = -self.random.share().max(1e-12).ln() / self.rate;
        self.after(pause, Event::Enters);
        let side = self.town.side();
        let (mut x, mut y) = (self.random.share() * side, self.random.share() * side);
        if self.random.share() < self.town.stadium {
            (x, y) = (side / 2.0 + normal(&mut self.random) * 0.3, side / 2.0 + normal(&mut self.random) * 0.3);
        }
        let gate = self.squares.nearest(&self.nodes, x, y);
        let function = (self.random.share() * self.works.len() as f64) as usize;
        let work = self.works[function] * lognormal(&mut self.random, 1.0, 0.3);
        self.choose(Call { gate, function, work, began: self.now, refused: Vec::new() });
    }

    fn choose(&mut self, call: Call) {
        let pick = match self.policy {
            Policy::Nearest => Pick::Here,
            Policy::Oracle => self.oracle(&call),
            Policy::Ours | Policy::Believing => {
                let here = self.nodes[call.gate].truth(self.now);
                let asked = Asked {
                    function: &self.names[call.function],
                    bytes: 1_000,
                    usual: Some(self.works[call.function]),
                    here: Some(here),
                    refused: &call.refused,
                };
                let gate = &mut self.nodes[call.gate];
                let cell = std::mem::take(&mut gate.cell);
                let pick = gate.choice.choose(&asked, &cell, self.now);
                gate.cell = cell;
                pick
            }
        };
        match pick {
            Pick::There { node, bears } => {
                let way = self.round_trip(call.gate, node as usize) / 2.0;
                let bears = if self.policy == Policy::Ours { bears } else { f64::INFINITY };
                if self.policy == Policy::Oracle {
                    // It knows all that is on its way: its calls are in their queues at once.
                    return self.starts(call, node as usize, way);
                }
                self.after(way, Event::Arrives { call, node: node as usize, bears });
            }
            _ => {
                let gate = call.gate;
                self.starts(call, gate, 0.0);
            }
        }
    }

    fn arrives(&mut self, call: Call, node: usize, bears: f64) {
        let truth = self.nodes[node].truth(self.now);
        match judge(truth, bears, call.refused.len() as u32) {
            Judgement::Runs => self.starts(call, node, 0.0),
            Judgement::Refuses(truth) => {
                let way = self.round_trip(call.gate, node) / 2.0;
                self.after(way, Event::Refused { call, node, truth });
            }
        }
    }

    /// It waits for a place of the node and runs there; it arrives after `way`.
    fn starts(&mut self, call: Call, node: usize, way: f64) {
        let run = call.work / self.nodes[node].speed;
        let place = self.nodes[node].free.iter_mut().min_by(|one, other| one.total_cmp(other)).expect("it has places");
        *place = place.max(self.now + way) + run;
        let end = *place;
        let back = self.round_trip(call.gate, node) / 2.0;
        let truth = self.nodes[node].truth(end);
        self.after(end - self.now + back, Event::Answered { call, node, truth, run });
    }

    fn oracle(&self, call: &Call) -> Pick {
        let total = |node: usize| {
            let hop = self.round_trip(call.gate, node);
            let wait = (self.nodes[node].soonest() - self.now - hop / 2.0).max(0.0);
            hop + wait + call.work / self.nodes[node].speed
        };
        let around = self.nodes[call.gate].around.iter().map(|node| (total(*node as usize), *node));
        let (least, node) = around.min_by(|one, other| one.0.total_cmp(&other.0)).expect("there are others");
        if total(call.gate) <= least { Pick::Here } else { Pick::There { node, bears: 0.0 } }
    }

    /// All gates whose cell it is in hear it, and measure how far it is.
    fn report(&mut self, node: usize) {
        let truth = self.nodes[node].truth(self.now);
        let report = Report { truth, places: self.nodes[node].free.len() as u32, speed: self.nodes[node].speed };
        let hearers = std::mem::take(&mut self.nodes[node].hearers);
        for gate in &hearers {
            let round_trip = self.round_trip(*gate, node) * lognormal(&mut self.random, 1.0, 0.25);
            self.nodes[*gate].choice.hear(node as NodeId, report, Some(round_trip), self.now);
        }
        self.nodes[node].hearers = hearers;
    }

    fn round_trip(&self, from: usize, to: usize) -> f64 {
        if from == to {
            return 0.0;
        }
        self.nodes[to].from(self.nodes[from].x, self.nodes[from].y)
    }

    fn after(&mut self, pause: f64, event: Event) {
        self.number += 1;
        self.events.insert(self.number, event);
        self.heap.push(Reverse((((self.now + pause) * 1e9) as u64, self.number)));
    }
}

impl Node {
    fn new(random: &mut Random, id: usize, side: f64) -> Self {
        let is_server = random.share() < 0.04;
        let (x, y) = (random.share() * side, random.share() * side);
        let access = lognormal(random, 1.0, 0.5);
        let speed = if is_server { 4.0 } else { [0.7, 1.0, 1.0, 1.4][(random.share() * 4.0) as usize] };
        let places = if is_server { 8 } else { [1, 4, 4][(random.share() * 3.0) as usize] };
        let choice = Choice::new(id as NodeId, 1.0);
        let (cell, hearers, around) = Default::default();
        Self { x, y, access, speed, free: vec![0.0; places], cell, hearers, around, choice }
    }

    fn capacity(&self) -> f64 {
        self.speed * self.free.len() as f64
    }

    /// Seconds to it and back.
    fn from(&self, x: f64, y: f64) -> f64 {
        (0.3 * (x - self.x).hypot(y - self.y) + self.access + 1.0) / 1_000.0
    }

    fn soonest(&self) -> f64 {
        self.free.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn truth(&self, now: f64) -> Truth {
        let wait = self.soonest() - now;
        if wait > 0.0 {
            return Truth { backlog: wait };
        }
        // Room: as many mean calls of 10 ms as there are free places.
        let free = self.free.iter().filter(|at| **at <= now).count();
        Truth { backlog: -(free as f64) * 0.004 / self.speed / self.free.len() as f64 }
    }
}

/// The nodes by the square of [`SQUARE`] kilometres they are in.
struct Squares {
    side: usize,
    nodes: Vec<Vec<usize>>,
}

/// So large that the node nearest to a place, by round trip, is hardly ever further than the next square.
const SQUARE: f64 = 4.0;

impl Squares {
    fn new(nodes: &[Node], side: f64) -> Self {
        let side = (side / SQUARE).ceil() as usize;
        let mut squares = Self { side, nodes: vec![Vec::new(); side * side] };
        for (id, node) in nodes.iter().enumerate() {
            let square = squares.at(node.x) + squares.at(node.y) * side;
            squares.nodes[square].push(id);
        }
        squares
    }

    fn at(&self, place: f64) -> usize {
        ((place / SQUARE).max(0.0) as usize).min(self.side - 1)
    }

    fn nearest(&self, nodes: &[Node], x: f64, y: f64) -> usize {
        let around = |place: f64| self.at(place).saturating_sub(1)..=(self.at(place) + 1).min(self.side - 1);
        let here = around(y).flat_map(|row| around(x).map(move |column| row * self.side + column));
        let ids = here.flat_map(|square| &self.nodes[square]);
        let gates = ids.map(|id| (nodes[*id].from(x, y), *id));
        gates.min_by(|one, other| one.0.total_cmp(&other.0)).expect("a node is near").1
    }
}

/// The nodes nearest to one. Those that can do much count as nearer.
fn cell(nodes: &[Node], id: usize, size: usize, most: f64) -> Vec<NodeId> {
    let here = &nodes[id];
    let far = |node: &Node| (node.x - here.x).hypot(node.y - here.y) - 2.0 * node.capacity() / most;
    let others = nodes.iter().enumerate().filter(|(other, _)| *other != id);
    let mut others: Vec<(f64, NodeId)> = others.map(|(other, node)| (far(node), other as NodeId)).collect();
    let size = size.min(others.len());
    others.select_nth_unstable_by(size - 1, |one, other| one.0.total_cmp(&other.0));
    others.into_iter().take(size).map(|(_, other)| other).collect()
}

fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * random.share().max(1e-12).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.share()).cos()
}

fn lognormal(random: &mut Random, middle: f64, deviation: f64) -> f64 {
    middle * (deviation * normal(random)).exp()
}
