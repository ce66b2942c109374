//! Tokens: list, make, remove.

use super::functions::detached;
use super::reply::{Answer, Json};
use super::scope::MayAdmin;
use api_types::{TokenCreated, TokenInfo, TokenRequest};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use node::{Node, clock};
use std::sync::Arc;

/// Every token, without its secret.
#[utoipa::path(get, path = "/v1/tokens", tag = "access", responses((status = 200, body = Vec<TokenInfo>)))]
pub async fn list(_: MayAdmin, State(node): State<Arc<Node>>) -> axum::Json<Vec<TokenInfo>> {
    axum::Json(node.access.list())
}

/// Makes a token. The answer is the one time its secret is shown.
#[utoipa::path(post, path = "/v1/tokens", tag = "access", request_body = TokenRequest, responses(
    (status = 201, body = TokenCreated),
    (status = 400, description = "L4009: the name is taken or cannot be one"),
))]
pub async fn create(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Json(request): Json<TokenRequest>,
) -> Answer<(StatusCode, axum::Json<TokenCreated>)> {
    let created = detached(async move {
        let name = request.name.clone();
        let created = node.access.create(request, clock::now_ms()).await;
        who.did(&node, "token create", &name, created).await
    })
    .await?;
    tracing::info!(name = created.info.name, "made a token");
    Ok((StatusCode::CREATED, axum::Json(created)))
}

/// Removes a token: it stops working at once.
#[utoipa::path(delete, path = "/v1/tokens/{name}", tag = "access", params(("name" = String, Path)), responses(
    (status = 204, description = "It is gone"),
    (status = 404, description = "L4013: there is none of this name"),
))]
pub async fn remove(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    detached(async move {
        let removed = node.access.remove(&name).await.inspect(|_| node.events.take_back_from(&name));
        who.did(&node, "token rm", &name, removed).await?;
        tracing::info!(name, "removed a token");
        Ok(())
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}
