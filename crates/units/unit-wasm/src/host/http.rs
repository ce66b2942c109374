//! Outgoing HTTP, for both contracts: one client with kept connections, asked for a grant first.

use crate::bindings::lighter::unit::http as contract;
use crate::bindings::types;
use crate::engine::Series;
use crate::holdings::Held;
use crate::host::requests::{Carried, Requests, UnderWay};
use crate::meter::Meter;
use crate::unit_state::UnitState;
use bytes::Bytes;
use egress::{Caller, Clients, Unsent, time_left};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;
use unit::{Denied, Departure, Host, Outbound, Output};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

/// What a response that nobody reads may take: the window of its stream.
pub const WINDOW_BYTES: u64 = egress::WINDOW_BYTES as u64;

/// Shared: every unit holds one, and most send nothing.
pub type Client = Arc<Clients<WasiBody>>;

/// One unit's outgoing requests.
pub struct Hooks {
    client: Client,
    /// None while the unit waits for its next call.
    host: Option<Arc<dyn Host>>,
    meter: Arc<Meter>,
    output: Arc<Output>,
    /// Bytes of a chunk of an outgoing body.
    chunk_bytes: usize,
    /// Those under way.
    requests: Arc<Requests>,
    series: Series,
}

impl Hooks {
    pub fn new(
        client: Client,
        host: Arc<dyn Host>,
        meter: Arc<Meter>,
        output: Arc<Output>,
        chunk_bytes: usize,
        series: Series,
    ) -> Self {
        Self { client, host: Some(host), meter, output, chunk_bytes, requests: Arc::default(), series }
    }

    /// What is held without a handle; for a unit of WASI 0.3 that `has_head`, chunks of its reply's body too.
    pub fn under_way(&self, has_head: bool) -> Held {
        let held = self.requests.held();
        match self.series {
            // A handle stands for each answer.
            Series::Wasi02 => Held { windows: 0, ..held },
            Series::Wasi03 if has_head => Held { unit: held.unit + self.chunks_bytes(), ..held },
            Series::Wasi03 => held,
        }
    }

    /// Of a body on its way out: one chunk that is sent, one that waits, one that is written.
    fn chunks_bytes(&self) -> u64 {
        3 * self.chunk_bytes as u64
    }

    pub fn next_call(&mut self, meter: Arc<Meter>, host: Arc<dyn Host>) {
        self.meter = meter;
        self.host = Some(host);
    }

    pub fn end_call(&mut self) {
        self.host = None;
    }
}

impl WasiHttpHooks for Hooks {
    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        self.chunk_bytes
    }

    fn p3_outgoing_body_chunk_size(&mut self) -> usize {
        self.chunk_bytes
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<
        dyn Future<Output = Result<(Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>>
            + Send,
    > {
        let (mut head, body) = request.into_parts();
        let texts = head.uri.authority().map_or(0, |authority| authority.as_str().len())
            + head.uri.path_and_query().map_or(0, |path| path.as_str().len());
        let Some(under_way) = self.requests.begin(&head.headers, texts as u64 + self.chunks_bytes()) else {
            return Box::new(async { Err(Error::ConnectionLimitReached) });
        };
        let host = self.host.as_ref().expect("a unit works for somebody");
        let Departure { function, reach, caused } = match host.departs(&head.uri, &mut head.headers) {
            Ok(departure) => departure,
            Err(why) => {
                // The guest is told no more than that, whatever it makes of it.
                self.output.note_denied(Denied::Request, &format!("outgoing request denied: {why}"));
                return Box::new(async { Err(Error::HttpRequestDenied) });
            }
        };
        let body = Carried::new(body, Some(under_way.clone())).boxed_unsync();
        let is_streams = self.series == Series::Wasi03;
        let (client, request) = (self.client.clone(), Request::from_parts(head, body));
        let RequestOptions { connect_timeout, first_byte_timeout, between_bytes_timeout } = options.unwrap_or_default();
        // The time for the first byte begins when there is a connection.
        let wait = first_byte_timeout.map(|wait| wait.saturating_add(connect_timeout.unwrap_or_default()));
        let timeout = time_left(wait, self.meter.deadline);
        let output = self.output.clone();
        let caller = Caller { function, connect_max: connect_timeout };
        Box::new(async move {
            caused.await.map_err(|problem| Error::InternalError(Some(problem.detail.into_owned())))?;
            let answered = tokio::time::timeout(timeout, client.request(caller, reach, request)).await;
            let response = answered.map_err(|_| Error::ConnectionReadTimeout)?.map_err(|unsent| {
                if let Unsent::Inner(_) = unsent {
                    output.note_denied(Denied::Address, &format!("outgoing request denied: {unsent}"));
                }
                error_of(unsent)
            })?;
            let under_way: UnderWay = Some(under_way).filter(|_| is_streams);
            let response =
                response.map(|body| Carried::new(Paced::new(body, between_bytes_timeout), under_way).boxed_unsync());
            let io: Box<dyn Future<Output = Result<(), Error>> + Send> = Box::new(async { Ok(()) });
            Ok((response, io))
        })
    }
}

fn error_of(unsent: Unsent) -> Error {
    match unsent {
        Unsent::Inner(_) => Error::DestinationIpProhibited,
        Unsent::NameUnknown => Error::DnsError { rcode: None, info_code: None },
        Unsent::Refused => Error::ConnectionRefused,
        Unsent::Unreachable => Error::DestinationUnavailable,
        Unsent::ConnectTimedOut => Error::ConnectionTimeout,
        Unsent::Full => Error::ConnectionLimitReached,
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
        // While the other host takes its time, this one keeps all of it.
        let fields = headers.iter().map(|header| size_of_val(header) + header.0.len() + header.1.len()).sum::<usize>();
        self.noted_bytes(method.len() + url.len() + fields + body.len()).map_err(wasmtime::Error::new)?;
        let timeout = timeout_ms.map(|ms| Duration::from_millis(ms.into()));
        let request = Outbound { method, url, headers, body, timeout };
        let host = self.host().clone();
        let response = host.send(request).await;
        self.limiter.host_adds(0).map_err(wasmtime::Error::new)?;
        Ok(response
            .map(|response| contract::Response {
                status: response.status,
                headers: response.headers,
                body: response.body,
            })
            .map_err(Into::into))
    }
}
