//! Images by hash: is it here, take it, give it back.

use super::reply::Answer;
use super::scope::MayDeploy;
use crate::node::{Node, blocking};
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http_body::Body as _;
use http_body_util::BodyExt;
use problem::{Code, Problem};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::time::{timeout, timeout_at};
use warehouse::ImageHash;

/// Pieces of an upload that wait for the disk.
const PIECES_WAITING_MAX: usize = 8;

/// Images in memory on their way to clients; the next request waits for a turn.
static READS: Semaphore = Semaphore::const_new(2);
/// Images on their way from clients: each holds a thread that writes.
static WRITES: Semaphore = Semaphore::const_new(8);
/// How long a request waits for its turn.
const TURN_TIME_MAX: Duration = Duration::from_secs(30);
/// After this long an upload must have had so many bytes a second, or it makes room for others.
const SLOW_AFTER: Duration = Duration::from_secs(60);
const SLOW_BYTES_PER_SECOND: u64 = 8 << 10;
/// Bytes of one piece of an image on its way.
const PIECE_BYTES: usize = 256 << 10;

/// Is the image here?
#[utoipa::path(head, path = "/v1/images/{sha256}", tag = "images", params(("sha256" = String, Path)), responses(
    (status = 200, description = "It is"),
    (status = 404, description = "L2003: it is not"),
))]
pub async fn head(_: MayDeploy, State(node): State<Arc<Node>>, Path(sha256): Path<String>) -> Answer<StatusCode> {
    let hash = parse(&sha256)?;
    match node.functions.loader.warehouse.has_image(&hash) {
        true => Ok(StatusCode::OK),
        false => Err(Problem::new(Code::ImageUnknown, format!("no image has the hash {hash}")).into()),
    }
}

/// The image.
#[utoipa::path(get, path = "/v1/images/{sha256}", tag = "images", params(("sha256" = String, Path)), responses(
    (status = 200, content_type = "application/wasm", body = Vec<u8>),
    (status = 404, description = "L2003: it is not here"),
))]
pub async fn get(_: MayDeploy, State(node): State<Arc<Node>>, Path(sha256): Path<String>) -> Answer<Response> {
    let hash = parse(&sha256)?;
    let permit = turn(&READS).await?;
    let warehouse = node.functions.loader.warehouse.clone();
    let image = Bytes::from(blocking(move || warehouse.read_image(&hash)).await?);
    let length = image.len();
    let pieces = stream::unfold((image, permit), async |(mut rest, permit): (Bytes, SemaphorePermit<'static>)| {
        let piece = rest.split_to(rest.len().min(PIECE_BYTES));
        (!piece.is_empty()).then(|| (Ok::<_, Infallible>(piece), (rest, permit)))
    });
    let headers = [(CONTENT_TYPE, "application/wasm".to_owned()), (CONTENT_LENGTH, length.to_string())];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// Takes an image. Sending one that is here already is no error.
#[utoipa::path(put, path = "/v1/images/{sha256}", tag = "images", params(("sha256" = String, Path)),
    request_body(content_type = "application/wasm", content = Vec<u8>), responses(
    (status = 201, description = "It is stored"),
    (status = 413, description = "L2005: it is too large"),
    (status = 422, description = "L2006: it does not have this hash"),
))]
pub async fn put(
    _: MayDeploy,
    State(node): State<Arc<Node>>,
    Path(sha256): Path<String>,
    mut body: Body,
) -> Answer<StatusCode> {
    let hash = parse(&sha256)?;
    let _permit = turn(&WRITES).await?;
    let warehouse = node.functions.loader.warehouse.clone();
    let announced = body.size_hint().exact();
    let (pieces, mut arriving) = mpsc::channel::<Piece>(PIECES_WAITING_MAX);
    let store = blocking(move || {
        let mut writer = warehouse.receive_image(Some(hash), announced)?;
        while let Some(piece) = arriving.blocking_recv() {
            match piece {
                Piece::More(bytes) => writer.write(&bytes)?,
                Piece::End => return writer.finish().map(|_| ()),
            }
        }
        Err(Problem::new(Code::RequestMalformed, "the image broke off"))
    });
    let began = Instant::now();
    let mut received = 0;
    // Owns the pieces: when it gives up, the writing thread ends too.
    let send = async move {
        loop {
            // What has come is enough until then.
            let until = began + SLOW_AFTER.max(Duration::from_secs(received / SLOW_BYTES_PER_SECOND));
            let Ok(frame) = timeout_at(until.into(), body.frame()).await else {
                let detail = format!("{received} bytes of the image came in {} s", began.elapsed().as_secs());
                return Err(Problem::new(Code::RequestTimeout, detail));
            };
            let Some(frame) = frame else { break };
            let broken = |error| Problem::new(Code::RequestMalformed, format!("the image broke off: {error}"));
            let Ok(bytes) = frame.map_err(broken)?.into_data() else { continue };
            received += bytes.len() as u64;
            if pieces.send(Piece::More(bytes)).await.is_err() {
                // The other side has a problem of its own to tell.
                return Ok(());
            }
        }
        pieces.send(Piece::End).await.ok();
        Ok(())
    };
    let (sent, stored): (Result<(), Problem>, _) = tokio::join!(send, store);
    match (sent, stored) {
        // The writing thread knows no more than that nothing came.
        (Err(late), _) if late.code == Code::RequestTimeout => Err(late.into()),
        (sent, stored) => {
            stored.and(sent)?;
            Ok(StatusCode::CREATED)
        }
    }
}

async fn turn(turns: &'static Semaphore) -> Result<SemaphorePermit<'static>, Problem> {
    match timeout(TURN_TIME_MAX, turns.acquire()).await {
        Ok(permit) => Ok(permit.expect("the semaphore is never closed")),
        Err(_) => {
            let detail = format!("no turn within {} s: too many images are on their way", TURN_TIME_MAX.as_secs());
            Err(Problem::new(Code::NodeFull, detail).with_hint("try again in a moment"))
        }
    }
}

enum Piece {
    More(Bytes),
    End,
}

fn parse(sha256: &str) -> Result<ImageHash, Problem> {
    sha256
        .parse()
        .map_err(|_| Problem::new(Code::ApiRequest, format!("{sha256:?} is no hash: 64 lower-case hexadecimal digits")))
}
