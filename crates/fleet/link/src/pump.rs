//! Sends the body of a call as far as the receiver lets it, and keeps what may have to be sent to another node.
//!
//! A receiver that refuses reads nothing, so no more than a stream's window has left until then. What was sent is kept
//! until more than that has left: from there on the call has begun.

use crate::body::{CallBody, Kept, problem_of};
use crate::limits::STREAM_WINDOW_BYTES;
use budget::Share;
use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use problem::Problem;
use std::future::poll_fn;
use tokio::task::AbortHandle;

/// One body on its way. Dropped together with the reply, it resets the stream.
pub(crate) struct Pump {
    body: CallBody,
    stream: SendStream<Bytes>,
    /// None once the call has begun.
    kept: Option<Kept>,
    /// What did not fit in the window.
    waiting: Bytes,
    sent: u64,
    is_over: bool,
}

/// A pump that goes on while the reply is read. Ends it when dropped.
pub(crate) struct Pumping(AbortHandle);

impl Pump {
    /// `share` holds nothing yet.
    pub fn new(body: CallBody, stream: SendStream<Bytes>, share: Share) -> Self {
        let is_over = body.is_end_stream();
        Self { body, stream, kept: Some(Kept::new(share)), waiting: Bytes::new(), sent: 0, is_over }
    }

    /// Whether there is nothing to send any more.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Sends until there is no more, or the receiver wants no more. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The body broke off, or there is no room to keep what is sent: the stream is reset.
    pub async fn run(&mut self) -> Result<(), Problem> {
        let ended = self.send_all().await;
        if ended.is_err() {
            self.stream.send_reset(Reason::CANCEL);
        }
        self.is_over = true;
        ended
    }

    /// The body from its beginning. None: the call has begun.
    pub fn take_back(self) -> Option<CallBody> {
        let Self { body, kept, .. } = self;
        Some(body.from_the_beginning(kept?))
    }

    /// The call has begun: the rest is sent while its reply is read.
    pub fn go_on(mut self) -> Option<Pumping> {
        self.kept = None;
        if self.is_over {
            return None;
        }
        // What broke off is told by the reset, at both ends.
        let task = tokio::spawn(async move { _ = self.run().await });
        Some(Pumping(task.abort_handle()))
    }

    async fn send_all(&mut self) -> Result<(), Problem> {
        loop {
            if !self.waiting.is_empty() {
                if !self.send_some().await {
                    return Ok(());
                }
                continue;
            }
            if self.is_over {
                return Ok(());
            }
            let frame = tokio::select! {
                frame = self.body.frame() => frame,
                // The receiver has all that it wants, or is gone: its reply says which.
                _ = poll_fn(|cx| self.stream.poll_reset(cx)) => return Ok(()),
            };
            let Some(frame) = frame else {
                // The receiver may be gone already.
                let _ = self.stream.send_data(Bytes::new(), true);
                return Ok(());
            };
            let frame = frame.map_err(|fault| problem_of(&fault))?;
            if let Some(kept) = &mut self.kept {
                kept.keep(&frame)?;
            }
            self.take(frame);
        }
    }

    fn take(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) if data.is_empty() && self.body.is_end_stream() => {
                self.is_over = true;
                let _ = self.stream.send_data(data, true);
            }
            Ok(data) => self.waiting = data,
            Err(frame) => {
                self.is_over = true;
                if let Ok(trailers) = frame.into_trailers() {
                    let _ = self.stream.send_trailers(trailers);
                }
            }
        }
    }

    /// Sends what fits. `false`: the receiver wants no more.
    async fn send_some(&mut self) -> bool {
        self.stream.reserve_capacity(self.waiting.len());
        let room = match poll_fn(|cx| self.stream.poll_capacity(cx)).await {
            Some(Ok(room)) => room,
            Some(Err(_)) | None => return false,
        };
        let piece = self.waiting.split_to(room.min(self.waiting.len()));
        self.sent += piece.len() as u64;
        if self.sent > u64::from(STREAM_WINDOW_BYTES) {
            self.kept = None;
        }
        let is_last = self.waiting.is_empty() && self.body.is_end_stream();
        self.is_over |= is_last;
        self.stream.send_data(piece, is_last).is_ok()
    }
}

impl Drop for Pumping {
    fn drop(&mut self) {
        self.0.abort();
    }
}
