//! The reply of a `wasi:http` unit, once its head may be sent: small bodies go out whole, and while a larger one
//! streams its unit is kept running.
//!
//! ```text
//!   head ──▶ frames that are there already ──▶ all of it?  yes ─▶ one piece, with its length
//!                                                         no  ─▶ streams: each poll of the body runs the unit on,
//!                                                                so a slow reader slows the unit
//! ```
//! A unit that goes on after its body is whole (early reply) runs on by itself until its deadline. A caller that goes
//! away before stops the unit. One that stays and does not read polls nothing: a task of its own ends such a reply
//! when the call's time is up.

use crate::host::Handling;
use crate::kept::kept;
use crate::rerun::tell;
use crate::{Caller, Content, Handler, Reply};
use budget::Share;
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::Response;
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;
use unit::{Body, BodyError, Running};

/// Bytes of a body that are gathered before its head is sent.
const WHOLE_BYTES_MAX: usize = 64 << 10;
/// What a unit has beyond its time to say itself how it ended, while somebody reads.
const GRACE: Duration = Duration::from_millis(500);

pub fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Runs the unit to its end and gathers the body; `held` has room for it.
pub async fn whole(running: &mut dyn Running, bytes_max: u64, held: &mut Share) -> Result<Bytes, Problem> {
    let mut bytes = BytesMut::new();
    let mut body_ended = false;
    poll_fn(|cx| {
        let ended = running.poll_end(cx);
        while !body_ended {
            match running.poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => bytes.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
                Poll::Ready(Some(Err(problem))) => return Poll::Ready(Err(problem)),
                Poll::Ready(None) => body_ended = true,
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
        match ended {
            Poll::Ready(Err(problem)) => Poll::Ready(Err(problem)),
            Poll::Ready(Ok(())) if body_ended => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    })
    .await?;
    Ok(bytes.freeze())
}

/// Sends what there is of the reply, and lets the unit go on behind it.
pub async fn send<C: Caller>(tail: Tail<C>, head: Parts, is_head: bool, deadline: Instant) -> Result<Reply, Problem> {
    let promised = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let mut body = Streaming { tail, ready: VecDeque::new(), has_ended: false, promised, given: 0 };
    let whole = poll_fn(|cx| Poll::Ready(body.gather(cx))).await;
    let timing = body.tail.running.as_ref().map(|running| running.spent().timing).unwrap_or_default();
    let body = match whole {
        Err(problem) => return Err(body.tail.fail(problem)),
        Ok(true) => {
            let bytes = join(&mut body.ready);
            // What was done is durable by now. So it is told even where there is no room to count what is little.
            let bytes = kept(body.tail.host.budget(), bytes.clone()).unwrap_or(bytes);
            body.tail.run_on();
            full(bytes)
        }
        Ok(false) if is_head => {
            tokio::spawn(async move { while body.frame().await.is_some() {} });
            full(Bytes::new())
        }
        Ok(false) => Watched::new(body, deadline).boxed_unsync(),
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

/// The unit behind a reply whose head may be sent, and who is to hear of its end.
pub struct Tail<C: Caller> {
    handler: Handler,
    /// None once it was stopped, or goes on elsewhere.
    running: Option<Box<dyn Running>>,
    host: Arc<Handling>,
    /// What was committed up to this number is durable.
    before: u64,
    /// Waits for what was committed after the head.
    durable: Option<BoxFuture<'static, Result<(), Problem>>>,
    /// How it ended, once it has.
    ended: Option<Result<(), Problem>>,
    /// None once it has heard of the end.
    caller: Option<C>,
    reruns: u32,
}

impl<C: Caller> Tail<C> {
    pub fn new(
        handler: &Handler,
        running: Box<dyn Running>,
        host: Arc<Handling>,
        before: u64,
        caller: C,
        reruns: u32,
    ) -> Self {
        let (handler, running, caller) = (handler.clone(), Some(running), Some(caller));
        Self { handler, running, host, before, durable: None, ended: None, caller, reruns }
    }

    /// Runs the unit on. Ready with how it ended, once it has and what it did is durable; the caller has heard of it.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Problem>> {
        if let Some(ended) = &self.ended {
            return Poll::Ready(ended.clone());
        }
        let Some(running) = &mut self.running else { return Poll::Ready(Ok(())) };
        let result = match std::task::ready!(running.poll_end(cx)) {
            Ok(()) => std::task::ready!(self.poll_durable(cx)),
            Err(problem) => Err(problem),
        };
        self.tell(result.clone());
        Poll::Ready(result)
    }

    fn poll_durable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Problem>> {
        let committed = self.host.committed();
        if committed == self.before {
            return Poll::Ready(Ok(()));
        }
        let state = &self.handler.state;
        let durable = self.durable.get_or_insert_with(|| {
            let state = state.clone();
            Box::pin(async move { state.durable_number(committed).await.map(drop) })
        });
        durable.as_mut().poll(cx)
    }

    fn tell(&mut self, result: Result<(), Problem>) {
        self.ended = Some(result.clone());
        if let (Some(caller), Some(running)) = (self.caller.take(), &self.running) {
            tell(caller, result, running.spent(), self.reruns);
        }
    }

    /// Stops the unit and reports why.
    fn fail(&mut self, problem: Problem) -> Problem {
        self.host.give_up();
        self.tell(Err(problem.clone()));
        self.running = None;
        problem
    }

    /// Lets a unit whose reply is whole go on by itself, if it does.
    fn run_on(&mut self) {
        let Some(caller) = self.caller.take() else { return };
        let (handler, running, host) = (self.handler.clone(), self.running.take(), self.host.clone());
        let (before, durable, reruns) = (self.before, self.durable.take(), self.reruns);
        let mut tail = Self { handler, running, host, before, durable, ended: None, caller: Some(caller), reruns };
        tokio::spawn(async move { poll_fn(|cx| tail.poll_end(cx)).await });
    }
}

impl<C: Caller> Drop for Tail<C> {
    fn drop(&mut self) {
        // The caller has gone: the unit is stopped before its end.
        if self.caller.is_some() {
            self.host.give_up();
        }
    }
}

/// A reply's body that runs its unit.
struct Streaming<C: Caller> {
    tail: Tail<C>,
    ready: VecDeque<Frame<Bytes>>,
    has_ended: bool,
    /// Bytes that the head says there are, if it does.
    promised: Option<u64>,
    /// Bytes that the unit has given.
    given: u64,
}

impl<C: Caller> Streaming<C> {
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
        // Whoever waits for the unit's end hears of it, however far the body is.
        let ended = self.tail.poll_end(cx);
        if self.has_ended {
            return Poll::Ready(None);
        }
        let Some(running) = self.tail.running.as_mut() else {
            // It was stopped in the middle: a body that only ended would look whole.
            return ended.map(|result| result.err().map(Err));
        };
        let polled = running.poll_frame(cx);
        match (&polled, ended) {
            // What was done after the head is not durable: a body that rests on it is not whole.
            (Poll::Ready(None), Poll::Ready(Err(problem))) => return Poll::Ready(Some(Err(problem))),
            (Poll::Ready(None), _) => self.has_ended = true,
            (Poll::Ready(Some(Ok(frame))), _) => self.given += frame.data_ref().map_or(0, |data| data.len() as u64),
            _ => {}
        }
        polled
    }

    /// The call's time is up: stops the unit, unless it has ended. Ready once whoever waits for that has heard of it.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_ended {
            return Poll::Ready(());
        }
        let Some(running) = &mut self.tail.running else { return Poll::Ready(()) };
        let problem = match running.poll_end(cx) {
            // What is left of the body was written in time, and is little.
            Poll::Ready(Ok(())) => return self.tail.poll_end(cx).map(drop),
            Poll::Ready(Err(problem)) => problem,
            Poll::Pending => {
                Problem::new(Code::TimeExceeded, "the call's time was up before its reply had been read to its end")
            }
        };
        self.ready.clear();
        self.tail.fail(problem);
        Poll::Ready(())
    }
}

impl<C: Caller> HttpBody for Streaming<C> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(frame) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        match std::task::ready!(self.next(cx)) {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(frame))),
            Some(Err(problem)) => {
                self.has_ended = true;
                let problem = self.tail.fail(problem);
                Poll::Ready(Some(Err(BodyError::Unit(problem))))
            }
            None => {
                self.tail.run_on();
                Poll::Ready(None)
            }
        }
    }
}

impl<C: Caller> Drop for Streaming<C> {
    /// A reader that has all the bytes it was promised drops the body without asking for its end.
    fn drop(&mut self) {
        if self.tail.caller.is_none() || !self.ready.is_empty() {
            return;
        }
        let mut cx = Context::from_waker(Waker::noop());
        // A unit in a machine of its own may be on its way to say that this was all.
        let at_end = self.has_ended
            || self.promised == Some(self.given)
            || self.tail.running.as_mut().is_some_and(|one| matches!(one.poll_frame(&mut cx), Poll::Ready(None)));
        if at_end {
            self.tail.run_on();
        }
    }
}

/// A reply's body whose time binds whether somebody reads it or not.
struct Watched<C: Caller> {
    shared: Arc<Mutex<Shared<C>>>,
    watch: AbortHandle,
}

struct Shared<C: Caller> {
    body: Streaming<C>,
    /// Waits for the next frame.
    reader: Option<Waker>,
}

impl<C: Caller> Watched<C> {
    fn new(body: Streaming<C>, deadline: Instant) -> Self {
        let shared = Arc::new(Mutex::new(Shared { body, reader: None }));
        let watch = tokio::spawn(watch(Arc::downgrade(&shared), deadline + GRACE)).abort_handle();
        Self { shared, watch }
    }
}

/// Ends the reply when its time is up. Holds nothing of it until then: a reader that goes away takes it along.
async fn watch<C: Caller>(shared: Weak<Mutex<Shared<C>>>, over: Instant) {
    tokio::time::sleep_until(over.into()).await;
    poll_fn(|cx| {
        let Some(shared) = shared.upgrade() else { return Poll::Ready(()) };
        let mut shared = shared.lock();
        let polled = shared.body.poll_over(cx);
        // The unit may have woken this task in the place of who reads.
        if let Some(reader) = shared.reader.take() {
            reader.wake();
        }
        polled
    })
    .await;
}

impl<C: Caller> HttpBody for Watched<C> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut shared = self.shared.lock();
        let polled = Pin::new(&mut shared.body).poll_frame(cx);
        shared.reader = polled.is_pending().then(|| cx.waker().clone());
        polled
    }
}

impl<C: Caller> Drop for Watched<C> {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

#[cfg(test)]
mod tests;
