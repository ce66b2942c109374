//! What several anchors agree on: changes of the ledger, one after the other, each behind a mark of all before it.
//!
//! ```text
//!   mark 7 ─▶ change ─▶ mark 8 ─▶ change ─▶ mark 9       a mark: the number, and a hash of the mark before and the change
//!   └ before ┘└─────────── changes ───────────┘            both are a LogHead
//! ```
//! Two ledgers with one mark are the same. Pure values: who writes them where is in [`crate::agreed`].

use crate::id::{NodeId, as_hex};
use crate::invitations::{Invitation, InvitationId};
use crate::keys::sha256;
use crate::ledger::{Claim, Ledger};
use crate::members::Member;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes of a head. The oldest changes go when it would be longer; one that is too long by itself is refused.
pub const HEAD_BYTES_MAX: usize = 60 << 10;

/// Where a ledger stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Counts the changes.
    pub number: u64,
    #[serde(with = "as_hex")]
    hash: [u8; 16],
}

/// What makes one ledger of another: what is there now under these names, or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    members: BTreeMap<NodeId, Option<Member>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    invitations: BTreeMap<InvitationId, Option<Invitation>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    revoked: BTreeMap<NodeId, Option<u64>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    claims: BTreeMap<String, Option<Claim>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    notes: BTreeMap<String, Option<String>>,
    revision: u64,
    revised_at: u64,
    set: u64,
}

/// The newest changes, and what was before them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogHead {
    before: Mark,
    changes: Vec<Change>,
}

impl Mark {
    pub(crate) fn then(&self, change: &Change) -> Self {
        let change = serde_json::to_vec(change).expect("it is plain data");
        let hash = sha256(&[&self.number.to_le_bytes(), &self.hash, &change]);
        Self { number: self.number.saturating_add(1), hash: std::array::from_fn(|at| hash[at]) }
    }
}

impl Change {
    pub fn between(before: &Ledger, after: &Ledger) -> Self {
        Self {
            members: differing(&before.members, &after.members),
            invitations: differing(&before.invitations.0, &after.invitations.0),
            revoked: differing(&before.revoked, &after.revoked),
            claims: differing(&before.claims, &after.claims),
            notes: differing(&before.notes, &after.notes),
            revision: after.revision,
            revised_at: after.revised_at,
            set: after.set,
        }
    }

    pub fn apply(&self, ledger: &mut Ledger) {
        put(&self.members, &mut ledger.members);
        put(&self.invitations, &mut ledger.invitations.0);
        put(&self.revoked, &mut ledger.revoked);
        put(&self.claims, &mut ledger.claims);
        put(&self.notes, &mut ledger.notes);
        (ledger.revision, ledger.revised_at, ledger.set) = (self.revision, self.revised_at, self.set);
    }
}

impl LogHead {
    /// Nothing has changed since this mark.
    pub fn at(before: Mark) -> Self {
        Self { before, changes: Vec::new() }
    }

    /// None: it is none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it is plain data")
    }

    /// With one change more, and its bytes. None: the change is too long.
    pub fn with(mut self, change: Change) -> Option<(Self, Vec<u8>)> {
        self.changes.push(change);
        loop {
            let bytes = self.write();
            if bytes.len() <= HEAD_BYTES_MAX {
                return Some((self, bytes));
            }
            if self.changes.len() == 1 {
                return None;
            }
            // Half of them at once: it is long for a while then.
            let dropped = (self.changes.len() / 2).max(1);
            for change in self.changes.drain(..dropped) {
                self.before = self.before.then(&change);
            }
        }
    }

    /// Where a ledger stands that has all of this.
    pub fn mark(&self) -> Mark {
        self.changes.iter().fold(self.before, |mark, change| mark.then(change))
    }

    /// The changes that a ledger lacks which stands at `mark`. None: it is another history, or the changes after it are
    /// gone.
    pub fn after(&self, mark: &Mark) -> Option<&[Change]> {
        let mut here = self.before;
        let mut changes = self.changes.iter();
        loop {
            if here == *mark {
                let from = (here.number - self.before.number) as usize;
                return self.changes.get(from..);
            }
            here = here.then(changes.next()?);
        }
    }
}

fn differing<K: Ord + Clone, V: PartialEq + Clone>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
) -> BTreeMap<K, Option<V>> {
    let gone = before.keys().filter(|key| !after.contains_key(key)).map(|key| (key.clone(), None));
    let new = after.iter().filter(|(key, value)| before.get(key) != Some(value));
    gone.chain(new.map(|(key, value)| (key.clone(), Some(value.clone())))).collect()
}

fn put<K: Ord + Clone, V: Clone>(changes: &BTreeMap<K, Option<V>>, to: &mut BTreeMap<K, V>) {
    for (key, value) in changes {
        match value {
            Some(value) => to.insert(key.clone(), value.clone()),
            None => to.remove(key),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::NodeKey;

    fn admitted(ledger: &Ledger, number: u8) -> Ledger {
        let mut ledger = ledger.clone();
        let key = NodeKey::from_seed(&[number; 32]).public();
        ledger.admit(&format!("pi-{number}"), key, false, u64::from(number)).unwrap();
        ledger
    }

    #[test]
    fn what_lies_between_two_ledgers_makes_one_of_the_other() {
        let one = admitted(&admitted(&Ledger::default(), 1), 2);
        let mut other = admitted(&one, 3);
        other.revoke(&NodeKey::from_seed(&[1; 32]).id(), 9).unwrap();
        other.invitations.add([7; 32], 2, 60, 9).unwrap();
        other.notes.insert("a".to_owned(), "b".to_owned());
        for (before, after) in [(&one, &other), (&other, &one), (&one, &one)] {
            let change = Change::between(before, after);
            let bytes = serde_json::to_vec(&change).unwrap();
            assert_eq!(serde_json::from_slice::<Change>(&bytes).unwrap(), change);
            let mut made = before.clone();
            change.apply(&mut made);
            assert_eq!(made, *after);
        }
    }

    #[test]
    fn who_stands_at_a_mark_of_the_head_is_told_what_came_since() {
        let (mut ledger, mut head, mut marks) =
            (Ledger::default(), LogHead::at(Mark::default()), vec![Mark::default()]);
        for number in 1..=200 {
            let next = admitted(&ledger, number);
            let bytes;
            (head, bytes) = head.with(Change::between(&ledger, &next)).unwrap();
            assert!(bytes.len() <= HEAD_BYTES_MAX && LogHead::read(&bytes) == Some(head.clone()));
            marks.push(head.mark());
            ledger = next;
        }
        let lacking = |mark: &Mark| head.after(mark).map(<[Change]>::len);
        for (number, mark) in marks.iter().enumerate() {
            assert_eq!(mark.number, number as u64);
            let known = mark.number >= head.before.number;
            assert_eq!(lacking(mark), known.then_some(200 - number), "{number}");
        }
        // One of the same number, of another history.
        assert_eq!(lacking(&Mark { hash: [1; 16], ..marks[200] }), None);
    }

    #[test]
    fn the_oldest_changes_go_and_one_that_is_too_long_is_refused() {
        let (mut ledger, mut head) = (Ledger::default(), LogHead::at(Mark::default()));
        let noted = |ledger: &Ledger, bytes: usize, number: u32| {
            let mut ledger = ledger.clone();
            ledger.notes.insert("a".to_owned(), format!("{number:0bytes$}"));
            ledger
        };
        for number in 0..20 {
            let next = noted(&ledger, 10_000, number);
            head = head.with(Change::between(&ledger, &next)).unwrap().0;
            ledger = next;
        }
        assert_eq!((head.mark().number, head.changes.len() <= 6), (20, true));
        let long = noted(&ledger, HEAD_BYTES_MAX, 0);
        assert_eq!(head.with(Change::between(&ledger, &long)), None);
    }
}
