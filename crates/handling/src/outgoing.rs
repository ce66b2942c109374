//! From what a handler pushes to the event that is pushed.

use crate::host::Named;
use event::{ATTRIBUTES_MAX, Event, Gate};
use manifest::Name;
use sha2::{Digest, Sha256};
use state::Push;
use std::fmt::Write;
use std::time::Duration;
use unit::Outgoing;

/// The longest an event can be made to wait: a year.
pub const DELAY_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Attributes by which the events of one trace are found, as the W3C names them.
pub const TRACE: [&str; 2] = ["traceparent", "tracestate"];

/// Bytes of a hash that make an id.
const ID_BYTES: usize = 16;

/// In whose handling events are pushed.
#[derive(Debug, Clone, Copy)]
pub struct PushedBy<'a> {
    pub function: &'a Name,
    pub named: &'a Named,
}

impl PushedBy<'_> {
    /// The push number `number` (from 1) of the handling, to `queue`.
    ///
    /// # Errors
    /// What is wrong with the event.
    pub fn push(&self, number: u32, queue: &str, outgoing: Outgoing, now_ms: u64) -> Result<Push, String> {
        check(&outgoing)?;
        let Outgoing { kind, subject, content_type, mut attributes, data, delay, ttl } = outgoing;
        // A function that passes an event on with all its attributes may; how that one came in is not how this one
        // does.
        attributes.retain(|(name, _)| !event::is_of_gates(name));
        // The handler's own trace, if it sets one, is kept whole.
        if !attributes.iter().any(|(name, _)| name == TRACE[0]) {
            attributes.retain(|(name, _)| name != TRACE[1]);
            let trace = TRACE.into_iter().zip([&self.named.traceparent, &self.named.tracestate]);
            attributes.extend(trace.filter_map(|(name, value)| Some((name.to_owned(), value.clone()?))));
        }
        let mut event = Event {
            id: id_of_push(&self.named.id_giver, &self.named.id, number, queue),
            source: format!("/function/{}", self.function.as_str()),
            kind,
            subject,
            time_ms: now_ms,
            content_type,
            attributes,
            attempt: 1,
            data,
            ..Event::default()
        };
        event.came_by(Gate::Function, "");
        Ok(Push { event, delay, ttl })
    }
}

/// The id of the push number `number` (from 1) in the handling of the event `id` of `id_giver`, to `queue`.
///
/// The same in every handling of the same work, so that a queue which remembers ids takes an event once, however often
/// it is pushed. A hash: the ids of events that cause each other for ever do not grow.
pub fn id_of_push(id_giver: &str, id: &str, number: u32, queue: &str) -> String {
    let mut hash = Sha256::new();
    for part in [id_giver, id, queue] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.update(number.to_le_bytes());
    hash.finalize()[..ID_BYTES].iter().fold(String::with_capacity(2 * ID_BYTES), |mut id, byte| {
        write!(id, "{byte:02x}").expect("a string takes all");
        id
    })
}

fn check(outgoing: &Outgoing) -> Result<(), String> {
    if outgoing.kind.is_empty() {
        return Err("an event without a type".into());
    }
    let count = outgoing.attributes.len();
    // The trace and the gate may be added.
    let count_max = ATTRIBUTES_MAX - TRACE.len() - 1;
    if count > count_max {
        return Err(format!("an event with {count} attributes, the limit is {count_max}"));
    }
    if outgoing.attributes.iter().any(|(name, _)| name.is_empty()) {
        return Err("an attribute without a name".into());
    }
    if outgoing.delay > DELAY_MAX {
        return Err(format!("a delay of {} ms, the limit is {}", outgoing.delay.as_millis(), DELAY_MAX.as_millis()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handled() -> Event {
        let attributes = vec![("traceparent".to_owned(), "00-1-2-01".to_owned()), ("topic".to_owned(), "t".to_owned())];
        Event { id: "7".into(), source: "/http/a".into(), attributes, ..Event::default() }
    }

    fn outgoing(attributes: &[(&str, &str)]) -> Outgoing {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Outgoing { kind: "test".into(), attributes, ..Outgoing::default() }
    }

    fn push(handled: &Event, number: u32, outgoing: Outgoing) -> Result<Push, String> {
        let function = Name::try_from("here".to_owned()).unwrap();
        let named = Named::of(&handled.id_giver(), &handled.id, |name| handled.attribute(name));
        PushedBy { function: &function, named: &named }.push(number, "next", outgoing, 5)
    }

    #[test]
    fn a_rerun_pushes_the_same_ids_and_each_push_has_its_own() {
        let id = |handled: &Event, number| push(handled, number, outgoing(&[])).unwrap().event.id;
        let first = handled();
        let again = Event { attempt: 3, ..handled() };
        let other = Event { id: "8".into(), ..handled() };
        assert_eq!(id(&first, 1), id(&again, 1));
        assert_eq!(id(&first, 1).len(), 32);
        assert_ne!(id(&first, 1), id(&first, 2));
        assert_ne!(id(&first, 1), id(&other, 1));
        let mut forged = handled();
        forged.came_by(Gate::Http, "");
        assert_ne!(id(&first, 1), id(&forged, 1), "what an event of somebody else's causes takes no id away");
    }

    #[test]
    fn the_trace_goes_on_unless_the_handler_begins_another() {
        let pushed = push(&handled(), 1, outgoing(&[("a", "b")])).unwrap().event;
        assert_eq!(pushed.source, "/function/here");
        assert_eq!(pushed.attribute("traceparent"), Some("00-1-2-01"));
        assert_eq!((pushed.attribute("a"), pushed.attribute("topic")), (Some("b"), None));
        let own = push(&handled(), 1, outgoing(&[("traceparent", "own")])).unwrap().event;
        let expected = [("traceparent", "own"), ("gate", "function")];
        assert_eq!(own.attributes, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn what_a_function_says_of_gates_is_left_out() {
        let said = [("gate", "mqtt"), ("mqttuser", "admin"), ("http-cookie", "x"), ("httppath", "/"), ("unit", "W")];
        let pushed = push(&handled(), 1, outgoing(&said)).unwrap().event;
        assert_eq!(pushed.origin.gate, Some(Gate::Function));
        let names: Vec<&str> = pushed.attributes.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, pushed.attribute("gate")), (vec!["unit", "traceparent", "gate"], Some("function")));
    }

    #[test]
    fn what_is_no_event_is_refused() {
        let many: Vec<_> = (0..ATTRIBUTES_MAX).map(|_| ("a", "b")).collect();
        for bad in [
            Outgoing::default(),
            outgoing(&many),
            outgoing(&[("", "x")]),
            Outgoing { delay: DELAY_MAX + Duration::from_millis(1), ..outgoing(&[]) },
        ] {
            assert!(push(&handled(), 1, bad).is_err());
        }
    }
}
