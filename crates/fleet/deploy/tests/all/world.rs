//! A fleet in values: nodes by name, a CA, a deployer, and a clock that stands.

use fleet_deploy::decide::{Known, decide};
use fleet_deploy::{Candidate, DeployerKey, Order, Placed, Profile, Record, Records, SignedRecord, Wish};
use fleet_trust::{NodeId, NodeKey};
use manifest::Manifest;
use problem::Problem;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub const FLEET: &str = "0011223344556677";
pub const NOW: u64 = 1_800_000_000;

pub fn ca() -> NodeKey {
    NodeKey::from_seed(&[7; 32])
}

pub fn deployer() -> DeployerKey {
    DeployerKey::new("ci", [8; 32]).unwrap()
}

pub fn node(number: u8) -> NodeId {
    NodeId([number; 16])
}

/// A node with wasm, half a GiB, and labels like `site=harbour`.
pub fn candidate(number: u8, labels: &[&str]) -> Candidate {
    let labels = labels.iter().map(|label| label.split_once('=').unwrap());
    let profile = Profile {
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        words: ["wasm", "aarch64"].map(str::to_owned).into(),
        memory_bytes: 512 << 20,
    };
    Candidate {
        node: node(number),
        name: format!("pi-{number}"),
        profile: Some(profile),
        is_there: true,
        round_trips: BTreeMap::new(),
    }
}

/// Has one node measure the way to another and back.
pub fn measured(candidates: &mut [Candidate], from: u8, to: u8, micros: u64) {
    let one = candidates.iter_mut().find(|candidate| candidate.node == node(from)).unwrap();
    one.round_trips.insert(node(to), Duration::from_micros(micros));
}

/// A manifest, with the hash of an image for each `IMAGE` in it.
pub fn manifest(text: &str) -> Manifest {
    manifest::parse(&text.replace("IMAGE", &"0a".repeat(32))).unwrap()
}

/// What an anchor has.
#[derive(Default)]
pub struct Anchor {
    pub records: Records,
    pub candidates: Vec<Candidate>,
}

impl Anchor {
    pub fn new(candidates: &[Candidate]) -> Self {
        Self { candidates: candidates.to_vec(), ..Self::default() }
    }

    pub fn known(&self) -> Known<'_> {
        Known { fleet: FLEET, records: &self.records, candidates: &self.candidates, now: NOW }
    }

    /// Takes an order that was made from the newest record.
    pub fn take(&mut self, name: &str, wish: Wish) -> Result<Record, Problem> {
        let after = self.records.get(name).map_or(0, |record| record.record().serial);
        let record = decide(&order(name, after, wish), &self.known())?;
        assert!(self.put(&record));
        Ok(record)
    }

    pub fn deploy(&mut self, name: &str, text: &str) -> Result<Record, Problem> {
        self.take(name, Wish::Deploy(Box::new(manifest(text))))
    }

    pub fn put(&mut self, record: &Record) -> bool {
        self.records.put(Arc::new(signed(record))).unwrap()
    }
}

pub fn order(name: &str, after: u64, wish: Wish) -> Order {
    Order { fleet: FLEET.to_owned(), name: name.parse().unwrap(), after, deployer: "ci".to_owned(), wish }
}

pub fn signed(record: &Record) -> SignedRecord {
    SignedRecord::sign(record.clone(), |purpose, parts| ca().sign(purpose, parts)).unwrap()
}

/// The numbers of the nodes where the group of a function is; none: wherever it fits.
pub fn places(record: &Record, function: &str) -> Option<BTreeSet<u8>> {
    let has = |placed: &&Placed| placed.group.functions.iter().any(|name| name.as_str() == function);
    let placed = record.places.iter().find(has).unwrap();
    placed.nodes.as_ref().map(|nodes| nodes.iter().map(|node| node.0[0]).collect())
}
