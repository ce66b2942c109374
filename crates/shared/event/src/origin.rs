//! Where an event came into the node, as the node itself saw it, and the names that only its gates may write.
//!
//! A sender chooses attributes, so no attribute can tell what a gate made from what somebody sent. [`Origin`] can: it stands
//! beside the attributes, is written by the node alone, and is kept with the event.

use crate::Event;
use alloc::borrow::{Cow, ToOwned};
use alloc::format;
use alloc::string::String;
use core::fmt;

/// The attribute in which functions and receivers read [`Origin::gate`].
pub const GATE: &str = "gate";

/// The door by which an event came into the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Gate {
    /// A request of an HTTP route, made into an event or a CloudEvent already.
    Http = 1,
    /// A message that was published.
    Mqtt = 2,
    /// A call or a push of a token's holder.
    Api = 3,
    Timer = 4,
    /// A push of a function.
    Function = 5,
}

impl Gate {
    const ALL: [Self; 5] = [Self::Http, Self::Mqtt, Self::Api, Self::Timer, Self::Function];

    /// The value of the attribute [`GATE`].
    pub const fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Mqtt => "mqtt",
            Self::Api => "api",
            Self::Timer => "timer",
            Self::Function => "function",
        }
    }

    /// The gate of a number that was stored.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|gate| *gate as u8 == number)
    }
}

/// How an event came into the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// None: nobody knows, as of events that an earlier version stored. Such an event is trusted in nothing.
    pub gate: Option<Gate>,
    /// Who sent it, as the gate knows: the user of MQTT, the name of a token. Empty: nobody who said so.
    pub sender: String,
}

impl Event {
    /// Says how the event came in. What it said of that itself is gone.
    pub fn came_by(&mut self, gate: Gate, sender: &str) {
        self.attributes.retain(|(name, _)| name != GATE);
        self.attributes.push((GATE.to_owned(), gate.word().to_owned()));
        self.origin = Origin { gate: Some(gate), sender: sender.to_owned() };
    }

    /// Whose word it is that the event's id is unique: the source, and where senders choose their sources, gate and sender
    /// too. So nobody takes an id away from somebody else.
    pub fn id_giver(&self) -> Cow<'_, str> {
        match self.origin.gate {
            Some(gate @ (Gate::Http | Gate::Mqtt | Gate::Api)) => {
                format!("{}\0{}\0{}", gate.word(), self.origin.sender, self.source).into()
            }
            // The node chooses these sources.
            Some(Gate::Timer | Gate::Function) | None => self.source.as_str().into(),
        }
    }
}

/// Types of the events that gates make.
const KINDS: [&str; 3] = ["http.request", "mqtt.publish", "timer.tick"];

/// How the sources of such events begin.
const SOURCES: [&str; 4] = ["mqtt:", "/http/", "/timer/", "/function/"];

/// Attributes by which an event says how it came in, and how the names of more of them begin.
const NAMES: [&str; 2] = [GATE, "resultid"];
const NAME_STARTS: [&str; 2] = ["http", "mqtt"];

/// What only the node's gates may say of an event, and a sender said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forged<'a> {
    Kind(&'a str),
    Source(&'a str),
    Attribute(&'a str),
}

impl Event {
    /// What a sender outside of the node said of this event, and only a gate may say.
    pub fn forged(&self) -> Option<Forged<'_>> {
        let begins = |start: &&str| {
            self.source.get(..start.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(start))
        };
        if KINDS.contains(&self.kind.as_str()) {
            return Some(Forged::Kind(&self.kind));
        }
        // A zero would make one giver of ids look like another.
        if SOURCES.iter().any(|start| begins(&start)) || self.source.contains('\0') {
            return Some(Forged::Source(&self.source));
        }
        self.attributes.iter().map(|(name, _)| name.as_str()).find(|name| is_of_gates(name)).map(Forged::Attribute)
    }
}

/// Whether an attribute of this name says how an event came in, which only gates may.
pub fn is_of_gates(name: &str) -> bool {
    NAMES.contains(&name) || NAME_STARTS.iter().any(|start| name.starts_with(start))
}

impl fmt::Display for Forged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "the type {kind:?} is for events that a gate of the node makes"),
            Self::Source(source) => write!(f, "the source {source:?} is one that only the node gives"),
            Self::Attribute(name) => write!(f, "the attribute {name:?} is one that only the node's gates set"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn sent(gate: Option<Gate>, sender: &str, source: &str) -> Event {
        let mut event = Event { source: source.into(), ..Event::default() };
        if let Some(gate) = gate {
            event.came_by(gate, sender);
        }
        event
    }

    #[test]
    fn what_an_event_says_of_its_gate_goes_when_the_gate_is_known() {
        let attributes = vec![(GATE.to_owned(), "mqtt".to_owned()), ("a".to_owned(), "b".to_owned())];
        let mut event = Event { attributes, ..Event::default() };
        event.came_by(Gate::Http, "");
        assert_eq!((event.attribute(GATE), event.attributes.len()), (Some("http"), 2));
        for gate in Gate::ALL {
            assert_eq!(Gate::from_number(gate as u8), Some(gate));
        }
        assert_eq!((Gate::from_number(0), Gate::from_number(6)), (None, None));
    }

    #[test]
    fn ids_of_one_sender_are_not_those_of_another() {
        use Gate::{Api, Function, Http, Mqtt, Timer};
        let givers = [
            sent(Some(Http), "", "mqtt://meter"),
            sent(Some(Mqtt), "", "mqtt://meter"),
            sent(Some(Mqtt), "meter", "mqtt://meter"),
            sent(Some(Api), "", "mqtt://meter"),
            sent(Some(Api), "ci", "mqtt://meter"),
            sent(None, "", "mqtt://meter"),
        ];
        for (at, one) in givers.iter().enumerate() {
            assert!(givers[at + 1..].iter().all(|other| other.id_giver() != one.id_giver()), "{one:?}");
        }
        for gate in [Timer, Function] {
            assert_eq!(sent(Some(gate), "", "/function/a").id_giver(), "/function/a");
        }
    }

    #[test]
    fn what_gates_say_is_theirs_alone() {
        let found = |kind: &str, source: &str, name: &str| {
            let attributes = vec![(name.to_owned(), "x".to_owned())];
            let event = Event { kind: kind.to_owned(), source: source.to_owned(), attributes, ..Event::default() };
            event.forged().is_some()
        };
        for (kind, source, name) in [
            ("http.request", "/s", "a"),
            ("mqtt.publish", "/s", "a"),
            ("timer.tick", "/s", "a"),
            ("t", "mqtt://meter-7", "a"),
            ("t", "MQTT://meter-7", "a"),
            ("t", "/function/other", "a"),
            ("t", "/timer/f", "a"),
            ("t", "/http/f", "a"),
            ("t", "/s\0", "a"),
            ("t", "/s", "gate"),
            ("t", "/s", "mqttuser"),
            ("t", "/s", "mqtt-id"),
            ("t", "/s", "httppath"),
            ("t", "/s", "http-authorization"),
            ("t", "/s", "resultid"),
        ] {
            assert!(found(kind, source, name), "{kind} {source} {name}");
        }
        assert!(!found("reading", "/meter/7", "unit") && !found("t", "é", "gates"));
    }
}
