//! A new form goes to some nodes first, is watched there, and goes on or back. Pure: the time comes in.
//!
//! ```text
//!   order ─▶ begin: step 1 ──▶ Watch: wait … ─┬─ good ─▶ on: step 2 … ─▶ all nodes
//!                                             └─ bad ──▶ back: the form before, on all nodes
//! ```
//! Each step is a record of its own, so an anchor that is started again goes on with the step at which it was. What it
//! had seen by then is gone: the step is watched anew.

use crate::decide::Known;
use crate::form::{Form, FormHeld, Returned, Underway};
use crate::places::Candidate;
use crate::record::{Placed, Record};
use crate::talk::{Progress, RunCounts, Stage};
use fleet_trust::NodeId;
use manifest::{Manifest, Rollout};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// How long a node of a step may say that it cannot run the new form. A node tries again after two seconds.
const FAILING_MS_MAX: u64 = 10_000;
/// How long no node of a step may be heard of. Then the new form is taken to be the reason.
const AWAY_MS_MAX: u64 = 120_000;
/// How long a node of a step that is heard of may lack its record, because its disk is full or its program older. Then
/// it cannot run the new form.
const UNTAKEN_MS_MAX: u64 = AWAY_MS_MAX;
/// Fewer runs that failed are chance.
const FAILED_MIN: u64 = 3;
/// By how much more of all runs may fail than before.
const MORE_MAX: f64 = 0.02;
/// How sure it has to be that more fail, in standard deviations: it is looked at many times.
const SURE: f64 = 3.0;

/// Begins with the first step, if the manifest asks for steps and something is there to go back to.
pub(crate) fn begin(
    manifest: &Manifest,
    places: &[Placed],
    (before, revision): (Form, u64),
    candidates: &[Candidate],
) -> Option<Box<Underway>> {
    let rollout = manifest.rollout()?.clone();
    let new = FormHeld { revision, manifest: Some(manifest), places };
    let size = *rollout.steps.first()?;
    let all = Targets::of(new, &before, candidates);
    let nodes = all.first(size.of(all.0.len()), &BTreeSet::new());
    (!nodes.is_empty()).then(|| Box::new(Underway { step: 1, rollout, nodes, before }))
}

/// The record of the next step; of all nodes after the last one, or when a step would bring no node more.
pub fn on(record: &Record, known: &Known<'_>) -> Record {
    let mut next = Record { serial: record.serial + 1, made_at: known.now, ..record.clone() };
    next.underway = record.underway.as_deref().and_then(|underway| {
        let Underway { step, rollout, nodes, before } = underway;
        let new = FormHeld { revision: record.revision, manifest: record.manifest.as_ref(), places: &record.places };
        let all = Targets::of(new, before, known.candidates);
        let sizes = rollout.steps.iter().enumerate().skip(*step);
        let mut later = sizes.map(|(at, size)| (at + 1, all.first(size.of(all.0.len()), nodes)));
        let (step, nodes) = later.find(|(_, more)| more.len() > nodes.len())?;
        let is_open = all.0.iter().any(|node| !nodes.contains(node));
        is_open.then(|| Box::new(Underway { step, nodes, rollout: rollout.clone(), before: before.clone() }))
    });
    next
}

/// The record that goes back to what was before.
pub fn back(record: &Record, why: String, known: &Known<'_>) -> Option<Record> {
    let Form { revision, manifest, places } = record.underway.as_ref()?.before.clone();
    let returned = Some(Returned { revision: record.revision, why });
    let (serial, manifest) = (record.serial + 1, Some(manifest));
    Some(Record { serial, revision, manifest, places, returned, underway: None, made_at: known.now, ..record.clone() })
}

/// The nodes that a new form is for, or that had the one before, in the order in which they get it.
struct Targets(Vec<NodeId>);

impl Targets {
    fn of(new: FormHeld<'_>, before: &Form, candidates: &[Candidate]) -> Self {
        let nodes = candidates.iter().filter_map(|candidate| {
            let functions = |held: FormHeld<'_>| -> BTreeSet<manifest::Name> {
                let share = candidate.profile.as_ref().and_then(|profile| held.share(&candidate.node, profile));
                share.into_iter().flat_map(|share| share.function.into_keys()).collect()
            };
            let (has, had) = (functions(new), functions(before.held()));
            if has.is_empty() && had.is_empty() {
                return None;
            }
            let mut chance = DefaultHasher::new();
            (new.revision, candidate.node.0).hash(&mut chance);
            // Nodes that are there; of them those that lose nothing by it, and have something to compare with.
            let order = (!candidate.is_there, !has.is_superset(&had), had.is_empty(), chance.finish());
            Some((order, candidate.node))
        });
        let mut nodes: Vec<_> = nodes.collect();
        nodes.sort_unstable();
        Self(nodes.into_iter().map(|(_, node)| node).collect())
    }

    /// So many of them, with those that have it already.
    fn first(&self, count: usize, already: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let mut nodes = already.clone();
        let missing = count.saturating_sub(nodes.len());
        let more: Vec<NodeId> = self.0.iter().filter(|node| !nodes.contains(*node)).take(missing).copied().collect();
        nodes.extend(more);
        nodes
    }
}

/// What an anchor has heard of one node.
#[derive(Debug, Clone, Copy)]
pub struct StepHeard<'a> {
    pub node: NodeId,
    pub name: &'a str,
    pub is_there: bool,
    /// Whether it has said that it has all records that hold.
    pub has_all: bool,
    /// What it has said of the deployment.
    pub progress: Option<&'a Progress>,
    /// When it has said so, by the clock of [`Watch::look`].
    pub at_ms: u64,
}

/// What is to become of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepVerdict {
    Wait,
    /// It was watched for long enough.
    Good,
    /// Why.
    Bad(String),
}

/// What an anchor has seen of one step.
#[derive(Debug)]
pub struct Watch {
    serial: u64,
    /// Since when nodes are ready, or cannot run it.
    ready: BTreeMap<NodeId, u64>,
    failing: BTreeMap<NodeId, u64>,
    /// Since when nodes are there without the record.
    without: BTreeMap<NodeId, u64>,
    /// When one of its nodes was there last.
    there: u64,
}

impl Watch {
    /// Begins to watch a record. `now_ms` may begin anywhere and never goes back.
    pub fn new(record: &Record, now_ms: u64) -> Self {
        let (ready, failing, without) = Default::default();
        Self { serial: record.serial, ready, failing, without, there: now_ms }
    }

    /// Looks at what the nodes have said by now.
    pub fn look(&mut self, record: &Record, heard: &[StepHeard<'_>], now_ms: u64) -> StepVerdict {
        let Some(underway) = record.underway.as_deref() else { return StepVerdict::Wait };
        if self.serial != record.serial {
            *self = Self::new(record, now_ms);
        }
        let there: Vec<&StepHeard<'_>> =
            heard.iter().filter(|one| one.is_there && underway.nodes.contains(&one.node)).collect();
        self.without.retain(|node, _| there.iter().any(|one| one.node == *node));
        if there.is_empty() {
            let away_ms = now_ms.saturating_sub(self.there);
            return match away_ms >= AWAY_MS_MAX {
                true => StepVerdict::Bad(format!("no node that has it was heard of for {} s", away_ms / 1_000)),
                false => StepVerdict::Wait,
            };
        }
        self.there = now_ms;
        there.iter().for_each(|one| self.note(one, now_ms));
        if let Some(why) = self.unable(&there, now_ms).or_else(|| worse(record, underway, heard)) {
            return StepVerdict::Bad(why);
        }
        // A node that runs it and does not say how its runs ended is not watched.
        let tells = |progress: &Progress| progress.runs.is_some() || progress.stage == Stage::Elsewhere;
        let is_watched = |one: &&StepHeard<'_>| {
            let ready = self.ready.get(&one.node).filter(|_| one.progress.is_some_and(tells));
            ready.is_some_and(|ready| one.at_ms >= ready + underway.rollout.watch.ms())
        };
        if there.iter().all(is_watched) { StepVerdict::Good } else { StepVerdict::Wait }
    }

    fn note(&mut self, one: &StepHeard<'_>, now_ms: u64) {
        let progress = one.progress.filter(|progress| progress.serial == self.serial);
        match progress.is_some() || one.has_all {
            true => _ = self.without.remove(&one.node),
            false => _ = self.without.entry(one.node).or_insert(now_ms),
        }
        match progress.map(|progress| progress.stage) {
            Some(Stage::Ready | Stage::Elsewhere) => {
                self.ready.entry(one.node).or_insert(now_ms);
                self.failing.remove(&one.node);
            }
            Some(Stage::Failed) => {
                self.failing.entry(one.node).or_insert(now_ms);
                self.ready.remove(&one.node);
            }
            // It tries again, perhaps after it failed.
            Some(Stage::Working) | None => _ = self.ready.remove(&one.node),
        }
    }

    /// A node of the step that cannot run the new form.
    fn unable(&self, there: &[&StepHeard<'_>], now_ms: u64) -> Option<String> {
        let long_ms = |since: Option<&u64>, most_ms: u64| {
            since.map(|since| now_ms.saturating_sub(*since)).filter(|passed_ms| *passed_ms >= most_ms)
        };
        there.iter().find_map(|one| {
            if let Some(ms) = long_ms(self.without.get(&one.node), UNTAKEN_MS_MAX) {
                return Some(format!("{} has not taken the record for {} s", one.name, ms / 1_000));
            }
            long_ms(self.failing.get(&one.node), FAILING_MS_MAX)?;
            let trouble = one.progress?.trouble.as_ref()?;
            Some(format!("{} cannot run it: {} {}", one.name, trouble.code, trouble.detail))
        })
    }
}

/// Whether more runs of the new form fail than of the one before, and how many.
fn worse(record: &Record, underway: &Underway, heard: &[StepHeard<'_>]) -> Option<String> {
    let (mut new, mut old) = (RunCounts::default(), RunCounts::default());
    let runs = |one: &StepHeard<'_>| one.progress.and_then(|progress| progress.runs);
    for (one, runs) in heard.iter().filter_map(|one| Some((one, runs(one)?))) {
        if underway.nodes.contains(&one.node) && runs.revision == record.revision {
            new = new.and(runs.now);
            old = old.and(runs.before);
        } else if runs.revision == underway.before.revision {
            old = old.and(runs.now);
        }
    }
    let is_worse = new.failed >= FAILED_MIN && new.least_share() > old.share() + MORE_MAX;
    is_worse.then(|| {
        let (RunCounts { ended, failed }, before) = (new, underway.before.revision);
        let compared = format!("of revision {before} {} of {}", old.failed, old.ended);
        format!("{failed} of {ended} runs failed, {compared}")
    })
}

impl RunCounts {
    fn and(self, more: Self) -> Self {
        let ended = self.ended.saturating_add(more.ended);
        Self { ended, failed: self.failed.saturating_add(more.failed).min(ended) }
    }

    /// The share of runs that failed; of none, 0.
    fn share(self) -> f64 {
        self.failed as f64 / self.ended.max(1) as f64
    }

    /// The least share of failures that may well have led to these counts: the lower end of Wilson's interval.
    fn least_share(self) -> f64 {
        if self.ended == 0 {
            return 0.0;
        }
        let (count, share, square) = (self.ended as f64, self.share(), SURE * SURE);
        let middle = share + square / (2.0 * count);
        let spread = SURE * (share * (1.0 - share) / count + square / (4.0 * count * count)).sqrt();
        (middle - spread) / (1.0 + square / count)
    }
}

/// The steps of a rollout, as `2 of 3`: the last one is that of all nodes.
pub fn step_of(step: usize, rollout: &Rollout) -> String {
    format!("{step} of {}", rollout.steps.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_failures_say_little_and_many_say_much() {
        let least = |failed, ended| (RunCounts { ended, failed }.least_share() * 100.0).round();
        assert_eq!(
            [least(0, 0), least(0, 50), least(3, 3), least(3, 100), least(30, 100)],
            [0.0, 0.0, 25.0, 1.0, 18.0]
        );
        let all = RunCounts { ended: u64::MAX, failed: u64::MAX };
        assert_eq!(all.and(all), all, "what a node says does not overflow");
    }
}
