//! What a unit's store holds: the host's side of one running unit.

use crate::bindings::types;
use crate::host;
use crate::host::head::HeadState;
use crate::limiter::Limiter;
use crate::meter::Meter;
use http::HeaderMap;
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
    wasi_http: WasiHttpCtx,
    /// Made at first use: seeding its random generators is dearer than many a whole call.
    wasi: Option<WasiCtx>,
}

impl UnitState {
    pub fn new(deployed: Arc<Deployed>, client: host::http::Client, meter: Arc<Meter>, output: Output) -> Self {
        let limiter = Limiter::new(meter.clone(), &deployed.function.limits);
        let output = Arc::new(output);
        let http = host::http::Hooks::new(client, deployed.clone(), meter.clone(), output.clone());
        Self {
            handling: Handling::new(deployed.clone()),
            deployed,
            meter,
            limiter,
            output,
            table: ResourceTable::new(),
            http,
            cause: Cause::None,
            head: HeadState::Awaited,
            wasi_http: WasiHttpCtx::new(),
            wasi: None,
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
        let ctx = self.wasi.get_or_insert_with(|| host::wasi::context(&self.deployed, &self.output));
        WasiCtxView { ctx, table: &mut self.table }
    }
}

impl WasiHttpView for UnitState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.http, table: &mut self.table, ctx: &mut self.wasi_http }
    }
}
