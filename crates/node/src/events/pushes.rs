//! What every event passes on its way into a queue: it is checked, put into a trace, pushed, and looked at when due.

use super::work::set_trace;
use super::{Events, Table};
use crate::traces;
use event::{ATTRIBUTES_MAX, Event};
use problem::{Code, Problem};
use state::{Push, Pushed, StoreError, Transaction};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Bytes of the id, source, type or subject of an event.
const FIELD_BYTES_MAX: usize = 8_192;

/// One transaction that pushes events. Made by [`Events::commit`], perhaps several times for the same work.
pub struct Pushes<'a> {
    pub(super) events: &'a Events,
    pub(super) table: &'a Table,
    pub(super) transaction: &'a mut Transaction,
    pub(super) now_ms: u64,
    /// How many pushes were put into a trace in this transaction.
    pub(super) pushed: usize,
    /// The trace of each push, which is the same when the transaction begins again.
    pub(super) spans: &'a mut Vec<String>,
    /// Queues to be looked at when what was pushed is due.
    pub(super) delayed: &'a mut Vec<(Arc<str>, Duration)>,
}

/// Why an event was not pushed.
pub enum PushError {
    /// It is none that the queue takes.
    Refused(Problem),
    Store(StoreError),
}

impl From<PushError> for Problem {
    fn from(error: PushError) -> Self {
        match error {
            PushError::Refused(problem) => problem,
            PushError::Store(error) => error.into(),
        }
    }
}

impl Pushes<'_> {
    /// Pushes an event. It goes on in its own trace, in that of the `caller`, or in a new one: where something is
    /// traced, the push is a span of its own, and what handles the event its child.
    ///
    /// # Errors
    /// The event or its queue is not right, or the queue has no room.
    pub fn push(&mut self, queue: &Arc<str>, push: &mut Push, caller: Option<&str>) -> Result<Pushed, PushError> {
        refuse_ended(self.table, queue).and_then(|()| check(&push.event)).map_err(PushError::Refused)?;
        if let Some(traces) = &self.events.traces {
            if self.spans.len() == self.pushed {
                let parent = push.event.attribute(traces::HEADER).or(caller);
                self.spans.push(traces.push(parent, queue, &push.event.id, SystemTime::now()));
            }
            set_trace(&mut push.event, &self.spans[self.pushed]);
            self.pushed += 1;
        }
        let pushed = self.transaction.push(queue, push, self.now_ms).map_err(PushError::Store)?;
        if !push.delay.is_zero() {
            self.delayed.push((queue.clone(), push.delay));
        }
        Ok(pushed)
    }

    /// For what is to be true together with the pushes.
    pub fn transaction(&mut self) -> &mut Transaction {
        self.transaction
    }
}

fn refuse_ended(table: &Table, queue: &str) -> Result<(), Problem> {
    let ended = &table.parts().ended;
    if ended.is_empty() {
        return Ok(());
    }
    match table.handlers().get(queue).and_then(|handler| ended.get_key_value(handler.name())) {
        None => Ok(()),
        Some((name, why)) => {
            let detail =
                format!("queue {queue:?} takes no events: {:?} has ended, because {}", name.as_str(), why.reason);
            Err(Problem::new(Code::WorkflowEnded, detail))
        }
    }
}

/// What the queue itself does not look at.
fn check(event: &Event) -> Result<(), Problem> {
    let bad = |detail: String| Err(Problem::new(Code::EventInvalid, detail));
    let needed = [("id", &event.id), ("source", &event.source), ("type", &event.kind)];
    if let Some((name, _)) = needed.iter().find(|(_, value)| value.is_empty()) {
        return bad(format!("the event has no {name}"));
    }
    let subject = event.subject.iter().map(|subject| ("subject", subject));
    if let Some((name, value)) = needed.into_iter().chain(subject).find(|(_, value)| value.len() > FIELD_BYTES_MAX) {
        return bad(format!("the {name} of the event has {} bytes, the limit is {FIELD_BYTES_MAX}", value.len()));
    }
    // An event that is sent says nothing of its gate yet, which will be one more.
    let room = ATTRIBUTES_MAX - usize::from(event.origin.gate.is_none());
    if event.attributes.len() > room {
        return bad(format!("the event has {} attributes, the limit is {room}", event.attributes.len()));
    }
    Ok(())
}

/// What a sender outside of the node said of an event must not be what the node's gates alone say.
///
/// # Errors
/// [`Code::EventInvalid`]: it is.
pub fn refuse_forged(event: &Event) -> Result<(), Problem> {
    let Some(forged) = event.forged() else { return Ok(()) };
    let hint = "give it a type, source and attributes of your own; who passes an event of a gate on needs a token that may deploy";
    Err(Problem::new(Code::EventInvalid, forged.to_string()).with_hint(hint))
}
