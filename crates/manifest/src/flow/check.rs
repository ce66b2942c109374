//! What is wrong with a workflow: events that go round, missing queues, and ends that lead nowhere.
//!
//! An error cannot be intended, so it stops a deployment. A warning may be intended, because events also come from
//! `lighter push` and from functions of other manifests.

use super::{Edge, EdgeKind, Flow, Stage};
use crate::nearest::nearest;
use crate::{Manifest, Name};
use problem::{Code, Problem};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// What [`Flow::check`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Each with [`Code::ManifestConflict`].
    pub errors: Vec<Problem>,
    pub warnings: Vec<Warning>,
}

/// What may be meant and often is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// One sentence, no full stop.
    pub detail: String,
    pub hint: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warning: {}\n  hint: {}", self.detail, self.hint)
    }
}

impl Flow {
    /// Checks the workflows of the manifest this graph was made of.
    pub fn check(&self, manifest: &Manifest) -> Findings {
        let mut findings = Findings::default();
        unknown_queues(manifest, &mut findings.errors);
        if let Some(cycle) = self.cycle(manifest) {
            findings.errors.push(self.cycle_problem(&cycle));
        }
        self.ends(manifest, &mut findings.warnings);
        findings
    }

    /// A queue that nobody handles ends a workflow without anybody noticing; one that nothing feeds never begins one.
    fn ends(&self, manifest: &Manifest, warnings: &mut Vec<Warning>) {
        let mut warn = |detail: String, hint: String| warnings.push(Warning { detail, hint });
        for (place, stage) in self.stages.iter().enumerate() {
            let Some(queue) = stage.queue() else { continue };
            let fed = self.edges.iter().any(|edge| edge.to == place && edge.queue.as_ref() == Some(queue));
            let emptied = !matches!(stage, Stage::Queue { .. })
                || self.edges.iter().any(|edge| edge.from == place && edge.kind == EdgeKind::Take);
            match (fed, emptied) {
                (true, true) => {}
                (false, true) => warn(
                    format!("nothing in this manifest feeds the queue {:?} of {}", queue.as_str(), self.takers(place)),
                    format!(
                        "`lighter push {queue}` does, and so may a function of another manifest: grants.push = [\"{queue}\"] and an empty [queue.{queue}]"
                    ),
                ),
                (true, false) => warn(
                    format!(
                        "nobody in this manifest handles the queue {:?}: its events stay until it is full",
                        queue.as_str()
                    ),
                    format!("write queue = \"{queue}\" for a function or a sink"),
                ),
                (false, false) => warn(
                    format!("nothing uses the queue {:?}", queue.as_str()),
                    format!("leave out [queue.{queue}], or write queue = \"{queue}\" for a function or a sink"),
                ),
            }
        }
        for (name, function) in &manifest.function {
            if function.handles(name).is_none() && function.http.is_empty() && self.has_queues() {
                warn(
                    format!("nothing starts the function {:?}", name.as_str()),
                    format!(
                        "give it a trigger: queue = \"{name}\", mqtt, every, cron or http; `lighter call {name}` calls it"
                    ),
                );
            }
        }
    }

    /// Who gets the events of a queue.
    fn takers(&self, place: usize) -> String {
        match &self.stages[place] {
            Stage::Queue { .. } => {
                let takers = self.edges.iter().filter(|edge| edge.from == place);
                let names: Vec<String> = takers.map(|edge| format!("{:?}", self.stages[edge.to].name())).collect();
                names.join(" and ")
            }
            stage => format!("{:?}", stage.name()),
        }
    }

    /// The edges of a cycle that no queue on it allows.
    fn cycle(&self, manifest: &Manifest) -> Option<Vec<&Edge>> {
        let allowed = |edge: &Edge| {
            let queue = edge.queue.as_ref().and_then(|queue| manifest.queue.get(queue));
            queue.is_some_and(|queue| queue.cycle)
        };
        let mut done = vec![false; self.stages.len()];
        let mut on_path = vec![false; self.stages.len()];
        for start in 0..self.stages.len() {
            if done[start] {
                continue;
            }
            // Depth first without recursion: a manifest may have ten thousand functions in a row.
            let mut path: Vec<&Edge> = Vec::new();
            let mut stack = vec![(start, self.leaving(start).iter())];
            on_path[start] = true;
            while let Some((place, edges)) = stack.last_mut() {
                match edges.find(|edge| !allowed(edge)) {
                    Some(edge) if on_path[edge.to] => {
                        let begin = path.iter().position(|earlier| earlier.from == edge.to).unwrap_or(path.len());
                        path.push(edge);
                        return Some(path.split_off(begin));
                    }
                    Some(edge) if !done[edge.to] => {
                        on_path[edge.to] = true;
                        path.push(edge);
                        stack.push((edge.to, self.leaving(edge.to).iter()));
                    }
                    Some(_) => {}
                    None => {
                        on_path[*place] = false;
                        done[*place] = true;
                        path.pop();
                        stack.pop();
                    }
                }
            }
        }
        None
    }

    /// The edges that begin at a stage: edges are sorted by where they begin.
    fn leaving(&self, place: usize) -> &[Edge] {
        let begin = self.edges.partition_point(|edge| edge.from < place);
        let end = self.edges.partition_point(|edge| edge.from <= place);
        &self.edges[begin..end]
    }

    fn cycle_problem(&self, cycle: &[&Edge]) -> Problem {
        let mut way = self.stages[cycle[0].from].name().to_owned();
        for edge in cycle {
            let to = self.stages[edge.to].name();
            // A queue that is called as its handler, or was a stage just now, is not said twice.
            let said = |queue: &Name| queue.as_str() == to || matches!(self.stages[edge.from], Stage::Queue { .. });
            way += &match edge.queue.as_ref().filter(|queue| !said(queue)) {
                Some(queue) => format!(" -> ({queue}) {to}"),
                None => format!(" -> {to}"),
            };
        }
        let detail = match cycle {
            [edge] if edge.kind == EdgeKind::Push => {
                format!("function {:?} may push to the queue it handles: {way}", self.stages[edge.from].name())
            }
            _ => format!("events may go round for ever: {way}"),
        };
        let queues: BTreeSet<&Name> = cycle.iter().filter_map(|edge| edge.queue.as_ref()).collect();
        let hint = match queues.first() {
            Some(queue) => format!(
                "if they are meant to, and are sure to end, write [queue.{queue}] with cycle = true; a try after a failure needs no cycle, that is what `retry` is for"
            ),
            None => "leave out one of its parts".to_owned(),
        };
        Problem::new(Code::ManifestConflict, detail).with_hint(hint)
    }
}

/// A queue that nobody knows, in a grant or `dead_to`, is a slip of the pen: the queue of that name would fill unseen.
fn unknown_queues(manifest: &Manifest, errors: &mut Vec<Problem>) {
    let handled = manifest.function.iter().filter_map(|(name, function)| function.handles(name));
    let known: BTreeSet<&Name> =
        handled.chain(manifest.sink.values().map(|sink| &sink.queue)).chain(manifest.queue.keys()).collect();
    let mut check = |place: String, queue: &Name| {
        if !known.contains(queue) {
            let detail = format!("{place} has {:?}, and there is no such queue", queue.as_str());
            errors.push(Problem::new(Code::ManifestConflict, detail).with_hint(unknown_hint(manifest, &known, queue)));
        }
    };
    for (name, function) in &manifest.function {
        for (key, queues) in [("push", &function.grants.push), ("pop", &function.grants.pop)] {
            queues.iter().for_each(|queue| check(format!("function {:?}: grants.{key}", name.as_str()), queue));
        }
    }
    for (name, queue) in &manifest.queue {
        queue.dead_to.iter().for_each(|dead_to| check(format!("queue {:?}: dead_to", name.as_str()), dead_to));
    }
}

fn unknown_hint(manifest: &Manifest, known: &BTreeSet<&Name>, queue: &Name) -> String {
    if manifest.function.contains_key(queue) {
        return format!("the function {:?} handles no queue: write queue = \"{queue}\" for it", queue.as_str());
    }
    if let Some(sink) = manifest.sink.get(queue) {
        return format!("the sink {:?} takes from the queue {:?}", queue.as_str(), sink.queue.as_str());
    }
    match nearest(queue.as_str(), known.iter().map(|known| known.as_str())) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!(
            "write queue = \"{queue}\" for a function or a sink; if another manifest handles it, write [queue.{queue}] here"
        ),
    }
}
