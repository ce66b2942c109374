//! Invitations as an anchor keeps them: what proves the secret, until when, and how often.
//!
//! Kept is a public key that is made from the secret. It tells the secret to nobody, and does not let its reader join.

use crate::id::{NodeId, as_hex};
use crate::keys::{PublicKey, sha256};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Invitations of a fleet at one time. Another one is refused until some have ended.
pub const INVITATIONS_MAX: usize = 256;
/// Nodes that one invitation lets in. An invitation for more is refused.
pub const TIMES_MAX: u32 = 1_024;
/// How long an invitation holds at most, in seconds: 30 days. A longer one is refused.
pub const SECONDS_MAX: u64 = 30 * 24 * 3_600;
/// How long one that has ended is kept, so that a node that comes late is told the reason: 7 days.
const KEPT_SECONDS: u64 = 7 * 24 * 3_600;

/// How a new node names its invitation: 16 bytes of the hash of what proves its secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct InvitationId(pub [u8; 16]);

/// One invitation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invitation {
    #[serde(with = "as_hex")]
    pub proof: PublicKey,
    /// In seconds since 1970, by the anchors' clocks.
    pub ends_at: u64,
    pub times: u32,
    /// Who came. One that comes again, because the answer was lost on the way, is not counted again.
    pub admitted: BTreeSet<NodeId>,
}

/// All of a fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Invitations(pub(crate) BTreeMap<InvitationId, Invitation>);

impl InvitationId {
    pub fn of(proof: &PublicKey) -> Self {
        let hash = sha256(&[proof]);
        Self(std::array::from_fn(|at| hash[at]))
    }
}

impl Invitations {
    /// Adds an invitation that holds from `now` on.
    ///
    /// # Errors
    /// [`Code::Usage`]: for too long, for too many, or there are too many.
    pub fn add(&mut self, proof: PublicKey, times: u32, seconds: u64, now: u64) -> Result<InvitationId, Problem> {
        self.0.retain(|_, one| one.ends_at.saturating_add(KEPT_SECONDS) > now);
        let refused = |detail: String| Err(Problem::new(Code::Usage, detail));
        if !(1..=TIMES_MAX).contains(&times) {
            return refused(format!("an invitation for {times} nodes, 1 to {TIMES_MAX} are possible"));
        }
        if !(1..=SECONDS_MAX).contains(&seconds) {
            return refused(format!("an invitation for {seconds} s, 1 to {SECONDS_MAX} are possible"));
        }
        if self.0.len() >= INVITATIONS_MAX {
            return refused(format!("there are {INVITATIONS_MAX} invitations, which is the limit"));
        }
        let id = InvitationId::of(&proof);
        let invitation = Invitation { proof, ends_at: now.saturating_add(seconds), times, admitted: BTreeSet::new() };
        self.0.insert(id, invitation);
        Ok(id)
    }

    /// What proves the secret of this invitation.
    pub fn proof(&self, id: &InvitationId) -> Option<PublicKey> {
        self.0.get(id).map(|one| one.proof)
    }

    /// Lets `node`, which has proved the secret, in by this invitation.
    ///
    /// # Errors
    /// [`Code::InvitationUnknown`], [`Code::InvitationEnded`], [`Code::InvitationUsed`]: nothing has changed.
    pub fn take(&mut self, id: &InvitationId, node: NodeId, now: u64) -> Result<(), Problem> {
        let Some(one) = self.0.get_mut(id) else { return Err(unknown()) };
        if now >= one.ends_at {
            let detail = format!("the invitation ended {} s ago", now - one.ends_at);
            return Err(Problem::new(Code::InvitationEnded, detail));
        }
        if one.admitted.len() >= one.times as usize && !one.admitted.contains(&node) {
            let detail = format!("the invitation was for {} and has let them in", nodes(one.times));
            return Err(Problem::new(Code::InvitationUsed, detail));
        }
        one.admitted.insert(node);
        Ok(())
    }

    /// Takes an invitation back. `false`: there is none.
    pub fn remove(&mut self, id: &InvitationId) -> bool {
        self.0.remove(id).is_some()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&InvitationId, &Invitation)> {
        self.0.iter()
    }
}

/// Said of an invitation that is not there, and of a secret that was not proved, in the same words.
pub(crate) fn unknown() -> Problem {
    Problem::new(Code::InvitationUnknown, "the fleet has no such invitation")
}

fn nodes(count: u32) -> String {
    if count == 1 { "one node".to_owned() } else { format!("{count} nodes") }
}

impl fmt::Display for InvitationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::id::hex(&self.0))
    }
}

impl fmt::Debug for InvitationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InvitationId({self})")
    }
}

impl From<InvitationId> for String {
    fn from(id: InvitationId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for InvitationId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        NodeId::read(&text).map(|id| Self(id.0)).ok_or("an invitation's id has 32 hexadecimal digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_795_000_000;

    fn node(number: u8) -> NodeId {
        NodeId([number; 16])
    }

    #[test]
    fn an_invitation_lets_in_as_many_as_it_says_and_each_of_them_again() {
        let mut all = Invitations::default();
        let id = all.add([1; 32], 2, 60, NOW).unwrap();
        all.take(&id, node(1), NOW).unwrap();
        all.take(&id, node(2), NOW).unwrap();
        all.take(&id, node(1), NOW).unwrap();
        assert_eq!(all.take(&id, node(3), NOW).unwrap_err().code, Code::InvitationUsed);
        assert!(all.remove(&id));
        assert_eq!(all.take(&id, node(1), NOW).unwrap_err().code, Code::InvitationUnknown);
    }

    #[test]
    fn an_invitation_that_has_ended_says_so_for_a_week() {
        let mut all = Invitations::default();
        let id = all.add([1; 32], 1, 60, NOW).unwrap();
        all.take(&id, node(1), NOW + 59).unwrap();
        assert_eq!(all.take(&id, node(1), NOW + 60).unwrap_err().code, Code::InvitationEnded);
        all.add([2; 32], 1, 60, NOW + KEPT_SECONDS).unwrap();
        assert_eq!(all.take(&id, node(1), NOW + KEPT_SECONDS).unwrap_err().code, Code::InvitationEnded);
        all.add([3; 32], 1, 60, NOW + 60 + KEPT_SECONDS).unwrap();
        assert_eq!(all.take(&id, node(1), NOW + 60 + KEPT_SECONDS).unwrap_err().code, Code::InvitationUnknown);
    }

    #[test]
    fn there_are_limits() {
        let mut all = Invitations::default();
        for (times, seconds) in [(0, 60), (TIMES_MAX + 1, 60), (1, 0), (1, SECONDS_MAX + 1)] {
            assert_eq!(all.add([1; 32], times, seconds, NOW).unwrap_err().code, Code::Usage);
        }
        for number in 0..INVITATIONS_MAX {
            let proof = std::array::from_fn(|at| (number >> (8 * (at % 2))) as u8);
            all.add(proof, 1, 60, NOW).unwrap();
        }
        assert_eq!(all.add([1; 32], 1, 60, NOW).unwrap_err().code, Code::Usage);
    }
}
