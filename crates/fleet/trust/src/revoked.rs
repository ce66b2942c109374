//! The signed list of nodes that are members no more.
//!
//! ```text
//!   LREV | version 1 | fleet 8 | revision 8 | issued 8 | count 2 | (node 16, since 8)… in order | signature of the CA 64
//! ```
//! Every node keeps the list with the highest revision it has seen. An entry leaves the list when its place is needed
//! and the last certificate of its node has ended for sure: the list's own date then says so to nodes without a clock,
//! too.

use crate::bytes::{Reader, Writer};
use crate::certificate::Authority;
use crate::dates::{CERTIFICATE_SECONDS, GRACE_SECONDS};
use crate::id::{FleetId, NodeId};
use crate::keys::{PublicKey, is_signed};
use std::collections::BTreeMap;
use std::fmt;

/// Nodes on the list. Another one is not revoked until the oldest entries have ended: such a fleet is founded anew.
pub const REVOKED_MAX: usize = 2_048;
/// Bytes of a list. A longer one is refused.
pub const LIST_BYTES_MAX: usize = HEAD_BYTES + REVOKED_MAX * ENTRY_BYTES + SIGNATURE_BYTES;
/// How long an entry stays at least.
pub const ENTRY_SECONDS: u64 = CERTIFICATE_SECONDS + 2 * GRACE_SECONDS;

const MAGIC: [u8; 4] = *b"LREV";
const VERSION: u8 = 1;
const PURPOSE: &str = "lighterage revoked nodes 1";
const HEAD_BYTES: usize = 31;
const ENTRY_BYTES: usize = 24;
const SIGNATURE_BYTES: usize = 64;

/// A list whose signature was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revoked {
    revision: u64,
    issued: u64,
    nodes: BTreeMap<NodeId, u64>,
    /// As it was signed, to be passed on.
    signed: Vec<u8>,
}

/// Why bytes are no list of this fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFault {
    /// A field is missing or too large, nodes are out of order, or bytes follow.
    Garbled,
    Version(u8),
    OtherFleet(FleetId),
    Signature,
}

impl Revoked {
    /// Signs a list. `nodes` are at most [`REVOKED_MAX`].
    pub fn sign(authority: &Authority, revision: u64, issued: u64, nodes: &BTreeMap<NodeId, u64>) -> Self {
        debug_assert!(nodes.len() <= REVOKED_MAX, "the ledger keeps the bound");
        let mut to = Writer::default();
        to.array(&MAGIC).array(&[VERSION]).array(&authority.fleet().0);
        to.array(&revision.to_le_bytes()).array(&issued.to_le_bytes());
        to.array(&(nodes.len() as u16).to_le_bytes());
        for (node, since) in nodes {
            to.array(&node.0).array(&since.to_le_bytes());
        }
        let signature = authority.key().sign(PURPOSE, &[&to.0]);
        to.array(&signature);
        Self { revision, issued, nodes: nodes.clone(), signed: to.0 }
    }

    /// Reads a list and checks its signature, last: it is the dearest.
    ///
    /// # Errors
    /// The first that is wrong. Nothing of such a list is to be believed.
    pub fn read(bytes: &[u8], fleet: FleetId, ca: &PublicKey) -> Result<Self, ListFault> {
        let (said, signature) = bytes.split_last_chunk::<SIGNATURE_BYTES>().ok_or(ListFault::Garbled)?;
        let mut from = Reader(said);
        if bytes.len() > LIST_BYTES_MAX || from.array() != Some(MAGIC) {
            return Err(ListFault::Garbled);
        }
        match from.u8() {
            Some(VERSION) => {}
            version => return Err(version.map_or(ListFault::Garbled, ListFault::Version)),
        }
        let (found, list) = Self::fields(from, bytes).ok_or(ListFault::Garbled)?;
        if found != fleet {
            return Err(ListFault::OtherFleet(found));
        }
        if !is_signed(ca, PURPOSE, &[said], signature) {
            return Err(ListFault::Signature);
        }
        Ok(list)
    }

    fn fields(mut from: Reader<'_>, bytes: &[u8]) -> Option<(FleetId, Self)> {
        let fleet = FleetId(from.array()?);
        let (revision, issued) = (from.u64()?, from.u64()?);
        let count = from.u16().filter(|count| usize::from(*count) <= REVOKED_MAX)?;
        let mut nodes = BTreeMap::new();
        for _ in 0..count {
            let (node, since) = (NodeId(from.array()?), from.u64()?);
            if nodes.last_key_value().is_some_and(|(last, _)| *last >= node) {
                return None;
            }
            nodes.insert(node, since);
        }
        from.end()?;
        Some((fleet, Self { revision, issued, nodes, signed: bytes.to_vec() }))
    }

    pub fn contains(&self, node: &NodeId) -> bool {
        self.nodes.contains_key(node)
    }

    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.keys().copied()
    }

    /// The nodes, and since when they are members no more.
    pub(crate) fn entries(&self) -> &BTreeMap<NodeId, u64> {
        &self.nodes
    }

    /// Counts the lists of a fleet. The higher one holds.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// When it was signed, in seconds since 1970, by the anchor's clock.
    pub fn issued(&self) -> u64 {
        self.issued
    }

    /// As it travels and is kept.
    pub fn bytes(&self) -> &[u8] {
        &self.signed
    }
}

impl fmt::Display for ListFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Garbled => write!(f, "it is no list of revoked nodes"),
            Self::Version(version) => write!(f, "the list has version {version}, known is {VERSION}"),
            Self::OtherFleet(fleet) => write!(f, "the list is of the fleet {fleet}"),
            Self::Signature => write!(f, "the list is not signed by the fleet's CA"),
        }
    }
}

impl std::error::Error for ListFault {}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(seed: u8) -> Authority {
        Authority::found("campus", &[seed; 32]).unwrap()
    }

    fn nodes(count: u16) -> BTreeMap<NodeId, u64> {
        let id = |number: u16| NodeId::of(&std::array::from_fn(|at| number.to_le_bytes()[at % 2]));
        (0..count).map(|number| (id(number), u64::from(number))).collect()
    }

    #[test]
    fn a_list_is_believed_as_it_was_signed_and_in_its_own_fleet() {
        let (ours, other) = (authority(1), authority(2));
        let list = Revoked::sign(&ours, 7, 1_000, &nodes(3));
        let key = ours.key().public();
        assert_eq!(Revoked::read(list.bytes(), ours.fleet(), &key), Ok(list.clone()));
        assert_eq!(Revoked::read(list.bytes(), other.fleet(), &key), Err(ListFault::OtherFleet(ours.fleet())));
        let of_other = Revoked::sign(&other, 8, 1_000, &nodes(3));
        assert_eq!(Revoked::read(of_other.bytes(), other.fleet(), &key), Err(ListFault::Signature));
        for at in 0..list.bytes().len() {
            let mut changed = list.bytes().to_vec();
            changed[at] ^= 1;
            assert!(Revoked::read(&changed, ours.fleet(), &key).is_err(), "byte {at}");
            assert!(Revoked::read(&list.bytes()[..at], ours.fleet(), &key).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn the_longest_list_has_the_bytes_it_may_have() {
        let ours = authority(1);
        let list = Revoked::sign(&ours, 1, 1, &nodes(REVOKED_MAX as u16));
        assert_eq!(list.bytes().len(), LIST_BYTES_MAX);
        assert!(Revoked::read(list.bytes(), ours.fleet(), &ours.key().public()).is_ok());
    }
}
