//! Makes functions ready to start units at their first call, or as the node starts where that takes next to no time;
//! unloads those that had no call for long. What keeps units warm is ready from the start of the node, and stays.
//!
//! ```text
//!   call ──▶ ready? ─ yes ─▶ Prepared
//!               └ no ─▶ artefact on the shelf? ─ no, corrupt or unfit ─▶ compile the image ─▶ shelf
//!                               └─ yes ─▶ map it, link it ─▶ Prepared ◀────────────────────────┘
//! ```
//! Only the record of a function is in memory before that, so a node starts at once however many it has. It waits a
//! moment for those it loads without a call, which are no more than [`AHEAD_MAX`].

use super::live::Live;
use super::rest::{REST_AFTER, Rest, Resting};
use crate::access::Secrets;
use crate::compiler::{self, Compilers, For};
use crate::metrics::Histogram;
use crate::registry::{OfferedClass, OfferedClasses};
use budget::Budget;
use handling::Handler;
use manifest::{Function, Isolation};
use parking_lot::Mutex;
use problem::{Code, Problem};
use state::State;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use unit::{Artefact, Deployed, Level, Prepared};
use warehouse::{ImageHash, Warehouse};

/// Functions that are loaded as the node starts. A thousand calls that are the first are rare, and memory is not.
const AHEAD_MAX: usize = 128;

pub struct Loader {
    pub classes: OfferedClasses,
    pub warehouse: Warehouse,
    pub state: State,
    pub handler: Handler,
    pub budget: Arc<Budget>,
    pub secrets: Secrets,
    loaded_max: usize,
    idle: Duration,
    started: Instant,
    loaded: Mutex<Vec<Weak<Live>>>,
    /// Those that were called and do not rest yet.
    pub rest: Rest,
    compilers: Arc<Compilers>,
    pub compile_time: Histogram,
    /// Artefacts made again because they were missing, corrupt or unfit when a call needed them.
    pub rebuilt: AtomicU64,
    /// Changes of secrets so far: what was loaded before the last one may hold an old value.
    secrets_changed: AtomicU64,
}

/// A version made ready, and which secrets it has seen.
pub struct Loaded {
    pub prepared: Arc<dyn Prepared>,
    secrets_seen: u64,
}

/// A function ready for a call, and how long that took.
pub struct Ready {
    pub prepared: Arc<dyn Prepared>,
    pub took: Duration,
}

/// How an artefact came about.
pub struct Built {
    pub took: Duration,
    pub artefact_bytes: u64,
    /// It was there already.
    pub kept: bool,
}

impl Loader {
    pub fn new(
        classes: OfferedClasses,
        warehouse: Warehouse,
        state: State,
        budget: Arc<Budget>,
        compilers: Compilers,
        loaded_max: usize,
        idle: Duration,
    ) -> Self {
        let compilers = Arc::new(compilers);
        Self {
            secrets: Secrets::new(&state),
            classes,
            warehouse,
            handler: Handler::new(state.clone()),
            state,
            budget,
            loaded_max,
            idle,
            started: Instant::now(),
            loaded: Mutex::default(),
            rest: Rest::default(),
            compilers,
            compile_time: Histogram::default(),
            rebuilt: AtomicU64::new(0),
            secrets_changed: AtomicU64::new(0),
        }
    }

    /// The function, ready to start units. Nanoseconds if it is; else makes it so, which goes on even if the caller
    /// does not wait for it.
    ///
    /// # Errors
    /// [`Code::TimeExceeded`] when the call's time ends first; what loading and compiling say.
    pub async fn ready(self: &Arc<Self>, live: &Arc<Live>, now: Instant) -> Result<Ready, Problem> {
        live.note_use(self.ms(now));
        self.rest.called();
        if let Some(prepared) = live.prepared() {
            return Ok(Ready { prepared, took: Duration::ZERO });
        }
        let began = Instant::now();
        let prepared = self.load_for_call(live).await?;
        Ok(Ready { prepared, took: began.elapsed() })
    }

    async fn load_for_call(self: &Arc<Self>, live: &Arc<Live>) -> Result<Arc<dyn Prepared>, Problem> {
        let (loader, loading) = (self.clone(), live.clone());
        let load = tokio::spawn(async move { loader.load_once(&loading).await });
        match tokio::time::timeout(live.function.limits.time(), load).await {
            Ok(loaded) => {
                loaded.map_err(|error| Problem::new(Code::Internal, format!("loading the function: {error}")))?
            }
            Err(_) => {
                let detail = "the function was still being made ready when limits.time_ms was over";
                Err(Problem::new(Code::TimeExceeded, detail).with_hint("try again in a moment"))
            }
        }
    }

    async fn load_once(self: &Arc<Self>, live: &Arc<Live>) -> Result<Arc<dyn Prepared>, Problem> {
        let _loading = live.loading.lock().await;
        if let Some(prepared) = live.prepared() {
            return Ok(prepared);
        }
        let loaded = self.load(live).await.inspect_err(|problem| {
            live.identity.log.node(Level::Error, live.version, &problem.detail);
            tracing::error!(function = %live.name(), version = live.version, "cannot be made ready: {}", problem.detail);
        })?;
        let prepared = loaded.prepared.clone();
        self.keep(live, loaded);
        Ok(prepared)
    }

    /// Makes functions ready before their first calls, [`AHEAD_MAX`] at most: those whose class loads them at once and
    /// whose artefact is there. What is wrong with one is told by its first call.
    pub async fn load_ahead(self: &Arc<Self>, functions: impl Iterator<Item = Arc<Live>>) {
        let at_once = available_parallelism().map_or(1, usize::from);
        let at_little_cost = |live: &Arc<Live>| {
            self.classes.get(live.function.isolation).is_ok_and(|offered| offered.units.loads_at_once())
        };
        let first: Vec<Arc<Live>> = functions.filter(at_little_cost).take(AHEAD_MAX.min(self.loaded_max)).collect();
        let mut loading = JoinSet::new();
        for live in first {
            if loading.len() == at_once {
                loading.join_next().await;
            }
            let loader = self.clone();
            loading.spawn(async move { loader.load_one_ahead(&live).await.ok() });
        }
        loading.join_all().await;
        self.rest.called();
    }

    async fn load_one_ahead(&self, live: &Arc<Live>) -> Result<(), Problem> {
        let offered = self.classes.get(live.function.isolation)?;
        let _loading = live.loading.lock().await;
        if live.prepared().is_none() {
            let secrets_seen = self.secrets_changed.load(SeqCst);
            if let Some(prepared) = self.load_kept(offered, live, self.deployed(live)?).await? {
                self.keep(live, Loaded { prepared, secrets_seen });
            }
        }
        Ok(())
    }

    /// Makes a version ready without showing it to calls.
    pub async fn load(self: &Arc<Self>, live: &Arc<Live>) -> Result<Loaded, Problem> {
        let secrets_seen = self.secrets_changed.load(SeqCst);
        let prepared = self.prepare(live).await?;
        Ok(Loaded { prepared, secrets_seen })
    }

    async fn prepare(self: &Arc<Self>, live: &Arc<Live>) -> Result<Arc<dyn Prepared>, Problem> {
        let offered = self.classes.get(live.function.isolation)?.clone();
        let deployed = self.deployed(live)?;
        if let Some(prepared) = self.load_kept(&offered, live, deployed.clone()).await? {
            return Ok(prepared);
        }
        self.rebuilt.fetch_add(1, Relaxed);
        let note = "its artefact is missing, corrupt or for another engine: compiling the image again";
        live.identity.log.node(Level::Warn, live.version, note);
        tracing::warn!(function = %live.name(), version = live.version, "{note}");
        let artefact = self.compile(&offered, live.image, For::Call).await?;
        blocking(move || offered.units.load(artefact, deployed)).await
    }

    /// Loads the artefact on the shelf; none if there is no good one.
    async fn load_kept(
        &self,
        offered: &OfferedClass,
        live: &Live,
        deployed: Deployed,
    ) -> Result<Option<Arc<dyn Prepared>>, Problem> {
        let (offered, image) = (offered.clone(), live.image);
        blocking(move || {
            let opened = match offered.shelf.open(&image) {
                Err(problem) if problem.code == Code::ArtefactCorrupt => None,
                opened => opened?,
            };
            let Some(artefact) = opened else { return Ok(None) };
            match offered.units.load(Artefact { path: artefact.path, file: artefact.file }, deployed) {
                Err(problem) if problem.code == Code::ArtefactCorrupt => Ok(None),
                loaded => loaded.map(Some),
            }
        })
        .await
    }

    /// Sees to it that there is an artefact. Dropped, it compiles no further.
    pub async fn build(self: &Arc<Self>, isolation: Isolation, image: ImageHash) -> Result<Built, Problem> {
        let offered = self.classes.get(isolation)?.clone();
        let began = Instant::now();
        let shelf = offered.shelf.clone();
        let opened = blocking(move || match shelf.open(&image) {
            Err(problem) if problem.code == Code::ArtefactCorrupt => Ok(None),
            opened => Ok(opened?.map(|artefact| artefact.bytes)),
        });
        if let Some(artefact_bytes) = opened.await? {
            return Ok(Built { took: began.elapsed(), artefact_bytes, kept: true });
        }
        let artefact = self.compile(&offered, image, For::Deployment).await?;
        let artefact_bytes = artefact.file.metadata().map_or(0, |metadata| metadata.len());
        Ok(Built { took: began.elapsed(), artefact_bytes, kept: false })
    }

    async fn compile(&self, offered: &OfferedClass, image: ImageHash, whose: For) -> Result<Artefact, Problem> {
        let whose = if offered.units.has_compiler() { whose } else { For::Base };
        let turn = self.compilers.turn(whose).await;
        let (offered, warehouse, compilers) = (offered.clone(), self.warehouse.clone(), self.compilers.clone());
        let (_waits, mut waiting) = compiler::waits();
        let runtime = Handle::current();
        let began = Instant::now();
        let artefact = blocking(move || {
            let _turn = turn;
            let mut compile =
                |target: &str, image: &[u8]| runtime.block_on(compilers.compile(target, image, &mut waiting));
            let bytes = offered.units.compile_by(&warehouse.read_image(&image)?, &mut compile)?;
            offered.shelf.put(&image, &bytes)?;
            let gone = || Problem::new(Code::ArtefactCorrupt, "the artefact was gone as soon as it was stored");
            let artefact = offered.shelf.open(&image)?.ok_or_else(gone)?;
            Ok(Artefact { path: artefact.path, file: artefact.file })
        });
        let artefact = artefact.await?;
        self.compile_time.record(began.elapsed());
        Ok(artefact)
    }

    fn deployed(&self, live: &Live) -> Result<Deployed, Problem> {
        Ok(Deployed {
            name: live.name().clone(),
            version: live.version,
            function: live.function.clone(),
            contract: live.contract,
            secrets: Arc::new(self.secrets.granted(&live.function)?),
            log: live.identity.log.writer(live.version),
            budget: self.budget.clone(),
        })
    }

    /// From now on calls find it ready. If too many are, the one that was not called for longest is unloaded.
    pub fn keep(&self, live: &Arc<Live>, new: Loaded) {
        let now = Instant::now();
        live.note_use(self.ms(now));
        let mut loaded = self.loaded.lock();
        if self.secrets_changed.load(SeqCst) != new.secrets_seen {
            // A secret changed meanwhile: the next call loads it again.
            return;
        }
        live.set_prepared(new.prepared);
        loaded.retain(|other| {
            other.upgrade().is_some_and(|other| other.prepared().is_some() && !Arc::ptr_eq(&other, live))
        });
        if loaded.len() >= self.loaded_max {
            // Those that keep units warm go last.
            let order = |live: &Arc<Live>| (live.function.warm() > 0, live.used_ms());
            let oldest = loaded.iter().filter_map(Weak::upgrade).min_by_key(order);
            oldest.inspect(|oldest| oldest.unload(now));
        }
        loaded.push(Arc::downgrade(live));
    }

    /// Lets functions rest that had no call for a moment. Whether there are others, which had.
    pub fn let_rest(&self, now: Instant) -> bool {
        let until_ms = self.ms(now).saturating_sub(REST_AFTER.as_millis() as u64);
        let loaded: Vec<Arc<Live>> = self.loaded.lock().iter().filter_map(Weak::upgrade).collect();
        let mut left = false;
        for live in loaded {
            match live.rests_since(until_ms) {
                Resting::Begins => live.prepared().iter().for_each(|prepared| prepared.rests()),
                Resting::Already => {}
                Resting::NotYet => left = true,
            }
        }
        left
    }

    /// Unloads what has long had no call, and lets the others stop units that sit idle. Called now and then.
    pub fn sweep(&self, now: Instant) {
        let idle_ms = u64::try_from(self.idle.as_millis()).unwrap_or(u64::MAX);
        let loaded: Vec<Arc<Live>> = self.loaded.lock().iter().filter_map(Weak::upgrade).collect();
        for live in loaded {
            let Some(prepared) = live.prepared() else { continue };
            let is_idle = self.ms(now).saturating_sub(live.used_ms()) > idle_ms && prepared.units().is_empty();
            // Unloading would lose a core dump that somebody may still want.
            if is_idle && live.function.warm() == 0 && prepared.dump().is_none() {
                live.unload(now);
            } else {
                prepared.sweep(now, false);
            }
        }
        self.loaded.lock().retain(|live| live.upgrade().is_some_and(|live| live.prepared().is_some()));
    }

    /// Has a function that keeps units warm make those that are missing. It is loaded for that; one that cannot be is
    /// left to its first call. Called at the start and now and then.
    pub fn keep_warm(self: &Arc<Self>, live: &Arc<Live>) {
        if let Some(prepared) = live.prepared() {
            prepared.warm_up();
            return;
        }
        if live.begin_warming() {
            let (loader, live) = (self.clone(), live.clone());
            tokio::spawn(async move {
                let loaded = loader.load_once(&live).await;
                live.end_warming(loaded.is_ok());
                loaded.map(|prepared| prepared.warm_up()).ok();
            });
        }
    }

    /// Functions granted this secret read its value anew.
    pub fn secret_changed(&self, secret: &str) {
        self.secrets_changed.fetch_add(1, SeqCst);
        let granted = |function: &Function| function.grants.secrets.iter().any(|granted| granted == secret);
        let loaded: Vec<Arc<Live>> = self.loaded.lock().iter().filter_map(Weak::upgrade).collect();
        loaded.iter().filter(|live| granted(&live.function)).for_each(|live| live.unload(Instant::now()));
    }

    pub fn loaded_count(&self) -> usize {
        self.loaded.lock().iter().filter(|live| live.upgrade().is_some_and(|live| live.prepared().is_some())).count()
    }

    fn ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.started).as_millis()).unwrap_or(u64::MAX)
    }
}

/// Runs what blocks on disk or CPU on a thread of its own.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Problem::new(Code::Internal, format!("a thread of the node gave up: {error}"))),
    }
}
