//! Several short events at once: how many a worker takes, and which are handled alone.
//!
//! ```text
//!   lease 32 ─▶ those of the first try ─▶ one after the other, one commit ─▶ acked
//!                  │ others                 │ failed, waited, was long; the commit was refused
//!                  ▼                        ▼
//!               given back             given back, and marked: the next lease takes it alone
//! ```
//! What becomes of an event is decided only where it is handled alone: together, they succeed or it was nothing.

use super::consumer::{Consumer, Together};
use super::failure::ms;
use super::past::Became;
use super::running::SPAN;
use super::shell::Shell;
use super::worker::{Busy, Held, Worker};
use crate::clock;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long events may be handled together: so long the first of them waits for its commit, at most.
const TIME_MAX: Duration = Duration::from_millis(5);

/// Bytes of events beyond which no more are leased at once.
pub const BYTES_MAX: usize = 1 << 20;

/// Events that are marked at once; of more the oldest is tried together with others once more.
const ALONE_MAX: usize = 4_096;

/// Events of one queue that are to be handled alone.
#[derive(Default)]
pub struct TogetherRule {
    alone: Mutex<BTreeSet<u64>>,
    /// How many there are, to be read without a lock.
    count: AtomicUsize,
}

impl TogetherRule {
    /// How many events a worker takes now: as many as it handles in [`TIME_MAX`], as far as that is known.
    pub fn count(&self, shell: &Shell, consumer: &dyn Consumer) -> usize {
        let most = consumer.batch_max();
        if most <= 1 {
            return 1;
        }
        let service = shell.service_time().unwrap_or(TIME_MAX).as_nanos().max(1);
        usize::try_from(TIME_MAX.as_nanos() / service).unwrap_or(most).clamp(1, most)
    }

    fn mark(&self, sequence: u64) {
        let mut alone = self.alone.lock();
        alone.insert(sequence);
        if alone.len() > ALONE_MAX {
            alone.pop_first();
        }
        self.count.store(alone.len(), Relaxed);
    }

    fn is_alone(&self, sequence: u64) -> bool {
        self.count.load(Relaxed) > 0 && self.alone.lock().contains(&sequence)
    }

    /// The event was handled alone, whatever became of it.
    pub fn was_alone(&self, sequence: u64) {
        if self.count.load(Relaxed) > 0 {
            let mut alone = self.alone.lock();
            alone.remove(&sequence);
            self.count.store(alone.len(), Relaxed);
        }
    }
}

impl Worker {
    /// Handles the first of these events alone, or together with those behind it; gives back the others.
    pub(super) async fn handle_some(&self, consumer: Arc<dyn Consumer>, held: impl Iterator<Item = Held>) {
        let (shell, is_suspect) = (&self.shell, self.shell.books.running.suspected() > 0);
        let mut first = None;
        let mut is_next = |held: &Held| {
            let leased = held.leased();
            let first = *first.get_or_insert(leased.sequence);
            let is_near = (first..=first.saturating_add(SPAN)).contains(&leased.sequence);
            is_near && !is_suspect && leased.event.attempt == 1 && !shell.together.is_alone(leased.sequence)
        };
        let mut held = held.peekable();
        let mut together = Vec::new();
        while let Some(next) = held.next_if(|held| is_next(held)) {
            together.push(next);
        }
        let alone = if together.is_empty() { held.next() } else { None };
        // Those left are ready again, in their places.
        held.for_each(drop);
        match alone.or_else(|| if together.len() == 1 { together.pop() } else { None }) {
            Some(alone) => self.handle_alone(consumer, alone).await,
            None => self.handle_together(consumer, together).await,
        }
    }

    async fn handle_together(&self, consumer: Arc<dyn Consumer>, held: Vec<Held>) {
        let shell = &self.shell;
        let leased: Vec<_> = held.iter().map(Held::leased).collect();
        if let Some(slot) = self.slot.as_ref().filter(|_| consumer.may_end_node()) {
            slot.take_together(&leased);
        }
        let (began, began_ms) = (Instant::now(), clock::now_ms());
        let _busy = Busy::new(shell, began);
        let became = consumer.handle_together(leased.clone(), began + TIME_MAX).await;
        let mut times = Vec::with_capacity(became.len());
        let mut passed = Duration::ZERO;
        for ((held, leased), became) in held.into_iter().zip(&leased).zip(became) {
            match became {
                Together::Acked { ran, took } => {
                    held.settled();
                    times.push(took);
                    let began_ms = began_ms + ms(passed);
                    passed += took;
                    shell.books.past.note(leased, Some(ran), Became::Done, (began_ms, took));
                }
                // Dropped, it is ready again.
                Together::Alone => shell.together.mark(leased.sequence),
            }
        }
        if !times.is_empty() {
            shell.numbers.handled.fetch_add(times.len() as u64, Relaxed);
            shell.handled_together(times.into_iter());
        }
    }
}
