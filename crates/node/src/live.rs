//! What the dashboard shows of functions and queues, as small as it can be: it is read every second by all who look.

use super::events::Duty;
use super::functions::TableEntry;
use super::hour::Totals;
use super::metrics::{Histogram, rss_bytes};
use super::{Node, Table};
use api_types::{FunctionTimes, HandlingInfo, LiveFunction, LiveHandler, LiveNow, LiveQueue};
use problem::Problem;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// What of a function moves while it is deployed. It is read for all functions in each look: while it is the same, so
/// is what is shown of it, and nothing else is read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveNumbers {
    calls: u64,
    errors: u64,
    running: u32,
    waiting: u32,
}

impl TableEntry {
    /// Five numbers, from atomics and one short lock; nothing is copied.
    pub fn live_numbers(&self) -> LiveNumbers {
        let identity = &self.live.identity;
        let errors = identity.counters.failed_count();
        let calls = identity.counters.ok_count() + identity.counters.gone_count() + errors;
        let counts = identity.admission.counts();
        LiveNumbers { calls, errors, running: counts.running, waiting: counts.waiting }
    }

    /// The function as it does now. Its quantiles are the costly part.
    pub fn live_function(&self, numbers: LiveNumbers) -> LiveFunction<'_> {
        let live = &self.live;
        let (p50_us, p99_us) = middle_and_slow(&live.identity.counters.total);
        LiveFunction {
            function: live.name().as_str().into(),
            version: live.version,
            isolation: live.function.isolation.as_str().into(),
            calls: numbers.calls,
            errors: numbers.errors,
            running: numbers.running.into(),
            waiting: numbers.waiting.into(),
            queue: live.function.handles(live.name()).map(|queue| queue.as_str().into()),
            p50_us,
            p99_us,
        }
    }
}

impl Node {
    /// What of the node is another in each look.
    pub fn live_now(&self) -> LiveNow {
        LiveNow {
            uptime_seconds: self.started.elapsed().as_secs(),
            units_running: self.functions.units.counts().running as usize,
            rss_bytes: rss_bytes(),
        }
    }

    /// All queues as they are now, by name. One that cannot be read is left out, as the node's log says.
    pub fn live_queues(&self, table: &Table) -> Vec<LiveQueue> {
        let names = self.events.queues();
        let live = names.into_iter().filter_map(|name| {
            let counts = self.functions.loader.state.queue(&name).ok()?.counts();
            let since_start = counts.since_start;
            Some(LiveQueue {
                paused: self.events.pauses.is_paused(&name),
                handler: self.events.duty(&name).map(|duty| self.live_handler(table, &name, &duty)),
                ready: counts.ready,
                delayed: counts.delayed,
                leased: counts.leased,
                damaged: counts.damaged,
                dead: counts.dead,
                bytes: counts.bytes,
                oldest_ms: counts.oldest_ms,
                pushed: since_start.pushed,
                acked: since_start.acked,
                retried: since_start.retried,
                died: since_start.died,
                refused: since_start.refused,
                name,
            })
        });
        live.collect()
    }

    fn live_handler(&self, table: &Table, queue: &str, duty: &Duty) -> LiveHandler {
        let shell = self.events.shell(queue);
        let (kind, name, ended) = match duty {
            Duty::Handle(handler) => (handler.kind(), handler.name().as_str(), table.parts().ended.get(handler.name())),
            Duty::Send(_, home) => ("node", home.as_str(), None),
        };
        let ended = ended.map(|ended| ended.reason.clone());
        let workers_max = shell.as_ref().filter(|_| ended.is_none()).map_or(0, |shell| shell.consumer().workers_max());
        LiveHandler {
            kind: kind.to_owned(),
            name: name.to_owned(),
            workers: shell.map_or(0, |shell| shell.numbers.workers.load(Relaxed)),
            workers_max,
            ended,
        }
    }

    /// Looks whether it is time for a point of the last hour. To be called every few seconds.
    pub fn look_at_hour(&self, now: Instant) {
        self.hour.look(now, || self.totals());
    }

    fn totals(&self) -> Totals {
        let table = self.functions.table();
        let units = self.functions.units.counts().running.into();
        let mut totals = Totals { units, memory_bytes: rss_bytes(), ..Totals::default() };
        for counters in table.entries().map(|entry| &entry.live.identity.counters) {
            totals.calls += counters.calls();
            totals.errors += counters.failed_count();
        }
        let queues = self.events.queues();
        for counts in queues.iter().filter_map(|name| Some(self.functions.loader.state.queue(name).ok()?.counts())) {
            totals.acked += counts.since_start.acked;
            totals.waiting += counts.ready + counts.delayed;
            totals.dead += counts.dead;
        }
        totals
    }

    /// What became of an event and of those that came of it: see [`super::events::Past::follow`].
    pub fn follow(&self, id: &str) -> Vec<HandlingInfo> {
        let table = self.functions.table();
        self.events.past.follow(id, |function| {
            let live = table.entry(function.as_str()).map(|entry| &entry.live);
            live.map(|live| live.function.grants.push.clone()).unwrap_or_default()
        })
    }

    /// One function's numbers, with the spread of its times.
    ///
    /// # Errors
    /// `FunctionUnknown`.
    pub fn function_times(&self, name: &str) -> Result<FunctionTimes, Problem> {
        let entry = self.functions.get(name)?;
        let histogram = entry.live.identity.counters.total.snapshot().filled().collect();
        Ok(FunctionTimes { stats: self.stats_of(&entry), histogram })
    }
}

/// The median and the 99th of 100, in whole microseconds.
fn middle_and_slow(times: &Histogram) -> (u64, u64) {
    let snapshot = times.snapshot();
    let [p50, p99] = [0.5, 0.99].map(|quantile| snapshot.quantile_us(quantile).round() as u64);
    (p50, p99)
}
