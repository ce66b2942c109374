//! `lighter:unit/queue`, as the host of the attempt answers it.

use crate::bindings::lighter::unit::queue as contract;
use crate::bindings::types;
use crate::unit_state::UnitState;
use event::{Event, Origin};
use std::time::Duration;
use unit::Outgoing;

type Outcome<T> = wasmtime::Result<Result<T, types::Error>>;

impl contract::Host for UnitState {
    fn push(&mut self, queue: String, event: contract::Outgoing) -> Outcome<()> {
        Ok(self.push_one(&queue, event))
    }

    fn push_all(&mut self, queue: String, events: Vec<contract::Outgoing>) -> Outcome<()> {
        Ok(events.into_iter().try_for_each(|event| self.push_one(&queue, event)))
    }

    fn pop(&mut self, queue: String) -> Outcome<Option<types::Event>> {
        Ok(self.host().pop(&queue).map(|event| event.map(to_guest)).map_err(Into::into))
    }
}

impl UnitState {
    fn push_one(&self, queue: &str, event: contract::Outgoing) -> Result<(), types::Error> {
        self.host().push(queue, outgoing(event)).map_err(Into::into)
    }
}

fn outgoing(event: contract::Outgoing) -> Outgoing {
    Outgoing {
        kind: event.type_,
        subject: event.subject,
        content_type: event.content_type,
        attributes: event.attributes,
        data: event.data,
        delay: Duration::from_millis(event.delay_ms.unwrap_or(0)),
        ttl: event.ttl_ms.map(Duration::from_millis),
    }
}

pub fn to_guest(event: Event) -> types::Event {
    types::Event {
        id: event.id,
        source: event.source,
        type_: event.kind,
        subject: event.subject,
        time_ms: event.time_ms,
        content_type: event.content_type,
        attributes: event.attributes,
        attempt: event.attempt,
        data: event.data,
    }
}

/// The event again, with what no guest is shown.
pub fn from_guest(event: types::Event, origin: Origin) -> Event {
    Event {
        id: event.id,
        source: event.source,
        kind: event.type_,
        subject: event.subject,
        time_ms: event.time_ms,
        content_type: event.content_type,
        attributes: event.attributes,
        attempt: event.attempt,
        data: event.data,
        origin,
    }
}
