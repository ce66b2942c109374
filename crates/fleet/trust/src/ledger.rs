//! What an anchor knows: members, invitations, revoked nodes. A pure value, kept whole.

use crate::id::{NodeId, is_name};
use crate::invitations::{InvitationId, Invitations};
use crate::keys::PublicKey;
use crate::members::{Life, MEMBERS_MAX, Member, Met, Presence};
use crate::revoked::{ENTRY_SECONDS, REVOKED_MAX};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// See the top of this file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    members: BTreeMap<NodeId, Member>,
    pub invitations: Invitations,
    revoked: BTreeMap<NodeId, u64>,
    /// Counts the lists of revoked nodes.
    revision: u64,
    /// When that list was last changed, in seconds since 1970.
    revised_at: u64,
}

impl Ledger {
    /// Makes a node a member. One that is a member already stays it, under the new name, and begins a new life.
    ///
    /// # Errors
    /// [`Code::NodeRevoked`]; [`Code::NotAdmitted`]: there is no room, or the name is none or another node's.
    pub fn admit(&mut self, name: &str, key: PublicKey, is_anchor: bool, now: u64) -> Result<&Member, Problem> {
        let node = NodeId::of(&key);
        self.check(&node)?;
        let refused = |detail: String| Err(Problem::new(Code::NotAdmitted, detail));
        if !is_name(name) {
            return refused("the name of the node is none".to_owned());
        }
        self.check_free(name, &node)?;
        if self.members.len() >= MEMBERS_MAX && !self.members.contains_key(&node) {
            return refused(format!("the fleet has {MEMBERS_MAX} nodes, which is the limit"));
        }
        let before = self.members.get(&node);
        let life = before.map_or_else(Life::default, |one| one.life.clone()).admitted();
        let is_anchor = is_anchor || before.is_some_and(|one| one.is_anchor);
        let member = Member { name: name.to_owned(), key, is_anchor, admitted_at: now, life };
        self.members.insert(node, member);
        Ok(&self.members[&node])
    }

    /// Whether a node may have this name.
    ///
    /// # Errors
    /// [`Code::NotAdmitted`]: another one has it.
    pub fn check_free(&self, name: &str, node: &NodeId) -> Result<(), Problem> {
        match self.members.iter().any(|(id, one)| id != node && one.name == name) {
            true => Err(Problem::new(Code::NotAdmitted, format!("another node of the fleet has the name {name}"))),
            false => Ok(()),
        }
    }

    /// Admits a node that has proved the secret of an invitation: both or nothing.
    ///
    /// # Errors
    /// As [`Ledger::admit`] and [`Invitations::take`].
    pub fn admit_invited(
        &mut self,
        invitation: &InvitationId,
        name: &str,
        key: PublicKey,
        now: u64,
    ) -> Result<&Member, Problem> {
        let mut invitations = self.invitations.clone();
        invitations.take(invitation, NodeId::of(&key), now)?;
        self.admit(name, key, false, now)?;
        self.invitations = invitations;
        Ok(&self.members[&NodeId::of(&key)])
    }

    /// A member, as long as it is one.
    ///
    /// # Errors
    /// [`Code::NodeRevoked`], [`Code::NotAdmitted`].
    pub fn member(&self, node: &NodeId) -> Result<&Member, Problem> {
        self.check(node)?;
        self.members
            .get(node)
            .ok_or_else(|| Problem::new(Code::NotAdmitted, format!("the node {node} is no member of this fleet")))
    }

    pub fn members(&self) -> impl Iterator<Item = (&NodeId, &Member)> {
        self.members.iter()
    }

    /// A member says hello.
    ///
    /// # Errors
    /// As [`Ledger::member`].
    pub fn meet(&mut self, node: &NodeId, presence: Presence, now: u64) -> Result<Met, Problem> {
        self.member(node)?;
        let member = self.members.get_mut(node).expect("it is a member");
        Ok(member.life.meet(presence, now))
    }

    /// Takes a node out of the fleet for good. Its key never joins again while the entry stands; a new key may.
    ///
    /// # Errors
    /// [`Code::NotAdmitted`]: it is no member. [`Code::Usage`]: the list is full.
    pub fn revoke(&mut self, node: &NodeId, now: u64) -> Result<(), Problem> {
        if self.revoked.contains_key(node) {
            return Ok(());
        }
        self.member(node)?;
        self.revoked.retain(|_, since| since.saturating_add(ENTRY_SECONDS) > now);
        if self.revoked.len() >= REVOKED_MAX {
            let detail = format!("{REVOKED_MAX} nodes were revoked in the last {ENTRY_SECONDS} s, which is the limit");
            return Err(Problem::new(Code::Usage, detail).with_hint("found a new fleet and let its nodes join that"));
        }
        self.members.remove(node);
        self.revoked.insert(*node, now);
        self.revision += 1;
        self.revised_at = now;
        Ok(())
    }

    pub fn revoked(&self) -> &BTreeMap<NodeId, u64> {
        &self.revoked
    }

    /// Revision of the list of revoked nodes, and when it was made.
    pub fn revision(&self) -> (u64, u64) {
        (self.revision, self.revised_at)
    }

    fn check(&self, node: &NodeId) -> Result<(), Problem> {
        if self.revoked.contains_key(node) {
            return Err(Problem::new(Code::NodeRevoked, format!("the node {node} was taken out of the fleet")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_000_000;

    #[test]
    fn what_was_kept_reads_back() {
        let mut ledger = Ledger::default();
        let id = ledger.invitations.add([1; 32], 2, 60, NOW).unwrap();
        ledger.admit_invited(&id, "pi-7", [2; 32], NOW).unwrap();
        ledger.admit_invited(&id, "pi-8", [3; 32], NOW).unwrap();
        ledger.meet(&NodeId::of(&[2; 32]), Presence { incarnation: 1, run: [7; 16] }, NOW).unwrap();
        ledger.revoke(&NodeId::of(&[3; 32]), NOW).unwrap();
        let text = serde_json::to_string(&ledger).unwrap();
        assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), ledger);
    }

    #[test]
    fn a_name_belongs_to_one_node_and_a_refused_one_uses_no_invitation() {
        let mut ledger = Ledger::default();
        let id = ledger.invitations.add([1; 32], 2, 60, NOW).unwrap();
        ledger.admit_invited(&id, "pi-7", [2; 32], NOW).unwrap();
        for name in ["pi-7", "Pi 7", ""] {
            assert_eq!(ledger.admit_invited(&id, name, [3; 32], NOW).unwrap_err().code, Code::NotAdmitted);
        }
        ledger.admit_invited(&id, "pi-8", [3; 32], NOW).unwrap();
        // The same key again: the same node, perhaps under another name.
        ledger.admit_invited(&id, "attic", [2; 32], NOW).unwrap();
        assert_eq!(ledger.members().count(), 2);
    }

    #[test]
    fn who_is_revoked_is_out_until_its_last_certificate_has_ended() {
        let mut ledger = Ledger::default();
        let (old, other) = (NodeId::of(&[2; 32]), NodeId::of(&[3; 32]));
        ledger.admit("pi-7", [2; 32], false, NOW).unwrap();
        ledger.admit("pi-8", [3; 32], false, NOW).unwrap();
        ledger.revoke(&old, NOW).unwrap();
        ledger.revoke(&old, NOW + 9).unwrap();
        assert_eq!(ledger.revision(), (1, NOW));
        assert_eq!(ledger.member(&old).unwrap_err().code, Code::NodeRevoked);
        assert_eq!(ledger.admit("pi-7", [2; 32], false, NOW).unwrap_err().code, Code::NodeRevoked);
        ledger.revoke(&other, NOW + ENTRY_SECONDS).unwrap();
        assert_eq!(ledger.revoked().keys().collect::<Vec<_>>(), [&other]);
        assert_eq!(ledger.member(&old).unwrap_err().code, Code::NotAdmitted);
    }
}
