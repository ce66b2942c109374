//! Which nodes are anchors: a person names them, and they are given what they need, or told that they are none any
//! more.
//!
//! ```text
//!   appoint, dismiss ─▶ ledger ─▶ keep_office, on every anchor: who shows another certificate than the ledger says?
//!                                     │ Become, Cease
//!   asked, on the node ◀──────────────┘ ─▶ its folder ─▶ Agent::again: its part in the fleet begins anew
//! ```

use crate::active::Active;
use crate::agent::{Agent, blocking, named};
use fleet_trust::link::why;
use fleet_trust::office::{self, Estate, Nominee, OfficeAnswer, OfficeQuestion};
use fleet_trust::serve::MemberArrival;
use fleet_trust::{Address, Anchor, NodeId};
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// How often an anchor looks at who is one.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A node that was not heard of for so long is not asked.
const PRESENT: Duration = Duration::from_secs(15);
/// What lies between two tries to tell a node what it is.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How long those who ask may take for all they say.
const ASKED_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a command waits until new anchors are there. They become it later otherwise.
const APPOINTED_MAX: Duration = Duration::from_secs(45);
/// How long the listener of before may take to go.
const REBIND_MAX: Duration = Duration::from_secs(10);

type May = Box<dyn Fn() -> Result<(), Problem> + Send + Sync>;

/// What of this outlives a node's part in its fleet.
#[derive(Default)]
pub(crate) struct Office {
    /// Whether this node can be an anchor. Without it, it can.
    may: OnceLock<May>,
    /// It has become one, or is none any more.
    changed: Notify,
}

/// Whether a node is an anchor.
pub struct Role(Arc<Office>);

impl Role {
    /// Waits until it has changed: then whoever uses the node's part in its fleet ends that, and calls
    /// [`Agent::again`].
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

impl Agent {
    /// Says what is asked before this node becomes an anchor beside others. It may block.
    pub fn may_anchor(&self, may: impl Fn() -> Result<(), Problem> + Send + Sync + 'static) {
        // The first one counts: there is one node.
        self.office().may.set(Box::new(may)).ok();
    }

    /// Tells when this node has become an anchor, or is none any more.
    pub fn role(&self) -> Role {
        Role(self.office())
    }

    /// Ends this node's part in its fleet, and begins it as what the node is now. It listens where it did.
    ///
    /// # Errors
    /// As [`Agent::open`].
    pub async fn again(&self) -> Result<(), Problem> {
        self.end();
        let until = Instant::now() + REBIND_MAX;
        loop {
            match self.open().await {
                Err(problem) if problem.code == Code::ListenFailed && Instant::now() < until => {
                    sleep(Duration::from_millis(20)).await;
                }
                opened => return opened,
            }
        }
    }

    /// Makes members anchors beside this one, each by its id, the beginning of its id, or its name. Returns when they
    /// are, or when they have had time: then they become it as soon as they are reached.
    ///
    /// # Errors
    /// [`Code::NoFleet`], [`Code::NotAnchor`], [`Code::MemberUnknown`]; [`Code::MemberAway`]: one is not there, and
    /// nothing has changed. As [`Anchor::appoint`].
    pub async fn appoint(&self, which: &[String], estate: Estate) -> Result<Vec<(NodeId, String)>, Problem> {
        let (active, anchor) = self.anchor()?;
        let members = which.iter().map(|one| named(&anchor, one)).collect::<Result<Vec<_>, _>>()?;
        let present: BTreeMap<NodeId, Address> =
            active.with_table(|table| table.present(PRESENT, Instant::now())).into_iter().collect();
        let mut new = Vec::new();
        for (node, name) in &members {
            if anchor.is_anchor(node) {
                return Err(Problem::new(Code::Usage, format!("{name} is an anchor already")));
            }
            let away = || Problem::new(Code::MemberAway, format!("{name} was not heard of, and cannot be asked"));
            let at = present.get(node).ok_or_else(away)?;
            office::ready(&active.trust, at, node)
                .await
                .map_err(|problem| Problem { detail: format!("{name}: {}", problem.detail).into(), ..problem })?;
            new.push((*node, at.clone()));
        }
        let (own, appointing, appointed) = (active.trust.node(), anchor.clone(), new.clone());
        blocking(move || appointing.appoint(&own, &appointed, &estate)).await?;
        active.admit_all();
        for (node, at) in &new {
            if let Err(problem) = office::appoint(&active.trust, &anchor, at, node).await {
                tracing::warn!(%node, %problem, "a node is to be an anchor, and is told so again");
            }
        }
        let until = Instant::now() + APPOINTED_MAX;
        for (node, at) in &new {
            while office::ledger_of(&active.trust, at, node).await.is_err() && Instant::now() < until {
                sleep(Duration::from_millis(100)).await;
            }
        }
        // From then on any of them may go: what they agree on lies on the disks of all.
        while follows(&anchor).await.is_err() && Instant::now() < until {
            sleep(Duration::from_millis(100)).await;
        }
        Ok(members)
    }

    /// An anchor is a member like others from now on. It deletes the CA's key when it is told, now or later.
    ///
    /// # Errors
    /// [`Code::NoFleet`], [`Code::NotAnchor`], [`Code::MemberUnknown`]; as [`Anchor::dismiss`].
    pub async fn dismiss(&self, which: &str) -> Result<(NodeId, String), Problem> {
        let (active, anchor) = self.anchor()?;
        let (node, name) = named(&anchor, which)?;
        let dismissing = anchor.clone();
        blocking(move || dismissing.dismiss(&node)).await?;
        active.admit_all();
        Ok((node, name))
    }
}

async fn follows(anchor: &Arc<Anchor>) -> Result<(), Problem> {
    let anchor = anchor.clone();
    blocking(move || anchor.follow()).await
}

/// Tells nodes what the ledger says that they are, where they show another certificate, and this node what other
/// anchors have changed.
pub(crate) async fn keep_office(active: Arc<Active>) {
    let Some(anchor) = active.anchor.clone() else { return };
    let mut changes = anchor.changes();
    let mut tried: BTreeMap<NodeId, Instant> = BTreeMap::new();
    let mut told = anchor.set().0;
    loop {
        told = tell_set(&active, &anchor, told).await;
        if let Some(list) = anchor.revoked()
            && active.trust.revoked().is_none_or(|known| known.revision() < list.revision())
            && let Err(problem) = active.learn_list(list.bytes()).await
        {
            tracing::warn!("{} {}", problem.code, problem.detail);
        }
        if let Some(list) = active.trust.revoked()
            && let Err(problem) = active.take_over(list).await
        {
            tracing::debug!(%problem, "the ledger lacks what the list of revoked nodes says");
        }
        active.admit_all();
        let (own, telling) = (active.trust.node(), anchor.clone());
        if let Err(problem) = blocking(move || telling.tell_address(&own)).await {
            tracing::debug!(%problem, "the other anchors do not know yet where this one listens");
        }
        tried.retain(|_, at| at.elapsed() < RETRY_AFTER);
        let certified = active.certified();
        for (node, at) in active.with_table(|table| table.present(PRESENT, Instant::now())) {
            let (is, shows) = (anchor.is_anchor(&node), certified.get(&node).copied());
            if shows.is_none_or(|shows| shows == is) || tried.contains_key(&node) || !anchor.is_anchor(&own) {
                continue;
            }
            tried.insert(node, Instant::now());
            let told = match is {
                true => office::appoint(&active.trust, &anchor, &at, &node).await,
                false => office::dismiss(&active.trust, &anchor, &at, &node).await,
            };
            if let Err(problem) = told {
                tracing::debug!(%node, %problem, "a node was not told whether it is an anchor");
            }
        }
        let _ = timeout(LOOK_EVERY, changes.changed()).await;
    }
}

/// Tells the other anchors of another set than the one they were told of. Which one they know by then.
async fn tell_set(active: &Active, anchor: &Anchor, told: u64) -> u64 {
    let (set, anchors) = anchor.set();
    let own = active.trust.node();
    for (node, at) in anchors.iter().filter(|(node, _)| set != told && **node != own) {
        // A new one is no anchor yet, and one that is away asks when it is back.
        if let Err(problem) = office::tell_set(&active.trust, anchor, at, node).await {
            tracing::debug!(%node, %problem, "an anchor was not told that there is another set of them");
        }
    }
    set
}

/// An anchor asks something of this node.
pub(crate) async fn asked(active: Arc<Active>, arrival: MemberArrival) {
    let node = arrival.peer.node;
    match timeout(ASKED_TIMEOUT, answer_all(&active, arrival)).await {
        Ok(Ok(())) => {}
        Ok(Err(problem)) => tracing::debug!(%node, %problem, "a question of an anchor ended"),
        Err(_) => tracing::debug!(%node, "a question of an anchor took too long"),
    }
}

async fn answer_all(active: &Active, arrival: MemberArrival) -> Result<(), Problem> {
    let MemberArrival { peer, mut stream } = arrival;
    let mut candidate = Nominee::new(stream.get_ref().1)?;
    let leaf = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let is_anchor = leaf.is_some_and(|leaf| active.trust.is_anchor(leaf));
    // An anchor knows better than a certificate who is one.
    let is_known = active.anchor.as_ref().is_none_or(|anchor| anchor.is_anchor(&peer.node));
    if !is_anchor || !is_known {
        return Err(Problem::new(Code::NotAnchor, "who asks is no anchor"));
    }
    loop {
        let asked: OfficeQuestion = office::receive(&mut stream).await?;
        let has_changed = matches!(asked, OfficeQuestion::Become { .. } | OfficeQuestion::Cease { .. });
        let answer = answer(active, &mut candidate, asked).await;
        let is_changed = has_changed && answer.as_ref().is_ok_and(|(_, is_changed)| *is_changed);
        let answered = answer.map_or_else(|problem| OfficeAnswer::from(&problem), |(answered, _)| answered);
        let sent = office::send(&mut stream, &answered).await;
        if is_changed {
            // Whether or not who asked has heard of it.
            let _ = stream.shutdown().await.map_err(|error| why(&error));
            active.office.changed.notify_one();
            return sent;
        }
        sent?;
    }
}

/// The answer, and whether this node is something else now.
async fn answer(
    active: &Active,
    candidate: &mut Nominee,
    asked: OfficeQuestion,
) -> Result<(OfficeAnswer, bool), Problem> {
    match (asked, &active.anchor) {
        (OfficeQuestion::Ready, _) => {
            let (office, folder) = (active.office.clone(), active.folder.clone());
            let key = blocking(move || {
                office.may.get().map_or(Ok(()), |may| may())?;
                folder.key()
            });
            Ok((candidate.show(&key.await?)?, false))
        }
        // Perhaps it was none for a while, and has not heard of it.
        (OfficeQuestion::Become { ledger, .. } | OfficeQuestion::Adopt { ledger }, Some(anchor)) => {
            let anchor = anchor.clone();
            blocking(move || anchor.adopt(*ledger)).await?;
            Ok((OfficeAnswer::Done, false))
        }
        (OfficeQuestion::Become { from, sealed, ledger }, None) => {
            let seed = candidate.open(&from, &sealed)?;
            let (folder, membership) = (active.folder.clone(), active.trust.membership());
            blocking(move || folder.become_anchor(&membership, &seed, &ledger)).await?;
            tracing::info!("this node is an anchor of its fleet");
            Ok((OfficeAnswer::Done, true))
        }
        (OfficeQuestion::Ledger, Some(anchor)) => Ok((OfficeAnswer::Ledger(Box::new(anchor.ledger())), false)),
        (OfficeQuestion::Ledger | OfficeQuestion::Adopt { .. }, None) => {
            Err(Problem::new(Code::NotAnchor, "this node is no anchor"))
        }
        (OfficeQuestion::Cease { .. }, None) => Ok((OfficeAnswer::Done, false)),
        (OfficeQuestion::Cease { certificate }, Some(anchor)) => cease(active, anchor, &certificate).await,
    }
}

async fn cease(active: &Active, anchor: &Arc<Anchor>, certificate: &str) -> Result<(OfficeAnswer, bool), Problem> {
    let own = active.trust.node();
    let mut membership = office::as_member(&active.trust, certificate)?;
    let own_at = active.reach.address();
    membership.anchors = anchor.addresses().into_iter().filter(|at| *at != own_at).collect();
    if membership.anchors.is_empty() {
        return Err(Problem::new(Code::Internal, format!("the node {own} knows of no other anchor")));
    }
    let (folder, anchor) = (active.folder.clone(), anchor.clone());
    blocking(move || {
        anchor.close()?;
        folder.cease_anchor(&membership)
    })
    .await?;
    tracing::info!("this node is no anchor of its fleet any more");
    Ok((OfficeAnswer::Done, true))
}
