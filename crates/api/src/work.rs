//! The step of a worker outside of the node: it leases events of a queue, and says what became of each.

use super::queues::json_of;
use super::reply::{Answer, Json};
use super::scope::MayWorkSome;
use api_types::{AckRequest, FailReply, FailRequest, LeaseReply, LeaseRequest, LeasedEvent, RenewRequest, Scope};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use node::events::{Failure, Lent, Named, Wanted};
use node::{Node, clock};
use problem::{Code, Problem};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

const COUNT: RangeInclusive<u32> = 1..=100;
const LEASE_MS: RangeInclusive<u64> = 1_000..=3_600_000;
const LEASE_MS_DEFAULT: u64 = 30_000;
const WAIT_MS: RangeInclusive<u64> = 0..=60_000;
const AFTER_MS: RangeInclusive<u64> = 0..=86_400_000;

/// Leases events: until the lease ends nobody else has them. With `wait_ms` the answer waits for a first one.
///
/// An event whose lease ends is ready again, and the next lease of it counts one more try. After the last one it is a
/// dead letter. A token may have 1,000 leases.
#[utoipa::path(post, path = "/v1/queues/{name}/lease", tag = "events", params(("name" = String, Path)),
    request_body = LeaseRequest, responses(
    (status = 200, body = LeaseReply),
    (status = 400, description = "L4009: a value is out of range; L1005: the events go to another node"),
    (status = 403, description = "L4006: the token is not for this queue, or may not take events"),
    (status = 404, description = "L7001: there is no such queue"),
    (status = 503, description = "L7012: too many leases, or too many requests that wait; L4010: the node is being drained"),
))]
pub async fn lease(
    MayWorkSome(who): MayWorkSome,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(request): Json<LeaseRequest>,
) -> Answer<axum::Json<LeaseReply>> {
    who.token.may_take(&name)?;
    // A request may wait for longer than its token holds.
    let may = || node.access.check(&headers, Scope::Work, clock::now_ms()).map(drop);
    let LeaseRequest { count, lease_ms, wait_ms } = request;
    let lease_ms = in_range("lease_ms", lease_ms.unwrap_or(LEASE_MS_DEFAULT), LEASE_MS)?;
    let wanted = Wanted {
        queue: &name,
        owner: &who.token.name,
        count: in_range("count", count.unwrap_or(1), COUNT)? as usize,
        lease: Duration::from_millis(lease_ms),
        wait: Duration::from_millis(in_range("wait_ms", wait_ms.unwrap_or(0), WAIT_MS)?),
        may: &may,
    };
    let lent = tokio::select! {
        lent = node.events.lease_outside(&wanted, &node.bodies) => lent?,
        // Nobody waits for events of a node that ends.
        () = node.stop_wanted() => Vec::new(),
    };
    let leases = lent.into_iter().map(|(lease, lent)| leased_event(lease, lease_ms, &lent)).collect();
    Ok(axum::Json(LeaseReply { leases }))
}

/// Extends a lease, for work that takes long.
#[utoipa::path(post, path = "/v1/queues/{name}/renew", tag = "events", params(("name" = String, Path)),
    request_body = RenewRequest, responses(
    (status = 204, description = "It ends that long from now"),
    (status = 409, description = "L7005: it has ended, or is no lease of this token"),
))]
pub async fn renew(
    MayWorkSome(who): MayWorkSome,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Json(RenewRequest { lease, lease_ms }): Json<RenewRequest>,
) -> Answer<StatusCode> {
    who.token.may_take(&name)?;
    let lease_ms = in_range("lease_ms", lease_ms.unwrap_or(LEASE_MS_DEFAULT), LEASE_MS)?;
    let named = Named { queue: &name, owner: &who.token.name, lease: &lease };
    node.events.renew_outside(&named, Duration::from_millis(lease_ms))?;
    Ok(StatusCode::NO_CONTENT)
}

/// The event is handled, and gone: durable when the answer comes.
#[utoipa::path(post, path = "/v1/queues/{name}/ack", tag = "events", params(("name" = String, Path)),
    request_body = AckRequest, responses(
    (status = 204, description = "It is gone"),
    (status = 409, description = "L7005: the lease has ended, or is none of this token; nothing was done"),
))]
pub async fn ack(
    MayWorkSome(who): MayWorkSome,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Json(AckRequest { lease }): Json<AckRequest>,
) -> Answer<StatusCode> {
    who.token.may_take(&name)?;
    node.events.ack_outside(&Named { queue: &name, owner: &who.token.name, lease: &lease }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The event could not be handled: it is tried again after a pause, or a dead letter after its last try. Durable when
/// the answer comes.
#[utoipa::path(post, path = "/v1/queues/{name}/fail", tag = "events", params(("name" = String, Path)),
    request_body = FailRequest, responses(
    (status = 200, body = FailReply),
    (status = 409, description = "L7005: the lease has ended, or is none of this token; nothing was done"),
))]
pub async fn fail(
    MayWorkSome(who): MayWorkSome,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    Json(request): Json<FailRequest>,
) -> Answer<axum::Json<FailReply>> {
    who.token.may_take(&name)?;
    let FailRequest { lease, reason, dead, after_ms } = request;
    let after = after_ms.map(|after_ms| in_range("after_ms", after_ms, AFTER_MS)).transpose()?;
    let why = Failure { reason, is_final: dead, after: after.map(Duration::from_millis) };
    let named = Named { queue: &name, owner: &who.token.name, lease: &lease };
    let again_ms = node.events.fail_outside(&named, why).await?;
    Ok(axum::Json(FailReply { again_ms }))
}

fn leased_event(lease: String, lease_ms: u64, lent: &Lent) -> LeasedEvent {
    let (event, pushed_ms) = (&lent.leased.event, lent.leased.pushed_ms);
    LeasedEvent { lease, lease_ms, attempt: event.attempt, pushed_ms, event: json_of(event) }
}

fn in_range<T: PartialOrd + Display>(what: &str, value: T, range: RangeInclusive<T>) -> Result<T, Problem> {
    if range.contains(&value) {
        return Ok(value);
    }
    let detail = format!("{what} is {value}, it must be between {} and {}", range.start(), range.end());
    Err(Problem::new(Code::ApiRequest, detail))
}
