//! What became of the runs of each deployment's functions here, since the form that runs took the place of another.

use super::Deployments;
use crate::metrics::Counters;
use fleet_deploy::talk::{RunCounts, Runs};
use manifest::Name;
use problem::Code;

/// What was counted of one deployment when its form came.
#[derive(Debug, Clone, Copy)]
pub struct Tally {
    revision: u64,
    /// All counts until then.
    began: RunCounts,
    /// Of the form before.
    before: RunCounts,
}

impl Deployments {
    /// This form of a deployment runs here from now on.
    pub(super) fn count_from(&self, name: &Name, revision: u64) {
        let counted = self.counted(name);
        let mut tallies = self.tallies.lock();
        let known = tallies.get(name).copied();
        if known.is_some_and(|known| known.revision == revision) {
            return;
        }
        let before = known.map_or_else(RunCounts::default, |known| since(counted, known.began));
        tallies.insert(name.clone(), Tally { revision, began: counted, before });
    }

    /// Nothing of it runs here any more.
    pub(super) fn count_no_more(&self, name: &Name) {
        self.tallies.lock().remove(name);
    }

    /// What became of the runs of a deployment. None: nothing of it is here.
    pub(super) fn runs(&self, name: &Name) -> Option<Runs> {
        let Tally { revision, began, before } = *self.tallies.lock().get(name)?;
        Some(Runs { revision, now: since(self.counted(name), began), before })
    }

    /// All that was counted of a deployment's functions since the node was started.
    fn counted(&self, name: &Name) -> RunCounts {
        let Ok(node) = self.node() else { return RunCounts::default() };
        let table = node.functions.table();
        let functions = self.shelf.owned(name).functions;
        let entries = functions.iter().filter_map(|function| table.entry(function.as_str()));
        let counts = entries.map(|entry| counts(&entry.live.identity.counters));
        counts.fold(RunCounts::default(), |sum, one| RunCounts {
            ended: sum.ended + one.ended,
            failed: sum.failed + one.failed,
        })
    }
}

fn counts(counters: &Counters) -> RunCounts {
    let faults: u64 = counters.failures().filter(|(code, _)| is_fault(*code)).map(|(_, count)| count).sum();
    let ended = counters.ok_count() + counters.gone_count() + faults;
    RunCounts { ended, failed: (faults + counters.error_replies()).min(ended) }
}

/// Whether a run that ended so failed by the function's own fault: a limit that it broke, or how it ended. What the
/// node had no room for, and what the caller sent, is no fault of the function.
fn is_fault(code: Code) -> bool {
    matches!(code as u16 / 1_000, 3 | 6) && matches!(code.status(), 500 | 502 | 504)
}

fn since(now: RunCounts, began: RunCounts) -> RunCounts {
    // A function that went took its counts along.
    RunCounts { ended: now.ended.saturating_sub(began.ended), failed: now.failed.saturating_sub(began.failed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_answers_for_what_it_does_and_for_nothing_else() {
        for code in [Code::UnitTrapped, Code::UnitFatal, Code::UnitExited, Code::TimeExceeded, Code::MemoryExceeded] {
            assert!(is_fault(code), "{code}");
        }
        for code in [Code::RateExceeded, Code::NodeFull, Code::BodyTooLarge, Code::UnitInvalid, Code::UnitRetry] {
            assert!(!is_fault(code), "{code}");
        }
    }
}
