//! One attempt: what a unit is given, what it gives, and what it has used.

use crate::{Host, Level, Output, RequestBody, cut};
use bytes::Bytes;
use event::{Event, Failure};
use http::response::Parts;
use http_body::Frame;
use problem::{Code, Problem};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// What one unit is to do.
pub struct Attempt {
    /// Printable ASCII, at most 64 bytes: stands in logs and replies.
    pub request_id: Arc<str>,
    pub work: Work,
    /// When the call's wall time ends.
    pub deadline: Instant,
    /// Whom the unit asks while it works.
    pub host: Arc<dyn Host>,
}

/// What one unit is to do: an event, or a request with a body of type `B`.
pub enum Work<B = RequestBody> {
    Event(Event),
    Http(http::Request<B>),
}

/// A unit at work on an attempt. Dropping it stops the unit.
///
/// `poll_given` comes first, until it is ready. After [`Given::Head`] come the others, in any order: each of them runs
/// the unit on, so that a reader who is slow slows the unit.
pub trait Running: Send {
    /// Runs the unit until its caller can be told something. Nothing but a head comes before the unit has ended.
    ///
    /// # Errors
    /// The unit has ended, or is stopped when this is dropped.
    /// - L3xxx: a limit.
    /// - L6xxx: it trapped, or what it replied is no reply.
    /// - What [`Host::commit`] said, if the unit could not go on after it.
    fn poll_given(&mut self, cx: &mut Context<'_>) -> Poll<Result<Given, Problem>>;

    /// The next part of the body that follows the head. A body whose unit fails ends with the unit's problem.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Problem>>> {
        let _ = cx;
        Poll::Ready(None)
    }

    /// Ready with how the unit ended, once it has; ready with the same again whenever it is asked again.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Problem>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }

    /// What it has used until now, or until it ended.
    fn spent(&self) -> Spent;

    /// The event it was given, for another attempt; none for a request, or while the unit still has it.
    fn give_back(&mut self) -> Option<Event>;
}

/// What a unit gives who waits for it.
pub enum Given {
    /// What a handler returned. The unit has ended.
    Reply(Bytes),
    /// How a handler said that it failed. The unit has ended.
    Failure(Problem),
    /// The head of a reply whose body follows.
    Head(Parts),
}

/// What an attempt has used.
pub struct Spent {
    pub timing: Timing,
    pub cpu: Duration,
    /// Linear memory at the end.
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Timing {
    /// From the start of the attempt to a unit that can take it.
    pub start: Duration,
    /// In the unit: until the reply was whole, or until its head was there for a reply that streams.
    pub run: Duration,
    /// What a unit says of its own part of the run.
    pub stages: Option<Stages>,
}

/// Where a unit's own time went, as it says itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages {
    /// Reading the arguments.
    pub decode: Duration,
    /// The function itself.
    pub run: Duration,
    /// Writing the result.
    pub encode: Duration,
}

/// Bytes of a handler's own words that travel in the problem; the log has more of them.
const WORDS_BYTES_MAX: usize = 4 << 10;

/// What the handler itself says went wrong.
pub fn said(failure: Failure, output: &Output) -> Problem {
    let (code, why) = match failure {
        Failure::Invalid(why) => (Code::UnitInvalid, why),
        Failure::Retry(why) => (Code::UnitRetry, why),
        Failure::Fatal(why) => (Code::UnitFatal, why),
    };
    output.note(Level::Warn, &format!("{}: {why}", code.title()));
    Problem::new(code, cut(&why, WORDS_BYTES_MAX).to_owned())
}

/// # Errors
/// [`Code::ReplyTooLarge`]: the reply is over `limits.body_bytes`.
pub fn check_reply(bytes: u64, limits: &manifest::Limits) -> Result<(), Problem> {
    let bytes_max = limits.body_bytes;
    if bytes > bytes_max {
        let detail = format!("the reply has {bytes} bytes, limits.body_bytes is {bytes_max}");
        return Err(Problem::new(Code::ReplyTooLarge, detail));
    }
    Ok(())
}
