//! A backup of the running node, as a body that is made while the client reads it.

use super::paced;
use super::reply::{Answer, Json};
use super::scope::MayAdmin;
use api_types::BackupRequest;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use node::Node;
use problem::{Code, Problem};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Backups on their way: each keeps its instant alive on disk. Another one is refused.
static BACKUPS: Semaphore = Semaphore::const_new(1);

/// The node at this instant: its state, the images of its functions, and with a passphrase secrets and keys, sealed.
/// The body is a backup as `lighter restore` takes it; one that breaks off is none. It takes the scope `admin`,
/// because the values of all buckets are in it.
#[utoipa::path(post, path = "/v1/backup", tag = "node", request_body = BackupRequest, responses(
    (status = 200, content_type = "application/octet-stream", body = Vec<u8>),
    (status = 400, description = "L4009: the passphrase is empty"),
    (status = 503, description = "L3010: another backup is being made"),
))]
pub async fn make(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Json(request): Json<BackupRequest>,
) -> Answer<Response> {
    if request.passphrase.as_deref() == Some("") {
        return Err(Problem::new(Code::ApiRequest, "the passphrase is empty").into());
    }
    let permit = BACKUPS.try_acquire().map_err(|_| {
        Problem::new(Code::NodeFull, "another backup is being made").with_hint("wait for its end, then try again")
    })?;
    let pieces = node.backup(request.passphrase).await;
    let mut pieces = who.did(&node, "backup", "the node", pieces).await?;
    let made = paced::body("the backup", move || {
        // The turn is held as long as somebody takes it.
        let _permit = &permit;
        pieces.next()
    });
    Ok(([(CONTENT_TYPE, "application/octet-stream")], made).into_response())
}
