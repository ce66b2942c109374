//! Which topics each node of a fleet wants messages of, and which of them a message goes to: pure.
//!
//! A trigger hears a message once in the whole fleet. It is known by its queue: where the message was published, if
//! there is such a trigger there; else at the node with the least id of those that have one.

use fleet_trust::NodeId;
use gate_mqtt::TOPIC_BYTES_MAX;
use gate_mqtt::broker::Filters;
use gate_mqtt::topic::is_filter;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Filters of clients that a node tells. With more it tells wider ones, so that no message is missed.
pub const FILTERS_MAX: usize = 1_000;
/// Bytes of all of them: as JSON they fit into a letter.
const FILTER_BYTES_MAX: usize = 64 << 10;
/// Triggers that a node tells. The others hear nothing of what is published elsewhere, which is logged.
const TRIGGERS_MAX: usize = 1_000;
/// Levels of a filter, as far as this goes: the broker looks closer.
const LEVELS_MAX: usize = 128;

/// What one node wants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Of clients that have subscribed there.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub filters: BTreeSet<String>,
    /// Of triggers, each with its queue.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub triggers: BTreeSet<(String, String)>,
}

impl Wanted {
    /// What a node tells of these.
    pub fn new(mut filters: BTreeSet<String>, mut triggers: BTreeSet<(String, String)>) -> Self {
        if triggers.len() > TRIGGERS_MAX {
            tracing::error!("{} MQTT triggers are too many: some hear no other node", triggers.len());
            triggers = triggers.into_iter().take(TRIGGERS_MAX).collect();
        }
        if !is_bounded(&filters) {
            filters = filters.iter().map(|filter| widened(filter)).collect();
        }
        if !is_bounded(&filters) {
            filters = BTreeSet::from(["#".to_owned()]);
        }
        Self { filters, triggers }
    }

    pub fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it is plain data")
    }

    /// What another node wants. None: it is over a bound, or has what is no filter.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let wanted: Self = serde_json::from_slice(bytes).ok()?;
        let of_triggers = || wanted.triggers.iter().map(|(_, filter)| filter);
        let fits = is_bounded(&wanted.filters)
            && wanted.triggers.len() <= TRIGGERS_MAX
            && wanted.filters.iter().chain(of_triggers()).all(|filter| is_filter_of_mqtt(filter));
        fits.then_some(wanted)
    }

    pub fn is_empty(&self) -> bool {
        self.filters.is_empty() && self.triggers.is_empty()
    }

    /// Whether a client there gets messages of this topic.
    pub fn has_subscriber(&self, topic: &str) -> bool {
        self.filters.iter().any(|filter| gate_mqtt::topic::matches(filter, topic))
    }
}

fn is_bounded(filters: &BTreeSet<String>) -> bool {
    filters.len() <= FILTERS_MAX && filters.iter().map(String::len).sum::<usize>() <= FILTER_BYTES_MAX
}

fn is_filter_of_mqtt(filter: &str) -> bool {
    filter.len() <= TOPIC_BYTES_MAX && is_filter(filter, LEVELS_MAX)
}

/// All below the first level of a filter.
fn widened(filter: &str) -> String {
    match filter.split('/').next() {
        Some("+" | "#") | None => "#".to_owned(),
        Some(level) => format!("{level}/#"),
    }
}

/// Who gets a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taker {
    pub node: NodeId,
    /// The queues whose triggers hear it there.
    pub queues: Vec<Arc<str>>,
}

/// What all other nodes want, made ready for messages.
#[derive(Debug, Default)]
pub struct Elsewhere {
    filters: Filters,
    /// By the numbers in `filters`. Without a queue: clients.
    wants: Vec<(NodeId, Option<Arc<str>>)>,
}

impl Elsewhere {
    pub fn of<'a>(nodes: impl Iterator<Item = (NodeId, &'a Wanted)>) -> Self {
        let (mut wants, mut filters) = (Vec::new(), Vec::new());
        for (node, wanted) in nodes {
            let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
            for (queue, filter) in &wanted.triggers {
                let number = *numbers.entry(queue).or_insert_with(|| {
                    wants.push((node, Some(queue.as_str().into())));
                    wants.len() as u32 - 1
                });
                filters.push((filter.as_str(), number));
            }
            if !wanted.filters.is_empty() {
                wants.push((node, None));
                let number = wants.len() as u32 - 1;
                filters.extend(wanted.filters.iter().map(|filter| (filter.as_str(), number)));
            }
        }
        Self { filters: Filters::new(filters.into_iter()), wants }
    }

    pub fn is_empty(&self) -> bool {
        self.wants.is_empty()
    }

    /// Who gets a message that is published here; `here` are the queues whose triggers hear it here. A topic that
    /// begins with `$` stays where it is.
    pub fn takers(&self, topic: &str, here: &[&str]) -> Vec<Taker> {
        if self.is_empty() || topic.starts_with('$') {
            return Vec::new();
        }
        let mut takers: BTreeMap<NodeId, Vec<Arc<str>>> = BTreeMap::new();
        let mut triggers: BTreeMap<&Arc<str>, NodeId> = BTreeMap::new();
        for number in self.filters.matches(topic) {
            match &self.wants[number as usize] {
                (node, None) => _ = takers.entry(*node).or_default(),
                (_, Some(queue)) if here.contains(&&**queue) => {}
                (node, Some(queue)) => {
                    let least = triggers.entry(queue).or_insert(*node);
                    *least = (*least).min(*node);
                }
            }
        }
        for (queue, node) in triggers {
            takers.entry(node).or_default().push(queue.clone());
        }
        takers.into_iter().map(|(node, queues)| Taker { node, queues }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [NodeId; 3] = [NodeId([1; 16]), NodeId([2; 16]), NodeId([3; 16])];

    fn wanted(filters: &[&str], triggers: &[(&str, &str)]) -> Wanted {
        let triggers = triggers.iter().map(|(queue, filter)| ((*queue).to_owned(), (*filter).to_owned()));
        Wanted::new(filters.iter().map(|filter| (*filter).to_owned()).collect(), triggers.collect())
    }

    fn takers(elsewhere: &Elsewhere, topic: &str, here: &[&str]) -> Vec<(NodeId, Vec<String>)> {
        let takers = elsewhere.takers(topic, here).into_iter();
        takers.map(|taker| (taker.node, taker.queues.iter().map(ToString::to_string).collect())).collect()
    }

    #[test]
    fn a_message_goes_to_each_node_with_a_subscriber_and_to_one_with_each_trigger() {
        let nodes = [
            wanted(&["a/+"], &[("count", "a/#")]),
            wanted(&["b"], &[("count", "a/#"), ("log", "#")]),
            wanted(&["a/1", "a/#"], &[]),
        ];
        let elsewhere = Elsewhere::of(NODES.into_iter().zip(&nodes));
        let queue = |name: &str| vec![name.to_owned()];
        let all = [(NODES[0], queue("count")), (NODES[1], queue("log")), (NODES[2], vec![])];
        assert_eq!(takers(&elsewhere, "a/1", &[]), all);
        // The trigger is where the message was published.
        assert_eq!(takers(&elsewhere, "a/1", &["count", "log"]), [(NODES[0], vec![]), (NODES[2], vec![])]);
        assert_eq!(takers(&elsewhere, "c", &["log"]), []);
        assert_eq!(takers(&elsewhere, "$SYS/a", &[]), []);
    }

    #[test]
    fn too_many_filters_become_wider_ones() {
        let many = |count: usize| (0..count).map(|number| format!("sensors/{number}")).collect::<BTreeSet<_>>();
        assert_eq!(Wanted::new(many(FILTERS_MAX), BTreeSet::new()).filters.len(), FILTERS_MAX);
        let wide = Wanted::new(many(FILTERS_MAX + 1), BTreeSet::new());
        assert_eq!(wide, wanted(&["sensors/#"], &[]));
        let first = (0..=FILTERS_MAX).map(|number| format!("{number}/+")).collect();
        assert_eq!(Wanted::new(first, BTreeSet::new()), wanted(&["#"], &[]));
        let long = (0..200).map(|number| format!("{number}/{}", "x".repeat(900))).collect();
        assert_eq!(Wanted::new(long, BTreeSet::new()).filters.len(), 200);
    }

    #[test]
    fn what_another_node_wants_is_read_whole_or_not_at_all() {
        let one = wanted(&["a/+", "b"], &[("count", "a/#")]);
        assert_eq!(Wanted::read(&one.write()), Some(one));
        let many: Vec<String> = (0..=FILTERS_MAX).map(|number| number.to_string()).collect();
        let many = serde_json::json!({ "filters": many }).to_string();
        for bad in ["", "7", r#"{"filters":["a+"]}"#, r##"{"triggers":[["q","#/a"]]}"##, r#"{"else":1}"#, &many] {
            assert_eq!(Wanted::read(bad.as_bytes()), None, "{bad}");
        }
    }
}
