//! One call, from the door of its function to its reply: the path the gate and the API share.
//!
//! ```text
//!   work ──▶ admission ──▶ ready? ──▶ Handler::handle ──▶ reply
//!             waits, refuses   loads on the first call      └─▶ Running: results, counters, trace, place given back
//! ```
//! This path is hot: everything it needs hangs off [`Live`], nothing is looked up by name, and atomics count what
//! happens to the call.

use super::events::{is_request, judge};
use super::functions::{Live, Loader};
use super::metrics::Times;
use super::results;
use super::timing::{SERVER_TIMING, server_timing};
use super::traces::{CallEnd, CallSpan, Traces};
use dispatch::Permit;
use handling::{Batch, Call, Caller, Content, Ended, WholeReply, Work};
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue};
use problem::Problem;
use state::{Leased, Transaction};
use std::sync::Arc;
use std::time::{Duration, Instant};
use unit::Spent;

/// A call on its way.
pub struct Incoming {
    pub live: Arc<Live>,
    pub request_id: Arc<str>,
    pub arrived: Instant,
    pub trace: Option<Trace>,
}

/// Where the span of a call goes.
pub struct Trace {
    pub traces: Arc<Traces>,
    pub span: CallSpan,
}

/// The reply of a unit, and where the time went until now.
pub struct Answer {
    pub content: Content,
    pub times: Times,
}

/// Why there is no answer.
pub struct Failed {
    pub problem: Problem,
    /// Whether it had a unit.
    pub began: bool,
    /// Seconds after which trying again is known to help.
    pub retry_after_s: Option<u64>,
    /// Where the time went, once it waited for its turn. What a unit spent on starting is part of `run`.
    pub times: Option<Box<Times>>,
}

impl Failed {
    /// What a reply says of it beside the problem.
    pub fn describe(&self, headers: &mut HeaderMap) {
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(times) = &self.times {
            headers.insert(SERVER_TIMING, server_timing(times));
        }
    }
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self { problem, began: false, retry_after_s: None, times: None }
    }
}

impl Incoming {
    /// Runs the work; with a lease, its event is acked in the transaction of the handling. Dropping the future stops
    /// the unit, as does dropping the body of the reply.
    ///
    /// # Errors
    /// What admission, the loader or the unit say; counted here.
    pub async fn run(self, loader: &Arc<Loader>, work: Work, lease: Option<Arc<Leased>>) -> Result<Answer, Failed> {
        let permit = match self.live.identity.admission.admit(self.arrived.into()).await {
            Ok(permit) => permit,
            Err(refusal) => {
                let problem = self.refused(refusal.problem(self.live.name().as_str()));
                let times = Times { queue: self.arrived.elapsed(), ..Times::default() };
                let retry_after_s = refusal.retry_after_s();
                return Err(Failed { problem, began: false, retry_after_s, times: Some(times.into()) });
            }
        };
        let ready = match loader.ready(&self.live, self.arrived).await {
            Ok(ready) => ready,
            Err(problem) => return Err(self.refused(problem).into()),
        };
        // The function's own time begins when it could run.
        let could_run = Instant::now();
        let deadline = could_run + self.live.function.limits.time();
        let request_id = self.request_id.clone();
        let (queue, load) = (permit.waited(), ready.took);
        let leased = lease.clone();
        let running = Running { call: self, queue, load, leased, _permit: permit, heard: false };
        let call = Call { request_id, work, deadline, lease };
        let reply = loader.handler.handle(ready.prepared, call, running).await.map_err(|problem| {
            let times = Times { queue, start: load, run: could_run.elapsed(), ..Times::default() };
            Failed { problem, began: true, retry_after_s: None, times: Some(times.into()) }
        })?;
        let times = Times {
            queue,
            start: load + reply.timing.start,
            run: reply.timing.run,
            stages: reply.timing.stages,
            total: Duration::ZERO,
        };
        Ok(Answer { content: reply.content, times })
    }

    /// Runs the work in a batch, whose commit acks its event.
    ///
    /// # Errors
    /// The event is to be handled alone: nothing is left of this try, and nobody has counted it.
    pub async fn run_in(
        self,
        batch: &mut Batch,
        loader: &Arc<Loader>,
        work: Work,
        leased: &Arc<Leased>,
    ) -> Result<InBatch, Problem> {
        let permit = self.live.identity.admission.admit(self.arrived.into()).await;
        let permit = permit.map_err(|refusal| refusal.problem(self.live.name().as_str()))?;
        let ready = loader.ready(&self.live, self.arrived).await?;
        let deadline = Instant::now() + self.live.function.limits.time();
        let call = Call { request_id: self.request_id.clone(), work, deadline, lease: Some(leased.clone()) };
        let live = self.live.clone();
        let commits = |transaction: &mut Transaction, reply: &WholeReply| commits(&live, leased, transaction, reply);
        let Spent { timing, cpu, memory_bytes } = batch.handle(ready.prepared, call, commits).await?;
        let times = Times {
            queue: permit.waited(),
            start: ready.took + timing.start,
            run: timing.run,
            stages: timing.stages,
            total: self.arrived.elapsed(),
        };
        Ok(InBatch { call: self, times, cpu, memory_bytes })
    }

    /// The call ends before it has a unit.
    pub fn refused(&self, problem: Problem) -> Problem {
        self.live.identity.counters.refused(problem.code);
        let total = self.arrived.elapsed();
        self.end_trace(&Times { queue: total, total, ..Times::default() }, Some(&problem));
        problem
    }

    fn end_trace(&self, times: &Times, problem: Option<&Problem>) {
        if let Some(Trace { traces, span }) = &self.trace {
            let Times { queue, start, run, total, .. } = *times;
            let (function, version) = (self.live.name().as_str(), self.live.version);
            let request_id = &*self.request_id;
            traces.end(span, &CallEnd { function, version, request_id, queue, start, run, total, problem });
        }
    }
}

/// What is written in the transaction that acks an event.
fn commits(live: &Live, leased: &Leased, transaction: &mut Transaction, reply: &WholeReply) -> Result<(), Problem> {
    if let WholeReply::Http(reply) = reply
        && !is_request(&leased.event)
    {
        judge(reply.status())?;
    }
    results::keep_reply(transaction, live.name(), &leased.event, reply)
}

/// A call that went well in a batch that is not committed yet. Dropped, it was none.
pub struct InBatch {
    call: Incoming,
    pub times: Times,
    cpu: Duration,
    memory_bytes: u64,
}

impl InBatch {
    /// The batch is committed, and counts.
    pub fn counts(self) -> Times {
        let Self { call, times, cpu, memory_bytes } = self;
        call.live.identity.counters.ended(None, &times, cpu, memory_bytes);
        call.end_trace(&times, None);
        times
    }
}

/// A call that runs: keeps what became of it, counts it when it has ended, and holds its place until then.
struct Running {
    call: Incoming,
    queue: Duration,
    /// Making the function ready, which only its first call waits for; counts as starting.
    load: Duration,
    leased: Option<Arc<Leased>>,
    _permit: Permit,
    heard: bool,
}

impl Caller for Running {
    fn commits(&mut self, transaction: &mut Transaction, reply: &WholeReply) -> Result<(), Problem> {
        self.leased.as_ref().map_or(Ok(()), |leased| commits(&self.call.live, leased, transaction, reply))
    }

    fn ended(mut self, ended: Ended) {
        self.heard = true;
        let Ended { result, timing, cpu, memory_bytes, reruns } = ended;
        self.call.live.identity.counters.reruns(reruns);
        let total = self.call.arrived.elapsed();
        let times =
            Times { queue: self.queue, start: self.load + timing.start, run: timing.run, stages: timing.stages, total };
        let problem = result.err();
        self.call.live.identity.counters.ended(problem.as_ref().map(|problem| problem.code), &times, cpu, memory_bytes);
        self.call.end_trace(&times, problem.as_ref());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.heard {
            self.call.live.identity.counters.gone();
            let total = self.call.arrived.elapsed();
            self.call.end_trace(&Times { queue: self.queue, total, ..Times::default() }, None);
        }
    }
}
