//! A function for a debugger: compiled with debug information, without optimisation, and its time is not counted.
//!
//! gdb and lldb learn of the compiled code through the GDB JIT interface, and of its source from the DWARF sections of
//! the image.

use crate::artefact::KeptImage;
use crate::check;
use crate::engine::Engine;
use crate::prepared::PreparedWasm;
use budget::Budget;
use manifest::{Function, Name};
use problem::{Code, Problem};
use rustix::process::{Signal, getpid, kill_process};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use unit::{Deployed, LogWriter, Prepared};
use wasmtime::component::Component;

/// Makes the function in `image` ready to be called. With `stop_when_loaded` the process raises SIGTRAP once the
/// function's code is there, so that a debugger that runs it can set breakpoints in it; without a debugger that ends
/// the process.
///
/// # Errors
/// The image is no component, or it does not compile.
pub fn prepare(
    image: &Path,
    function: Function,
    stop_when_loaded: bool,
    log: Arc<dyn LogWriter>,
) -> Result<Arc<dyn Prepared>, Problem> {
    let unreadable =
        |error: std::io::Error| Problem::new(Code::ImageUnknown, format!("cannot read {}: {error}", image.display()));
    let bytes = std::fs::read(image).map_err(unreadable)?;
    let contract = check::shape(&bytes)?.contract;
    let series = check::series(&bytes)?;
    let engine = Arc::new(Engine::for_debugging()?);
    let component = Component::new(&engine.runtime(series)?.wasmtime, &bytes)
        .map_err(|error| Problem::new(Code::CompileFailed, format!("the component did not compile: {error:#}")))?;
    if stop_when_loaded {
        kill_process(getpid(), Signal::TRAP)
            .map_err(|error| Problem::new(Code::Internal, format!("raising SIGTRAP: {error}")))?;
    }
    let deployed = Deployed {
        name: Name::try_from("debug".to_owned()).expect("a name"),
        version: 0,
        function: Arc::new(function),
        contract,
        secrets: Arc::default(),
        log,
        budget: Budget::unbounded(),
    };
    let kept = File::open(image).and_then(KeptImage::of_image).map_err(unreadable)?;
    Ok(PreparedWasm::link(engine, series, &component, deployed, Some(kept))?)
}
