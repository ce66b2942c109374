//! The engine all units share: its settings, its pool of memory slots, its ticker and its threads for hogs.
//!
//! Time is counted in slices of one millisecond. A unit that has used a whole one gives way, and from then on runs on
//! threads of the operating system's idle class, which yield the core the moment anything else wants it. So a function
//! that loops costs its neighbours two slices or three, whatever the number of cores.

use crate::host;
use crate::slots::{MEMORIES_OWN, Slots, Spare, TABLES_OWN};
use crate::stall::Stall;
use crate::unit_state::UnitState;
use problem::{Code, Problem};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use unit_lines::Teller;
use wasmtime::component::Linker;
use wasmtime::{Enabled, InstanceAllocationStrategy, PoolingAllocationConfig, WasmBacktraceDetails};

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

pub struct Engine {
    pub wasmtime: wasmtime::Engine,
    pub linker: Linker<UnitState>,
    pub fingerprint: String,
    /// What [`Compiler`] makes code for it by.
    pub target: String,
    pub client: host::http::Client,
    pub teller: Teller,
    pub stall: Arc<Stall>,
    /// Tables and memories beyond those that every unit has.
    pub spare: Arc<Spare>,
    /// Taken only when the engine is dropped.
    threads: Option<Threads>,
    ticker: Arc<Ticker>,
}

impl Engine {
    pub fn new(config: Config) -> Result<Self, Problem> {
        let (engine, reservation_bytes) = open(&config)?;
        Self::with(engine, spare(config.units_max), reservation_bytes)
    }

    /// An engine whose code a debugger can step through. It counts no time: a unit may stand still.
    pub fn for_debugging() -> Result<Self, Problem> {
        let mut settings = wasmtime::Config::new();
        settings
            .debug_info(true)
            .cranelift_opt_level(wasmtime::OptLevel::None)
            .wasm_backtrace_details(WasmBacktraceDetails::Disable)
            .wasm_backtrace_max_frames(NonZeroUsize::new(FRAMES_MAX));
        let engine = wasmtime::Engine::new(&settings);
        let engine = engine.map_err(|error| Problem::new(Code::Internal, format!("starting the engine: {error:#}")))?;
        Self::with(engine, spare(Config::default().units_max), 0)
    }

    fn with(wasmtime: wasmtime::Engine, spare: Slots, reservation_bytes: u64) -> Result<Self, Problem> {
        let spare = Spare::new(spare);
        let mut hasher = DefaultHasher::new();
        wasmtime.precompile_compatibility_hash().hash(&mut hasher);
        let linker = host::linker(&wasmtime)
            .map_err(|error| Problem::new(Code::Internal, format!("linking the host functions: {error:#}")))?;
        let threads = Some(Threads { hogs: hog_threads()?, starved: starved_thread()? });
        let stall = Stall::start(enter_idle_class).map_err(|error| starting_threads(&error))?;
        let ticker = Ticker::start(wasmtime.clone(), stall.clone());
        let teller = Teller::start().map_err(|error| starting_threads(&error))?;
        let fingerprint = format!("{:016x}", hasher.finish());
        let client = egress::Clients::new();
        let target = format!("{TARGET}{reservation_bytes}");
        Ok(Self { wasmtime, linker, fingerprint, target, client, teller, stall, spare, threads, ticker })
    }

    /// Where units go that have used up their slices.
    pub fn hogs(&self) -> &tokio::runtime::Handle {
        self.threads().hogs.handle()
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
            hogs.shutdown_background();
            starved.shutdown_background();
        }
    }
}

/// Tables and memories of the pool beyond those that every unit has. At least enough for one unit of the largest
/// component.
fn spare(units: u32) -> Slots {
    Slots { tables: units.saturating_mul(8).max(TABLES_MAX), memories: (units / 4).max(MEMORIES_MAX) }
}

/// Opens the engine with the largest reservation this machine takes.
fn open(config: &Config) -> Result<(wasmtime::Engine, u64), Problem> {
    let mut last = None;
    for reservation_bytes in RESERVATIONS {
        match wasmtime::Engine::new(&settings(config, reservation_bytes)) {
            Ok(engine) => {
                if last.is_some() {
                    tracing::info!(reservation_bytes, "little address space: memory accesses are bounds-checked");
                }
                return Ok((engine, reservation_bytes));
            }
            Err(error) => last = Some(error),
        }
    }
    let error = last.expect("at least one reservation is tried");
    Err(Problem::new(Code::Internal, format!("no address space for {} units: {error:#}", config.units_max))
        .with_hint("lower --units-max"))
}

/// What all words for targets of this class begin with; the reservation follows, on which code depends.
const TARGET: &str = "wasm-";

/// Makes code that an [`Engine`] runs, with nothing else of one: no pool, no threads.
pub struct Compiler(wasmtime::Engine);

impl Compiler {
    /// # Errors
    /// [`Code::Internal`]: the word is no target.
    pub fn for_target(word: &str) -> Result<Self, Problem> {
        let bytes = word.strip_prefix(TARGET).and_then(|bytes| bytes.parse().ok());
        let bytes = bytes.ok_or_else(|| Problem::new(Code::Internal, format!("there is no target {word:?}")))?;
        let engine = wasmtime::Engine::new(&code_settings(bytes));
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

fn settings(config: &Config, reservation_bytes: u64) -> wasmtime::Config {
    let units = config.units_max;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(units)
        .total_core_instances(units.saturating_mul(CORE_INSTANCES_MAX))
        .total_memories((units * MEMORIES_OWN).saturating_add(spare(units).memories))
        .total_tables((units.saturating_mul(TABLES_OWN)).saturating_add(spare(units).tables))
        .total_stacks(units)
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
    let mut wasmtime = code_settings(reservation_bytes);
    wasmtime.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    wasmtime
}

/// The settings on which code depends, and those of how it runs.
fn code_settings(reservation_bytes: u64) -> wasmtime::Config {
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
        .coredump_on_trap(true);
    wasmtime
}

/// Threads for units that run long.
struct Threads {
    hogs: tokio::runtime::Runtime,
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

/// As many threads as cores, in the operating system's idle class.
fn hog_threads() -> Result<tokio::runtime::Runtime, Problem> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(thread::available_parallelism().map_or(1, usize::from))
        .thread_name("lighter-hog")
        .enable_all()
        .on_thread_start(enter_idle_class)
        .build()
        .map_err(|error| starting_threads(&error))
}

/// Puts this thread into the operating system's idle class.
fn enter_idle_class() {
    use thread_priority::{
        NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
        thread_native_id,
    };
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    if let Err(error) = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle) {
        tracing::warn!(?error, "threads for long-running units keep their normal priority");
    }
}

fn starting_threads(error: &io::Error) -> Problem {
    Problem::new(Code::Internal, format!("starting threads: {error}"))
}

/// Ends a slice every millisecond while calls run, by the epoch, and asks whether the idle class gets anything. Sleeps
/// while none run.
struct Ticker {
    thread: thread::Thread,
    asleep: Arc<AtomicBool>,
    /// Calls that run now.
    running: Arc<AtomicUsize>,
}

impl Ticker {
    fn start(engine: wasmtime::Engine, stall: Arc<Stall>) -> Arc<Self> {
        let asleep = Arc::new(AtomicBool::new(false));
        let running = Arc::new(AtomicUsize::new(0));
        let engine = engine.weak();
        let (is_asleep, are_running) = (asleep.clone(), running.clone());
        let handle = thread::Builder::new()
            .name("lighter-ticker".into())
            .spawn(move || {
                let mut idle_slices = 0;
                while let Some(engine) = engine.upgrade() {
                    engine.increment_epoch();
                    drop(engine);
                    thread::sleep(SLICE);
                    stall.ask(Instant::now());
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
        Arc::new(Self { thread: handle.thread().clone(), asleep, running })
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
