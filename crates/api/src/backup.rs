//! A backup of the running node, as a body that is made while the client reads it.

use super::reply::{Answer, Json};
use super::scope::MayAdmin;
use api_types::BackupRequest;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use node::{BackupPieces, Node, Pace, blocking};
use problem::{Code, Problem};
use std::sync::Arc;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

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
    let pieces = who.did(&node, "backup", "the node", pieces).await?;
    Ok(([(CONTENT_TYPE, "application/octet-stream")], paced(pieces, permit)).into_response())
}

/// The backup as a body. A client that stops taking it keeps neither the instant nor the turn, though it may keep its
/// connection: so a task makes the pieces and looks at the clock.
fn paced(pieces: BackupPieces, permit: SemaphorePermit<'static>) -> Body {
    let (sender, taken) = mpsc::channel(1);
    tokio::spawn(async move {
        let _permit = permit;
        if let Err(problem) = send(pieces, &sender).await {
            tracing::warn!("a backup broke off: {} {}", problem.code, problem.detail);
            // Cuts the connection, if somebody is still there. Nobody takes what came for all of it in any case.
            sender.try_send(Err(problem)).ok();
        }
    });
    Body::from_stream(stream::unfold(taken, async |mut taken| Some((taken.recv().await?, taken))))
}

/// Makes the pieces as they are taken, until the end or until nobody takes them.
async fn send(pieces: BackupPieces, sender: &mpsc::Sender<Result<Bytes, Problem>>) -> Result<(), Problem> {
    let (mut left, mut pace) = (Some(pieces), Pace::begin("the backup"));
    while let Some(mut pieces) = left.take() {
        let (piece, rest) = blocking(move || pieces.next().map(|piece| (piece, pieces))).await?;
        let Some(piece) = piece.map(Bytes::from) else { break };
        let bytes = piece.len();
        if pace.wait(sender.send(Ok(piece))).await?.is_err() {
            break;
        }
        pace.moved(bytes);
        left = Some(rest);
    }
    Ok(())
}
