//! What a fleet is to run, as an anchor decided it and the CA signed it. Every node believes it, whoever passes it on.

use crate::fit;
use crate::form::{FormHeld, Returned, Underway};
use crate::groups::PartGroup;
use crate::profile::Profile;
use crate::sealed::Document;
use fleet_trust::{NodeId, PublicKey, Signature};
use manifest::{Manifest, Name};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Its form is on its way: some nodes have it, all others the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underway: Option<Box<Underway>>,
    /// Its form holds because a later one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<Returned>,
}

/// Where one group of a deployment is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placed {
    pub group: PartGroup,
    /// None: wherever it fits.
    pub nodes: Option<BTreeSet<NodeId>>,
    /// From these nodes to what the group is to be near to and back, as it was measured when they were chosen.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub round_trips_us: BTreeMap<NodeId, u64>,
    /// Why there are as many copies as there are, where their number has followed load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled: Option<String>,
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
    /// What of it is for a node, as [`FormHeld::share`] has it. None: nothing.
    pub fn share(&self, node: &NodeId, profile: &Profile) -> Option<Manifest> {
        self.held(node).share(node, profile)
    }

    /// The images of its functions, as hexadecimal hashes.
    pub fn images(&self) -> BTreeSet<String> {
        let functions = self.manifests().flat_map(|manifest| manifest.function.values());
        functions.map(|function| function.image.clone()).collect()
    }

    /// Whether each of its forms is placed whole, and what is on its way is as anchors make it.
    fn is_whole(&self) -> bool {
        let own = FormHeld { revision: self.revision, manifest: self.manifest.as_ref(), places: &self.places };
        own.is_whole() && self.underway.as_ref().is_none_or(|underway| underway.is_before(self))
    }
}

impl Placed {
    /// Whether both have the same group on the same nodes, whatever was measured.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.group == other.group && self.nodes == other.nodes
    }

    /// Whether the group is to be on a node.
    pub fn is_on(&self, whole: &Manifest, node: &NodeId, profile: &Profile) -> bool {
        match &self.nodes {
            Some(nodes) => nodes.contains(node),
            None => fit::lacks_of(&self.group, whole, profile).is_empty(),
        }
    }
}
