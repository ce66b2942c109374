//! Letters of another node become events in queues of this one: all that fit, and how far that is, in one transaction.

use super::desk::Desk;
use super::names::home_of;
use super::{Mail, REASON, UNDELIVERABLE};
use crate::Node;
use crate::events::{PushError, Pushes};
use crate::functions::Table;
use crate::mqtt::MQTT_QUEUE;
use ::mail::{Arrival, Inbox, Letter, Lost, Mark, Message, NotTaken, Parcel, Receipt};
use event::{Event, Gate};
use fleet_trust::NodeId;
use problem::{Code, Problem};
use state::{Push, StoreError, Ticket};
use std::sync::Arc;
use std::time::Duration;

/// Type of the event that a letter becomes which is none.
const UNREADABLE: &str = "lighterage.mail.unreadable";
/// Characters of the reason why; the rest is cut off.
const REASON_CHARACTERS_MAX: usize = 512;

impl Desk {
    /// Takes a message that the node `by` brought. Says what that is answered at once.
    pub(super) fn take(&self, node: &Node, mail: &Mail, by: &NodeId, message: &[u8]) -> Option<Vec<u8>> {
        match Message::read(message) {
            Ok(Message::Parcel(parcel)) => self.take_parcel(node, mail, by, &parcel).map(|receipt| receipt.write()),
            Ok(Message::Receipt(receipt)) => {
                self.settle(&receipt, by);
                None
            }
            Err(error) => {
                tracing::debug!(%by, %error, "a message of a node is no mail");
                None
            }
        }
    }

    fn take_parcel(&self, node: &Node, mail: &Mail, by: &NodeId, parcel: &Parcel<'_>) -> Option<Receipt> {
        let sides = &mut *self.sides.lock();
        let arrival = match sides.inbox.arrive(parcel, &by.to_string(), home_of(&parcel.from)) {
            Ok(arrival) => arrival,
            Err(NotTaken::Doubted(_, Some(receipt)) | NotTaken::Crowded(receipt)) => return Some(*receipt),
            Err(NotTaken::Doubted(doubt, None)) => {
                tracing::warn!(%by, ?doubt, "a node sent mail in the name of {}", parcel.from);
                return None;
            }
            Err(NotTaken::Misdirected) => return None,
        };
        if let Some(Lost { first, last }) = arrival.lost {
            let code = Code::LettersGone;
            tracing::error!("{code} the letters {first} to {last} of {} are gone: {}", parcel.from, code.hint());
        }
        let pushing = Pushing { node, mail, table: node.functions.table(), desk: self };
        let (count, ticket) = pushing.all_that_fit(&sides.inbox, &arrival)?;
        let (commit, full) = sides.inbox.committed(&arrival, count);
        sides.totals.taken += count as u64;
        if let Some(commit) = commit {
            self.took(sides, ticket, commit);
        }
        arrival.answer.clone().or(full)
    }
}

struct Pushing<'a> {
    node: &'a Node,
    mail: &'a Mail,
    table: Arc<Table>,
    desk: &'a Desk,
}

impl Pushing<'_> {
    /// How many letters were pushed, with the mark behind them. None: the state takes no writes now, nothing was
    /// pushed, and the sender will ask.
    fn all_that_fit(&self, inbox: &Inbox, arrival: &Arrival<'_>) -> Option<(usize, Ticket)> {
        let mut count = arrival.steps.len();
        loop {
            if count == 0 && arrival.lost.is_none() {
                return Some((0, Ticket::NOTHING_WRITTEN));
            }
            match self.push(inbox, arrival, count) {
                Ok(done) => return Some(done),
                // Room is certain at the commit only: with fewer it may be enough.
                Err(problem) if problem.code == Code::QueueFull && count > 0 => count /= 2,
                Err(problem) => {
                    tracing::warn!(%problem, "mail is not taken now");
                    return None;
                }
            }
        }
    }

    /// Pushes the first letters, up to the first that has to wait, and the mark: all of it or nothing.
    fn push(&self, inbox: &Inbox, arrival: &Arrival<'_>, count: usize) -> Result<(usize, Ticket), Problem> {
        self.node.events.commit(|pushes| {
            let mut taken = 0;
            for (letter, mark) in &arrival.steps[..count] {
                if !self.push_one(pushes, arrival, letter, mark)? {
                    break;
                }
                taken += 1;
            }
            if let Some(write) = inbox.record(arrival, taken) {
                self.desk.kept.write(pushes.transaction(), &[write])?;
            }
            Ok::<_, Problem>(taken)
        })
    }

    /// Whether it was pushed. A letter waits at its sender while its queue is full, has ended, or is not here (yet).
    fn push_one(
        &self,
        pushes: &mut Pushes<'_>,
        arrival: &Arrival<'_>,
        bytes: &[u8],
        mark: &Mark,
    ) -> Result<bool, Problem> {
        let from = arrival.from().as_str();
        let letter = match Letter::read(bytes, from) {
            Ok(letter) => letter,
            Err(error) => return self.push_unreadable(pushes, arrival, bytes, mark, &error.to_string()),
        };
        if letter.queue != MQTT_QUEUE && !self.is_here(&letter.queue) {
            tracing::debug!(from, queue = letter.queue, "mail waits: this node is not the home of its queue");
            return Ok(false);
        }
        let mut event = letter.event;
        if letter.queue == MQTT_QUEUE {
            // Whoever takes it there has to know.
            event.source = format!("/mail/{from}");
        }
        let mut push = Push { event, delay: letter.delay, ttl: letter.life };
        match pushes.push(&letter.queue.as_str().into(), &mut push, None) {
            Ok(_) => Ok(true),
            Err(PushError::Store(StoreError::QueueFull(_))) => Ok(false),
            Err(PushError::Refused(problem)) if problem.code == Code::WorkflowEnded => Ok(false),
            Err(PushError::Refused(problem)) => self.push_unreadable(pushes, arrival, bytes, mark, &problem.detail),
            Err(PushError::Store(error)) => Err(error.into()),
        }
    }

    /// Other nodes push to the queues that name this node as their home, and to no others.
    fn is_here(&self, queue: &str) -> bool {
        let part = self.table.parts().queues.get(queue);
        part.and_then(|part| part.what.home.as_deref()).is_some_and(|home| self.mail.is_own(home))
    }

    /// It is kept apart, so that it does not hold up those behind it.
    fn push_unreadable(
        &self,
        pushes: &mut Pushes<'_>,
        arrival: &Arrival<'_>,
        bytes: &[u8],
        mark: &Mark,
        why: &str,
    ) -> Result<bool, Problem> {
        let from = arrival.from().as_str();
        let mut event = Event {
            id: mark.number.to_string(),
            source: format!("/mail/{from}"),
            kind: UNREADABLE.to_owned(),
            data: bytes.to_vec(),
            ..Event::default()
        };
        event.attributes.push((REASON.to_owned(), why.chars().take(REASON_CHARACTERS_MAX).collect()));
        event.came_by(Gate::Function, from);
        let mut push = Push { event, delay: Duration::ZERO, ttl: None };
        match pushes.push(&UNDELIVERABLE.into(), &mut push, None) {
            Ok(_) => Ok(true),
            Err(PushError::Store(StoreError::QueueFull(_))) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
