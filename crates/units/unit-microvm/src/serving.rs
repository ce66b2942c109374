//! A request at work in a machine: what whoever waits for the reply polls, and what that runs.
//!
//! The machine runs on by itself. So the head of a reply, and the end of its body, are kept back until the unit has
//! ended or waits for something, for a moment at most: most replies are whole then and leave with their length, and a
//! unit that traps right behind its reply is heard of in time.

use crate::attempt::{Job, perform};
use crate::exchange::Served;
use crate::outlet::Outlet;
use crate::prepared::PreparedMicrovm;
use crate::question::is_shown;
use crate::words;
use bytes::Bytes;
use event::Event;
use frame::{Checksum, Frame, Kind, Limits, Value};
use futures_util::future::BoxFuture;
use http::header::HOST;
use http::{HeaderMap, Request};
use problem::{Code, Problem};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::Sleep;
use unit::{Attempt, Given, Host, Level, RequestBody, Running, Spent, Work};
use unit_host::Meter;
use unit_host::calls::Said;
use unit_host::kernel::{WORK, garbled};

/// How long a unit may compute while a head or an end is kept back. Longer would be felt by who reads a reply that
/// streams; most units have ended after a hundredth of it.
const HELD_CPU_MAX: Duration = Duration::from_millis(10);
/// The same by the clock, on a machine with more to do than it can.
const HELD_MAX: Duration = Duration::from_millis(200);

/// # Panics
/// The attempt is at an event.
pub fn begin(prepared: Arc<PreparedMicrovm>, attempt: Attempt) -> Box<dyn Running> {
    let Attempt { request_id, work, deadline, host } = attempt;
    let Work::Http(request) = work else { unreachable!("this function takes requests") };
    let (meter, outlet) = (Arc::new(Meter::new(deadline)), Arc::new(Outlet::default()));
    let work = serve(prepared, request_id, request, host, meter.clone(), outlet.clone());
    Box::new(Serving { work: Some(Box::pin(work)), ended: Ok(()), outlet, meter, held: None })
}

async fn serve(
    prepared: Arc<PreparedMicrovm>,
    request_id: Arc<str>,
    request: Request<RequestBody>,
    host: Arc<dyn Host>,
    meter: Arc<Meter>,
    outlet: Arc<Outlet>,
) -> Result<(), Problem> {
    let (head, body) = request.into_parts();
    let work = frame_of(&head)?;
    let served = Some(Served::new(body, outlet.clone()));
    let job = Job { request_id, work, host: host.clone(), meter, served };
    let (said, output) = perform(&prepared, job).await?;
    match said {
        Said::Reply { .. } if outlet.has_head() => host.commit().inspect_err(|problem| {
            let detail = &problem.detail;
            output.note(Level::Error, &format!("what was done after the head of the reply is undone: {detail}"));
        }),
        // Without a head the call has failed, and nothing was done.
        Said::Reply { .. } => Ok(()),
        Said::Failed(_) | Said::Crashed { .. } => Err(garbled("it says of a request what is said of an event")),
    }
}

/// The head of a request as the kernel reads it.
fn frame_of(head: &http::request::Parts) -> Result<Vec<u8>, Problem> {
    let text = |text: Option<&'_ str>| text.map(str::to_owned);
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    let authority = text(head.uri.authority().map(|authority| authority.as_str()).or(host));
    let path = text(head.uri.path_and_query().map(|path| path.as_str()));
    let shown: HeaderMap =
        head.headers.iter().filter(|(name, _)| is_shown(name)).fold(HeaderMap::new(), |mut shown, (name, value)| {
            shown.append(name, value.clone());
            shown
        });
    let body = Value::Map(vec![
        ("method", Value::Str(head.method.as_str())),
        ("scheme", Value::Str(head.uri.scheme_str().unwrap_or("http"))),
        ("authority", authority.as_deref().map_or(Value::Null, Value::Str)),
        ("path", path.as_deref().map_or(Value::Null, Value::Str)),
        ("headers", words::headers(&shown)),
    ]);
    let limits = Limits { meta_bytes_max: 4 << 20, values_max: 1 << 16, ..Limits::default() };
    let frame = Frame { kind: Kind::Call, id: WORK, body }.encode(Checksum::Front, &limits);
    let malformed = |error| Problem::new(Code::RequestMalformed, format!("the request cannot be passed on: {error}"));
    Ok(frame.map_err(malformed)?.to_vec())
}

struct Serving {
    /// None once it has ended.
    work: Option<BoxFuture<'static, Result<(), Problem>>>,
    /// How it ended, once it has.
    ended: Result<(), Problem>,
    outlet: Arc<Outlet>,
    meter: Arc<Meter>,
    /// What is kept back now.
    held: Option<Held>,
}

/// A head, or an end, that is there and is kept back.
struct Held {
    since: Instant,
    /// What the unit had used then.
    cpu: Duration,
    /// Rings when it may have to go.
    alarm: Pin<Box<Sleep>>,
}

impl Serving {
    /// Whether a head or an end that is there is kept back still, by a unit that has not ended.
    fn holds(&mut self, cx: &mut Context<'_>) -> bool {
        if self.outlet.unit_waits() {
            return false;
        }
        let outlet = &self.outlet;
        let held = self.held.get_or_insert_with(|| Held {
            since: Instant::now(),
            cpu: outlet.cpu(),
            alarm: Box::pin(tokio::time::sleep(HELD_CPU_MAX)),
        });
        while held.alarm.as_mut().poll(cx).is_ready() {
            let left = HELD_CPU_MAX.saturating_sub(outlet.cpu().saturating_sub(held.cpu));
            if left.is_zero() || held.since.elapsed() >= HELD_MAX {
                return false;
            }
            // It has waited for a processor.
            held.alarm.as_mut().reset((Instant::now() + left.max(Duration::from_millis(1))).into());
        }
        true
    }
}

impl Running for Serving {
    fn poll_given(&mut self, cx: &mut Context<'_>) -> Poll<Result<Given, Problem>> {
        let ended = self.poll_end(cx);
        if ended.is_pending() && self.outlet.has_head() && self.holds(cx) {
            return Poll::Pending;
        }
        // An end has a moment of its own.
        self.held = None;
        match (self.outlet.take_head(), ended) {
            (Some(head), _) => Poll::Ready(head.map(Given::Head)),
            (None, Poll::Ready(Err(problem))) => Poll::Ready(Err(problem)),
            (None, Poll::Ready(Ok(()))) => {
                let detail = "the unit ended without setting a response";
                Poll::Ready(Err(Problem::new(Code::UnitNoReply, detail)))
            }
            (None, Poll::Pending) => Poll::Pending,
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<http_body::Frame<Bytes>, Problem>>> {
        match self.poll_end(cx) {
            Poll::Ready(Err(problem)) => Poll::Ready(Some(Err(problem))),
            // What is taken makes room, and wakes the unit that waited for it.
            ended => match self.outlet.next(ended.is_ready()) {
                Poll::Ready(None) if ended.is_pending() && self.holds(cx) => Poll::Pending,
                next => next,
            },
        }
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Problem>> {
        if let Some(work) = &mut self.work {
            self.ended = ready!(work.as_mut().poll(cx));
            self.work = None;
        }
        Poll::Ready(self.ended.clone())
    }

    fn spent(&self) -> Spent {
        self.meter.spent()
    }

    /// A request is given again by whoever has it.
    fn give_back(&mut self) -> Option<Event> {
        None
    }
}
