//! What devices report about their decisions where to run a call.

use super::reply::{Answer, Json};
use super::scope::{MayCallSome, MayLook};
use api_types::{DecisionReport, DecisionsInfo};
use axum::extract::State;
use axum::http::StatusCode;
use node::{Node, clock};
use std::sync::Arc;

/// The last 1,000 decisions that devices have told since the node's start, the newest first.
#[utoipa::path(get, path = "/v1/decisions", tag = "offloading", responses((status = 200, body = DecisionsInfo)))]
pub async fn list(_: MayLook, State(node): State<Arc<Node>>) -> axum::Json<DecisionsInfo> {
    axum::Json(node.decisions.told())
}

/// Tells the node where calls ran, what they were expected to take and what they took: a device that was told to do so
/// sends some at once, for the dashboard. Nothing is decided by it.
#[utoipa::path(post, path = "/v1/decisions", tag = "offloading", request_body = DecisionReport, responses(
    (status = 204, description = "They are kept"),
    (status = 400, description = "L4009: too many, or a name or time that is too long; nothing was kept"),
))]
pub async fn tell(
    MayCallSome(who): MayCallSome,
    State(node): State<Arc<Node>>,
    Json(report): Json<DecisionReport>,
) -> Answer<StatusCode> {
    node.decisions.take(report, &who.token.name, clock::now_ms())?;
    Ok(StatusCode::NO_CONTENT)
}
