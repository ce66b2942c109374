//! The functions of this node: what is deployed, which version takes calls, and how that changes.
//!
//! ```text
//!   deploy ──▶ check ──▶ build ──▶ load and start once ──▶ one durable batch ──▶ swap the table
//!                                                               │
//!   start  ◀── records of the state ◀───────────────────────────┘
//!   call   ──▶ table ──▶ Live ──▶ Loader ──▶ Prepared
//! ```
//! The table is never changed but replaced: a reader sees all functions of a deployment with their old versions, or all
//! with their new ones.

mod deploy;
mod history;
mod live;
mod loader;
mod parts;
mod rest;
mod table;

pub use deploy::{Claim, Leaving, Steps};
pub use history::History;
pub use live::{Identity, Live};
pub use loader::{Loader, blocking};
pub use parts::{Ended, PartChange, Parts};
pub use rest::Rest;
pub use table::{Answered, Handler, Table, TableEntry, Target};

use super::events::SinkKinds;
use super::log::Logs;
use super::metrics::Counters;
use super::{records, results};
use dispatch::{Admission, Limits, Rate};
use manifest::{Function, Name};
use parking_lot::Mutex;
use problem::{Code, Problem};
use state::{Batch, Queue};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;
use warehouse::ImageHash;

pub struct Functions {
    pub loader: Arc<Loader>,
    pub logs: Arc<Logs>,
    /// The units of all functions together.
    pub units: dispatch::NodeTurns,
    /// Replaced, never changed; who wants to know of it watches.
    table: watch::Sender<Arc<Table>>,
    /// What a deployment, rollback or removal is working on, as `function "hello"`.
    busy: Mutex<HashSet<String>>,
    /// Held from the last look at the table to its replacement.
    committing: tokio::sync::Mutex<()>,
    /// Images that stay though no function here has them.
    pub(crate) held: Mutex<HashSet<ImageHash>>,
    /// Whether routes that do not say need a token.
    token_by_default: bool,
    pub sinks: SinkKinds,
}

/// One change of the table.
pub enum Change {
    Put { live: Arc<Live>, history: Arc<History> },
    Remove(Name),
    Part(PartChange),
}

impl Functions {
    /// Reads what was deployed. Nothing is loaded yet.
    ///
    /// # Errors
    /// [`Code::StateCorrupt`] names the record that cannot be read.
    pub fn restore(
        loader: Arc<Loader>,
        logs: Arc<Logs>,
        units: dispatch::NodeTurns,
        token_by_default: bool,
        sinks: SinkKinds,
    ) -> Result<Arc<Self>, Problem> {
        let functions = Self {
            loader,
            logs,
            units,
            table: watch::Sender::default(),
            busy: Mutex::default(),
            committing: tokio::sync::Mutex::default(),
            held: Mutex::default(),
            token_by_default,
            sinks,
        };
        let mut entries = BTreeMap::new();
        records::each(&functions.loader.state.records(history::TABLE), |key, record| {
            let corrupt =
                |why: String| Problem::new(Code::StateCorrupt, format!("the record of function {key:?}: {why}"));
            let name: Name = key.parse().map_err(corrupt)?;
            let history = Arc::new(History::from_record(key, record)?);
            let version = history.current();
            let image = version
                .function
                .image
                .parse()
                .map_err(|_| corrupt(format!("{:?} is no hash", version.function.image)))?;
            let live = Live::new(functions.identity(&name, &version.function), version, image);
            entries.insert(name, TableEntry { live, history });
            Ok(())
        })?;
        let parts = Parts::restore(&functions.loader.state)?;
        let table = Table::new(entries, parts, token_by_default)?;
        configure(&functions.loader.state, &Table::default(), &table)?;
        functions.loader.warehouse.set_in_use(table.images())?;
        functions.table.send_replace(Arc::new(table));
        Ok(Arc::new(functions))
    }

    /// The functions as they are now.
    pub fn table(&self) -> Arc<Table> {
        self.table.borrow().clone()
    }

    /// The functions as they are now, and whenever they change.
    pub fn watch(&self) -> watch::Receiver<Arc<Table>> {
        self.table.subscribe()
    }

    /// # Errors
    /// [`Code::FunctionUnknown`].
    pub fn get(&self, name: &str) -> Result<TableEntry, Problem> {
        self.table.borrow().get(name)
    }

    /// Has units made that are to be ready and are not. Called at the start and now and then.
    pub fn keep_warm(&self) {
        let table = self.table();
        let warm = table.entries().filter(|entry| entry.live.function.warm() > 0);
        warm.for_each(|entry| self.loader.keep_warm(&entry.live));
    }

    /// Goes back to an earlier version, or the one before the current. Durable when it returns.
    ///
    /// # Errors
    /// [`Code::FunctionUnknown`], [`Code::VersionUnknown`], [`Code::DeployBusy`]; nothing was changed.
    pub async fn roll_back(self: &Arc<Self>, name: &Name, version: Option<u32>) -> Result<(), Problem> {
        let _claim = Claim::new(self, [("function", name.as_str())])?;
        let entry = self.get(name.as_str())?;
        let history = Arc::new(entry.history.rolled_back(name, version)?);
        let function = &history.current().function;
        self.loader.secrets.check_granted(name, function)?;
        let live = Live::new(entry.live.identity.clone(), history.current(), hash(function)?);
        let loaded = self.loader.load(&live).await?;
        deploy::start_once(&self.loader.handler, &loaded).await?;
        self.loader.keep(&live, loaded);
        let (from, to) = (entry.live.version, live.version);
        self.commit(vec![Change::Put { live, history }]).await?;
        tracing::info!(function = %name, from, to, "rolled back");
        Ok(())
    }

    /// Removes a function and all its versions. Durable when it returns; calls that run may end.
    ///
    /// # Errors
    /// [`Code::FunctionUnknown`], [`Code::DeployBusy`]; nothing was changed.
    pub async fn remove(self: &Arc<Self>, name: &Name) -> Result<(), Problem> {
        let _claim = Claim::new(self, [("function", name.as_str())])?;
        self.get(name.as_str())?;
        let ended = PartChange::Ended(name.clone(), None);
        self.commit(vec![Change::Remove(name.clone()), Change::Part(ended)]).await?;
        self.logs.remove(name);
        tracing::info!(function = %name, "removed");
        Ok(())
    }

    /// Forgets a queue with all that is in it, and how it was configured.
    ///
    /// # Errors
    /// [`Code::ManifestConflict`]: something handles it. [`Code::DeployBusy`].
    pub async fn remove_queue(self: &Arc<Self>, queue: &Queue) -> Result<(), Problem> {
        let name: &str = queue.name();
        let _claim = Claim::new(self, [("queue", name)])?;
        let table = self.table();
        if let Some(handler) = table.handlers().get(name) {
            let problem =
                Problem::new(Code::ManifestConflict, format!("{} handles the queue {name:?}", handler.described()));
            return Err(problem.with_hint("remove that first, or purge the queue"));
        }
        if let Some((name, _)) = table.parts().queues.get_key_value(name) {
            self.commit(vec![Change::Part(PartChange::Queue(name.clone(), None))]).await?;
        }
        queue.remove().await?;
        tracing::info!(queue = name, "removed");
        Ok(())
    }

    /// Removes a sink; its queue and the events in it stay.
    ///
    /// # Errors
    /// [`Code::FunctionUnknown`]: there is none. [`Code::DeployBusy`].
    pub async fn remove_sink(self: &Arc<Self>, name: &str) -> Result<(), Problem> {
        let _claim = Claim::new(self, [("sink", name)])?;
        let table = self.table();
        let Some((name, _)) = table.parts().sinks.get_key_value(name) else {
            let problem = Problem::new(Code::FunctionUnknown, format!("there is no sink {name:?}"));
            return Err(problem.with_hint("`lighter queue ls` lists what handles what"));
        };
        let changes = [PartChange::Sink(name.clone(), None), PartChange::Ended(name.clone(), None)];
        self.commit(changes.into_iter().map(Change::Part).collect()).await?;
        tracing::info!(sink = %name, "removed");
        Ok(())
    }

    /// Notes that these functions and sinks handle nothing until they are deployed again. Durable when it returns.
    pub async fn end_workflow(self: &Arc<Self>, names: BTreeSet<Name>, ended: Ended) -> Result<(), Problem> {
        let ended = Arc::new(ended);
        let end = |name| Change::Part(PartChange::Ended(name, Some(ended.clone())));
        self.commit(names.into_iter().map(end).collect()).await
    }

    /// Nothing is deployed, rolled back or removed until what it returns is dropped.
    pub async fn hold_still(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.committing.lock().await
    }

    /// Makes the changes durable, all or none, then shows them to calls at once. A crash in between shows them at the
    /// next start.
    async fn commit(self: &Arc<Self>, changes: Vec<Change>) -> Result<(), Problem> {
        let committing = self.committing.lock().await;
        self.write(changes, committing).await
    }

    /// The same for a deployment of these functions and sinks, which go on: also where their workflow has ended after
    /// the deployment looked. Says of which of them.
    async fn commit_deployed(
        self: &Arc<Self>,
        mut changes: Vec<Change>,
        names: &BTreeSet<Name>,
    ) -> Result<Vec<PartChange>, Problem> {
        let committing = self.committing.lock().await;
        let table = self.table();
        let known =
            |change: &Change, name: &Name| matches!(change, Change::Part(PartChange::Ended(one, _)) if one == name);
        let ended = table.parts().ended.keys().filter(|name| names.contains(*name));
        let late = ended.filter(|name| !changes.iter().any(|change| known(change, name)));
        let late: Vec<PartChange> = late.map(|name| PartChange::Ended(name.clone(), None)).collect();
        changes.extend(late.iter().cloned().map(Change::Part));
        if !changes.is_empty() {
            self.write(changes, committing).await?;
        }
        Ok(late)
    }

    async fn write(
        self: &Arc<Self>,
        changes: Vec<Change>,
        _committing: tokio::sync::MutexGuard<'_, ()>,
    ) -> Result<(), Problem> {
        let before = self.table();
        let after = Arc::new(before.changed(&changes, self.token_by_default)?);
        let mut batch = Batch::default();
        let mut bytes = 0;
        for change in &changes {
            match change {
                Change::Put { live, history } => {
                    let record = history.to_record(live.name())?;
                    bytes += record.len();
                    batch.put(history::TABLE, live.name().as_str(), record)?;
                }
                Change::Remove(name) => batch.delete(history::TABLE, name.as_str())?,
                Change::Part(part) => bytes += part.write(&mut batch)?,
            }
        }
        if bytes > state::WRITE_BYTES_MAX / 2 {
            return Err(too_much(bytes));
        }
        self.hold_images(&before, &after).await?;
        self.check_images(&changes)?;
        self.loader.state.write_records(batch).await?;
        if let Err(problem) = configure(&self.loader.state, &before, &after) {
            // The change is made; the next start configures them again.
            tracing::warn!("queues keep their earlier bounds for now: {}", problem.detail);
        }
        self.table.send_replace(after.clone());

        for change in &changes {
            let name = match change {
                Change::Put { live, .. } => {
                    live.identity.admission.set_limits(limits(&live.function), tokio::time::Instant::now());
                    live.name()
                }
                Change::Remove(name) => {
                    results::release(&self.loader.state, name);
                    name
                }
                Change::Part(_) => continue,
            };
            if let Ok(old) = before.get(name.as_str()) {
                old.live.unload(Instant::now());
            }
        }
        if let Err(problem) = self.hold_images(&after, &after).await {
            // The change is made; what is left over on disk is tried again by the next one.
            tracing::warn!("images that are no longer used stay for now: {}", problem.detail);
        }
        Ok(())
    }

    /// Nobody may have evicted the image between the first look and the hold.
    fn check_images(&self, changes: &[Change]) -> Result<(), Problem> {
        for change in changes {
            if let Change::Put { live, .. } = change
                && !self.loader.warehouse.has_image(&live.image)
            {
                return Err(Problem::new(Code::ImageUnknown, format!("no image has the hash {}", live.image)));
            }
        }
        Ok(())
    }

    /// Says which images stay here though no function has them. Replaces what was said before.
    ///
    /// # Errors
    /// The disk refused to remove another one.
    pub async fn hold(&self, images: HashSet<ImageHash>) -> Result<(), Problem> {
        // Nobody changes the table meanwhile: what is in use would be told as it was before.
        let _still = self.committing.lock().await;
        *self.held.lock() = images;
        let table = self.table();
        self.hold_images(&table, &table).await
    }

    /// Keeps the images of both tables from being evicted.
    async fn hold_images(&self, before: &Arc<Table>, after: &Arc<Table>) -> Result<(), Problem> {
        let (warehouse, before, after) = (self.loader.warehouse.clone(), before.clone(), after.clone());
        let mut images = self.held.lock().clone();
        blocking(move || {
            images.extend(before.images().union(&after.images()));
            warehouse.set_in_use(images)
        })
        .await
    }

    fn identity(&self, name: &Name, function: &Function) -> Arc<Identity> {
        Arc::new(Identity {
            name: name.clone(),
            label: name.as_str().into(),
            admission: Admission::new(limits(function), &self.units),
            counters: Counters::default(),
            log: self.logs.function(name),
        })
    }
}

/// Gives queues and buckets the bounds that the manifests say: queues that are handled or listed, buckets that are
/// listed; and functions with an async route their share of results.
fn configure(state: &state::State, before: &Table, table: &Table) -> Result<(), Problem> {
    let parts = table.parts();
    for name in before.handlers().keys().filter(|name| !table.handlers().contains_key(*name)) {
        // Whoever had ended has gone.
        let queue = state.queue(name.as_str())?;
        queue.configure(state::QueueConfig { is_ended: false, ..queue.config() });
    }
    for name in table.handlers().keys().chain(parts.queues.keys()) {
        let handler = table.handlers().get(name);
        let queue = parts.queues.get(name).map(|part| (*part.what).clone()).unwrap_or_default();
        state.queue(name.as_str())?.configure(state::QueueConfig {
            events_max: queue.events_max,
            bytes_max: queue.bytes_max,
            ttl: queue.ttl.map(manifest::Span::duration),
            deduplicate: queue.deduplicate.map(manifest::Span::duration),
            order_by_key: queue.order == manifest::Order::Key,
            dead_letters_max: queue.dead_letters_max,
            is_ended: handler.is_some_and(|handler| parts.ended.contains_key(handler.name())),
        });
    }
    for live in table.entries().map(|entry| &entry.live) {
        if live.function.http.iter().any(|trigger| trigger.is_async) {
            results::bound(state, live.name())?;
        }
    }
    for (name, part) in &parts.buckets {
        let manifest::Bucket { keys_max, bytes_max, ttl } = *part.what;
        let ttl = ttl.map(manifest::Span::duration);
        state.configure_bucket(name, state::BucketConfig { keys_max, bytes_max, ttl })?;
    }
    Ok(())
}

/// What the manifest says about admission.
fn limits(function: &Function) -> Limits {
    let limits = &function.limits;
    let per_second = limits.rate_per_second;
    Limits {
        running_max: limits.concurrency,
        waiting_max: limits.waiting,
        wait_max: limits.wait(),
        rate: (per_second > 0).then(|| Rate { per_second, burst: per_second.saturating_mul(2) }),
    }
}

fn hash(function: &Function) -> Result<warehouse::ImageHash, Problem> {
    function.image.parse().map_err(|_| {
        let detail = format!("{:?} is no image here: the API takes the SHA-256 of an uploaded image", function.image);
        Problem::new(Code::ManifestValue, detail)
    })
}

fn too_much(bytes: usize) -> Problem {
    let limit = state::WRITE_BYTES_MAX / 2;
    let detail = format!("the functions and their earlier versions take {bytes} bytes as JSON, the limit is {limit}");
    Problem::new(Code::ManifestValue, detail).with_hint("deploy them in several manifests")
}
