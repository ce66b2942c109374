//! Who is a member, and how two machines with one key are noticed.
//!
//! ```text
//!   node: (incarnation on its disk, run drawn at its start) ─▶ anchor
//!     as known                         ─▶ the same life goes on
//!     incarnation as known, new run    ─▶ a new start: the anchor offers incarnation + 1
//!     the offer, shown by its run      ─▶ it is on that node's disk: now it counts
//!     a lower incarnation              ─▶ another machine has lived under this key since: refused
//! ```
//! A copied data folder has the incarnation of the moment it was copied. The first of the two machines to start again
//! takes the next number, and the other one is refused when it next says hello. An anchor cannot know which of them is
//! the right one, so both learn of it: the refused one by [`Met::Doubled`], the other by a flag in the answer. A power
//! cut between offer and disk costs nothing, because an offer counts only once its node has shown it.

use crate::id::as_hex;
use crate::keys::PublicKey;
use crate::token::Address;
use serde::{Deserialize, Serialize};

/// Members of a fleet. The next node is not admitted.
pub const MEMBERS_MAX: usize = 16_384;

/// How exactly [`Life::doubled_at`] says when.
const DOUBLED_SECONDS: u64 = 60;

/// Drawn when a node starts, and kept nowhere: two runs never have the same.
pub type Run = [u8; 16];

/// A node that was admitted and is not revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    pub name: String,
    #[serde(with = "as_hex")]
    pub key: PublicKey,
    pub is_anchor: bool,
    pub admitted_at: u64,
    #[serde(default)]
    pub life: Life,
    /// Where it listens, of one of several anchors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Address>,
}

/// Which life of a node an anchor knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Life {
    incarnation: u64,
    run: Option<Hex>,
    /// The run to which the next incarnation was offered.
    offered: Option<Hex>,
    /// When another machine with this key was last refused, in seconds since 1970.
    #[serde(default)]
    pub doubled_at: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Hex(#[serde(with = "as_hex")] Run);

/// What a node says of its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence {
    pub incarnation: u64,
    pub run: Run,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// Go on; keep this incarnation, and if it is a new one, say hello again with it.
    Alive { incarnation: u64 },
    /// Another machine has lived under this key, up to this incarnation.
    Doubled { known: u64 },
}

impl Life {
    /// The life that begins when a node is admitted, for the first time or again by an invitation.
    pub fn admitted(&self) -> Self {
        Self { incarnation: self.incarnation + 1, ..Self::default() }
    }

    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Whether this is the run that counts.
    pub fn is_of(&self, run: &Run) -> bool {
        self.run == Some(Hex(*run))
    }

    /// What a node is answered whose hello changes nothing: its life goes on, or it was refused a moment ago.
    pub fn as_known(&self, presence: Presence, now: u64) -> Option<Met> {
        let mut life = self.clone();
        let met = life.meet(presence, now);
        let is_offer = met == Met::Alive { incarnation: presence.incarnation.saturating_add(1) };
        (life == *self && !is_offer).then_some(met)
    }

    /// A node says hello at `now`.
    pub fn meet(&mut self, presence: Presence, now: u64) -> Met {
        let run = Hex(presence.run);
        if presence.incarnation < self.incarnation {
            // One who asks all the time is not written down all the time.
            if self.doubled_at.is_none_or(|at| now.abs_diff(at) >= DOUBLED_SECONDS) {
                self.doubled_at = Some(now);
            }
            return Met::Doubled { known: self.incarnation };
        }
        if presence.incarnation > self.incarnation {
            // The offer is on the node's disk; or this anchor is older than what the node was told: it knows itself.
            self.incarnation = presence.incarnation;
            self.run = self.offered.take().filter(|offered| *offered == run);
        }
        if self.run == Some(run) {
            return Met::Alive { incarnation: self.incarnation };
        }
        self.offered = Some(run);
        Met::Alive { incarnation: self.incarnation.saturating_add(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data folder, and the machine that runs from it.
    #[derive(Clone)]
    struct Machine {
        on_disk: u64,
        run: u8,
    }

    impl Machine {
        /// Says hello until nothing changes, as a node does. `false`: refused.
        fn says_hello(&mut self, life: &mut Life) -> bool {
            for _ in 0..2 {
                match life.meet(Presence { incarnation: self.on_disk, run: [self.run; 16] }, 5) {
                    Met::Doubled { .. } => return false,
                    Met::Alive { incarnation } => self.on_disk = incarnation,
                }
            }
            true
        }

        fn restarts(&mut self) {
            self.run += 100;
        }
    }

    fn joined() -> (Life, Machine) {
        let life = Life::default().admitted();
        (life.clone(), Machine { on_disk: life.incarnation(), run: 1 })
    }

    #[test]
    fn one_machine_is_let_in_after_every_start() {
        let (mut life, mut node) = joined();
        for start in 0..100 {
            assert!(node.says_hello(&mut life) && node.says_hello(&mut life), "start {start}");
            assert_eq!(node.on_disk, life.incarnation());
            node.run = start + 2;
        }
        assert_eq!(life.doubled_at, None);
    }

    #[test]
    fn a_copy_that_starts_ends_the_original_and_says_so() {
        let (mut life, mut original) = joined();
        assert!(original.says_hello(&mut life));
        let mut copy = original.clone();
        copy.restarts();
        assert!(copy.says_hello(&mut life));
        assert!(!original.says_hello(&mut life));
        assert_eq!(life.doubled_at, Some(5));
        original.restarts();
        assert!(!original.says_hello(&mut life), "a restart is no way around it");
    }

    #[test]
    fn an_old_copy_is_refused_at_once() {
        let (mut life, mut original) = joined();
        let mut copy = original.clone();
        copy.restarts();
        assert!(original.says_hello(&mut life));
        assert!(!copy.says_hello(&mut life));
        assert!(original.says_hello(&mut life));
    }

    #[test]
    fn a_power_cut_before_or_after_the_offer_is_on_disk_costs_nothing() {
        for is_on_disk in [false, true] {
            let (mut life, mut node) = joined();
            assert!(node.says_hello(&mut life));
            node.restarts();
            let met = life.meet(Presence { incarnation: node.on_disk, run: [node.run; 16] }, 5);
            let Met::Alive { incarnation } = met else { panic!("{met:?}") };
            node.on_disk = if is_on_disk { incarnation } else { node.on_disk };
            node.run += 50;
            assert!(node.says_hello(&mut life), "on disk: {is_on_disk}");
            assert!(node.says_hello(&mut life), "on disk: {is_on_disk}");
        }
    }

    #[test]
    fn of_two_that_start_at_once_one_goes_on() {
        let (mut life, mut one) = joined();
        let mut other = one.clone();
        other.restarts();
        let offer =
            |life: &mut Life, node: &Machine| life.meet(Presence { incarnation: node.on_disk, run: [node.run; 16] }, 5);
        assert_eq!(offer(&mut life, &one), Met::Alive { incarnation: 2 });
        assert_eq!(offer(&mut life, &other), Met::Alive { incarnation: 2 });
        (one.on_disk, other.on_disk) = (2, 2);
        let both = [one.says_hello(&mut life), other.says_hello(&mut life), one.says_hello(&mut life)];
        assert_eq!(both.iter().filter(|is_alive| !**is_alive).count(), 1, "{both:?}");
    }

    #[test]
    fn an_anchor_that_forgot_believes_the_node() {
        let (mut life, _) = joined();
        let mut node = Machine { on_disk: 40, run: 1 };
        assert!(node.says_hello(&mut life));
        assert_eq!(life.incarnation(), node.on_disk);
    }
}
