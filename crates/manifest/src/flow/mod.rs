//! Workflows of a manifest: what starts them, the functions and sinks, and the queues that join them.
//!
//! ```text
//!  trigger ──▶ function ──push──▶ queue + its handler ──push──▶ …      a stage is a handler with the queue it handles
//! ```
//! A queue is a stage of its own only if nothing handles it, or if other functions also pop events from it.
//! [`Flow::of`] makes the graph, [`Flow::check`] says what is wrong with it. Both are pure.

mod check;
#[cfg(test)]
mod tests;

pub use check::{Findings, Warning};

use crate::{Function, Manifest, MqttSink, Name, Sink};
use serde::Serialize;
use std::collections::BTreeMap;

/// The graph of a manifest. Stages stand in a fixed order: triggers, functions, queues, sinks, each by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Flow {
    pub stages: Vec<Stage>,
    pub edges: Vec<Edge>,
}

/// Where an event can be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Stage {
    /// What makes calls or events, as the manifest writes it: `mqtt` and `meter/+/power`, `every` and `10s`.
    Trigger { gate: Gate, text: String },
    /// A function, with the queue it handles.
    Function {
        name: Name,
        #[serde(skip_serializing_if = "Option::is_none")]
        queue: Option<Name>,
    },
    /// A queue that is no function's or sink's alone.
    Queue { name: Name },
    /// Where events leave the node.
    Sink { name: Name, queue: Name, to: Gate },
}

/// The way into the node or out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    Http,
    Mqtt,
    Every,
    Cron,
}

/// The way of an event from one stage to another. Both are places in [`Flow::stages`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
    pub kind: EdgeKind,
    /// The queue on the way; none for calls, which wait for their answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Name>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EdgeKind {
    /// A trigger calls a function, or makes an event for its queue.
    Start,
    /// A function may push to the queue (`grants.push`).
    Push,
    /// A function may take from the queue (`grants.pop`), or handles it beside others that may.
    Take,
    /// What cannot be handled goes on to another queue (`dead_to`).
    Dead,
    /// A sink publishes what a trigger of the same node is waiting for.
    Publish,
}

impl Gate {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Mqtt => "mqtt",
            Self::Every => "every",
            Self::Cron => "cron",
        }
    }
}

impl Stage {
    /// The name in the manifest; for a trigger what it waits for.
    pub fn name(&self) -> &str {
        match self {
            Self::Trigger { text, .. } => text,
            Self::Function { name, .. } | Self::Queue { name } | Self::Sink { name, .. } => name.as_str(),
        }
    }

    /// The queue whose events wait here.
    pub fn queue(&self) -> Option<&Name> {
        match self {
            Self::Trigger { .. } => None,
            Self::Function { queue, .. } => queue.as_ref(),
            Self::Queue { name } => Some(name),
            Self::Sink { queue, .. } => Some(queue),
        }
    }
}

impl Flow {
    pub fn of(manifest: &Manifest) -> Self {
        let mut graph = Builder::new(manifest);
        for (name, function) in &manifest.function {
            graph.triggers(name, function);
            graph.grants(name, function);
        }
        for (name, queue) in &manifest.queue {
            if let Some(dead_to) = &queue.dead_to {
                let (from, to) = (graph.entry[name].clone(), graph.entry[dead_to].clone());
                graph.edge(from, to, EdgeKind::Dead, Some(dead_to));
            }
        }
        graph.publishes(manifest);
        graph.finish()
    }

    /// Whether events go from one stage to another: a manifest of functions that only HTTP calls has no workflow.
    pub fn has_queues(&self) -> bool {
        self.stages.iter().any(|stage| stage.queue().is_some())
    }
}

/// Collects stages and edges, without minding their order.
struct Builder<'a> {
    /// The stage each queue's events go to.
    entry: BTreeMap<&'a Name, Stage>,
    stages: Vec<Stage>,
    edges: Vec<(Stage, Stage, EdgeKind, Option<Name>)>,
}

impl<'a> Builder<'a> {
    fn new(manifest: &'a Manifest) -> Self {
        let mut stages = Vec::new();
        let mut entry = BTreeMap::new();
        let mut edges = Vec::new();
        let handlers = manifest.function.iter().map(|(name, function)| function_stage(name, function));
        for stage in handlers.chain(manifest.sink.iter().map(|(name, sink)| sink_stage(name, sink))) {
            stages.push(stage);
        }
        let handled = manifest.function.iter().filter_map(|(name, function)| {
            let queue = function.handles(name)?;
            Some((queue, function_stage(name, function)))
        });
        for (queue, handler) in
            handled.chain(manifest.sink.iter().map(|(name, sink)| (&sink.queue, sink_stage(name, sink))))
        {
            let others = manifest.function.iter().any(|(name, function)| {
                function.grants.pop.contains(queue) && function_stage(name, function) != handler
            });
            if others {
                let stage = Stage::Queue { name: queue.clone() };
                edges.push((stage.clone(), handler, EdgeKind::Take, Some(queue.clone())));
                entry.insert(queue, stage);
            } else {
                entry.insert(queue, handler);
            }
        }
        let granted =
            manifest.function.values().flat_map(|function| function.grants.push.iter().chain(&function.grants.pop));
        let dead = manifest.queue.values().filter_map(|queue| queue.dead_to.as_ref());
        for queue in manifest.queue.keys().chain(granted).chain(dead) {
            entry.entry(queue).or_insert_with(|| Stage::Queue { name: queue.clone() });
        }
        stages.extend(entry.values().cloned());
        Self { entry, stages, edges }
    }

    fn edge(&mut self, from: Stage, to: Stage, kind: EdgeKind, queue: Option<&Name>) {
        self.stages.push(from.clone());
        self.edges.push((from, to, kind, queue.cloned()));
    }

    /// Calls go to the function itself; events, and calls that are answered later, to the queue it handles.
    fn triggers(&mut self, name: &Name, function: &Function) {
        let stage = function_stage(name, function);
        for trigger in &function.http {
            let text = trigger.host.as_deref().unwrap_or_default().to_owned() + &trigger.route;
            let queue = function.handles(name).filter(|_| trigger.is_async);
            let to = queue.map_or(&stage, |queue| &self.entry[queue]).clone();
            self.edge(Stage::Trigger { gate: Gate::Http, text }, to, EdgeKind::Start, queue);
        }
        let mqtt = function.mqtt.iter().map(|trigger| (Gate::Mqtt, trigger.topic.clone()));
        let every = function.every.iter().map(|trigger| (Gate::Every, trigger.period.to_string()));
        let cron = function.cron.iter().map(|trigger| (Gate::Cron, trigger.schedule.clone()));
        for (gate, text) in mqtt.chain(every).chain(cron) {
            let queue = function.handles(name).expect("a function with such a trigger has a queue");
            let to = self.entry[queue].clone();
            self.edge(Stage::Trigger { gate, text }, to, EdgeKind::Start, Some(queue));
        }
    }

    fn grants(&mut self, name: &Name, function: &Function) {
        let stage = function_stage(name, function);
        for queue in &function.grants.push {
            let to = self.entry[queue].clone();
            self.edge(stage.clone(), to, EdgeKind::Push, Some(queue));
        }
        for queue in function.grants.pop.iter().filter(|queue| Some(*queue) != function.handles(name)) {
            let from = self.entry[queue].clone();
            self.edge(from, stage.clone(), EdgeKind::Take, Some(queue));
        }
    }

    /// What an MQTT sink publishes may be what a function of the same manifest waits for.
    fn publishes(&mut self, manifest: &Manifest) {
        for (name, sink) in &manifest.sink {
            let Some(topic) = sink.mqtt.as_ref().and_then(fixed_topic) else { continue };
            for trigger in manifest.function.values().flat_map(|function| &function.mqtt) {
                if topic_matches(&trigger.topic, topic) {
                    let to = Stage::Trigger { gate: Gate::Mqtt, text: trigger.topic.clone() };
                    self.edge(sink_stage(name, sink), to, EdgeKind::Publish, None);
                }
            }
        }
    }

    fn finish(mut self) -> Flow {
        self.stages.sort();
        self.stages.dedup();
        let place = |stage: &Stage| self.stages.binary_search(stage).expect("every stage of an edge is known");
        let edge = |(from, to, kind, queue): &(Stage, Stage, EdgeKind, Option<Name>)| Edge {
            from: place(from),
            to: place(to),
            kind: *kind,
            queue: queue.clone(),
        };
        let mut edges: Vec<Edge> = self.edges.iter().map(edge).collect();
        edges.sort();
        edges.dedup();
        Flow { stages: self.stages, edges }
    }
}

fn function_stage(name: &Name, function: &Function) -> Stage {
    Stage::Function { name: name.clone(), queue: function.handles(name).cloned() }
}

fn sink_stage(name: &Name, sink: &Sink) -> Stage {
    let to = if sink.mqtt.is_some() { Gate::Mqtt } else { Gate::Http };
    Stage::Sink { name: name.clone(), queue: sink.queue.clone(), to }
}

/// The topic, if it is the same for every event.
fn fixed_topic(sink: &MqttSink) -> Option<&str> {
    (!sink.topic.contains("{subject}")).then_some(sink.topic.as_str())
}

/// Whether a message under `topic` is one that `filter` asks for (MQTT 5.0, 4.7).
fn topic_matches(filter: &str, topic: &str) -> bool {
    let mut levels = topic.split('/');
    // A filter that begins with a wildcard does not match the broker's own topics.
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    for part in filter.split('/') {
        match (part, levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (part, Some(level)) if part == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}
