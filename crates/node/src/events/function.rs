//! A function as the consumer of its queue: each event becomes a call, admitted like an HTTP call, that acks the event
//! in its own transaction.

use super::consumer::{Consumer, Outcome, Tried};
use super::past::Ran;
use super::{failure, work};
use crate::call::{Answer, Failed, Incoming, Trace};
use crate::functions::{Live, Loader};
use crate::metrics::Times;
use crate::results;
use crate::traces::{self, Traces};
use event::Event;
use futures_util::future::BoxFuture;
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

    fn handle(self: Arc<Self>, leased: Arc<Leased>) -> BoxFuture<'static, Tried> {
        Box::pin(async move {
            let mut event = leased.event.clone();
            let trace = self.traces.as_ref().map(|traces| {
                let span = traces.begin(event.attribute(traces::HEADER), SystemTime::now()).of_event();
                work::set_trace(&mut event, &span.context.to_string());
                Trace { traces: traces.clone(), span }
            });
            let request_id = request_id(&leased);
            let incoming = Incoming { live: self.live.clone(), request_id, arrived: Instant::now(), trace };
            let work = match work::of(self.live.contract, event) {
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
    fn tried(&self, outcome: Outcome, times: Option<Times>) -> Tried {
        let ran = Ran { function: self.live.name().clone(), version: self.live.version, times };
        Tried { outcome, ran: Some(ran) }
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
