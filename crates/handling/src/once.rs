//! One call of a function outside of a node, for a debugger: without a deadline. Store writes go to an empty store that
//! is thrown away; everything else the function may do, it does.

use crate::{Call, Content, Handler, Work};
use event::Event;
use http_body_util::BodyExt;
use problem::{Code, Problem};
use state::{Options, State};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unit::{Contract, Prepared};

/// How long a call may stand at a breakpoint.
const TIME_MAX: Duration = Duration::from_secs(86_400);

/// Calls the function that `prepare` makes ready and returns its reply. A `wasi:http` function gets a POST of the
/// event's data.
///
/// # Errors
/// Those of `prepare`; else the call failed as it would on a node.
pub fn once(prepare: impl FnOnce() -> Result<Arc<dyn Prepared>, Problem>, event: Event) -> Result<Vec<u8>, Problem> {
    let internal = |what: &str, error: io::Error| Problem::new(Code::Internal, format!("{what}: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| internal("starting a runtime", error))?;
    let folder = tempfile::tempdir().map_err(|error| internal("making an empty store", error))?;
    let result = runtime.block_on(async {
        let prepared = prepare()?;
        let handler = Handler::new(State::open(folder.path(), Options::default())?);
        call(&handler, prepared, event).await
    });
    let removed = folder.close().map_err(|error| internal("removing the empty store", error));
    result.and_then(|reply| removed.map(|()| reply))
}

async fn call(handler: &Handler, prepared: Arc<dyn Prepared>, event: Event) -> Result<Vec<u8>, Problem> {
    let work = match prepared.deployed().contract {
        Contract::Unit | Contract::Call => Work::Event(event),
        Contract::WasiHttp => {
            let request = http::Request::post("http://localhost/").body(crate::reply::full(event.data.into()));
            Work::Http(request.expect("a fixed request is valid"))
        }
    };
    let call = Call { request_id: "debug".into(), work, deadline: Instant::now() + TIME_MAX, lease: None };
    match handler.handle(prepared, call, ()).await?.content {
        Content::Bytes(bytes) => Ok(bytes.into()),
        Content::Http(response) => {
            let body = response.into_body().collect().await.map_err(Problem::from)?;
            Ok(body.to_bytes().to_vec())
        }
    }
}
