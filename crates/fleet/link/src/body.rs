//! Bodies on their way: one that can be taken back from a node that refuses, and one that comes from another node.
//!
//! ```text
//!   caller ─▶ CallBody ─▶ Pump ─▶ HTTP/2 ─▶ Arriving ─▶ function
//!                ▲          └─▶ Kept: what was sent, until the receiver has read something
//!                └── refused ────┘
//! ```

use crate::limits::BODY_TIMEOUT;
use budget::{Full, Share};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use problem::{Code, Problem};
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep, sleep};

pub type Fault = Box<dyn std::error::Error + Send + Sync>;

/// The body of a call that may go to another node. It can be read here as well, whole, after a node has refused it.
pub struct CallBody {
    /// What was sent to a node that refused.
    again: VecDeque<Frame<Bytes>>,
    rest: UnsyncBoxBody<Bytes, Fault>,
}

/// What was sent of a body and may have to be sent again.
pub(crate) struct Kept {
    frames: VecDeque<Frame<Bytes>>,
    share: Share,
}

impl CallBody {
    /// An error of the body that is a [`Problem`] is what the caller is told.
    pub fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Fault>,
    {
        Self { again: VecDeque::new(), rest: body.map_err(Into::into).boxed_unsync() }
    }
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        match self.again.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.again.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let again: u64 = self.again.iter().map(bytes_of).sum();
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + again);
        rest.upper().inspect(|upper| hint.set_upper(upper + again));
        hint
    }
}

impl fmt::Debug for CallBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallBody").field("again", &self.again.len()).finish_non_exhaustive()
    }
}

impl CallBody {
    /// The same body from its beginning.
    pub(crate) fn from_the_beginning(mut self, kept: Kept) -> Self {
        let mut again = kept.frames;
        again.append(&mut self.again);
        Self { again, ..self }
    }
}

impl Kept {
    /// `share` holds nothing yet.
    pub fn new(share: Share) -> Self {
        Self { frames: VecDeque::new(), share }
    }

    /// Keeps a frame that is about to be sent.
    ///
    /// # Errors
    /// The budget has no room.
    pub fn keep(&mut self, frame: &Frame<Bytes>) -> Result<(), Full> {
        self.share.grow(bytes_of(frame))?;
        self.frames.push_back(copy(frame));
        Ok(())
    }
}

/// The body of a call that comes from another node. `held` is given back at its end.
pub struct Arriving<H> {
    inner: Incoming,
    patience: Patience,
    held: Option<H>,
}

/// How long nothing of a body may come while somebody waits for it.
#[derive(Default)]
pub(crate) struct Patience {
    /// Made when it is first waited for.
    timer: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl Patience {
    /// Something came.
    pub fn came(&mut self) {
        self.is_waiting = false;
    }

    /// Nothing has come yet. Ready when it is over.
    pub fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(BODY_TIMEOUT)));
        if !self.is_waiting {
            self.is_waiting = true;
            timer.as_mut().reset(Instant::now() + BODY_TIMEOUT);
        }
        timer.as_mut().poll(cx).map(|()| format!("no byte of the body came for {} s", BODY_TIMEOUT.as_secs()))
    }
}

impl<H> Arriving<H> {
    pub(crate) fn new(inner: Incoming, held: H) -> Self {
        let held = (!inner.is_end_stream()).then_some(held);
        Self { inner, patience: Patience::default(), held }
    }
}

impl<H: Unpin> Body for Arriving<H> {
    type Data = Bytes;
    type Error = Problem;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Problem>>> {
        let broken = |what: String| Problem::new(Code::RequestMalformed, what);
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(frame) => {
                self.patience.came();
                if self.inner.is_end_stream() || !matches!(frame, Some(Ok(_))) {
                    self.held = None;
                }
                Poll::Ready(frame.map(|frame| frame.map_err(|error| broken(format!("the body broke off: {error}")))))
            }
            Poll::Pending => self.patience.poll_over(cx).map(|what| Some(Err(broken(what)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<H> fmt::Debug for Arriving<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arriving").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// What the caller is told of a body that broke off.
pub(crate) fn problem_of(fault: &Fault) -> Problem {
    match fault.downcast_ref::<Problem>() {
        Some(problem) => problem.clone(),
        None => Problem::new(Code::RequestMalformed, format!("the body broke off: {fault}")),
    }
}

fn bytes_of(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |data| data.len() as u64)
}

/// The same frame. Its bytes are shared.
fn copy(frame: &Frame<Bytes>) -> Frame<Bytes> {
    match (frame.data_ref(), frame.trailers_ref()) {
        (Some(data), _) => Frame::data(data.clone()),
        (None, Some(trailers)) => Frame::trailers(trailers.clone()),
        (None, None) => Frame::data(Bytes::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use budget::{Budget, Purpose};
    use futures_util::{FutureExt, stream};
    use http_body_util::StreamBody;
    use std::convert::Infallible;

    #[test]
    fn a_body_that_is_refused_again_and_again_is_whole_in_the_end() {
        let budget = Budget::new(1 << 20);
        let piece = |at| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![at; 3])));
        let mut body = CallBody::new(StreamBody::new(stream::iter((0..5).map(piece))));
        for read in [2, 0, 4, 5] {
            let mut kept = Kept::new(budget.share(Purpose::Bodies));
            for _ in 0..read {
                let frame = body.frame().now_or_never().expect("it waits for nobody").unwrap().unwrap();
                kept.keep(&frame).unwrap();
            }
            assert_eq!(budget.total_bytes(), 3 * read as u64);
            body = body.from_the_beginning(kept);
            assert_eq!((body.size_hint().lower() >= 3 * read as u64, budget.total_bytes()), (true, 0));
        }
        let whole = body.collect().now_or_never().expect("it waits for nobody").unwrap().to_bytes();
        assert_eq!(whole[..], [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]);
    }

    #[test]
    fn what_is_kept_is_counted() {
        let mut kept = Kept::new(Budget::new(1_600).share(Purpose::Bodies));
        kept.keep(&Frame::data(Bytes::from(vec![7; 800]))).unwrap();
        assert!(kept.keep(&Frame::data(Bytes::from_static(b"x"))).is_err());
    }
}
