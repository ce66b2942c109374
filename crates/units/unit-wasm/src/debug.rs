//! One call of a function for a debugger: compiled with debug information, without optimisation and without a deadline.
//!
//! gdb and lldb learn of the compiled code through the GDB JIT interface, and of its source from the DWARF sections of
//! the image. Store writes go to an empty store that is thrown away; everything else the function may do, it does.

use crate::artefact::KeptImage;
use crate::check;
use crate::engine::Engine;
use crate::prepared::PreparedWasm;
use budget::Budget;
use event::Event;
use http_body_util::{BodyExt, Full};
use manifest::{Function, Name};
use problem::{Code, Problem};
use rustix::process::{Signal, getpid, kill_process};
use state::{Options, State};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unit::{Body, Call, Content, Contract, Deployed, Ended, LogLine, LogSink, Prepared, Watch, Work};
use wasmtime::component::Component;

/// How long a call may stand at a breakpoint.
const DEADLINE: Duration = Duration::from_secs(86_400);

/// Calls the function in `image` once and returns its reply. A `wasi:http` function gets a POST of the event's data.
/// With `stop_when_loaded` the process raises SIGTRAP once the function's code is there, so that a debugger that runs
/// it can set breakpoints in it; without a debugger that ends the process.
///
/// # Errors
/// The image is no component, or the call failed as it would on a node.
pub fn run(image: &Path, function: Function, event: Event, stop_when_loaded: bool) -> Result<Vec<u8>, Problem> {
    let internal = |what: &str, error: std::io::Error| Problem::new(Code::Internal, format!("{what}: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| internal("starting a runtime", error))?;
    let folder = std::env::temp_dir().join(format!("lighter-debug-{}", std::process::id()));
    let result = runtime.block_on(call(image, function, event, stop_when_loaded, &folder));
    let removed = std::fs::remove_dir_all(&folder).map_err(|error| internal("removing the empty store", error));
    result.and_then(|reply| removed.map(|()| reply))
}

async fn call(
    image: &Path,
    function: Function,
    event: Event,
    stop_when_loaded: bool,
    folder: &Path,
) -> Result<Vec<u8>, Problem> {
    let bytes = std::fs::read(image)
        .map_err(|error| Problem::new(Code::ImageUnknown, format!("cannot read {}: {error}", image.display())))?;
    let contract = check::shape(&bytes)?.contract;
    let engine = Arc::new(Engine::for_debugging()?);
    let component = Component::new(&engine.wasmtime, &bytes)
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
        state: State::open(folder, Options::default())?,
        log: Arc::new(Standard),
        budget: Budget::unbounded(),
    };
    let kept = File::open(image).and_then(KeptImage::of_image);
    let kept =
        kept.map_err(|error| Problem::new(Code::ImageUnknown, format!("cannot read {}: {error}", image.display())))?;
    let prepared = PreparedWasm::link(engine, &component, deployed, Some(kept))?;
    let work = match contract {
        Contract::Unit | Contract::Call => Work::Event(event),
        Contract::WasiHttp => {
            let body: Body = Full::from(event.data).map_err(|never| match never {}).boxed_unsync();
            let request = http::Request::post("http://localhost/").body(body);
            Work::Http(request.expect("a fixed request is valid"))
        }
    };
    let (deadline, watch) = (Instant::now() + DEADLINE, Box::new(Standard));
    let call = Call { request_id: "debug".into(), work, deadline, watch, lease: None };
    match prepared.call(call).await?.content {
        Content::Bytes(bytes) => Ok(bytes.into()),
        Content::Http(response) => {
            let body = response.into_body().collect().await.map_err(Problem::from)?;
            Ok(body.to_bytes().to_vec())
        }
    }
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
