//! A queue: how much it holds, how long, in which order. And how often a failed event is tried again.

use crate::{Name, Span};
use problem::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::ops::RangeInclusive;

/// Bytes of the name of a node, or of its id.
const NODE_BYTES_MAX: usize = 32;

/// A durable list of events. A queue that is only named has these defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Queue {
    /// Events it holds, delayed and leased ones included. The next one is refused.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub events_max: u64,
    /// Bytes of events it holds. An event that would go beyond is refused.
    #[schemars(range(min = 1_024, max = 1_099_511_627_776_u64))]
    pub bytes_max: u64,
    /// How long an event may wait; then it goes to the dead letters. Without it, for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
    /// How long the id and source of an event are remembered: another event with the same two is dropped as a
    /// duplicate. Without it, not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deduplicate: Option<Span>,
    pub order: Order,
    /// Dead letters it keeps; the oldest goes when another one comes. 0 keeps none.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub dead_letters_max: u64,
    /// The queue for events that failed too often or for good, instead of the dead letters. Without it, or when it is
    /// full, they become dead letters here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_to: Option<Name>,
    pub when_full: WhenFull,
    /// The node of the fleet where the events of this queue are handled, by its name or its id. On every other node the
    /// queue holds events until they are on their way there; what starts its function by the clock starts it at home
    /// only. Without it, each node handles its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[a-z0-9-]{1,32}$"))]
    pub home: Option<String>,
    /// Events may come back to this queue through others. Without it a cycle is an error.
    pub cycle: bool,
}

/// In which order events are handled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The oldest begins first; several run at once, and an event that is tried again comes later.
    #[default]
    None,
    /// Events with the same key (the attribute `partitionkey`, otherwise the subject) are handled one after the other,
    /// as they came; an event that is tried again holds up those behind it.
    Key,
}

/// What happens when the queue is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// New events are refused with L7002, and the gate passes that on: 503, no MQTT confirmation.
    #[default]
    Refuse,
    /// The workflow ends: its functions handle no more events until they are deployed again (as UniFaaS does).
    End,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            events_max: 100_000,
            bytes_max: 256 << 20,
            ttl: None,
            deduplicate: None,
            order: Order::None,
            dead_letters_max: 10_000,
            dead_to: None,
            when_full: WhenFull::Refuse,
            home: None,
            cycle: false,
        }
    }
}

impl Queue {
    pub(crate) fn check(&self, name: &Name) -> Result<(), Problem> {
        in_range(name, "events_max", self.events_max, 1..=1_000_000_000)?;
        in_range(name, "bytes_max", self.bytes_max, 1_024..=1 << 40)?;
        in_range(name, "dead_letters_max", self.dead_letters_max, 0..=1_000_000_000)?;
        for (key, span) in [("ttl", self.ttl), ("deduplicate", self.deduplicate)] {
            if let Some(span) = span {
                in_range(name, key, span, Span::from_ms(1)..=Span::from_ms(366 * 86_400_000))?;
            }
        }
        match &self.home {
            Some(home) if !is_node_name(home) => {
                let detail = format!(
                    "{:?}: home is {home:?}, it must be 1 to {NODE_BYTES_MAX} of a-z, 0-9 and -",
                    name.as_str()
                );
                Err(Problem::new(Code::ManifestValue, detail).with_hint("`lighter fleet` lists the nodes by name"))
            }
            _ => Ok(()),
        }
    }
}

/// How often a failed event is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// Tries in all; then the event goes to the dead letters.
    #[schemars(range(min = 1, max = 1_000))]
    pub attempts: u32,
    /// Pause before the second try. Each later one is twice as long, plus or minus a quarter.
    pub pause: Span,
    /// The longest pause.
    pub pause_max: Span,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 5, pause: Span::from_ms(1_000), pause_max: Span::from_ms(300_000) }
    }
}

impl Retry {
    pub(crate) fn check(&self, name: &Name) -> Result<(), Problem> {
        in_range(name, "retry.attempts", self.attempts, 1..=1_000)?;
        in_range(name, "retry.pause", self.pause, Span::from_ms(1)..=Span::from_ms(86_400_000))?;
        in_range(name, "retry.pause_max", self.pause_max, self.pause..=Span::from_ms(7 * 86_400_000))
    }
}

pub(crate) fn is_node_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=NODE_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

fn in_range<T: PartialOrd + Display>(
    name: &Name,
    what: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), Problem> {
    if range.contains(&value) {
        return Ok(());
    }
    let detail =
        format!("{:?}: {what} is {value}, it must be between {} and {}", name.as_str(), range.start(), range.end());
    Err(Problem::new(Code::ManifestValue, detail))
}
