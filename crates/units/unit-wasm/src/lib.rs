//! wasm isolates: components compiled ahead, fresh memory for each call, microseconds to start.
//!
//! ```text
//!   image ──check──▶ exports, imports          (check.rs, no compiling)
//!         ──compile─▶ artefact                 (native code, kept by the warehouse; small data is copied: copied.rs)
//!         ──load────▶ linked, ready            (prepared.rs: a file map and an import table)
//!   attempt ▶ unit: store + instance from a pool of memory slots (slots.rs, unit_state.rs)
//!         ──▶ run, metered in slices of 1 ms; a hog moves to threads of least priority (run.rs, meter.rs)
//!         ──▶ what it gives: a reply, or the head of one and a body whose polls run it on (attempt.rs; of WASI 0.3,
//!             service.rs)
//! ```
//! What a unit can reach is what `host/` gives it: the contract's imports and the WASI interfaces beside them, all of
//! them asking the function's grants first.

mod artefact;
mod attach;
mod attempt;
mod bindings;
mod check;
mod copied;
pub mod debug;
mod engine;
mod failure;
mod functions;
mod hogs;
mod holdings;
mod host;
mod limiter;
mod mapped_code;
mod meter;
mod patience;
mod prepared;
mod run;
mod service;
mod slots;
mod stall;
mod unit_state;

pub use engine::{Compiler, Config};

use engine::Engine;
use manifest::Isolation;
use problem::Problem;
use std::sync::Arc;
use unit::{Artefact, Deployed, IsolationClass, Prepared, Shape};

/// The class. One for the node; cheap to clone.
#[derive(Clone)]
pub struct WasmClass {
    engine: Arc<Engine>,
}

impl WasmClass {
    /// Reserves address space for the units and starts the ticker and the threads for hogs.
    ///
    /// # Errors
    /// [`Code::Internal`] when this machine has no room for the reservation even in its smallest form.
    pub fn new(config: Config) -> Result<Self, Problem> {
        Ok(Self { engine: Arc::new(Engine::new(config)?) })
    }
}

impl IsolationClass for WasmClass {
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
        let series = check::series(image)?;
        // Traps are told by places in what was compiled.
        let image = &*copied::copied(image);
        Ok(artefact::write(compiler(&self.engine.target(series), image)?, image, series))
    }

    fn loads_at_once(&self) -> bool {
        true
    }

    fn load(&self, artefact: Artefact, function: Deployed) -> Result<Arc<dyn Prepared>, Problem> {
        Ok(prepared::PreparedWasm::load(self.engine.clone(), artefact, function)?)
    }
}
