//! A body that is made piece by piece while a client takes it, no slower than a transfer has to be.
//!
//! A client that stops taking it keeps nothing of what it is made from, though it may keep its connection: a body that
//! is not asked for its next piece cannot end by itself, so a task makes the pieces and looks at the clock.

use axum::body::{Body, Bytes};
use futures_util::stream;
use node::{Pace, blocking};
use problem::{Code, Problem};
use tokio::sync::{mpsc, oneshot};

/// The pieces on their way, and how they ended.
type Taken = (mpsc::Receiver<Bytes>, oneshot::Receiver<Result<(), Problem>>);

/// The body of `what`, by which an error names it. `next` makes the next piece and may read the disk; none is the end.
/// A body that breaks off ends with an error, which cuts the connection: nobody takes what came for all of it.
pub fn body<N>(what: &'static str, next: N) -> Body
where
    N: FnMut() -> Result<Option<Vec<u8>>, Problem> + Send + 'static,
{
    let (sender, pieces) = mpsc::channel(1);
    let (ends, end) = oneshot::channel();
    tokio::spawn(async move {
        let sent = send(what, next, sender).await;
        if let Err(problem) = &sent {
            tracing::warn!("{what} broke off: {} {}", problem.code, problem.detail);
        }
        // Nobody takes it where the client is gone.
        ends.send(sent).ok();
    });
    Body::from_stream(stream::unfold(Some((pieces, end)), take))
}

/// The next piece. The end of the pieces is asked how it came: there is no room among them for a problem.
async fn take(taken: Option<Taken>) -> Option<(Result<Bytes, Problem>, Option<Taken>)> {
    let (mut pieces, end) = taken?;
    if let Some(piece) = pieces.recv().await {
        return Some((Ok(piece), Some((pieces, end))));
    }
    let gone = |_| Err(Problem::new(Code::Internal, "what makes the body gave up"));
    let problem = end.await.unwrap_or_else(gone).err()?;
    Some((Err(problem), None))
}

/// Makes the pieces as they are taken, until the end or until nobody takes them.
async fn send<N>(what: &'static str, mut next: N, sender: mpsc::Sender<Bytes>) -> Result<(), Problem>
where
    N: FnMut() -> Result<Option<Vec<u8>>, Problem> + Send + 'static,
{
    let mut pace = Pace::begin(what);
    loop {
        let (piece, rest) = blocking(move || next().map(|piece| (piece, next))).await?;
        let Some(piece) = piece.map(Bytes::from) else { return Ok(()) };
        let bytes = piece.len();
        if pace.wait(sender.send(piece)).await?.is_err() {
            return Ok(());
        }
        pace.moved(bytes);
        next = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::time::Duration;
    use tokio::time::sleep;

    /// All that comes; then why no more came, if it broke off.
    async fn collected(mut body: Body) -> (Vec<u8>, Option<String>) {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => bytes.extend(frame.into_data().unwrap()),
                Err(error) => {
                    assert!(body.frame().await.is_none());
                    return (bytes, Some(error.to_string()));
                }
            }
        }
        (bytes, None)
    }

    /// Gives the pieces, the last one first, and then ends so.
    fn source(mut pieces: Vec<Vec<u8>>, end: Result<(), Problem>) -> Body {
        body("the export", move || match pieces.pop() {
            Some(piece) => Ok(Some(piece)),
            None => end.clone().map(|()| None),
        })
    }

    /// The problem found no room behind the piece that waited, and half an export passed for all of it.
    #[tokio::test(start_paused = true)]
    async fn what_breaks_off_before_its_reader_comes_is_not_whole() {
        let whole = source(vec![b"two".to_vec(), b"one".to_vec()], Ok(()));
        let cut = source(vec![b"one".to_vec()], Err(Problem::new(Code::StateCorrupt, "a table is damaged")));
        // Both have made what they can.
        sleep(Duration::from_secs(1)).await;
        assert_eq!(collected(whole).await, (b"onetwo".to_vec(), None));
        let (bytes, why) = collected(cut).await;
        assert_eq!(bytes, b"one");
        assert!(why.unwrap().contains("L5007"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stands_still_learns_that_it_broke_off() {
        let endless = body("the export", || Ok(Some(b"more".to_vec())));
        sleep(Duration::from_secs(61)).await;
        let (bytes, why) = collected(endless).await;
        assert_eq!(bytes, b"more", "it was on its way");
        assert!(why.unwrap().contains("L4012"));
    }
}
