//! wasm isolates: components compiled ahead, fresh memory for each call, microseconds to start.
//!
//! ```text
//!   image ──check──▶ exports, imports          (check.rs, no compiling)
//!         ──compile─▶ artefact                 (native code, kept by the warehouse)
//!         ──load────▶ linked, ready            (prepared.rs: a file map and an import table)
//!   call  ──▶ unit: store + instance from a pool of memory slots (slots.rs, unit_state.rs)
//!         ──▶ run, metered in ticks of 1 ms; a hog moves to threads of least priority (run.rs, meter.rs)
//!         ──▶ reply, head first; a whole body goes out in one piece (reply.rs)
//! ```
//! What a unit can reach is what `host/` gives it: the contract's imports and the WASI interfaces beside them, all of
//! them asking the function's grants first.

mod artefact;
mod bindings;
mod check;
pub mod debug;
mod engine;
mod failure;
mod handling;
mod holdings;
mod host;
mod limiter;
mod meter;
mod prepared;
mod reply;
mod request;
mod run;
mod slots;
mod stall;
mod unit_state;

pub use engine::{Compiler, Config};

use engine::Engine;
use manifest::Isolation;
use problem::Problem;
use std::sync::Arc;
use unit::{Artefact, Deployed, Prepared, Shape, UnitKind};

/// The kind. One for the node; cheap to clone.
#[derive(Clone)]
pub struct WasmKind {
    engine: Arc<Engine>,
}

impl WasmKind {
    /// Reserves address space for the units and starts the ticker and the threads for hogs.
    ///
    /// # Errors
    /// [`Code::Internal`] when this machine has no room for the reservation even in its smallest form.
    pub fn new(config: Config) -> Result<Self, Problem> {
        Ok(Self { engine: Arc::new(Engine::new(config)?) })
    }
}

impl UnitKind for WasmKind {
    fn isolation(&self) -> Isolation {
        Isolation::Wasm
    }

    fn fingerprint(&self) -> &str {
        &self.engine.fingerprint
    }

    fn check(&self, image: &[u8]) -> Result<Shape, Problem> {
        check::shape(image)
    }

    fn compile(&self, image: &[u8]) -> Result<Vec<u8>, Problem> {
        self.compile_by(image, &mut |target, image| Compiler::for_target(target)?.compile(image))
    }

    fn has_compiler(&self) -> bool {
        true
    }

    fn compile_by(&self, image: &[u8], compiler: &mut unit::Compiler<'_>) -> Result<Vec<u8>, Problem> {
        Ok(artefact::write(compiler(&self.engine.target, image)?, image))
    }

    fn load(&self, artefact: Artefact, function: Deployed) -> Result<Arc<dyn Prepared>, Problem> {
        Ok(prepared::PreparedWasm::load(self.engine.clone(), artefact, function)?)
    }
}
