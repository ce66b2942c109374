//! The audit: who did what, to be read.

use super::reply::{Answer, NDJSON, line, of_query};
use super::scope::MayAdmin;
use api_types::{AuditEntry, Scope};
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use node::audit::Follower;
use node::{Node, blocking, clock};
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;

/// Entries of one answer, unless it asks for fewer.
const ENTRIES: usize = 1_000;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Looking {
    /// The newest so many. Default 1,000; there are never more than some 24,000.
    limit: Option<usize>,
    /// Stay, and send entries as they come, as lines of JSON; failed logins when their minute is over.
    #[serde(default)]
    follow: bool,
}

/// Who deployed, removed, rolled back, purged, paused, read a dump, made or removed a token or a secret, and who failed
/// to log in, the oldest first. No secret is ever in it.
#[utoipa::path(get, path = "/v1/audit", tag = "access", params(Looking), responses(
    (status = 200, description = "With `follow`, lines of JSON (`application/x-ndjson`) with one entry each", body = Vec<AuditEntry>),
))]
pub async fn list(
    _: MayAdmin,
    State(node): State<Arc<Node>>,
    headers: HeaderMap,
    query: Result<Query<Looking>, QueryRejection>,
) -> Answer<Response> {
    let Looking { limit, follow } = of_query(query)?;
    let limit = limit.unwrap_or(ENTRIES);
    if !follow {
        return Ok(Json(blocking(move || node.audit.newest(limit)).await?).into_response());
    }
    let audited = node.clone();
    let (begin, follower) = blocking(move || audited.audit.follow(limit)).await?;
    let first = stream::iter(begin.into_iter().map(|entry| Ok::<_, Infallible>(line(&entry))));
    type Reader = (Follower, Arc<Node>, HeaderMap);
    let rest = stream::unfold((follower, node, headers), async |(mut follower, node, headers): Reader| {
        let entry = follower.next().await?;
        // A token that was removed since, or has ended, reads nothing more.
        node.access.check(&headers, Scope::Admin, clock::now_ms()).ok()?;
        Some((Ok(line(&entry)), (follower, node, headers)))
    });
    Ok(([(CONTENT_TYPE, NDJSON)], Body::from_stream(first.chain(rest))).into_response())
}
