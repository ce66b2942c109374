//! A worker: takes one event after the other, hands it to the consumer, and settles the outcome. It ends when the queue
//! is empty, when it is told to, and when the queue must rest.

use super::consumer::{Consumer, Outcome, Tried};
use super::dead_to;
use super::failure::{self, ms};
use super::past::Became;
use super::running::{Slot, Suspect};
use super::shell::Shell;
use super::together;
use super::workflow::UnitPermit;
use crate::clock;
use manifest::Limits;
use problem::{Code, Problem};
use state::{CommitError, Failed, Leased, Ticket, Transaction};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const LEASE_MARGIN: Duration = Limits::LEASE_MARGIN;

/// How long an event that is not durable yet is held for a sink. Beyond, it goes back to its place and the queue rests.
const DURABLE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Counted as a worker of the shell until it is dropped.
pub struct Worker {
    pub(super) shell: Arc<Shell>,
    /// Where it writes down what it handles.
    pub(super) slot: Option<Slot>,
    /// Given back when it ends.
    permit: Option<UnitPermit>,
}

impl Worker {
    /// `permit`: one of its workflow's, if that has a maximum.
    pub fn new(shell: Arc<Shell>, permit: Option<UnitPermit>) -> Self {
        shell.numbers.workers.fetch_add(1, Relaxed);
        let slot = shell.books.running.slot();
        Self { shell, slot, permit }
    }

    pub async fn run(mut self) {
        let mut has_worked = false;
        while self.shell.may_lease() && self.keeps_permit(has_worked) {
            has_worked = true;
            let consumer = self.shell.consumer();
            let mut leased = self.lease(&*consumer, self.shell.together.count(&self.shell, &*consumer)).into_iter();
            let Some(first) = leased.next() else { return };
            match leased.next() {
                None => self.handle_alone(consumer, first).await,
                Some(second) => self.handle_some(consumer, [first, second].into_iter().chain(leased)).await,
            }
            // A queue that is never empty must not keep the thread from others.
            tokio::task::consume_budget().await;
        }
    }

    /// Whether it may take another event, as far as its workflow is concerned, which may be another one by now.
    fn keeps_permit(&mut self, has_worked: bool) -> bool {
        let needed = self.shell.permits.read();
        match (&*needed, &mut self.permit) {
            (None, permit) => {
                *permit = None;
                true
            }
            (Some(needed), Some(permit)) if permit.is_of(needed) => permit.keeps(has_worked),
            (Some(needed), permit) => {
                let taken = needed.hold(None).take();
                *permit = taken;
                permit.is_some()
            }
        }
    }

    /// The oldest events, at most so many; none if there are none, or if they cannot be had.
    fn lease(&self, consumer: &dyn Consumer, count: usize) -> Vec<Held> {
        let shell = &self.shell;
        let now_ms = clock::now_ms();
        let until_ms = now_ms.saturating_add(ms(consumer.time_max() + LEASE_MARGIN));
        match shell.queue.lease_some(now_ms, until_ms, count, together::BYTES_MAX) {
            Ok(leased) => leased.into_iter().map(|leased| Held::new(shell, leased)).collect(),
            Err(problem) => {
                tracing::error!(queue = %shell.name, "cannot lease: {} {}", problem.code, problem.detail);
                shell.rest(None);
                Vec::new()
            }
        }
    }

    pub(super) async fn handle_alone(&self, consumer: Arc<dyn Consumer>, leased: Held) {
        let sequence = leased.leased().sequence;
        match self.shell.books.running.suspect(&leased.leased()) {
            Some(suspect) if consumer.may_end_node() => self.blame(&*consumer, leased, suspect).await,
            _ => self.handle(consumer, leased).await,
        }
        self.shell.together.was_alone(sequence);
    }

    async fn handle(&self, consumer: Arc<dyn Consumer>, held: Held) {
        let shell = &self.shell;
        let leased = held.leased();
        if let Some(slot) = self.slot.as_ref().filter(|_| consumer.may_end_node()) {
            slot.take(&leased);
        }
        let (began, began_ms) = (Instant::now(), clock::now_ms());
        let _busy = Busy::new(shell, began);
        let time_max = consumer.time_max() + LEASE_MARGIN / 2;
        let Tried { outcome, ran } = match self.may_be_told(&*consumer, &leased).await {
            Err(problem) => Outcome::Postponed { problem, after: None }.into(),
            Ok(()) => tokio::time::timeout(time_max, consumer.clone().handle(leased)).await.unwrap_or_else(|_| {
                let detail = format!("the handling took longer than {} ms", time_max.as_millis());
                Outcome::Retry { problem: Problem::new(Code::TimeExceeded, detail), after: None }.into()
            }),
        };
        let (leased, took) = (held.leased(), began.elapsed());
        let (_nobody_waits, became) = shell.settle(&*consumer, held, outcome, took);
        shell.books.past.note(&leased, ran, became, (began_ms, took));
    }

    /// What leaves the node cannot be taken back, so it waits for the disk; the rule is at [`state::Ticket`].
    async fn may_be_told(&self, consumer: &dyn Consumer, leased: &Leased) -> Result<(), Problem> {
        if !consumer.is_outward() {
            return Ok(());
        }
        let state = &self.shell.state;
        let late = || Problem::new(Code::StateBusy, "the disk has not confirmed the event yet");
        tokio::time::timeout(DURABLE_WAIT_MAX, state.durable(leased.ticket)).await.map_err(|_| late())??;
        state.takes_writes()
    }

    /// The node ended in the middle of this event: that was a try, which nobody could write down. It stays a suspect
    /// until the disk has what becomes of it.
    async fn blame(&self, consumer: &dyn Consumer, mut held: Held, suspect: Suspect) {
        let Suspect { attempt, slot } = suspect;
        held.tried(attempt);
        let detail = "the node ended while it handled the event";
        tracing::warn!(queue = %self.shell.name, event = %held.leased().event.id, attempt, "{detail}");
        let outcome = Outcome::Retry { problem: Problem::new(Code::NodeEnded, detail), after: None };
        let leased = held.leased();
        let (ticket, became) = self.shell.settle(consumer, held, outcome, Duration::ZERO);
        self.shell.books.past.note(&leased, None, became, (clock::now_ms(), Duration::ZERO));
        // If the disk fails, nothing more is leased either.
        self.shell.state.durable(ticket).await.ok();
        drop(slot);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shell.numbers.ended.fetch_add(1, Relaxed);
        self.shell.numbers.workers.fetch_sub(1, Relaxed);
        self.shell.wake();
    }
}

/// A leased event; released when it is dropped without having been settled.
pub struct Held {
    shell: Arc<Shell>,
    leased: Option<Arc<Leased>>,
}

impl Held {
    fn new(shell: &Arc<Shell>, leased: Leased) -> Self {
        Self { shell: shell.clone(), leased: Some(Arc::new(leased)) }
    }

    pub(super) fn leased(&self) -> Arc<Leased> {
        self.leased.clone().expect("it is held until it is settled")
    }

    pub(super) fn settled(mut self) {
        self.leased = None;
    }

    /// Which try it was, where a restart has forgotten some.
    fn tried(&mut self, attempt: u32) {
        let leased = Arc::make_mut(self.leased.as_mut().expect("it is held until it is settled"));
        leased.event.attempt = leased.event.attempt.max(attempt);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(leased) = self.leased.take() {
            self.shell.queue.release(leased.lease);
        }
    }
}

/// Counted as busy until it is dropped.
pub(super) struct Busy<'a>(&'a Shell);

impl<'a> Busy<'a> {
    pub(super) fn new(shell: &'a Shell, now: Instant) -> Self {
        shell.numbers.busy.fetch_add(1, Relaxed);
        shell.numbers.last_lease_us.fetch_max(shell.us(now), Relaxed);
        Self(shell)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.numbers.busy.fetch_sub(1, Relaxed);
    }
}

impl Shell {
    /// Writes down what became of an event, and says it. Nobody has to wait for the disk: what is lost with a power cut
    /// is done again.
    fn settle(&self, consumer: &dyn Consumer, held: Held, outcome: Outcome, took: Duration) -> (Ticket, Became) {
        let leased = held.leased();
        let numbers = &self.numbers;
        let mut why = None;
        let failed = match outcome {
            Outcome::Acked => {
                numbers.handled.fetch_add(1, Relaxed);
                self.handled(took);
                held.settled();
                return (Ticket::NOTHING_WRITTEN, Became::Done);
            }
            Outcome::Done => None,
            Outcome::Lost => return self.lose(held),
            Outcome::Postponed { problem, after } => {
                numbers.postponed.fetch_add(1, Relaxed);
                tracing::debug!(queue = %self.name, event = %leased.event.id, "postponed: {} {}", problem.code, problem.detail);
                self.rest(after);
                return (Ticket::NOTHING_WRITTEN, postponed(&problem));
            }
            Outcome::Retry { problem, after } => {
                let (attempt, now_ms) = (leased.event.attempt, clock::now_ms());
                let step = failure::next_step(consumer.retry(), attempt, &problem, after, now_ms, self.random());
                why = Some(problem);
                Some(step)
            }
            Outcome::Dead(problem) => {
                let reason = format!("{}: {}", problem.code, problem.detail);
                why = Some(problem);
                Some(Failed::Dead { reason })
            }
        };
        let ticket = match self.write(consumer, &leased, failed.as_ref(), why.as_ref()) {
            Ok(ticket) => ticket,
            Err(CommitError::LeaseLost) => return self.lose(held),
            Err(error) => {
                let problem = Problem::from(error);
                tracing::error!(queue = %self.name, "cannot write what became of an event: {} {}", problem.code, problem.detail);
                // It is tried again as if this try had not been.
                self.rest(None);
                return (Ticket::NOTHING_WRITTEN, postponed(&problem));
            }
        };
        held.settled();
        // Not before: of what cannot be written each try makes the queue rest longer.
        self.handled(took);
        let became = match failed {
            None => {
                numbers.handled.fetch_add(1, Relaxed);
                Became::Done
            }
            Some(Failed::Retry { at_ms, reason }) => {
                self.books.agenda.add(&self.name, Duration::from_millis(at_ms.saturating_sub(clock::now_ms())));
                numbers.retried.fetch_add(1, Relaxed);
                tracing::debug!(queue = %self.name, event = %leased.event.id, attempt = leased.event.attempt, "tried again later: {reason}");
                Became::Retry { again_ms: at_ms, reason: Became::reason(&reason) }
            }
            Some(Failed::Dead { reason }) => {
                numbers.died.fetch_add(1, Relaxed);
                tracing::warn!(queue = %self.name, event = %leased.event.id, "a dead letter: {reason}");
                consumer.died(&leased, &reason);
                Became::Dead { reason: Became::reason(&reason) }
            }
        };
        (ticket, became)
    }

    fn lose(&self, held: Held) -> (Ticket, Became) {
        self.numbers.lost.fetch_add(1, Relaxed);
        held.settled();
        (Ticket::NOTHING_WRITTEN, Became::Lost)
    }

    /// Without `failed` the event was handled; else `why` is its problem.
    fn write(
        &self,
        consumer: &dyn Consumer,
        leased: &Leased,
        failed: Option<&Failed>,
        why: Option<&Problem>,
    ) -> Result<Ticket, CommitError> {
        let ends = |transaction: &mut Transaction| match (failed, why) {
            (Some(Failed::Dead { .. }), Some(why)) => consumer.dies(transaction, leased, why),
            _ => Ok(()),
        };
        if let (Some(Failed::Dead { reason }), Some(to)) = (failed, self.dead_to()) {
            match dead_to::send_on(&self.state, leased, reason, to.as_str(), ends) {
                Ok(ticket) => return Ok(ticket),
                Err(problem) if problem.code == Code::LeaseLost => return Err(CommitError::LeaseLost),
                // Rather a dead letter here than an event that is nowhere.
                Err(problem) => {
                    tracing::warn!(queue = %self.name, "cannot send on to {to}: {} {}", problem.code, problem.detail);
                }
            }
        }
        let mut transaction = self.state.begin();
        ends(&mut transaction).map_err(CommitError::Unavailable)?;
        match failed {
            None => transaction.ack(leased),
            Some(failed) => transaction.fail(leased, failed.clone()),
        }
        transaction.commit()
    }
}

fn postponed(problem: &Problem) -> Became {
    Became::Postponed { reason: Became::reason(&format!("{}: {}", problem.code, problem.detail)) }
}
