//! An anchor makes a record of an order, or of a change among the nodes.

use crate::form::{Form, Underway};
use crate::groups::PartGroup;
use crate::order::{Order, Wish};
use crate::places::{Candidate, Scaled, place, replace, scale};
use crate::record::{Placed, Record};
use crate::records::Records;
use crate::rollout;
use manifest::{Manifest, Name};
use problem::{Code, Problem};
use std::collections::BTreeSet;

/// What an anchor knows when it decides.
pub struct Known<'a> {
    /// The fleet's id.
    pub fleet: &'a str,
    pub records: &'a Records,
    /// All members.
    pub candidates: &'a [Candidate],
    /// By the anchor's clock, in seconds since 1970.
    pub now: u64,
}

/// The record that an order asks for. Whose order it is was checked.
///
/// # Errors
/// - [`Code::DeploymentGarbled`]: it is for another fleet. What [`Manifest::check`] says.
/// - [`Code::DeploymentChanged`]: it was made from another record than the newest.
/// - [`Code::DeploymentUnknown`]: there is none to go back from or to remove. [`Code::VersionUnknown`].
/// - [`Code::FleetDeployed`]: another deployment has a function, a sink or a route of it.
/// - What [`place`] says.
pub fn decide(order: &Order, known: &Known<'_>) -> Result<Record, Problem> {
    let Known { fleet, records, .. } = known;
    if order.fleet != *fleet {
        return Err(Problem::new(Code::DeploymentGarbled, format!("the order is for the fleet {}", order.fleet)));
    }
    let before = records.get(order.name.as_str()).map(|record| record.record());
    let serial = before.map_or(0, |record| record.serial);
    if order.after != serial {
        let detail = format!(
            "the deployment {:?} is at its change {serial}, and the order was made from {}",
            order.name.as_str(),
            order.after
        );
        return Err(Problem::new(Code::DeploymentChanged, detail));
    }
    let last = before.map_or(0, |record| record.last);
    let (revision, manifest, target) = match &order.wish {
        Wish::Deploy(manifest) => {
            manifest.check()?;
            check_images(manifest)?;
            (last + 1, Some((**manifest).clone()), None)
        }
        Wish::RollBack { to } => {
            let target = earlier(records, order.name.as_str(), existing(&order.name, before)?.revision, *to)?;
            (target.revision, target.manifest.clone(), Some(target))
        }
        Wish::Remove => (existing(&order.name, before)?.revision, None, None),
    };
    let places = match &manifest {
        Some(manifest) => {
            check_others(&order.name, manifest, records)?;
            place(manifest, &places_before(before, target), known.candidates)?
        }
        None => Vec::new(),
    };
    let settled = before.and_then(Record::settled).map(|form| (form, revision));
    let underway = match (&order.wish, settled) {
        (Wish::Deploy(manifest), Some(forms)) => rollout::begin(manifest, &places, forms, known.candidates),
        _ => None,
    };
    Ok(Record {
        fleet: (*fleet).to_owned(),
        name: order.name.clone(),
        serial: serial + 1,
        revision,
        last: last.max(revision),
        deployer: order.deployer.clone(),
        made_at: known.now,
        manifest,
        places,
        underway,
        returned: None,
    })
}

/// The places that hold until now, and the homes of what only the form before them keeps, or the one that is gone back
/// to: that lies where it was.
fn places_before(before: Option<&Record>, target: Option<&Record>) -> Vec<Placed> {
    let mut places = before.map_or_else(Vec::new, |record| record.places.clone());
    let underway = before.and_then(|record| record.underway.as_deref()).map(|underway| &underway.before.places);
    for earlier in underway.into_iter().chain(target.map(|record| &record.places)).flatten() {
        let is_known = |kept: &String| places.iter().any(|placed| placed.group.keeps.contains(kept));
        let keeps: BTreeSet<String> = earlier.group.keeps.iter().filter(|kept| !is_known(kept)).cloned().collect();
        if !keeps.is_empty() {
            let group = PartGroup { keeps, ..PartGroup::default() };
            places.push(Placed { group, ..earlier.clone() });
        }
    }
    places
}

/// Copies that were on nodes which are away now are made elsewhere; what nobody can take stays as it is. None: nothing
/// is to be changed.
pub fn decide_again(record: &Record, known: &Known<'_>) -> Option<Record> {
    let places = replaced(record.manifest.as_ref()?, &record.places, known);
    let before = record.underway.as_deref().and_then(|underway| {
        let places = replaced(&underway.before.manifest, &underway.before.places, known)?;
        let before = Form { places, ..underway.before.clone() };
        Some(Box::new(Underway { before, ..underway.clone() }))
    });
    if places.is_none() && before.is_none() {
        return None;
    }
    let mut again = Record { serial: record.serial + 1, made_at: known.now, ..record.clone() };
    again.places = places.unwrap_or(again.places);
    again.underway = before.or(again.underway);
    Some(again)
}

/// Another number of copies of one function. None: it is not to be had, or the form is on its way.
pub fn decide_scaled(record: &Record, scaled: &Scaled<'_>, known: &Known<'_>) -> Option<Record> {
    if record.underway.is_some() {
        return None;
    }
    let places = scale(record.manifest.as_ref()?, &record.places, known.candidates, scaled);
    let places = changed(places, &record.places)?;
    Some(Record { serial: record.serial + 1, made_at: known.now, places, ..record.clone() })
}

/// The places of one form anew. None: they stay as they are.
fn replaced(manifest: &Manifest, places: &[Placed], known: &Known<'_>) -> Option<Vec<Placed>> {
    // Only what has `copies` or `within` changes: a home does not move, and the rest finds its nodes by itself.
    let is_counted = |placed: &Placed| placed.nodes.is_some() && !placed.group.has_home();
    if !places.iter().any(is_counted) {
        return None;
    }
    changed(replace(manifest, places, known.candidates), places)
}

/// None: all is where it was.
fn changed(again: Vec<Placed>, places: &[Placed]) -> Option<Vec<Placed>> {
    let is_same = || again.iter().zip(places).all(|(one, other)| one.is_same(other));
    (again.len() == places.len() && !is_same()).then_some(again)
}

fn existing<'a>(name: &Name, before: Option<&'a Record>) -> Result<&'a Record, Problem> {
    let live = before.filter(|record| record.manifest.is_some());
    live.ok_or_else(|| {
        Problem::new(Code::DeploymentUnknown, format!("the fleet has no deployment {:?}", name.as_str()))
    })
}

/// The revision to go back to.
fn earlier<'a>(records: &'a Records, name: &str, current: u64, to: Option<u64>) -> Result<&'a Record, Problem> {
    let found = records.earlier(name).find(|record| to.map_or(record.revision < current, |to| record.revision == to));
    found.ok_or_else(|| {
        let kept: Vec<String> = records.earlier(name).map(|record| record.revision.to_string()).collect();
        let wanted = to.map_or_else(|| format!("before {current}"), |to| to.to_string());
        let kept = if kept.is_empty() { "none".to_owned() } else { kept.join(", ") };
        let detail = format!("the deployment {name:?} has no revision {wanted} to go back to; kept are {kept}");
        Problem::new(Code::VersionUnknown, detail).with_hint("`lighter fleet deployments` lists them")
    })
}

fn check_images(manifest: &Manifest) -> Result<(), Problem> {
    let is_hash = |text: &str| text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match manifest.function.iter().find(|(_, function)| !is_hash(&function.image)) {
        None => Ok(()),
        Some((name, function)) => {
            let detail = format!("function {:?}: {:?} is no hash of an image", name.as_str(), function.image);
            Err(Problem::new(Code::ManifestValue, detail))
        }
    }
}

/// Two deployments have no function, sink or route in common: on one node they could not be both.
fn check_others(name: &Name, manifest: &Manifest, records: &Records) -> Result<(), Problem> {
    let routes = |manifest: &Manifest| -> Vec<(Option<String>, String)> {
        let triggers = manifest.function.values().flat_map(|function| &function.http);
        triggers.map(|trigger| (trigger.host.clone(), trigger.route.clone())).collect()
    };
    let ours = routes(manifest);
    for other in records.iter().map(|record| record.record()).filter(|other| other.name != *name) {
        let has = |function: &&Name| other.manifests().any(|theirs| theirs.function.contains_key(*function));
        let delivers = |sink: &&Name| other.manifests().any(|theirs| theirs.sink.contains_key(*sink));
        let function = manifest.function.keys().find(has);
        let sink = manifest.sink.keys().find(delivers);
        let route = other.manifests().flat_map(routes).find(|route| ours.contains(route));
        let what = match (function, sink, route) {
            (Some(function), ..) => format!("the function {:?}", function.as_str()),
            (None, Some(sink), _) => format!("the sink {:?}", sink.as_str()),
            (None, None, Some((_, route))) => format!("the route {route:?}"),
            (None, None, None) => continue,
        };
        let detail = format!("{what} belongs to the deployment {:?} of the fleet", other.name.as_str());
        return Err(Problem::new(Code::FleetDeployed, detail)
            .with_hint("choose another name or route, or deploy under that deployment's name: --name"));
    }
    Ok(())
}
