//! Whom a node connects to: an anchor, and members that it has not heard of for some seconds.
//!
//! A member has a link to one anchor. When that ends it takes the next one, so a fleet with three anchors costs a
//! member no more than one with one. An anchor has a link to each other one.
//!
//! A member that dials this node is heard of, and not dialed; so most pairs have one link. A node behind a router that
//! nobody reaches dials the others.

use crate::active::{Active, LINKS_OUT_MAX};
use crate::talk::talk;
use fleet_trust::{Address, NodeId, link, random};
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{interval, sleep};

/// How often a node looks whom it has no link to.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A member that was not heard of for so long is dialed.
const SILENT_AFTER: Duration = Duration::from_secs(9);
/// What lies between two tries of one address, at least; by chance up to twice as long.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The same for a node that was refused for good: perhaps a person lets it in again.
const REFUSED_RETRY_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
struct Target {
    address: Address,
    /// Who has to listen there. None: any anchor.
    node: Option<NodeId>,
}

pub async fn dial(active: Arc<Active>) {
    let mut links = JoinSet::new();
    let mut of_address: BTreeMap<String, AbortHandle> = BTreeMap::new();
    let [chance] = random().unwrap_or([0]);
    let mut turn = usize::from(chance);
    let mut tick = interval(LOOK_EVERY);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            Some(_) = links.join_next() => continue,
        }
        active.admit_all();
        of_address.retain(|_, link| !link.is_finished());
        let is_linked = |address: &Address| of_address.contains_key(&address.to_string());
        let anchors = anchors(&active, &mut turn, is_linked);
        for target in targets(&active, anchors) {
            let address = target.address.to_string();
            if of_address.len() < LINKS_OUT_MAX && !of_address.contains_key(&address) {
                of_address.insert(address, links.spawn(try_once(active.clone(), target)));
            }
        }
    }
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

/// Anchors first, so that members never take all the places.
fn targets(active: &Active, anchors: Vec<Address>) -> Vec<Target> {
    let mut targets: Vec<Target> = anchors.into_iter().map(|address| Target { address, node: None }).collect();
    if !active.is_out() {
        let silent = active.with_table(|table| table.silent(SILENT_AFTER, Instant::now()));
        targets.extend(silent.into_iter().map(|(node, address)| Target { address, node: Some(node) }));
    }
    targets.retain(|target| target.address != active.address);
    targets
}

/// Connects, talks until the link ends, and rests.
async fn try_once(active: Arc<Active>, target: Target) {
    if let Err(problem) = reach(&active, &target).await {
        tracing::debug!(address = %target.address, %problem, "a link ended, or did not begin");
        // What any member says is no reason to worry people.
        let is_other_anchor = active.anchor.is_some() && problem.code == Code::AnchorsAway;
        if target.node.is_none() && !is_other_anchor {
            active.set_trouble(Some(problem));
        }
    }
    let [chance] = random().unwrap_or([0]);
    let least = if active.is_out() { REFUSED_RETRY_AFTER } else { RETRY_AFTER };
    sleep(least + least * u32::from(chance) / 256).await;
}

async fn reach(active: &Active, target: &Target) -> Result<(), Problem> {
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
