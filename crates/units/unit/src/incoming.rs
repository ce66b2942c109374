//! A request on its way into a unit of a `wasi:http` function, and once more into another one after a conflict.
//!
//! The body is passed on as it arrives. As long as it is small, what was passed on is kept beside it, so that a second
//! unit can read it from the start and then go on where the first one was.

use crate::{Body, BodyError};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request};
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Bytes of a body that are kept for another unit. A request with a larger one is not begun again.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// What one frame of a body costs beside its bytes.
const FRAME_BYTES: usize = 64;

/// A request that can be given to several units, one after the other.
pub struct Incoming {
    /// None once it was given away without being kept.
    head: Option<Parts>,
    body: Arc<Mutex<Source>>,
}

/// Where the body comes from: first what is kept of it, then the socket.
struct Source {
    inner: Body,
    /// None when there is more than may be kept, or none is to be kept.
    kept: Option<Vec<Kept>>,
    kept_bytes: usize,
    /// There is no more to come; it is not asked again.
    has_ended: bool,
}

#[derive(Clone)]
enum Kept {
    Data(Bytes),
    Trailers(HeaderMap),
}

impl Incoming {
    /// `keep`: whether it may come to a second unit at all.
    pub fn new(request: Request<Body>, keep: bool) -> Self {
        let (head, inner) = request.into_parts();
        let source = Source { inner, kept: keep.then(Vec::new), kept_bytes: 0, has_ended: false };
        Self { head: Some(head), body: Arc::new(Mutex::new(source)) }
    }

    /// # Panics
    /// A second time, if it was not to be kept.
    pub fn give(&mut self) -> Request<RequestBody> {
        let head = match self.can_be_given_again() {
            true => self.head.clone(),
            false => self.head.take(),
        };
        Request::from_parts(head.expect("given once"), RequestBody { source: self.body.clone(), next: 0 })
    }

    /// Whether all that was read of it is kept.
    pub fn can_be_given_again(&self) -> bool {
        self.body.lock().kept.is_some()
    }
}

impl Source {
    fn keep(&mut self, frame: &Frame<Bytes>) {
        let Some(kept) = &mut self.kept else { return };
        self.kept_bytes += FRAME_BYTES + frame.data_ref().map_or(0, Bytes::len);
        if self.kept_bytes > KEPT_BYTES_MAX {
            self.kept = None;
        } else if let Some(data) = frame.data_ref() {
            kept.push(Kept::Data(data.clone()));
        } else if let Some(trailers) = frame.trailers_ref() {
            kept.push(Kept::Trailers(trailers.clone()));
        }
    }
}

/// A request's body, as one unit reads it.
pub struct RequestBody {
    source: Arc<Mutex<Source>>,
    /// The next frame to take from what is kept.
    next: usize,
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let mut source = this.source.lock();
        if let Some(kept) = source.kept.as_ref().and_then(|kept| kept.get(this.next)) {
            this.next += 1;
            return Poll::Ready(Some(Ok(match kept.clone() {
                Kept::Data(data) => Frame::data(data),
                Kept::Trailers(trailers) => Frame::trailers(trailers),
            })));
        }
        if source.has_ended {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut source.inner).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                source.keep(frame);
                this.next += 1;
            }
            Poll::Ready(Some(Err(_))) => source.kept = None,
            Poll::Ready(None) => source.has_ended = true,
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let source = self.source.lock();
        source.kept.as_ref().is_none_or(|kept| self.next >= kept.len())
            && (source.has_ended || source.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let source = self.source.lock();
        match source.kept.as_ref().is_some_and(|kept| self.next < kept.len()) {
            true => SizeHint::default(),
            false => source.inner.size_hint(),
        }
    }
}
