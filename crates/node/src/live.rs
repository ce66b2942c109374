//! What the dashboard shows of functions and queues, as small as it can be: it is read every second by all who look.

use super::events::Duty;
use super::hour::Totals;
use super::metrics::{Histogram, usage};
use super::{Node, Table};
use api_types::{FunctionTimes, HandlingInfo, LiveFunction, LiveHandler, LiveQueue};
use problem::Problem;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

impl Node {
    /// All functions as they do now, by name. `before` gives what was said of one the last time: where nothing was
    /// called since, its quantiles are taken from there, because finding them is the dear part.
    pub fn live_functions<'a>(
        &self,
        table: &Table,
        before: impl Fn(&str) -> Option<&'a LiveFunction>,
    ) -> Vec<LiveFunction> {
        let live = table.entries().map(|entry| {
            let (live, counters) = (&entry.live, &entry.live.identity.counters);
            let counts = live.identity.admission.counts();
            let (name, calls) = (live.name().as_str(), counters.calls());
            let (p50_us, p99_us) = match before(name).filter(|before| before.calls == calls) {
                Some(before) => (before.p50_us, before.p99_us),
                None => middle_and_slow(&counters.total),
            };
            LiveFunction {
                function: name.to_owned(),
                version: live.version,
                isolation: live.function.isolation.as_str().to_owned(),
                calls,
                errors: counters.failed_count(),
                running: counts.running.into(),
                waiting: counts.waiting.into(),
                queue: live.function.handles(live.name()).map(ToString::to_string),
                p50_us,
                p99_us,
            }
        });
        live.collect()
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
        let mut totals = Totals { units, memory_bytes: usage().rss_bytes, ..Totals::default() };
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
