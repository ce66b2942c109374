//! A request for a function, from the gate or the API: made into work, run, and its reply made into a response.

use super::body::Collected;
use super::call::{Failed, Incoming, Trace};
use super::functions::Live;
use super::metrics::Times;
use super::timing::{SERVER_TIMING, server_timing};
use super::{Node, clock, event, events, traces};
use ::event::Gate;
use api_types::REQUEST_ID;
use bytes::Bytes;
use fleet_link::FarReply;
use handling::{Content, Work};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt, Empty};
use problem::{Code, Problem};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Instant, SystemTime};
use unit::{Body, Contract, LimitedBody};

pub const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static(REQUEST_ID);

/// Which function is wanted, and by whom.
pub struct Wanted<'a> {
    pub live: &'a Arc<Live>,
    /// The source of the event, as `/http/hello`.
    pub source: &'a str,
    pub gate: Gate,
    /// The name of the token it came with, where one was needed.
    pub sender: &'a str,
    /// Media type of the reply of a function that handles events.
    pub reply_type: &'a HeaderValue,
    pub request_id: Arc<str>,
    pub arrived: Instant,
}

/// What a response carries.
pub enum ReplyBody {
    Whole(Bytes),
    Streaming(Body),
    /// Of another node.
    Far(Box<FarReply>),
}

/// Runs one request. Dropping the future, or the body of a streaming response, stops the unit.
///
/// # Errors
/// Whatever keeps the function from replying; counted already.
pub async fn serve<B>(node: &Node, wanted: Wanted<'_>, mut request: Request<B>) -> Result<Response<ReplyBody>, Failed>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Display,
{
    let trace = node.traces.as_ref().map(|traces| {
        let callers = request.headers().get(traces::HEADER).and_then(|value| value.to_str().ok());
        Trace { traces: traces.clone(), span: traces.begin(callers, SystemTime::now()) }
    });
    if trace.as_ref().is_some_and(|trace| trace.span.is_first()) {
        request.headers_mut().remove(traces::STATE_HEADER);
    }
    let live = wanted.live.clone();
    let incoming = Incoming { live, request_id: wanted.request_id.clone(), arrived: wanted.arrived, trace };
    match wanted.live.contract {
        Contract::Unit | Contract::Call => serve_event(node, &wanted, incoming, request).await,
        Contract::WasiHttp => serve_http(node, &wanted, incoming, request).await,
    }
}

/// For a handler of `lighter:unit`: the whole body becomes the data of an event.
async fn serve_event<B>(
    node: &Node,
    wanted: &Wanted<'_>,
    incoming: Incoming,
    request: Request<B>,
) -> Result<Response<ReplyBody>, Failed>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Display,
{
    let (head, body) = request.into_parts();
    let limits = &wanted.live.function.limits;
    let collected = node.bodies.collect(body, limits.body_bytes, limits.time()).await;
    let Collected { data, share } = collected.map_err(|problem| incoming.refused(problem))?;
    let origin = event::Origin {
        source: wanted.source,
        request_id: &wanted.request_id,
        time_ms: clock::now_ms(),
        traceparent: incoming.trace.as_ref().map(|trace| trace.span.context.to_string()),
    };
    let mut event = match wanted.live.contract {
        Contract::Call => event::of_call(&head, data, origin),
        _ => event::from_request(&head, data, origin).map_err(|problem| incoming.refused(problem))?,
    };
    event.came_by(wanted.gate, wanted.sender);
    reply_to_event(node, wanted, incoming, event).await.inspect(|_| drop(share))
}

/// Hands over an event that is ready, and makes a response of the bytes that come back.
pub async fn reply_to_event(
    node: &Node,
    wanted: &Wanted<'_>,
    incoming: Incoming,
    event: ::event::Event,
) -> Result<Response<ReplyBody>, Failed> {
    let answer = incoming.run(&node.functions.loader, Work::Event(event), None).await?;
    let timing = server_timing(&answer.times);
    let mut response = match answer.content {
        Content::Bytes(bytes) => {
            let mut response = Response::new(ReplyBody::Whole(bytes));
            let is_call = wanted.live.contract == Contract::Call;
            let kind = if is_call { HeaderValue::from_static(frame::MEDIA_TYPE) } else { wanted.reply_type.clone() };
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        Content::Http(response) => response.map(ReplyBody::Streaming),
    };
    response.headers_mut().insert(SERVER_TIMING, timing);
    count_error(wanted, &response);
    keep_times(node, &mut response, answer.times);
    Ok(response)
}

/// For a handler of `wasi:http`: the request is passed through, its body as it arrives.
async fn serve_http<B>(
    node: &Node,
    wanted: &Wanted<'_>,
    incoming: Incoming,
    mut request: Request<B>,
) -> Result<Response<ReplyBody>, Failed>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Display,
{
    let headers = request.headers_mut();
    headers.remove(events::GATE_HEADER);
    if let Some(trace) = &incoming.trace {
        let context = trace.span.context.to_string();
        headers.insert(traces::HEADER, context.parse().expect("hexadecimal digits make a header"));
    }
    if let Ok(id) = HeaderValue::from_str(&wanted.request_id) {
        headers.insert(REQUEST_ID_HEADER, id);
    }
    let limit_bytes = wanted.live.function.limits.body_bytes;
    if request.body().size_hint().lower() > limit_bytes {
        return Err(incoming.refused(too_large(limit_bytes)).into());
    }
    let exceeded = (!request.body().is_end_stream()).then(|| Arc::new(AtomicBool::new(false)));
    let request = request.map(|body| match &exceeded {
        Some(exceeded) => LimitedBody::new(body, limit_bytes, exceeded.clone()).boxed_unsync(),
        None => Empty::new().map_err(|never| match never {}).boxed_unsync(),
    });
    let answer = incoming.run(&node.functions.loader, Work::Http(request), None).await;
    let answer = answer.map_err(|failed| match exceeded.is_some_and(|exceeded| exceeded.load(Relaxed)) {
        true => too_large(limit_bytes).into(),
        false => failed,
    })?;
    let mut response = match answer.content {
        Content::Http(response) => response.map(ReplyBody::Streaming),
        Content::Bytes(bytes) => Response::new(ReplyBody::Whole(bytes)),
    };
    response.headers_mut().insert(SERVER_TIMING, server_timing(&answer.times));
    count_error(wanted, &response);
    keep_times(node, &mut response, answer.times);
    Ok(response)
}

/// A status that says that the function failed.
fn count_error(wanted: &Wanted<'_>, response: &Response<ReplyBody>) {
    if response.status().is_server_error() {
        wanted.live.identity.counters.error_replied();
    }
}

/// In a fleet it counts how long calls run.
fn keep_times(node: &Node, response: &mut Response<ReplyBody>, times: Times) {
    if node.link().is_some() {
        response.extensions_mut().insert(times);
    }
}

fn too_large(limit_bytes: u64) -> Problem {
    Problem::new(Code::BodyTooLarge, format!("the request body has more than limits.body_bytes of {limit_bytes} bytes"))
}
