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
use crate::functions::{Claim, Leaving, Steps};
use crate::{Node, blocking, clock};
use fleet_deploy::talk::Stage;
use fleet_deploy::{Record, SignedRecord};
use futures_util::{StreamExt, stream};
use manifest::{Manifest, Name};
use problem::Problem;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Deployments that are worked on at once. The others wait.
const AT_ONCE_MAX: usize = 4;
/// The rest after one that failed, doubled each time.
const REST_MIN: Duration = Duration::from_secs(2);
const REST_MAX: Duration = Duration::from_secs(300);
/// How long nothing is looked at while nothing changes.
const IDLE: Duration = Duration::from_secs(60);

/// When a record that failed is tried again.
struct Rest {
    serial: u64,
    pause: Duration,
    until: Instant,
}

impl Deployments {
    /// Follows the records until it is dropped.
    pub(super) async fn follow(self: Arc<Self>) {
        let mut changes = self.changes.subscribe();
        let mut rests: BTreeMap<Name, Rest> = BTreeMap::new();
        loop {
            changes.mark_unchanged();
            let due: Vec<Arc<SignedRecord>> =
                self.newest().into_iter().filter(|record| self.is_due(record.record(), &rests)).collect();
            let works = due.into_iter().map(|record| {
                let this = self.clone();
                async move {
                    let done = this.apply(&record).await;
                    (record, done)
                }
            });
            let done: Vec<_> = stream::iter(works).buffer_unordered(AT_ONCE_MAX).collect().await;
            for (record, done) in done {
                self.note(record.record(), done, &mut rests);
            }
            let next = rests.values().map(|rest| rest.until.saturating_duration_since(Instant::now())).min();
            tokio::select! {
                changed = changes.changed() => if changed.is_err() {
                    return;
                },
                () = sleep(next.unwrap_or(IDLE)) => {}
            }
        }
    }

    fn is_due(&self, record: &Record, rests: &BTreeMap<Name, Rest>) -> bool {
        let progress = self.progress.lock();
        let is_done = progress.get(&record.name).is_some_and(|progress| {
            progress.serial == record.serial && matches!(progress.stage, Stage::Ready | Stage::Elsewhere)
        });
        let rests = rests.get(&record.name).filter(|rest| rest.serial == record.serial);
        !is_done && rests.is_none_or(|rest| rest.until <= Instant::now())
    }

    /// Tells what became of a record, and when it is tried again.
    fn note(&self, record: &Record, done: Result<Stage, Problem>, rests: &mut BTreeMap<Name, Rest>) {
        let Record { name, serial, .. } = record;
        match done {
            Ok(stage) => {
                rests.remove(name);
                self.set_progress(name, *serial, stage, None);
            }
            Err(problem) => {
                tracing::warn!(deployment = %name, serial, "{} {}", problem.code, problem.detail);
                let before = rests.get(name).filter(|rest| rest.serial == *serial).map(|rest| rest.pause);
                let pause = before.map_or(REST_MIN, |pause| (pause * 2).min(REST_MAX));
                rests.insert(name.clone(), Rest { serial: *serial, pause, until: Instant::now() + pause });
                self.set_progress(name, *serial, Stage::Failed, Some(&problem));
            }
        }
    }

    pub(super) async fn apply(&self, record: &SignedRecord) -> Result<Stage, Problem> {
        let record = record.record();
        let node = self.node()?;
        let before = self.shelf.owned(&record.name);
        let Some(share) = record.share(&self.trust.node(), &self.profile) else {
            if before != Owned::default() {
                self.set_progress(&record.name, record.serial, Stage::Working, None);
            }
            replace(&node, before.without(&Owned::default()), Manifest::default()).await?;
            self.own(&record.name, Owned::default()).await?;
            return Ok(Stage::Elsewhere);
        };
        self.set_progress(&record.name, record.serial, Stage::Working, None);
        let images = share.function.values().map(|function| function.image.clone()).collect();
        self.fetch_all(&images, None).await?;
        let now = Owned::of(&share);
        // Both: whatever a crash leaves behind is known to belong here.
        self.own(&record.name, before.with(&now)).await?;
        replace(&node, before.without(&now), share).await?;
        self.own(&record.name, now).await?;
        tracing::info!(deployment = %record.name, revision = record.revision, "runs what the fleet has for this node");
        Ok(Stage::Ready)
    }

    async fn own(&self, name: &Name, owned: Owned) -> Result<(), Problem> {
        if self.shelf.owned(name) == owned {
            return Ok(());
        }
        let (shelf, name) = (self.shelf.clone(), name.clone());
        blocking(move || shelf.own(&name, owned)).await
    }
}

/// Deploys a manifest as `lighter deploy` does, in place of what goes; nothing happens where it is so already. Queues
/// and buckets stay, with what is in them.
async fn replace(node: &Arc<Node>, leaving: Leaving, manifest: Manifest) -> Result<(), Problem> {
    let _leaving = Claim::new(&node.functions, leaving.subjects())?;
    let _claim = Claim::all(&node.functions, &manifest)?;
    // Somebody hears the steps to the end: then a deployment that compiles is not given up.
    let (steps, _receiver) = Steps::new(&manifest);
    node.functions.replace(&leaving, manifest, clock::now_ms(), &steps).await
}
