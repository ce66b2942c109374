//! Calls that are answered later: a request of an async route becomes an event, and 202 says where its result will be.
//!
//! The answer comes once the event is durable, together with the note that its result is waited for. A request that is
//! a CloudEvent stays that event, unless it claims to be one that a gate made; any other becomes an `http.request`.

use super::asker::Asker;
use super::events::refuse_forged;
use super::functions::Target;
use super::serve::ReplyBody;
use super::{Failed, Node, clock, event, results};
use ::event::{Event, Gate};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use manifest::RESULTS;
use problem::{Code, Problem};
use serde_json::json;
use state::{Push, Pushed};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

/// Names a request, so that sending it again does no more than sending it once.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Bytes of such a name.
const KEY_BYTES_MAX: usize = 255;

/// Takes a request of an async route.
///
/// # Errors
/// Why it was not taken; nothing will happen then, except that with [`Code::DiskFailed`] nobody knows.
pub async fn accept<B>(
    node: &Node,
    target: &Target,
    asker: &Asker,
    request: Request<B>,
) -> Result<Response<ReplyBody>, Failed>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Display,
{
    let (live, counters) = (&target.live, &target.live.identity.counters);
    let refused = |problem: Problem| {
        counters.refused(problem.code);
        Failed::from(problem)
    };
    let (head, body) = request.into_parts();
    let limits = &live.function.limits;
    let collected = node.bodies.collect(body, limits.body_bytes, limits.time()).await.map_err(refused)?;
    let mut events = events_of(&head, collected.data, target).map_err(refused)?;
    events.iter_mut().for_each(|event| event.came_by(Gate::Http, &asker.name));
    let locations = push(node, target, head.uri.path(), events).await.map_err(refused)?;
    drop(collected.share);
    Ok(accepted(&locations))
}

/// Answers who asks for the result of an earlier call, once the handling that it came from is durable.
///
/// # Errors
/// [`Code::EventUnknown`]: there is none. Those of the disk.
pub async fn result(node: &Node, target: &Target, asker: &Asker, path: &str) -> Result<Response<ReplyBody>, Failed> {
    let id = path.rsplit('/').next().unwrap_or_default();
    let state = node.events.state();
    let whole = || asker.reads_details(node, target);
    let (reply, seen) = results::read(state, target.live.name(), id, &target.reply_type, whole)?;
    state.durable(seen).await?;
    let (head, bytes) = reply.into_parts();
    let bytes = handling::kept(&node.budget, bytes).map_err(Problem::from)?;
    Ok(Response::from_parts(head, ReplyBody::Whole(bytes)))
}

fn events_of(head: &Parts, data: Vec<u8>, target: &Target) -> Result<Vec<Event>, Problem> {
    let now_ms = clock::now_ms();
    let data_bytes_max = usize::try_from(target.live.function.limits.body_bytes).unwrap_or(usize::MAX);
    let limits = cloudevents::Limits { data_bytes_max, ..cloudevents::Limits::default() };
    if let Some(mut events) = cloudevents::decode(&head.headers, &data, now_ms, &limits)? {
        for event in &mut events {
            refuse_forged(event)?;
            // The route decided who may send to this path. A function that is sent the event over HTTP sees the same
            // path.
            event.attributes.push(("httppath".to_owned(), head.uri.path().to_owned()));
        }
        return Ok(events);
    }
    let id = match head.headers.get(IDEMPOTENCY_KEY) {
        None => random_id()?,
        Some(key) => match key.to_str() {
            Ok(key) if (1..=KEY_BYTES_MAX).contains(&key.len()) => key.to_owned(),
            _ => {
                let detail = format!("{IDEMPOTENCY_KEY} is not 1 to {KEY_BYTES_MAX} printable characters");
                return Err(Problem::new(Code::EventInvalid, detail));
            }
        },
    };
    let origin = event::Origin { source: &target.source, request_id: &id, time_ms: now_ms, traceparent: None };
    Ok(vec![event::from_request(head, data, origin)?])
}

/// Pushes the events and notes that their results are waited for, in one transaction; says where they will be. None
/// for one that came before, and whose result is not known any more.
///
/// # Errors
/// [`Code::ResultsFull`]: the function has as many results as it may. [`Code::QueueFull`], and those of a commit.
async fn push(node: &Node, target: &Target, path: &str, events: Vec<Event>) -> Result<Vec<Option<String>>, Problem> {
    let function = target.live.name();
    let queue = target.live.function.handles(function).unwrap_or(function);
    let remembers = node.events.state().queue(queue.as_str())?.config().deduplicate.is_some();
    let queue: Arc<str> = queue.as_str().into();
    let mut ids = Vec::with_capacity(events.len());
    let mut pushes = Vec::with_capacity(events.len());
    for mut event in events {
        // Where events are remembered, one that comes again leads to the result of the first.
        let id = if remembers { node.result_ids.of(function.as_str(), &event) } else { random_id()? };
        event.attributes.push((results::ATTRIBUTE.to_owned(), id.clone()));
        ids.push(id);
        pushes.push(Push { event, delay: Duration::ZERO, ttl: None });
    }
    let (are_kept, ticket) = node
        .events
        .commit(|into| {
            let mut are_kept = Vec::with_capacity(ids.len());
            for (id, push) in ids.iter().zip(&mut pushes) {
                are_kept.push(match into.push(&queue, push, None)? {
                    Pushed::Accepted => results::expect(into.transaction(), function, id).map(|()| true)?,
                    // It has expired, or a restore without keys has left its id behind.
                    Pushed::Duplicate => results::is_kept(into.transaction(), function, id)?,
                });
            }
            Ok::<_, Problem>(are_kept)
        })
        // The only bucket that is written to.
        .map_err(|problem| if problem.code == Code::BucketFull { results::full(function) } else { problem })?;
    node.events.state().durable(ticket).await?;
    let above = above_results(path, &target.pattern);
    let locations = ids.iter().zip(are_kept).map(|(id, is_kept)| is_kept.then(|| format!("{above}{RESULTS}{id}")));
    Ok(locations.collect())
}

/// The path of the route, as the client wrote it: results are read below it.
fn above_results<'a>(path: &'a str, pattern: &'a str) -> &'a str {
    match pattern.strip_suffix("/*") {
        Some(prefix) => prefix,
        None => path.trim_end_matches('/'),
    }
}

fn accepted(locations: &[Option<String>]) -> Response<ReplyBody> {
    let body = json!({ "results": locations }).to_string() + "\n";
    let mut reply = Response::new(ReplyBody::Whole(body.into()));
    *reply.status_mut() = StatusCode::ACCEPTED;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let [Some(location)] = locations
        && let Ok(location) = HeaderValue::from_str(location)
    {
        reply.headers_mut().insert(LOCATION, location);
    }
    reply
}

/// 32 hexadecimal digits nobody can guess.
fn random_id() -> Result<String, Problem> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Problem::new(Code::Internal, format!("no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
