//! Whom a node connects to: an anchor, and members that it has not heard of for some seconds.
//!
//! A member has a link to one anchor. When that ends it takes the next one, so a fleet with three anchors costs a
//! member no more than one with one. An anchor has a link to each other one.
//!
//! A member that dials this node is heard of, and not dialed; so most pairs have one link. A node behind a router that
//! nobody reaches dials the others. Who is dialed first, and how soon again, says `turns`.

use crate::active::Active;
use crate::talk::talk;
use crate::turns::{Destination, Key, Turns};
use fleet_trust::{Address, link, random};
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::interval;

/// How often a node looks whom it has no link to.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A member that was not heard of for so long is dialed.
const SILENT_AFTER: Duration = Duration::from_secs(9);
/// What lies between two tries, at least; by chance up to twice as long.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The same for a node that was refused for good: perhaps a person lets it in again.
const REFUSED_RETRY_AFTER: Duration = Duration::from_secs(5);

pub async fn dial(active: Arc<Active>) {
    let mut links = JoinSet::new();
    let (mut open, mut turns): (BTreeMap<Key, AbortHandle>, Turns) = Default::default();
    let [chance] = random().unwrap_or([0]);
    let mut turn = usize::from(chance);
    let mut tick = interval(LOOK_EVERY);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            Some(_) = links.join_next() => {
                release(&active, &mut open, &mut turns);
                continue;
            }
        }
        active.admit_all();
        let is_linked = |address: &Address| open.contains_key(&(None, address.to_string()));
        let anchors = anchors(&active, &mut turn, is_linked);
        for target in turns.next(targets(&active, anchors), Instant::now()) {
            open.insert(target.key(), links.spawn(try_once(active.clone(), target)));
        }
    }
}

/// Links that have ended give their slots back.
fn release(active: &Active, open: &mut BTreeMap<Key, AbortHandle>, turns: &mut Turns) {
    let least = if active.is_out() { REFUSED_RETRY_AFTER } else { RETRY_AFTER };
    open.retain(|key, link| {
        let has_ended = link.is_finished();
        if has_ended {
            let [chance] = random().unwrap_or([0]);
            turns.ended(key.clone(), least, chance, Instant::now());
        }
        !has_ended
    });
}

/// The anchors to connect to now: a member's next one, if it has a link to none.
fn anchors(active: &Active, turn: &mut usize, is_linked: impl Fn(&Address) -> bool) -> Vec<Address> {
    let mut anchors = active.anchors();
    if active.anchor.is_some() || anchors.is_empty() {
        return anchors;
    }
    if anchors.iter().any(is_linked) {
        return Vec::new();
    }
    *turn = turn.wrapping_add(1);
    vec![anchors.swap_remove(*turn % anchors.len())]
}

/// These anchors, and silent members. One where an anchor listens is dialed as an anchor alone.
fn targets(active: &Active, anchors: Vec<Address>) -> Vec<Destination> {
    let mut targets: Vec<Destination> =
        anchors.into_iter().map(|address| Destination { address, node: None }).collect();
    if !active.is_out() {
        let mut silent = active.with_table(|table| table.silent(SILENT_AFTER, Instant::now()));
        let all_anchors = active.anchors();
        silent.retain(|(_, address)| !all_anchors.contains(address));
        targets.extend(silent.into_iter().map(|(node, address)| Destination { address, node: Some(node) }));
    }
    let own_at = active.reach.address();
    targets.retain(|target| target.address != own_at);
    targets
}

/// Connects, and talks until the link ends.
async fn try_once(active: Arc<Active>, target: Destination) {
    if let Err(problem) = reach(&active, &target).await {
        tracing::debug!(address = %target.address, %problem, "a link ended, or did not begin");
        // What any member says is no reason to worry people.
        let is_other_anchor = active.anchor.is_some() && problem.code == Code::AnchorsAway;
        if target.node.is_none() && !is_other_anchor {
            active.set_trouble(Some(problem));
        }
    }
}

async fn reach(active: &Active, target: &Destination) -> Result<(), Problem> {
    let (peer, stream) = match &target.node {
        Some(node) => link::connect(&active.trust, &target.address, node).await?,
        None => {
            active.say_hello(&target.address).await?;
            link::connect_anchor(&active.trust, &target.address).await?
        }
    };
    let leaf = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let is_anchor = leaf.is_some_and(|leaf| active.trust.is_anchor(leaf));
    talk(active, peer, stream, is_anchor).await
}
