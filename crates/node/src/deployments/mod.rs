//! Deployments of the fleet, as far as this node goes: it knows them all, runs what is for it, and tells how far it is.
//!
//! ```text
//!   order ─▶ relay ═════▶ desk, on an anchor: decides, signs ─▶ records ═══ talk ═══▶ records of every node
//!                                                                  │
//!   follow: share of this node ─▶ images, from any node ─▶ deploy ─┴─▶ progress ═══ talk ═══▶ anchor ─▶ view
//! ```
//! - `shelf`: records on disk · `desk`: what an anchor decides · `relay`: orders and views, by way of an anchor
//! - `settled`: numbers of what several anchors decide · `leading`: since when one of them watches
//! - `follow`, `works`: makes it so here · `images`: fetched by hash, from whoever has them
//! - `tokens`: the fleet's, which travel with the same talk
//! - `elastic`: how many copies there are where that follows load
//! - `steps`: new forms that go to some nodes first · `tally`: what became of runs here
//! - `talking`: with whom and when · `brief`: what is not said again · `answers`: what other nodes ask
//! - `refusals`: records that were not taken, and who has heard of it
//! - `audited`: what an anchor writes into its audit
//!
//! Nothing here waits for an anchor but a new order: a node runs what it knows from the start, and any node may tell it
//! what is newer, because the CA has signed it.

mod answers;
mod audited;
mod brief;
mod desk;
mod elastic;
mod follow;
mod images;
mod leading;
mod refusals;
mod relay;
mod seats;
mod settled;
mod shelf;
mod steps;
mod talking;
mod tally;
mod tokens;
mod view;
mod works;

pub(crate) use shelf::DEPLOYED;

use crate::link::Door;
use crate::{Node, blocking};
use answers::{ANSWERING_MAX, READING_MAX};
use brief::Brief;
use bytes::Bytes;
use desk::Desk;
use fleet_agent::{Directory, Row};
use fleet_deploy::talk::{NodeTold, Progress, ROUND_TRIPS_MAX, Stage, Trouble};
use fleet_deploy::{Candidate, Profile, Records, SignedRecord};
use fleet_link::Link;
use fleet_trust::{Anchor, NodeId, Trust};
use images::{Fetching, GIVING_ALL_MAX, GIVING_EACH_MAX};
use leading::Leading;
use manifest::Name;
use parking_lot::Mutex;
use problem::{Code, Problem};
use refusals::Refusals;
use seats::Seats;
use shelf::Shelf;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tally::Tally;
use tokens::KeptTokens;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Bytes of an order. A longer one is refused.
pub const ORDER_BYTES_MAX: u64 = fleet_deploy::record::DOCUMENT_BYTES_MAX as u64;
/// A node that said nothing for so long counts as away: its copies are made elsewhere.
const AWAY_AFTER: Duration = Duration::from_secs(10);

/// What this needs of a fleet.
pub struct Parts {
    pub trust: Arc<Trust>,
    pub directory: Directory,
    /// If this node is one.
    pub anchor: Option<Arc<Anchor>>,
    /// The folder of the fleet in the data folder.
    pub folder: PathBuf,
}

/// See the top of this file.
pub struct Deployments {
    node: Weak<Node>,
    link: OnceLock<Weak<Link<Door>>>,
    trust: Arc<Trust>,
    directory: Directory,
    desk: Option<Desk>,
    shelf: Shelf,
    profile: Profile,
    records: Mutex<Records>,
    tokens: KeptTokens,
    progress: Mutex<BTreeMap<Name, Progress>>,
    tallies: Mutex<BTreeMap<Name, Tally>>,
    busy: Mutex<elastic::Busy>,
    /// What others have said last, and when.
    told: Mutex<BTreeMap<NodeId, (NodeTold, Instant)>>,
    brief: Brief,
    refusals: Mutex<Refusals>,
    fetching: Fetching,
    /// Images on their way to other nodes.
    giving: Arc<Seats>,
    /// Bodies of other nodes that are being read.
    reading: Arc<Seats>,
    /// What is on its way to other nodes beside images.
    answering: Arc<Seats>,
    began: Instant,
    /// Since when this anchor is the one that watches.
    leading: Mutex<Leading>,
    /// Counts changes of the records and of the progress.
    changes: watch::Sender<u64>,
}

impl Deployments {
    /// Reads what this node knows.
    ///
    /// # Errors
    /// [`Code::DataUnusable`]: it cannot be read.
    pub async fn open(node: &Arc<Node>, parts: Parts) -> Result<Arc<Self>, Problem> {
        let Parts { trust, directory, anchor, folder } = parts;
        let profile = profile(node).await;
        let (fleet, ca) = (trust.fleet().to_string(), trust.ca_key());
        let (shelf, records, tokens, desk) = blocking(move || {
            let shelf = Shelf::open(&folder)?;
            let records = shelf.records(&fleet, &ca)?;
            let tokens = KeptTokens::open(&folder, &fleet, &ca)?;
            let desk = anchor.map(|anchor| Desk::open(&folder, anchor)).transpose()?;
            Ok((shelf, records, tokens, desk))
        })
        .await?;
        let deployments = Arc::new(Self {
            node: Arc::downgrade(node),
            link: OnceLock::new(),
            trust,
            directory,
            desk,
            shelf,
            profile,
            records: Mutex::new(records),
            tokens,
            progress: Mutex::default(),
            tallies: Mutex::default(),
            busy: Mutex::default(),
            told: Mutex::default(),
            brief: Brief::default(),
            refusals: Mutex::default(),
            fetching: Fetching::default(),
            giving: Seats::new("this node gives as many images as it may", GIVING_EACH_MAX, GIVING_ALL_MAX),
            reading: Seats::new("this node reads as much of the other one as it may", READING_MAX, usize::MAX),
            answering: Seats::new("this node answers the other one as much as it may", ANSWERING_MAX, usize::MAX),
            began: Instant::now(),
            leading: Mutex::default(),
            changes: watch::Sender::default(),
        });
        node.access.set_shared(deployments.tokens.newest().as_deref());
        deployments.hold_images().await?;
        Ok(deployments)
    }

    /// Begins to talk with other nodes over this link, and to follow what they tell.
    pub(crate) fn start(self: &Arc<Self>, link: &Arc<Link<Door>>) -> [JoinHandle<()>; 5] {
        self.link.set(Arc::downgrade(link)).ok();
        [
            tokio::spawn(self.clone().keep_talking()),
            tokio::spawn(self.clone().keep_watching()),
            tokio::spawn(self.clone().keep_beating()),
            tokio::spawn(self.clone().follow()),
            tokio::spawn(self.clone().count_busy()),
        ]
    }

    fn link(&self) -> Result<Arc<Link<Door>>, Problem> {
        let link = self.link.get().and_then(Weak::upgrade);
        link.ok_or_else(ending)
    }

    fn node(&self) -> Result<Arc<Node>, Problem> {
        self.node.upgrade().ok_or_else(ending)
    }

    fn fleet(&self) -> String {
        self.trust.fleet().to_string()
    }

    /// Takes a record, durably, if it is news. Says whether it is. Begun, it goes to its end, whoever waits for it.
    async fn learn(self: &Arc<Self>, record: SignedRecord) -> Result<bool, Problem> {
        let this = self.clone();
        let learned = tokio::spawn(async move {
            let writing = this.clone();
            let is_news = blocking(move || writing.shelf.learn(&writing.records, record)).await?;
            if is_news {
                // The record holds, whatever the disk says to images that are no longer needed.
                if let Err(problem) = this.hold_images().await {
                    tracing::warn!("images of earlier deployments stay for now: {}", problem.detail);
                }
                this.changed();
            }
            Ok(is_news)
        });
        learned.await.unwrap_or_else(|_| Err(ending()))
    }

    /// An anchor keeps the images of all revisions: it is where others find them.
    async fn hold_images(&self) -> Result<(), Problem> {
        if self.desk.is_none() {
            return Ok(());
        }
        let images: HashSet<_> = self.records.lock().images().iter().filter_map(|hash| hash.parse().ok()).collect();
        self.node()?.functions.hold(images).await
    }

    fn newest(&self) -> Vec<Arc<SignedRecord>> {
        self.records.lock().iter().cloned().collect()
    }

    fn set_progress(&self, name: &Name, serial: u64, stage: Stage, problem: Option<&Problem>) {
        let progress = Progress { serial, stage, trouble: problem.map(Trouble::from), runs: None };
        let before = self.progress.lock().insert(name.clone(), progress.clone());
        if before.as_ref() != Some(&progress) {
            self.changed();
        }
    }

    fn changed(&self) {
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// What this node says of itself.
    fn told(&self) -> NodeTold {
        let digest = self.records.lock().digest();
        let mut progress = self.progress.lock().clone();
        for record in self.newest().iter().map(|record| record.record()).filter(|record| record.underway.is_some()) {
            if let Some(progress) = progress.get_mut(&record.name) {
                progress.runs = self.runs(&record.name);
            }
        }
        let (profile, tokens) = (self.profile.clone(), self.tokens.revision());
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let round_trips_us = self.round_trips().into_iter().map(|(node, time)| (node, micros(time))).collect();
        let round_trips_us = self.brief.ways_us(round_trips_us);
        NodeTold { profile, digest, tokens, progress, round_trips_us, loads: self.loads() }
    }

    /// What all nodes have said last, this one among them.
    fn all_told(&self) -> BTreeMap<NodeId, (NodeTold, Instant)> {
        let mut told: BTreeMap<_, _> = self.told.lock().iter().map(|(node, said)| (*node, said.clone())).collect();
        told.insert(self.trust.node(), (self.told(), Instant::now()));
        told
    }

    /// The way to other nodes and back, as this one has measured it.
    fn round_trips(&self) -> BTreeMap<NodeId, Duration> {
        self.link().map(|link| link.round_trips().take(ROUND_TRIPS_MAX).collect()).unwrap_or_default()
    }

    /// All members as they are known here, this node among them.
    fn candidates(&self) -> Vec<Candidate> {
        let mut told = self.told.lock();
        let rows = self.directory.others();
        let is_there = |node: &NodeId| rows.iter().any(|row| row.node == *node);
        told.retain(|node, _| is_there(node));
        self.brief.forget_others(is_there);
        let me = self.trust.node();
        self.refusals.lock().forget_others(|node| *node == me || is_there(node));
        let mut all: Vec<Candidate> = rows
            .into_iter()
            .map(|row| {
                let said = told.get(&row.node);
                let is_there = said.is_some_and(|(_, at)| at.elapsed() < AWAY_AFTER)
                    || row.heard.is_some_and(|heard| heard < AWAY_AFTER);
                let profile = said.map(|(told, _)| told.profile.clone());
                let told = said.iter().flat_map(|(told, _)| &told.round_trips_us);
                let round_trips = told.map(|(other, micros)| (*other, Duration::from_micros(*micros))).collect();
                Candidate { node: row.node, name: row.record.name, profile, is_there, round_trips }
            })
            .collect();
        let name = self.directory.own_name();
        let profile = Some(self.profile.clone());
        let round_trips = self.round_trips();
        all.push(Candidate { node: me, name, profile, is_there: true, round_trips });
        all
    }

    /// The anchors: those first that are there, and of them the one that watches.
    fn anchors(&self) -> Vec<Row> {
        let mut anchors: Vec<Row> = self.directory.others().into_iter().filter(|row| row.is_anchor).collect();
        anchors.sort_by_key(|row| (row.heard.is_none_or(|heard| heard >= AWAY_AFTER), row.node));
        anchors
    }
}

fn ending() -> Problem {
    Problem::new(Code::Draining, "the node is shutting down")
}

/// A record as it was signed. Its bytes are shared.
fn bytes_of(record: &Arc<SignedRecord>) -> Bytes {
    struct Signed(Arc<SignedRecord>);
    impl AsRef<[u8]> for Signed {
        fn as_ref(&self) -> &[u8] {
            self.0.bytes()
        }
    }
    Bytes::from_owner(Signed(record.clone()))
}

/// What this node has.
async fn profile(node: &Node) -> Profile {
    let mut words = std::collections::BTreeSet::from([std::env::consts::ARCH.to_owned()]);
    for offered in node.functions.loader.classes.iter() {
        if offered.units.usable().await.is_ok() {
            words.insert(offered.units.isolation().as_str().to_owned());
        }
    }
    Profile { labels: node.config.fleet.labels.clone(), words, memory_bytes: node.config.memory_bytes_max }
}

#[cfg(test)]
mod tests;
