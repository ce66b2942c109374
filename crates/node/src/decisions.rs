//! What devices report about their decisions where to run a call: the last of them, in memory.

use api_types::{DecisionInfo, DecisionReport, DecisionsInfo, OffloadDecision};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::VecDeque;

/// Decisions that are kept; the oldest are forgotten.
const DECISIONS_MAX: usize = 1_000;

/// Decisions of one report.
const REPORTED_MAX: usize = 100;

/// Bytes of each name and text in a report.
const TEXT_BYTES_MAX: usize = 64;

/// The longest that a call is taken to last, and to have ended before its report: a day.
const DAY_MS: u64 = 86_400_000;

#[derive(Default)]
pub struct Decisions(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    newest: VecDeque<DecisionInfo>,
    told: u64,
    left_out: u64,
}

impl Decisions {
    /// Keeps what a device tells, with the name of its token.
    ///
    /// # Errors
    /// [`Code::ApiRequest`]: there is too much of it, or it is not what it should be; nothing was kept.
    pub fn take(&self, report: DecisionReport, token: &str, now_ms: u64) -> Result<(), Problem> {
        check(&report)?;
        let DecisionReport { device, decisions, left_out } = report;
        let mut kept = self.0.lock();
        kept.told += decisions.len() as u64;
        kept.left_out = kept.left_out.saturating_add(left_out);
        for decision in decisions {
            if kept.newest.len() == DECISIONS_MAX {
                kept.newest.pop_front();
            }
            let time_ms = now_ms.saturating_sub(decision.ago_ms);
            kept.newest.push_back(DecisionInfo { time_ms, device: device.clone(), token: token.to_owned(), decision });
        }
        Ok(())
    }

    /// All that are kept, the newest first.
    pub fn told(&self) -> DecisionsInfo {
        let kept = self.0.lock();
        DecisionsInfo {
            decisions: kept.newest.iter().rev().cloned().collect(),
            told: kept.told,
            left_out: kept.left_out,
        }
    }
}

fn check(report: &DecisionReport) -> Result<(), Problem> {
    let bad = |detail: String| Err(Problem::new(Code::ApiRequest, detail));
    let count = report.decisions.len();
    if count > REPORTED_MAX {
        return bad(format!("{count} decisions in one report, the most is {REPORTED_MAX}"));
    }
    if report.device.is_empty() {
        return bad("`device` is empty".into());
    }
    let texts = |one: &OffloadDecision| {
        let other = one.other.as_ref().map_or(0, String::len);
        [one.function.len(), one.place.len(), one.why.len(), other].into_iter().max().unwrap_or(0)
    };
    let longest = report.decisions.iter().map(texts).max().unwrap_or(0).max(report.device.len());
    if longest > TEXT_BYTES_MAX {
        return bad(format!("a name in the report has {longest} bytes, the most is {TEXT_BYTES_MAX}"));
    }
    let times = |one: &OffloadDecision| {
        [one.predicted_us, one.actual_us, one.other_us.unwrap_or(0)].iter().all(|us| us / 1_000 <= DAY_MS)
            && one.ago_ms <= DAY_MS
    };
    match report.decisions.iter().all(times) {
        true => Ok(()),
        false => bad("a time in the report is longer than a day".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(count: usize) -> DecisionReport {
        let one =
            OffloadDecision { function: "f".into(), place: "local".into(), ago_ms: 5, ..OffloadDecision::default() };
        DecisionReport { device: "pi".into(), decisions: vec![one; count], left_out: 2 }
    }

    #[test]
    fn the_last_are_kept_and_all_are_counted() {
        let decisions = Decisions::default();
        for now_ms in 0..16 {
            decisions.take(report(REPORTED_MAX), "of-pi", 1_000 + now_ms).unwrap();
        }
        let told = decisions.told();
        assert_eq!((told.decisions.len(), told.told, told.left_out), (DECISIONS_MAX, 1_600, 32));
        assert_eq!((told.decisions[0].time_ms, told.decisions[DECISIONS_MAX - 1].time_ms), (1_010, 1_001));
        assert_eq!(told.decisions[0].token, "of-pi");
    }

    #[test]
    fn what_is_too_much_is_refused_whole() {
        let decisions = Decisions::default();
        let long = |text: &mut String| *text = "x".repeat(TEXT_BYTES_MAX + 1);
        let mut named = report(2);
        long(&mut named.decisions[1].function);
        let mut slow = report(2);
        slow.decisions[1].actual_us = u64::MAX;
        let nameless = DecisionReport { device: String::new(), ..report(1) };
        for bad in [report(REPORTED_MAX + 1), named, slow, nameless] {
            assert_eq!(decisions.take(bad, "t", 0).unwrap_err().code, Code::ApiRequest);
        }
        assert_eq!(decisions.told().told, 0);
    }
}
