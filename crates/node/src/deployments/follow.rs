//! Makes it so here: of each record, what is for this node runs, and what is no longer for it goes.
//!
//! ```text
//!   record ─▶ share ─▶ images ─▶ note what will be here ─▶ deploy in place of what was, all or nothing ─▶ note what is
//!                │ none                                        │ a problem
//!                └─▶ remove what was                           └─▶ what ran runs on; again after a rest
//! ```
//! Deploying what is there already changes nothing, so a crash anywhere is mended by doing it again.

use super::Deployments;
use super::shelf::Owned;
use super::works::Works;
use crate::functions::{Claim, Steps};
use crate::{Node, blocking, clock};
use fleet_deploy::talk::Stage;
use fleet_deploy::{Record, SignedRecord};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use manifest::{Manifest, Name};
use problem::{Code, Problem};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How long nothing is looked at while nothing changes.
const IDLE: Duration = Duration::from_secs(60);

impl Deployments {
    /// Follows the records until it is dropped. One that takes long holds up no other.
    pub(super) async fn follow(self: Arc<Self>) {
        let mut changes = self.changes.subscribe();
        let (mut works, mut working) = (Works::default(), FuturesUnordered::new());
        loop {
            changes.mark_unchanged();
            for signed in self.newest() {
                let record = signed.record();
                if !self.is_done(record) && works.begin(&record.name, record.serial, Instant::now()) {
                    let this = self.clone();
                    working.push(async move {
                        let done = this.apply(&signed).await;
                        (signed, done)
                    });
                }
            }
            tokio::select! {
                Some((signed, done)) = working.next() => {
                    let record = signed.record();
                    works.end(&record.name, record.serial, done.is_ok(), Instant::now());
                    self.note(record, done);
                }
                changed = changes.changed() => if changed.is_err() {
                    return;
                },
                () = sleep(works.rest(Instant::now()).unwrap_or(IDLE)) => {}
            }
        }
    }

    fn is_done(&self, record: &Record) -> bool {
        let progress = self.progress.lock();
        progress.get(&record.name).is_some_and(|progress| {
            progress.serial == record.serial && matches!(progress.stage, Stage::Ready | Stage::Elsewhere)
        })
    }

    /// Tells what became of a record.
    fn note(&self, record: &Record, done: Result<Stage, Problem>) {
        let Record { name, serial, .. } = record;
        match done {
            Ok(stage) => self.set_progress(name, *serial, stage, None),
            Err(problem) => {
                tracing::warn!(deployment = %name, serial, "{} {}", problem.code, problem.detail);
                self.set_progress(name, *serial, Stage::Failed, Some(&problem));
            }
        }
    }

    pub(super) async fn apply(&self, record: &SignedRecord) -> Result<Stage, Problem> {
        let record = record.record();
        let node = self.node()?;
        let share = record.share(&self.trust.node(), &self.profile);
        let now = share.as_ref().map(Owned::of).unwrap_or_default();
        if share.is_some() || self.shelf.owned(&record.name) != now {
            self.set_progress(&record.name, record.serial, Stage::Working, None);
        }
        let Some(share) = share else {
            self.replace(&node, &record.name, &now, Manifest::default()).await?;
            self.count_no_more(&record.name);
            return Ok(Stage::Elsewhere);
        };
        if let Some(other) = self.newest().iter().map(|other| other.record()).find(|other| is_others(record, other)) {
            let detail = format!("the deployment {:?} has a part of it, and is newer", other.name.as_str());
            return Err(Problem::new(Code::FleetDeployed, detail).with_hint(
                "this node waits for news of the older one; where none comes, deploy that without this part",
            ));
        }
        let images = share.function.values().map(|function| function.image.clone()).collect();
        self.fetch_all(&images, None).await?;
        // Both: whatever a crash leaves behind is known to belong here.
        let (shelf, name, parts) = (self.shelf.clone(), record.name.clone(), now.clone());
        blocking(move || shelf.take(&name, &parts)).await?;
        self.replace(&node, &record.name, &now, share).await?;
        let revision = record.held(&self.trust.node()).revision;
        self.count_from(&record.name, revision);
        tracing::info!(deployment = %record.name, revision, "runs what the fleet has for this node");
        Ok(Stage::Ready)
    }

    /// Deploys a manifest as `lighter deploy` does, in place of what the deployment had here; nothing happens where it
    /// is so already. Queues and buckets stay, with what is in them.
    async fn replace(&self, node: &Arc<Node>, name: &Name, now: &Owned, manifest: Manifest) -> Result<(), Problem> {
        let leaving = self.shelf.owned(name).without(now);
        let _leaving = Claim::new(&node.functions, leaving.subjects())?;
        let _claim = Claim::all(&node.functions, &manifest)?;
        // Another deployment may have taken some of it before it was claimed here, and none can bring it now.
        let leaving = self.shelf.owned(name).without(now);
        // Somebody hears the steps to the end: then a deployment that compiles is not given up.
        let (steps, _receiver) = Steps::new(&manifest);
        node.functions.replace(&leaving, manifest, clock::now_ms(), &steps).await?;
        let (shelf, name) = (self.shelf.clone(), name.clone());
        blocking(move || shelf.give_up(&name, &leaving)).await
    }
}

/// Whether a part of a record belongs to a newer one of another deployment. An anchor gives a part to one of them
/// alone, but a node may hear of that one first, and of the other's end later.
fn is_others(record: &Record, other: &Record) -> bool {
    let is_newer = (other.made_at, &other.name) > (record.made_at, &record.name);
    let has = |function: &Name| other.manifests().any(|theirs| theirs.function.contains_key(function));
    let has_sink = |sink: &Name| other.manifests().any(|theirs| theirs.sink.contains_key(sink));
    let is_shared = |ours: &Manifest| ours.function.keys().any(has) || ours.sink.keys().any(has_sink);
    other.name != record.name && is_newer && record.manifests().any(is_shared)
}
