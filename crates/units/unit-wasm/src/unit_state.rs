//! What a unit's store holds: the host's side of one running unit.

use crate::bindings::types;
use crate::holdings::{FIELDS_BYTES_MAX, Holdings, RESOURCES_MAX};
use crate::host;
use crate::host::head::HeadState;
use crate::limiter::Limiter;
use crate::meter::Meter;
use http::HeaderMap;
use problem::Problem;
use state::Transaction;
use std::sync::Arc;
use unit::Deployed;
use unit_host::{Handling, Output};
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

pub struct UnitState {
    pub deployed: Arc<Deployed>,
    pub meter: Arc<Meter>,
    pub limiter: Limiter,
    pub output: Arc<Output>,
    pub table: ResourceTable,
    pub http: host::http::Hooks,
    /// What the handling has done to store and queues.
    pub handling: Handling,
    pub cause: Cause,
    pub head: HeadState,
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
        client: host::http::Client,
        meter: Arc<Meter>,
        output: Output,
    ) -> Result<Self, Problem> {
        let limits = &deployed.function.limits;
        let limiter = Limiter::new(meter.clone(), limits, &deployed.budget)?;
        let holdings = Holdings::new(limits);
        let output = Arc::new(output);
        let chunk_bytes = holdings.chunk_bytes;
        let http = host::http::Hooks::new(client, deployed.clone(), meter.clone(), output.clone(), chunk_bytes);
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES_MAX);
        let mut wasi_http = WasiHttpCtx::new();
        wasi_http.set_field_size_limit(FIELDS_BYTES_MAX);
        Ok(Self {
            handling: Handling::new(deployed.clone()),
            deployed,
            meter,
            limiter,
            output,
            table,
            http,
            cause: Cause::None,
            head: HeadState::Awaited,
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

    /// At a tick.
    ///
    /// # Errors
    /// The host keeps more for the unit than it may: it is to end.
    pub fn check_holdings(&mut self) -> Result<(), Problem> {
        if self.holdings.has_changed() {
            self.count();
        }
        self.limiter.over().map_or(Ok(()), |problem| Err(problem.clone()))
    }

    /// A unit for which the host keeps too much gets no more handles, and ends at the next tick if it does not before.
    fn count(&mut self) {
        let held = self.holdings.count(&mut self.table);
        if self.limiter.host_holds(held, self.handling.held_bytes()).is_err() {
            self.table.set_max_capacity(0);
        }
    }

    /// Makes a unit kept for reuse ready for its next call.
    pub fn next_call(&mut self, meter: Arc<Meter>, request_id: Arc<str>) {
        self.limiter.meter = meter.clone();
        self.http.next_call(meter.clone(), request_id.clone());
        self.meter = meter;
        self.end_handling();
        self.output.next_call(request_id, self.deployed.function.limits.log_bytes);
    }

    /// The handling's transaction.
    pub fn transaction(&mut self) -> &mut Transaction {
        self.handling.transaction()
    }

    /// Takes what the handling did, and forgets what it was about.
    pub fn end_handling(&mut self) -> Option<Transaction> {
        self.cause = Cause::None;
        self.handling.end()
    }
}

/// What the unit is at work on.
pub enum Cause {
    None,
    Event(Arc<types::Event>),
    Request { id: Arc<str>, headers: HeaderMap },
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
        // What is asked for next may be to send a request.
        self.http.requests.cause = self.handling.cause();
        self.noted();
        WasiHttpCtxView { hooks: &mut self.http, table: &mut self.table, ctx: &mut self.wasi_http }
    }
}
