//! `lighter:unit/queue`: what a handling pushes and pops is part of its transaction.

use crate::bindings::lighter::unit::queue as contract;
use crate::bindings::types;
use crate::host::plain::unix_ms;
use crate::host::store::error;
use crate::unit_state::{Cause, UnitState};
use event::Event;
use manifest::Name;
use std::time::{Duration, Instant};
use unit::{Origin, Outgoing};

/// How much longer than its call a popped event is leased, so that a commit at the last moment still finds the lease.
const LEASE_SLACK_MS: u64 = 5_000;

type Outcome<T> = wasmtime::Result<Result<T, types::Error>>;

impl contract::Host for UnitState {
    fn push(&mut self, queue: String, event: contract::Outgoing) -> Outcome<()> {
        Ok(self.push(&queue, event))
    }

    fn push_all(&mut self, queue: String, events: Vec<contract::Outgoing>) -> Outcome<()> {
        Ok(events.into_iter().try_for_each(|event| self.push(&queue, event)))
    }

    fn pop(&mut self, queue: String) -> Outcome<Option<types::Event>> {
        if !covers(&self.deployed.function.grants.pop, &queue) {
            return Ok(Err(denied("pop", &queue)));
        }
        let now_ms = unix_ms();
        let left = self.meter.deadline.saturating_duration_since(Instant::now());
        let until_ms = now_ms + u64::try_from(left.as_millis()).unwrap_or(u64::MAX / 2) + LEASE_SLACK_MS;
        Ok(self.transaction().pop(&queue, now_ms, until_ms).map(|event| event.map(to_guest)).map_err(error))
    }
}

impl UnitState {
    fn push(&mut self, queue: &str, event: contract::Outgoing) -> Result<(), types::Error> {
        if !covers(&self.deployed.function.grants.push, queue) {
            return Err(denied("push", queue));
        }
        let number = self.pushed + 1;
        let now_ms = unix_ms();
        let push = self.origin().push(number, queue, outgoing(event), now_ms).map_err(types::Error::Invalid)?;
        if let Some(lease) = self.lease.clone().filter(|lease| *lease.queue == *queue) {
            // The event makes room for those that follow from it: a full queue that feeds itself goes on.
            self.transaction().ack(&lease);
        }
        // One the queue remembers already is where it should be.
        self.transaction().push(queue, push, now_ms).map_err(error)?;
        self.pushed = number;
        Ok(())
    }

    fn origin(&self) -> Origin<'_> {
        let name = &self.deployed.name;
        match &self.cause {
            Cause::None => Origin::new(name, "", "", |_| None),
            Cause::Event(event) => Origin::new(name, &event.source, &event.id, |wanted| {
                event.attributes.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
            }),
            Cause::Request { id, headers } => {
                Origin::new(name, "", id, |wanted| headers.get(wanted).and_then(|value| value.to_str().ok()))
            }
        }
    }
}

fn covers(grants: &[Name], queue: &str) -> bool {
    grants.iter().any(|granted| granted.as_str() == queue)
}

fn denied(verb: &str, queue: &str) -> types::Error {
    types::Error::Denied(format!("no grant covers {verb} to the queue {queue:?}; add it to grants.{verb} of the function"))
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
