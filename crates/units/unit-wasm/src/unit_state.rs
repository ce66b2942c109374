//! What a unit's store holds: the host's side of one running unit.

use crate::attach::{Asks, CoreTo};
use crate::engine::Series;
use crate::holdings::{FIELDS_BYTES_MAX, Holdings, LEFT_MAX, RESOURCES_MAX};
use crate::host;
use crate::limiter::Limiter;
use crate::meter::Meter;
use problem::Problem;
use std::sync::Arc;
use unit::{Deployed, Host, Output};
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::p2::body::{HostOutgoingBody, StreamContext};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

pub struct UnitState {
    pub deployed: Arc<Deployed>,
    pub meter: Arc<Meter>,
    pub limiter: Limiter,
    pub output: Arc<Output>,
    pub table: ResourceTable,
    pub http: host::http::Hooks,
    /// Whom it asks; none while it waits for its next call.
    host: Option<Arc<dyn Host>>,
    /// It has set the head of its reply.
    pub has_head: bool,
    /// Its number in the log.
    pub number: u64,
    /// Who attaches to units of its function.
    pub asks: Arc<Asks>,
    /// Who is to have its core when it ends.
    pub core_to: Option<CoreTo>,
    holdings: Holdings,
    wasi_http: WasiHttpCtx,
    /// Made at first use: seeding its random generators is dearer than many a whole call.
    wasi: Option<WasiCtx>,
}

impl UnitState {
    /// # Errors
    /// The node has no room for another unit.
    pub fn new(
        deployed: Arc<Deployed>,
        series: Series,
        client: host::http::Client,
        meter: Arc<Meter>,
        (number, asks): (u64, Arc<Asks>),
        output: Output,
        host: Arc<dyn Host>,
    ) -> Result<Self, Problem> {
        let limits = &deployed.function.limits;
        let limiter = Limiter::new(meter.clone(), series, limits, &deployed.budget)?;
        let holdings = Holdings::new(limits);
        let output = Arc::new(output);
        let chunk_bytes = holdings.chunk_bytes;
        let http = host::http::Hooks::new(client, host.clone(), meter.clone(), output.clone(), chunk_bytes, series);
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES_MAX);
        let mut wasi_http = WasiHttpCtx::new();
        wasi_http.set_field_size_limit(FIELDS_BYTES_MAX);
        Ok(Self {
            deployed,
            meter,
            limiter,
            output,
            table,
            http,
            host: Some(host),
            has_head: false,
            number,
            asks,
            core_to: None,
            holdings,
            wasi_http,
            wasi: None,
        })
    }

    /// Notes a call that may leave something with the host.
    pub fn noted(&mut self) {
        if self.holdings.note() {
            self.count();
        }
    }

    /// Notes one that leaves so many bytes with it, or gives as many to the unit.
    ///
    /// # Errors
    /// The unit is to end.
    pub fn noted_bytes(&mut self, bytes: usize) -> Result<(), Problem> {
        /// Bytes that are not worth a look of their own.
        const SMALL: usize = 16 << 10;
        if bytes <= SMALL {
            self.noted();
            return Ok(());
        }
        self.count();
        self.limiter.host_adds(bytes as u64)
    }

    /// To be asked before the unit waits.
    pub fn waits(&mut self) {
        if self.holdings.is_worth_counting() {
            self.count();
        }
    }

    /// Notes what the engine keeps for the unit's tasks.
    pub fn has_tasks(&mut self, tasks: usize) {
        if self.holdings.note_tasks(tasks, self.http.under_way(self.has_head)) {
            self.count();
        }
    }

    /// A slice ends.
    ///
    /// # Errors
    /// The host keeps more for the unit than it may: it is to end.
    pub fn check_holdings(&mut self) -> Result<(), Problem> {
        if self.holdings.has_changed() {
            self.count();
        }
        self.is_over()
    }

    /// # Errors
    /// As of [`UnitState::check_holdings`], by what was counted last.
    pub fn is_over(&self) -> Result<(), Problem> {
        self.limiter.over().map_or(Ok(()), |problem| Err(problem.clone()))
    }

    /// A unit for which the host keeps too much gets no more handles, and ends with the slice if it does not before.
    fn count(&mut self) {
        let held = self.holdings.count(&mut self.table, self.http.under_way(self.has_head));
        let held_bytes = self.host.as_ref().map_or(0, |host| host.held_bytes());
        if self.limiter.host_holds(held, held_bytes).is_err() {
            self.table.set_max_capacity(0);
        }
    }

    /// # Panics
    /// The unit waits for its next call.
    pub fn host(&self) -> &Arc<dyn Host> {
        self.host.as_ref().expect("a unit works for somebody")
    }

    /// Makes a unit kept for reuse ready for its next call.
    pub fn next_call(&mut self, meter: Arc<Meter>, request_id: Arc<str>, host: Arc<dyn Host>) {
        self.limiter.next_call(meter.clone());
        self.http.next_call(meter.clone(), host.clone());
        self.meter = meter;
        self.host = Some(host);
        self.has_head = false;
        self.output.next_call(request_id, self.deployed.function.limits.log_bytes);
    }

    /// Whether its calls have left what is not the next one's: so many handles, more than it may hold, or a body that
    /// is not finished and ends with the unit alone. Asked after a call's end.
    pub fn is_worn(&mut self) -> bool {
        self.count();
        self.limiter.over().is_some()
            || self.table.iter_mut().any(|handle| handle.is::<HostOutgoingBody>())
            || self.table.iter_mut().count() > LEFT_MAX
    }

    /// The call has ended: what its host keeps is not held until the next one.
    pub fn end_call(&mut self) {
        self.output.end_call();
        self.http.end_call();
        self.host = None;
    }
}

impl Drop for UnitState {
    /// What the unit has not finished is not whole, and whoever reads it must not believe that it is: a body that only
    /// goes away has ended.
    fn drop(&mut self) {
        for handle in self.table.iter_mut() {
            if let Some(body) = handle.downcast_mut::<HostOutgoingBody>() {
                let (gone, _) = HostOutgoingBody::new(StreamContext::Request, None, 1, 1);
                std::mem::replace(body, gone).abort();
            }
        }
    }
}

impl WasiView for UnitState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.noted();
        let ctx = self.wasi.get_or_insert_with(|| host::wasi::context(&self.deployed, &self.output));
        WasiCtxView { ctx, table: &mut self.table }
    }
}

impl WasiHttpView for UnitState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        self.noted();
        WasiHttpCtxView { hooks: &mut self.http, table: &mut self.table, ctx: &mut self.wasi_http }
    }
}
