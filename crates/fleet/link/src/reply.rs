//! The reply of another node, as it arrives.

use crate::body::Patience;
use crate::pump::Pumping;
use crate::room::CallRoom;
use bytes::Bytes;
use h2::RecvStream;
use http::Response;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};
use problem::{Code, Problem};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::OwnedSemaphorePermit;

/// The body of a reply that comes from another node. Dropping it ends the call there.
pub struct FarReply {
    stream: RecvStream,
    /// Bytes that the head has announced and that are still to come.
    announced: Option<u64>,
    is_data_over: bool,
    patience: Patience,
    held: Option<CallHold>,
}

/// What a call holds until its reply has ended.
pub(crate) struct CallHold {
    pub _permit: OwnedSemaphorePermit,
    pub _room: CallRoom,
    pub _pumping: Option<Pumping>,
}

impl FarReply {
    pub(crate) fn of(response: Response<RecvStream>, held: CallHold) -> Response<Self> {
        let announced = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        response.map(|stream| {
            let held = (!stream.is_end_stream()).then_some(held);
            Self { stream, announced, is_data_over: false, patience: Patience::default(), held }
        })
    }

    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.is_data_over {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    // Whoever asks for more has done with this; the window is as large as what may wait.
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    let left = self.announced.map(|left| left.saturating_sub(data.len() as u64));
                    self.announced = left;
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.is_data_over = true,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(cx));
        Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)).transpose())
    }
}

impl Body for FarReply {
    type Data = Bytes;
    type Error = Problem;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Problem>>> {
        let this = &mut *self;
        let broken =
            |what: String| Problem::new(Code::CallLost, format!("the reply of the other node broke off: {what}"));
        match this.poll_stream(cx) {
            Poll::Ready(frame) => {
                this.patience.came();
                if this.stream.is_end_stream() || !matches!(frame, Some(Ok(_))) {
                    this.held = None;
                }
                Poll::Ready(frame.map(|frame| frame.map_err(|error| broken(error.to_string()))))
            }
            Poll::Pending => this.patience.poll_over(cx).map(|what| Some(Err(broken(what)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.announced {
            _ if self.is_end_stream() => SizeHint::with_exact(0),
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::new(),
        }
    }
}

impl fmt::Debug for FarReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarReply").field("stream", &self.stream).finish_non_exhaustive()
    }
}
