//! A function as the consumer of its queue: each event becomes a call, admitted like an HTTP call, that acks the event
//! in its own transaction.

use super::consumer::{Consumer, Outcome, Together, Tried};
use super::past::Ran;
use super::{failure, work};
use crate::call::{Answer, Failed, InBatch, Incoming, Trace};
use crate::functions::{Live, Loader};
use crate::metrics::Times;
use crate::results;
use crate::traces::{self, Traces};
use event::Event;
use futures_util::future::BoxFuture;
use handling::{Batch, Work};
use manifest::Retry;
use problem::Problem;
use state::{Leased, Transaction};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use unit::Level;

/// Longest id of a call. One that is longer, or not plain, is replaced by the event's place in its queue.
const REQUEST_ID_BYTES_MAX: usize = 64;

pub struct FunctionConsumer {
    pub live: Arc<Live>,
    pub loader: Arc<Loader>,
    pub traces: Option<Arc<Traces>>,
    /// What the function pushes may come back to it.
    pub in_cycle: bool,
}

impl Consumer for FunctionConsumer {
    fn time_max(&self) -> Duration {
        self.live.function.limits.handling_max()
    }

    fn workers_max(&self) -> u32 {
        self.live.function.units.maximum
    }

    fn retry(&self) -> &Retry {
        &self.live.function.retry
    }

    /// Its requests wait by themselves, one by one; all else it does is undone together with its cause.
    fn is_outward(&self) -> bool {
        false
    }

    fn dies(&self, transaction: &mut Transaction, leased: &Leased, problem: &Problem) -> Result<(), Problem> {
        results::keep_failure(transaction, self.live.name(), &leased.event, problem)
    }

    fn died(&self, leased: &Leased, reason: &str) {
        let Event { id, source, .. } = &leased.event;
        let note = format!("event {id:?} from {source:?} is a dead letter of queue {:?}: {reason}", leased.queue);
        self.live.identity.log.node(Level::Warn, self.live.version, &note);
    }

    fn batch_max(&self) -> usize {
        self.live.function.units.batch as usize
    }

    fn handle_together(self: Arc<Self>, leased: Vec<Arc<Leased>>, until: Instant) -> BoxFuture<'static, Vec<Together>> {
        Box::pin(async move {
            let mut batch = self.loader.handler.batch(&self.loader.budget);
            let mut handled = Vec::with_capacity(leased.len());
            let mut began = Instant::now();
            for leased in &leased {
                if !handled.is_empty() && (began >= until || batch.is_full()) {
                    break;
                }
                // One that waits for something, or is long, holds up nobody: it begins again alone.
                let one = tokio::time::timeout_at(until.into(), self.handle_in(&mut batch, leased, began));
                let one = one.await.ok().and_then(Result::ok);
                let ended = Instant::now();
                handled.push(one.map(|one| (one, ended - began)));
                began = ended;
            }
            let is_committed = handled.iter().any(Option::is_some) && batch.commit().is_ok();
            let became = |one: Option<(InBatch, Duration)>| match one.filter(|_| is_committed) {
                Some((one, took)) => Together::Acked { ran: self.ran(Some(one.counts())), took },
                None => Together::Alone,
            };
            handled.into_iter().map(became).collect()
        })
    }

    fn handle(self: Arc<Self>, leased: Arc<Leased>) -> BoxFuture<'static, Tried> {
        Box::pin(async move {
            let (incoming, work) = self.incoming(&leased, Instant::now());
            let work = match work {
                Ok(work) => work,
                Err(problem) => return self.tried(Outcome::Dead(incoming.refused(problem)), None),
            };
            match incoming.run(&self.loader, work, Some(leased)).await {
                Ok(Answer { times, .. }) => self.tried(Outcome::Acked, Some(times)),
                Err(Failed { problem, retry_after_s, began, times }) => {
                    let outcome = match failure::outcome(problem, began, self.in_cycle) {
                        Outcome::Postponed { problem, .. } => {
                            Outcome::Postponed { problem, after: retry_after_s.map(Duration::from_secs) }
                        }
                        outcome => outcome,
                    };
                    self.tried(outcome, times.map(|times| *times))
                }
            }
        })
    }
}

impl FunctionConsumer {
    /// A call for the event, and what it is to do.
    fn incoming(&self, leased: &Leased, arrived: Instant) -> (Incoming, Result<Work, Problem>) {
        let mut event = leased.event.clone();
        let trace = self.traces.as_ref().map(|traces| {
            let span = traces.begin(event.attribute(traces::HEADER), SystemTime::now()).of_event();
            work::set_trace(&mut event, &span.context.to_string());
            Trace { traces: traces.clone(), span }
        });
        let incoming = Incoming { live: self.live.clone(), request_id: request_id(leased), arrived, trace };
        (incoming, work::of(self.live.contract, event))
    }

    async fn handle_in(&self, batch: &mut Batch, leased: &Arc<Leased>, arrived: Instant) -> Result<InBatch, Problem> {
        let (incoming, work) = self.incoming(leased, arrived);
        incoming.run_in(batch, &self.loader, work?, leased).await
    }

    fn ran(&self, times: Option<Times>) -> Ran {
        Ran { function: self.live.name().clone(), version: self.live.version, times }
    }

    fn tried(&self, outcome: Outcome, times: Option<Times>) -> Tried {
        Tried { outcome, ran: Some(self.ran(times)) }
    }
}

/// The id of the event where it can stand in a header, so that log lines are found by it.
fn request_id(leased: &Leased) -> Arc<str> {
    let id = leased.event.id.as_str();
    match !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX && id.bytes().all(|b| b.is_ascii_graphic()) {
        true => id.into(),
        false => {
            let place = format!("-{}", leased.sequence);
            let queue: String = leased.queue.chars().take(REQUEST_ID_BYTES_MAX - place.len()).collect();
            (queue + &place).into()
        }
    }
}
