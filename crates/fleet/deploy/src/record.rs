//! What a fleet is to run, as an anchor decided it and the CA signed it. Every node believes it, whoever passes it on.

use crate::fit;
use crate::groups::PartGroup;
use crate::profile::Profile;
use crate::sealed::Document;
use fleet_trust::{NodeId, PublicKey, Signature};
use manifest::{Manifest, Name, Queue};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

pub use crate::sealed::DOCUMENT_BYTES_MAX;

const DOCUMENT: Document = Document { magic: *b"LREC", purpose: "lighterage record 1", word: "record of a deployment" };

/// One deployment, as of one decision of an anchor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The fleet's id.
    pub fleet: String,
    /// Of the deployment.
    pub name: Name,
    /// Counts the records of this name, from 1. The highest one holds.
    pub serial: u64,
    /// Which form of the deployment this is. Going back names an earlier one again.
    pub revision: u64,
    /// The highest revision there was.
    pub last: u64,
    /// Whose order it was.
    pub deployer: String,
    /// By the anchor's clock, in seconds since 1970.
    pub made_at: u64,
    /// None: it was removed.
    pub manifest: Option<Manifest>,
    pub places: Vec<Placed>,
}

/// Where one group of a deployment is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placed {
    pub group: PartGroup,
    /// None: wherever it fits.
    pub nodes: Option<BTreeSet<NodeId>>,
}

/// A record whose signature was checked.
#[derive(Debug, Clone, PartialEq)]
pub struct SignedRecord {
    record: Record,
    bytes: Vec<u8>,
}

impl SignedRecord {
    /// `sign` is that of the fleet's CA.
    ///
    /// # Errors
    /// [`Code::DeploymentFull`]: it is too large.
    pub fn sign(record: Record, sign: impl FnOnce(&str, &[&[u8]]) -> Signature) -> Result<Self, Problem> {
        let bytes = DOCUMENT.seal(&record, sign)?;
        Ok(Self { record, bytes })
    }

    /// Reads a record of this fleet. What is wrong with the document is said before its signature is looked at, which
    /// is the dearest.
    ///
    /// # Errors
    /// [`Code::DeploymentGarbled`]. Nothing of it is to be believed.
    pub fn read(bytes: &[u8], fleet: &str, ca: &PublicKey) -> Result<Self, Problem> {
        let unproved = DOCUMENT.look(bytes)?;
        let record: Record = DOCUMENT.read(&unproved)?;
        let garbled = |what: &str| Err(Problem::new(Code::DeploymentGarbled, format!("this record {what}")));
        if record.fleet != fleet {
            return garbled("is of another fleet");
        }
        if record.serial == 0 || record.revision > record.last {
            return garbled("has numbers that no anchor gives");
        }
        if !record.is_whole() {
            return garbled("places what its manifest does not have");
        }
        if !DOCUMENT.is_signed(&unproved, ca) {
            return garbled("is not signed by an anchor of this fleet");
        }
        Ok(Self { record, bytes: bytes.to_vec() })
    }

    pub fn record(&self) -> &Record {
        &self.record
    }

    /// As it was signed, to be passed on.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Record {
    /// What of it is for a node: a manifest without `place`, because that is decided. None: nothing.
    pub fn share(&self, node: &NodeId, profile: &Profile) -> Option<Manifest> {
        let whole = self.manifest.as_ref()?;
        let mut share = Manifest::default();
        for placed in self.places.iter().filter(|placed| placed.is_on(whole, node, profile)) {
            let PartGroup { functions, queues, sinks, buckets, .. } = &placed.group;
            share.function.extend(part_of(&whole.function, functions));
            share.queue.extend(part_of(&whole.queue, queues));
            share.sink.extend(part_of(&whole.sink, sinks));
            share.bucket.extend(part_of(&whole.bucket, buckets));
        }
        share.function.values_mut().for_each(|function| function.place = None);
        let homes = homes_elsewhere(whole, &share);
        share.queue.extend(homes);
        (share != Manifest::default()).then_some(share)
    }

    /// The images of its functions, as hexadecimal hashes.
    pub fn images(&self) -> BTreeSet<String> {
        let functions = self.manifest.iter().flat_map(|manifest| manifest.function.values());
        functions.map(|function| function.image.clone()).collect()
    }

    /// Whether all that is placed is in the manifest, and all of that is placed once.
    fn is_whole(&self) -> bool {
        let whole = self.manifest.clone().unwrap_or_default();
        let groups = || self.places.iter().map(|placed| &placed.group);
        is_once(whole.function.keys(), groups().flat_map(|group| &group.functions))
            && is_once(whole.queue.keys(), groups().flat_map(|group| &group.queues))
            && is_once(whole.sink.keys(), groups().flat_map(|group| &group.sinks))
            && is_once(whole.bucket.keys(), groups().flat_map(|group| &group.buckets))
    }
}

impl Placed {
    /// Whether the group is to be on a node.
    pub fn is_on(&self, whole: &Manifest, node: &NodeId, profile: &Profile) -> bool {
        match &self.nodes {
            Some(nodes) => nodes.contains(node),
            None => fit::lacks_of(&self.group, whole, profile).is_empty(),
        }
    }
}

/// The queues with a home that a node's functions push to, or its dead letters go to: it has to know where that is.
fn homes_elsewhere(whole: &Manifest, share: &Manifest) -> Vec<(Name, Queue)> {
    let pushed = share.function.values().flat_map(|function| &function.grants.push);
    let named = pushed.chain(share.queue.values().filter_map(|queue| queue.dead_to.as_ref()));
    let known = named.filter_map(|name| Some((name, whole.queue.get(name)?)));
    known.filter(|(_, queue)| queue.home.is_some()).map(|(name, queue)| (name.clone(), queue.clone())).collect()
}

fn part_of<'a, K: Ord + Clone + 'a, V: Clone + 'a>(
    whole: &'a std::collections::BTreeMap<K, V>,
    names: &'a BTreeSet<K>,
) -> impl Iterator<Item = (K, V)> + 'a {
    names.iter().filter_map(|name| whole.get_key_value(name)).map(|(name, what)| (name.clone(), what.clone()))
}

/// Whether the two have the same names, each once.
fn is_once<'a, T: Ord + 'a>(whole: impl Iterator<Item = &'a T>, placed: impl Iterator<Item = &'a T>) -> bool {
    let mut placed: Vec<&T> = placed.collect();
    placed.sort_unstable();
    whole.eq(placed)
}
