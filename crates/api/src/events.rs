//! Follows events: how each of their handlings ended.

use super::reply::{Answer, of_query};
use super::scope::MayDeploy;
use api_types::HandlingInfo;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use node::{Node, blocking};
use problem::{Code, Problem};
use serde::Deserialize;
use std::sync::Arc;

/// Handlings of one answer, unless it asks for fewer, and at most.
const HANDLINGS: usize = 100;
const HANDLINGS_MAX: usize = 1_000;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Looking {
    /// The event to follow: all handlings of it, the oldest first, and of the events that functions pushed because of
    /// it, at most 200. Without it the newest handlings of all events, the newest first.
    id: Option<String>,
    /// Only those of this queue; not with `id`.
    queue: Option<String>,
    /// Only those that failed; not with `id`.
    failed: Option<bool>,
    /// At most this many, 1 to 1,000; not with `id`. Default 100.
    limit: Option<usize>,
}

/// What became of events, as far as the node remembers: the last handlings since its start, some 1,000 of them; of
/// those before, those that failed and the slowest are kept longest. It shows why functions failed, and no event's
/// data.
#[utoipa::path(get, path = "/v1/events", tag = "events", params(Looking), responses(
    (status = 200, body = Vec<HandlingInfo>),
    (status = 400, description = "L4009: the query is not right"),
    (status = 404, description = "L7001, L7006: there is no such queue, or nothing is known of the event"),
))]
pub async fn list(
    _: MayDeploy,
    State(node): State<Arc<Node>>,
    query: Result<Query<Looking>, QueryRejection>,
) -> Answer<Json<Vec<HandlingInfo>>> {
    let Looking { id, queue, failed, limit } = of_query(query)?;
    let bad = |detail: String| Problem::new(Code::ApiRequest, detail);
    if let Some(id) = id {
        if queue.is_some() || failed.is_some() || limit.is_some() {
            return Err(bad("an event is followed by its `id` alone".into()).into());
        }
        let trail = blocking(move || Ok((node.follow(&id), id))).await?;
        return match trail {
            (trail, id) if trail.is_empty() => {
                let problem = Problem::new(Code::EventUnknown, format!("no handling of the event {id:?} is known"));
                Err(problem.with_hint("the node remembers the last handlings since its start").into())
            }
            (trail, _) => Ok(Json(trail)),
        };
    }
    if let Some(queue) = &queue {
        node.events.queue(queue)?;
    }
    let limit = limit.unwrap_or(HANDLINGS);
    if !(1..=HANDLINGS_MAX).contains(&limit) {
        return Err(bad(format!("limit is {limit}, it must be 1 to {HANDLINGS_MAX}")).into());
    }
    let wanted = move |one: &HandlingInfo| {
        queue.as_ref().is_none_or(|queue| *queue == one.queue)
            && (failed != Some(true) || matches!(one.outcome.as_str(), "retry" | "dead"))
    };
    Ok(Json(blocking(move || Ok(node.events.past.newest(limit, wanted))).await?))
}
