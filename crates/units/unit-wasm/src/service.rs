//! One request for a component of WASI 0.3, which exports `wasi:http/handler`.
//!
//! ```text
//!   request ──▶ task runs ──returns a response──▶ commit ──head──▶ frames of the body; each poll runs the unit on
//!                  └─▶ goes on, others beside it ──▶ all have ended ──▶ commit ──▶ the body is out ──▶ the unit ends
//! ```
//! What the engine keeps for tasks is looked at each time before they run, because a unit that waits has no slice that
//! could end. The unit lives until its body is out, even if none of its code runs any more: a body that only passes
//! through, from a request or an answer to the reply, is bounded in time like one that the unit makes.

use crate::attempt::{GuestHead, unread};
use crate::meter::Meter;
use crate::prepared::{Instance, PreparedWasm, look_at};
use crate::unit_state::UnitState;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::uri::Scheme;
use http::{Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use problem::{Code, Problem};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use unit::{Host, RequestBody};
use wasmtime::AsContextMut;
use wasmtime::component::Accessor;
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::p3::bindings::Service;
use wasmtime_wasi_http::p3::{Request, Response};
use wasmtime_wasi_http::{Error, WasiHttpHooks};

impl PreparedWasm {
    /// Serves one request; the head of the reply goes through `head`.
    pub async fn serve_tasks(
        self: Arc<Self>,
        meter: Arc<Meter>,
        request_id: Arc<str>,
        request: http::Request<RequestBody>,
        head: oneshot::Sender<GuestHead>,
        host: Arc<dyn Host>,
    ) -> Result<(), Problem> {
        let (entry, mut unit) = self.start(&meter, &request_id, host).await?;
        let Instance::Service(service) = &unit.instance else { unreachable!("the guest is of WASI 0.3") };
        let head = Head { is_alone: request.method() == Method::HEAD, place: head };
        let request = incoming(&mut unit.store.data_mut().http, request);
        let ran = unit.store.run_concurrent(async |tasks| run(tasks, service, request, head).await).await;
        if let Err(error) = ran.and_then(|ended| ended) {
            return Err(self.cut(&error, &mut unit.store).await);
        }
        self.put_back(entry, unit);
        Ok(())
    }
}

/// Where the head of the reply goes.
struct Head {
    place: oneshot::Sender<GuestHead>,
    /// No body follows, whatever it says of one.
    is_alone: bool,
}

fn incoming(hooks: &mut dyn WasiHttpHooks, request: http::Request<RequestBody>) -> Request {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()?.parse().ok());
    // How the unit took the body is nobody's concern here.
    let (mut request, _) = Request::from_http(hooks, request.map(|body| body.map_err(unread)));
    request.scheme.get_or_insert(Scheme::HTTP);
    request.authority = request.authority.or(host);
    request
}

async fn run(tasks: &Accessor<UnitState>, service: &Service, request: Request, head: Head) -> wasmtime::Result<()> {
    let mut handled = pin!(service.handle(tasks, request));
    let response = poll_fn(|cx| {
        look(tasks)?;
        handled.as_mut().poll(cx)
    });
    let response = response.await?.map_err(|code| {
        let detail = format!("the unit replied with an error instead of a response: {code:?}");
        wasmtime::Error::new(Problem::new(Code::UnitBadReply, detail))
    })?;
    let mut is_out = send(tasks, response, head)?;
    poll_fn(|cx| {
        look(tasks)?;
        tasks.poll_no_interesting_tasks(cx).map(wasmtime::error::Ok)
    })
    .await?;
    tasks.with(|mut store| store.data_mut().settle_rest()).map_err(wasmtime::Error::new)?;
    poll_fn(|cx| {
        look(tasks)?;
        // Who sends the body says nothing but that it has gone.
        Pin::new(&mut is_out).poll(cx).map(|_| Ok(()))
    })
    .await
}

fn look(tasks: &Accessor<UnitState>) -> wasmtime::Result<()> {
    tasks.with(|mut store| look_at(store.as_context_mut()))
}

/// Commits, then gives the head away. What comes back is ready when the body is out.
fn send(tasks: &Accessor<UnitState>, response: Response, head: Head) -> wasmtime::Result<oneshot::Receiver<()>> {
    let (unit_told, tells_unit) = oneshot::channel();
    let (told, is_out) = oneshot::channel();
    let response = tasks.with(|mut store| {
        store.data_mut().settle(true)?;
        response.into_http(&mut store, async {
            // It is dropped when the body is out.
            let _ = tells_unit.await;
            Ok(())
        })
    })?;
    let is_alone = head.is_alone || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let promised = response.headers().get(CONTENT_LENGTH).filter(|_| !is_alone);
    let left = promised.and_then(|length| length.to_str().ok()?.parse().ok());
    let response =
        response.map(|inner| Outgoing { inner, ahead: None, left, told: Some([unit_told, told]) }.boxed_unsync());
    // Whoever waits for it may have gone.
    drop(head.place.send(Ok(response)));
    Ok(is_out)
}

/// A reply's body, which tells when it is out, and fails if it is shorter than was promised. It looks one frame ahead,
/// so that with the last frame the unit can end.
struct Outgoing {
    inner: HyperOutgoingBody,
    ahead: Option<Option<Result<Frame<Bytes>, Error>>>,
    /// Bytes that are still to come, if the head said how many.
    left: Option<u64>,
    told: Option<[oneshot::Sender<()>; 2]>,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        let polled = match this.ahead.take() {
            Some(frame) => Poll::Ready(frame),
            None => Pin::new(&mut this.inner).poll_frame(cx),
        };
        let is_short = this.left.is_some_and(|left| left > 0);
        if is_short && matches!(polled, Poll::Ready(None)) {
            this.told = None;
            return Poll::Ready(Some(Err(Error::HttpResponseBodySize(None))));
        }
        let data = match &polled {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(frame))) => frame.data_ref(),
            Poll::Ready(_) => None,
        };
        let Some(data) = data else {
            this.told = None;
            return polled;
        };
        this.left = this.left.map(|left| left.saturating_sub(data.len() as u64));
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            this.ahead = Some(frame);
        }
        // One that is short is not out: its error is still to come.
        if this.left == Some(0) || (this.left.is_none() && matches!(this.ahead, Some(None))) {
            this.told = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.as_ref().map_or_else(|| self.inner.is_end_stream(), Option::is_none)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.ahead {
            None => self.inner.size_hint(),
            Some(_) => SizeHint::default(),
        }
    }
}
