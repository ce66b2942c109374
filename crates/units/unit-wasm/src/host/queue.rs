//! `lighter:unit/queue`: what a handling pushes and pops is part of its transaction.

use crate::bindings::lighter::unit::queue as contract;
use crate::bindings::types;
use crate::unit_state::{Cause, UnitState};
use event::Event;
use http::HeaderMap;
use manifest::Name;
use std::time::Duration;
use unit::{Origin, Outgoing};

type Outcome<T> = wasmtime::Result<Result<T, types::Error>>;

impl contract::Host for UnitState {
    fn push(&mut self, queue: String, event: contract::Outgoing) -> Outcome<()> {
        Ok(self.push(&queue, event))
    }

    fn push_all(&mut self, queue: String, events: Vec<contract::Outgoing>) -> Outcome<()> {
        Ok(events.into_iter().try_for_each(|event| self.push(&queue, event)))
    }

    fn pop(&mut self, queue: String) -> Outcome<Option<types::Event>> {
        let deadline = self.meter.deadline;
        Ok(self.handling.pop(&queue, deadline).map(|event| event.map(to_guest)).map_err(Into::into))
    }
}

impl UnitState {
    fn push(&mut self, queue: &str, event: contract::Outgoing) -> Result<(), types::Error> {
        let leased = self.handling.leased();
        let named = leased.as_ref().map(|leased| (leased.event.id_giver(), leased.event.id.as_str()));
        let named = named.as_ref().map(|(giver, id)| (&**giver, *id));
        let origin = origin(&self.deployed.name, &self.cause, named);
        self.handling.push(queue, outgoing(event), &origin).map_err(Into::into)
    }
}

/// `named`: the id of the queued event that is handled, and who gave it.
fn origin<'a>(name: &'a Name, cause: &'a Cause, named: Option<(&'a str, &'a str)>) -> Origin<'a> {
    let new = |giver, id, attribute: &dyn Fn(&str) -> Option<&'a str>| {
        let (giver, id) = named.unwrap_or((giver, id));
        Origin::new(name, giver, id, attribute)
    };
    match cause {
        Cause::None => new("", "", &|_| None),
        Cause::Event(event) => new(&event.source, &event.id, &|wanted| attribute(event, wanted)),
        Cause::Request { id, headers } => new("", id, &|wanted| header(headers, wanted)),
    }
}

pub fn attribute<'a>(event: &'a types::Event, wanted: &str) -> Option<&'a str> {
    event.attributes.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
}

pub fn header<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    headers.get(wanted).and_then(|value| value.to_str().ok())
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
