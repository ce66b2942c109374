//! One call of a function for gdb: in its machine, linked as on the node, without a deadline.
//!
//! The guest stands still before its first instruction until gdb
//! lets it go; every fault stops it too. Store writes go to an empty store that is thrown away; everything else the
//! function may do, it does.

use crate::debugger::{Line, Session};
use crate::prepared::PreparedMicrovm;
use crate::{MicrovmKind, debugger, link, sections};
use budget::Budget;
use event::Event;
use manifest::{Function, Name};
use problem::{Code, Problem};
use state::{Options, State};
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unit::{Artefact, Call, Content, Contract, Deployed, Ended, LogLine, LogSink, Prepared, UnitKind, Watch, Work};

/// How long a call may stand at a breakpoint.
const DEADLINE: Duration = Duration::from_secs(86_400);

/// Calls the function in `image` once, for the gdb that talks here and listens there, and is told the reply. Names for
/// its machine code are in the file `symbols` before gdb hears the first word.
///
/// # Errors
/// The image cannot be linked, or there is no KVM. How the call itself ends is for gdb to hear.
pub fn run(
    image: &Path,
    function: Function,
    event: Event,
    symbols: &Path,
    (input, out): (impl Read + Send + 'static, impl Write + Send + 'static),
) -> Result<(), Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| internal("starting a runtime", &error))?;
    let folder = tempfile::tempdir().map_err(|error| internal("making an empty store", &error))?;
    let (line, session) = debugger::listen(input, out).map_err(|error| internal("listening to gdb", &error))?;
    runtime.block_on(call(image, function, event, symbols, (line, session), folder.path()))
}

async fn call(
    image: &Path,
    mut function: Function,
    event: Event,
    symbols: &Path,
    (line, session): (Line, Session),
    folder: &Path,
) -> Result<(), Problem> {
    let bytes = fs::read(image)
        .map_err(|error| Problem::new(Code::ImageUnknown, format!("cannot read {}: {error}", image.display())))?;
    let kind = MicrovmKind::new()?;
    kind.check(&bytes)?;
    let code = kernel_code::compile(&bytes, kind.shared.target)?;
    let (linked, _) = link::link(&*kind.shared.kvm()?, crate::KERNEL, &code, unit_lines::worth_keeping(&bytes))?;
    let named = sections::write(&bytes, &code).unwrap_or_default();
    fs::write(symbols, named).map_err(|error| internal("writing symbols", &error))?;
    let path = folder.join("artefact");
    let file = fs::write(&path, linked).and_then(|()| fs::File::open(&path));
    let file = file.map_err(|error| internal("keeping a snapshot", &error))?;
    // Time to think is not the function's.
    function.limits.cpu_ms = u64::try_from(DEADLINE.as_millis()).unwrap_or(u64::MAX);
    let deployed = Deployed {
        name: Name::try_from("debug".to_owned()).expect("a name"),
        version: 0,
        function: Arc::new(function),
        contract: Contract::Unit,
        secrets: Arc::default(),
        state: State::open(&folder.join("store"), Options::default())?,
        log: Arc::new(Standard),
        budget: Budget::unbounded(),
    };
    let prepared = PreparedMicrovm::load(&kind.shared, Artefact { path, file }, deployed)?;
    prepared.debug(session);
    let (work, deadline, watch) = (Work::Event(event), Instant::now() + DEADLINE, Box::new(Standard));
    let call = Call { request_id: "debug".into(), work, deadline, watch, lease: None };
    let (text, status) = match prepared.call(call).await.map(|reply| reply.content) {
        Ok(Content::Bytes(bytes)) => (bytes.to_vec(), 0),
        Ok(Content::Http(_)) => (Vec::new(), 0),
        Err(problem) => (format!("{problem}\n").into_bytes(), 1),
    };
    // gdb that has left misses nothing it wants to hear.
    let _ = line.print(&text).and_then(|()| line.ended(status));
    Ok(())
}

fn internal(what: &str, error: &io::Error) -> Problem {
    Problem::new(Code::Internal, format!("{what}: {error}"))
}

/// Logs to standard error.
struct Standard;

impl LogSink for Standard {
    fn write(&self, line: LogLine<'_>) {
        eprintln!("{} {}", line.level.as_str(), line.message);
    }
}

impl Watch for Standard {
    fn ended(self: Box<Self>, _: Ended) {}
}
