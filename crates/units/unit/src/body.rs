//! Bodies of requests and replies that pass between a gate and a unit.

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use problem::{Code, Problem};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// Why a body ended early.
#[derive(Debug, Clone)]
pub enum BodyError {
    /// The sender went away or broke the protocol.
    Broken(String),
    /// More bytes than the function takes.
    TooLarge { limit_bytes: u64 },
    /// The unit failed while its reply was streaming.
    Unit(Problem),
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(why) => write!(f, "the body broke off: {why}"),
            Self::TooLarge { limit_bytes } => write!(f, "the body has more than {limit_bytes} bytes"),
            Self::Unit(problem) => write!(f, "{problem}"),
        }
    }
}

impl std::error::Error for BodyError {}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Broken(_) => Self::new(Code::RequestMalformed, error.to_string()),
            BodyError::TooLarge { .. } => Self::new(Code::BodyTooLarge, error.to_string()),
            BodyError::Unit(problem) => problem,
        }
    }
}

/// A body that fails once it has more than `limit_bytes`, and remembers that it did.
pub struct LimitedBody<B> {
    inner: B,
    limit_bytes: u64,
    seen_bytes: u64,
    exceeded: Arc<AtomicBool>,
}

impl<B> LimitedBody<B> {
    pub fn new(inner: B, limit_bytes: u64, exceeded: Arc<AtomicBool>) -> Self {
        Self { inner, limit_bytes, seen_bytes: 0, exceeded }
    }
}

impl<B> HttpBody for LimitedBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: fmt::Display,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        polled.map(|frame| {
            frame.map(|frame| {
                let frame = frame.map_err(|error| BodyError::Broken(error.to_string()))?;
                self.seen_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                if self.seen_bytes > self.limit_bytes {
                    self.exceeded.store(true, Ordering::Relaxed);
                    return Err(BodyError::TooLarge { limit_bytes: self.limit_bytes });
                }
                Ok(frame)
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
