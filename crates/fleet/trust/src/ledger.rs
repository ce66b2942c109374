//! What an anchor knows: members, invitations, revoked nodes. A pure value, kept whole.

use crate::changes::{Change, Mark};
use crate::dates::GRACE_SECONDS;
use crate::id::{NodeId, is_name};
use crate::invitations::{InvitationId, Invitations};
use crate::keys::PublicKey;
use crate::members::{Life, MEMBERS_MAX, Member, Met, Presence};
use crate::revoked::{ENTRY_SECONDS, REVOKED_MAX, Revoked};
use crate::token::Address;
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// See the top of this file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    pub(crate) members: BTreeMap<NodeId, Member>,
    pub invitations: Invitations,
    pub(crate) revoked: BTreeMap<NodeId, u64>,
    /// Counts the lists of revoked nodes.
    pub(crate) revision: u64,
    /// When that list was last changed, in seconds since 1970.
    pub(crate) revised_at: u64,
    /// Numbers of which several anchors give each once, by what they count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) claims: BTreeMap<String, Claim>,
    /// Small texts that several anchors have in common.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) notes: BTreeMap<String, String>,
    /// Counts the sets of anchors that there were since there were several.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) set: u64,
    /// Where it stands in what several anchors have agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<Mark>,
}

/// How far something is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// What has this number is known to two anchors.
    pub confirmed: u64,
    /// The last number that was given.
    pub claimed: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
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
        let at = before.and_then(|one| one.at.clone());
        let member = Member { name: name.to_owned(), key, is_anchor, admitted_at: now, life, at };
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
        if self.revoked.len() >= REVOKED_MAX {
            // Not before: by a clock that is ahead, entries have ended whose certificates have not.
            self.revoked.retain(|_, since| since.saturating_add(ENTRY_SECONDS) > now);
        }
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

    /// Whether the list of revoked nodes is of a time that is not yet, by more than clocks may be apart.
    pub fn is_ahead(&self, now: u64) -> bool {
        self.revised_at > now.saturating_add(GRACE_SECONDS)
    }

    /// The list of revoked nodes is of now, and so are those of its entries that are of later.
    pub fn revise(&mut self, now: u64) {
        self.revoked.values_mut().for_each(|since| *since = (*since).min(now));
        self.revision += 1;
        self.revised_at = now;
    }

    pub fn revoked(&self) -> &BTreeMap<NodeId, u64> {
        &self.revoked
    }

    /// Whether a list says nothing that this ledger lacks: it is an older one, or its own.
    pub(crate) fn has_list(&self, list: &Revoked) -> bool {
        match list.revision().cmp(&self.revision) {
            Ordering::Less => true,
            Ordering::Equal => *list.entries() == self.revoked,
            Ordering::Greater => false,
        }
    }

    /// Takes over what a list says that this ledger lacks, as one from a backup does: who is on the list is out.
    /// Where the ledger says more, what both say is a list that is newer than both. Beyond [`REVOKED_MAX`] those leave
    /// it who were taken out longest ago: they stay no members, so their certificates are not renewed.
    pub(crate) fn merge_list(&mut self, list: &Revoked, now: u64) {
        if self.has_list(list) {
            return;
        }
        let mut revoked = list.entries().clone();
        for (node, since) in &self.revoked {
            let later = revoked.entry(*node).or_insert(*since);
            *later = (*later).max(*since);
        }
        self.members.retain(|node, _| !revoked.contains_key(node));
        let mut oldest: Vec<(u64, NodeId)> = revoked.iter().map(|(node, since)| (*since, *node)).collect();
        oldest.sort_unstable();
        for (_, node) in &oldest[..oldest.len().saturating_sub(REVOKED_MAX)] {
            revoked.remove(node);
        }
        let is_that_list = list.revision() > self.revision && revoked == *list.entries();
        (self.revision, self.revised_at) = match is_that_list {
            true => (list.revision(), list.issued()),
            false => (self.revision.max(list.revision()) + 1, now),
        };
        self.revoked = revoked;
    }

    /// The anchors, where there were ever several. One that was always alone is not among them.
    pub fn anchors(&self) -> impl Iterator<Item = (&NodeId, &Member)> {
        self.members.iter().filter(|(_, member)| member.is_anchor && member.at.is_some())
    }

    /// Several anchors agree on each change.
    pub fn has_several_anchors(&self) -> bool {
        self.anchors().nth(1).is_some()
    }

    /// Counts the sets of anchors: one more, if there were others before.
    pub(crate) fn count_set(&mut self, before: &Self) {
        let anchors = |ledger: &Self| ledger.anchors().map(|(node, _)| *node).collect::<Vec<_>>();
        if anchors(before) != anchors(self) {
            self.set = before.set + 1;
        }
    }

    /// An anchor that is alone again goes on counting: ledgers with one mark are the same.
    pub(crate) fn count_mark(&mut self, before: &Self) {
        self.mark = before.mark.map(|mark| mark.then(&Change::between(before, self)));
    }

    /// Which set of anchors this is.
    pub fn set(&self) -> u64 {
        self.set
    }

    /// Where it stands in what several anchors have agreed on.
    pub fn mark(&self) -> Mark {
        self.mark.unwrap_or_default()
    }

    /// Makes a member an anchor that listens at `at`, or says where an anchor listens now.
    ///
    /// # Errors
    /// As [`Ledger::member`].
    pub fn appoint(&mut self, node: &NodeId, at: Address) -> Result<(), Problem> {
        self.member(node)?;
        let member = self.members.get_mut(node).expect("it is a member");
        (member.is_anchor, member.at) = (true, Some(at));
        Ok(())
    }

    /// An anchor is a member like others from now on.
    ///
    /// # Errors
    /// As [`Ledger::member`]; [`Code::Usage`]: it is no anchor, or the only one.
    pub fn dismiss(&mut self, node: &NodeId) -> Result<(), Problem> {
        let is_anchor = self.member(node)?.is_anchor;
        let refused = |why: &str| Err(Problem::new(Code::Usage, why.to_owned()));
        if !is_anchor {
            return refused("the node is no anchor");
        }
        if !self.has_several_anchors() {
            return refused("it is the only anchor: without it there is no fleet");
        }
        let member = self.members.get_mut(node).expect("it is a member");
        (member.is_anchor, member.at) = (false, None);
        Ok(())
    }

    /// Gives the next number of what is counted under `name`, to who knows it up to `known`.
    ///
    /// # Errors
    /// [`Code::DeploymentChanged`]: another anchor has confirmed a later one.
    pub fn claim(&mut self, name: &str, known: u64) -> Result<u64, Problem> {
        let claim = self.claims.entry(name.to_owned()).or_default();
        if known < claim.confirmed {
            return Err(came_first());
        }
        claim.claimed = claim.claimed.max(known) + 1;
        Ok(claim.claimed)
    }

    /// What has this number is known to two anchors.
    ///
    /// # Errors
    /// [`Code::DeploymentChanged`]: another anchor was given the next number meanwhile.
    pub fn confirm(&mut self, name: &str, number: u64) -> Result<(), Problem> {
        let claim = self.claims.entry(name.to_owned()).or_default();
        if claim.claimed != number {
            return Err(came_first());
        }
        claim.confirmed = number;
        Ok(())
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

fn came_first() -> Problem {
    Problem::new(Code::DeploymentChanged, "another anchor has decided at the same time")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::Authority;
    use std::ops::Range;

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
    fn who_is_revoked_is_out_until_its_place_is_needed_and_its_last_certificate_has_ended() {
        let mut ledger = Ledger::default();
        let key = |number: u16| std::array::from_fn(|at| number.to_le_bytes().get(at).copied().unwrap_or(2));
        let node = |number: u16| NodeId::of(&key(number));
        let mut revoke = |number: u16, at: u64| {
            ledger.admit(&format!("pi-{number}"), key(number), false, at).unwrap();
            ledger.revoke(&node(number), at)
        };
        revoke(0, NOW).unwrap();
        // Whoever revokes may have a clock that is years ahead.
        revoke(1, NOW + 100 * ENTRY_SECONDS).unwrap();
        (2..REVOKED_MAX as u16).for_each(|number| revoke(number, NOW + 1).unwrap());
        assert_eq!(revoke(3_000, NOW + ENTRY_SECONDS - 1).unwrap_err().code, Code::Usage);
        ledger.revoke(&node(0), NOW + 9).unwrap();
        assert_eq!(ledger.revision(), (REVOKED_MAX as u64, NOW + 1));
        assert_eq!(ledger.member(&node(0)).unwrap_err().code, Code::NodeRevoked);
        assert_eq!(ledger.admit("pi-0", key(0), false, NOW).unwrap_err().code, Code::NodeRevoked);
        ledger.revoke(&node(3_000), NOW + ENTRY_SECONDS).unwrap();
        assert_eq!(ledger.member(&node(0)).unwrap_err().code, Code::NotAdmitted);
        assert_eq!(ledger.revoked().len(), REVOKED_MAX);
    }

    #[test]
    fn a_ledger_from_a_backup_takes_over_what_a_later_list_says() {
        let authority = Authority::found("campus", &[1; 32]).unwrap();
        let list = |ledger: &Ledger| Revoked::sign(&authority, ledger.revision, ledger.revised_at, &ledger.revoked);
        let node = |number: u8| NodeId::of(&[number; 32]);
        let mut backup = Ledger::default();
        for number in 2..5 {
            backup.admit(&format!("pi-{number}"), [number; 32], false, NOW).unwrap();
        }
        let mut lost = backup.clone();
        lost.revoke(&node(2), NOW).unwrap();
        // It has taken nobody out since: it goes on with that very list.
        let mut restored = backup.clone();
        restored.merge_list(&list(&lost), NOW + 5);
        assert_eq!(restored, lost);
        // It has taken another one out, by a list of the same number.
        let mut restored = backup.clone();
        restored.revoke(&node(3), NOW + 1).unwrap();
        restored.merge_list(&list(&lost), NOW + 5);
        assert_eq!(restored.revision(), (2, NOW + 5));
        assert_eq!(*restored.revoked(), BTreeMap::from([(node(2), NOW), (node(3), NOW + 1)]));
        assert_eq!(restored.members().map(|(node, _)| *node).collect::<Vec<_>>(), [node(4)]);
        // What is older, or its own, says nothing more.
        let before = restored.clone();
        for known in [&lost, &before] {
            restored.merge_list(&list(known), NOW + 9);
        }
        assert_eq!(restored, before);
    }

    #[test]
    fn two_full_lists_become_one_of_those_who_were_taken_out_last() {
        let authority = Authority::found("campus", &[1; 32]).unwrap();
        let node = |number: u64| NodeId(std::array::from_fn(|at| number.to_le_bytes()[at % 8]));
        let of = |numbers: Range<u64>| numbers.map(|number| (node(number), number)).collect::<BTreeMap<_, _>>();
        let most = REVOKED_MAX as u64;
        let mut ledger = Ledger { revoked: of(0..most), revision: 7, ..Ledger::default() };
        ledger.merge_list(&Revoked::sign(&authority, 9, NOW, &of(most..2 * most)), NOW + 1);
        assert_eq!(ledger.revision(), (9, NOW), "nothing is left that the list lacks");
        assert!(*ledger.revoked() == of(most..2 * most));
    }

    #[test]
    fn a_list_of_a_time_to_come_is_made_anew() {
        let mut ledger = Ledger::default();
        ledger.admit("pi-7", [2; 32], false, NOW).unwrap();
        ledger.revoke(&NodeId::of(&[2; 32]), NOW + 2 * GRACE_SECONDS).unwrap();
        assert!(!ledger.is_ahead(NOW + GRACE_SECONDS) && ledger.is_ahead(NOW + GRACE_SECONDS - 1));
        ledger.revise(NOW);
        assert_eq!((ledger.is_ahead(NOW), ledger.revision()), (false, (2, NOW)));
        assert_eq!(ledger.revoked().values().collect::<Vec<_>>(), [&NOW]);
    }
}
