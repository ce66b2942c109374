//! A body that a unit reads: the caller's, or that of a reply to a request of its own.

use crate::words::Failure;
use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;
use unit::{BodyError, RequestBody};

pub struct Source {
    body: UnsyncBoxBody<Bytes, Failure>,
    /// What has come and was not taken.
    data: Bytes,
    end: Option<Result<Option<HeaderMap>, Failure>>,
    /// How long its sender may pause.
    pause_max: Option<Duration>,
    alarm: Option<Pin<Box<Sleep>>>,
}

/// What there is of a body now.
#[derive(Debug)]
pub enum Piece {
    NotYet,
    Data(Bytes),
    End(Option<HeaderMap>),
    Failed(Failure),
}

impl Source {
    pub fn of_request(body: RequestBody) -> Self {
        let failure = |error: BodyError| match error {
            BodyError::TooLarge { limit_bytes } => Failure { number: Some(limit_bytes), ..Failure::of("body-size") },
            error => Failure { text: Some(error.to_string()), ..Failure::of("internal") },
        };
        Self::new(body.map_err(failure).boxed_unsync(), None)
    }

    pub fn of_reply(body: Incoming, pause_max: Option<Duration>) -> Self {
        Self::new(body.map_err(|_| Failure::of("protocol")).boxed_unsync(), pause_max)
    }

    fn new(body: UnsyncBoxBody<Bytes, Failure>, pause_max: Option<Duration>) -> Self {
        Self { body, data: Bytes::new(), end: None, pause_max, alarm: None }
    }

    /// Ready once [`Source::take`] has something.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.data.is_empty() && self.end.is_none() {
            match ready!(self.poll_body(cx)) {
                None => self.end = Some(Ok(None)),
                Some(Err(failure)) => self.end = Some(Err(failure)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.data = data,
                    Err(frame) => self.end = frame.into_trailers().ok().map(|trailers| Ok(Some(trailers))),
                },
            }
        }
        Poll::Ready(())
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<http_body::Frame<Bytes>, Failure>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.alarm = None;
            return Poll::Ready(frame);
        }
        let Some(pause_max) = self.pause_max else { return Poll::Pending };
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause_max)));
        alarm.as_mut().poll(cx).map(|()| Some(Err(Failure::of("read-timeout"))))
    }

    pub fn take(&mut self, bytes_max: usize) -> Piece {
        if self.data.is_empty() {
            return match &self.end {
                None => Piece::NotYet,
                Some(Ok(trailers)) => Piece::End(trailers.clone()),
                Some(Err(failure)) => Piece::Failed(failure.clone()),
            };
        }
        Piece::Data(self.data.split_to(self.data.len().min(bytes_max)))
    }
}
