//! The moment a `wasi:http` unit sets the head of its reply: what it did until then is committed.
//!
//! The commit is here, and not where the head is sent, so that the unit's later reads see what it has written, and so
//! that a unit that conflicted with another one does not go on.

use crate::unit_state::UnitState;
use problem::Problem;
use state::CommitError;
use std::fmt;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, HostResponseOutparam as _};
use wasmtime_wasi_http::p2::types::{HostOutgoingResponse, HostResponseOutparam};

/// How far the unit is with its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadState {
    Awaited,
    Set,
    /// It does not matter: the work is committed once, at its end.
    Leased,
}

/// Ends a unit whose work conflicted with another's.
#[derive(Debug)]
pub struct Conflicted;

impl fmt::Display for Conflicted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another handling changed the same keys")
    }
}

impl std::error::Error for Conflicted {}

/// Puts itself in the place of what wasmtime has for this function.
pub fn add_to_linker(linker: &mut Linker<UnitState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance("wasi:http/types@0.2.12")?.func_wrap(
        "[static]response-outparam.set",
        |mut store: StoreContextMut<'_, UnitState>, (out, response): (Resource<HostResponseOutparam>, Head)| {
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

type Head = Result<Resource<HostOutgoingResponse>, ErrorCode>;

impl UnitState {
    /// Commits what was done until now, or undoes it where the unit replies with an error instead of a response.
    fn settle(&mut self, is_response: bool) -> wasmtime::Result<()> {
        if self.head == HeadState::Leased {
            return Ok(());
        }
        if is_response {
            self.head = HeadState::Set;
        }
        let Some(transaction) = self.handling.take().filter(|_| is_response) else { return Ok(()) };
        match transaction.commit() {
            Ok(ticket) => {
                self.handling.committed(ticket);
                self.meter.wrote(ticket);
            }
            Err(CommitError::Conflict) => return Err(wasmtime::Error::new(Conflicted)),
            Err(error) => return Err(wasmtime::Error::new(Problem::from(error))),
        }
        Ok(())
    }
}
