//! Outgoing HTTP, for both contracts: one client with kept connections, asked for a grant first.

use crate::bindings::lighter::unit::http as contract;
use crate::bindings::types;
use crate::meter::Meter;
use crate::unit_state::UnitState;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use unit::{Deployed, Level};
use unit_host::Output;
use unit_host::http::{Outbound, Requests, time_left};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

pub type Client = unit_host::http::Client<WasiBody>;

/// One unit's outgoing requests.
pub struct Hooks {
    pub requests: Requests<WasiBody>,
    meter: Arc<Meter>,
    output: Arc<Output>,
    /// The log has been told which grant is missing: once is enough of a unit that asks in a loop.
    denied: bool,
}

impl Hooks {
    pub fn new(client: Client, deployed: Arc<Deployed>, meter: Arc<Meter>, output: Arc<Output>) -> Self {
        let requests = Requests::new(client, deployed, output.request_id());
        Self { requests, meter, output, denied: false }
    }

    pub fn next_call(&mut self, meter: Arc<Meter>, request_id: Arc<str>) {
        self.meter = meter;
        self.requests.next_call(request_id);
    }
}

impl WasiHttpHooks for Hooks {
    fn send_request(
        &mut self,
        mut request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<
        dyn Future<Output = Result<(Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>>
            + Send,
    > {
        if let Err(why) = self.requests.granted(request.uri()) {
            // The guest is told no more than that, whatever it makes of it.
            if !std::mem::replace(&mut self.denied, true) {
                self.output.note(Level::Warn, &format!("outgoing request denied: {why}"));
            }
            return Box::new(async { Err(Error::HttpRequestDenied) });
        }
        self.meter.sent.store(true, SeqCst);
        self.requests.trace.add_to(request.headers_mut());
        let client = self.requests.client.clone();
        let timeout = time_left(options.and_then(|options| options.first_byte_timeout), self.meter.deadline);
        Box::new(async move {
            let response = tokio::time::timeout(timeout, client.request(request))
                .await
                .map_err(|_| Error::ConnectionReadTimeout)?
                .map_err(
                    |error| if error.is_connect() { Error::ConnectionRefused } else { Error::HttpProtocolError },
                )?;
            let response = response.map(|body| body.map_err(Error::Hyper).boxed_unsync());
            let io: Box<dyn Future<Output = Result<(), Error>> + Send> = Box::new(async { Ok(()) });
            Ok((response, io))
        })
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
