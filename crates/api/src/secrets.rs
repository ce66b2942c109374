//! Secrets: their names may be listed, their values only be set.

use super::functions::detached;
use super::reply::{Answer, whole};
use super::scope::MayAdmin;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use node::{Node, SECRET_BYTES_MAX};
use std::sync::Arc;

/// The names of all secrets.
#[utoipa::path(get, path = "/v1/secrets", tag = "access", responses((status = 200, body = Vec<String>)))]
pub async fn list(_: MayAdmin, State(node): State<Arc<Node>>) -> Answer<Json<Vec<String>>> {
    Ok(Json(node.functions.loader.secrets.names()?))
}

/// Sets a secret to the bytes of the body, UTF-8 text of at most 64 KiB. Functions that are granted it see the new
/// value from their next call on.
#[utoipa::path(put, path = "/v1/secrets/{name}", tag = "access", params(("name" = String, Path)),
    request_body(content_type = "text/plain", content = String), responses(
    (status = 204, description = "It is kept"),
    (status = 400, description = "L4009: the name or the value cannot be one"),
))]
pub async fn put(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    body: Body,
) -> Answer<StatusCode> {
    let value = whole(&node, body, SECRET_BYTES_MAX as u64).await?.data;
    detached(async move {
        let set = node.functions.loader.secrets.set(&name, &value).await;
        who.did(&node, "secret set", &name, set).await?;
        node.functions.loader.secret_changed(&name);
        tracing::info!(name, "set a secret");
        Ok(())
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a secret. Functions that are granted it find it missing from their next call on.
#[utoipa::path(delete, path = "/v1/secrets/{name}", tag = "access", params(("name" = String, Path)), responses(
    (status = 204, description = "It is gone"),
    (status = 404, description = "L4014: there is none of this name"),
))]
pub async fn remove(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    detached(async move {
        let removed = node.functions.loader.secrets.remove(&name).await;
        who.did(&node, "secret rm", &name, removed).await?;
        node.functions.loader.secret_changed(&name);
        tracing::info!(name, "removed a secret");
        Ok(())
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}
