//! Request bodies in memory: each bounded by its function's limit, all together by the node's.
//!
//! A body is counted as it arrives, not as it is announced: ten thousand callers that promise much and send little hold
//! little. They hold no place among the running calls either, because a body is read before the call is admitted.

use budget::{Budget, Purpose};
use bytes::Bytes;
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use problem::{Code, Problem};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Room made ahead for a body of announced size, and how often more room there is than has arrived: a client that sends
/// little holds little, and few bytes are copied because the room grows.
const RESERVE_BYTES_MAX: u64 = 64 << 10;
const RESERVE_TIMES: u64 = 16;

/// The node's room for bodies.
pub struct BodyRoom {
    bytes_max: u64,
    budget: Arc<Budget>,
    used: AtomicU64,
}

/// Bytes of one body in the room; given back when dropped.
pub struct Share {
    room: Arc<BodyRoom>,
    bytes: u64,
    /// The same bytes in the node's budget.
    held: budget::Share,
}

/// A whole body, and its share of the room, to be kept for as long as the data.
pub struct Collected {
    pub data: Vec<u8>,
    pub share: Option<Share>,
}

impl BodyRoom {
    /// Room for `bytes_max` bytes, as far as the `budget` has them.
    pub fn new(bytes_max: u64, budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Self { bytes_max, budget: budget.clone(), used: AtomicU64::new(0) })
    }

    pub fn used_bytes(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// A share of nothing yet, for a body that is not kept whole.
    pub fn share(self: &Arc<Self>) -> Share {
        Share { room: self.clone(), bytes: 0, held: self.budget.share(Purpose::Bodies) }
    }

    /// Reads a body to its end.
    ///
    /// # Errors
    /// [`Code::BodyTooLarge`], at once if that much is announced: for the function, or for the whole room.
    /// [`Code::NodeFull`] when all bodies together are too large; [`Code::MemoryFull`]; [`Code::RequestTimeout`];
    /// [`Code::RequestMalformed`] when it breaks off.
    pub async fn collect<B>(self: &Arc<Self>, body: B, bytes_max: u64, time: Duration) -> Result<Collected, Problem>
    where
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        if body.is_end_stream() {
            return Ok(Collected { data: Vec::new(), share: None });
        }
        let announced = body.size_hint();
        if announced.lower() > bytes_max {
            return Err(too_large(bytes_max));
        }
        if announced.lower() > self.bytes_max {
            return Err(too_large_for_all(self.bytes_max));
        }
        let reading = self.read(body, bytes_max, announced.lower());
        match tokio::time::timeout(time, reading).await {
            Ok(collected) => collected,
            Err(_) => {
                let detail = format!("the request body did not arrive within {} ms", time.as_millis());
                Err(Problem::new(Code::RequestTimeout, detail))
            }
        }
    }

    async fn read<B>(self: &Arc<Self>, mut body: B, bytes_max: u64, announced: u64) -> Result<Collected, Problem>
    where
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let mut share = self.share();
        let mut data = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|error| Problem::new(Code::RequestMalformed, format!("the body broke off: {error}")))?;
            let Ok(piece) = frame.into_data() else { continue };
            if (data.len() + piece.len()) as u64 > bytes_max {
                return Err(too_large(bytes_max));
            }
            share.grow(piece.len() as u64)?;
            if data.is_empty() && piece.len() as u64 == announced {
                // The usual small body, in one piece and perhaps ours alone: no copy then.
                data = Vec::from(piece);
                continue;
            }
            if data.capacity() - data.len() < piece.len() {
                let have = (data.len() + piece.len()) as u64;
                let room = announced.min(RESERVE_BYTES_MAX.max(RESERVE_TIMES * have));
                // What was not announced doubles its room.
                data.reserve_exact(usize::try_from(room).map_or(0, |room| room.saturating_sub(data.len())));
            }
            data.extend_from_slice(&piece);
        }
        Ok(Collected { data, share: Some(share) })
    }
}

impl Share {
    /// The body takes so many bytes from now on.
    ///
    /// # Errors
    /// [`Code::NodeFull`]: all bodies together would be too large. [`Code::BodyTooLarge`]: so is this one alone, now
    /// and later. [`Code::MemoryFull`].
    pub fn hold(&mut self, bytes: u64) -> Result<(), Problem> {
        if let Some(less) = self.bytes.checked_sub(bytes) {
            self.room.used.fetch_sub(less, Relaxed);
            self.bytes = bytes;
            self.held.shrink(less);
            return Ok(());
        }
        self.grow(bytes - self.bytes)
    }

    fn grow(&mut self, bytes: u64) -> Result<(), Problem> {
        let before = self.room.used.fetch_add(bytes, Relaxed);
        self.bytes += bytes;
        if self.bytes > self.room.bytes_max {
            return Err(too_large_for_all(self.room.bytes_max));
        }
        if before + bytes > self.room.bytes_max {
            let detail = format!("the request bodies on their way already take {} bytes", self.room.bytes_max);
            return Err(
                Problem::new(Code::NodeFull, detail).with_hint("try again in a moment, or raise bodies_bytes_max")
            );
        }
        Ok(self.held.grow(bytes)?)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.used.fetch_sub(self.bytes, Relaxed);
    }
}

fn too_large_for_all(bytes_max: u64) -> Problem {
    let detail =
        format!("the request body has more than bodies_bytes_max of {bytes_max} bytes, the room for all bodies");
    Problem::new(Code::BodyTooLarge, detail).with_hint("send less at once, or raise bodies_bytes_max of the node")
}

fn too_large(bytes_max: u64) -> Problem {
    Problem::new(Code::BodyTooLarge, format!("the request body has more than limits.body_bytes of {bytes_max} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};
    use std::convert::Infallible;

    const TIME: Duration = Duration::from_secs(5);

    fn pieces(pieces: &'static [&'static str]) -> impl HttpBody<Data = Bytes, Error = Infallible> + Unpin {
        StreamBody::new(stream::iter(pieces.iter().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))))))
    }

    #[tokio::test]
    async fn a_body_is_collected_whole_in_any_number_of_pieces() {
        let room = BodyRoom::new(100, &Budget::unbounded());
        let collected = room.collect(pieces(&["ab", "cd", "e"]), 5, TIME).await.unwrap();
        assert_eq!((collected.data.as_slice(), room.used_bytes()), (&b"abcde"[..], 5));
        drop(collected);
        assert_eq!(room.used_bytes(), 0);
        assert_eq!(room.collect(Full::new(Bytes::from("abc")), 5, TIME).await.unwrap().data, b"abc");
        assert!(room.collect(Full::new(Bytes::new()), 0, TIME).await.unwrap().data.is_empty());
    }

    #[tokio::test]
    async fn what_is_too_large_is_refused_announced_or_not() {
        let room = BodyRoom::new(8, &Budget::unbounded());
        let code = |collected: Result<Collected, Problem>| collected.err().map(|problem| problem.code);
        assert_eq!(code(room.collect(pieces(&["abc", "def"]), 5, TIME).await), Some(Code::BodyTooLarge));
        assert_eq!(code(room.collect(Full::new(Bytes::from("abcdef")), 5, TIME).await), Some(Code::BodyTooLarge));
        let _held = room.collect(pieces(&["abcde"]), 100, TIME).await.unwrap();
        assert_eq!(code(room.collect(pieces(&["abcde"]), 100, TIME).await), Some(Code::NodeFull));
        assert_eq!(room.used_bytes(), 5);
    }

    #[tokio::test]
    async fn a_body_that_can_never_fit_is_too_large_and_not_to_be_tried_again() {
        let room = BodyRoom::new(5, &Budget::unbounded());
        let _held = room.collect(pieces(&["ab"]), 100, TIME).await.unwrap();
        let announced = room.collect(Full::new(Bytes::from("abcdef")), 100, TIME).await;
        for refused in [announced, room.collect(pieces(&["abc", "def"]), 100, TIME).await] {
            let problem = refused.err().unwrap();
            assert_eq!(problem.code, Code::BodyTooLarge);
            assert!(
                problem.detail.contains("bodies_bytes_max of 5") && problem.hint.contains("bodies_bytes_max"),
                "{problem}"
            );
        }
        let mut share = room.share();
        assert_eq!(share.hold(4).unwrap_err().code, Code::NodeFull);
        assert_eq!(share.hold(6).unwrap_err().code, Code::BodyTooLarge);
        drop(share);
        assert_eq!(room.used_bytes(), 2);
    }

    #[test]
    fn what_is_kept_of_a_body_may_become_more_and_less() {
        let room = BodyRoom::new(8, &Budget::unbounded());
        let mut share = room.share();
        for bytes in [5, 8, 0, 3] {
            share.hold(bytes).unwrap();
            assert_eq!(room.used_bytes(), bytes);
        }
        assert_eq!(room.share().hold(6).unwrap_err().code, Code::NodeFull);
        assert_eq!(room.used_bytes(), 3);
        drop(share);
        assert_eq!(room.used_bytes(), 0);
    }

    #[tokio::test]
    async fn a_body_that_does_not_arrive_is_given_up() {
        let room = BodyRoom::new(8, &Budget::unbounded());
        let never = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let problem = room.collect(never, 5, Duration::from_millis(1)).await.err().unwrap();
        assert_eq!(problem.code, Code::RequestTimeout);
    }
}
