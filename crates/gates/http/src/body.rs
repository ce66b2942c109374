//! The body of a request as the node reads it: fails when the client stops sending, with no timer until it does.

use crate::line::Line;
use budget::Full;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use problem::{Code, Problem};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// The body of a request.
pub struct RequestBody {
    inner: Incoming,
    idle_timeout: Duration,
    /// Made when the body is first waited for, then set anew.
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    counted: Option<Arc<AtomicU64>>,
    /// None once it has arrived, or where there is none.
    arriving: Option<Arriving>,
}

/// A body on its way: the connection is not idle, and the budget knows what may wait of it.
pub(crate) struct Arriving {
    line: Arc<Line>,
    room_bytes: u64,
}

impl Arriving {
    /// `room_bytes`: the most that may wait of it, zero where the connection counts that already.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn begin(line: &Arc<Line>, room_bytes: u64) -> Result<Self, Full> {
        if room_bytes > 0 {
            line.room.take_body(room_bytes)?;
        }
        line.receives();
        Ok(Self { line: line.clone(), room_bytes })
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.line.received();
        if self.room_bytes > 0 {
            self.line.room.drop_body(self.room_bytes);
        }
    }
}

/// Why a body ended early.
#[derive(Debug)]
pub enum BodyError {
    /// Nothing came for this long while someone waited for it.
    TimedOut(Duration),
    /// The client went away or broke the protocol.
    Broken(hyper::Error),
}

impl RequestBody {
    pub(crate) fn new(
        inner: Incoming,
        idle_timeout: Duration,
        counted: Option<Arc<AtomicU64>>,
        arriving: Option<Arriving>,
    ) -> Self {
        Self { inner, idle_timeout, timer: None, waiting: false, counted, arriving }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let idle_timeout = self.idle_timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(idle_timeout)));
        if !self.waiting {
            self.waiting = true;
            timer.as_mut().reset(Instant::now() + idle_timeout);
        }
        timer.as_mut().poll(cx)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(frame) => {
                self.waiting = false;
                if self.arriving.is_some() && (self.inner.is_end_stream() || !matches!(frame, Some(Ok(_)))) {
                    self.arriving = None;
                }
                if let (Some(counted), Some(Ok(frame))) = (&self.counted, &frame) {
                    counted.fetch_add(frame.data_ref().map_or(0, |data| data.len() as u64), Relaxed);
                }
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)))
            }
            Poll::Pending => self.poll_timer(cx).map(|()| Some(Err(BodyError::TimedOut(self.idle_timeout)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(timeout) => write!(f, "no byte of the body arrived for {} ms", timeout.as_millis()),
            Self::Broken(error) => {
                write!(f, "the body broke off: {error}")?;
                // What the guard found wrong stands at the end of the chain.
                let mut source = std::error::Error::source(error);
                while let Some(error) = source {
                    write!(f, ": {error}")?;
                    source = error.source();
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for BodyError {}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        let code = match error {
            BodyError::TimedOut(_) => Code::RequestTimeout,
            BodyError::Broken(_) => Code::RequestMalformed,
        };
        Self::new(code, error.to_string())
    }
}
