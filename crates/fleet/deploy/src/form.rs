//! What a deployment is in one of its revisions, and which revision a node is to have while a new one is on its way.
//!
//! ```text
//!   record ─┬─ its own form ──────────────── nodes of the steps so far; all, where it is not on its way
//!           └─ underway: the form before ─── all other nodes
//! ```

use crate::profile::Profile;
use crate::record::{Placed, Record};
use fleet_trust::NodeId;
use manifest::{Manifest, Name, Place, Queue, Rollout};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One revision of a deployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    pub revision: u64,
    pub manifest: Manifest,
    pub places: Vec<Placed>,
}

/// A new form that some nodes have: all others have the one before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Underway {
    /// From 1. All nodes have the new form after the last one.
    pub step: usize,
    pub rollout: Rollout,
    /// Those that have the new form.
    pub nodes: BTreeSet<NodeId>,
    /// What all others have, and what is gone back to.
    pub before: Form,
}

/// A form that was gone back from by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Returned {
    /// Of the form that failed.
    pub revision: u64,
    /// What was seen of it.
    pub why: String,
}

/// What one node is to have of a deployment.
#[derive(Debug, Clone, Copy)]
pub struct FormHeld<'a> {
    pub revision: u64,
    /// None: the deployment was removed.
    pub manifest: Option<&'a Manifest>,
    pub places: &'a [Placed],
}

impl Record {
    /// The form that a node is to have.
    pub fn held(&self, node: &NodeId) -> FormHeld<'_> {
        match &self.underway {
            Some(underway) if !underway.nodes.contains(node) => underway.before.held(),
            _ => FormHeld { revision: self.revision, manifest: self.manifest.as_ref(), places: &self.places },
        }
    }

    /// All forms that a node may have now: the one of this record, and the one before if it is on its way.
    pub fn manifests(&self) -> impl Iterator<Item = &Manifest> {
        self.manifest.iter().chain(self.underway.iter().map(|underway| &underway.before.manifest))
    }

    /// The form that all nodes had, or have.
    pub(crate) fn settled(&self) -> Option<Form> {
        match &self.underway {
            Some(underway) => Some(underway.before.clone()),
            None => {
                let manifest = self.manifest.clone()?;
                Some(Form { revision: self.revision, manifest, places: self.places.clone() })
            }
        }
    }
}

impl Underway {
    /// Whether it leads to this record, as anchors make it.
    pub(crate) fn is_before(&self, record: &Record) -> bool {
        let is_step = (1..=self.rollout.steps.len()).contains(&self.step) && !self.nodes.is_empty();
        let is_later = record.manifest.is_some() && self.before.revision < record.revision;
        is_step && is_later && self.before.held().is_whole()
    }
}

impl Form {
    pub(crate) fn held(&self) -> FormHeld<'_> {
        FormHeld { revision: self.revision, manifest: Some(&self.manifest), places: &self.places }
    }
}

impl FormHeld<'_> {
    /// What of it is for a node: a manifest with no more of `place` than counts there, because the rest is decided.
    /// None: nothing.
    pub fn share(&self, node: &NodeId, profile: &Profile) -> Option<Manifest> {
        let whole = self.manifest?;
        let mut share = Manifest::default();
        for placed in self.places.iter().filter(|placed| placed.is_on(whole, node, profile)) {
            placed.group.copy(whole, &mut share);
        }
        for function in share.function.values_mut() {
            function.place = function.place.as_ref().and_then(Place::on_node);
        }
        let homes = homes_elsewhere(whole, &share);
        share.queue.extend(homes);
        (share != Manifest::default()).then_some(share)
    }

    /// Whether all that is placed is in the manifest, and all of that is placed once.
    pub(crate) fn is_whole(&self) -> bool {
        let nothing = Manifest::default();
        let whole = self.manifest.unwrap_or(&nothing);
        let groups = || self.places.iter().map(|placed| &placed.group);
        is_once(whole.function.keys(), groups().flat_map(|group| &group.functions))
            && is_once(whole.queue.keys(), groups().flat_map(|group| &group.queues))
            && is_once(whole.sink.keys(), groups().flat_map(|group| &group.sinks))
            && is_once(whole.bucket.keys(), groups().flat_map(|group| &group.buckets))
    }
}

/// The queues with a home that a node's functions push to, or its dead letters go to: it has to know where that is.
fn homes_elsewhere(whole: &Manifest, share: &Manifest) -> Vec<(Name, Queue)> {
    let pushed = share.function.values().flat_map(|function| &function.grants.push);
    let named = pushed.chain(share.queue.values().filter_map(|queue| queue.dead_to.as_ref()));
    let known = named.filter_map(|name| Some((name, whole.queue.get(name)?)));
    known.filter(|(_, queue)| queue.home.is_some()).map(|(name, queue)| (name.clone(), queue.clone())).collect()
}

/// Whether the two have the same names, each once.
fn is_once<'a, T: Ord + 'a>(whole: impl Iterator<Item = &'a T>, placed: impl Iterator<Item = &'a T>) -> bool {
    let mut placed: Vec<&T> = placed.collect();
    placed.sort_unstable();
    whole.eq(placed)
}
