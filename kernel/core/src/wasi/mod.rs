//! WASI 0.2 in the kernel: clocks, randomness, environment and output. There are no files and no sockets.
//!
//! ```text
//!   component ─▶ wasi:io, wasi:cli, …  ─▶ resources, in one small table   (io.rs, plain.rs)
//!                                      ─▶ numbered calls, as lighter:unit has them
//!             ─▶ wasi:filesystem, wasi:sockets ─▶ nothing is there, and nothing can be made (empty.rs)
//! ```
//! What does not depend on the function (no arguments, no terminal, three streams) is answered while a component is
//! linked too, so that a runtime's start is in the snapshot. Whatever differs from unit to unit (time, randomness,
//! environment) is refused then: such a runtime starts in each unit.

mod empty;
mod io;
mod plain;

use crate::bindings::plain as bindings;
use crate::imports::Outside;
use crate::program::Unit;
pub use io::{Failed, InputStream, OutputStream, Pollable};
use wasmtime::component::{Component, HasSelf, Linker, Resource, ResourceTable};
use wasmtime::{Engine, Result};

/// Handles of the kernel that a unit holds at once, as in the class `wasm`. One more ends it.
const RESOURCES_MAX: usize = 1_000;

/// What the kernel keeps for one unit.
pub struct Held(ResourceTable);

impl Default for Held {
    fn default() -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES_MAX);
        Self(table)
    }
}

impl Held {
    pub fn push<T: Send + 'static>(&mut self, resource: T) -> Result<Resource<T>> {
        Ok(self.0.push(resource)?)
    }

    pub fn get<T: 'static>(&self, resource: &Resource<T>) -> Result<&T> {
        Ok(self.0.get(resource)?)
    }

    pub fn delete<T: 'static>(&mut self, resource: Resource<T>) -> Result<()> {
        self.0.delete(resource)?;
        Ok(())
    }
}

/// What can never be made: terminals, files, sockets.
pub enum Nothing {}

/// Adds what `component` may import.
pub fn add_to_linker(linker: &mut Linker<Unit>, engine: &Engine, component: &Component) -> Result<()> {
    bindings::Wasi::add_to_linker::<_, HasSelf<Outside>>(linker, |unit| &mut unit.outside)?;
    empty::add_to_linker(linker, engine, component)
}
