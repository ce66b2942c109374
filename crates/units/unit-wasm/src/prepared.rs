//! A function ready to run: starts units, hands them work, keeps some for reuse when the manifest says so.

use crate::bindings::{handler, types, EverythingPre};
use crate::engine::Engine;
use crate::failure;
use crate::meter::Meter;
use crate::output::Output;
use crate::reply;
use crate::run::{time_exceeded, Run, Weight};
use crate::unit_state::UnitState;
use event::Event;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use problem::{Code, Problem};
use state::CommitError;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use unit::{Artefact, Body, Call, Content, Contract, Deployed, Ended, Prepared, Reply, Timing, UnitStatus, Watch, Work};
use wasmtime::component::Component;
use wasmtime::{Store, StoreContextMut, UpdateDeadline};
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Scheme};
use wasmtime_wasi_http::p2::bindings::ProxyPre;
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::WasiHttpView;

/// Handlings of one event that conflicted with others before the caller is told to try again later.
const RERUNS_MAX: u32 = 20;

/// Units this process has started; a unit's number.
static UNITS: AtomicU64 = AtomicU64::new(0);

/// Where a guest puts the head of its HTTP reply.
pub type HeadSender = oneshot::Sender<Result<hyper::Response<HyperOutgoingBody>, ErrorCode>>;

pub struct PreparedWasm {
    pub engine: Arc<Engine>,
    pub deployed: Arc<Deployed>,
    pub weight: Arc<Weight>,
    guest: Guest,
    /// Units waiting to be used again, the most recently used last.
    kept: Mutex<Vec<Unit>>,
    roster: Arc<Roster>,
    dump: Mutex<Option<Arc<Vec<u8>>>>,
}

enum Guest {
    Unit(EverythingPre<UnitState>),
    WasiHttp(ProxyPre<UnitState>),
}

enum Instance {
    Unit(crate::bindings::Everything),
    WasiHttp(wasmtime_wasi_http::p2::bindings::Proxy),
}

/// A running unit.
struct Unit {
    store: Store<UnitState>,
    instance: Instance,
    calls: u32,
    since: Instant,
    entry: Entry,
}

impl PreparedWasm {
    pub fn load(engine: Arc<Engine>, artefact: &Artefact, deployed: Deployed) -> Result<Arc<Self>, Problem> {
        // The open file is the one that was verified; its path may by now name another.
        let path = format!("/proc/self/fd/{}", artefact.file.as_raw_fd());
        // SAFETY: the warehouse has checked that these bytes are what `compile` made on this machine, and keeps others
        // from writing to the file; wasmtime itself refuses an artefact of another version, setting or CPU.
        #[expect(unsafe_code, reason = "loading native code that the warehouse has verified")]
        let component = unsafe { Component::deserialize_file(&engine.wasmtime, path) }
            .map_err(|error| Problem::new(Code::ArtefactCorrupt, format!("the artefact cannot be loaded: {error:#}")))?;
        Self::link(engine, &component, deployed)
    }

    pub fn link(engine: Arc<Engine>, component: &Component, deployed: Deployed) -> Result<Arc<Self>, Problem> {
        let link = || {
            let pre = engine.linker.instantiate_pre(component)?;
            Ok(match deployed.contract {
                Contract::Unit => Guest::Unit(EverythingPre::new(pre)?),
                Contract::WasiHttp => Guest::WasiHttp(ProxyPre::new(pre)?),
            })
        };
        let guest = link().map_err(|error: wasmtime::Error| {
            Problem::new(Code::ImportUnknown, format!("the component cannot be linked: {error:#}"))
        })?;
        Ok(Arc::new(Self {
            engine,
            deployed: Arc::new(deployed),
            weight: Arc::default(),
            guest,
            kept: Mutex::default(),
            roster: Arc::default(),
            dump: Mutex::default(),
        }))
    }

    async fn start(&self, meter: &Arc<Meter>, request_id: &Arc<str>) -> Result<Unit, Problem> {
        let kept = self.kept.lock().pop();
        if let Some(mut unit) = kept {
            unit.store.data_mut().next_call(meter.clone(), request_id.clone());
            unit.store.set_epoch_deadline(1);
            unit.entry.serves(Some(request_id.clone()));
            meter.started();
            return Ok(unit);
        }
        let number = UNITS.fetch_add(1, Relaxed) + 1;
        let limits = &self.deployed.function.limits;
        let output = Output::new(self.deployed.log.clone(), number, request_id.clone(), limits.log_bytes);
        let state = UnitState::new(self.deployed.clone(), self.engine.client.clone(), meter.clone(), output);
        let mut store = Store::new(&self.engine.wasmtime, state);
        store.limiter(|state| &mut state.limiter);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(tick);
        let entry = Roster::enter(&self.roster, number, request_id.clone());
        let instance = match &self.guest {
            Guest::Unit(pre) => pre.instantiate_async(&mut store).await.map(Instance::Unit),
            Guest::WasiHttp(pre) => pre.instantiate_async(&mut store).await.map(Instance::WasiHttp),
        };
        let instance = match instance {
            Ok(instance) => instance,
            Err(error) => return Err(self.failed(&error, &mut store)),
        };
        meter.started();
        Ok(Unit { store, instance, calls: 0, since: Instant::now(), entry })
    }

    /// Names the failure, and keeps a core dump if the manifest asks for one.
    fn failed(&self, error: &wasmtime::Error, store: &mut Store<UnitState>) -> Problem {
        let state = store.data();
        state.meter.failed.store(true, SeqCst);
        let problem = failure::of(error, &state.meter, &state.output);
        if let Some(core) = error.downcast_ref::<wasmtime::WasmCoreDump>().filter(|_| self.deployed.function.units.dump) {
            let bytes = core.serialize(store, self.deployed.name.as_str());
            *self.dump.lock() = Some(Arc::new(bytes));
        }
        problem
    }

    /// Keeps the unit for the next call, or stops it.
    fn put_back(&self, mut unit: Unit) {
        unit.calls += 1;
        unit.store.data().output.end_call();
        let units = &self.deployed.function.units;
        if unit.calls < units.reuse_calls {
            unit.since = Instant::now();
            unit.entry.serves(None);
            let mut kept = self.kept.lock();
            if kept.len() < self.deployed.function.limits.concurrency as usize {
                kept.push(unit);
            }
        }
    }

    /// Handles one event in one transaction; `None` after a conflict.
    async fn handle(self: Arc<Self>, meter: Arc<Meter>, request_id: Arc<str>, event: Event) -> Result<Option<Vec<u8>>, Problem> {
        let mut unit = self.start(&meter, &request_id).await?;
        let Instance::Unit(instance) = &unit.instance else { unreachable!("the guest's contract is lighter:unit") };
        let result = instance.lighter_unit_handler().call_handle(&mut unit.store, &to_guest(event)).await;
        let transaction = unit.store.data_mut().transaction.take();
        let reply = match result {
            Ok(Ok(reply)) => reply,
            Ok(Err(said)) => {
                let problem = failure::said(said, &unit.store.data().output);
                self.put_back(unit);
                return Err(problem);
            }
            Err(error) => {
                let problem = self.failed(&error, &mut unit.store);
                unit.store.data().output.end_call();
                return Err(problem);
            }
        };
        self.put_back(unit);
        let bytes_max = self.deployed.function.limits.body_bytes;
        if reply.len() as u64 > bytes_max {
            let detail = format!("the reply has {} bytes, limits.body_bytes is {bytes_max}", reply.len());
            return Err(Problem::new(Code::ReplyTooLarge, detail));
        }
        match transaction.map(|transaction| transaction.commit()) {
            None => {}
            Some(Ok(ticket)) => self.deployed.state.durable(ticket).await?,
            Some(Err(CommitError::Conflict)) => return Ok(None),
            Some(Err(refused)) => return Err(refused.into()),
        }
        Ok(Some(reply))
    }

    async fn call_unit(
        self: Arc<Self>,
        request_id: Arc<str>,
        deadline: Instant,
        watch: Box<dyn Watch>,
        mut event: Event,
    ) -> Result<Reply, Problem> {
        // Only a function that may write can conflict, and only then is a copy needed to run it again.
        let may_rerun = !self.deployed.function.grants.stores.is_empty();
        let mut last = None;
        for _ in 0..RERUNS_MAX {
            let copy = may_rerun.then(|| event.clone());
            let meter = Arc::new(Meter::new(deadline));
            let work = self.clone().handle(meter.clone(), request_id.clone(), event);
            let result = Run::new(self.engine.clone(), self.weight.clone(), meter.clone(), work).await;
            last = Some(meter);
            match (result, copy) {
                (Ok(None), Some(copy)) => event = Event { attempt: copy.attempt + 1, ..copy },
                (result, _) => return finish(result, last.as_deref(), watch),
            }
        }
        let detail = format!("{RERUNS_MAX} handlings in a row conflicted with others that changed the same keys");
        finish(Err(Problem::new(Code::Conflict, detail)), last.as_deref(), watch)
    }

    /// Serves one request; the head of the reply goes through `head`.
    pub async fn serve(
        self: Arc<Self>,
        meter: Arc<Meter>,
        request_id: Arc<str>,
        request: http::Request<Body>,
        head: HeadSender,
    ) -> Result<(), Problem> {
        let mut unit = self.start(&meter, &request_id).await?;
        let Instance::WasiHttp(instance) = &unit.instance else { unreachable!("the guest's contract is wasi:http") };
        let scheme = match request.uri().scheme_str() {
            Some("https") => Scheme::Https,
            _ => Scheme::Http,
        };
        let request = request.map(|body| reply::ToGuest(body));
        let resources = (|| {
            let mut view = unit.store.data_mut().http();
            Ok((view.new_incoming_request(scheme, request)?, view.new_response_outparam(head)?))
        })();
        let (request, out) = resources.map_err(|error: wasmtime::Error| {
            Problem::new(Code::RequestMalformed, format!("the request cannot be passed on: {error:#}"))
        })?;
        match instance.wasi_http_incoming_handler().call_handle(&mut unit.store, request, out).await {
            Ok(()) => self.put_back(unit),
            Err(error) => {
                let problem = self.failed(&error, &mut unit.store);
                unit.store.data().output.end_call();
                return Err(problem);
            }
        }
        match meter.take_written() {
            Some(ticket) => self.deployed.state.durable(ticket).await,
            None => Ok(()),
        }
    }
}

/// Reports the end of a call whose reply is whole.
fn finish(result: Result<Option<Vec<u8>>, Problem>, meter: Option<&Meter>, watch: Box<dyn Watch>) -> Result<Reply, Problem> {
    let timing = meter.map(timing).unwrap_or_default();
    let (ended, reply) = match result {
        Ok(bytes) => (Ok(()), Ok(Reply { timing, content: Content::Bytes(bytes.unwrap_or_default()) })),
        Err(problem) => (Err(problem.clone()), Err(problem)),
    };
    watch.ended(ended_with(ended, meter));
    reply
}

pub fn ended_with(result: Result<(), Problem>, meter: Option<&Meter>) -> Ended {
    Ended {
        result,
        timing: meter.map(timing).unwrap_or_default(),
        cpu: meter.map(Meter::cpu).unwrap_or_default(),
        memory_bytes: meter.map_or(0, |meter| meter.memory_bytes.load(Relaxed)),
    }
}

pub fn timing(meter: &Meter) -> Timing {
    let total = meter.began.elapsed();
    let start = meter.start().unwrap_or(total);
    Timing { start, run: total.saturating_sub(start) }
}

/// At a tick: has the call used up its time, and is the unit to give way.
fn tick(mut context: StoreContextMut<'_, UnitState>) -> wasmtime::Result<UpdateDeadline> {
    /// Ticks between two yields among the hogs.
    const HOG_TICKS: u64 = 5;
    let state = context.data_mut();
    let meter = &state.meter;
    if Instant::now() >= meter.deadline {
        return Err(wasmtime::Error::new(time_exceeded(meter)));
    }
    let limit_ms = state.deployed.function.limits.cpu_ms;
    if meter.cpu() >= Duration::from_millis(limit_ms) {
        let detail = format!("the call used more than {limit_ms} ms of CPU time");
        return Err(wasmtime::Error::new(Problem::new(Code::CpuExceeded, detail)));
    }
    if meter.has_moved() {
        return Ok(UpdateDeadline::Yield(HOG_TICKS));
    }
    if !meter.used_a_tick() {
        return Ok(UpdateDeadline::Continue(1));
    }
    meter.hog.store(true, Relaxed);
    Ok(UpdateDeadline::Yield(1))
}

fn to_guest(event: Event) -> handler::Event {
    types::Event {
        id: event.id,
        source: event.source,
        type_: event.kind,
        subject: event.subject,
        time_ms: event.time_ms,
        content_type: event.content_type,
        attributes: event.attributes,
        attempt: event.attempt,
        data: event.data,
    }
}

impl Prepared for PreparedWasm {
    fn try_start(self: Arc<Self>) -> BoxFuture<'static, Result<Duration, Problem>> {
        Box::pin(async move {
            let meter = Arc::new(Meter::new(Instant::now() + self.deployed.function.limits.time()));
            let (engine, weight, on) = (self.engine.clone(), self.weight.clone(), meter.clone());
            let work = async move { self.start(&on, &"deploy".into()).await.map(drop) };
            Run::new(engine, weight, meter.clone(), work).await?;
            Ok(meter.start().unwrap_or_default())
        })
    }

    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Result<Reply, Problem>> {
        let Call { request_id, work, deadline, watch } = call;
        match (self.deployed.contract, work) {
            (Contract::Unit, Work::Event(event)) => {
                Box::pin(self.call_unit(request_id, deadline, watch, event))
            }
            (Contract::WasiHttp, Work::Http(request)) => {
                Box::pin(reply::call_http(self, request_id, deadline, watch, request))
            }
            (contract, _) => Box::pin(async move {
                Err(Problem::new(Code::Internal, format!("this work is not for a {} function", contract.as_str())))
            }),
        }
    }

    fn units(&self) -> Vec<UnitStatus> {
        self.roster.0.lock().units.iter().flatten().cloned().collect()
    }

    fn dump(&self) -> Option<Arc<Vec<u8>>> {
        self.dump.lock().clone()
    }

    fn sweep(&self, now: Instant, all: bool) {
        let idle = Duration::from_millis(self.deployed.function.units.reuse_idle_ms);
        let mut kept = self.kept.lock();
        let (stay, go) = std::mem::take(&mut *kept)
            .into_iter()
            .partition(|unit| !all && now.saturating_duration_since(unit.since) < idle);
        *kept = stay;
        drop(kept);
        drop::<Vec<Unit>>(go);
    }
}

/// The units that exist, in slots that are used again.
#[derive(Default)]
struct Roster(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    units: Vec<Option<UnitStatus>>,
    free: Vec<usize>,
}

/// A unit's place in the roster, given back when the unit is dropped.
struct Entry {
    roster: Arc<Roster>,
    slot: usize,
}

impl Roster {
    fn enter(roster: &Arc<Self>, unit: u64, request_id: Arc<str>) -> Entry {
        let status = UnitStatus { unit, request_id: Some(request_id), since: Instant::now(), calls: 0 };
        let mut slots = roster.0.lock();
        let slot = match slots.free.pop() {
            Some(slot) => slot,
            None => {
                slots.units.push(None);
                slots.units.len() - 1
            }
        };
        slots.units[slot] = Some(status);
        Entry { roster: roster.clone(), slot }
    }
}

impl Entry {
    fn serves(&self, request_id: Option<Arc<str>>) {
        if let Some(status) = &mut self.roster.0.lock().units[self.slot] {
            status.calls += u64::from(request_id.is_none());
            status.request_id = request_id;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut slots = self.roster.0.lock();
        slots.units[self.slot] = None;
        slots.free.push(self.slot);
    }
}
