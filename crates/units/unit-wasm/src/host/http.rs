//! Outgoing HTTP, for both contracts: one client with kept connections, asked for a grant first.

use crate::bindings::lighter::unit::http as contract;
use crate::bindings::types;
use crate::host::HOST_BYTES_MAX;
use crate::meter::Meter;
use crate::unit_state::UnitState;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use unit::Deployed;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

/// How long a unit waits for a host to answer, if it does not say.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Header by which a receiver can tell a rerun from a new request.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

pub type Client = hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, WasiBody>;

/// A client whose connections belong to the current runtime, not to the threads of whichever unit opened them.
pub fn client() -> Client {
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_webpki_roots()
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .build();
    hyper_util::client::legacy::Client::builder(OnRuntime(Handle::current())).pool_idle_timeout(Duration::from_secs(30)).build(connector)
}

#[derive(Clone)]
struct OnRuntime(Handle);

impl<F> hyper::rt::Executor<F> for OnRuntime
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// One unit's outgoing requests.
pub struct Hooks {
    client: Client,
    deployed: Arc<Deployed>,
    meter: Arc<Meter>,
    request_id: Arc<str>,
    sent: u32,
}

impl Hooks {
    pub fn new(client: Client, deployed: Arc<Deployed>, meter: Arc<Meter>, request_id: Arc<str>) -> Self {
        Self { client, deployed, meter, request_id, sent: 0 }
    }

    pub fn next_call(&mut self, meter: Arc<Meter>, request_id: Arc<str>) {
        self.meter = meter;
        self.request_id = request_id;
        self.sent = 0;
    }

    /// Whether a grant covers the request's host; if not, says which one would.
    fn granted(&self, uri: &Uri) -> Result<(), String> {
        let host = uri.host().unwrap_or_default();
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
        if self.deployed.function.grants.hosts.iter().any(|grant| grant.covers(host, port)) {
            Ok(())
        } else {
            Err(format!("no grant covers {host}:{port}; add it to grants.hosts of the function"))
        }
    }

    /// The same for the same request of a rerun, different for every other.
    fn idempotency_key(&mut self) -> String {
        self.sent += 1;
        format!("{}-{}", self.request_id, self.sent)
    }

    fn time_left(&self, wanted: Option<Duration>) -> Duration {
        wanted.unwrap_or(ANSWER_TIMEOUT).min(self.meter.deadline.saturating_duration_since(Instant::now()))
    }
}

impl WasiHttpHooks for Hooks {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<(Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>> + Send>
    {
        let granted = self.granted(request.uri());
        if granted.is_ok() {
            self.meter.sent.store(true, SeqCst);
        }
        let client = self.client.clone();
        let timeout = self.time_left(options.and_then(|options| options.first_byte_timeout));
        let (deployed, request_id) = (self.deployed.clone(), self.request_id.clone());
        Box::new(async move {
            if let Err(why) = granted {
                tracing::debug!(function = %deployed.name, %request_id, "outgoing request denied: {why}");
                return Err(Error::HttpRequestDenied);
            }
            let response = tokio::time::timeout(timeout, client.request(request))
                .await
                .map_err(|_| Error::ConnectionReadTimeout)?
                .map_err(|error| if error.is_connect() { Error::ConnectionRefused } else { Error::HttpProtocolError })?;
            let response = response.map(|body| body.map_err(Error::Hyper).boxed_unsync());
            let io: Box<dyn Future<Output = Result<(), Error>> + Send> = Box::new(async { Ok(()) });
            Ok((response, io))
        })
    }
}

impl contract::Host for UnitState {
    async fn send(&mut self, request: contract::Request) -> wasmtime::Result<Result<contract::Response, types::Error>> {
        Ok(send(&mut self.http, request).await)
    }
}

async fn send(hooks: &mut Hooks, request: contract::Request) -> Result<contract::Response, types::Error> {
    let timeout = hooks.time_left(request.timeout_ms.map(|ms| Duration::from_millis(ms.into())));
    let key = hooks.idempotency_key();
    let request = build(request, key).map_err(|error| types::Error::Invalid(format!("http.send: {error}")))?;
    if !matches!(request.uri().scheme_str(), Some("http" | "https")) {
        return Err(types::Error::Invalid(format!("http.send: {} is not an absolute http or https URL", request.uri())));
    }
    hooks.granted(request.uri()).map_err(types::Error::Denied)?;
    let host = request.uri().host().unwrap_or_default().to_owned();
    let unavailable = |why: String| types::Error::Unavailable(format!("http.send to {host}: {why}"));
    let exchange = async {
        let response = hooks.client.request(request).await.map_err(|error| unavailable(error.to_string()))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, HOST_BYTES_MAX).collect().await.map_err(|error| unavailable(error.to_string()))?;
        let headers = head.headers.iter();
        let headers = headers.map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
        Ok(contract::Response { status: head.status.as_u16(), headers: headers.collect(), body: body.to_bytes().to_vec() })
    };
    match tokio::time::timeout(timeout, exchange).await {
        Ok(result) => result,
        Err(_) => Err(unavailable(format!("no answer within {} ms", timeout.as_millis()))),
    }
}

fn build(request: contract::Request, idempotency_key: String) -> Result<Request<WasiBody>, http::Error> {
    let mut built = Request::builder().method(request.method.as_str()).uri(request.url);
    let mut has_key = false;
    for (name, value) in &request.headers {
        has_key |= name.eq_ignore_ascii_case(IDEMPOTENCY_KEY);
        built = built.header(name, value);
    }
    if !has_key {
        built = built.header(IDEMPOTENCY_KEY, idempotency_key);
    }
    let body = Full::new(Bytes::from(request.body)).map_err(|never| match never {}).boxed_unsync();
    built.body(body)
}
