//! An anchor's watch over new forms that go to some nodes first: it has them go on, or back.

use super::{AWAY_AFTER, Deployments};
use fleet_deploy::rollout::{StepHeard, StepVerdict, Watch, back, on, step_of};
use fleet_deploy::{Record, SignedRecord};
use std::sync::Arc;
use std::time::Instant;

impl Deployments {
    /// Has each form that is on its way go on, or back, if it is time.
    pub(super) async fn watch_steps(self: &Arc<Self>) {
        let Ok(desk) = self.desk() else { return };
        let _deciding = desk.deciding.lock().await;
        if !self.watches() {
            // What was seen until then says nothing of the time in which nobody looked.
            desk.watches.lock().clear();
            return;
        }
        let underway = || self.newest().into_iter().filter(|record| record.record().underway.is_some());
        let records: Vec<Arc<SignedRecord>> = underway().collect();
        desk.watches.lock().retain(|name, _| records.iter().any(|record| record.record().name == *name));
        for record in records {
            let record = record.record();
            let next = match self.verdict(record) {
                StepVerdict::Wait => continue,
                StepVerdict::Good => Some(self.decided(|known| on(record, known))),
                StepVerdict::Bad(why) => self.decided(|known| back(record, why, known)),
            };
            let Some(next) = next else { continue };
            say(&next);
            match self.settle(next.clone()).await {
                Ok(_) => self.audit("fleet rollout", &next, None).await,
                Err(problem) => tracing::warn!(deployment = %next.name, "{} {}", problem.code, problem.detail),
            }
        }
    }

    /// What the nodes have said by now, looked at.
    fn verdict(&self, record: &Record) -> StepVerdict {
        let candidates = self.candidates();
        let told = self.all_told();
        let digest = self.records.lock().digest();
        let heard = candidates.iter().map(|candidate| {
            let said = told.get(&candidate.node);
            // A node that is heard of but tells nothing is not there: what it does cannot be watched.
            let is_there = said.is_some_and(|(_, at)| at.elapsed() < AWAY_AFTER);
            let at_ms = said.map_or(0, |(_, at)| self.ms(*at));
            let has_all = said.is_some_and(|(told, _)| told.digest == digest);
            let progress = said.and_then(|(told, _)| told.progress.get(&record.name));
            StepHeard { node: candidate.node, name: &candidate.name, is_there, has_all, progress, at_ms }
        });
        let heard: Vec<StepHeard<'_>> = heard.collect();
        let now_ms = self.ms(Instant::now());
        let Ok(desk) = self.desk() else { return StepVerdict::Wait };
        let mut watches = desk.watches.lock();
        let watch = watches.entry(record.name.clone()).or_insert_with(|| Watch::new(record, now_ms));
        watch.look(record, &heard, now_ms)
    }

    pub(super) fn ms(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }
}

fn say(next: &Record) {
    let Record { name, revision, .. } = next;
    match (&next.underway, &next.returned) {
        (Some(underway), _) => {
            let step = step_of(underway.step, &underway.rollout);
            let nodes = underway.nodes.len();
            tracing::info!(deployment = %name, revision, "step {step}: {nodes} nodes have the new form");
        }
        (None, Some(returned)) => {
            let failed = returned.revision;
            tracing::warn!(deployment = %name, revision, "back from revision {failed}: {}", returned.why);
        }
        (None, None) => tracing::info!(deployment = %name, revision, "all nodes have the new form"),
    }
}
