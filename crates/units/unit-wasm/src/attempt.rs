//! One attempt of either contract: a unit at work, metered, and what it gives.
//!
//! ```text
//!   lighter:unit   event ───▶ unit runs ──▶ reply, or how it failed
//!   wasi:http      request ─▶ unit runs ──head──▶ frames of the body; each poll for one runs the unit on
//! ```

use crate::bindings::types;
use crate::engine::Series;
use crate::failure;
use crate::host::queue::{from_guest, to_guest};
use crate::meter::Meter;
use crate::prepared::{Instance, PreparedWasm};
use crate::run::{Run, RunFuture};
use crate::unit_state::UnitState;
use bytes::Bytes;
use event::{Event, Origin};
use http::{Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use problem::{Code, Problem};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;
use unit::{Attempt, BodyError, Given, Host, RequestBody, Running, Spent, Work, check_reply};
use wasmtime::Store;
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Scheme};
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::{Error, WasiHttpView};

/// What a guest puts where its reply begins.
pub type GuestHead = Result<Response<HyperOutgoingBody>, ErrorCode>;

/// # Panics
/// The work is not of the function's contract.
pub fn begin(prepared: Arc<PreparedWasm>, attempt: Attempt) -> Box<dyn Running> {
    let Attempt { request_id, work, deadline, host } = attempt;
    let meter = Arc::new(Meter::new(deadline));
    let (engine, weight) = (prepared.engine.clone(), prepared.weight.clone());
    match work {
        Work::Event(mut event) => {
            let origin = std::mem::take(&mut event.origin);
            let event = Arc::new(to_guest(event));
            let work = prepared.handle(meter.clone(), request_id, event.clone(), host);
            let run = Run::new(engine, weight, meter.clone(), Box::pin(work));
            Box::new(OfEvent { run: Some(run), meter, event: Some(event), origin })
        }
        Work::Http(request) => {
            let (sender, receiver) = oneshot::channel();
            let on = meter.clone();
            let work: RunFuture<()> = match prepared.series {
                Series::Wasi02 => Box::pin(prepared.serve(on, request_id, request, sender, host)),
                Series::Wasi03 => Box::pin(prepared.serve_tasks(on, request_id, request, sender, host)),
            };
            let run = Run::new(engine, weight, meter.clone(), work);
            Box::new(OfRequest { run: Some(run), ended: Ok(()), meter, head: Some(receiver), body: None })
        }
    }
}

impl PreparedWasm {
    async fn handle(
        self: Arc<Self>,
        meter: Arc<Meter>,
        request_id: Arc<str>,
        event: Arc<types::Event>,
        host: Arc<dyn Host>,
    ) -> Result<Given, Problem> {
        let (entry, mut unit) = self.start(&meter, &request_id, host).await?;
        let Instance::Unit(instance) = &unit.instance else { unreachable!("the guest's contract is lighter:unit") };
        let result = instance.lighter_unit_handler().call_handle(&mut unit.store, &event).await;
        match result {
            Ok(Ok(reply)) => {
                self.put_back(entry, unit);
                check_reply(reply.len() as u64, &self.deployed.function.limits)?;
                Ok(Given::Reply(reply.into()))
            }
            Ok(Err(said)) => {
                let problem = failure::said(said, &unit.store.data().output);
                self.put_back(entry, unit);
                Ok(Given::Failure(problem))
            }
            Err(error) => {
                let problem = self.failed(&error, &mut unit.store).await;
                unit.store.data().output.end_call();
                Err(problem)
            }
        }
    }

    /// Serves one request; the head of the reply goes through `head`.
    async fn serve(
        self: Arc<Self>,
        meter: Arc<Meter>,
        request_id: Arc<str>,
        request: Request<RequestBody>,
        head: oneshot::Sender<GuestHead>,
        host: Arc<dyn Host>,
    ) -> Result<(), Problem> {
        let (entry, mut unit) = self.start(&meter, &request_id, host).await?;
        let Instance::WasiHttp(instance) = &unit.instance else { unreachable!("the guest's contract is wasi:http") };
        let scheme = match request.uri().scheme_str() {
            Some("https") => Scheme::Https,
            _ => Scheme::Http,
        };
        let request = request.map(|body| body.map_err(unread));
        let state = unit.store.data_mut();
        let resources = (|| {
            let mut view = state.http();
            Ok((view.new_incoming_request(scheme, request)?, view.new_response_outparam(head)?))
        })();
        let (request, out) = resources.map_err(|error: wasmtime::Error| {
            Problem::new(Code::RequestMalformed, format!("the request cannot be passed on: {error:#}"))
        })?;
        if let Err(error) = instance.wasi_http_incoming_handler().call_handle(&mut unit.store, request, out).await {
            return Err(self.cut(&error, &mut unit.store).await);
        }
        let committed = unit.store.data().settle_rest();
        self.put_back(entry, unit);
        committed
    }

    /// What to say of a call that was cut off.
    pub async fn cut(&self, error: &wasmtime::Error, store: &mut Store<UnitState>) -> Problem {
        let problem = match error.downcast_ref::<Problem>() {
            // Nothing the function did wrong: its log has no word of it.
            Some(problem) if problem.code == Code::Conflict => problem.clone(),
            _ => self.failed(error, store).await,
        };
        store.data().output.end_call();
        problem
    }
}

pub fn unread(error: BodyError) -> Error {
    match error {
        BodyError::TooLarge { limit_bytes } => Error::HttpRequestBodySize(Some(limit_bytes)),
        error => Error::InternalError(Some(error.to_string())),
    }
}

/// A `lighter:unit` component at work.
struct OfEvent {
    /// None once it has ended.
    run: Option<Run<Given>>,
    meter: Arc<Meter>,
    event: Option<Arc<types::Event>>,
    origin: Origin,
}

impl Running for OfEvent {
    fn poll_given(&mut self, cx: &mut Context<'_>) -> Poll<Result<Given, Problem>> {
        let run = self.run.as_mut().expect("an attempt is not polled after its end");
        let given = ready!(Pin::new(run).poll(cx));
        self.run = None;
        Poll::Ready(given)
    }

    fn spent(&self) -> Spent {
        self.meter.spent()
    }

    fn give_back(&mut self) -> Option<Event> {
        self.event.take().map(|event| from_guest(Arc::unwrap_or_clone(event), std::mem::take(&mut self.origin)))
    }
}

/// A `wasi:http` component at work.
struct OfRequest {
    /// None once it has ended.
    run: Option<Run<()>>,
    /// How it ended, once it has.
    ended: Result<(), Problem>,
    meter: Arc<Meter>,
    /// None once the head has come, or never will.
    head: Option<oneshot::Receiver<GuestHead>>,
    /// None until the head has come.
    body: Option<HyperOutgoingBody>,
}

impl Running for OfRequest {
    fn poll_given(&mut self, cx: &mut Context<'_>) -> Poll<Result<Given, Problem>> {
        let ended = self.poll_end(cx);
        let head = match (&mut self.head, &ended) {
            (None, _) => None,
            // All that will come has come; a poll might say "pending" only to let other tasks run.
            (Some(place), Poll::Ready(_)) => place.try_recv().ok(),
            (Some(place), Poll::Pending) => {
                let head = ready!(Pin::new(place).poll(cx));
                self.head = None;
                head.ok()
            }
        };
        Poll::Ready(match (head, ended) {
            (Some(Ok(response)), _) => {
                let (head, body) = response.into_parts();
                self.body = Some(body);
                Ok(Given::Head(head))
            }
            (Some(Err(code)), _) => {
                let detail = format!("the unit replied with an error instead of a response: {code:?}");
                Err(Problem::new(Code::UnitBadReply, detail))
            }
            (None, Poll::Ready(Err(problem))) => Err(problem),
            (None, Poll::Ready(Ok(()))) => {
                Err(Problem::new(Code::UnitNoReply, "the unit ended without setting a response"))
            }
            // The unit gave the place for its reply away and goes on: its end will tell.
            (None, Poll::Pending) => return Poll::Pending,
        })
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Problem>>> {
        let ended = self.poll_end(cx);
        let body = self.body.as_mut().expect("a body comes after its head");
        let polled = Pin::new(body).poll_frame(cx);
        // A unit that fails on another thread drops its side of the body before its end is known here; without its
        // result a body cut off by a trap would look whole.
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) && ended.is_pending() && self.meter.failed.load(SeqCst) {
            return Poll::Pending;
        }
        match (polled, ended) {
            (_, Poll::Ready(Err(problem))) => Poll::Ready(Some(Err(problem))),
            (polled, _) => polled.map_err(|error| bad_body(&error)),
        }
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Problem>> {
        if let Some(run) = &mut self.run {
            self.ended = ready!(Pin::new(run).poll(cx));
            self.run = None;
        }
        Poll::Ready(self.ended.clone())
    }

    fn spent(&self) -> Spent {
        self.meter.spent()
    }

    /// A request is given again by whoever has it.
    fn give_back(&mut self) -> Option<Event> {
        None
    }
}

fn bad_body(error: &Error) -> Problem {
    Problem::new(Code::UnitBadReply, format!("the unit's body is not right: {error}"))
}
