//! The reply of a unit on its way to whoever reads it: its head, and as much of its body as waits there.

use crate::tender::Clock;
use bytes::Bytes;
use http::HeaderMap;
use http::response::Parts;
use http_body::Frame;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;
use unit_host::kernel::garbled;

/// Bytes of a body that wait to be read. The unit waits while there are more.
const WAITING_BYTES_MAX: usize = 64 << 10;
/// What a piece takes beside its bytes.
const PIECE_BYTES: usize = 128;

/// Between the attempt, which writes, and whoever reads; both are polled by the same task.
#[derive(Default)]
pub struct Outlet(Mutex<State>);

#[derive(Default)]
struct State {
    head: Head,
    frames: VecDeque<Frame<Bytes>>,
    waiting_bytes: usize,
    has_body: bool,
    is_whole: bool,
    /// The unit stands still until it is answered.
    unit_waits: bool,
    /// Says what the unit has used; none until there is one.
    clock: Option<Clock>,
    /// Waits for room.
    writer: Option<Waker>,
}

#[derive(Default)]
enum Head {
    #[default]
    None,
    /// Set; what it rests on is being committed.
    Coming(Box<Parts>),
    Here(Box<Parts>),
    Refused(String),
    Taken,
}

impl Outlet {
    pub fn head(&self, head: Box<Parts>, has_body: bool) -> Result<(), Problem> {
        let mut state = self.0.lock();
        if !matches!(state.head, Head::None) {
            return Err(garbled("it replied twice"));
        }
        state.head = Head::Coming(head);
        (state.has_body, state.is_whole) = (has_body, !has_body);
        Ok(())
    }

    /// What was done before the head is committed: whoever waits for it may have it.
    pub fn head_stands(&self) {
        let mut state = self.0.lock();
        state.head = match std::mem::take(&mut state.head) {
            Head::Coming(head) => Head::Here(head),
            other => other,
        };
    }

    pub fn refuse(&self, why: &str) -> Result<(), Problem> {
        let mut state = self.0.lock();
        if !matches!(state.head, Head::None) {
            return Err(garbled("it replied twice"));
        }
        state.head = Head::Refused(unit::cut(why, 4_000).to_owned());
        Ok(())
    }

    /// To be told when the unit asks its host, and when it is answered.
    pub fn waits(&self, unit_waits: bool) {
        self.0.lock().unit_waits = unit_waits;
    }

    /// To be told which unit writes.
    pub fn is_of(&self, clock: Clock) {
        self.0.lock().clock = Some(clock);
    }

    /// Processor time of the unit.
    pub fn cpu(&self) -> Duration {
        self.0.lock().clock.as_ref().map(Clock::cpu).unwrap_or_default()
    }

    pub fn unit_waits(&self) -> bool {
        self.0.lock().unit_waits
    }

    /// Whether there was a head.
    pub fn has_head(&self) -> bool {
        matches!(self.0.lock().head, Head::Here(_) | Head::Taken)
    }

    /// Puts a piece of the body there, once there is room.
    pub async fn write(&self, frame: Frame<Bytes>) -> Result<bool, Problem> {
        let mut frame = Some(frame);
        poll_fn(|cx| {
            let mut state = self.0.lock();
            if !matches!(state.head, Head::Here(_) | Head::Taken) || !state.has_body || state.is_whole {
                return Poll::Ready(Err(garbled("it wrote to a reply that takes nothing")));
            }
            if state.waiting_bytes >= WAITING_BYTES_MAX {
                state.writer = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let frame = frame.take().expect("it is put there once");
            if !is_empty(&frame) {
                state.waiting_bytes += weight(&frame);
                state.frames.push_back(frame);
            }
            Poll::Ready(Ok(true))
        })
        .await
    }

    /// The body is whole.
    pub async fn finish(&self, trailers: Option<HeaderMap>) -> Result<(), Problem> {
        match trailers {
            Some(trailers) => _ = self.write(Frame::trailers(trailers)).await?,
            // Nothing is written, and it is asked for as if.
            None => _ = self.write(Frame::data(Bytes::new())).await?,
        }
        self.0.lock().is_whole = true;
        Ok(())
    }

    /// The head, once; or that there is an error instead of one.
    pub fn take_head(&self) -> Option<Result<Parts, Problem>> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut state.head, Head::Taken) {
            Head::Here(head) => Some(Ok(*head)),
            Head::Refused(why) => {
                let detail = format!("the unit replied with an error instead of a response: {why}");
                Some(Err(Problem::new(Code::UnitBadReply, detail)))
            }
            other => {
                state.head = other;
                None
            }
        }
    }

    /// The next piece of the body, if one is there; none at its end. `has_ended`: the unit writes nothing more.
    pub fn next(&self, has_ended: bool) -> Poll<Option<Result<Frame<Bytes>, Problem>>> {
        let mut state = self.0.lock();
        if let Some(frame) = state.frames.pop_front() {
            state.waiting_bytes -= weight(&frame);
            if let Some(writer) = state.writer.take() {
                writer.wake();
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        match (state.is_whole, has_ended) {
            (true, _) => Poll::Ready(None),
            (false, true) => {
                let detail = "the unit's body is not right: the unit ended without finishing it";
                Poll::Ready(Some(Err(Problem::new(Code::UnitBadReply, detail))))
            }
            (false, false) => Poll::Pending,
        }
    }
}

fn is_empty(frame: &Frame<Bytes>) -> bool {
    frame.data_ref().is_some_and(Bytes::is_empty)
}

fn weight(frame: &Frame<Bytes>) -> usize {
    PIECE_BYTES + frame.data_ref().map_or(0, Bytes::len)
}
