//! Outgoing HTTP: one client with kept connections, after a grant was found.

use budget::{Purpose, Share};
use bytes::Bytes;
use egress::{Caller, Clients, Unsent, is_inner, must_be_named, time_left};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Full, Limited};
use manifest::HostGrant;
use problem::Problem;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Instant;
use unit::{Deployed, Inbound, Outbound, Reach, Refusal};

/// Bytes of a response that is read whole.
const RESPONSE_BYTES_MAX: usize = 8 << 20;

/// Headers a function does not set. `host` would reach another site behind the same address than the one it was
/// granted.
const OWN_HEADERS: [&str; 8] =
    ["host", "connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];

/// Header by which a receiver can tell a rerun from a new request.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Headers by which a receiver finds the trace it is part of, as the W3C names them.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The trace a call belongs to, as its outgoing requests carry it on: what a receiver does is then a child of the call.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    parent: Option<HeaderValue>,
    state: Option<HeaderValue>,
}

impl Trace {
    /// What cannot be a header is none.
    pub fn new(parent: Option<&str>, state: Option<&str>) -> Self {
        let value = |value: Option<&str>| value.and_then(|value| HeaderValue::from_str(value).ok());
        Self { parent: value(parent), state: value(state) }
    }

    /// The function's own trace, if it sets one, is kept whole.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        let Some(parent) = self.parent.as_ref().filter(|_| !headers.contains_key(TRACEPARENT)) else { return };
        headers.insert(TRACEPARENT, parent.clone());
        headers.remove(TRACESTATE);
        headers.extend(self.state.clone().map(|state| (TRACESTATE, state)));
    }
}

/// How far a grant lets a request go; if none covers its host, says which one would.
///
/// # Errors
/// What to add to the manifest.
pub fn reach(grants: &[HostGrant], uri: &Uri) -> Result<Reach, String> {
    // It says nothing to the host, and connections of one host would be kept apart by it.
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("a URL names no user and no password; send them in the header authorization".into());
    }
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
    let mut covering = grants.iter().filter(|grant| grant.covers(host, port)).peekable();
    if covering.peek().is_none() {
        return Err(format!("no grant covers {host}:{port}; add it to grants.hosts of the function"));
    }
    if covering.any(HostGrant::is_named) {
        return Ok(Reach::Named);
    }
    // An address in the request is connected to as it stands; names are asked when they are addresses.
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) if is_inner(address) => Err(must_be_named(address)),
        _ => Ok(Reach::Outer),
    }
}

/// A request on its way, which is sent and answered whole.
pub struct Sending<'a> {
    pub client: &'a Clients<Full<Bytes>>,
    pub deployed: &'a Deployed,
    pub trace: Trace,
    /// What tells it from every other request of the node.
    pub key: String,
    pub deadline: Instant,
}

impl Sending<'_> {
    /// Sends the request once `caused` is ready, and reads its response.
    ///
    /// # Errors
    /// It is no request, no grant covers it, or there was no answer.
    pub async fn send(
        self,
        request: Outbound,
        caused: impl Future<Output = Result<(), Problem>>,
    ) -> Result<Inbound, Refusal> {
        let timeout = time_left(request.timeout, self.deadline);
        if let Some(header) = own_header(&request) {
            return Err(Refusal::Invalid(format!("http.send: the header {header} follows from the request")));
        }
        let request =
            build(request, self.key, &self.trace).map_err(|error| Refusal::Invalid(format!("http.send: {error}")))?;
        if !matches!(request.uri().scheme_str(), Some("http" | "https")) {
            return Err(Refusal::Invalid(format!("http.send: {} is not an absolute http or https URL", request.uri())));
        }
        let reach = reach(&self.deployed.function.grants.hosts, request.uri()).map_err(Refusal::Denied)?;
        let host = request.uri().host().unwrap_or_default().to_owned();
        let unavailable = |why: String| Refusal::Unavailable(format!("http.send to {host}: {why}"));
        let exchange = async {
            caused.await.map_err(|problem| Refusal::Unavailable(problem.detail.into_owned()))?;
            let caller = Caller { function: self.deployed.name.as_str().into(), connect_max: None };
            let response = self.client.request(caller, reach, request).await.map_err(|unsent| match unsent {
                Unsent::Inner(address) => Refusal::Denied(must_be_named(address)),
                unsent => unavailable(unsent.to_string()),
            })?;
            let (head, body) = response.into_parts();
            let mut held = self.deployed.budget.share(Purpose::HostCalls);
            let body = collect(Limited::new(body, RESPONSE_BYTES_MAX), &mut held).await.map_err(unavailable)?;
            let headers = head.headers.iter();
            let headers =
                headers.map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
            Ok(Inbound { status: head.status.as_u16(), headers: headers.collect(), body, held })
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(unavailable(format!("no answer within {} ms", timeout.as_millis()))),
        }
    }
}

/// Reads a body to its end, after room for each piece was found.
async fn collect<B>(body: B, held: &mut Share) -> Result<Vec<u8>, String>
where
    B: Body<Data = Bytes, Error: fmt::Display>,
{
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        if let Some(data) = frame.data_ref() {
            held.grow(data.len() as u64).map_err(|full| Problem::from(full).detail.into_owned())?;
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes)
}

/// A header that a grant, the body or the connection decides, and a function cannot.
fn own_header(request: &Outbound) -> Option<&str> {
    let names = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let is_own = |(name, value): &(&str, &str)| match name.to_ascii_lowercase().as_str() {
        "content-length" => value.trim().parse() != Ok(request.body.len()),
        name => OWN_HEADERS.contains(&name),
    };
    names.into_iter().find(is_own).map(|(name, _)| name)
}

fn build(request: Outbound, key: String, trace: &Trace) -> Result<Request<Full<Bytes>>, http::Error> {
    let mut built = Request::builder().method(request.method.as_str()).uri(request.url);
    let mut has_key = false;
    for (name, value) in &request.headers {
        has_key |= name.eq_ignore_ascii_case(IDEMPOTENCY_KEY);
        built = built.header(name, value);
    }
    if !has_key {
        built = built.header(IDEMPOTENCY_KEY, key);
    }
    let mut built = built.body(Full::new(Bytes::from(request.body)))?;
    trace.add_to(built.headers_mut());
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outgoing::TRACE;

    #[test]
    fn a_function_sets_no_header_that_grants_and_connections_depend_on() {
        let own = |name: &str, value: &str| {
            let headers = vec![("accept".to_owned(), "*/*".to_owned()), (name.to_owned(), value.to_owned())];
            own_header(&Outbound { headers, body: b"four".to_vec(), ..Outbound::default() }).is_some()
        };
        for (name, value) in [
            ("host", "admin.example"),
            ("Host", "x"),
            ("Transfer-Encoding", "chunked"),
            ("content-length", "5"),
            ("connection", "close"),
        ] {
            assert!(own(name, value), "{name}");
        }
        assert!(!own("content-length", "4") && !own("authorization", "Bearer x") && !own("x-host", "y"));
    }

    #[test]
    fn a_url_names_no_user() {
        let grants = [HostGrant::try_from("api.example".to_owned()).unwrap()];
        let reach = |uri: &str| reach(&grants, &uri.parse().unwrap());
        assert_eq!(reach("https://api.example/@me"), Ok(Reach::Named));
        for uri in ["https://u1@api.example/", "https://u1:secret@api.example/"] {
            assert!(reach(uri).is_err_and(|why| why.contains("no user") && !why.contains("secret")), "{uri}");
        }
    }

    #[test]
    fn a_request_belongs_to_the_trace_of_its_call_unless_the_function_sets_another() {
        let sent = |trace: &[(&str, &'static str)], own: &[(&str, &str)]| {
            let [parent, state] =
                TRACE.map(|wanted| trace.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value));
            let trace = Trace::new(parent, state);
            let headers = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let request = Outbound { method: "GET".into(), url: "http://x/".into(), headers, ..Outbound::default() };
            let built = build(request, "key".into(), &trace).unwrap();
            [TRACEPARENT, TRACESTATE].map(|name| {
                let values: Vec<_> =
                    built.headers().get_all(name).iter().map(|value| value.to_str().unwrap()).collect();
                values.join(" and ")
            })
        };
        let call = [("traceparent", "00-a"), ("tracestate", "vendor=1")];
        assert_eq!(sent(&call, &[]), ["00-a", "vendor=1"]);
        assert_eq!(sent(&call[..1], &[("tracestate", "other=2")]), ["00-a", ""]);
        assert_eq!(sent(&call, &[("Traceparent", "00-b")]), ["00-b", ""]);
        assert_eq!(sent(&[("tracestate", "vendor=1")], &[]), ["", ""]);
        assert_eq!(sent(&[("traceparent", "not\na header")], &[]), ["", ""]);
    }
}
