//! A function for gdb: in its machine, linked as on the node, without a limit on time.
//!
//! The guest stands still before its first instruction until gdb lets it go; every fault stops it too.

use crate::debugger::DebuggerLine;
use crate::prepared::PreparedMicrovm;
use crate::{MicrovmClass, debugger, link, sections};
use budget::Budget;
use manifest::{Function, Name};
use problem::{Code, Problem};
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use unit::{Artefact, Deployed, IsolationClass, LogWriter, Prepared};

/// How long a call may compute; it may stand at a breakpoint for as long as its caller lets it.
const CPU_MAX: Duration = Duration::from_secs(86_400);

/// The gdb that talks here and listens there.
pub struct Gdb(DebuggerLine);

impl Gdb {
    /// Tells gdb how the call ended.
    pub fn ended(self, reply: Result<Vec<u8>, Problem>) {
        let (text, status) = match reply {
            Ok(bytes) => (bytes, 0),
            Err(problem) => (format!("{problem}\n").into_bytes(), 1),
        };
        // gdb that has left misses nothing it wants to hear.
        let _ = self.0.print(&text).and_then(|()| self.0.ended(status));
    }
}

/// Makes the function in `image` ready to be called once, for the gdb at the other end. Names for its machine code are
/// in the file `symbols` before gdb hears the first word.
///
/// # Errors
/// The image cannot be linked, or there is no KVM.
pub fn prepare(
    image: &Path,
    mut function: Function,
    symbols: &Path,
    log: Arc<dyn LogWriter>,
    (input, out): (impl Read + Send + 'static, impl Write + Send + 'static),
) -> Result<(Arc<dyn Prepared>, Gdb), Problem> {
    let (line, session) = debugger::listen(input, out).map_err(|error| internal("listening to gdb", &error))?;
    let bytes = fs::read(image)
        .map_err(|error| Problem::new(Code::ImageUnknown, format!("cannot read {}: {error}", image.display())))?;
    let class = MicrovmClass::new()?;
    let contract = class.check(&bytes)?.contract;
    let code = kernel_code::compile(&bytes, class.shared.target)?;
    let (linked, _) =
        link::link(&*class.shared.kvm()?, crate::processor::KERNEL, &code, unit_lines::worth_keeping(&bytes))?;
    let named = sections::write(&bytes, &code).unwrap_or_default();
    fs::write(symbols, named).map_err(|error| internal("writing symbols", &error))?;
    // Its open file is all that is needed of it.
    let folder = tempfile::tempdir().map_err(|error| internal("keeping a snapshot", &error))?;
    let path = folder.path().join("artefact");
    let file = fs::write(&path, linked).and_then(|()| fs::File::open(&path));
    let file = file.map_err(|error| internal("keeping a snapshot", &error))?;
    // Time to think is not the function's.
    function.limits.cpu_ms = u64::try_from(CPU_MAX.as_millis()).unwrap_or(u64::MAX);
    let deployed = Deployed {
        name: Name::try_from("debug".to_owned()).expect("a name"),
        version: 0,
        function: Arc::new(function),
        contract,
        secrets: Arc::default(),
        log,
        budget: Budget::unbounded(),
    };
    let prepared = PreparedMicrovm::load(&class.shared, Artefact { path, file }, deployed)?;
    prepared.debug(session);
    Ok((prepared, Gdb(line)))
}

fn internal(what: &str, error: &io::Error) -> Problem {
    Problem::new(Code::Internal, format!("{what}: {error}"))
}
