//! Sends spans by OTLP over HTTP, with the blocking client the command line uses: the thread that calls it has nothing
//! else to do.

use bytes::Bytes;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use problem::{Code, Problem};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

const PATH: &str = "/v1/traces";
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an answer; only its status is of interest.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

pub fn new(url: &str) -> Result<SpanExporter, Problem> {
    let url = url.trim_end_matches('/');
    let endpoint = if url.ends_with(PATH) { url.to_owned() } else { format!("{url}{PATH}") };
    let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).build();
    SpanExporter::builder()
        .with_http()
        .with_http_client(Client { agent: config.into() })
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(TIMEOUT)
        .with_endpoint(endpoint)
        .build()
        .map_err(|error| Problem::new(Code::ConfigInvalid, format!("otlp {url:?}: {error}")))
}

#[derive(Debug)]
struct Client {
    agent: ureq::Agent,
}

impl HttpClient for Client {
    fn send_bytes<'a, 'f>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        'a: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let answer = self.agent.run(Request::from_parts(head, body.to_vec()))?;
            let (head, mut body) = answer.into_parts();
            let bytes = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
            Ok(Response::from_parts(head, bytes.into()))
        })
    }
}
