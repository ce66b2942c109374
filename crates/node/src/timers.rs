//! The timer gate's shell: asks each timer what is due, pushes it, and sleeps until the next one.
//!
//! The events of a timer and its progress are one transaction: a crash loses no tick and doubles none. A timer whose
//! queue is full stays where it is and catches up later, as after a pause of the node. While no function has a timer,
//! this costs one sleeping task.

use super::clock::now_ms;
use super::events::{Events, Sources, Timers};
use super::records;
use gate_timer::{Due, Progress, Tick, Timer};
use problem::{Code, Problem};
use state::{Batch, Push, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Table of the node's records: how far each timer has come, by `FUNCTION/TIMER`.
const PROGRESS: &str = "timers";

/// A clock that is set while nothing is due is noticed after this long.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How long a timer rests whose events could not be pushed.
const REST: Duration = Duration::from_secs(1);

/// A timer of a function that is deployed.
struct Running {
    timer: Timer,
    function: String,
    queue: Arc<str>,
    progress: Progress,
    /// When to ask it; none where the calendar ends.
    ask_ms: Option<u64>,
    /// Whether its last events could not be pushed, so that it is said once.
    is_held: bool,
}

/// Runs the timers of all functions, for as long as the node runs.
pub async fn run(events: Arc<Events>) {
    let mut sources = events.sources();
    loop {
        let wanted = sources.borrow_and_update().clone();
        let mut timers = match load(&events, &wanted, now_ms()).await {
            Ok(timers) => timers,
            Err(problem) => {
                tracing::error!("timers rest: {} {}", problem.code, problem.detail);
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        loop {
            let rest = fire_due(&events, &mut timers).await;
            tokio::select! {
                () = tokio::time::sleep(rest.unwrap_or_default()), if rest.is_some() => {}
                changed = sources.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
            }
        }
    }
}

/// The timers that are wanted, as far as they have come. New ones begin now, those that are gone are forgotten; both is
/// durable when this returns. Those of which nobody can say whether they belong here are not forgotten: when the node
/// ends it leaves its fleet first, and would lose how far its own had come.
async fn load(events: &Events, sources: &Sources, now_ms: u64) -> Result<Vec<Running>, Problem> {
    let timers = by_key(&sources.timers);
    let unknown: BTreeSet<String> = by_key(&sources.unknown).into_keys().collect();
    let records = events.state().records(PROGRESS);
    let mut known = BTreeMap::new();
    records::each(&records, |key, record| {
        known.insert(key.to_owned(), Progress::from_record(record));
        Ok(())
    })?;
    let mut batch = Batch::default();
    for gone in known.keys().filter(|key| !timers.contains_key(*key) && !unknown.contains(*key)) {
        batch.delete(PROGRESS, gone)?;
    }
    let mut running = Vec::with_capacity(timers.len());
    for (key, (function, queue, timer)) in timers {
        let progress = known.get(&key).copied().flatten();
        if progress.is_none() {
            batch.put(PROGRESS, &key, Progress::begun(now_ms).to_record())?;
        }
        running.push(Running {
            timer,
            function: function.to_owned(),
            queue: queue.clone(),
            progress: progress.unwrap_or(Progress::begun(now_ms)),
            ask_ms: Some(now_ms),
            is_held: false,
        });
    }
    events.state().write_records(batch).await?;
    Ok(running)
}

/// Each with its function and queue.
fn by_key(timers: &Timers) -> BTreeMap<String, (&str, &Arc<str>, Timer)> {
    let every =
        timers.every.iter().map(|source| (source.function.as_str(), &source.queue, Ok(Timer::every(&source.trigger))));
    let cron = timers.cron.iter().map(|source| (source.function.as_str(), &source.queue, Timer::cron(&source.trigger)));
    let mut timers = BTreeMap::new();
    for (function, queue, timer) in every.chain(cron) {
        match timer {
            Ok(timer) => _ = timers.insert(key(function, &timer), (function, queue, timer)),
            // It was read when it was deployed: only the machine's list of zones can have changed.
            Err(problem) => tracing::error!(function, "a timer is left out: {}", problem.detail),
        }
    }
    timers
}

fn key(function: &str, timer: &Timer) -> String {
    format!("{function}/{}", timer.name())
}

/// Fires what is due, durable when this returns; says how long there is nothing to do. None: there are no timers.
async fn fire_due(events: &Events, timers: &mut [Running]) -> Option<Duration> {
    let mut last: Option<Ticket> = None;
    for timer in &mut *timers {
        let now_ms = now_ms();
        // A clock that was put back makes an early time of a late one: it is asked once more than needed.
        let is_due = timer.ask_ms.is_some_and(|ask_ms| ask_ms <= now_ms) || now_ms < timer.progress.last_ms;
        if is_due {
            last = timer.fire(events, now_ms).or(last);
        }
    }
    if let Some(ticket) = last
        && let Err(problem) = events.state().durable(ticket).await
    {
        tracing::error!("ticks may be lost with the power: {} {}", problem.code, problem.detail);
    }
    let now_ms = now_ms();
    let next = timers.iter().filter_map(|timer| timer.ask_ms).min();
    let until_next = next.map(|next_ms| Duration::from_millis(next_ms.saturating_sub(now_ms)));
    (!timers.is_empty()).then(|| until_next.unwrap_or(LOOK_EVERY).min(LOOK_EVERY))
}

impl Running {
    /// Pushes what is due and remembers it, in one transaction. Where the queue has room for some ticks only, the
    /// oldest are pushed, and the others come next.
    fn fire(&mut self, events: &Events, now_ms: u64) -> Option<Ticket> {
        let due = self.timer.due(self.progress, now_ms);
        if due.ticks.is_empty() && due.progress.last_ms <= self.progress.last_ms {
            (self.progress, self.ask_ms) = (due.progress, due.next_ms);
            return None;
        }
        let mut count = due.ticks.len();
        loop {
            match self.push(events, &due, count) {
                Ok(ticket) => {
                    self.say_missed(&due.ticks[..count]);
                    self.progress = due.progress_after(count);
                    self.ask_ms = if count == due.ticks.len() { due.next_ms } else { Some(now_ms) };
                    self.is_held = false;
                    return Some(ticket);
                }
                Err(problem) if problem.code == Code::QueueFull && count > 1 => count /= 2,
                Err(problem) => {
                    if !std::mem::replace(&mut self.is_held, true) {
                        let (function, timer) = (&self.function, self.timer.name());
                        tracing::warn!(function, timer, "ticks are held back: {} {}", problem.code, problem.detail);
                    }
                    self.ask_ms = Some(now_ms.saturating_add(REST.as_millis() as u64));
                    return None;
                }
            }
        }
    }

    fn push(&self, events: &Events, due: &Due, count: usize) -> Result<Ticket, Problem> {
        let push = |tick: &Tick| {
            let event = tick.event(&self.function, &self.timer);
            Push { event, delay: Duration::ZERO, ttl: None }
        };
        let mut pushes: Vec<_> = due.ticks[..count].iter().map(push).collect();
        let (key, record) = (key(&self.function, &self.timer), due.progress_after(count).to_record());
        let pushed = events.commit(|into| {
            for push in &mut pushes {
                into.push(&self.queue, push, None)?;
            }
            into.transaction().record(PROGRESS, &key, Some(record.clone())).map_err(Problem::from)
        });
        pushed.map(|((), ticket)| ticket)
    }

    fn say_missed(&self, ticks: &[Tick]) {
        let missed: usize = ticks.iter().map(|tick| tick.missed).sum();
        if missed > 0 {
            tracing::info!(
                function = self.function,
                timer = self.timer.name(),
                missed,
                "times passed without an event"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::sources_of;
    use crate::link::tests::town::TownNode;

    const KEY: &str = "tick/every 10s";

    /// A node that ended had no mail for its last moments, and forgot how far the timers at their home had come.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_timer_whose_home_nobody_can_tell_rests_and_is_not_forgotten() {
        let town = TownNode::start("one").await;
        town.deploy("[function.tick]\nimage = \"tick\"\nevery = \"10s\"\n[queue.tick]\nhome = \"one\"\n").await;
        let events = &town.node.events;
        let kept = || events.state().records(PROGRESS).get(KEY).unwrap();
        let progress = Progress::begun(7_000).to_record();
        let mut batch = Batch::default();
        batch.put(PROGRESS, KEY, progress.clone()).unwrap();
        events.state().write_records(batch).await.unwrap();

        let mut sources = sources_of(&events.table(), None);
        assert!(load(events, &sources, 90_000).await.unwrap().is_empty());
        assert_eq!(kept().as_ref(), Some(&progress));
        // The node has a part in its fleet again, and is the home.
        sources.timers = std::mem::take(&mut sources.unknown);
        let loaded = load(events, &sources, 90_000).await.unwrap();
        assert_eq!(loaded[0].progress.to_record(), progress);
        // Another one is.
        assert!(load(events, &Sources::default(), 90_000).await.unwrap().is_empty());
        assert_eq!(kept(), None);
    }
}
