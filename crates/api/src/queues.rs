//! Queues: list, push, look, purge, replay, remove.

use super::deployments::check_own;
use super::functions::detached;
use super::reply::{Answer, Json, of_query, whole};
use super::scope::{MayCallSome, MayDeploy, MayLookSome, Who};
use api_types::RequestId;
use api_types::{
    EventInfo, EventPage, PauseRequest, Paused, PushReply, QueueInfo, QueuePart, RemovedReply, ReplayReply,
    ReplayRequest, Scope, TokenInfo,
};
use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use event::{Event, Gate};
use node::body::Collected;
use node::events::refuse_forged;
use node::{Node, TRACEPARENT, clock};
use problem::{Code, Problem};
use serde::Deserialize;
use state::{Discard, Listed, PAGE_BYTES_MAX, Part, Position, Push, Pushed, Queue, Replay, Replayed};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a request with events: one of the largest, or a batch of smaller ones.
const BODY_BYTES_MAX: u64 = 12 << 20;
/// Events of one push: they are one transaction.
const EVENTS_MAX: u32 = 1_000;
/// Events of one page.
const PAGE_EVENTS_MAX: u32 = 1_000;
const PAGE_EVENTS: u32 = 20;
/// Events that are looked at for one page of those that failed for some reason; the next page goes on behind them.
const LOOKED_AT_MAX: usize = 10_000;
/// Dead letters that one request names.
const SEQUENCES_MAX: usize = 1_000;
/// How often a dead letter may be replayed; then it stays, unless the request says `force`: what cannot be handled
/// would go round for ever.
const REPLAYS_MAX: u32 = 5;
/// The longest an event can be made to wait.
const DELAY_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Every queue that is handled, configured or holds something, by name.
#[utoipa::path(get, path = "/v1/queues", tag = "events", responses((status = 200, body = Vec<QueueInfo>)))]
pub async fn list(MayLookSome(who): MayLookSome, State(node): State<Arc<Node>>) -> Answer<axum::Json<Vec<QueueInfo>>> {
    let names = node.events.queues();
    let seen = names.iter().filter(|name| who.token.covers_queue(name));
    Ok(axum::Json(seen.map(|name| node.describe_queue(name)).collect::<Result<_, _>>()?))
}

/// One queue.
#[utoipa::path(get, path = "/v1/queues/{name}", tag = "events", params(("name" = String, Path)), responses(
    (status = 200, body = QueueInfo),
    (status = 404, description = "L7001: there is none"),
))]
pub async fn get(
    MayLookSome(who): MayLookSome,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Answer<axum::Json<QueueInfo>> {
    who.token.may_push(&name)?;
    node.events.queue(&name)?;
    Ok(axum::Json(node.describe_queue(&name)?))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Pushing {
    /// Type of the event. Default `push`.
    #[serde(rename = "type")]
    #[param(rename = "type")]
    kind: Option<String>,
    /// Subject of the event.
    subject: Option<String>,
    /// Its id; by default the request id. A queue that deduplicates takes an id and source once.
    id: Option<String>,
    /// Its source. Default `/v1/queues/NAME`.
    source: Option<String>,
    /// Its attribute `partitionkey`: in a queue with `order = "key"`, events of one key are handled one after the
    /// other.
    key: Option<String>,
    /// How long it waits before it is handled, in milliseconds. Default 0.
    delay_ms: Option<u64>,
    /// How long it may wait in all, in milliseconds, if that is shorter than the queue's own `ttl`.
    ttl_ms: Option<u64>,
    /// Pushes the event this many times, 1 to 1,000, with ids that end in `-1`, `-2` and so on. Default 1.
    count: Option<u32>,
}

/// Pushes events to a queue, all of them or none. They are durable when the answer comes.
///
/// The body is the data of one event. Or, as CloudEvents 1.0 has it, headers `ce-id`, `ce-type` and so on say more of
/// it, or the body is an event or a list of events in JSON; the query then may only say `delay_ms` and `ttl_ms`.
#[utoipa::path(post, path = "/v1/queues/{name}/events", tag = "events", params(("name" = String, Path), Pushing),
    request_body(content_type = "application/octet-stream", content = Vec<u8>), responses(
    (status = 201, body = PushReply),
    (status = 400, description = "L4009, L7003: the query or the event is not right"),
    (status = 404, description = "L7001: there is no such queue"),
    (status = 413, description = "L3006, L7004: too large"),
    (status = 503, description = "L7002, L7008: the queue is full, or its workflow has ended"),
))]
pub async fn push(
    MayCallSome(who): MayCallSome,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    query: Result<Query<Pushing>, QueryRejection>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Answer<(StatusCode, axum::Json<PushReply>)> {
    who.token.may_push(&name)?;
    node.events.queue(&name)?;
    let pushing = of_query(query)?;
    push_to(&node, &name, &who.token, pushing, &request_id, &headers, body).await
}

/// Pushes events to the queue that a function handles; see the same of a queue.
#[utoipa::path(post, path = "/v1/functions/{name}/events", tag = "events", operation_id = "push_to_function",
    params(("name" = String, Path), Pushing), request_body(content_type = "application/octet-stream", content = Vec<u8>),
    responses(
    (status = 201, body = PushReply),
    (status = 404, description = "L2001, L7001: there is no such function, or it handles no queue"),
    (status = 503, description = "L7002, L7008: the queue is full, or its workflow has ended"),
))]
pub async fn push_to_function(
    MayCallSome(who): MayCallSome,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    query: Result<Query<Pushing>, QueryRejection>,
    Extension(RequestId(request_id)): Extension<RequestId>,
    headers: HeaderMap,
    body: Body,
) -> Answer<(StatusCode, axum::Json<PushReply>)> {
    who.token.may_call(&name)?;
    let queue = node.events.queue_of(&name)?;
    let pushing = of_query(query)?;
    push_to(&node, queue.as_str(), &who.token, pushing, &request_id, &headers, body).await
}

async fn push_to(
    node: &Node,
    queue: &str,
    token: &TokenInfo,
    pushing: Pushing,
    request_id: &str,
    headers: &HeaderMap,
    body: Body,
) -> Answer<(StatusCode, axum::Json<PushReply>)> {
    let Collected { data, share: _share } = whole(node, body, BODY_BYTES_MAX).await?;
    let (delay, ttl) = pushing.times()?;
    let now_ms = clock::now_ms();
    let mut events =
        match cloudevents::decode(headers, &data, now_ms, &cloudevents::Limits::default()).map_err(Problem::from)? {
            Some(events) => {
                pushing.says_times_alone()?;
                events
            }
            None => pushing.events(queue, request_id, headers, &data, now_ms)?,
        };
    let traceparent = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    for event in &mut events {
        if !token.may(Scope::Deploy) {
            refuse_forged(event)?;
        }
        event.came_by(Gate::Api, &token.name);
    }
    let ids = events.iter().map(|event| event.id.clone()).collect();
    let pushes = events.into_iter().map(|event| Push { event, delay, ttl }).collect();
    let pushed = node.events.push(queue, pushes, traceparent).await?;
    let duplicates = pushed.iter().filter(|pushed| **pushed == Pushed::Duplicate).count() as u64;
    Ok((StatusCode::CREATED, axum::Json(PushReply { queue: queue.to_owned(), ids, duplicates })))
}

impl Pushing {
    fn times(&self) -> Result<(Duration, Option<Duration>), Problem> {
        let delay = Duration::from_millis(self.delay_ms.unwrap_or(0));
        if delay > DELAY_MAX {
            let detail = format!("delay_ms is {}, the most is {}", delay.as_millis(), DELAY_MAX.as_millis());
            return Err(Problem::new(Code::ApiRequest, detail));
        }
        Ok((delay, self.ttl_ms.map(Duration::from_millis)))
    }

    /// A CloudEvent says the rest of itself.
    fn says_times_alone(&self) -> Result<(), Problem> {
        let Self { kind, subject, id, source, key, delay_ms: _, ttl_ms: _, count } = self;
        let others = [kind, subject, id, source, key].iter().any(|other| other.is_some()) || count.is_some();
        match others {
            false => Ok(()),
            true => {
                Err(Problem::new(Code::ApiRequest, "the request is a CloudEvent: the query may say only its times"))
            }
        }
    }

    fn events(
        self,
        queue: &str,
        request_id: &str,
        headers: &HeaderMap,
        data: &[u8],
        now_ms: u64,
    ) -> Result<Vec<Event>, Problem> {
        let Self { kind, subject, id, source, key, count, .. } = self;
        let count = count.unwrap_or(1);
        if !(1..=EVENTS_MAX).contains(&count) {
            return Err(Problem::new(
                Code::ApiRequest,
                format!("count is {count}, it must be between 1 and {EVENTS_MAX}"),
            ));
        }
        if (data.len() as u64).saturating_mul(count.into()) > BODY_BYTES_MAX {
            let detail = format!("{count} events of {} bytes are more than {BODY_BYTES_MAX} bytes", data.len());
            return Err(Problem::new(Code::EventTooLarge, detail).with_hint("push fewer at once"));
        }
        let id = id.unwrap_or_else(|| request_id.to_owned());
        let event = Event {
            id: id.clone(),
            source: source.unwrap_or_else(|| format!("/v1/queues/{queue}")),
            kind: kind.unwrap_or_else(|| "push".to_owned()),
            subject,
            time_ms: now_ms,
            content_type: headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned),
            attributes: key.map(|key| ("partitionkey".to_owned(), key)).into_iter().collect(),
            attempt: 1,
            data: data.to_vec(),
            ..Event::default()
        };
        if count == 1 {
            return Ok(vec![event]);
        }
        Ok((1..=count).map(|number| Event { id: format!("{id}-{number}"), ..event.clone() }).collect())
    }
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Looking {
    /// Which events. Default `ready`.
    part: Option<QueuePart>,
    /// `next` of the page before.
    after: Option<String>,
    /// Events of the page, at most 1,000. Default 20.
    limit: Option<u32>,
    /// Only those that failed for a reason with this text in it. A page then has what the next 10,000 events have of
    /// them, perhaps nothing, and `next` leads on while there are more.
    reason: Option<String>,
}

/// A page of the events of a queue, the oldest first. Looking changes nothing.
#[utoipa::path(get, path = "/v1/queues/{name}/events", tag = "events", params(("name" = String, Path), Looking), responses(
    (status = 200, body = EventPage),
    (status = 404, description = "L7001: there is no such queue"),
))]
pub async fn peek(
    _: MayDeploy,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    query: Result<Query<Looking>, QueryRejection>,
) -> Answer<axum::Json<EventPage>> {
    let queue = node.events.queue(&name)?;
    let Looking { part, after, limit, reason } = of_query(query)?;
    let bad = |text: &str| Problem::new(Code::ApiRequest, format!("{text:?} is no `next` of a page"));
    let after = after.map(|text| text.parse().map_err(|_| bad(&text))).transpose()?;
    let limit = limit.unwrap_or(PAGE_EVENTS);
    if !(1..=PAGE_EVENTS_MAX).contains(&limit) {
        return Err(
            Problem::new(Code::ApiRequest, format!("limit is {limit}, it must be 1 to {PAGE_EVENTS_MAX}")).into()
        );
    }
    let part = kept(part.unwrap_or(QueuePart::Ready));
    let (listed, next) = node::blocking(move || page(&queue, part, after, limit, reason.as_deref())).await?;
    let next = next.map(|position| position.to_string());
    Ok(axum::Json(EventPage { events: listed.into_iter().map(event_info).collect(), next }))
}

/// The next events of a part, of those that are wanted, and where the page after it begins. A page ends with the event
/// whose data makes it larger than [`PAGE_BYTES_MAX`].
fn page(
    queue: &Queue,
    part: Part,
    mut after: Option<Position>,
    limit: u32,
    reason: Option<&str>,
) -> Result<(Vec<Listed>, Option<Position>), Problem> {
    let Some(text) = reason else {
        let listed = queue.list(part, after, limit)?;
        let next = listed.last().map(|last| last.position);
        return Ok((listed, next));
    };
    let (mut found, mut looked, mut bytes) = (Vec::new(), 0, 0);
    while found.len() < limit as usize && bytes <= PAGE_BYTES_MAX && looked < LOOKED_AT_MAX {
        let listed = queue.list(part, after, PAGE_EVENTS_MAX)?;
        let Some(last) = listed.last() else { return Ok((found, None)) };
        looked += listed.len();
        after = Some(last.position);
        for one in listed.into_iter().filter(|one| one.reason.as_ref().is_some_and(|reason| reason.contains(text))) {
            if found.len() == limit as usize || bytes > PAGE_BYTES_MAX {
                // It is the first of the next page.
                after = found.last().map(|last: &Listed| last.position);
                break;
            }
            bytes += one.event.data.len();
            found.push(one);
        }
    }
    Ok((found, after))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Purging {
    /// Which events. Without it, the ready, the delayed and the dead ones.
    part: Option<QueuePart>,
    /// Of the dead letters: only those that died for a reason with this text in it, such as `L6003`.
    reason: Option<String>,
    /// Of the dead letters: only these, numbers with commas between them, at most 1,000.
    sequences: Option<String>,
    /// Of the dead letters: only says how many would be removed.
    #[serde(default)]
    dry_run: bool,
}

impl Purging {
    fn chooses(&self) -> bool {
        self.reason.is_some() || self.sequences.is_some() || self.dry_run
    }

    fn numbers(&self) -> Result<Option<Vec<u64>>, Problem> {
        let bad = |detail: String| Problem::new(Code::ApiRequest, detail);
        let Some(text) = &self.sequences else { return Ok(None) };
        let numbers: Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
        let numbers = numbers.map_err(|_| bad(format!("`sequences` is {text:?}, it is numbers like 3,17")))?;
        match numbers.len() {
            0..=SEQUENCES_MAX => Ok(Some(numbers)),
            count => Err(bad(format!("`sequences` are {count}, the most is {SEQUENCES_MAX}"))),
        }
    }
}

/// Removes events of a queue. Those that are being handled stay. Of the dead letters some can be chosen.
#[utoipa::path(delete, path = "/v1/queues/{name}/events", tag = "events", params(("name" = String, Path), Purging),
    responses(
    (status = 200, body = RemovedReply),
    (status = 400, description = "L4009: the query is not right"),
    (status = 404, description = "L7001: there is no such queue"),
))]
pub async fn purge(
    MayDeploy(who): MayDeploy,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    query: Result<Query<Purging>, QueryRejection>,
) -> Answer<axum::Json<RemovedReply>> {
    let queue = node.events.queue(&name)?;
    let purging = of_query(query)?;
    let part = purging.part;
    if purging.chooses() {
        return match part {
            Some(QueuePart::Dead) => discard(who, node, queue, purging).await,
            _ => Err(Problem::new(Code::ApiRequest, "only dead letters can be chosen: say part=dead").into()),
        };
    }
    let parts = part.map_or(vec![Part::Ready, Part::Delayed, Part::Dead], |part| vec![kept(part)]);
    let removed = detached(async move {
        let purged = queue.purge(&parts).await;
        who.did(&node, "queue purge", queue.name(), purged).await
    })
    .await?;
    tracing::info!(queue = name, removed, "purged");
    Ok(axum::Json(RemovedReply { removed }))
}

async fn discard(who: Who, node: Arc<Node>, queue: Queue, purging: Purging) -> Answer<axum::Json<RemovedReply>> {
    let sequences = purging.numbers()?;
    let Purging { reason, dry_run, .. } = purging;
    let removed = detached(async move {
        let discard = Discard { sequences: sequences.as_deref(), reason: reason.as_deref(), dry_run };
        let discarded = queue.discard(discard).await;
        match dry_run {
            true => discarded,
            false => who.did(&node, "queue purge", queue.name(), discarded).await,
        }
    })
    .await?;
    Ok(axum::Json(RemovedReply { removed }))
}

/// Puts dead letters back to the end of their queue, to be tried again: those named, or all, or those that died for
/// some reason; a single one perhaps with other data. A dead letter that was replayed five times stays.
#[utoipa::path(post, path = "/v1/queues/{name}/replay", tag = "events", params(("name" = String, Path)),
    request_body = ReplayRequest, responses(
    (status = 200, body = ReplayReply),
    (status = 400, description = "L4009: other data is for a single dead letter"),
    (status = 404, description = "L7001: there is no such queue"),
    (status = 503, description = "L7002: the queue is full; some may be back already"),
))]
pub async fn replay(
    MayDeploy(who): MayDeploy,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Json(request): Json<ReplayRequest>,
) -> Answer<axum::Json<ReplayReply>> {
    let queue = node.events.queue(&name)?;
    let now_ms = clock::now_ms();
    let data = request.edited()?;
    let Replayed { replayed, stayed } = detached(async move {
        let replay = Replay {
            sequences: request.sequences.as_deref(),
            reason: request.reason.as_deref(),
            data: data.as_deref(),
            replays_max: Some(if request.force { u32::MAX } else { REPLAYS_MAX }),
            dry_run: request.dry_run,
        };
        let replayed = queue.replay_with(replay, now_ms).await;
        match request.dry_run {
            true => replayed,
            false => who.did(&node, "queue replay", queue.name(), replayed).await,
        }
    })
    .await?;
    tracing::info!(queue = name, replayed, stayed, "replayed dead letters");
    Ok(axum::Json(ReplayReply { replayed, stayed }))
}

/// Pauses queues: nothing of them is handled until they are resumed, across restarts. Pushes go on; what is being
/// handled ends.
#[utoipa::path(post, path = "/v1/pause", tag = "events", request_body = PauseRequest, responses(
    (status = 200, body = Paused),
    (status = 404, description = "L7001: there is no such queue"),
))]
pub async fn pause(
    MayDeploy(who): MayDeploy,
    State(node): State<Arc<Node>>,
    Json(request): Json<PauseRequest>,
) -> Answer<axum::Json<Paused>> {
    set_paused(who, node, request, true).await
}

/// Resumes queues.
#[utoipa::path(post, path = "/v1/resume", tag = "events", request_body = PauseRequest, responses(
    (status = 200, body = Paused),
    (status = 404, description = "L7001: there is no such queue"),
))]
pub async fn resume(
    MayDeploy(who): MayDeploy,
    State(node): State<Arc<Node>>,
    Json(request): Json<PauseRequest>,
) -> Answer<axum::Json<Paused>> {
    set_paused(who, node, request, false).await
}

async fn set_paused(who: Who, node: Arc<Node>, request: PauseRequest, paused: bool) -> Answer<axum::Json<Paused>> {
    let PauseRequest { queues } = request;
    let (working, names) = (node.clone(), queues.clone());
    detached(async move {
        let changed = working.events.pause(paused, &names).await;
        let what = if names.is_empty() { "all queues".to_owned() } else { names.join(", ") };
        who.did(&working, if paused { "queue pause" } else { "queue resume" }, &what, changed).await
    })
    .await?;
    tracing::info!(?queues, paused, "paused or resumed queues");
    Ok(axum::Json(node.events.pauses.get()))
}

/// Forgets a queue: its events, dead letters and configuration. Whatever handles it has to be removed first.
#[utoipa::path(delete, path = "/v1/queues/{name}", tag = "events", params(("name" = String, Path)), responses(
    (status = 204, description = "It is gone"),
    (status = 400, description = "L1005: something handles it"),
    (status = 404, description = "L7001: there is no such queue"),
))]
pub async fn remove(
    MayDeploy(who): MayDeploy,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    let queue = node.events.queue(&name)?;
    detached(async move {
        let removed = node.functions.remove_queue(&queue).await;
        who.did(&node, "queue rm", &name, removed).await
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a sink. Its queue and the events in it stay.
#[utoipa::path(delete, path = "/v1/sinks/{name}", tag = "events", params(("name" = String, Path)), responses(
    (status = 204, description = "It is gone"),
    (status = 404, description = "L2001: there is none"),
    (status = 409, description = "L9136: it belongs to a deployment of the fleet"),
))]
pub async fn remove_sink(
    MayDeploy(who): MayDeploy,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    check_own(&node, [name.as_str()].into_iter())?;
    detached(async move {
        let removed = node.functions.remove_sink(&name).await;
        who.did(&node, "sink rm", &name, removed).await
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The word of the API, as the state has it.
fn kept(part: QueuePart) -> Part {
    match part {
        QueuePart::Ready => Part::Ready,
        QueuePart::Delayed => Part::Delayed,
        QueuePart::Dead => Part::Dead,
    }
}

fn event_info(listed: Listed) -> EventInfo {
    let Listed { sequence, event, tries, pushed_ms, at_ms, reason, .. } = listed;
    EventInfo { sequence, tries, pushed_ms, at_ms, reason, event: json_of(&event) }
}

/// The event in the JSON of CloudEvents.
pub fn json_of(event: &Event) -> serde_json::Value {
    // Data may be JSON that a reader of JSON refuses all the same: `1e999`, half a character.
    let json = serde_json::from_slice(&cloudevents::structured(event))
        .or_else(|_| serde_json::from_slice(&cloudevents::structured_opaque(event)));
    json.unwrap_or_default()
}
