//! What the host keeps for one unit outside of the unit's memory: handles, header fields, requests, what waits to be
//! committed. Counted now and then rather than at each step, because what a unit can do in between is bounded.
//!
//! ```text
//!   host call ──▶ note ──▶ enough of them since the last count? ──▶ count: every handle by its size ──▶ Limiter
//!   before the unit waits, and at the end of each slice ────────────▶ count
//! ```
//! Each handle has a bound of its own too: fields, strings of a request, chunks of a body. So the table's length times
//! the largest of these is the most there can ever be.

use crate::host::drafts::Cas;
use crate::host::http::WINDOW_BYTES;
use crate::host::keyvalue::Bucket;
use http::HeaderMap;
use std::any::Any;
use wasmtime::component::ResourceTable;
use wasmtime_wasi_http::FieldMap;
use wasmtime_wasi_http::p2::bindings::http::types::Method;
use wasmtime_wasi_http::p2::body::{HostFutureTrailers, HostIncomingBody, HostOutgoingBody};
use wasmtime_wasi_http::p2::types::{
    HostFutureIncomingResponse, HostIncomingResponse, HostOutgoingRequest, HostOutgoingResponse,
};
use wasmtime_wasi_http::p3;

/// Handles of the host a unit holds at once: fields, bodies, streams, pollables. One more ends it.
pub const RESOURCES_MAX: usize = 1_000;
/// Handles that a unit which is used again may have left from its calls. With more of them it is not used again: its
/// next call might be the one that needs the last.
pub const LEFT_MAX: usize = RESOURCES_MAX / 2;
/// Handles of all kinds, those of its own components among them. One more ends the unit.
pub const HANDLES_MAX: usize = 10_000;
/// What the engine keeps for the tasks of one unit of WASI 0.3 at once: a task, a timer or a set of waitables is one of
/// them, a stream or a future three. One more ends the unit.
pub const TASKS_MAX: usize = 10_000;
/// Requests of one unit that are on their way at once: of WASI 0.2 until they are sent and answered, of 0.3 until
/// their answers are read too. More are refused.
pub const REQUESTS_MAX: usize = 250;
/// Bytes of the text in an error that a unit of WASI 0.3 hands over. The rest is cut off.
pub const ERROR_TEXT_BYTES_MAX: usize = 8 << 10;
/// Bytes of one set of header fields: twice what a request's head may have. More end the unit.
pub const FIELDS_BYTES_MAX: usize = 128 << 10;
/// Bytes of the method, authority or path of an outgoing request. More are refused.
pub const REQUEST_TEXT_BYTES_MAX: usize = 8 << 10;
/// Bytes a unit hands to the host in one call beside the largest reply, at most. More end it.
pub const CALL_BYTES_MAX: u64 = 16 << 20;

/// Calls after which it is counted again, at least; more while there are many handles, so that counting costs little.
const CALLS_MIN: usize = 24;
/// Calls that are not worth counting before the unit waits: most units reply in so many.
const CALLS_FEW: usize = 8;
/// What any handle takes.
const HANDLE_BYTES: u64 = 512;
/// What any of [`TASKS_MAX`] takes, a future that the host waits for included.
const TASK_BYTES: u64 = 1 << 10;
/// Tasks that are not worth a count of their own.
const TASKS_FEW: usize = 32;
/// What a header takes beside its name and value.
const HEADER_BYTES: u64 = 96;

/// What the host keeps for a unit, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Held {
    /// What the unit put there: counts against the function's memory and the node's.
    pub unit: u64,
    /// What others may have sent and the unit has not read: counts against the node's alone, as the function does not
    /// choose how large it is.
    pub windows: u64,
}

/// How much has happened since the last count.
pub struct Holdings {
    calls: usize,
    count_at: usize,
    /// Bytes of a body's chunk.
    pub chunk_bytes: usize,
    /// What there is for tasks now.
    tasks: usize,
    /// What of it was counted, and of requests under way.
    counted: (usize, u64),
}

impl Holdings {
    pub fn new(limits: &manifest::Limits) -> Self {
        /// Bodies of outgoing requests that a unit can have at once before they are all its memory.
        const BODIES: u64 = 256;
        let chunk_bytes = (limits.memory_bytes / BODIES).clamp(4 << 10, 256 << 10);
        let chunk_bytes = usize::try_from(chunk_bytes).expect("clamped");
        Self { calls: 0, count_at: CALLS_MIN, chunk_bytes, tasks: 0, counted: (0, 0) }
    }

    /// Notes what the engine keeps for tasks, and requests under way. True when it is time to count.
    pub fn note_tasks(&mut self, tasks: usize, under_way: Held) -> bool {
        self.tasks = tasks;
        let (tasks_counted, bytes_counted) = self.counted;
        tasks.abs_diff(tasks_counted) > TASKS_FEW || under_way.unit != bytes_counted
    }

    /// Notes a call to the host. True when it is time to count.
    pub fn note(&mut self) -> bool {
        self.calls += 1;
        self.calls >= self.count_at
    }

    /// Before the unit waits for something, possibly long.
    pub fn is_worth_counting(&self) -> bool {
        self.calls >= CALLS_FEW
    }

    pub fn has_changed(&self) -> bool {
        self.calls > 0
    }

    /// What all handles hold, the tasks, and the requests that are `under_way` without a handle.
    pub fn count(&mut self, table: &mut ResourceTable, under_way: Held) -> Held {
        let (mut held, mut handles) = (under_way, 0);
        held.unit += self.tasks as u64 * TASK_BYTES;
        self.counted = (self.tasks, under_way.unit);
        for handle in table.iter_mut() {
            let Held { unit, windows } = self.of(handle);
            held.unit += HANDLE_BYTES + unit;
            held.windows += windows;
            handles += 1;
        }
        self.calls = 0;
        self.count_at = CALLS_MIN.max(handles / 16);
        held
    }

    fn of(&self, handle: &(dyn Any + Send)) -> Held {
        let unit = |unit: u64| Held { unit, windows: 0 };
        // What is on its way out: one chunk that is sent, one that waits, one that is written.
        let outgoing = 3 * self.chunk_bytes as u64;
        if let Some(fields) = handle.downcast_ref::<FieldMap>() {
            unit(headers(fields))
        } else if let Some(request) = handle.downcast_ref::<HostOutgoingRequest>() {
            let method = if let Method::Other(method) = &request.method { method.capacity() } else { 0 };
            let texts = [&request.authority, &request.path_with_query];
            let texts: usize = texts.into_iter().flatten().map(String::capacity).sum();
            unit(headers(&request.headers) + (method + texts) as u64)
        } else if let Some(response) = handle.downcast_ref::<HostOutgoingResponse>() {
            unit(headers(&response.headers))
        } else if let Some(response) = handle.downcast_ref::<HostIncomingResponse>() {
            Held { unit: headers(&response.headers), windows: if response.body.is_some() { WINDOW_BYTES } else { 0 } }
        } else if let Some(future) = handle.downcast_ref::<HostFutureIncomingResponse>() {
            match future {
                // The request itself is among those under way.
                HostFutureIncomingResponse::Pending(_) => Held { unit: 0, windows: WINDOW_BYTES },
                HostFutureIncomingResponse::Ready(Ok((response, _))) => {
                    Held { unit: headers(response.headers()), windows: WINDOW_BYTES }
                }
                _ => Held::default(),
            }
        } else if handle.is::<HostOutgoingBody>() {
            unit(outgoing)
        } else if handle.is::<HostIncomingBody>() || handle.is::<HostFutureTrailers>() {
            Held { unit: 0, windows: WINDOW_BYTES }
        } else if let Some(request) = handle.downcast_ref::<p3::Request>() {
            let path = request.path_with_query.as_ref().map_or(0, |path| path.as_str().len());
            let authority = request.authority.as_ref().map_or(0, |authority| authority.as_str().len());
            unit(headers(&request.headers) + (request.method.as_str().len() + path + authority) as u64)
        } else if let Some(response) = handle.downcast_ref::<p3::Response>() {
            unit(headers(&response.headers))
        } else if let Some(bucket) = handle.downcast_ref::<Bucket>() {
            unit(bucket.held_bytes())
        } else if let Some(cas) = handle.downcast_ref::<Cas>() {
            unit(cas.held_bytes())
        } else {
            // The incoming request among them, which the gate has bounded.
            Held::default()
        }
    }
}

/// What a set of header fields takes.
pub fn headers(map: &HeaderMap) -> u64 {
    let each = map.iter().map(|(name, value)| (name.as_str().len() + value.len()) as u64 + HEADER_BYTES);
    each.sum()
}
