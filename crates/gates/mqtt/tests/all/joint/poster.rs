//! A client of the API that loses patience: it sends each event twice at once and believes the second answer.

use super::FIRST;
use super::hands::Hands;
use event::Event;
use state::{Clock, Push, State, Ticket};
use std::collections::{BTreeSet, VecDeque};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[derive(Debug)]
pub struct Poster {
    pub to_send: VecDeque<u64>,
    /// The second answer, which may not have come yet.
    waits: Option<Ticket>,
    pub confirmed: BTreeSet<u64>,
}

impl Poster {
    pub fn new(messages: impl Iterator<Item = u64>) -> Self {
        Self { to_send: messages.collect(), waits: None, confirmed: BTreeSet::new() }
    }

    /// Nobody answers any more; it will send the same again.
    pub fn cut(&mut self) {
        self.waits = None;
    }

    pub fn act(&mut self, state: &State, hands: &Hands) {
        if self.waits.is_none()
            && let Some(message) = self.to_send.front()
        {
            let sent = [(); 2].map(|()| push(state, hands, *message));
            self.waits = sent[1];
        }
        self.listen(state);
    }

    pub fn listen(&mut self, state: &State) {
        if self.waits.is_some_and(|ticket| is_durable(state, ticket)) {
            self.waits = None;
            self.confirmed.extend(self.to_send.pop_front());
        }
    }
}

/// As the API does it. None if there is no room.
fn push(state: &State, hands: &Hands, message: u64) -> Option<Ticket> {
    let event = Event {
        id: message.to_string(),
        source: "/poster".into(),
        kind: "post".into(),
        data: message.to_be_bytes().to_vec(),
        ..Event::default()
    };
    let mut transaction = state.begin();
    transaction.push(FIRST, &Push { event, delay: Duration::ZERO, ttl: None }, hands.wall_ms()).ok()?;
    transaction.commit().ok()
}

/// Whether an answer that waits for this would have come by now.
pub fn is_durable(state: &State, ticket: Ticket) -> bool {
    let polled = pin!(state.durable(ticket)).poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Ok(())))
}
