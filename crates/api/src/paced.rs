//! A body that is made piece by piece while a client takes it, no slower than a transfer has to be.
//!
//! A client that stops taking it keeps nothing of what it is made from, though it may keep its connection: a body that
//! is not asked for its next piece cannot end by itself, so a task makes the pieces and looks at the clock.

use axum::body::{Body, Bytes};
use futures_util::stream;
use node::{Pace, blocking};
use problem::Problem;
use tokio::sync::mpsc;

/// The body of `what`, by which an error names it. `next` makes the next piece and may read the disk; none is the end.
/// A body that breaks off is cut, so that nobody takes what came for all of it.
pub fn body<N>(what: &'static str, next: N) -> Body
where
    N: FnMut() -> Result<Option<Vec<u8>>, Problem> + Send + 'static,
{
    let (sender, taken) = mpsc::channel(1);
    tokio::spawn(async move {
        if let Err(problem) = send(what, next, &sender).await {
            tracing::warn!("{what} broke off: {} {}", problem.code, problem.detail);
            // Cuts the connection, if somebody is still there.
            sender.try_send(Err(problem)).ok();
        }
    });
    Body::from_stream(stream::unfold(taken, async |mut taken| Some((taken.recv().await?, taken))))
}

/// Makes the pieces as they are taken, until the end or until nobody takes them.
async fn send<N>(what: &'static str, mut next: N, sender: &mpsc::Sender<Result<Bytes, Problem>>) -> Result<(), Problem>
where
    N: FnMut() -> Result<Option<Vec<u8>>, Problem> + Send + 'static,
{
    let mut pace = Pace::begin(what);
    loop {
        let (piece, rest) = blocking(move || next().map(|piece| (piece, next))).await?;
        let Some(piece) = piece.map(Bytes::from) else { return Ok(()) };
        let bytes = piece.len();
        if pace.wait(sender.send(Ok(piece))).await?.is_err() {
            return Ok(());
        }
        pace.moved(bytes);
        next = rest;
    }
}
