//! What anchors agree on ([`fleet_trust::agreed`]), as one fact of their own bucket that is changed by compare-and-set.

use crate::api::call;
use crate::bucket::{FactBucket, NatsFacts};
use crate::link::{EngineLink, Servers};
use crate::process::cluster_name;
use facts::{Facts as _, Key, NotSet, Prefix, Revision};
use fleet_trust::agreed::{Agree, Put};
use fleet_trust::ledger::Ledger;
use fleet_trust::{Anchor, NodeId, Trust, office};
use futures_util::future::join_all;
use problem::{Code, Problem};
use serde_json::json;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// The fact.
const KEY: &str = "ledger";
/// How long another anchor may take to give its ledger.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is asked whether the log has a leader.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Before what other anchors have changed is asked for again.
const PAUSE: Duration = Duration::from_secs(1);

/// See the top of this file. Used outside of the runtime's own threads.
pub struct Agreed {
    link: EngineLink,
    facts: Arc<NatsFacts>,
    trust: Arc<Trust>,
    anchor: Weak<Anchor>,
    /// The engine is that of the anchors, and not a cluster of the user's.
    is_own: bool,
    runtime: Handle,
}

impl Agreed {
    /// On the present runtime.
    pub fn new(link: EngineLink, facts: Arc<NatsFacts>, trust: Arc<Trust>, anchor: &Arc<Anchor>, is_own: bool) -> Self {
        Self { link, facts, trust, anchor: Arc::downgrade(anchor), is_own, runtime: Handle::current() }
    }

    /// Whether the servers of this anchor's set can be asked. What is written on those of the set before is lost.
    fn has_way(&self) -> bool {
        let Some(anchor) = self.anchor.upgrade() else { return false };
        self.link.leads_to(&servers(&anchor, self.is_own))
    }
}

impl Agree for Agreed {
    fn head(&self) -> Result<Option<(Vec<u8>, u64)>, Problem> {
        if !self.has_way() {
            return Err(away("this anchor has no way to the engine"));
        }
        let key = Key::new(KEY).expect("it is a key");
        let fact = self.runtime.block_on(self.facts.get(&key)).map_err(|_| away("no majority of anchors answers"))?;
        Ok(fact.map(|fact| (fact.value, fact.revision.0)))
    }

    fn put(&self, head: &[u8], expected: Option<u64>) -> Result<Put, Problem> {
        if !self.has_way() {
            return Err(away("this anchor has lost its way to the engine"));
        }
        let key = Key::new(KEY).expect("it is a key");
        match self.runtime.block_on(self.facts.set(&key, expected.map(Revision), Some(head))) {
            Ok(_) => Ok(Put::Done),
            Err(NotSet::Changed) => Ok(Put::Late),
            Err(error @ (NotSet::Away | NotSet::Unknown)) => Err(away(&error.to_string())),
            Err(error) => Err(Problem::new(Code::EngineUnsound, format!("what anchors agree on: {error}"))),
        }
    }

    fn others(&self) -> Vec<Ledger> {
        let Some(anchor) = self.anchor.upgrade() else { return Vec::new() };
        let own = self.trust.node();
        let anchors = anchor.set().1.into_iter().filter(|(node, _)| *node != own);
        let trust = &self.trust;
        let asked = anchors.map(|(node, at)| async move {
            timeout(LEDGER_TIMEOUT, office::ledger_of(trust, &at, &node)).await.ok()?.ok()
        });
        self.runtime.block_on(join_all(asked)).into_iter().flatten().collect()
    }
}

/// The bucket that the anchors of a fleet have for themselves.
pub fn bucket(anchor: &Anchor) -> FactBucket {
    FactBucket::of_anchors(&anchor.secret_for("lighterage engine anchors 1"))
}

/// The servers of the set of anchors that there is now.
pub fn servers(anchor: &Anchor, is_own: bool) -> Servers {
    let (set, anchors) = anchor.set();
    if is_own { Servers::Of((anchors.len() > 1).then(|| cluster_name(set))) } else { Servers::Any }
}

/// Has an anchor know what the others change, while there are several.
pub async fn follow(anchor: Arc<Anchor>, link: EngineLink, facts: Arc<NatsFacts>, own: NodeId) {
    let mut changes = anchor.changes();
    loop {
        let (set, anchors) = anchor.set();
        if !(anchors.len() > 1 && anchors.contains_key(&own)) {
            // The anchor is held here.
            let _ = changes.changed().await;
            continue;
        }
        let mut watch = facts.watch(&Prefix::ALL);
        while anchor.set().0 == set {
            tokio::select! {
                _ = watch.next() => caught_up(&anchor).await,
                _ = changes.changed() => {}
                () = sleep(LOOK_EVERY) => {
                    // Where there is no leader, the others may have another log by now.
                    if call(&link, "INFO", &json!({})).await.is_err() {
                        followed(&anchor).await;
                    }
                }
            }
        }
    }
}

async fn caught_up(anchor: &Arc<Anchor>) {
    while !followed(anchor).await {
        sleep(PAUSE).await;
    }
}

async fn followed(anchor: &Arc<Anchor>) -> bool {
    let following = anchor.clone();
    match spawn_blocking(move || following.follow()).await {
        Ok(Ok(())) => true,
        Ok(Err(problem)) => {
            tracing::debug!(%problem, "what other anchors have changed is not known yet");
            false
        }
        Err(error) => {
            tracing::error!(%error, "following other anchors");
            false
        }
    }
}

fn away(why: &str) -> Problem {
    Problem::new(Code::AnchorsAway, why.to_owned())
}
