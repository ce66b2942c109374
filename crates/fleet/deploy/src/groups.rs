//! What of a manifest has to be on one node: functions with the buckets and queues that they share.
//!
//! ```text
//!   function ─── bucket it is granted ─── function
//!      └──────── queue it handles, pushes to or pops from ─── sink
//! ```
//! What hangs together is one group and keeps something. A function that hangs on nothing is a group of its own, and
//! may be on many nodes. A timer or an MQTT trigger makes events, which lie in a queue.
//!
//! A queue that names its home ties whoever handles it or pops from it, and nobody who pushes to it: from elsewhere
//! events go there by mail.

use manifest::{Function, Manifest, Name};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Parts of one manifest that are on the same nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartGroup {
    pub functions: BTreeSet<Name>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub queues: BTreeSet<Name>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub sinks: BTreeSet<Name>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub buckets: BTreeSet<String>,
    /// The queues and buckets in which it keeps something, as `queue a`: with any, it is on one node, its home.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub keeps: BTreeSet<String>,
}

/// One part, as it is named in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Function(Name),
    Queue(Name),
    Sink(Name),
    Bucket(String),
}

impl PartGroup {
    /// As `function "a" with "b" and bucket "c"` in sentences, by its first part.
    pub fn described(&self) -> String {
        let functions = self.functions.iter().map(|name| format!("function {:?}", name.as_str()));
        let queues = self.queues.iter().map(|name| format!("queue {:?}", name.as_str()));
        let sinks = self.sinks.iter().map(|name| format!("sink {:?}", name.as_str()));
        let buckets = self.buckets.iter().map(|name| format!("bucket {name:?}"));
        let mut all = functions.chain(sinks).chain(queues).chain(buckets);
        let first = all.next().unwrap_or_default();
        match all.count() {
            0 => first,
            more => format!("{first} and {more} more that it shares buckets or queues with"),
        }
    }

    /// Copies its parts from the whole manifest into a share of it.
    pub(crate) fn copy(&self, whole: &Manifest, share: &mut Manifest) {
        share.function.extend(part_of(&whole.function, &self.functions));
        share.queue.extend(part_of(&whole.queue, &self.queues));
        share.sink.extend(part_of(&whole.sink, &self.sinks));
        share.bucket.extend(part_of(&whole.bucket, &self.buckets));
    }

    /// Whether it is on one node.
    pub fn has_home(&self) -> bool {
        !self.keeps.is_empty()
    }

    /// Whether both have a function, or keep something in the same place.
    pub fn overlaps(&self, other: &Self) -> bool {
        !(self.functions.is_disjoint(&other.functions) && self.keeps.is_disjoint(&other.keeps))
    }
}

/// The groups of a manifest, in the order of their first parts.
pub fn groups_of(manifest: &Manifest) -> Vec<PartGroup> {
    let mut graph = Graph::default();
    for (name, function) in &manifest.function {
        let part = Part::Function(name.clone());
        graph.add(&part);
        for bond in bonds(name, function, manifest) {
            graph.join(&part, &bond);
        }
    }
    for (name, sink) in &manifest.sink {
        graph.join(&Part::Sink(name.clone()), &Part::Queue(sink.queue.clone()));
    }
    for (name, queue) in &manifest.queue {
        let part = Part::Queue(name.clone());
        graph.add(&part);
        let dead_to = queue.dead_to.iter().filter(|other| !has_named_home(manifest, other));
        dead_to.for_each(|other| graph.join(&part, &Part::Queue(other.clone())));
    }
    manifest.bucket.keys().for_each(|name| graph.add(&Part::Bucket(name.clone())));
    graph.groups(manifest)
}

fn part_of<'a, K: Ord + Clone + 'a, V: Clone + 'a>(
    whole: &'a BTreeMap<K, V>,
    names: &'a BTreeSet<K>,
) -> impl Iterator<Item = (K, V)> + 'a {
    names.iter().filter_map(|name| whole.get_key_value(name)).map(|(name, what)| (name.clone(), what.clone()))
}

/// The queues and buckets that tie a function to its place.
fn bonds(name: &Name, function: &Function, manifest: &Manifest) -> Vec<Part> {
    let grants = &function.grants;
    let pushed = grants.push.iter().filter(|queue| !has_named_home(manifest, queue));
    let queues = function.handles(name).into_iter().chain(pushed).chain(&grants.pop).cloned().map(Part::Queue);
    queues.chain(grants.stores.iter().cloned().map(Part::Bucket)).collect()
}

fn has_named_home(manifest: &Manifest, queue: &Name) -> bool {
    manifest.queue.get(queue).is_some_and(|queue| queue.home.is_some())
}

/// Parts and the group that each is in so far, by number.
#[derive(Default)]
struct Graph {
    number: BTreeMap<Part, usize>,
    parent: Vec<usize>,
}

impl Graph {
    fn add(&mut self, part: &Part) {
        self.root(part);
    }

    fn join(&mut self, one: &Part, other: &Part) {
        let (one, other) = (self.root(one), self.root(other));
        self.parent[one.max(other)] = one.min(other);
    }

    fn root(&mut self, part: &Part) -> usize {
        let next = self.parent.len();
        let mut at = *self.number.entry(part.clone()).or_insert(next);
        if at == next {
            self.parent.push(next);
        }
        while self.parent[at] != at {
            self.parent[at] = self.parent[self.parent[at]];
            at = self.parent[at];
        }
        at
    }

    fn groups(mut self, manifest: &Manifest) -> Vec<PartGroup> {
        let parts: Vec<Part> = self.number.keys().cloned().collect();
        let mut found: BTreeMap<usize, PartGroup> = BTreeMap::new();
        for part in parts {
            let root = self.root(&part);
            let group = found.entry(root).or_default();
            // What the manifest does not list has its defaults, and ties all the same.
            match part {
                Part::Function(name) => _ = group.functions.insert(name),
                Part::Sink(name) => _ = group.sinks.insert(name),
                Part::Queue(name) => {
                    group.keeps.insert(format!("queue {name}"));
                    if manifest.queue.contains_key(&name) {
                        group.queues.insert(name);
                    }
                }
                Part::Bucket(name) => {
                    group.keeps.insert(format!("bucket {name}"));
                    if manifest.bucket.contains_key(&name) {
                        group.buckets.insert(name);
                    }
                }
            }
        }
        found.into_values().collect()
    }
}
