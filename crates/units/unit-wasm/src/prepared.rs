//! A function ready to run: starts units, hands them work, keeps some for reuse when the manifest says so.

use crate::artefact::{self, KeptImage};
use crate::attach::{self, Asks};
use crate::attempt;
use crate::bindings::EverythingPre;
use crate::engine::{Engine, Runtime, Series};
use crate::failure;
use crate::holdings::{CALL_BYTES_MAX, HANDLES_MAX, TASKS_MAX};
use crate::mapped_code::MappedCode;
use crate::meter::Meter;
use crate::run::{Run, Weight, time_exceeded};
use crate::slots::{Own, Slots, Taken};
use crate::unit_state::UnitState;
use futures_util::future::BoxFuture;
use manifest::Limits;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};
use unit::{Artefact, Attempt, Contract, Deployed, Host, Output, Prepared, Running, Seen, StackFrame, UnitStatus};
use unit_host::RosterEntry;
use unit_host::pool::{Pool, Spare, Spares};
use unit_lines::{Share, Told};
use wasmtime::component::Component;
use wasmtime::{AsContextMut, Store, StoreContextMut, UpdateDeadline};
use wasmtime_wasi_http::p2::bindings::ProxyPre;
use wasmtime_wasi_http::p3::bindings::ServicePre;

/// Units this process has started; a unit's number.
static UNITS: AtomicU64 = AtomicU64::new(0);

pub struct PreparedWasm {
    pub engine: Arc<Engine>,
    pub deployed: Arc<Deployed>,
    pub weight: Arc<Weight>,
    /// Which of the two engines runs it.
    pub series: Series,
    guest: Guest,
    /// Its artefact in memory.
    code: MappedCode,
    /// What its units need of the pool beyond what every unit has, and what they have of that.
    slots: Option<Slots>,
    own: Arc<Own>,
    /// Units waiting to be used again; none is made ahead.
    pub pool: Pool<Unit>,
    dump: Mutex<Option<Arc<Vec<u8>>>>,
    /// Who attaches to its units.
    pub asks: Arc<Asks>,
    /// What traps are told with, and this function's share of the thread that does.
    image: Option<KeptImage>,
    share: Arc<Share>,
}

enum Guest {
    Unit(EverythingPre<UnitState>),
    WasiHttp(ProxyPre<UnitState>),
    Service(ServicePre<UnitState>),
}

pub enum Instance {
    Unit(crate::bindings::Everything),
    WasiHttp(wasmtime_wasi_http::p2::bindings::Proxy),
    /// `wasi:http` 0.3.
    Service(wasmtime_wasi_http::p3::bindings::Service),
}

/// A running unit.
pub struct Unit {
    pub store: Store<UnitState>,
    /// Given back when its store is gone.
    _slots: Option<Taken>,
    pub instance: Instance,
    number: u64,
    calls: u32,
}

/// Why there is no unit.
enum Unmade {
    /// The node has too few tables and memories beyond those that every unit has.
    NoSlots(Problem),
    Refused(Problem),
    /// On the way there, with what there is of it.
    Failed {
        error: wasmtime::Error,
        store: Store<UnitState>,
        /// Given back when the store is gone.
        _slots: Option<Taken>,
    },
}

impl From<Problem> for Unmade {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

impl Spare for Unit {
    fn number(&self) -> u64 {
        self.number
    }
}

impl PreparedWasm {
    pub fn load(engine: Arc<Engine>, artefact: Artefact, deployed: Deployed) -> Result<Arc<Self>, Problem> {
        let corrupt =
            |why: String| Problem::new(Code::ArtefactCorrupt, format!("the artefact cannot be loaded: {why}"));
        let series = artefact::series(&artefact.file).map_err(|error| corrupt(error.to_string()))?;
        let runtime = engine.runtime(series)?;
        // The open file is the one that was verified; its path may by now name another.
        let path = format!("/proc/self/fd/{}", artefact.file.as_raw_fd());
        // SAFETY: the warehouse has checked that these bytes are what `compile` made on this machine, and keeps others
        // from writing to the file; wasmtime itself refuses an artefact of another version, setting or CPU.
        #[expect(unsafe_code, reason = "loading native code that the warehouse has verified")]
        let component = unsafe { Component::deserialize_file(&runtime.wasmtime, path) };
        let component = component.map_err(|error| corrupt(format!("{error:#}")))?;
        let image = KeptImage::of_artefact(artefact.file).map_err(|error| corrupt(error.to_string()))?;
        Self::link(engine, series, &component, deployed, image)
    }

    pub fn link(
        engine: Arc<Engine>,
        series: Series,
        component: &Component,
        deployed: Deployed,
        image: Option<KeptImage>,
    ) -> Result<Arc<Self>, Problem> {
        let runtime = engine.runtime(series)?;
        let link = || {
            let pre = runtime.linker.instantiate_pre(component)?;
            Ok(match (deployed.contract, series) {
                (Contract::Unit, _) => Guest::Unit(EverythingPre::new(pre)?),
                (Contract::WasiHttp, Series::Wasi02) => Guest::WasiHttp(ProxyPre::new(pre)?),
                (Contract::WasiHttp, Series::Wasi03) => Guest::Service(ServicePre::new(pre)?),
                (Contract::Call, _) => unreachable!("no component has this contract"),
            })
        };
        let guest = link().map_err(|error: wasmtime::Error| {
            Problem::new(Code::ImportUnknown, format!("the component cannot be linked: {error:#}"))
        })?;
        let function = &deployed.function;
        let pool = Pool::new(function.units.reuse_calls, Spares::NONE, function.limits.concurrency as usize);
        let function = Arc::new(Self {
            engine,
            deployed: Arc::new(deployed),
            weight: Arc::default(),
            series,
            guest,
            code: MappedCode::of(component),
            slots: Slots::of(component),
            own: Arc::default(),
            pool,
            dump: Mutex::default(),
            asks: Arc::default(),
            image,
            share: Arc::default(),
        });
        if function.deployed.function.units.reuse_calls > 1 {
            function.engine.functions.add(&function);
        }
        Ok(function)
    }

    /// A unit for one call: one that is used again, or a new one. Where there is no room for that, one that waits to
    /// be used again makes some, of whichever function.
    pub async fn start(
        &self,
        meter: &Arc<Meter>,
        request_id: &Arc<str>,
        host: Arc<dyn Host>,
    ) -> Result<(RosterEntry, Unit), Problem> {
        if let Some((mut unit, entry)) = self.pool.again(request_id) {
            unit.store.data_mut().next_call(meter.clone(), request_id.clone(), host);
            unit.store.set_epoch_deadline(1);
            meter.started();
            return Ok((entry, unit));
        }
        let mut may_make_room = true;
        loop {
            let unmade = match self.make(meter, request_id, host.clone()).await {
                Ok(made) => return Ok(made),
                Err(unmade) => unmade,
            };
            if may_make_room && self.makes_room(&unmade, meter) {
                may_make_room = false;
                // Functions that ran at the start of what was not made may have written something.
                host.undo();
                meter.forget_exceeded();
                continue;
            }
            return Err(match unmade {
                Unmade::NoSlots(problem) | Unmade::Refused(problem) => problem,
                Unmade::Failed { error, mut store, .. } => self.failed(&error, &mut store).await,
            });
        }
    }

    /// Whether there is room now for what found none.
    fn makes_room(&self, unmade: &Unmade, meter: &Meter) -> bool {
        let slot_of = match unmade {
            Unmade::NoSlots(_) => Some(self.series),
            Unmade::Failed { error, .. } if error.is::<wasmtime::PoolConcurrencyLimitError>() => Some(self.series),
            // It is memory that is needed, which all units share.
            Unmade::Refused(problem) if problem.code == Code::NodeFull => None,
            Unmade::Failed { error, .. } if failure::is_full(error, meter) => None,
            Unmade::Refused(_) | Unmade::Failed { .. } => return false,
        };
        self.engine.functions.make_room(slot_of)
    }

    async fn make(
        &self,
        meter: &Arc<Meter>,
        request_id: &Arc<str>,
        host: Arc<dyn Host>,
    ) -> Result<(RosterEntry, Unit), Unmade> {
        let Runtime { wasmtime, spare, .. } = self.engine.runtime(self.series)?;
        let slots = self.slots.map(|slots| spare.take(&self.own, slots)).transpose().map_err(Unmade::NoSlots)?;
        let number = UNITS.fetch_add(1, Relaxed) + 1;
        let limits = &self.deployed.function.limits;
        let output = Output::new(self.deployed.log.clone(), number, request_id.clone(), limits.log_bytes);
        let (deployed, client) = (self.deployed.clone(), self.engine.client.clone());
        let asked = (number, self.asks.clone());
        let state = UnitState::new(deployed, self.series, client, meter.clone(), asked, output, host)?;
        let mut store = Store::new(wasmtime, state);
        store.set_max_component_handles(HANDLES_MAX);
        store.set_hostcall_fuel(call_bytes(limits));
        store.limiter(|state| &mut state.limiter);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(slice_ends);
        if let Some(table) = store.concurrent_resource_table() {
            table.set_max_capacity(TASKS_MAX);
        }
        let entry = self.pool.enter(number, request_id);
        let instance = match &self.guest {
            Guest::Unit(pre) => pre.instantiate_async(&mut store).await.map(Instance::Unit),
            Guest::WasiHttp(pre) => pre.instantiate_async(&mut store).await.map(Instance::WasiHttp),
            Guest::Service(pre) => pre.instantiate_async(&mut store).await.map(Instance::Service),
        };
        let instance = match instance {
            Ok(instance) => instance,
            Err(error) => return Err(Unmade::Failed { error, store, _slots: slots }),
        };
        meter.started();
        if meter.exceeded() == Some(Code::NodeFull) {
            // It came to be without the memory that it asked for.
            meter.forget_exceeded();
        }
        Ok((entry, Unit { store, _slots: slots, instance, number, calls: 0 }))
    }

    /// Names the failure, has the way there told, and keeps a core dump if the manifest asks for one.
    pub async fn failed(&self, error: &wasmtime::Error, store: &mut Store<UnitState>) -> Problem {
        let state = store.data();
        let meter = state.meter.clone();
        meter.failed.store(true, SeqCst);
        let problem = failure::of(error, &meter, &state.output);
        let frames = failure::stack(error);
        if !frames.is_empty() {
            meter.tells(self.tell(frames, &state.output));
        }
        let wanted = store.data_mut().core_to.take();
        let is_wanted = wanted.is_some() || self.deployed.function.units.dump;
        if let Some(core) = error.downcast_ref::<wasmtime::WasmCoreDump>().filter(|_| is_wanted) {
            // Writing it is the node's work, which is not to starve among the hogs.
            if meter.has_moved() {
                tokio::task::yield_now().await;
            }
            let bytes = core.serialize(store, self.deployed.name.as_str());
            match wanted {
                // Who waited may have gone, and then nobody wants it.
                Some(wanted) => drop(wanted.send(bytes)),
                None => *self.dump.lock() = Some(Arc::new(bytes)),
            }
        }
        problem
    }

    /// Has the log told the way to where a unit is.
    pub fn tell(&self, frames: Vec<StackFrame>, output: &Arc<Output>) -> Told {
        self.engine.teller.tell(self.image.as_ref().map(KeptImage::image), frames, &self.share, output)
    }

    /// Keeps the unit for the next call, or stops it.
    pub fn put_back(&self, entry: RosterEntry, mut unit: Unit) {
        unit.calls += 1;
        unit.store.data_mut().end_call();
        if unit.calls < self.deployed.function.units.reuse_calls && !unit.store.data_mut().is_worn() {
            self.pool.keep(unit, entry);
        }
    }
}

/// Bytes a unit may hand to the host in one call: those of the largest reply it may give, and those of what it may
/// store.
fn call_bytes(limits: &Limits) -> usize {
    let most = CALL_BYTES_MAX.max(limits.body_bytes.saturating_add(1 << 20));
    usize::try_from(limits.memory_bytes.min(most)).unwrap_or(usize::MAX)
}

/// A slice ends: has the call used up its time, and is the unit to give way.
fn slice_ends(mut context: StoreContextMut<'_, UnitState>) -> wasmtime::Result<UpdateDeadline> {
    /// Slices between two yields among the hogs.
    const HOG_TICKS: u64 = 5;
    attach::answer(context.as_context_mut())?;
    note_tasks(context.as_context_mut());
    context.data_mut().check_holdings().map_err(wasmtime::Error::new)?;
    let now = Instant::now();
    is_in_time(context.data(), now)?;
    let meter = &context.data().meter;
    if meter.has_moved() {
        return Ok(UpdateDeadline::Yield(HOG_TICKS));
    }
    if !meter.is_hog(now) {
        return Ok(UpdateDeadline::Continue(1));
    }
    if meter.stays() {
        // By the executor's own way to give way, after which it looks for what has come in meanwhile.
        return Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())));
    }
    meter.hog.store(true, Relaxed);
    Ok(UpdateDeadline::Yield(1))
}

/// Looks at a unit with tasks before they run: at what is kept for it, and at its time.
///
/// # Errors
/// The unit is to end: a limit.
pub fn look_at(mut context: StoreContextMut<'_, UnitState>) -> wasmtime::Result<()> {
    note_tasks(context.as_context_mut());
    let state = context.data_mut();
    state.waits();
    state.is_over().map_err(wasmtime::Error::new)?;
    let now = Instant::now();
    if state.meter.is_busy(now) {
        state.meter.hog.store(true, Relaxed);
    }
    is_in_time(state, now)
}

fn note_tasks(mut context: StoreContextMut<'_, UnitState>) {
    if let Some(table) = context.concurrent_resource_table() {
        let tasks = table.iter_mut().count();
        context.data_mut().has_tasks(tasks);
    }
}

fn is_in_time(state: &UnitState, now: Instant) -> wasmtime::Result<()> {
    let meter = &state.meter;
    if now >= meter.deadline {
        return Err(wasmtime::Error::new(time_exceeded(meter)));
    }
    let limit_ms = state.deployed.function.limits.cpu_ms;
    if meter.cpu_at(now) >= Duration::from_millis(limit_ms) {
        let detail = format!("the call used more than {limit_ms} ms of CPU time");
        return Err(wasmtime::Error::new(Problem::new(Code::CpuExceeded, detail)));
    }
    Ok(())
}

impl Prepared for PreparedWasm {
    fn deployed(&self) -> &Arc<Deployed> {
        &self.deployed
    }

    fn try_start(self: Arc<Self>, host: Arc<dyn Host>) -> BoxFuture<'static, Result<Duration, Problem>> {
        Box::pin(async move {
            let meter = Arc::new(Meter::new(Instant::now() + self.deployed.function.limits.time()));
            let (engine, weight, on) = (self.engine.clone(), self.weight.clone(), meter.clone());
            let work = async move { self.start(&on, &"deploy".into(), host).await.map(drop) };
            Run::new(engine, weight, meter.clone(), Box::pin(work)).await?;
            Ok(meter.start().unwrap_or_default())
        })
    }

    fn attempt(self: Arc<Self>, attempt: Attempt) -> Box<dyn Running> {
        attempt::begin(self, attempt)
    }

    fn rests(&self) {
        self.code.rests();
    }

    fn units(&self) -> Vec<UnitStatus> {
        self.pool.units()
    }

    fn dump(&self) -> Option<Arc<Vec<u8>>> {
        self.dump.lock().clone()
    }

    fn attach(self: Arc<Self>, unit: u64, wants_core: bool) -> BoxFuture<'static, Result<Seen, Problem>> {
        Box::pin(attach::attach(self, unit, wants_core))
    }

    fn sweep(&self, now: Instant, all: bool) {
        let idle = Duration::from_millis(self.deployed.function.units.reuse_idle_ms);
        self.pool.sweep(now, all, idle, idle);
    }
}
