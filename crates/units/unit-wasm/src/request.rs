//! A request on its way into a unit of a `wasi:http` function, and once more into another one after a conflict.
//!
//! The body is passed on as it arrives. As long as it is small, what was passed on is kept beside it, so that a second
//! unit can read it from the start and then go on where the first one was.

use crate::host::head::{Conflicted, HeadState};
use crate::host::queue::header;
use crate::meter::Meter;
use crate::prepared::{Instance, PreparedWasm};
use crate::unit_state::Cause;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request};
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use problem::{Code, Problem};
use state::{Leased, Transaction};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use unit::{Body, BodyError, Level};
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Scheme};
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::{Error, WasiHttpView};

/// Bytes of a body that are kept for another unit. A request with a larger one is not begun again.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// What one frame of a body costs beside its bytes.
const FRAME_BYTES: usize = 64;

/// Where a guest puts the head of its reply.
pub type HeadSender = oneshot::Sender<Result<http::Response<HyperOutgoingBody>, ErrorCode>>;

/// A request that can be given to several units, one after the other.
pub struct Incoming {
    /// None once it was given away without being kept.
    head: Option<Parts>,
    body: Arc<Mutex<Source>>,
}

/// Where the body comes from: first what is kept of it, then the socket.
struct Source {
    inner: Body,
    /// None when there is more than may be kept, or none is to be kept.
    kept: Option<Vec<Kept>>,
    kept_bytes: usize,
    /// There is no more to come; it is not asked again.
    has_ended: bool,
}

#[derive(Clone)]
enum Kept {
    Data(Bytes),
    Trailers(HeaderMap),
}

impl Incoming {
    /// `keep`: whether it may come to a second unit at all.
    pub fn new(request: Request<Body>, keep: bool) -> Self {
        let (head, inner) = request.into_parts();
        let source = Source { inner, kept: keep.then(Vec::new), kept_bytes: 0, has_ended: false };
        Self { head: Some(head), body: Arc::new(Mutex::new(source)) }
    }

    /// # Panics
    /// A second time, if it was not to be kept.
    pub fn give(&mut self) -> Request<ToGuest> {
        let head = match self.can_be_given_again() {
            true => self.head.clone(),
            false => self.head.take(),
        };
        Request::from_parts(head.expect("given once"), ToGuest { source: self.body.clone(), next: 0 })
    }

    /// Whether all that was read of it is kept.
    pub fn can_be_given_again(&self) -> bool {
        self.body.lock().kept.is_some()
    }
}

impl Source {
    fn keep(&mut self, frame: &Frame<Bytes>) {
        let Some(kept) = &mut self.kept else { return };
        self.kept_bytes += FRAME_BYTES + frame.data_ref().map_or(0, Bytes::len);
        if self.kept_bytes > KEPT_BYTES_MAX {
            self.kept = None;
        } else if let Some(data) = frame.data_ref() {
            kept.push(Kept::Data(data.clone()));
        } else if let Some(trailers) = frame.trailers_ref() {
            kept.push(Kept::Trailers(trailers.clone()));
        }
    }
}

/// A request's body as the guest's host functions want it.
pub struct ToGuest {
    source: Arc<Mutex<Source>>,
    /// The next frame to take from what is kept.
    next: usize,
}

impl HttpBody for ToGuest {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        let mut source = this.source.lock();
        if let Some(kept) = source.kept.as_ref().and_then(|kept| kept.get(this.next)) {
            this.next += 1;
            return Poll::Ready(Some(Ok(match kept.clone() {
                Kept::Data(data) => Frame::data(data),
                Kept::Trailers(trailers) => Frame::trailers(trailers),
            })));
        }
        if source.has_ended {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut source.inner).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                source.keep(frame);
                this.next += 1;
            }
            Poll::Ready(Some(Err(_))) => source.kept = None,
            Poll::Ready(None) => source.has_ended = true,
            Poll::Pending => {}
        }
        polled.map_err(|error| match error {
            BodyError::TooLarge { limit_bytes } => Error::HttpRequestBodySize(Some(limit_bytes)),
            error => Error::InternalError(Some(error.to_string())),
        })
    }

    fn is_end_stream(&self) -> bool {
        let source = self.source.lock();
        source.kept.as_ref().is_none_or(|kept| self.next >= kept.len())
            && (source.has_ended || source.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let source = self.source.lock();
        match source.kept.as_ref().is_some_and(|kept| self.next < kept.len()) {
            true => SizeHint::default(),
            false => source.inner.size_hint(),
        }
    }
}

impl PreparedWasm {
    /// Whether a call of the function may write anything, and so conflict with others.
    pub fn may_write(&self) -> bool {
        let grants = &self.deployed.function.grants;
        !(grants.stores.is_empty() && grants.push.is_empty() && grants.pop.is_empty())
    }

    /// Serves one request; the head of the reply goes through `head`. Of leased work, what is to be committed is
    /// returned.
    pub async fn serve(
        self: Arc<Self>,
        meter: Arc<Meter>,
        request_id: Arc<str>,
        request: Request<ToGuest>,
        head: HeadSender,
        lease: Option<Arc<Leased>>,
    ) -> Result<Option<Transaction>, Problem> {
        let mut unit = self.start(&meter, &request_id).await?;
        let Instance::WasiHttp(instance) = &unit.instance else { unreachable!("the guest's contract is wasi:http") };
        let scheme = match request.uri().scheme_str() {
            Some("https") => Scheme::Https,
            _ => Scheme::Http,
        };
        let state = unit.store.data_mut();
        state.http.requests.set_trace(|wanted| header(request.headers(), wanted));
        if !self.deployed.function.grants.push.is_empty() {
            state.cause = Cause::Request { id: request_id, headers: request.headers().clone() };
        }
        state.head = if lease.is_some() { HeadState::Leased } else { HeadState::Awaited };
        state.handling.begin(lease);
        let resources = (|| {
            let mut view = state.http();
            Ok((view.new_incoming_request(scheme, request)?, view.new_response_outparam(head)?))
        })();
        let (request, out) = resources.map_err(|error: wasmtime::Error| {
            Problem::new(Code::RequestMalformed, format!("the request cannot be passed on: {error:#}"))
        })?;
        if let Err(error) = instance.wasi_http_incoming_handler().call_handle(&mut unit.store, request, out).await {
            let problem = match error.is::<Conflicted>() {
                true => Problem::new(Code::Conflict, "another handling changed the same keys"),
                false => self.failed(&error, &mut unit.store).await,
            };
            unit.store.data().output.end_call();
            return Err(problem);
        }
        let state = unit.store.data_mut();
        let (head, transaction) = (state.head, state.end_handling());
        let late = match head {
            HeadState::Leased => {
                self.put_back(unit);
                return Ok(transaction);
            }
            // Without a head the call has failed, and nothing was done.
            HeadState::Awaited => None,
            HeadState::Set => transaction,
        };
        let committed = late.map(|transaction| transaction.commit().map_err(Problem::from)).transpose();
        if let Err(problem) = &committed {
            let detail = &problem.detail;
            let note = format!("what was done after the head of the reply is undone: {detail}");
            unit.store.data().output.note(Level::Error, &note);
        }
        self.put_back(unit);
        if let Some(ticket) = committed? {
            self.deployed.state.durable(ticket).await?;
        }
        Ok(None)
    }
}
