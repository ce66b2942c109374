//! An anchor's desk: whose orders count, and what becomes of one.

use super::shelf::unusable;
use super::{AWAY_AFTER, Deployments};
use crate::{blocking, clock};
use api_types::{DeployerInfo, OrderTaken};
use fleet_deploy::decide::{Known, decide, decide_again};
use fleet_deploy::elastic::Elastic;
use fleet_deploy::near::is_measured;
use fleet_deploy::rollout::Watch;
use fleet_deploy::{Candidate, DeployerKey, Deployers, Order, Record, Records, SignedOrder, SignedRecord, Wish};
use fleet_link::limits::CELL_MAX;
use fleet_trust::{Anchor, NodeId, Signature, random};
use manifest::{Manifest, Name};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use whole_file::write_new;

/// Public halves of the keys that count.
const DEPLOYERS: &str = "deployers.json";
/// The key of whoever may read the anchor's data folder.
const LOCAL_KEY: &str = "deployer.key";
const LOCAL_NAME: &str = "local";
/// The same as in [`DEPLOYERS`], where several anchors have it in common.
pub const DEPLOYERS_NOTE: &str = "deployers";

/// How long an order waits for nodes that have not said what they have. Then it goes on without them.
const HEARING_MAX: Duration = Duration::from_secs(3);
/// How long it waits for what nodes measure: each asks the others every five seconds, and tells of it as often.
const MEASURING_MAX: Duration = Duration::from_secs(12);
/// Nodes of the largest fleet in which all ways are measured all the time, each from one end at least. In a larger one
/// nobody waits for that.
const MEASURED_MAX: usize = 2 * CELL_MAX + 1;
const HEARING_EVERY: Duration = Duration::from_millis(50);
/// How often copies and steps are looked at although nothing has changed here; and what lies between two looks at
/// least: progress comes in bursts.
const WATCHING_EVERY: Duration = Duration::from_secs(4);
const WATCHING_PACE: Duration = Duration::from_millis(50);

pub struct Desk {
    anchor: Arc<Anchor>,
    folder: PathBuf,
    deployers: Mutex<Deployers>,
    /// Held while a record is made: each is made from the one before.
    pub(super) deciding: tokio::sync::Mutex<()>,
    /// Of each new form that goes to some nodes first: what was seen of it.
    pub(super) watches: Mutex<BTreeMap<Name, Watch>>,
    /// Of each function whose number of copies follows load: what was seen of it.
    pub(super) elastic: Mutex<BTreeMap<Name, Elastic>>,
}

impl Desk {
    /// Opens it, and makes a key for this machine's user if there is none.
    ///
    /// # Errors
    /// [`Code::DataUnusable`].
    pub fn open(folder: &Path, anchor: Arc<Anchor>) -> Result<Self, Problem> {
        let path = folder.join(DEPLOYERS);
        let deployers = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| unusable(&path, &error.into()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Deployers::default(),
            Err(error) => return Err(unusable(&path, &error)),
        };
        // One of several anchors: the key is at the one that was alone, and its name is taken.
        let is_new = !folder.join(LOCAL_KEY).exists() && anchor.note(DEPLOYERS_NOTE).is_none();
        let desk = Self {
            anchor,
            folder: folder.to_owned(),
            deployers: Mutex::new(deployers),
            deciding: tokio::sync::Mutex::default(),
            watches: Mutex::default(),
            elastic: Mutex::default(),
        };
        if is_new {
            // A crash may have left its name without a key.
            desk.deployers.lock().remove(LOCAL_NAME).ok();
            let key = desk.add(LOCAL_NAME)?;
            let text = key.secret_text() + "\n";
            write_new(folder, LOCAL_KEY, text.as_bytes()).map_err(|error| unusable(&folder.join(LOCAL_KEY), &error))?;
        }
        Ok(desk)
    }

    /// Makes a key for a new deployer. It is told once and kept nowhere. Durable once `Ok`.
    fn add(&self, name: &str) -> Result<DeployerKey, Problem> {
        let key = DeployerKey::new(name, random()?)?;
        self.change(|deployers| deployers.add(name, &key.public(), clock::now_ms() / 1_000))?;
        Ok(key)
    }

    /// Changes a copy, keeps it, and only then goes on with it.
    fn change(&self, change: impl Fn(&mut Deployers) -> Result<(), Problem>) -> Result<(), Problem> {
        if self.anchor.note(DEPLOYERS_NOTE).is_some() {
            return self.anchor.change_note(DEPLOYERS_NOTE, |noted| {
                let mut deployers = read_note(noted.unwrap_or_default())?;
                change(&mut deployers)?;
                note(&deployers)
            });
        }
        let mut deployers = self.deployers.lock();
        let mut changed = deployers.clone();
        change(&mut changed)?;
        let bytes = serde_json::to_vec(&changed).map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        write_new(&self.folder, DEPLOYERS, &bytes).map_err(|error| unusable(&self.folder.join(DEPLOYERS), &error))?;
        *deployers = changed;
        Ok(())
    }

    /// Those whose orders count: as several anchors have them in common, or as this one keeps them.
    fn known(&self) -> Result<Deployers, Problem> {
        self.anchor.note(DEPLOYERS_NOTE).map_or_else(|| Ok(self.deployers.lock().clone()), |noted| read_note(&noted))
    }

    /// What several anchors are to have in common.
    pub(super) fn deployers_note(&self) -> Result<String, Problem> {
        note(&self.known()?)
    }

    pub(super) fn anchor(&self) -> Arc<Anchor> {
        self.anchor.clone()
    }

    pub(super) fn sign(&self, record: Record) -> Result<SignedRecord, Problem> {
        SignedRecord::sign(record, |purpose, parts| self.sign_as_ca(purpose, parts))
    }

    pub(super) fn sign_as_ca(&self, purpose: &str, parts: &[&[u8]]) -> Signature {
        self.anchor.sign(purpose, parts)
    }
}

impl Deployments {
    /// Makes a key for a new deployer and says its secret, once.
    ///
    /// # Errors
    /// [`Code::NotAnchor`]; what [`Deployers::add`] says; [`Code::DataUnusable`].
    pub async fn add_deployer(self: &Arc<Self>, name: String) -> Result<DeployerKey, Problem> {
        self.at_desk(move |desk| desk.add(&name)).await
    }

    /// From now on no order of this deployer counts. What was deployed stays.
    ///
    /// # Errors
    /// [`Code::NotAnchor`], [`Code::DeployerUnknown`], [`Code::DataUnusable`].
    pub async fn remove_deployer(self: &Arc<Self>, name: String) -> Result<(), Problem> {
        self.at_desk(move |desk| desk.change(|deployers| deployers.remove(&name))).await
    }

    /// # Errors
    /// [`Code::NotAnchor`].
    pub fn deployers(&self) -> Result<Vec<DeployerInfo>, Problem> {
        let deployers = self.desk()?.known()?;
        let info = |(name, one): (&str, &fleet_deploy::deployers::Deployer)| DeployerInfo {
            name: name.to_owned(),
            added_s: one.added_at,
        };
        Ok(deployers.iter().map(info).collect())
    }

    /// Decides about an order that came from a node, or from this one. The deployment is durable here, with its images,
    /// when this returns; the nodes take it then.
    ///
    /// # Errors
    /// [`Code::NotAnchor`], [`Code::DeployerUnknown`], [`Code::ImageNowhere`]; what [`decide`] says.
    pub(super) async fn take_order(
        self: &Arc<Self>,
        bytes: &[u8],
        from: Option<NodeId>,
    ) -> Result<OrderTaken, Problem> {
        let desk = self.desk()?;
        let signed = SignedOrder::read(bytes)?;
        let key = desk.known()?.key(signed.deployer())?;
        let order = signed.check(&key)?;
        self.hear_all_out(order).await;
        // What cannot be is refused before anything is fetched.
        let first = self.decided(|known| decide(order, known))?;
        self.fetch_all(&first.images(), from).await?;
        let record = {
            let _deciding = desk.deciding.lock().await;
            self.settle(self.decided(|known| decide(order, known))?).await?
        };
        self.audit("fleet order", &record, from).await;
        let (revision, deployer) = (record.revision, &record.deployer);
        tracing::info!(deployment = %record.name, revision, deployer, "an order was taken");
        Ok(OrderTaken { name: record.name.to_string(), serial: record.serial, revision: record.revision })
    }

    /// Watches copies, their load, and steps until it is dropped; on an anchor. It waits for no talk: one with a node
    /// that is slow may take half a minute.
    pub(super) async fn keep_watching(self: Arc<Self>) {
        let mut changes = self.changes.subscribe();
        while self.desk.is_some() {
            changes.mark_unchanged();
            self.replace_copies().await;
            self.follow_load().await;
            self.watch_steps().await;
            sleep(WATCHING_PACE).await;
            // It has changed, or nothing has for long enough.
            let _ = timeout(WATCHING_EVERY, changes.changed()).await;
        }
    }

    /// Makes copies elsewhere of what is on nodes that are away, and where `within` counts, on nodes that came near.
    async fn replace_copies(self: &Arc<Self>) {
        let Ok(desk) = self.desk() else { return };
        let _deciding = desk.deciding.lock().await;
        if !self.watches() {
            return;
        }
        for record in self.newest() {
            let Some(again) = self.decided(|known| decide_again(record.record(), known)) else { continue };
            let name = again.name.clone();
            let why = "some are away, or not as near";
            match self.settle(again.clone()).await {
                Ok(_) => {
                    tracing::info!(deployment = %name, "copies have other nodes: {why}");
                    self.audit_copies(record.record(), &again, why).await;
                }
                Err(problem) => tracing::warn!(deployment = %name, "{} {}", problem.code, problem.detail),
            }
        }
    }

    /// Waits for nodes that are there and have not said yet what they have: they just joined, or this anchor started.
    /// Where it counts how far they are, it waits for that too.
    async fn hear_all_out(&self, order: &Order) {
        let begun = Instant::now();
        // Nodes tell the anchor that watches: another one, and a new one, hears of all within five seconds.
        let is_new = self.leads_for().is_none_or(|time| time < AWAY_AFTER);
        let hearing = if is_new { HEARING_MAX * 2 } else { HEARING_MAX };
        let is_open = || {
            let (candidates, waited) = (self.candidates(), begun.elapsed());
            let is_silent = |one: &Candidate| one.is_there && one.profile.is_none();
            let is_far = |manifest: &Manifest| candidates.len() <= MEASURED_MAX && !is_measured(manifest, &candidates);
            (waited < hearing && candidates.iter().any(is_silent))
                || (waited < MEASURING_MAX && matches!(&order.wish, Wish::Deploy(manifest) if is_far(manifest)))
        };
        while is_open() {
            sleep(HEARING_EVERY).await;
        }
    }

    pub(super) fn decided<T>(&self, decide: impl FnOnce(&Known<'_>) -> T) -> T {
        let (fleet, candidates) = (self.fleet(), self.candidates());
        let records: &Records = &self.records.lock();
        decide(&Known { fleet: &fleet, records, candidates: &candidates, now: clock::now_ms() / 1_000 })
    }

    pub(super) fn desk(&self) -> Result<&Desk, Problem> {
        let not = || Problem::new(Code::NotAnchor, "this node is a member of its fleet, and no anchor");
        self.desk.as_ref().ok_or_else(not)
    }

    async fn at_desk<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Desk) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let this = self.clone();
        blocking(move || work(this.desk()?)).await
    }
}

fn note(deployers: &Deployers) -> Result<String, Problem> {
    serde_json::to_string(deployers).map_err(|error| Problem::new(Code::Internal, error.to_string()))
}

fn read_note(noted: &str) -> Result<Deployers, Problem> {
    let unusable = |error| Problem::new(Code::DataUnusable, format!("the deployers of the fleet: {error}"));
    serde_json::from_str(noted).map_err(unusable)
}
