//! An anchor's side: who asks, is it allowed, and what is written down before it is answered.
//!
//! ```text
//!   question ─▶ proofs, by the channel it came on ─▶ a changed copy of the ledger ─▶ kept on disk ─▶ answer
//! ```
//! A ledger that cannot be kept changes nothing: the question is refused. Renewals change nothing and write nothing.
//! All of this blocks for as long as a disk takes; with several anchors, for as long as they take to agree
//! ([`crate::agreed`]).

use crate::agreed::Agree;
use crate::certificate::{Authority, Membership, Role};
use crate::dates::{Clock, Dates};
use crate::digits::Digits;
use crate::id::NodeId;
use crate::invitations::{InvitationId, unknown};
use crate::keys::{NodeKey, PublicKey, Seed, Signature, is_signed, random};
use crate::ledger::Ledger;
use crate::members::{Member, Met, Presence};
use crate::message::{Admission, Reply};
use crate::revoked::Revoked;
use crate::token::{ADDRESSES_MAX, Address, Token, proof_key};
use parking_lot::{Mutex, MutexGuard, RwLock};
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot, watch};

/// How long a node is told that another machine had its key, in seconds.
const DOUBLED_SHOWN_SECONDS: u64 = 3_600;
/// How long a change waits for those before it. Then it is refused.
const TURN_MAX: Duration = Duration::from_secs(20);

/// Who is unknown here, and waits at once until other anchors have said whether they know it. A thread waits for
/// each, and anybody may ask; the next one is refused.
pub const ASKING_MAX: usize = 16;

pub(crate) const JOIN_PURPOSE: &str = "lighterage join 1";
pub(crate) const PROOF_PURPOSE: &str = "lighterage invitation proof 1";
pub(crate) const KNOCK_PURPOSE: &str = "lighterage knock 1";
pub(crate) const RENEW_PURPOSE: &str = "lighterage renew 1";

/// 32 bytes that only the two ends of one TLS connection know: what is signed over them is worth nothing elsewhere.
pub type Channel = [u8; 32];

/// Where a ledger is kept. Asked for each change, one at a time.
pub trait Keep: Send + Sync + 'static {
    /// Keeps `ledger` instead of what was kept before. Durable once `Ok`.
    ///
    /// # Errors
    /// Nothing of it counts.
    fn keep(&self, ledger: &Ledger) -> Result<(), Problem>;
}

/// A node that keeps the fleet's ledger and its CA.
pub struct Anchor {
    pub(crate) authority: Authority,
    ledger: Mutex<Ledger>,
    /// Held while the ledger is changed; who reads it does not wait.
    changing: Mutex<()>,
    keep: Box<dyn Keep>,
    /// Where it agrees with other anchors, once it can.
    pub(crate) agree: RwLock<Option<Arc<dyn Agree>>>,
    clock: Clock,
    /// Where this anchor listens, as nodes are told.
    pub(crate) addresses: RwLock<Vec<Address>>,
    knocks: Arc<Mutex<Knocks>>,
    /// Told when the ledger has changed.
    pub(crate) changes: watch::Sender<u64>,
    /// Whose anchor this is, once it has certified itself.
    own: OnceLock<NodeId>,
    /// This node is none any more.
    closed: AtomicBool,
    /// Who may wait until other anchors answer.
    asking: Semaphore,
}

/// A request by an invitation.
pub struct Invited<'a> {
    pub invitation: InvitationId,
    pub key: PublicKey,
    pub name: &'a str,
    pub proof: &'a Signature,
    pub signature: &'a Signature,
}

/// A new node that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knocking {
    pub name: String,
    pub node: NodeId,
    pub digits: Digits,
}

#[derive(Default)]
struct Knocks {
    next: u64,
    waiting: BTreeMap<u64, (Knocking, PublicKey, oneshot::Sender<Admission>)>,
}

/// A place among those that wait. It is free again when this is dropped.
pub(crate) struct Waiting {
    number: u64,
    pub admission: oneshot::Receiver<Admission>,
    knocks: Arc<Mutex<Knocks>>,
}

/// What a hello is answered, and whether the node lives anew.
pub(crate) struct Heard {
    pub reply: Reply,
    pub is_new_life: bool,
}

impl Anchor {
    /// `addresses`: where the fleet's anchors listen, at most [`ADDRESSES_MAX`] of them stand in invitations.
    pub fn new(authority: Authority, ledger: Ledger, addresses: Vec<Address>, clock: Clock, keep: impl Keep) -> Self {
        let (ledger, keep, addresses) = (Mutex::new(ledger), Box::new(keep), RwLock::new(addresses));
        let (changing, agree, changes, own, closed) = Default::default();
        Self {
            authority,
            ledger,
            changing,
            keep,
            agree,
            clock,
            addresses,
            knocks: Arc::default(),
            changes,
            own,
            closed,
            asking: Semaphore::new(ASKING_MAX),
        }
    }

    /// The anchor's own membership. One of several anchors changes no ledger by that.
    ///
    /// # Errors
    /// As [`Ledger::admit`]; the ledger cannot be kept.
    pub fn own(&self, key: &NodeKey, name: &str) -> Result<Membership, Problem> {
        let several = self.look(Ledger::has_several_anchors);
        let admission = match several {
            true => self.admission(&Member { is_anchor: true, ..self.ledger().member(&key.id())?.clone() })?,
            false => self.admit_as(|ledger, now| ledger.admit(name, key.public(), true, now).cloned())?,
        };
        self.own.get_or_init(|| key.id());
        Ok(Membership {
            fleet_name: admission.fleet_name,
            ca: self.authority.certificate().to_vec(),
            certificate: admission.certificate,
            anchors: admission.anchors,
            incarnation: admission.incarnation,
        })
    }

    /// Makes an invitation for `times` nodes, for `seconds` from now. The token is told once and kept nowhere.
    ///
    /// # Errors
    /// [`Code::Usage`]: beyond a limit. The ledger cannot be kept.
    pub fn invite(&self, times: u32, seconds: u64) -> Result<Token, Problem> {
        let secret = random()?;
        let (proof, now) = (proof_key(&secret).public(), self.clock.likely());
        self.change(|ledger| ledger.invitations.add(proof, times, seconds, now))?;
        let anchors = self.addresses().into_iter().take(ADDRESSES_MAX).collect();
        Ok(Token { ca_hash: self.authority.ca_hash(), secret, anchors })
    }

    /// Takes an invitation back. `false`: there was none.
    ///
    /// # Errors
    /// The ledger cannot be kept.
    pub fn uninvite(&self, invitation: &InvitationId) -> Result<bool, Problem> {
        self.change(|ledger| Ok(ledger.invitations.remove(invitation)))
    }

    /// Takes a node out of the fleet. Its connections here end when [`crate::Trust`] learns the list.
    ///
    /// # Errors
    /// As [`Ledger::revoke`]; the ledger cannot be kept.
    pub fn revoke(&self, node: &NodeId) -> Result<Revoked, Problem> {
        let now = self.clock.likely();
        self.change(|ledger| ledger.revoke(node, now))?;
        self.revoked().ok_or_else(|| Problem::new(Code::Internal, "a list of revoked nodes is empty"))
    }

    /// The same where this node knows of a list that may be later than the ledger: without what that says, the next
    /// list would let those in again who are on it.
    ///
    /// # Errors
    /// As [`Anchor::merge_list`] and [`Anchor::revoke`].
    pub fn revoke_beside(&self, known: Option<&Revoked>, node: &NodeId) -> Result<Revoked, Problem> {
        known.map_or(Ok(None), |list| self.merge_list(list))?;
        self.revoke(node)
    }

    /// Takes over what a list says that the ledger lacks, because this anchor was restored from a backup. Gives the
    /// list that holds then. `None`: the ledger lacks nothing.
    ///
    /// # Errors
    /// [`Code::NotAnchor`]: this anchor itself is on the list. The ledger cannot be kept.
    pub fn merge_list(&self, list: &Revoked) -> Result<Option<Revoked>, Problem> {
        if self.look(|ledger| ledger.has_list(list)) {
            return Ok(None);
        }
        if self.own.get().is_some_and(|own| list.contains(own)) {
            let detail = "a later list of revoked nodes says that this anchor was taken out of the fleet";
            return Err(Problem::new(Code::NotAnchor, detail));
        }
        let now = self.clock.likely();
        self.change(|ledger| {
            ledger.merge_list(list, now);
            Ok(())
        })?;
        Ok(self.revoked())
    }

    /// The list of revoked nodes, as it is passed on. `None`: nobody ever was.
    pub fn revoked(&self) -> Option<Revoked> {
        let ledger = self.ledger.lock();
        let (revision, made_at) = ledger.revision();
        (revision > 0).then(|| Revoked::sign(&self.authority, revision, made_at, ledger.revoked()))
    }

    /// Makes the list of revoked nodes anew, if it is of a time that is not yet: a clock was ahead when it was made,
    /// and to all who have it, certificates of today have ended. `None`: it is good.
    ///
    /// # Errors
    /// The ledger cannot be kept.
    pub fn revise(&self) -> Result<Option<Revoked>, Problem> {
        let now = self.clock.likely();
        if !self.look(|ledger| ledger.is_ahead(now)) {
            return Ok(None);
        }
        self.change(|ledger| {
            // Another anchor may have been first.
            if ledger.is_ahead(now) {
                ledger.revise(now);
            }
            Ok(())
        })?;
        Ok(self.revoked())
    }

    /// 32 secret bytes for one purpose, the same on every anchor of the fleet.
    pub fn secret_for(&self, purpose: &str) -> Seed {
        self.authority.secret_for(purpose)
    }

    /// Signs `parts` for one `purpose` as the fleet: every member can check it, with the CA that it has.
    pub fn sign(&self, purpose: &str, parts: &[&[u8]]) -> Signature {
        self.authority.key().sign(purpose, parts)
    }

    /// What is written down now.
    pub fn ledger(&self) -> Ledger {
        self.ledger.lock().clone()
    }

    /// Looks at the ledger, which stays as it is meanwhile.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(&self.ledger.lock())
    }

    /// Looks at each member. The ledger stays as it is until `see` has returned for the last one.
    pub fn for_each_member(&self, see: impl FnMut((&NodeId, &Member))) {
        self.ledger.lock().members().for_each(see);
    }

    /// The name under which a member was admitted.
    pub fn name_of(&self, node: &NodeId) -> Option<String> {
        self.ledger.lock().member(node).ok().map(|member| member.name.clone())
    }

    /// Lets a node in that has an invitation.
    ///
    /// # Errors
    /// [`Code::InvitationUnknown`] also where a proof is wrong: who guesses learns nothing. Else as
    /// [`Ledger::admit_invited`].
    pub fn join(&self, asked: &Invited<'_>, channel: &Channel) -> Result<Admission, Problem> {
        let Invited { invitation, key, name, proof, signature } = asked;
        let known = || self.look(|ledger| ledger.invitations.proof(invitation)).ok_or_else(unknown);
        let known = self.heard(known)?;
        if !is_signed(&known, PROOF_PURPOSE, &[channel, key, name.as_bytes()], proof) {
            return Err(unknown());
        }
        if !is_signed(key, JOIN_PURPOSE, &[channel, &invitation.0, name.as_bytes()], signature) {
            return Err(Problem::new(Code::NotAdmitted, "the node does not have the key that it names"));
        }
        self.admit_as(|ledger, now| ledger.admit_invited(invitation, name, *key, now).cloned())
    }

    /// A new certificate for a member, whether its old one has ended or not: the key is who it is.
    ///
    /// # Errors
    /// [`Code::NodeRevoked`], [`Code::NotAdmitted`].
    pub fn renew(&self, key: &PublicKey, signature: &Signature, channel: &Channel) -> Result<Admission, Problem> {
        // First of all: who has not proved the key does not learn what the fleet knows of it.
        if !is_signed(key, RENEW_PURPOSE, &[channel], signature) {
            return Err(Problem::new(Code::NotAdmitted, "the node does not have the key that it names"));
        }
        let member = self.heard(|| self.look(|ledger| ledger.member(&NodeId::of(key)).cloned()))?;
        self.admission(&member)
    }

    /// Whether a hello changes nothing, so that it waits for nobody. A node that is unknown changes nothing either.
    pub(crate) fn is_known(&self, node: &NodeId, presence: Presence) -> bool {
        let now = self.clock.likely();
        let life_of = |ledger: &Ledger| ledger.member(node).ok().map(|member| member.life.as_known(presence, now));
        self.look(life_of).is_none_or(|met| met.is_some())
    }

    /// A member, whose certificate TLS has checked, says hello.
    ///
    /// # Errors
    /// [`Code::NodeDoubled`], and as [`Ledger::member`].
    pub(crate) fn hello(&self, node: &NodeId, presence: Presence) -> Result<Heard, Problem> {
        let now = self.clock.likely();
        let before = self.heard(|| self.look(|ledger| ledger.member(node).map(|member| member.life.clone())))?;
        // Nearly every hello is of a life that goes on. Only another one costs a copy of the ledger, and the disk.
        let (life, met) = match before.as_known(presence, now) {
            Some(met) => (before.clone(), met),
            None => self.change(|ledger| {
                let met = ledger.meet(node, presence, now)?;
                Ok((ledger.member(node)?.life.clone(), met))
            })?,
        };
        let is_new_life = !before.is_of(&presence.run) && life.is_of(&presence.run);
        let is_doubled = life.doubled_at.is_some_and(|at| now.abs_diff(at) < DOUBLED_SHOWN_SECONDS);
        let incarnation = match met {
            Met::Alive { incarnation } => incarnation,
            Met::Doubled { known } => {
                let detail = format!(
                    "another machine has lived as node {node} since: it is at incarnation {known}, this one at {}",
                    presence.incarnation
                );
                return Err(Problem::new(Code::NodeDoubled, detail));
            }
        };
        let reply = Reply::Welcome { incarnation, is_doubled, revoked: self.list() };
        Ok(Heard { reply, is_new_life })
    }

    /// Those who wait for a person.
    pub fn knocking(&self) -> Vec<Knocking> {
        self.knocks.lock().waiting.values().map(|(knocking, _, _)| knocking.clone()).collect()
    }

    /// Lets the node in whose digits a person has read on the node and types here.
    ///
    /// # Errors
    /// [`Code::NotAdmitted`]: none waits with these digits, or two do. Else as [`Ledger::admit`]. If the ledger
    /// cannot be kept now, the node waits on, and its digits may be typed again.
    pub fn admit(&self, digits: Digits) -> Result<Knocking, Problem> {
        let knocks = self.knocks.lock();
        let numbers: Vec<u64> = knocks
            .waiting
            .iter()
            .filter(|(_, (knocking, _, _))| knocking.digits == digits)
            .map(|(number, _)| *number)
            .collect();
        let [number] = numbers[..] else {
            let detail = format!("{} nodes wait with the digits {digits}", numbers.len());
            return Err(Problem::new(Code::NotAdmitted, detail).with_hint(
                "type the digits that the new node shows; if these are they, somebody may stand between: begin again",
            ));
        };
        let (knocking, key) = (knocks.waiting[&number].0.clone(), knocks.waiting[&number].1);
        drop(knocks);
        let admitted = self.admit_as(|ledger, now| ledger.admit(&knocking.name, key, false, now).cloned());
        let is_over = |problem: &Problem| matches!(problem.code, Code::NotAdmitted | Code::NodeRevoked);
        let waits = admitted.as_ref().is_err_and(|problem| !is_over(problem));
        let waiting = if waits { None } else { self.knocks.lock().waiting.remove(&number) };
        let admission = admitted?;
        if let Some((_, _, sender)) = waiting {
            // A node that has gone meanwhile is a member, and asks for its certificate as one.
            let _ = sender.send(admission);
        }
        Ok(knocking)
    }

    /// Before anybody compares digits: whether a node may have the name that it wants.
    ///
    /// # Errors
    /// [`Code::NotAdmitted`].
    pub(crate) fn check_free(&self, name: &str, key: &PublicKey) -> Result<(), Problem> {
        self.ledger.lock().check_free(name, &NodeId::of(key))
    }

    /// A new node waits.
    pub(crate) fn wait(&self, name: &str, key: PublicKey, digits: Digits) -> Waiting {
        let (sender, admission) = oneshot::channel();
        let knocking = Knocking { name: name.to_owned(), node: NodeId::of(&key), digits };
        let mut knocks = self.knocks.lock();
        knocks.next += 1;
        let number = knocks.next;
        knocks.waiting.insert(number, (knocking, key, sender));
        Waiting { number, admission, knocks: self.knocks.clone() }
    }

    pub(crate) fn ca_hash(&self) -> [u8; 32] {
        self.authority.ca_hash()
    }

    fn admit_as(&self, admit: impl Fn(&mut Ledger, u64) -> Result<Member, Problem>) -> Result<Admission, Problem> {
        let now = self.clock.likely();
        let member = self.change(|ledger| admit(ledger, now))?;
        self.admission(&member)
    }

    pub(crate) fn admission(&self, member: &Member) -> Result<Admission, Problem> {
        let role = if member.is_anchor { Role::Anchor } else { Role::Member };
        let dates = Dates::from(self.clock.likely());
        Ok(Admission {
            fleet_name: self.authority.name().to_owned(),
            certificate: self.authority.issue(&member.key, role, dates, random()?)?,
            anchors: self.addresses(),
            incarnation: member.life.incarnation(),
            revoked: self.list(),
        })
    }

    fn list(&self) -> Vec<u8> {
        self.revoked().map_or_else(Vec::new, |list| list.bytes().to_vec())
    }

    /// Changes a copy, keeps it, and only then goes on with it. With several anchors they agree on it first.
    pub(crate) fn change<T>(&self, change: impl Fn(&mut Ledger) -> Result<T, Problem>) -> Result<T, Problem> {
        let _changing = self.changing()?;
        if self.own.get().is_some_and(|own| !self.look(|ledger| ledger.member(own).is_ok_and(|one| one.is_anchor))) {
            return Err(Problem::new(Code::NotAnchor, "this node is no anchor any more"));
        }
        if let Some(agree) = self.agree()? {
            return self.change_agreed(&agree, change);
        }
        let before = self.ledger();
        let mut changed = before.clone();
        let result = change(&mut changed)?;
        if changed != before {
            changed.count_set(&before);
            changed.count_mark(&before);
            self.hold(changed)?;
        }
        Ok(result)
    }

    /// What the ledger has. Where it lacks it, another anchor may have written it a moment ago: so this one asks
    /// first.
    fn heard<T>(&self, look: impl Fn() -> Result<T, Problem>) -> Result<T, Problem> {
        match look() {
            Err(problem) if matches!(problem.code, Code::InvitationUnknown | Code::NotAdmitted) => {
                if self.agree()?.is_none() {
                    return Err(problem);
                }
                let busy = |_| Problem::new(Code::AnchorBusy, "too many wait until the other anchors answer");
                let _asking = self.asking.try_acquire().map_err(busy)?;
                self.follow()?;
                look()
            }
            found => found,
        }
    }

    /// The right to change the ledger.
    pub(crate) fn changing(&self) -> Result<MutexGuard<'_, ()>, Problem> {
        let busy = || Problem::new(Code::AnchorBusy, "others have changed the ledger for too long");
        self.changing.try_lock_for(TURN_MAX).ok_or_else(busy)
    }

    /// Where it agrees with other anchors; none if it is the only one.
    pub(crate) fn agree(&self) -> Result<Option<Arc<dyn Agree>>, Problem> {
        if !self.look(Ledger::has_several_anchors) {
            return Ok(None);
        }
        let away = || Problem::new(Code::AnchorsAway, "this anchor has no way to the other ones yet");
        self.agree.read().clone().ok_or_else(away).map(Some)
    }

    /// From now on no ledger is kept any more.
    ///
    /// # Errors
    /// [`Code::AnchorBusy`]: others change it all the time.
    pub fn close(&self) -> Result<(), Problem> {
        let _changing = self.changing()?;
        self.closed.store(true, Relaxed);
        Ok(())
    }

    /// Keeps a ledger, and goes on with it.
    pub(crate) fn hold(&self, ledger: Ledger) -> Result<(), Problem> {
        if self.closed.load(Relaxed) {
            return Err(Problem::new(Code::NotAnchor, "this node is no anchor any more"));
        }
        self.keep.keep(&ledger)?;
        *self.ledger.lock() = ledger;
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
        Ok(())
    }
}

impl fmt::Debug for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Anchor({} {})", self.authority.name(), self.authority.fleet())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.knocks.lock().waiting.remove(&self.number);
    }
}
