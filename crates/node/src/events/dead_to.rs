//! An event that cannot be handled goes on to the queue for such events, with a note where it was and why.

use crate::clock;
use problem::{Code, Problem};
use state::{Leased, Push, Pushed, State, Ticket, Transaction};
use std::time::Duration;

/// Attributes of an event that went on: where it was, and why.
const DEAD_QUEUE: &str = "deadqueue";
const DEAD_REASON: &str = "deadreason";
const REASON_CHARACTERS_MAX: usize = 512;

/// Acks the event and pushes it to the queue `to`, with what `ends` writes: all of it or nothing.
///
/// # Errors
/// [`Code::LeaseLost`], [`Code::QueueFull`], those of `ends` and of the disk; [`Code::EventInvalid`]: the queue
/// remembers an event with this id and source, and would drop it.
pub fn send_on(
    state: &State,
    leased: &Leased,
    reason: &str,
    to: &str,
    ends: impl Fn(&mut Transaction) -> Result<(), Problem>,
) -> Result<Ticket, Problem> {
    let mut event = leased.event.clone();
    event.attempt = 1;
    event.attributes.retain(|(name, _)| name != DEAD_QUEUE && name != DEAD_REASON);
    let reason: String = reason.chars().take(REASON_CHARACTERS_MAX).collect();
    event.attributes.extend([(DEAD_QUEUE.into(), leased.queue.as_ref().into()), (DEAD_REASON.into(), reason)]);
    let mut transaction = state.begin();
    ends(&mut transaction)?;
    transaction.ack(leased);
    if transaction.push(to, &Push { event, delay: Duration::ZERO, ttl: None }, clock::now_ms())? == Pushed::Duplicate {
        let detail = format!("the queue {to} remembers an event with this id and source");
        return Err(Problem::new(Code::EventInvalid, detail));
    }
    Ok(transaction.commit()?)
}
