//! What goes back to the client: the node's reply or the gate's own, and the end of it noticed.

use crate::access::Access;
use crate::line::Line;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use problem::Problem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// What the node answers.
#[derive(Debug)]
pub struct Handled<B> {
    pub response: Response<B>,
    /// For the access log.
    pub function: Option<Arc<str>>,
}

impl<B> From<Response<B>> for Handled<B> {
    fn from(response: Response<B>) -> Self {
        Self { response, function: None }
    }
}

/// A problem as a reply: RFC 9457, under the status of its code.
pub fn problem_reply(problem: &Problem) -> Response<Bytes> {
    let mut reply = Response::new(Bytes::from(problem.to_json()));
    *reply.status_mut() = StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(problem::MEDIA_TYPE));
    reply
}

/// The body of a reply on its way to the client.
pub struct ReplyBody<B> {
    content: Content<B>,
    in_progress: InProgress,
    access: Option<Box<Access>>,
}

pub(crate) enum Content<B> {
    Gate(Bytes),
    Node(B),
}

/// Says on the [`Line`] that the node is busy for it, and how a request ended.
pub(crate) struct InProgress {
    line: Arc<Line>,
    busy: bool,
    ended: bool,
    /// Bytes of the request's head that the budget knows of.
    head_bytes: u64,
}

impl InProgress {
    pub(crate) fn begin(line: Arc<Line>, head_bytes: u64) -> Self {
        line.work_begins();
        Self { line, busy: true, ended: false, head_bytes }
    }

    fn busy(&mut self, busy: bool) {
        if busy != self.busy {
            self.busy = busy;
            if busy {
                self.line.work_begins();
            } else {
                self.line.work_pauses();
            }
        }
    }

    fn end(&mut self) {
        self.busy(false);
        if !self.ended {
            self.ended = true;
            self.line.answer();
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.busy(false);
        if self.head_bytes > 0 {
            self.line.room.drop_head(self.head_bytes);
        }
        if !self.ended {
            self.line.cancel();
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> ReplyBody<B> {
    pub(crate) fn new(content: Content<B>, in_progress: InProgress, access: Option<Box<Access>>) -> Self {
        let mut body = Self { content, in_progress, access };
        body.in_progress.busy(false);
        if body.is_end_stream() {
            body.end();
        }
        body
    }

    /// The same reply without its body, for HEAD.
    pub(crate) fn without_content(mut self) -> Self {
        self.content = Content::Gate(Bytes::new());
        self.end();
        self
    }

    /// The whole length, if it is known.
    pub(crate) fn exact(&self) -> Option<u64> {
        self.size_hint().exact()
    }

    fn end(&mut self) {
        self.in_progress.end();
        if let Some(access) = &mut self.access {
            access.whole = true;
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ReplyBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = match &mut self.content {
            Content::Gate(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Content::Node(body) => Pin::new(body).poll_frame(cx),
        };
        // While the reply waits for the client, the node is not busy; while the client waits for the node, it is.
        self.in_progress.busy(polled.is_pending());
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(access), Some(data)) = (&mut self.access, frame.data_ref()) {
                    access.bytes_out += data.len() as u64;
                }
                if self.is_end_stream() {
                    self.end();
                }
            }
            Poll::Ready(None) => self.end(),
            // The node broke the reply off: the client did not take it back.
            Poll::Ready(Some(Err(_))) => self.in_progress.end(),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Gate(bytes) => bytes.is_empty(),
            Content::Node(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Gate(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Node(body) => body.size_hint(),
        }
    }
}
