//! Counts replies and errors, and keeps latencies as histograms.

use crate::http1;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Latencies above this count as this.
const LATENCY_MAX: Duration = Duration::from_secs(60);

/// What is known so far.
pub struct Tally {
    latency: Histogram<u64>,
    stages: Vec<(String, Histogram<u64>)>,
    errors: BTreeMap<&'static str, u64>,
    /// Replies before measuring began.
    warmup_replies: u64,
    /// Replies after measuring ended: their latencies count, and no rate has them.
    late_replies: u64,
}

impl Tally {
    pub fn new(stages: &[String]) -> Self {
        let stages = stages.iter().map(|name| (name.clone(), histogram())).collect();
        Self { latency: histogram(), stages, errors: BTreeMap::new(), warmup_replies: 0, late_replies: 0 }
    }

    pub fn warmup_reply(&mut self) {
        self.warmup_replies += 1;
    }

    /// A good reply that took `took`.
    pub fn reply(&mut self, took: Duration, server_timing: Option<&str>) {
        self.latency.saturating_record(nanoseconds(took));
        for (name, stage) in &mut self.stages {
            if let Some(duration) = server_timing.and_then(|header| http1::stage_duration(header, name)) {
                stage.saturating_record(nanoseconds(duration));
            }
        }
    }

    /// A good reply to a request that was in flight at the end.
    pub fn late_reply(&mut self, took: Duration, server_timing: Option<&str>) {
        self.reply(took, server_timing);
        self.late_replies += 1;
    }

    pub fn error(&mut self, kind: &'static str) {
        *self.errors.entry(kind).or_insert(0) += 1;
    }

    /// Adds what another thread counted.
    pub fn add(&mut self, other: &Self) -> Result<(), hdrhistogram::AdditionError> {
        self.latency.add(&other.latency)?;
        for ((_, mine), (_, theirs)) in self.stages.iter_mut().zip(&other.stages) {
            mine.add(theirs)?;
        }
        for (kind, count) in &other.errors {
            *self.errors.entry(kind).or_insert(0) += count;
        }
        self.warmup_replies += other.warmup_replies;
        self.late_replies += other.late_replies;
        Ok(())
    }

    pub fn outcome(&self, measured: Duration) -> Outcome {
        Outcome {
            replies: self.latency.len(),
            replies_with_warmup: self.latency.len() + self.warmup_replies,
            replies_per_s: (self.latency.len() - self.late_replies) as f64 / measured.as_secs_f64().max(1e-9),
            latency_us: Latency::of(&self.latency),
            stages_us: self.stages.iter().map(|(name, stage)| (name.clone(), Latency::of(stage))).collect(),
            errors: self.errors.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect(),
        }
    }
}

/// Of nanoseconds, up to a minute.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, nanoseconds(LATENCY_MAX), 3).expect("the bounds are constants and right")
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// What a load came to. An errored request is in no other number.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub replies: u64,
    pub replies_with_warmup: u64,
    pub replies_per_s: f64,
    pub latency_us: Latency,
    /// By the name of the stage in the replies' Server-Timing.
    pub stages_us: BTreeMap<String, Latency>,
    pub errors: BTreeMap<String, u64>,
}

impl Outcome {
    pub fn errors_total(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// Percentiles in microseconds; all 0 when nothing was measured.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Latency {
    pub count: u64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Latency {
    /// Nothing was measured.
    pub const NONE: Self = Self { count: 0, p50: 0.0, p90: 0.0, p99: 0.0, p999: 0.0, max: 0.0 };

    /// Of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            count: histogram.len(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1e3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up_and_warm_up_is_kept_apart() {
        let stages = ["start".to_owned()];
        let (mut one, mut two) = (Tally::new(&stages), Tally::new(&stages));
        one.warmup_reply();
        for ms in 1..=50 {
            one.reply(Duration::from_millis(ms), Some("start;dur=0.010"));
            two.reply(Duration::from_millis(50 + ms), None);
        }
        two.error("status");
        two.error("status");
        one.add(&two).unwrap();
        let outcome = one.outcome(Duration::from_secs(2));
        assert_eq!((outcome.replies, outcome.replies_with_warmup, outcome.errors_total()), (100, 101, 2));
        assert_eq!(outcome.replies_per_s, 50.0);
        assert!((outcome.latency_us.p50 / 50_000.0 - 1.0).abs() < 0.01, "{:?}", outcome.latency_us);
        assert!((outcome.latency_us.p99 / 99_000.0 - 1.0).abs() < 0.01, "{:?}", outcome.latency_us);
        assert_eq!(outcome.stages_us["start"].count, 50);
        assert!((outcome.stages_us["start"].p50 - 10.0).abs() < 0.1);
    }

    #[test]
    fn nothing_measured_is_no_error() {
        assert_eq!(Tally::new(&[]).outcome(Duration::ZERO).latency_us.p99, 0.0);
    }
}
