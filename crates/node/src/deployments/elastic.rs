//! Copies that follow load: each node counts what its copies do, and an anchor makes more of them, or fewer.
//!
//! ```text
//!   calls that run or wait here, four times a second ─▶ sums ═══ talk ═══▶ anchor ─▶ Elastic ─▶ a record
//! ```

use super::{AWAY_AFTER, Deployments};
use fleet_deploy::decide::decide_scaled;
use fleet_deploy::elastic::{CopyHeard, Move};
use fleet_deploy::talk::{FunctionLoad, LOADS_MAX, NodeTold};
use fleet_deploy::{Record, Scaled};
use fleet_trust::NodeId;
use manifest::{Name, Place};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// How often calls are counted that run or wait.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// Of each function whose number of copies follows load: the milliseconds that its calls have run or waited.
pub type Busy = BTreeMap<Name, u64>;

impl Deployments {
    /// Counts what functions do whose number of copies follows load, until it is dropped.
    pub(super) async fn count_busy(self: Arc<Self>) {
        let mut changes = self.changes.subscribe();
        let mut rounds = interval(SAMPLE_EVERY);
        // Time that was missed was not counted: it says nothing.
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        loop {
            let names = self.elastic_here();
            self.busy.lock().retain(|name, _| names.contains(name));
            if names.is_empty() {
                if changes.changed().await.is_err() {
                    return;
                }
                last = Instant::now();
                continue;
            }
            while !changes.has_changed().unwrap_or(true) {
                rounds.tick().await;
                let now = Instant::now();
                self.sample(&names, now.saturating_duration_since(last));
                last = now;
            }
            changes.mark_unchanged();
            if self.node.strong_count() == 0 {
                return;
            }
        }
    }

    fn sample(&self, names: &[Name], passed: Duration) {
        let Ok(node) = self.node() else { return };
        let table = node.functions.table();
        let mut busy = self.busy.lock();
        for name in names {
            let Some(entry) = table.entry(name.as_str()) else { continue };
            let counts = entry.live.identity.admission.counts();
            let calls = u64::from(counts.running) + u64::from(counts.waiting);
            let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
            let sum = busy.entry(name.clone()).or_default();
            *sum = sum.saturating_add(calls.saturating_mul(passed_ms));
        }
    }

    /// The functions that are to be here and whose number of copies follows load.
    fn elastic_here(&self) -> Vec<Name> {
        let me = self.trust.node();
        let mut names = Vec::new();
        for record in self.newest() {
            let held = record.record().held(&me);
            let Some(manifest) = held.manifest else { continue };
            let here =
                held.places.iter().filter(|placed| placed.nodes.as_ref().is_some_and(|nodes| nodes.contains(&me)));
            let functions = here.flat_map(|placed| &placed.group.functions);
            names.extend(functions.filter(|name| elastic(manifest.function.get(*name)).is_some()).cloned());
        }
        names.sort_unstable();
        names.truncate(LOADS_MAX);
        names
    }

    /// What they have done until now, for the anchors.
    pub(super) fn loads(&self) -> BTreeMap<Name, FunctionLoad> {
        let Ok(node) = self.node() else { return BTreeMap::new() };
        let table = node.functions.table();
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        let at_ms = self.ms(Instant::now());
        let busy = self.busy.lock();
        let loads = busy.iter().filter_map(|(name, busy_ms)| {
            let identity = &table.entry(name.as_str())?.live.identity;
            let (counts, limits) = (identity.admission.counts(), identity.admission.limits());
            let refused = counts.refused_line_full + counts.refused_wait + counts.refused_node_full;
            let cpu_ms = u64::try_from(identity.counters.cpu().as_millis()).unwrap_or(u64::MAX);
            let places = limits.running_max;
            Some((name.clone(), FunctionLoad { at_ms, busy_ms: *busy_ms, cpu_ms, refused, places, cores }))
        });
        loads.collect()
    }

    /// Makes more copies of functions that have too much to do, and fewer of those that have little.
    pub(super) async fn follow_load(self: &Arc<Self>) {
        let Ok(desk) = self.desk() else { return };
        let _deciding = desk.deciding.lock().await;
        if !self.watches() {
            // For how long copies were busy or quiet is not known any more.
            desk.elastic.lock().clear();
            return;
        }
        let records: Vec<_> = self.newest().into_iter().filter(|record| has_elastic(record.record())).collect();
        let named = |function: &Name| {
            let mut manifests = records.iter().filter_map(|record| record.record().manifest.as_ref());
            manifests.any(|manifest| manifest.function.contains_key(function))
        };
        desk.elastic.lock().retain(|function, _| named(function));
        if records.is_empty() {
            return;
        }
        let told = self.all_told();
        for record in &records {
            self.follow_load_of(record.record(), &told).await;
        }
    }

    async fn follow_load_of(self: &Arc<Self>, record: &Record, told: &BTreeMap<NodeId, (NodeTold, Instant)>) {
        let functions = record.manifest.iter().flat_map(|manifest| &manifest.function);
        let functions = functions.filter_map(|(name, one)| Some((name, elastic(Some(one))?)));
        let functions: Vec<(&Name, &Place)> = functions.filter(|_| record.underway.is_none()).collect();
        for (function, place) in functions {
            let Some(change) = self.moved(record, function, place, told) else { continue };
            let Move { copies, leaves, why } = &change;
            let scaled = Scaled { function, copies: *copies, leaves: *leaves, why };
            if let Some(next) = self.decided(|known| decide_scaled(record, &scaled, known)) {
                self.take_scaled(record, next, function, why).await;
                // The record that holds now is looked at the next time.
                return;
            }
        }
    }

    /// What is to become of one function, by what its copies have said.
    fn moved(
        &self,
        record: &Record,
        function: &Name,
        place: &Place,
        told: &BTreeMap<NodeId, (NodeTold, Instant)>,
    ) -> Option<Move> {
        let placed = record.places.iter().find(|placed| placed.group.functions.contains(function))?;
        let heard = placed.nodes.iter().flatten().map(|node| {
            let said = told.get(node);
            let progress = said.and_then(|(told, _)| told.progress.get(&record.name));
            CopyHeard {
                node: *node,
                is_there: said.is_some_and(|(_, at)| at.elapsed() < AWAY_AFTER),
                stage: progress.filter(|progress| progress.serial == record.serial).map(|progress| progress.stage),
                load: said.and_then(|(told, _)| told.loads.get(function)),
            }
        });
        let heard: Vec<CopyHeard<'_>> = heard.collect();
        let now_ms = self.ms(Instant::now());
        let mut all = self.desk().ok()?.elastic.lock();
        let watch = all.entry(function.clone()).or_default();
        watch.look(&place.copies?, place.quiet().duration(), &heard, now_ms)
    }

    async fn take_scaled(self: &Arc<Self>, before: &Record, next: Record, function: &Name, why: &str) {
        let name = next.name.clone();
        let placed = next.places.iter().find(|placed| placed.group.functions.contains(function));
        let copies = placed.and_then(|placed| placed.nodes.as_ref()).map_or(0, |nodes| nodes.len());
        match self.settle(next.clone()).await {
            Ok(_) => {
                tracing::info!(deployment = %name, %function, copies, "the copies follow load: {why}");
                self.audit_copies(before, &next, &format!("because {why}")).await;
            }
            Err(problem) => tracing::warn!(deployment = %name, "{} {}", problem.code, problem.detail),
        }
    }
}

fn has_elastic(record: &Record) -> bool {
    let functions = record.manifest.iter().flat_map(|manifest| manifest.function.values());
    functions.into_iter().any(|function| elastic(Some(function)).is_some())
}

/// Where a function is, if the number of its copies follows load.
fn elastic(function: Option<&manifest::Function>) -> Option<&Place> {
    let place = function?.place.as_ref()?;
    place.copies.filter(|copies| copies.follow_load()).map(|_| place)
}
