//! Images by hash: is it here, take it, give it back.
//!
//! ```text
//!   PUT ─▶ turn ─▶ pieces ─▶ a thread that hashes and writes        both at a pace, or they make room for others
//!   GET ─▶ turn ─▶ the image, whole and checked ─▶ pieces ─▶ client
//! ```

use super::reply::Answer;
use super::scope::MayDeploy;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http_body::Body as _;
use http_body_util::BodyExt;
use node::{Node, Pace, blocking};
use problem::{Code, Problem};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::time::timeout;
use warehouse::ImageHash;

/// Pieces of an upload that wait for the disk.
const PIECES_WAITING_MAX: usize = 8;

/// Images in memory on their way to clients; the next request waits for a turn.
static READS: Semaphore = Semaphore::const_new(2);
/// Images on their way from clients: each holds a thread that writes.
static WRITES: Semaphore = Semaphore::const_new(8);
/// How long a request waits for its turn.
const TURN_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes of one piece of an image on its way to a client.
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
    let image = blocking(move || warehouse.read_image(&hash)).await?;
    let headers = [(CONTENT_TYPE, "application/wasm".to_owned()), (CONTENT_LENGTH, image.len().to_string())];
    Ok((headers, paced(image, permit)).into_response())
}

/// The image as a body. A client that stops taking it keeps neither the image nor the turn, though it may keep its
/// connection: a body that is not asked for its next piece cannot end by itself, so a task looks at the clock.
fn paced(image: Vec<u8>, permit: SemaphorePermit<'static>) -> Body {
    let (pieces, taken) = mpsc::channel(1);
    let bytes = image.len();
    tokio::spawn(async move {
        let (_permit, mut pace) = (permit, Pace::begin("the image"));
        for piece in image.chunks(PIECE_BYTES) {
            match pace.wait(pieces.reserve()).await {
                // A copy: what waits for the client must not keep the whole image.
                Ok(Ok(place)) => place.send(Bytes::copy_from_slice(piece)),
                Ok(Err(_gone)) => return,
                Err(slow) => return tracing::debug!("a download is ended: {}", slow.detail),
            }
            pace.moved(piece.len());
        }
    });
    Body::from_stream(stream::unfold((taken, bytes), async |(mut taken, left): (mpsc::Receiver<Bytes>, usize)| {
        match taken.recv().await {
            Some(piece) => {
                let left = left - piece.len();
                Some((Ok(piece), (taken, left)))
            }
            None if left > 0 => {
                let slow =
                    Problem::new(Code::RequestTimeout, format!("{left} bytes of the image were taken too slowly"));
                Some((Err(slow), (taken, 0)))
            }
            None => None,
        }
    }))
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
    let mut pace = Pace::begin("the image");
    // Owns the pieces: when it gives up, the writing thread ends too.
    let send = async move {
        loop {
            let Some(frame) = pace.wait(body.frame()).await? else { break };
            let broken = |error| Problem::new(Code::RequestMalformed, format!("the image broke off: {error}"));
            let Ok(bytes) = frame.map_err(broken)?.into_data() else { continue };
            pace.moved(bytes.len());
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
    sha256.parse().map_err(|_| {
        Problem::new(Code::ApiRequest, format!("{sha256:?} is not a hash: 64 lower-case hexadecimal digits"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    async fn begin(turns: &'static Semaphore, bytes: usize) -> Body {
        paced(vec![7; bytes], turns.acquire().await.unwrap())
    }

    /// Two clients that took nothing once held both turns for as long as they liked.
    #[tokio::test(start_paused = true)]
    async fn a_download_that_stands_still_gives_its_turn_back_and_breaks_off() {
        static TURNS: Semaphore = Semaphore::const_new(1);
        let mut stalled = begin(&TURNS, 10 * PIECE_BYTES).await;
        let first = stalled.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len(), PIECE_BYTES);
        sleep(Duration::from_secs(55)).await;
        assert_eq!(TURNS.available_permits(), 0);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(TURNS.available_permits(), 1);
        assert_eq!(
            stalled.frame().await.unwrap().unwrap().into_data().unwrap().len(),
            PIECE_BYTES,
            "it was on its way"
        );
        assert!(stalled.frame().await.unwrap().is_err() && stalled.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_download_that_moves_fast_enough_arrives_whole_however_long_it_takes() {
        static TURNS: Semaphore = Semaphore::const_new(1);
        const BYTES: usize = 12 * PIECE_BYTES + 1;
        let mut body = begin(&TURNS, BYTES).await;
        let mut have = 0;
        while let Some(frame) = body.frame().await {
            have += frame.unwrap().into_data().unwrap().len();
            sleep(Duration::from_secs(25)).await;
        }
        assert_eq!((have, TURNS.available_permits()), (BYTES, 1));
    }
}
