//! The engine all units share: its settings, its pool of memory slots, its ticker and its threads for hogs.
//!
//! Time is counted in slices of one millisecond. A unit that has used a whole one gives way, and from then on runs on
//! threads of the operating system's idle class, which yield the core the moment anything else wants it. So a function
//! that loops costs its neighbours two slices or three, whatever the number of cores.
//!
//! Components of WASI 0.3 have an engine of their own beside that of 0.2, with a pool of its own: calls that need no
//! tasks do not pay for them. It is opened when the first such component comes.

use crate::functions::Functions;
use crate::hogs::{Hogs, enter_idle_class};
use crate::host;
use crate::patience::Patience;
use crate::slots::{MEMORIES_OWN, Slots, Spare, TABLES_OWN};
use crate::stall::Stall;
use crate::unit_state::UnitState;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};
use unit_lines::Teller;
use wasmtime::component::Linker;
use wasmtime::{
    Enabled, EngineWeak, InstanceAllocationStrategy, ModuleVersionStrategy, PoolingAllocationConfig,
    WasmBacktraceDetails,
};

/// One slice: the unit in which CPU time is counted and units give way.
pub const SLICE: Duration = Duration::from_millis(1);

/// The ticker sleeps after this many slices without a running call.
const IDLE_SLICES: u32 = 100;

/// Stack of one unit. Deeper recursion is [`Code::StackExceeded`].
const STACK_BYTES: usize = 512 << 10;

/// Core instances, memories and tables of one component. Python components have well over a hundred core instances.
const CORE_INSTANCES_MAX: u32 = 400;
const MEMORIES_MAX: u32 = 8;
const TABLES_MAX: u32 = 200;

/// Bytes of a memory slot kept in RAM between units and wiped by copying instead of by unmapping: page faults are
/// dearer than copies up to about here.
const KEEP_BYTES: usize = 1 << 20;

/// Frames of a backtrace; one more than are told, so that it can be said that there were more.
const FRAMES_MAX: usize = 31;

/// Idle slots that keep pages in RAM.
const KEEP_SLOTS: u32 = 16;

/// What artefacts are told apart by, beside settings: wasmtime's version, and that of our changes to its compiler
/// (`third-party/wasmtime-internal-cranelift`).
const CODE_VERSION: &str = "48.0.8-lighterage.1";

/// Address space tried for each memory, largest first. With 4 GiB no bounds checks are needed; a small board whose
/// kernel gives 39 bits of address space takes less and checks each access.
const RESERVATIONS: [u64; 4] = [4 << 30, 1 << 30, 256 << 20, 64 << 20];

#[derive(Debug, Clone)]
pub struct Config {
    /// Units at once, those kept for reuse included.
    pub units_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { units_max: 1_000 }
    }
}

/// What a component is written for. It decides which of the two engines compiles and runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Series {
    /// `lighter:unit`, or WASI 0.2: one call at a time, each host call to its end.
    Wasi02,
    /// WASI 0.3: tasks that wait side by side, streams and futures.
    Wasi03,
}

/// One of the two engines: what components are linked and run with.
pub struct Runtime {
    pub wasmtime: wasmtime::Engine,
    pub linker: Linker<UnitState>,
    /// Tables and memories beyond those that every unit has.
    pub spare: Arc<Spare>,
}

impl Runtime {
    fn new(wasmtime: wasmtime::Engine, series: Series, units: u32) -> Result<Self, Problem> {
        let linker = host::linker(&wasmtime, series)
            .map_err(|error| Problem::new(Code::Internal, format!("linking the host functions: {error:#}")))?;
        Ok(Self { wasmtime, linker, spare: Spare::new(spare(units)) })
    }
}

pub struct Engine {
    wasi02: Runtime,
    wasi03: OnceLock<Runtime>,
    /// Held while the second one is opened.
    opening: Mutex<()>,
    config: Config,
    reservation_bytes: u64,
    pub fingerprint: String,
    pub client: host::http::Client,
    pub teller: Teller,
    pub stall: Arc<Stall>,
    pub patience: Arc<Patience>,
    /// Those it runs that keep units.
    pub functions: Functions,
    /// Taken only when the engine is dropped.
    threads: Option<Threads>,
    ticker: Arc<Ticker>,
}

impl Engine {
    pub fn new(config: Config) -> Result<Self, Problem> {
        let (engine, reservation_bytes) = open(&config)?;
        Self::with(engine, config, reservation_bytes)
    }

    /// An engine whose code a debugger can step through. It counts no time: a unit may stand still.
    pub fn for_debugging() -> Result<Self, Problem> {
        let open = |series| {
            let engine = wasmtime::Engine::new(&debugging_settings(series));
            engine.map_err(|error| Problem::new(Code::Internal, format!("starting the engine: {error:#}")))
        };
        let config = Config::default();
        let second = Runtime::new(open(Series::Wasi03)?, Series::Wasi03, units_max(&config, Series::Wasi03))?;
        let made = Self::with(open(Series::Wasi02)?, config, 0)?;
        made.wasi03.get_or_init(|| second);
        Ok(made)
    }

    fn with(wasmtime: wasmtime::Engine, config: Config, reservation_bytes: u64) -> Result<Self, Problem> {
        let fingerprint = fingerprint(&wasmtime, reservation_bytes)?;
        let hogs = Arc::new(Hogs::start().map_err(|error| starting_threads(&error))?);
        let threads = Some(Threads { hogs: hogs.clone(), starved: starved_thread()? });
        let stall = Stall::start(enter_idle_class).map_err(|error| starting_threads(&error))?;
        let ticker = Ticker::start(wasmtime.clone(), stall.clone(), Arc::downgrade(&hogs));
        let teller = Teller::start().map_err(|error| starting_threads(&error))?;
        let wasi02 = Runtime::new(wasmtime, Series::Wasi02, config.units_max)?;
        let client = egress::Clients::new();
        let (wasi03, opening) = (OnceLock::new(), Mutex::new(()));
        Ok(Self {
            wasi02,
            wasi03,
            opening,
            config,
            reservation_bytes,
            fingerprint,
            client,
            teller,
            stall,
            patience: Arc::default(),
            functions: Functions::default(),
            threads,
            ticker,
        })
    }

    /// What [`Compiler`] makes code for this engine by.
    pub fn target(&self, series: Series) -> String {
        let series = if series == Series::Wasi03 { TASKS } else { "" };
        format!("{TARGET}{series}{}", self.reservation_bytes)
    }

    /// What runs components of a series; the second is opened when it is first asked for.
    ///
    /// # Errors
    /// [`Code::Internal`]: the machine has no address space for it.
    pub fn runtime(&self, series: Series) -> Result<&Runtime, Problem> {
        if series == Series::Wasi02 {
            return Ok(&self.wasi02);
        }
        if let Some(runtime) = self.wasi03.get() {
            return Ok(runtime);
        }
        let _opening = self.opening.lock();
        if let Some(runtime) = self.wasi03.get() {
            return Ok(runtime);
        }
        let engine = wasmtime::Engine::new(&settings(&self.config, self.reservation_bytes, series));
        let engine = engine.map_err(|error| no_address_space(units_max(&self.config, series), &error))?;
        let runtime = Runtime::new(engine, series, units_max(&self.config, series))?;
        self.ticker.beats_for(&runtime.wasmtime);
        Ok(self.wasi03.get_or_init(|| runtime))
    }

    /// Where units go that have used up their slices.
    pub fn hogs(&self) -> &Hogs {
        &self.threads().hogs
    }

    /// Where they go for a turn when the rest of the machine leaves them nothing.
    pub fn starved(&self) -> &tokio::runtime::Handle {
        self.threads().starved.handle()
    }

    fn threads(&self) -> &Threads {
        self.threads.as_ref().expect("there while the engine is")
    }

    /// To be called when a unit starts running: the ticker runs until as many calls have ended.
    pub fn call_begins(&self) {
        self.ticker.call_begins();
    }

    pub fn call_ends(&self) {
        self.ticker.call_ends();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(Threads { hogs, starved }) = self.threads.take() {
            drop(hogs);
            starved.shutdown_background();
        }
    }
}

/// Tables and memories of the pool beyond those that every unit has. At least enough for one unit of the largest
/// component.
fn spare(units: u32) -> Slots {
    Slots { tables: units.saturating_mul(8).max(TABLES_MAX), memories: (units / 4).max(MEMORIES_MAX) }
}

/// Units at once of a series. Those of WASI 0.3 are half as many, so that a machine with little address space has room
/// for both pools.
fn units_max(config: &Config, series: Series) -> u32 {
    match series {
        Series::Wasi02 => config.units_max,
        Series::Wasi03 => (config.units_max / 2).max(1),
    }
}

/// Opens the engine with the largest reservation this machine takes.
fn open(config: &Config) -> Result<(wasmtime::Engine, u64), Problem> {
    let mut last = None;
    for reservation_bytes in RESERVATIONS {
        match wasmtime::Engine::new(&settings(config, reservation_bytes, Series::Wasi02)) {
            Ok(engine) => {
                if last.is_some() {
                    tracing::info!(reservation_bytes, "little address space: memory accesses are bounds-checked");
                }
                return Ok((engine, reservation_bytes));
            }
            Err(error) => last = Some(error),
        }
    }
    Err(no_address_space(config.units_max, &last.expect("at least one reservation is tried")))
}

fn no_address_space(units: u32, error: &wasmtime::Error) -> Problem {
    Problem::new(Code::Internal, format!("no address space for {units} units: {error:#}"))
        .with_hint("lower --units-max")
}

/// What artefacts of both engines depend on.
fn fingerprint(wasi02: &wasmtime::Engine, reservation_bytes: u64) -> Result<String, Problem> {
    let wasi03 = wasmtime::Engine::new(&code_settings(reservation_bytes, Series::Wasi03))
        .map_err(|error| Problem::new(Code::Internal, format!("starting the engine: {error:#}")))?;
    let mut hasher = DefaultHasher::new();
    wasi02.precompile_compatibility_hash().hash(&mut hasher);
    wasi03.precompile_compatibility_hash().hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}

/// What all words for targets of this class begin with; the reservation follows, on which code depends.
const TARGET: &str = "wasm-";

/// What then follows first in those of WASI 0.3.
const TASKS: &str = "tasks-";

/// Makes code that an [`Engine`] runs, with nothing else of one: no pool, no threads.
pub struct Compiler(wasmtime::Engine);

impl Compiler {
    /// # Errors
    /// [`Code::Internal`]: the word is no target.
    pub fn for_target(word: &str) -> Result<Self, Problem> {
        let settings = word.strip_prefix(TARGET).and_then(|bytes| match bytes.strip_prefix(TASKS) {
            Some(bytes) => Some(code_settings(bytes.parse().ok()?, Series::Wasi03)),
            None => Some(code_settings(bytes.parse().ok()?, Series::Wasi02)),
        });
        let settings = settings.ok_or_else(|| Problem::new(Code::Internal, format!("there is no target {word:?}")))?;
        let engine = wasmtime::Engine::new(&settings);
        engine.map(Self).map_err(|error| Problem::new(Code::Internal, format!("starting the compiler: {error:#}")))
    }

    /// # Errors
    /// [`Code::CompileFailed`].
    pub fn compile(&self, image: &[u8]) -> Result<Vec<u8>, Problem> {
        self.0
            .precompile_component(image)
            .map_err(|error| Problem::new(Code::CompileFailed, format!("the component did not compile: {error:#}")))
    }
}

fn settings(config: &Config, reservation_bytes: u64, series: Series) -> wasmtime::Config {
    let units = units_max(config, series);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(units)
        .total_core_instances(units.saturating_mul(CORE_INSTANCES_MAX))
        .total_memories((units * MEMORIES_OWN).saturating_add(spare(units).memories))
        .total_tables((units.saturating_mul(TABLES_OWN)).saturating_add(spare(units).tables))
        .total_stacks(units.saturating_mul(stacks(series)))
        .max_core_instances_per_component(CORE_INSTANCES_MAX)
        .max_memories_per_component(MEMORIES_MAX)
        .max_tables_per_component(TABLES_MAX)
        .max_component_instance_size(4 << 20)
        .max_core_instance_size(4 << 20)
        .max_memory_size(usize::try_from(reservation_bytes).unwrap_or(usize::MAX))
        .table_elements(100_000)
        .linear_memory_keep_resident(KEEP_BYTES)
        .table_keep_resident(64 << 10)
        .max_unused_warm_slots(KEEP_SLOTS)
        .pagemap_scan(Enabled::Auto);
    let mut wasmtime = code_settings(reservation_bytes, series);
    wasmtime.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    wasmtime
}

/// Stacks a unit has at once. With tasks there may be one that waits in the middle of a function and one that runs;
/// there are no more, because a component that has a waiting one is not entered.
pub fn stacks(series: Series) -> u32 {
    match series {
        Series::Wasi02 => 1,
        Series::Wasi03 => 2,
    }
}

/// The settings on which code depends, and those of how it runs.
fn code_settings(reservation_bytes: u64, series: Series) -> wasmtime::Config {
    let mut wasmtime = wasmtime::Config::new();
    wasmtime
        .memory_reservation(reservation_bytes)
        .memory_init_cow(true)
        .epoch_interruption(true)
        .max_wasm_stack(STACK_BYTES)
        .async_stack_size(STACK_BYTES + (256 << 10))
        // Which lines of the source they are is found out later, outside of the call's time.
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .wasm_backtrace_max_frames(NonZeroUsize::new(FRAMES_MAX))
        .coredump_on_trap(true)
        // One of pages of a byte may fail to grow without being asked for: `Limiter` relies on being asked.
        .wasm_custom_page_sizes(false)
        .module_version(ModuleVersionStrategy::Custom(CODE_VERSION.into()))
        .expect("it is short enough");
    with_tasks(&mut wasmtime, series);
    wasmtime
}

fn debugging_settings(series: Series) -> wasmtime::Config {
    let mut wasmtime = wasmtime::Config::new();
    wasmtime
        .debug_info(true)
        .cranelift_opt_level(wasmtime::OptLevel::None)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .wasm_backtrace_max_frames(NonZeroUsize::new(FRAMES_MAX));
    with_tasks(&mut wasmtime, series);
    wasmtime
}

/// Of the asynchronous part of the component model, what WASI 0.3 needs. Stackful tasks and threads stay out: each of
/// theirs could hold a stack.
fn with_tasks(wasmtime: &mut wasmtime::Config, series: Series) {
    let has_tasks = series == Series::Wasi03;
    wasmtime.concurrency_support(has_tasks).wasm_component_model_async(has_tasks);
    if has_tasks {
        wasmtime.wasm_component_model_async_stackful(false).wasm_component_model_threading(false);
    }
}

/// Threads for units that run long.
struct Threads {
    hogs: Arc<Hogs>,
    starved: tokio::runtime::Runtime,
}

/// One thread of normal priority: however many units starve, they compete with the rest for one core's share.
fn starved_thread() -> Result<tokio::runtime::Runtime, Problem> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("lighter-starved")
        .enable_all()
        .build()
        .map_err(|error| starting_threads(&error))
}

fn starting_threads(error: &io::Error) -> Problem {
    Problem::new(Code::Internal, format!("starting threads: {error}"))
}

/// Ends a slice every millisecond while calls run, by the epoch, asks whether the idle class gets anything, and looks
/// after units that have begun there. Sleeps while none run.
struct Ticker {
    thread: thread::Thread,
    /// The engine of WASI 0.3, once there is one.
    second: Arc<OnceLock<EngineWeak>>,
    asleep: Arc<AtomicBool>,
    /// Calls that run now.
    running: Arc<AtomicUsize>,
}

impl Ticker {
    fn start(engine: wasmtime::Engine, stall: Arc<Stall>, hogs: Weak<Hogs>) -> Arc<Self> {
        let asleep = Arc::new(AtomicBool::new(false));
        let running = Arc::new(AtomicUsize::new(0));
        let engine = engine.weak();
        let second = Arc::new(OnceLock::<EngineWeak>::new());
        let (is_asleep, are_running, also) = (asleep.clone(), running.clone(), second.clone());
        let handle = thread::Builder::new()
            .name("lighter-ticker".into())
            .spawn(move || {
                let mut idle_slices = 0;
                while let Some(engine) = engine.upgrade() {
                    engine.increment_epoch();
                    drop(engine);
                    if let Some(engine) = also.get().and_then(EngineWeak::upgrade) {
                        engine.increment_epoch();
                    }
                    stall.ask(Instant::now());
                    hogs.upgrade().inspect(|hogs| hogs.look());
                    thread::sleep(SLICE);
                    idle_slices = if are_running.load(SeqCst) > 0 { 0 } else { idle_slices + 1 };
                    if idle_slices > IDLE_SLICES {
                        is_asleep.store(true, SeqCst);
                        // A call that began in between has counted itself before it looked at `asleep`.
                        if are_running.load(SeqCst) == 0 {
                            thread::park();
                        }
                        is_asleep.store(false, SeqCst);
                        idle_slices = 0;
                    }
                }
            })
            .expect("the first threads of the process can be started");
        Arc::new(Self { thread: handle.thread().clone(), second, asleep, running })
    }

    /// Ends slices of this engine too.
    fn beats_for(&self, engine: &wasmtime::Engine) {
        self.second.get_or_init(|| engine.weak());
    }

    fn call_begins(&self) {
        self.running.fetch_add(1, SeqCst);
        if self.asleep.load(SeqCst) {
            self.thread.unpark();
        }
    }

    fn call_ends(&self) {
        self.running.fetch_sub(1, SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    /// Or artefacts of the version before would be taken for those of the new one.
    #[test]
    fn the_version_of_code_is_that_of_wasmtime() {
        let lock = include_str!("../../../../Cargo.lock");
        let (version, _) = super::CODE_VERSION.split_once('-').unwrap();
        assert!(lock.contains(&format!("name = \"wasmtime\"\nversion = \"{version}\"\n")), "{version}");
    }
}
