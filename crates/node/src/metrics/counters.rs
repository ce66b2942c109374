//! What is counted for one function, for as long as the node runs and whatever its version. Atomics only: the data path
//! holds a pointer to them and looks nothing up.

use super::histogram::Histogram;
use api_types::{FunctionStats, Quantiles};
use problem::Code;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use unit::Stages;

pub struct Counters {
    /// Calls that ended well.
    ok: AtomicU64,
    /// Calls whose caller went away first.
    gone: AtomicU64,
    /// Calls that ended with a problem. Allocated by the first one: most functions never have any.
    failed: OnceLock<Box<ByCode>>,
    /// Replies whose status says that the server failed; they count as `ok` too.
    error_replies: AtomicU64,
    /// Handlings begun again because others had changed what they had read.
    reruns: AtomicU64,
    cpu_ns: AtomicU64,
    memory_bytes_max: AtomicU64,
    pub queue: Histogram,
    pub start: Histogram,
    pub run: Histogram,
    pub total: Histogram,
}

/// By the place of the code in [`Code::ALL`].
type ByCode = [AtomicU64; Code::ALL.len()];

/// Where the time of a call went.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    pub queue: Duration,
    pub start: Duration,
    pub run: Duration,
    /// What a unit says of its part of `run`.
    pub stages: Option<Stages>,
    pub total: Duration,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            ok: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            failed: OnceLock::new(),
            error_replies: AtomicU64::new(0),
            reruns: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            memory_bytes_max: AtomicU64::new(0),
            queue: Histogram::default(),
            start: Histogram::default(),
            run: Histogram::default(),
            total: Histogram::default(),
        }
    }
}

impl Counters {
    /// A call had a unit, and ended so.
    pub fn ended(&self, failed: Option<Code>, times: &Times, cpu: Duration, memory_bytes: u64) {
        match failed {
            None => _ = self.ok.fetch_add(1, Relaxed),
            Some(code) => self.refused(code),
        }
        self.cpu_ns.fetch_add(u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        if memory_bytes > self.memory_bytes_max.load(Relaxed) {
            self.memory_bytes_max.fetch_max(memory_bytes, Relaxed);
        }
        self.queue.record(times.queue);
        self.start.record(times.start);
        self.run.record(times.run);
        self.total.record(times.total);
    }

    /// A call ended with a problem before it had a unit.
    pub fn refused(&self, code: Code) {
        let failed = self.failed.get_or_init(|| Box::new([const { AtomicU64::new(0) }; Code::ALL.len()]));
        failed[place(code)].fetch_add(1, Relaxed);
    }

    /// A function replied with such a status.
    pub fn error_replied(&self) {
        self.error_replies.fetch_add(1, Relaxed);
    }

    pub fn error_replies(&self) -> u64 {
        self.error_replies.load(Relaxed)
    }

    pub fn gone(&self) {
        self.gone.fetch_add(1, Relaxed);
    }

    pub fn reruns(&self, count: u32) {
        if count > 0 {
            self.reruns.fetch_add(count.into(), Relaxed);
        }
    }

    pub fn rerun_count(&self) -> u64 {
        self.reruns.load(Relaxed)
    }

    pub fn ok_count(&self) -> u64 {
        self.ok.load(Relaxed)
    }

    pub fn gone_count(&self) -> u64 {
        self.gone.load(Relaxed)
    }

    pub fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns.load(Relaxed))
    }

    pub fn memory_bytes_max(&self) -> u64 {
        self.memory_bytes_max.load(Relaxed)
    }

    /// Codes calls ended with, and how often.
    pub fn failures(&self) -> impl Iterator<Item = (Code, u64)> + '_ {
        let failed = self.failed.get().into_iter().flat_map(|failed| failed.iter());
        let counts = Code::ALL.iter().zip(failed).map(|(code, count)| (*code, count.load(Relaxed)));
        counts.filter(|(_, count)| *count > 0)
    }

    pub fn failed_count(&self) -> u64 {
        self.failures().map(|(_, count)| count).sum()
    }

    pub fn calls(&self) -> u64 {
        self.ok_count() + self.gone_count() + self.failed_count()
    }

    pub fn stats(&self, function: &str, version: u32, running: u64, waiting: u64) -> FunctionStats {
        let errors: BTreeMap<String, u64> = self.failures().map(|(code, count)| (code.to_string(), count)).collect();
        FunctionStats {
            function: function.to_owned(),
            version,
            calls: self.calls(),
            running,
            waiting,
            errors,
            queue: None,
            total_us: quantiles(&self.total),
            queue_us: quantiles(&self.queue),
            start_us: quantiles(&self.start),
            run_us: quantiles(&self.run),
        }
    }
}

fn place(code: Code) -> usize {
    Code::ALL.iter().position(|other| *other == code).expect("every code is in the list of all")
}

fn quantiles(histogram: &Histogram) -> Quantiles {
    let snapshot = histogram.snapshot();
    let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|quantile| snapshot.quantile_us(quantile));
    Quantiles { p50, p90, p99, max: snapshot.max_us() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_how_they_ended() {
        let counters = Counters::default();
        let times = Times { total: Duration::from_micros(100), ..Times::default() };
        counters.ended(None, &times, Duration::from_micros(5), 65_536);
        counters.ended(Some(Code::UnitTrapped), &times, Duration::from_micros(5), 131_072);
        counters.refused(Code::RateExceeded);
        counters.gone();
        let stats = counters.stats("f", 3, 1, 2);
        assert_eq!((stats.calls, stats.running, stats.waiting), (4, 1, 2));
        assert_eq!(stats.errors, BTreeMap::from([("L3008".to_owned(), 1), ("L6001".to_owned(), 1)]));
        assert_eq!(stats.total_us.max, 100.0);
        assert_eq!((counters.cpu(), counters.memory_bytes_max()), (Duration::from_micros(10), 131_072));
    }

    #[test]
    fn a_function_that_is_never_called_costs_less_than_a_kilobyte() {
        assert!(size_of::<Counters>() <= 1_024, "{}", size_of::<Counters>());
    }
}
