//! A queue, the policy that decides how many work on it, and a unit that does what the seed says.
//!
//! A handling is one transaction: it counts the message in the stage's bucket, pushes it on to the next queue, and
//! acks.

use super::hands::Hands;
use crate::client::message_of;
use orchestrator::{Observation, Policy};
use random::Random;
use state::{Clock, CommitError, Failed, Leased, Push, State, StoreError, Transaction};
use std::time::Duration;

/// How long a handling may take; its lease lasts as long.
const LEASE_MS: u64 = 2_000;
const TRIES: u32 = 3;

pub struct Stage {
    pub queue: &'static str,
    /// Where it is counted how often each message had its effect.
    pub bucket: &'static str,
    pub next: Option<&'static str>,
    pub policy: Box<dyn Policy>,
    workers: Vec<Worker>,
    /// Workers that have ended.
    ended: u64,
    last_lease: Duration,
    mean: orchestrator::Mean,
}

struct Worker {
    work: Option<Work>,
    /// Ends after what it does now.
    is_ending: bool,
}

struct Work {
    leased: Leased,
    transaction: Transaction,
    began_ms: u64,
    ends_ms: u64,
    outcome: Outcome,
}

/// What becomes of a handling, as far as the unit is concerned.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Done,
    /// Commits, and then once more with the same lease, as one that did not hear of it.
    Twice,
    Failed,
    /// The unit is gone without a word: the lease has to end.
    Crashed,
}

impl Stage {
    pub fn new(queue: &'static str, bucket: &'static str, next: Option<&'static str>, policy: Box<dyn Policy>) -> Self {
        let (workers, last_lease) = (Vec::new(), Duration::ZERO);
        Self { queue, bucket, next, policy, workers, ended: 0, last_lease, mean: orchestrator::Mean::default() }
    }

    /// The node is gone, and all that worked with it.
    pub fn cut(&mut self) {
        self.workers.clear();
    }

    /// One look of the policy, and one step of each worker. `is_calm`: everything goes well.
    pub fn step(&mut self, state: &State, hands: &Hands, random: &mut Random, is_calm: bool) {
        let queue = state.queue(self.queue).expect("there can be one");
        queue.do_due(hands.wall_ms()).expect("the state works");
        self.decide(state, hands);
        for place in (0..self.workers.len()).rev() {
            if self.workers[place].work.is_none() && !self.take(place, state, hands, random, is_calm) {
                self.workers.remove(place);
                self.ended += 1;
                continue;
            }
            let is_due = self.workers[place].work.as_ref().is_some_and(|work| work.ends_ms <= hands.steady_ms());
            if let Some(work) = self.workers[place].work.take_if(|_| is_due) {
                self.mean.add(Duration::from_millis(hands.steady_ms() - work.began_ms));
                self.end(work, state, hands);
                if self.workers[place].is_ending {
                    self.workers.remove(place);
                    self.ended += 1;
                }
            }
        }
    }

    fn decide(&mut self, state: &State, hands: &Hands) {
        let counts = state.queue(self.queue).expect("there can be one").counts();
        let seen = Observation {
            ready: counts.ready,
            oldest_age: Duration::from_millis(
                counts.oldest_ms.map_or(0, |since| hands.wall_ms().saturating_sub(since)),
            ),
            last_lease: self.last_lease,
            workers: self.workers.len() as u32,
            busy: self.workers.iter().filter(|worker| worker.work.is_some()).count() as u32,
            ended: self.ended,
            workflow_room: None,
            refused: counts.since_start.refused,
            service_time: self.mean.get(),
            arrival_rate: 0.0,
        };
        let decision = self.policy.decide(Duration::from_millis(hands.steady_ms()), &seen);
        assert_eq!(decision.ends_workflow, None);
        self.workers.extend((0..decision.start).map(|_| Worker { work: None, is_ending: false }));
        self.workers.iter_mut().take(decision.stop as usize).for_each(|worker| worker.is_ending = true);
    }

    /// Says no if there is nothing to do: then the worker ends.
    fn take(&mut self, place: usize, state: &State, hands: &Hands, random: &mut Random, is_calm: bool) -> bool {
        let (queue, now_ms) = (state.queue(self.queue).expect("there can be one"), hands.wall_ms());
        let Some(leased) = queue.lease(now_ms, now_ms + LEASE_MS, 1).expect("the state works").pop() else {
            return false;
        };
        self.last_lease = Duration::from_millis(hands.steady_ms());
        let outcome = match if is_calm { 9 } else { random.below(10) } {
            0 => Outcome::Crashed,
            1 | 2 => Outcome::Failed,
            3 => Outcome::Twice,
            _ => Outcome::Done,
        };
        // One in eight takes longer than its lease lasts.
        let took_ms = if is_calm { 0 } else { random.below(LEASE_MS / 4) << (3 * u64::from(random.below(8) == 0)) };
        let (began_ms, transaction) = (hands.steady_ms(), self.handle(state, &leased, hands));
        let Ok(transaction) = transaction else {
            // The next queue is full: another time.
            queue.release(leased.lease);
            return false;
        };
        let work = Work { leased, transaction, began_ms, ends_ms: began_ms + took_ms, outcome };
        self.workers[place].work = Some(work);
        true
    }

    fn handle(&self, state: &State, leased: &Leased, hands: &Hands) -> Result<Transaction, StoreError> {
        let mut transaction = state.begin();
        transaction.increment(self.bucket, &message_of(&leased.event.data).to_string(), 1)?;
        if let Some(next) = self.next {
            let push = Push { event: leased.event.clone(), delay: Duration::ZERO, ttl: None };
            transaction.push(next, &push, hands.wall_ms())?;
        }
        transaction.ack(leased);
        Ok(transaction)
    }

    fn end(&self, work: Work, state: &State, hands: &Hands) {
        let Work { leased, transaction, outcome, .. } = work;
        let queue = state.queue(self.queue).expect("there can be one");
        match outcome {
            Outcome::Crashed => {}
            Outcome::Done | Outcome::Twice => match transaction.commit() {
                Ok(_) if matches!(outcome, Outcome::Twice) => {
                    let again = self.handle(state, &leased, hands).map(Transaction::commit);
                    assert!(!matches!(again, Ok(Ok(_))), "a lease was acked twice");
                }
                // Another has the event by now, or will.
                Ok(_) | Err(CommitError::LeaseLost) => {}
                Err(CommitError::Conflict | CommitError::QueueFull(_)) => queue.release(leased.lease),
                Err(other) => panic!("{other}"),
            },
            Outcome::Failed => {
                drop(transaction);
                let failed = match leased.event.attempt {
                    TRIES.. => Failed::Dead { reason: "it failed too often".into() },
                    tries => {
                        Failed::Retry { at_ms: hands.wall_ms() + 100 * u64::from(tries), reason: "it failed".into() }
                    }
                };
                let mut transaction = state.begin();
                transaction.fail(&leased, failed);
                match transaction.commit() {
                    Ok(_) | Err(CommitError::LeaseLost) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
}
