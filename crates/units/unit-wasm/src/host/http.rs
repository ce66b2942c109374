//! Outgoing HTTP, for both contracts: one client with kept connections, asked for a grant first.

use crate::bindings::lighter::unit::http as contract;
use crate::bindings::types;
use crate::meter::Meter;
use crate::unit_state::UnitState;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;
use unit::{Deployed, Level};
use unit_host::Output;
use unit_host::egress::Unsent;
use unit_host::http::{Outbound, Requests, time_left};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

/// What a response that nobody reads may take: the window of its stream.
pub const WINDOW_BYTES: u64 = unit_host::egress::WINDOW_BYTES as u64;

pub type Client = unit_host::http::Client<WasiBody>;

/// One unit's outgoing requests.
pub struct Hooks {
    pub requests: Requests<WasiBody>,
    meter: Arc<Meter>,
    output: Arc<Output>,
    /// The log has been told which grant is missing: once is enough of a unit that asks in a loop.
    denied: bool,
    /// Bytes of a chunk of an outgoing body.
    chunk_bytes: usize,
}

impl Hooks {
    pub fn new(
        client: Client,
        deployed: Arc<Deployed>,
        meter: Arc<Meter>,
        output: Arc<Output>,
        chunk_bytes: usize,
    ) -> Self {
        let requests = Requests::new(client, deployed, output.request_id());
        Self { requests, meter, output, denied: false, chunk_bytes }
    }

    pub fn next_call(&mut self, meter: Arc<Meter>, request_id: Arc<str>) {
        self.meter = meter;
        self.requests.next_call(request_id);
    }
}

impl WasiHttpHooks for Hooks {
    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        self.chunk_bytes
    }

    fn send_request(
        &mut self,
        mut request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<
        dyn Future<Output = Result<(Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>>
            + Send,
    > {
        let reach = match self.requests.granted(request.uri()) {
            Ok(reach) => reach,
            Err(why) => {
                // The guest is told no more than that, whatever it makes of it.
                self.note_denied(&why);
                return Box::new(async { Err(Error::HttpRequestDenied) });
            }
        };
        self.meter.sent.store(true, SeqCst);
        self.requests.trace.add_to(request.headers_mut());
        let (client, caused) = (self.requests.client.clone(), self.requests.caused());
        let RequestOptions { connect_timeout, first_byte_timeout, between_bytes_timeout } = options.unwrap_or_default();
        // The time for the first byte begins when there is a connection.
        let wait = first_byte_timeout.map(|wait| wait.saturating_add(connect_timeout.unwrap_or_default()));
        let timeout = time_left(wait, self.meter.deadline);
        let output = self.output.clone();
        Box::new(async move {
            caused.await.map_err(|problem| Error::InternalError(Some(problem.detail.into_owned())))?;
            let answered = tokio::time::timeout(timeout, client.request(reach, connect_timeout, request)).await;
            let response = answered.map_err(|_| Error::ConnectionReadTimeout)?.map_err(|unsent| {
                if let Unsent::Inner(_) = unsent {
                    output.note(Level::Warn, &format!("outgoing request denied: {unsent}"));
                }
                error_of(unsent)
            })?;
            let response = response.map(|body| Paced::new(body, between_bytes_timeout).boxed_unsync());
            let io: Box<dyn Future<Output = Result<(), Error>> + Send> = Box::new(async { Ok(()) });
            Ok((response, io))
        })
    }
}

impl Hooks {
    fn note_denied(&mut self, why: &str) {
        if !std::mem::replace(&mut self.denied, true) {
            self.output.note(Level::Warn, &format!("outgoing request denied: {why}"));
        }
    }
}

fn error_of(unsent: Unsent) -> Error {
    match unsent {
        Unsent::Inner(_) => Error::DestinationIpProhibited,
        Unsent::NameUnknown => Error::DnsError { rcode: None, info_code: None },
        Unsent::Refused => Error::ConnectionRefused,
        Unsent::Unreachable => Error::DestinationUnavailable,
        Unsent::ConnectTimedOut => Error::ConnectionTimeout,
        Unsent::Tls(_) => Error::TlsProtocolError,
        Unsent::Broken(_) => Error::HttpProtocolError,
    }
}

/// A response's body that fails when its sender pauses for too long.
struct Paced {
    inner: Incoming,
    pause_max: Option<Duration>,
    /// Set while there is nothing to read.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl Paced {
    fn new(inner: Incoming, pause_max: Option<Duration>) -> Self {
        Self { inner, pause_max, alarm: None }
    }
}

impl Body for Paced {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            this.alarm = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Error::Hyper)));
        }
        let Some(pause_max) = this.pause_max else { return Poll::Pending };
        let alarm = this.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause_max)));
        alarm.as_mut().poll(cx).map(|()| Some(Err(Error::ConnectionReadTimeout)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl contract::Host for UnitState {
    async fn send(&mut self, request: contract::Request) -> wasmtime::Result<Result<contract::Response, types::Error>> {
        let contract::Request { method, url, headers, body, timeout_ms } = request;
        let timeout = timeout_ms.map(|ms| Duration::from_millis(ms.into()));
        let request = Outbound { method, url, headers, body, timeout };
        let deadline = self.http.meter.deadline;
        let whole = |bytes: Bytes| Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
        let call = self.handling.key(&self.http.requests.request_id, deadline);
        self.http.requests.cause = self.handling.cause();
        let response = self.http.requests.send(request, &call, deadline, whole).await;
        Ok(response
            .map(|response| contract::Response {
                status: response.status,
                headers: response.headers,
                body: response.body,
            })
            .map_err(Into::into))
    }
}
