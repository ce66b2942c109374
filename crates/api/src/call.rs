//! Calls through the API: for tools and tests, and for functions without a route.

use super::reply::{Answer, of_query, whole};
use super::scope::MayCallSome;
use api_types::RequestId;
use api_types::Scope;
use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::response::Response;
use event::{Event, Gate};
use manifest::Isolation;
use node::body::{Collected, Share};
use node::events::refuse_forged;
use node::{Incoming, Node, ReplyBody, Wanted, clock, hide_token, reply_to_event, serve};
use problem::{Code, Problem};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Instant;
use unit::Contract;

/// Bytes of an event beside its data, when a whole event is sent as a frame.
const EVENT_BYTES_MAX: u64 = 1 << 20;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Wish {
    /// Method of the request as the function sees it. Default POST.
    method: Option<String>,
    /// Its path and query, as `/x?y=1`. Default `/`.
    path: Option<String>,
}

/// Calls a function.
///
/// A `lighter:unit` function gets an event whose data is the body; or, with the content type
/// `application/vnd.lighter.frame`, the event the body holds. A `wasi:http` function gets the request itself, under the
/// method and path of the query. The reply is the function's own, with `server-timing` and `x-request-id`.
#[utoipa::path(post, path = "/v1/functions/{name}/call", tag = "functions", params(("name" = String, Path), Wish),
    request_body(content_type = "application/octet-stream", content = Vec<u8>), responses(
    (status = 200, description = "The reply; a wasi:http function chooses its own status", body = Vec<u8>),
    (status = 404, description = "L2001: no such function"),
    (status = 422, description = "L6003: the function says the event can never be handled"),
    (status = 500, description = "L6001, L6005: the unit trapped, or the function failed"),
    (status = 503, description = "L3007, L3009, L3010, L6004: no room now, or the function asks to try again"),
    (status = 504, description = "L3001, L3002: out of time"),
))]
pub async fn call(
    MayCallSome(who): MayCallSome,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    wish: Result<Query<Wish>, QueryRejection>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    mut request: Request,
) -> Answer<Response> {
    let arrived = Instant::now();
    who.token.may_call(&name)?;
    let live = node.functions.get(&name)?.live;
    check_headers(&node, &name, live.function.isolation, request.headers())?;
    let wish = of_query(wish)?;
    let reply_type = live.function.http.first().and_then(|trigger| trigger.reply_type.as_deref());
    let reply_type = reply_type.and_then(|kind| HeaderValue::from_str(kind).ok());
    let wanted = Wanted {
        live: &live,
        source: &format!("/v1/functions/{}/call", live.name()),
        gate: Gate::Api,
        sender: &who.token.name,
        reply_type: &reply_type.unwrap_or(HeaderValue::from_static("application/octet-stream")),
        request_id: request_id.clone(),
        arrived,
    };
    hide_token(request.headers_mut());
    let is_frame = request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == frame::MEDIA_TYPE);
    let response = if is_frame && live.contract == Contract::Unit {
        let limit = live.function.limits.body_bytes;
        let (mut event, _share) = read_frame(&node, request.into_body(), limit, &wanted).await?;
        if !who.token.may(Scope::Deploy) {
            refuse_forged(&event)?;
        }
        event.came_by(Gate::Api, &who.token.name);
        let incoming = Incoming { live: live.clone(), request_id, arrived, trace: None };
        reply_to_event(&node, &wanted, incoming, event).await?
    } else {
        address(&mut request, &wish)?;
        serve(&node, wanted, request).await?
    };
    Ok(response.map(|body| match body {
        ReplyBody::Whole(bytes) => Body::from(bytes),
        streaming => Body::new(streaming),
    }))
}

/// Refuses a header that means something to another class than the function's.
fn check_headers(node: &Node, name: &str, isolation: Isolation, headers: &HeaderMap) -> Result<(), Problem> {
    let others = node.functions.loader.classes.iter().filter(|offered| offered.units.isolation() != isolation);
    match others.filter_map(|offered| offered.class.header()).find(|header| headers.contains_key(header.name)) {
        None => Ok(()),
        Some(header) => {
            let detail = format!("{} is named, but {name} has isolation = {:?}", header.names, isolation.as_str());
            Err(Problem::new(Code::ApiRequest, detail))
        }
    }
}

/// Gives the request the method and path it should be seen with.
fn address(request: &mut Request, wish: &Wish) -> Result<(), Problem> {
    let bad = |what: &str, value: &str| Problem::new(Code::ApiRequest, format!("{value:?} is no {what} of a request"));
    let method = wish.method.as_deref().unwrap_or("POST");
    *request.method_mut() = Method::from_bytes(method.as_bytes()).map_err(|_| bad("method", method))?;
    let path = wish.path.as_deref().unwrap_or("/");
    let uri = path.starts_with('/').then(|| path.parse::<Uri>().ok()).flatten();
    let mut parts = uri.ok_or_else(|| bad("path", path))?.into_parts();
    // A request of HTTP/2 has its host in the address and nowhere else.
    (parts.scheme, parts.authority) = (request.uri().scheme().cloned(), request.uri().authority().cloned());
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| bad("path", path))?;
    Ok(())
}

/// An event in a frame, and its share of the room for bodies.
async fn read_frame(
    node: &Node,
    body: Body,
    body_bytes_max: u64,
    wanted: &Wanted<'_>,
) -> Result<(Event, Option<Share>), Problem> {
    let bytes_max = body_bytes_max.saturating_add(EVENT_BYTES_MAX);
    let Collected { data, share } = whole(node, body, bytes_max).await?;
    let limits = frame::Limits { total_bytes_max: bytes_max, ..frame::Limits::default() };
    let mut event = frame::decode_event(&data, &limits)
        .map_err(|error| Problem::new(Code::ApiRequest, format!("the body is not a frame with an event: {error}")))?;
    if event.data.len() as u64 > body_bytes_max {
        let detail = format!("the event has {} bytes of data, limits.body_bytes is {body_bytes_max}", event.data.len());
        return Err(Problem::new(Code::BodyTooLarge, detail));
    }
    if event.id.is_empty() {
        event.id = wanted.request_id.to_string();
    }
    if event.source.is_empty() {
        event.source = wanted.source.to_owned();
    }
    if event.time_ms == 0 {
        event.time_ms = clock::now_ms();
    }
    Ok((event, share))
}
