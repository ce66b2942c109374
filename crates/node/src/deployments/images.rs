//! Images go from node to node, by their hash, over the link: each node fetches one once, and passes it on.
//!
//! ```text
//!   fetch ─▶ GET /images/HASH, from byte N ═══▶ another node: its file, piece by piece
//!     │ ◀═══ pieces ═══ written and hashed      gone, slow, has it not: the next node, from where it stopped
//!     └─▶ hash is right: in the warehouse
//! ```

use super::Deployments;
use crate::{Pace, ReplyBody, blocking};
use bytes::Bytes;
use fleet_trust::NodeId;
use futures_util::stream;
use http::header::{CONTENT_LENGTH, RANGE};
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use unit::BodyError;
use warehouse::{ImageHash, ImageWriter};

/// Images on their way to other nodes at once: to each of them, and to all. The next one is refused, and its node asks
/// another one.
pub const GIVING_EACH_MAX: usize = 2;
pub const GIVING_ALL_MAX: usize = 8;
/// Bytes of one piece.
const PIECE_BYTES: usize = 64 << 10;
/// How often all nodes are asked for an image. Then whoever wanted it is told that it is nowhere.
const ROUNDS_MAX: usize = 3;
/// The same while one of them gives as many images as it may.
const FULL_ROUNDS_MAX: usize = 40;
/// How long a node may think before the first byte.
const PATIENCE: Duration = Duration::from_secs(10);
/// The rest between two rounds.
const REST: Duration = Duration::from_millis(500);

/// The images that are being fetched: whoever wants one too waits for it.
#[derive(Default)]
pub struct Fetching(Mutex<BTreeMap<ImageHash, Arc<tokio::sync::Mutex<()>>>>);

impl Deployments {
    /// Has all of these images here. `first`: the node that is asked first.
    ///
    /// # Errors
    /// [`Code::ImageNowhere`]; [`Code::ImageTooLarge`], [`Code::DiskFull`] and others of the disk.
    pub(super) async fn fetch_all(&self, images: &BTreeSet<String>, first: Option<NodeId>) -> Result<(), Problem> {
        for image in images {
            let hash = image
                .parse()
                .map_err(|_| Problem::new(Code::DeploymentGarbled, format!("{image:?} is no hash of an image")))?;
            let turn = self.fetching.0.lock().entry(hash).or_default().clone();
            let fetched = {
                let _one_at_a_time = turn.lock().await;
                self.fetch(hash, first).await
            };
            let mut fetching = self.fetching.0.lock();
            drop(turn);
            fetching.retain(|_, turn| Arc::strong_count(turn) > 1);
            drop(fetching);
            fetched?;
        }
        Ok(())
    }

    async fn fetch(&self, hash: ImageHash, first: Option<NodeId>) -> Result<(), Problem> {
        let warehouse = self.node()?.functions.loader.warehouse.clone();
        if warehouse.has_image(&hash) {
            return Ok(());
        }
        let begin = || {
            let warehouse = warehouse.clone();
            blocking(move || warehouse.receive_image(Some(hash), None))
        };
        let mut writer = begin().await?;
        let mut last = None;
        let mut rounds = 0;
        loop {
            let mut is_full = false;
            for node in self.sources(first) {
                match self.pull(node, hash, writer).await {
                    Pulled::Whole => {
                        tracing::info!(%hash, %node, "fetched an image");
                        return Ok(());
                    }
                    Pulled::Part(part, problem) => {
                        tracing::debug!(%hash, %node, %problem, "an image did not come whole");
                        is_full |= problem.code == Code::NodeFull;
                        (writer, last) = (part, Some(problem));
                    }
                    // What came so far is of no use.
                    Pulled::Wrong(problem) => {
                        tracing::warn!(%hash, %node, "{} {}", problem.code, problem.detail);
                        (writer, last) = (begin().await?, Some(problem));
                    }
                    Pulled::Failed(problem) => return Err(problem),
                }
            }
            rounds += 1;
            if rounds >= if is_full { FULL_ROUNDS_MAX } else { ROUNDS_MAX } {
                break;
            }
            tokio::time::sleep(REST).await;
        }
        if let Some(problem) = last.take_if(|problem| problem.code == Code::ImageTooLarge) {
            return Err(problem);
        }
        let why = last.map_or_else(|| "no other node is there".to_owned(), |problem| problem.detail.into_owned());
        Err(Problem::new(Code::ImageNowhere, format!("the image {hash}: {why}")))
    }

    /// Nodes that may have an image, each once: the one that was named, the anchors, and the rest.
    fn sources(&self, first: Option<NodeId>) -> Vec<NodeId> {
        let others = self.directory.others().into_iter();
        let mut rows: Vec<_> = others.filter(|row| row.heard.is_some() || row.is_anchor).collect();
        let me = self.trust.node();
        // Not all nodes ask the others in one order.
        rows.sort_by_key(|row| (first != Some(row.node), !row.is_anchor, row.node < me, row.node));
        rows.into_iter().map(|row| row.node).collect()
    }

    /// Takes what a node has of an image, from where it stopped.
    async fn pull(&self, node: NodeId, hash: ImageHash, writer: ImageWriter) -> Pulled {
        let link = match self.link() {
            Ok(link) => link,
            Err(problem) => return Pulled::Failed(problem),
        };
        let range = format!("bytes={}-", writer.bytes());
        let request = Request::get(format!("/images/{hash}")).header(RANGE, range).body(Bytes::new());
        let response = match link.exchange(node, request.expect("a hash makes a path"), PATIENCE).await {
            Ok(response) => response,
            Err(problem) => return Pulled::Part(writer, problem),
        };
        take(response.into_body(), writer).await
    }

    /// An image for another node, from the byte it asks for.
    pub(super) async fn give_image(
        &self,
        to: NodeId,
        hash: &str,
        headers: &HeaderMap,
    ) -> Result<Response<ReplyBody>, Problem> {
        let hash: ImageHash = hash
            .parse()
            .map_err(|_| Problem::new(Code::ApiRequest, format!("{hash:?} is no hash: 64 hexadecimal digits")))?;
        let from = headers.get(RANGE).and_then(|range| range.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-'));
        let from: u64 = from.and_then(|from| from.parse().ok()).unwrap_or(0);
        let seat = self.giving.take(to)?;
        let warehouse = self.node()?.functions.loader.warehouse.clone();
        let (file, bytes) = blocking(move || {
            let (mut file, bytes) = warehouse.open_image(&hash)?;
            file.seek(SeekFrom::Start(from)).map_err(|error| broken(hash, &error))?;
            Ok((file, bytes))
        })
        .await?;
        let left = bytes.saturating_sub(from);
        let (pieces, taken) = mpsc::channel(1);
        // A body that nobody reads cannot end by itself: the task does.
        tokio::spawn(async move {
            let _seat = seat;
            give(file, hash, pieces).await;
        });
        let frames = stream::unfold(taken, async |mut taken: mpsc::Receiver<_>| {
            Some((taken.recv().await?.map(Frame::data), taken))
        });
        let mut response = Response::new(ReplyBody::Streaming(StreamBody::new(frames).boxed_unsync()));
        response.headers_mut().insert(CONTENT_LENGTH, left.into());
        Ok(response)
    }
}

/// Takes what comes, at a pace: a source that is slower is left for another one.
async fn take<B>(mut body: B, mut writer: ImageWriter) -> Pulled
where
    B: Body<Data = Bytes, Error = Problem> + Unpin,
{
    let mut pace = Pace::begin("the image");
    loop {
        let bytes = match pace.wait(body.frame()).await {
            Ok(None) => break,
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(bytes) => bytes,
                Err(_trailers) => continue,
            },
            Ok(Some(Err(problem))) | Err(problem) => return Pulled::Part(writer, problem),
        };
        pace.moved(bytes.len());
        let written = blocking(move || {
            writer.write(&bytes)?;
            Ok(writer)
        });
        match written.await {
            Ok(back) => writer = back,
            Err(problem) if problem.code == Code::ImageTooLarge => return Pulled::Wrong(problem),
            Err(problem) => return Pulled::Failed(problem),
        }
    }
    match blocking(move || writer.finish()).await {
        Ok(_) => Pulled::Whole,
        Err(problem) if problem.code == Code::ImageHash => Pulled::Wrong(problem),
        Err(problem) => Pulled::Failed(problem),
    }
}

/// Reads a file piece by piece, for as long as they are taken, at a pace.
async fn give(mut file: File, hash: ImageHash, pieces: mpsc::Sender<Result<Bytes, BodyError>>) {
    let mut pace = Pace::begin("the image");
    loop {
        let read = blocking(move || {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let read = (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece);
            read.map_err(|error| broken(hash, &error))?;
            Ok((file, Bytes::from(piece)))
        });
        let piece = match read.await {
            Ok((_, piece)) if piece.is_empty() => return,
            Ok((back, piece)) => {
                file = back;
                piece
            }
            Err(problem) => {
                // Its file went with it.
                return drop(pace.wait(pieces.send(Err(BodyError::Unit(problem)))).await);
            }
        };
        let bytes = piece.len();
        match pace.wait(pieces.send(Ok(piece))).await {
            Ok(Ok(())) => pace.moved(bytes),
            Ok(Err(_gone)) => return,
            Err(slow) => return tracing::debug!(%hash, "an image breaks off: {}", slow.detail),
        }
    }
}

fn broken(hash: ImageHash, error: &std::io::Error) -> Problem {
    Problem::new(Code::DiskFailed, format!("the image {hash}: {error}"))
}

/// What came of an image from one node.
enum Pulled {
    Whole,
    /// As much as the writer has. Another node may have the rest.
    Part(ImageWriter, Problem),
    /// All that this node had, and it is not the image.
    Wrong(Problem),
    /// This node cannot take it.
    Failed(Problem),
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};
    use warehouse::{Config, Warehouse};

    /// Each byte used to buy another minute.
    #[tokio::test(start_paused = true)]
    async fn a_source_that_gives_a_byte_a_minute_costs_a_try() {
        let folder = tempfile::tempdir().unwrap();
        let warehouse = Warehouse::open(folder.path(), Config::default()).unwrap();
        let writer = warehouse.receive_image(None, None).unwrap();
        let bytes = stream::unfold(100, async |left: u32| {
            sleep(Duration::from_secs(50)).await;
            let frame = Ok::<_, Problem>(Frame::data(Bytes::from_static(b"x")));
            Some((frame, left.checked_sub(1)?))
        });
        let began = Instant::now();
        let taken = take(StreamBody::new(Box::pin(bytes)), writer).await;
        let Pulled::Part(writer, problem) = taken else { panic!("it was given up too late") };
        assert_eq!((problem.code, writer.bytes()), (Code::RequestTimeout, 1));
        assert!(began.elapsed() < Duration::from_secs(120));
    }

    /// Each piece used to have a minute of its own.
    #[tokio::test(start_paused = true)]
    async fn a_node_that_takes_a_piece_a_minute_makes_room_for_others() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(100 * PIECE_BYTES as u64).unwrap();
        file.rewind().unwrap();
        let (pieces, mut taken) = mpsc::channel(1);
        let given = tokio::spawn(give(file, ImageHash::of(b""), pieces));
        let mut count = 0;
        loop {
            sleep(Duration::from_secs(59)).await;
            match taken.recv().await {
                Some(piece) => assert_eq!(piece.unwrap().len(), PIECE_BYTES),
                None => break,
            }
            count += 1;
        }
        assert!((1..=4).contains(&count), "{count} pieces");
        given.await.unwrap();
    }
}
