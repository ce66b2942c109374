//! How busy this node is for one more call.
//!
//! A call waits for a core, or for its turn in its function. The first is the work of all calls that are here, by what
//! calls of this node have used of a core until now, spread over the cores. The second is how many wait in the
//! function's own line.

use crate::Node;
use crate::functions::Live;
use choice::{Report, Truth};
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How long a mean is used before it is computed again: that looks at all functions.
const MEAN_AGE_MAX: Duration = Duration::from_secs(1);
/// What a call is taken to need of a core before any has ended, and at least.
const CPU_SECONDS_MIN: f64 = 1e-4;

/// Remembers what calls need on the average.
#[derive(Debug)]
pub struct Means {
    cores: u32,
    mean: Mutex<Option<(Instant, f64)>>,
}

impl Default for Means {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        Self { cores, mean: Mutex::new(None) }
    }
}

impl Means {
    /// How busy the node is for a call of any function.
    pub fn report(&self, node: &Node, now: Instant) -> Report {
        Report { truth: Truth { backlog: self.of_node(node, now) }, places: self.cores, speed: 1.0 }
    }

    /// How busy it is for a call of this one.
    pub fn truth(&self, node: &Node, live: &Live, now: Instant) -> Truth {
        Truth { backlog: self.of_node(node, now).max(of_line(live)) }
    }

    fn of_node(&self, node: &Node, now: Instant) -> f64 {
        let counts = node.functions.units.counts();
        backlog(counts.running + counts.waiting, self.mean(node, now), self.cores)
    }

    fn mean(&self, node: &Node, now: Instant) -> f64 {
        let mut mean = self.mean.lock();
        if let Some((at, known)) = *mean
            && now.saturating_duration_since(at) < MEAN_AGE_MAX
        {
            return known;
        }
        let table = node.functions.table();
        let (mut calls, mut cpu) = (0, Duration::ZERO);
        for counters in table.entries().map(|entry| &entry.live.identity.counters) {
            calls += counters.calls();
            cpu += counters.cpu();
        }
        let new = (cpu.as_secs_f64() / calls.max(1) as f64).max(CPU_SECONDS_MIN);
        *mean = Some((now, new));
        new
    }
}

/// Seconds until one more call begins, where each core takes one after the other; below zero, the seconds of work that
/// find a free core.
fn backlog(calls: u32, cpu_seconds: f64, cores: u32) -> f64 {
    let rounds = f64::from(calls) / f64::from(cores.max(1));
    (rounds - 1.0) * cpu_seconds
}

/// Seconds until a call has its turn in the function's own line.
fn of_line(live: &Live) -> f64 {
    let (counts, limits) = (live.identity.admission.counts(), live.identity.admission.limits());
    if counts.running < limits.running_max {
        return f64::NEG_INFINITY;
    }
    let runs = live.identity.counters.run.snapshot();
    let run = runs.sum.as_secs_f64() / runs.count.max(1) as f64;
    f64::from(counts.waiting + 1) / f64::from(limits.running_max.max(1)) * run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_waits_for_those_before_it_and_a_free_core_is_room() {
        let of = |calls| (backlog(calls, 0.010, 2) * 1e3).round();
        assert_eq!([0, 1, 2, 3, 4, 8].map(of), [-10.0, -5.0, 0.0, 5.0, 10.0, 30.0]);
    }
}
