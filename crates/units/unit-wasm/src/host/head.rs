//! The moment a `wasi:http` unit sets the head of its reply: its host commits what it did until then.
//!
//! The commit is here, and not where the head is sent, so that the unit's later reads see what it has written, and so
//! that a unit that conflicted with another one does not go on.

use crate::unit_state::UnitState;
use problem::Problem;
use unit::Level;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, HostResponseOutparam as _};
use wasmtime_wasi_http::p2::types::{HostOutgoingResponse, HostResponseOutparam};

/// Puts itself in the place of what wasmtime has for this function.
pub fn add_to_linker(linker: &mut Linker<UnitState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance("wasi:http/types@0.2.12")?.func_wrap(
        "[static]response-outparam.set",
        |mut store: StoreContextMut<'_, UnitState>,
         (out, response): (Resource<HostResponseOutparam>, ResponseHandle)| {
            let state = store.data_mut();
            // A unit that may not set a head any more must not commit what it did meanwhile.
            state.table.get(&out)?;
            state.settle(response.is_ok())?;
            state.http().set(out, response)
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

type ResponseHandle = Result<Resource<HostOutgoingResponse>, ErrorCode>;

impl UnitState {
    /// A unit that replies with an error instead of a response has failed: nothing of what it did remains.
    pub fn settle(&mut self, is_response: bool) -> wasmtime::Result<()> {
        if !is_response {
            return Ok(());
        }
        self.has_head = true;
        self.host().commit().map_err(wasmtime::Error::new)
    }

    /// The unit has ended: commits what it did after the head. Without one the call has failed, and nothing was done.
    pub fn settle_rest(&self) -> Result<(), Problem> {
        let committed = if self.has_head { self.host().commit() } else { Ok(()) };
        if let Err(Problem { detail, .. }) = &committed {
            self.output.note(Level::Error, &format!("what was done after the head of the reply is undone: {detail}"));
        }
        committed
    }
}
