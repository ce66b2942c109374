//! The one clock of all queues: ends what is over and makes ready what is due, when it is due.
//!
//! ```text
//!   every second ──▶ each queue does what is due ──▶ due before the next round? ──▶ Agenda ──▶ again then
//!   somebody delayed an event ─────────────────────────────────────────────┘
//! ```
//! No queue has a timer of its own.

use crate::clock::now_ms;
use crate::functions::blocking;
use parking_lot::Mutex;
use state::State;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How often every queue and bucket is looked at: a life or lease may be over this much later than it should be.
const ROUND: Duration = Duration::from_secs(1);

/// Queues that want to be looked at before the next round.
#[derive(Default)]
pub struct Agenda {
    due: Mutex<BTreeMap<Arc<str>, Instant>>,
    sooner: Notify,
}

impl Agenda {
    /// An event of the queue is due after this time.
    pub fn add(&self, queue: &Arc<str>, after: Duration) {
        // What is further away is seen by the round before.
        if after > 2 * ROUND {
            return;
        }
        let at = Instant::now() + after;
        let mut due = self.due.lock();
        let known = due.entry(queue.clone()).or_insert(at);
        *known = at.min(*known);
        drop(due);
        self.sooner.notify_one();
    }

    fn next(&self) -> Option<Instant> {
        self.due.lock().values().min().copied()
    }

    /// Those that are due, which are then no longer on the agenda.
    fn take(&self, now: Instant) -> Vec<Arc<str>> {
        let mut due = self.due.lock();
        let taken: Vec<_> = due.iter().filter(|(_, at)| **at <= now).map(|(queue, _)| queue.clone()).collect();
        taken.iter().for_each(|queue| _ = due.remove(queue));
        taken
    }
}

/// Runs until it is dropped.
pub async fn run(state: State, agenda: Arc<Agenda>) {
    let mut next_round = Instant::now();
    loop {
        let wake = agenda.next().map_or(next_round, |due| due.min(next_round));
        tokio::select! {
            () = sleep_until(wake) => {}
            () = agenda.sooner.notified() => continue,
        }
        let now = Instant::now();
        let is_round = now >= next_round;
        if is_round {
            next_round = now + ROUND;
        }
        let queues = agenda.take(now);
        let (state, agenda) = (state.clone(), agenda.clone());
        let done = blocking(move || {
            let queues = if is_round { state.queues().into_iter().map(Arc::from).collect() } else { queues };
            for queue in &queues {
                do_due(&state, queue, &agenda);
            }
            if is_round {
                sweep(&state);
            }
            Ok(())
        });
        if let Err(problem) = done.await {
            tracing::error!("the clock of the queues: {}", problem.detail);
        }
    }
}

fn do_due(state: &State, queue: &Arc<str>, agenda: &Agenda) {
    let now_ms = now_ms();
    match state.queue(queue).and_then(|queue| queue.do_due(now_ms)) {
        Ok(None) => {}
        Ok(Some(next_ms)) => agenda.add(queue, Duration::from_millis(next_ms.saturating_sub(now_ms))),
        Err(problem) => tracing::error!(%queue, "cannot be looked after: {} {}", problem.code, problem.detail),
    }
}

/// Removes keys whose time is over. What is left over goes in the next round.
fn sweep(state: &State) {
    if let Err(problem) = state.sweep() {
        tracing::warn!("keys that have expired stay for now: {} {}", problem.code, problem.detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agenda_keeps_the_earliest_time_of_each_queue() {
        let agenda = Agenda::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        agenda.add(&a, Duration::from_millis(500));
        agenda.add(&a, Duration::ZERO);
        agenda.add(&b, Duration::from_millis(700));
        agenda.add(&b, Duration::from_secs(3_600));
        assert_eq!(agenda.take(Instant::now()), [a]);
        assert_eq!(agenda.take(Instant::now() + Duration::from_secs(1)), [b]);
        assert!(agenda.next().is_none());
    }
}
