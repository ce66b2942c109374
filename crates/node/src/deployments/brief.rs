//! What a node has said of itself is not said again every few seconds: that it is as before is enough, by its hash.
//!
//! ```text
//!   one ── all of it ──▶ other: keeps it ── keeps ──▶ one
//!       ── as before: hash ──▶ the same? heard again · another, or none? whole ──▶ one says all of it
//! ```

use fleet_deploy::talk::ToldAgain;
use fleet_trust::NodeId;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// A way that has changed by no more than this part of it, or by so little, is said as it was.
const WAY_PART: u64 = 8;
const WAY_US: u64 = 100;

/// See the top of this file.
#[derive(Default)]
pub struct Brief {
    /// Who has kept what this node said last, and its hash.
    kept_by: Mutex<Option<(NodeId, u64)>>,
    /// The microseconds of ways, as they were said last.
    ways_us: Mutex<BTreeMap<NodeId, u64>>,
    /// Hashes of what others have said last.
    heard: Mutex<BTreeMap<NodeId, u64>>,
}

impl Brief {
    /// Ways as they are to be said.
    pub fn ways_us(&self, measured: BTreeMap<NodeId, u64>) -> BTreeMap<NodeId, u64> {
        let mut said = self.ways_us.lock();
        let settled = |(node, micros): (NodeId, u64)| {
            let before = said.get(&node).copied();
            let before = before.filter(|before| before.abs_diff(micros) <= (before / WAY_PART).max(WAY_US));
            (node, before.unwrap_or(micros))
        };
        let settled: BTreeMap<NodeId, u64> = measured.into_iter().map(settled).collect();
        said.clone_from(&settled);
        settled
    }

    /// What is said to a node instead of all of this, if it has that already.
    pub fn instead(&self, to: &NodeId, told: &[u8]) -> Option<Vec<u8>> {
        let again = hash(told);
        (*self.kept_by.lock() == Some((*to, again))).then(|| ToldAgain { again }.write())
    }

    /// A node has answered what it was told; none: nobody knows what it has.
    pub fn answered(&self, by: &NodeId, told: &[u8], keeps: Option<bool>) {
        *self.kept_by.lock() = keeps.filter(|keeps| *keeps).map(|_| (*by, hash(told)));
    }

    /// A node has said all of this.
    pub fn heard(&self, from: NodeId, told: &[u8]) {
        self.heard.lock().insert(from, hash(told));
    }

    /// Whether what a node said last has this hash.
    pub fn is_as_before(&self, from: &NodeId, again: &ToldAgain) -> bool {
        self.heard.lock().get(from) == Some(&again.again)
    }

    pub fn forget_others(&self, is_there: impl Fn(&NodeId) -> bool) {
        self.heard.lock().retain(|node, _| is_there(node));
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let hash = Sha256::digest(bytes);
    u64::from_le_bytes(std::array::from_fn(|at| hash[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [NodeId; 2] = [NodeId([1; 16]), NodeId([2; 16])];

    #[test]
    fn what_was_kept_is_said_by_its_hash_until_it_changes_or_another_is_told() {
        let (one, other) = (Brief::default(), Brief::default());
        let [me, anchor] = NODES;
        assert_eq!(one.instead(&anchor, b"told"), None);
        other.heard(me, b"told");
        one.answered(&anchor, b"told", Some(true));
        let again = ToldAgain::read(&one.instead(&anchor, b"told").unwrap()).unwrap();
        assert!(other.is_as_before(&me, &again) && !other.is_as_before(&anchor, &again));
        assert_eq!((one.instead(&anchor, b"new"), one.instead(&me, b"told")), (None, None));
        other.heard(me, b"new");
        assert!(!other.is_as_before(&me, &again), "it has heard something else since");
        // A node of an older program keeps nothing, and who has not answered may have begun anew.
        for keeps in [Some(false), None] {
            one.answered(&anchor, b"told", Some(true));
            one.answered(&anchor, b"told", keeps);
            assert_eq!(one.instead(&anchor, b"told"), None);
        }
        other.forget_others(|node| *node != me);
        assert!(other.heard.lock().is_empty());
    }

    #[test]
    fn a_way_that_swings_is_said_as_it_was_and_one_that_has_changed_as_it_is() {
        let brief = Brief::default();
        let said = |micros| brief.ways_us(BTreeMap::from([(NODES[0], micros)]))[&NODES[0]];
        assert_eq!([300, 390, 210, 401, 310].map(said), [300, 300, 300, 401, 401]);
        assert_eq!([80_000, 89_000, 91_000, 0].map(said), [80_000, 80_000, 91_000, 0]);
        assert!(brief.ways_us(BTreeMap::new()).is_empty());
    }
}
