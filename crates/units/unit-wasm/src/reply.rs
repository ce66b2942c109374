//! The reply of a `wasi:http` unit: waits for its head, sends small bodies whole, and keeps the unit running while it
//! streams.
//!
//! ```text
//!   unit runs ──head──▶ frames that are there already ──▶ all of it?  yes ─▶ one piece, with its length
//!                                                                    no  ─▶ streams: each poll of the body runs the
//!                                                                           unit on, so a slow reader slows the unit
//! ```
//! A unit that goes on after its body is whole (early reply) runs on by itself until its deadline. A caller that goes
//! away before stops the unit.

use crate::meter::Meter;
use crate::prepared::{ended_with, timing, PreparedWasm};
use crate::run::Run;
use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use problem::{Code, Problem};
use std::collections::VecDeque;
use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use tokio::sync::oneshot;
use unit::{Body, BodyError, Content, Reply, Watch};
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::Error;

/// Bytes of a body that are gathered before its head is sent.
const WHOLE_BYTES_MAX: usize = 64 << 10;

pub async fn call_http(
    prepared: Arc<PreparedWasm>,
    request_id: Arc<str>,
    deadline: Instant,
    watch: Box<dyn Watch>,
    request: Request<Body>,
) -> Result<Reply, Problem> {
    let meter = Arc::new(Meter::new(deadline));
    let is_head = request.method() == Method::HEAD;
    let (sender, receiver) = oneshot::channel();
    let state = prepared.deployed.state.clone();
    let (engine, weight) = (prepared.engine.clone(), prepared.weight.clone());
    let work = prepared.serve(meter.clone(), request_id, request, sender);
    let mut tail = Tail { run: Some(Run::new(engine, weight, meter.clone(), work)), result: Ok(()), meter, watch: Some(watch) };
    let head = tail.head(receiver).await;
    let (head, body) = match head {
        Ok(response) => response.into_parts(),
        Err(problem) => return Err(tail.fail(problem)),
    };
    if let Some(ticket) = tail.meter.take_written() {
        if let Err(problem) = state.durable(ticket).await {
            return Err(tail.fail(problem));
        }
    }
    let mut body = Streaming { tail, inner: body, ready: VecDeque::new(), inner_ended: false };
    let whole = poll_fn(|cx| Poll::Ready(body.gather(cx))).await;
    let timing = timing(&body.tail.meter);
    let body = match whole {
        Err(problem) => return Err(body.tail.fail(problem)),
        Ok(true) => {
            let bytes = join(&mut body.ready);
            body.tail.run_on();
            Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
        }
        Ok(false) if is_head => {
            tokio::spawn(async move { while body.frame().await.is_some() {} });
            Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync()
        }
        Ok(false) => body.boxed_unsync(),
    };
    Ok(Reply { timing, content: Content::Http(Response::from_parts(head, body)) })
}

fn join(frames: &mut VecDeque<Frame<Bytes>>) -> Bytes {
    let mut data = frames.drain(..).filter_map(|frame| frame.into_data().ok());
    let first = data.next().unwrap_or_default();
    let mut rest = data.peekable();
    if rest.peek().is_none() {
        return first;
    }
    let mut joined = BytesMut::from(first);
    rest.for_each(|more| joined.extend_from_slice(&more));
    joined.freeze()
}

/// The unit behind a reply, and who is to hear of its end.
struct Tail {
    run: Option<Run<()>>,
    /// How the run ended, once it has.
    result: Result<(), Problem>,
    meter: Arc<Meter>,
    watch: Option<Box<dyn Watch>>,
}

impl Tail {
    /// Runs the unit until it has set the head of its reply.
    async fn head(
        &mut self,
        receiver: oneshot::Receiver<Result<Response<HyperOutgoingBody>, ErrorCode>>,
    ) -> Result<Response<HyperOutgoingBody>, Problem> {
        let mut receiver = Some(receiver);
        poll_fn(|cx| {
            let ended = self.poll_run(cx);
            let head = match (&mut receiver, &ended) {
                (None, _) => None,
                // All that will come has come; a poll might say "pending" only to let other tasks run.
                (Some(place), Poll::Ready(_)) => place.try_recv().ok(),
                (Some(place), Poll::Pending) => {
                    let head = std::task::ready!(Pin::new(place).poll(cx));
                    receiver = None;
                    head.ok()
                }
            };
            Poll::Ready(match (head, ended) {
                (Some(Ok(response)), _) => Ok(response),
                (Some(Err(code)), _) => {
                    let detail = format!("the unit replied with an error instead of a response: {code:?}");
                    Err(Problem::new(Code::UnitBadReply, detail))
                }
                (None, Poll::Ready(Err(problem))) => Err(problem),
                (None, Poll::Ready(Ok(()))) => {
                    Err(Problem::new(Code::UnitNoReply, "the unit ended without setting a response"))
                }
                // The unit gave the place for its reply away and goes on: its end will tell.
                (None, Poll::Pending) => return Poll::Pending,
            })
        })
        .await
    }

    /// Runs the unit on. Ready with its result once it has ended.
    fn poll_run(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Problem>> {
        if let Some(run) = &mut self.run {
            self.result = std::task::ready!(Pin::new(run).poll(cx));
            self.run = None;
            self.tell(self.result.clone());
        }
        Poll::Ready(self.result.clone())
    }

    fn tell(&mut self, result: Result<(), Problem>) {
        if let Some(watch) = self.watch.take() {
            watch.ended(ended_with(result, Some(&self.meter)));
        }
    }

    /// Stops the unit and reports why.
    fn fail(&mut self, problem: Problem) -> Problem {
        self.run = None;
        self.tell(Err(problem.clone()));
        problem
    }

    /// Lets a unit whose reply is whole go on by itself.
    fn run_on(&mut self) {
        let Some(run) = self.run.take() else { return };
        let mut tail = Tail { run: Some(run), result: Ok(()), meter: self.meter.clone(), watch: self.watch.take() };
        tokio::spawn(async move { poll_fn(|cx| tail.poll_run(cx)).await });
    }
}

/// A reply's body that runs its unit.
struct Streaming {
    tail: Tail,
    inner: HyperOutgoingBody,
    ready: VecDeque<Frame<Bytes>>,
    inner_ended: bool,
}

impl Streaming {
    /// Takes what is there without waiting. True if that is the whole body, without trailers.
    fn gather(&mut self, cx: &mut Context<'_>) -> Result<bool, Problem> {
        let mut bytes = 0;
        while bytes <= WHOLE_BYTES_MAX {
            match self.next(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    bytes += frame.data_ref().map_or(0, Bytes::len);
                    let is_trailers = frame.is_trailers();
                    self.ready.push_back(frame);
                    if is_trailers {
                        return Ok(false);
                    }
                }
                Poll::Ready(Some(Err(problem))) => return Err(problem),
                Poll::Ready(None) => return Ok(true),
                Poll::Pending => return Ok(false),
            }
        }
        Ok(false)
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Problem>>> {
        if self.inner_ended {
            return Poll::Ready(None);
        }
        let ended = self.tail.poll_run(cx);
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        // A unit that fails on another thread drops its side of the body before its end is known here; without its result
        // a body cut off by a trap would look whole.
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) && ended.is_pending() && self.tail.meter.failed.load(SeqCst) {
            return Poll::Pending;
        }
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Poll::Ready(Err(problem)) = ended {
                    return Poll::Ready(Some(Err(problem)));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(match ended {
                Poll::Ready(Err(problem)) => problem,
                _ => Problem::new(Code::UnitBadReply, format!("the unit's body is not right: {error}")),
            }))),
            Poll::Ready(None) => match ended {
                Poll::Ready(Err(problem)) => Poll::Ready(Some(Err(problem))),
                _ => {
                    self.inner_ended = true;
                    Poll::Ready(None)
                }
            },
            Poll::Pending => match ended {
                Poll::Ready(Err(problem)) => Poll::Ready(Some(Err(problem))),
                _ => Poll::Pending,
            },
        }
    }
}

impl HttpBody for Streaming {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(frame) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        match std::task::ready!(self.next(cx)) {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(frame))),
            Some(Err(problem)) => {
                self.inner_ended = true;
                let problem = self.tail.fail(problem);
                Poll::Ready(Some(Err(BodyError::Unit(problem))))
            }
            None => {
                self.tail.run_on();
                Poll::Ready(None)
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Drop for Streaming {
    /// A reader that has all the bytes it was promised drops the body without asking for its end.
    fn drop(&mut self) {
        if self.tail.run.is_some() && self.ready.is_empty() {
            let mut cx = Context::from_waker(Waker::noop());
            let at_end = self.inner_ended || matches!(Pin::new(&mut self.inner).poll_frame(&mut cx), Poll::Ready(None));
            if at_end {
                self.tail.run_on();
            }
        }
    }
}

/// A request's body as the guest's host functions want it.
pub struct ToGuest(pub Body);

impl HttpBody for ToGuest {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Pin::new(&mut self.0).poll_frame(cx).map_err(|error| match error {
            BodyError::TooLarge { limit_bytes } => Error::HttpRequestBodySize(Some(limit_bytes)),
            error => Error::InternalError(Some(error.to_string())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
