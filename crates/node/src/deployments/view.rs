//! All deployments of the fleet and how far each node is with them, as this node sees it.

use super::Deployments;
use api_types::{
    DeploymentNode, FleetDeployment, FleetDeployments, FleetPlaced, FleetPlacedNode, FleetReturned, FleetRollout,
    FleetTrouble,
};
use fleet_deploy::form::FormHeld;
use fleet_deploy::talk::{Progress, Stage};
use fleet_deploy::{Candidate, Record, Underway};
use fleet_trust::NodeId;
use manifest::Name;
use std::collections::BTreeMap;

impl Deployments {
    /// What this node knows. An anchor knows of all nodes; others know of those that have talked with them.
    pub(super) fn view(&self) -> FleetDeployments {
        let candidates = self.candidates();
        let mut progress: BTreeMap<_, BTreeMap<Name, Progress>> =
            self.told.lock().iter().map(|(node, (told, _))| (*node, told.progress.clone())).collect();
        progress.insert(self.trust.node(), self.progress.lock().clone());
        let one = |record: &Record| {
            let node = |candidate: &Candidate| {
                let said = progress.get(&candidate.node).and_then(|all| all.get(&record.name));
                shown(record, candidate, said)
            };
            let manifest = record.manifest.as_ref();
            let returned = record.returned.as_ref();
            FleetDeployment {
                name: record.name.to_string(),
                serial: record.serial,
                revision: record.revision,
                earlier: self.records.lock().earlier(record.name.as_str()).map(|earlier| earlier.revision).collect(),
                deployer: record.deployer.clone(),
                made_s: record.made_at,
                is_removed: manifest.is_none(),
                functions: manifest.iter().flat_map(|manifest| manifest.function.keys()).map(Name::to_string).collect(),
                nodes: candidates.iter().filter_map(node).collect(),
                rollout: record.underway.as_deref().map(rollout),
                returned: returned.map(|one| FleetReturned { revision: one.revision, why: one.why.clone() }),
            }
        };
        let records = self.newest();
        let deployments = records.iter().map(|record| one(record.record())).collect();
        let told_by = self.directory.own_name();
        FleetDeployments { fleet: self.fleet(), told_by, is_anchor: self.desk.is_some(), deployments }
    }

    /// Where the fleet has put a function, by the newest record that this node knows. None: no deployment has it.
    pub fn placed(&self, function: &str, names: &BTreeMap<NodeId, String>) -> Option<FleetPlaced> {
        let me = self.trust.node();
        let records = self.newest();
        let mut all = records.iter().map(|record| record.record());
        all.find_map(|record| placed(record, record.held(&me), function, names))
    }

    /// The deployment of the fleet that a function or a sink on this node belongs to.
    pub fn owner(&self, part: &str) -> Option<Name> {
        self.shelf.owner(part)
    }
}

/// Where a form has a function.
fn placed(
    record: &Record,
    held: FormHeld<'_>,
    function: &str,
    names: &BTreeMap<NodeId, String>,
) -> Option<FleetPlaced> {
    let (name, whole) = held.manifest?.function.get_key_value(function)?;
    let found = held.places.iter().find(|placed| placed.group.functions.contains(name))?;
    let place = whole.place.clone().unwrap_or_default();
    let node = |id: &NodeId| FleetPlacedNode {
        id: id.to_string(),
        name: names.get(id).cloned().unwrap_or_default(),
        round_trip_ms: found.round_trips_us.get(id).map(|micros| *micros as f64 / 1e3),
    };
    Some(FleetPlaced {
        deployment: record.name.to_string(),
        terms: place.terms.iter().map(ToString::to_string).collect(),
        near: place.near.map(|near| near.to_string()),
        within_ms: place.within.map(|within| within.ms()),
        copies: place.copies.map(|copies| copies.to_string()),
        scaled: found.scaled.clone(),
        warm: place.warm.unwrap_or_default(),
        keeps: found.group.keeps.iter().cloned().collect(),
        nodes: found.nodes.as_ref().map(|nodes| nodes.iter().map(node).collect()),
    })
}

fn rollout(underway: &Underway) -> FleetRollout {
    let Underway { step, rollout, before, .. } = underway;
    FleetRollout { step: *step, steps: rollout.steps.len() + 1, before: before.revision, watch_ms: rollout.watch.ms() }
}

/// How far a node is. None: nothing of it is for it, and nothing of it was there.
fn shown(record: &Record, candidate: &Candidate, said: Option<&Progress>) -> Option<DeploymentNode> {
    let held = record.held(&candidate.node);
    let whole = held.manifest;
    let placed = held.places.iter().filter(|placed| {
        let is_named = placed.nodes.as_ref().is_some_and(|nodes| nodes.contains(&candidate.node));
        let fits = || {
            candidate
                .profile
                .as_ref()
                .zip(whole)
                .is_some_and(|(profile, whole)| placed.is_on(whole, &candidate.node, profile))
        };
        is_named || fits()
    });
    let functions: Vec<String> = placed.flat_map(|placed| &placed.group.functions).map(Name::to_string).collect();
    let said = said.filter(|said| said.serial == record.serial);
    let stage = match said.map(|said| said.stage) {
        Some(Stage::Ready) => "ready",
        Some(Stage::Working) => "working",
        Some(Stage::Failed) => "failed",
        Some(Stage::Elsewhere) => return None,
        None if functions.is_empty() => return None,
        None => "waiting",
    };
    let trouble = said.and_then(|said| said.trouble.clone());
    Some(DeploymentNode {
        id: candidate.node.to_string(),
        name: candidate.name.clone(),
        is_there: candidate.is_there,
        stage: stage.to_owned(),
        revision: held.revision,
        functions,
        trouble: trouble.map(|one| FleetTrouble { code: one.code, detail: one.detail, hint: one.hint }),
    })
}
