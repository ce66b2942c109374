//! What lies between nodes: direct links, and an engine that keeps messages, and is not to be trusted with any.

use crate::node::{letter, name};
use crate::world::{HOUSEHOLDS, MS, SECOND, Time};
use mail::{Message, Parcel};
use random::Random;
use std::collections::{BTreeMap, VecDeque};

/// Messages the engine keeps for one node.
const KEPT_MAX: usize = 40;

/// How bad the ways of one seed are: one in so many messages, never for 0.
#[derive(Debug, Clone)]
pub struct Style {
    lost: u64,
    doubled: u64,
    damaged: u64,
    /// The longest time on the way.
    delay: Time,
    /// One in so many is late by seconds.
    late: u64,
    /// How many of 4 messages go by the engine; the others go directly, and with 5 all go both ways.
    by_engine: u64,
}

impl Style {
    pub fn new(rng: &mut Random) -> Self {
        let rate = |rng: &mut Random| [0, 3, 10, 40][rng.below(4) as usize];
        Self {
            lost: rate(rng),
            doubled: rate(rng),
            damaged: rate(rng) * 2,
            delay: [2 * MS, 20 * MS, 300 * MS][rng.below(3) as usize],
            late: rate(rng) * 2,
            by_engine: rng.below(6),
        }
    }
}

pub struct Net {
    style: Style,
    is_healed: bool,
    /// From node to node, until when.
    cuts: BTreeMap<(usize, usize), Time>,
    engine_away_until: Time,
    kept: BTreeMap<usize, VecDeque<(String, Vec<u8>)>>,
    /// A message that a forger has seen.
    sample: Option<Vec<u8>>,
    pub now: Time,
}

impl Net {
    pub fn new(style: Style) -> Self {
        Self {
            style,
            is_healed: false,
            cuts: BTreeMap::new(),
            engine_away_until: 0,
            kept: BTreeMap::new(),
            sample: None,
            now: 0,
        }
    }

    pub fn cut(&mut self, from: usize, to: usize, until: Time, both: bool) {
        self.cuts.insert((from, to), until);
        if both {
            self.cuts.insert((to, from), until);
        }
    }

    pub fn engine_away(&mut self, until: Time) {
        self.engine_away_until = until;
    }

    /// The engine forgets everything.
    pub fn wipe(&mut self) {
        self.kept.clear();
    }

    pub fn heal(&mut self) {
        self.is_healed = true;
        self.cuts.clear();
        self.engine_away_until = 0;
        let delay = self.style.delay;
        self.style = Style { lost: 0, doubled: 0, damaged: 0, late: 0, delay, by_engine: self.style.by_engine };
    }

    /// When a message arrives, and as what: none, one or several times.
    pub fn carry(
        &mut self,
        rng: &mut Random,
        from: usize,
        to: usize,
        by: &str,
        bytes: Vec<u8>,
    ) -> Vec<(Time, Vec<u8>)> {
        let is_raced = self.style.by_engine == 5;
        let is_by_engine = is_raced || rng.below(4) < self.style.by_engine;
        let mut copies = Vec::new();
        if (!is_by_engine || is_raced) && self.cuts.get(&(from, to)).is_none_or(|until| *until <= self.now) {
            self.copy(rng, &bytes, &mut copies);
        }
        if is_by_engine && self.engine_away_until <= self.now {
            // Acked to its publisher in any case, and kept perhaps.
            if !rng.once_in(self.style.lost) {
                let kept = self.kept.entry(to).or_default();
                kept.push_back((by.to_owned(), bytes.clone()));
                kept.truncate(KEPT_MAX);
            }
            self.copy(rng, &bytes, &mut copies);
        }
        copies
    }

    fn copy(&self, rng: &mut Random, bytes: &[u8], copies: &mut Vec<(Time, Vec<u8>)>) {
        if rng.once_in(self.style.lost) {
            return;
        }
        let count = if rng.once_in(self.style.doubled) { 2 } else { 1 };
        for _ in 0..count {
            let late = if rng.once_in(self.style.late) { rng.below(8 * SECOND) } else { 0 };
            let mut bytes = bytes.to_vec();
            if rng.once_in(self.style.damaged) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
            copies.push((rng.between(self.style.delay / 4, self.style.delay) + late, bytes));
        }
    }

    /// What the engine gives a node that has just started: all it keeps, or only what is old.
    pub fn stored(&mut self, rng: &mut Random, node: usize) -> Vec<(String, Vec<u8>)> {
        let kept: Vec<_> = self.kept.get(&node).into_iter().flatten().cloned().collect();
        let upto = if rng.once_in(3) { rng.below(kept.len() as u64 + 1) as usize } else { kept.len() };
        kept.into_iter().take(upto).collect()
    }

    pub fn keep_sample(&mut self, rng: &mut Random, bytes: &[u8]) {
        if rng.once_in(8) {
            self.sample = Some(bytes.to_vec());
        }
    }

    /// A message that somebody made who has no right to: another letter, a number from the future, or a receipt for
    /// everything.
    pub fn forged(&self, rng: &mut Random, pushes: usize) -> Option<Vec<u8>> {
        let sample = self.sample.as_deref()?;
        match Message::read(sample).expect("it is a sound message") {
            Message::Parcel(parcel) => {
                let from = (0..HOUSEHOLDS).find(|number| name(*number) == parcel.from)?;
                // A push of somebody else, or one that will never be.
                let other = letter(pushes + 1_000_000 + from).write().expect("it is small");
                let mut forged = Parcel { letters: Vec::new(), ..parcel };
                if rng.once_in(2) {
                    forged.before.number += rng.below(5);
                }
                let mark = forged.before.then(&other)?;
                forged.letters.push((&other, mark));
                Some(forged.write())
            }
            Message::Receipt(mut receipt) => {
                receipt.durable.number += rng.below(5);
                receipt.expects = receipt.durable.number + 1;
                Some(receipt.write())
            }
        }
    }
}
