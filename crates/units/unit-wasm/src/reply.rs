//! The reply of a `wasi:http` unit: waits for its head, sends small bodies whole, and keeps the unit running while it
//! streams.
//!
//! ```text
//!   unit runs ──head──▶ frames that are there already ──▶ all of it?  yes ─▶ one piece, with its length
//!                                                                    no  ─▶ streams: each poll of the body runs the
//!                                                                           unit on, so a slow reader slows the unit
//! ```
//! The head is not there before what the unit did until then is durable (`host/head.rs` commits it). If that conflicts
//! with others the request is given to a fresh unit, as long as it can be. Leased work is committed once, at its end.
//!
//! A unit that goes on after its body is whole (early reply) runs on by itself until its deadline. A caller that goes
//! away before stops the unit.

use crate::meter::Meter;
use crate::prepared::{PreparedWasm, ended_with, timing};
use crate::request::{HeadSender, Incoming};
use crate::run::Run;
use budget::{Purpose, Share};
use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http::{Method, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use problem::{Code, Problem};
use state::{Leased, Transaction};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use tokio::sync::oneshot;
use unit::{Body, BodyError, Content, Reply, Watch, WholeReply};
use unit_host::RERUNS_MAX;
use wasmtime_wasi_http::Error;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;

/// Bytes of a body that are gathered before its head is sent.
const WHOLE_BYTES_MAX: usize = 64 << 10;

/// The function, and what all handlings of one request have in common.
pub struct HttpCall {
    pub prepared: Arc<PreparedWasm>,
    pub request_id: Arc<str>,
    pub deadline: Instant,
    pub lease: Option<Arc<Leased>>,
}

impl HttpCall {
    /// Handles the request, and again in a fresh unit if it conflicted with others and can be given to another one.
    pub async fn run(self, mut watch: Box<dyn Watch>, request: Request<Body>) -> Result<Reply, Problem> {
        let is_head = request.method() == Method::HEAD;
        let mut request = Incoming::new(request, self.prepared.may_write());
        let mut reruns = 0;
        loop {
            let (sender, receiver) = oneshot::channel();
            let mut tail = self.begin(&mut request, sender, watch, reruns);
            let problem = match self.head_or_whole(&mut tail, receiver).await {
                Ok(Answer::Whole(reply)) => return Ok(reply),
                Ok(Answer::Head(head, body)) => return tail.send(head, body, is_head).await,
                Err(problem) => problem,
            };
            let again = problem.code == Code::Conflict && reruns + 1 < RERUNS_MAX && request.can_be_given_again();
            if !again || tail.meter.sent.load(SeqCst) {
                return Err(tail.fail(problem));
            }
            watch = tail.watch.take().expect("it hears of an end once");
            reruns += 1;
        }
    }

    fn begin(&self, request: &mut Incoming, head: HeadSender, watch: Box<dyn Watch>, reruns: u32) -> Tail {
        let meter = Arc::new(Meter::new(self.deadline));
        let (prepared, lease) = (self.prepared.clone(), self.lease.clone());
        let work = prepared.clone().serve(meter.clone(), self.request_id.clone(), request.give(), head, lease);
        let run = Run::new(prepared.engine.clone(), prepared.weight.clone(), meter.clone(), Box::pin(work));
        Tail { run: Some(run), result: Ok(()), left: None, meter, watch: Some(watch), is_held: true, reruns }
    }

    /// Waits for the head, and until what was done before it is durable. Leased work is waited for whole and committed;
    /// nobody was promised that it is durable.
    async fn head_or_whole(
        &self,
        tail: &mut Tail,
        receiver: oneshot::Receiver<Result<Response<HyperOutgoingBody>, ErrorCode>>,
    ) -> Result<Answer, Problem> {
        let state = &self.prepared.deployed.state;
        let (head, body) = tail.head(receiver).await?.into_parts();
        let Some(lease) = &self.lease else {
            if let Some(ticket) = tail.meter.take_written() {
                state.durable(ticket).await?;
            }
            tail.release();
            return Ok(Answer::Head(head, body));
        };
        let deployed = &self.prepared.deployed;
        let mut held = deployed.budget.share(Purpose::HostCalls);
        let bytes = tail.whole(body, deployed.function.limits.body_bytes, &mut held).await?;
        let reply = WholeReply::Http(Response::from_parts(head, bytes));
        let mut transaction = tail.left.take().unwrap_or_else(|| state.begin());
        tail.watch.as_mut().expect("it has not heard of an end").commits(&mut transaction, &reply)?;
        transaction.ack(lease);
        let _durable_later = transaction.commit()?;
        tail.release();
        let WholeReply::Http(reply) = reply else { unreachable!("just made") };
        let content = Content::Http(reply.map(|bytes| Full::new(bytes).map_err(|never| match never {}).boxed_unsync()));
        Ok(Answer::Whole(Reply { timing: timing(&tail.meter), content }))
    }
}

/// What a unit gave until now.
enum Answer {
    /// The head, and a body that may still be in the making.
    Head(Parts, HyperOutgoingBody),
    Whole(Reply),
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
    run: Option<Run<Option<Transaction>>>,
    /// How the run ended, once it has.
    result: Result<(), Problem>,
    /// What leased work left to be committed.
    left: Option<Transaction>,
    meter: Arc<Meter>,
    watch: Option<Box<dyn Watch>>,
    /// The end of the run is not yet the end of the call: what was done is not durable, or the run may be begun again.
    is_held: bool,
    reruns: u32,
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
            let result = std::task::ready!(Pin::new(run).poll(cx));
            self.run = None;
            self.result = result.map(|left| self.left = left);
            if !self.is_held {
                self.tell(self.result.clone());
            }
        }
        Poll::Ready(self.result.clone())
    }

    /// From here on the end of the run is the end of the call.
    fn release(&mut self) {
        self.is_held = false;
        if self.run.is_none() {
            self.tell(self.result.clone());
        }
    }

    fn tell(&mut self, result: Result<(), Problem>) {
        if let Some(watch) = self.watch.take() {
            watch.ended(ended_with(result, &self.meter, self.reruns));
        }
    }

    /// Runs the unit to its end and gathers the body; `held` has room for it.
    async fn whole(&mut self, mut body: HyperOutgoingBody, bytes_max: u64, held: &mut Share) -> Result<Bytes, Problem> {
        let mut bytes = BytesMut::new();
        let mut body_ended = None;
        poll_fn(|cx| {
            let ended = self.poll_run(cx);
            while body_ended.is_none() {
                match Pin::new(&mut body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => bytes.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
                    Poll::Ready(Some(Err(error))) => body_ended = Some(Err(bad_body(&error))),
                    Poll::Ready(None) => body_ended = Some(Ok(())),
                    Poll::Pending => break,
                }
                if bytes.len() as u64 > bytes_max {
                    let detail = format!("the reply has more than {bytes_max} bytes, the limit is limits.body_bytes");
                    return Poll::Ready(Err(Problem::new(Code::ReplyTooLarge, detail)));
                }
                if let Err(full) = held.hold(bytes.len() as u64) {
                    return Poll::Ready(Err(full.into()));
                }
            }
            match (ended, &mut body_ended) {
                (Poll::Ready(Err(problem)), _) => Poll::Ready(Err(problem)),
                (Poll::Ready(Ok(())), Some(body)) => Poll::Ready(body.clone()),
                _ => Poll::Pending,
            }
        })
        .await?;
        Ok(bytes.freeze())
    }

    /// Sends what there is of the reply, and lets the unit go on behind it.
    async fn send(self, head: Parts, body: HyperOutgoingBody, is_head: bool) -> Result<Reply, Problem> {
        let mut body = Streaming { tail: self, inner: body, ready: VecDeque::new(), inner_ended: false };
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

    /// Stops the unit and reports why.
    fn fail(&mut self, problem: Problem) -> Problem {
        self.run = None;
        self.tell(Err(problem.clone()));
        problem
    }

    /// Lets a unit whose reply is whole go on by itself.
    fn run_on(&mut self) {
        let Some(run) = self.run.take() else { return };
        let (meter, watch) = (self.meter.clone(), self.watch.take());
        let (is_held, reruns) = (self.is_held, self.reruns);
        let mut tail = Tail { run: Some(run), result: Ok(()), left: None, meter, watch, is_held, reruns };
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
        // A unit that fails on another thread drops its side of the body before its end is known here; without its
        // result a body cut off by a trap would look whole.
        if matches!(polled, Poll::Ready(None | Some(Err(_))))
            && ended.is_pending()
            && self.tail.meter.failed.load(SeqCst)
        {
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
                _ => bad_body(&error),
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

fn bad_body(error: &Error) -> Problem {
    Problem::new(Code::UnitBadReply, format!("the unit's body is not right: {error}"))
}
