//! Outgoing requests of a unit, counted from when they are sent until nothing of them is left here.
//!
//! What is sent has left the unit's handles: its head, the trailers behind it, and what of its body is on the way. So
//! the body carries what counts it. A unit of WASI 0.2 has a handle for each part of the answer, and handles are
//! counted. In 0.3 these parts are streams: the engine keeps them and nobody else can look into them. There the
//! answer's body carries it too.

use crate::holdings::{FIELDS_BYTES_MAX, Held, REQUESTS_MAX, headers};
use crate::host::http::WINDOW_BYTES;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use wasmtime_wasi_http::Error;

/// Those of one unit.
#[derive(Default)]
pub struct Requests {
    count: AtomicU64,
    /// Bytes of what the unit has put into them.
    bytes: AtomicU64,
}

/// One of them, with what of its bytes is the unit's.
pub struct Request {
    all: Arc<Requests>,
    bytes: u64,
}

/// What a body of an exchange carries; none where handles are counted for it.
pub type UnderWay = Option<Arc<Request>>;

impl Requests {
    /// One with these fields and so many bytes beside them; none if there are as many as there may be.
    pub fn begin(self: &Arc<Self>, fields: &HeaderMap, other_bytes: u64) -> Option<Arc<Request>> {
        if self.count.load(Relaxed) >= REQUESTS_MAX as u64 {
            return None;
        }
        // Trailers are not there yet, and may come while nobody counts.
        let bytes = headers(fields) + FIELDS_BYTES_MAX as u64 + other_bytes;
        self.count.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        Some(Arc::new(Request { all: self.clone(), bytes }))
    }

    pub fn held(&self) -> Held {
        Held { unit: self.bytes.load(Relaxed), windows: self.count.load(Relaxed) * WINDOW_BYTES }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.all.count.fetch_sub(1, Relaxed);
        self.all.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

/// A body that carries what counts it.
pub struct Carried<B> {
    inner: B,
    _under_way: UnderWay,
}

impl<B> Carried<B> {
    pub fn new(inner: B, under_way: UnderWay) -> Self {
        Self { inner, _under_way: under_way }
    }
}

impl<B: Body<Data = Bytes, Error = Error> + Unpin> Body for Carried<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_counts_until_the_last_that_carries_it_is_gone() {
        let requests = Arc::<Requests>::default();
        let one = requests.begin(&HeaderMap::new(), 1_000).unwrap();
        let (body, answer) = (Some(one.clone()), Some(one));
        assert_eq!(requests.held().unit, 1_000 + FIELDS_BYTES_MAX as u64);
        drop(body);
        assert_eq!(requests.held().windows, WINDOW_BYTES);
        drop(answer);
        assert_eq!((requests.held().unit, requests.held().windows), (0, 0));
        let all: Vec<_> = std::iter::from_fn(|| requests.begin(&HeaderMap::new(), 0)).collect();
        assert_eq!(all.len(), REQUESTS_MAX);
    }
}
