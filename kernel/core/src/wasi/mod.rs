//! WASI 0.2 in the kernel: clocks, randomness, environment, output, HTTP, and the proposals for stores and values.
//! There are no files and no sockets.
//!
//! ```text
//!   component ─▶ wasi:io, wasi:cli, …  ─▶ resources, in one small table   (io.rs, plain.rs)
//!             ─▶ wasi:http             ─▶ requests and replies (http/)
//!             ─▶ wasi:keyvalue, …      ─▶ the store and the values of lighter:unit (keyvalue.rs, drafts.rs)
//!                                      ─▶ numbered calls, as lighter:unit has them
//!             ─▶ wasi:filesystem, wasi:sockets ─▶ nothing is there, and nothing can be made (empty.rs)
//! ```
//! What does not depend on the function (no arguments, no terminal, three streams) is answered while a component is
//! linked too, so that a runtime's start is in the snapshot. Whatever differs from unit to unit (time, randomness,
//! environment) is refused then: such a runtime starts in each unit.

mod drafts;
mod empty;
pub mod http;
mod io;
mod keyvalue;
mod offers;
mod plain;

use crate::bindings::plain as bindings;
use crate::program::Unit;
use alloc::collections::BTreeMap;
use wasmtime::component::{Component, Linker, Resource, ResourceTable};
use wasmtime::{Engine, Result};

/// Handles of the kernel that a unit holds at once, as in the class `wasm`. One more ends it.
const RESOURCES_MAX: usize = 1_000;

/// What a handle of a unit stands for, whatever that is. Handles are of one type for the compiler, so that functions of
/// one shape are one piece of code; what is behind each is asked of the table, which knows. That a unit takes no handle
/// for another is also seen to by its own tables, which have one for each resource.
pub enum Thing {}

pub type Handle = Resource<Thing>;

/// What the kernel keeps for one unit.
pub struct Held {
    table: ResourceTable,
    /// What has come of bodies, by the number of their exchange.
    pub arrived: BTreeMap<u64, http::Arrived>,
    /// Bodies on their way, by numbers of their own; the next one's.
    pub going: BTreeMap<u32, http::Going>,
    pub bodies: u32,
    /// The log has been told which grant is missing.
    pub is_denied: bool,
}

impl Default for Held {
    fn default() -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES_MAX);
        Self { table, arrived: BTreeMap::new(), going: BTreeMap::new(), bodies: 0, is_denied: false }
    }
}

impl Held {
    pub fn push<T: Send + 'static>(&mut self, thing: T) -> Result<Handle> {
        Ok(Handle::new_own(self.table.push(thing)?.rep()))
    }

    /// # Errors
    /// There is none of this handle, or it is of another type.
    pub fn get<T: 'static>(&self, handle: &Handle) -> Result<&T> {
        Ok(self.table.get(&Resource::new_borrow(handle.rep()))?)
    }

    /// # Errors
    /// As of [`Held::get`].
    pub fn get_mut<T: 'static>(&mut self, handle: &Handle) -> Result<&mut T> {
        Ok(self.table.get_mut(&Resource::new_borrow(handle.rep()))?)
    }

    /// # Errors
    /// As of [`Held::get`].
    pub fn delete<T: 'static>(&mut self, handle: Handle) -> Result<T> {
        Ok(self.table.delete(Resource::new_own(handle.rep()))?)
    }
}

/// What can never be made: terminals, files, sockets.
pub enum Nothing {}

/// Adds what `component` may import.
pub fn add_to_linker(linker: &mut Linker<Unit>, engine: &Engine, component: &Component) -> Result<()> {
    offers::plain(linker)?;
    offers::http(linker)?;
    offers::stores(linker)?;
    offers::values(linker)?;
    empty::add_to_linker(linker, engine, component)
}
