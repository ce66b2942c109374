//! The node itself: is it well, what is it doing, stop.

use super::reply::Answer;
use super::scope::{MayAdmin, MayLook, MayLookSome};
use api_types::{FunctionStats, NodeInfo, UnitInfo};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use node::{Node, metrics};
use problem::{Code, Problem};
use std::borrow::Cow;
use std::sync::Arc;

/// Is the process alive?
#[utoipa::path(get, path = "/healthz", tag = "node", security(()), responses((status = 200, description = "It is", body = String)))]
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Does the node take calls?
#[utoipa::path(get, path = "/readyz", tag = "node", security(()), responses(
    (status = 200, description = "It does; says so where the queues are paused", body = String),
    (status = 503, description = "L4010: it is stopping, or being drained"),
    (status = 507, description = "L5003: its disk was full in the middle of a write; reads go on"),
    (status = 500, description = "L5004: its disk failed; reads go on"),
))]
pub async fn readyz(State(node): State<Arc<Node>>) -> Answer<Cow<'static, str>> {
    if node.is_draining() {
        return Err(Problem::new(Code::Draining, "the node is being drained").into());
    }
    if node.is_stopping() {
        return Err(Problem::new(Code::Draining, "the node is shutting down").into());
    }
    match node.functions.loader.state.stopped() {
        Some(problem) => Err(problem.into()),
        None => Ok(node
            .events
            .pauses
            .reason()
            .map_or("ok\n".into(), |why| format!("ok, and the queues are paused, because {why}\n").into())),
    }
}

/// Numbers for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "node", responses((status = 200, description = "Prometheus text format", body = String)))]
pub async fn metrics(_: MayLook, State(node): State<Arc<Node>>) -> Answer<impl IntoResponse> {
    // Reads the disk for the sizes, so not on a thread that serves calls.
    let page = node::blocking(move || Ok(metrics::page(&node))).await?;
    Ok(([(CONTENT_TYPE, metrics::MEDIA_TYPE)], page))
}

/// The node at a glance.
#[utoipa::path(get, path = "/v1/node", tag = "node", responses((status = 200, body = NodeInfo)))]
pub async fn node(MayLookSome(who): MayLookSome, State(node): State<Arc<Node>>) -> Json<NodeInfo> {
    Json(NodeInfo { token: Some((*who.token).clone()), ..node.info().await })
}

/// The units that exist now.
#[utoipa::path(get, path = "/v1/units", tag = "node", responses((status = 200, body = Vec<UnitInfo>)))]
pub async fn units(_: MayLook, State(node): State<Arc<Node>>) -> Json<Vec<UnitInfo>> {
    Json(node.units())
}

/// How often, how fast and how well functions ran since the node started.
#[utoipa::path(get, path = "/v1/stats", tag = "node", responses((status = 200, body = Vec<FunctionStats>)))]
pub async fn stats(MayLookSome(who): MayLookSome, State(node): State<Arc<Node>>) -> Json<Vec<FunctionStats>> {
    Json(node.stats().into_iter().filter(|stats| who.token.covers_function(&stats.function)).collect())
}

/// Stops the node: it takes no new calls, lets those that run end, and ends.
#[utoipa::path(post, path = "/v1/stop", tag = "node", responses((status = 202, description = "It does so from now on")))]
pub async fn stop(MayAdmin(who): MayAdmin, State(node): State<Arc<Node>>) -> StatusCode {
    who.did(&node, "down", "the node", Ok(())).await.ok();
    node.stop();
    StatusCode::ACCEPTED
}

/// Stops the node as `/v1/stop` does; then its process runs the program's file again, with the same command line.
#[utoipa::path(post, path = "/v1/restart", tag = "node", responses((status = 202, description = "It does so from now on")))]
pub async fn restart(MayAdmin(who): MayAdmin, State(node): State<Arc<Node>>) -> StatusCode {
    who.did(&node, "restart", "the node", Ok(())).await.ok();
    node.restart();
    StatusCode::ACCEPTED
}
