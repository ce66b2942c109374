//! Durable queues: events wait here, are leased to one handler at a time, and go when they are acked.
//!
//! ```text
//!  push ─▶ ready ──lease──▶ leased ──ack──▶ gone
//!            ▲ ▲               │ │
//!            │ └─lease ended───┘ └─failed─▶ delayed (back-off) ─▶ ready … ─▶ dead letters ──replay──▶ ready
//!            └─ delayed push
//! ```
//! Pushes, acks and failures are part of a [`Transaction`](crate::Transaction): visible and durable together with
//! its writes to buckets, or not at all. Leases are in memory only: after a restart all that was leased is ready again.

use crate::{State, StoreError, Transaction};
use event::Event;
use problem::Problem;
use std::time::Duration;

/// How a queue behaves. Changed at any time; what is stored already stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueConfig {
    /// Events it holds, the delayed and the leased ones among them.
    pub events_max: u64,
    pub bytes_max: u64,
    pub ttl: Option<Duration>,
    pub deduplicate: Option<Duration>,
    /// Events with the same key are leased one after the other.
    pub order_by_key: bool,
    pub dead_letters_max: u64,
}

/// One push.
#[derive(Debug, Clone)]
pub struct Push {
    pub event: Event,
    /// How long it waits before it can be leased.
    pub delay: Duration,
    /// Shorter than the queue's own.
    pub ttl: Option<Duration>,
}

/// Names one lease of one event. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseId(pub u64);

/// An event in the hands of one handler. Ack it in a transaction, or fail it, or release it; else it is ready again when
/// the lease ends.
#[derive(Debug, Clone)]
pub struct Leased {
    pub lease: LeaseId,
    pub queue: std::sync::Arc<str>,
    /// Place in the queue; the name of the event in listings.
    pub sequence: u64,
    /// `attempt` says which try this is.
    pub event: Event,
    pub pushed_ms: u64,
}

/// What became of an event that could not be handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// Ready again at this time; counts as a try.
    Retry { at_ms: u64, reason: String },
    /// To the dead letters.
    Dead { reason: String },
}

/// What is in a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCounts {
    pub ready: u64,
    pub delayed: u64,
    pub leased: u64,
    pub bytes: u64,
    pub dead: u64,
    /// When the oldest ready event was pushed.
    pub oldest_ms: Option<u64>,
    /// Since the node started.
    pub pushed: u64,
    pub acked: u64,
    pub retried: u64,
    pub died: u64,
    pub expired: u64,
    pub duplicates: u64,
    pub refused: u64,
    pub leases_ended: u64,
}

/// Which events of a queue to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Ready,
    Delayed,
    Dead,
}

/// An event as a listing shows it.
#[derive(Debug, Clone)]
pub struct Listed {
    pub sequence: u64,
    pub event: Event,
    pub pushed_ms: u64,
    /// When a delayed one is ready; when a dead letter died.
    pub at_ms: Option<u64>,
    /// Why it failed last.
    pub reason: Option<String>,
}

/// One queue. Cheap to clone.
#[derive(Clone)]
pub struct Queue;

impl Queue {
    pub fn configure(&self, _config: QueueConfig) {
        todo!()
    }
    /// Leases up to `count` events that are ready at `now_ms`, until `until_ms`. May read a block from disk.
    pub fn lease(&self, _now_ms: u64, _until_ms: u64, _count: usize) -> Result<Vec<Leased>, Problem> {
        todo!()
    }
    /// Gives an event back as if it had not been leased; it keeps its place.
    pub fn release(&self, _lease: LeaseId) {
        todo!()
    }
    /// Moves what is due to the ready ones and ends leases and lives that are over. Called by the node's clock.
    /// Says when it wants to be called next.
    pub fn tick(&self, _now_ms: u64) -> Result<Option<u64>, Problem> {
        todo!()
    }
    pub fn counts(&self) -> QueueCounts {
        todo!()
    }
    /// Changes each time an event becomes ready. `None` never; wait with `changed().await`.
    pub fn watch(&self) -> tokio::sync::watch::Receiver<u64> {
        todo!()
    }
    /// A page of at most `limit`, after the one with this sequence.
    pub fn list(&self, _part: Part, _after: Option<u64>, _limit: u32) -> Result<Vec<Listed>, Problem> {
        todo!()
    }
    /// Removes all events of these parts, in steps; leased ones stay. Says how many. Durable when it returns.
    pub async fn purge(&self, _parts: &[Part]) -> Result<u64, Problem> {
        todo!()
    }
    /// Dead letters go back to the end of the queue, tries counted from 1 again: those named, or all. Durable when it
    /// returns.
    pub async fn replay(&self, _sequences: Option<&[u64]>, _now_ms: u64) -> Result<u64, Problem> {
        todo!()
    }
    /// Forgets queue and events.
    pub async fn remove(&self) -> Result<(), Problem> {
        todo!()
    }
}

/// What became of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    Accepted,
    /// The queue remembers an event with this id and source: nothing was pushed.
    Duplicate,
}

impl State {
    /// The queue of this name: the same one for all who ask. It exists on disk from its first push.
    pub fn queue(&self, _name: &str) -> Result<Queue, Problem> {
        todo!()
    }

    /// Names of all queues that hold something or were asked for.
    pub fn queues(&self) -> Vec<String> {
        todo!()
    }

    /// Relaxed mode: with a period, commits count as durable at once, and a sync follows every so often. `None`, the
    /// default: before they are acknowledged.
    pub fn set_sync_every(&self, _period: Option<Duration>) {
        todo!()
    }
}

impl Transaction {
    /// # Errors
    /// `StoreError::QueueFull` where that is known already; else the commit fails with `CommitError::QueueFull`.
    pub fn push(&mut self, _queue: &str, _push: Push, _now_ms: u64) -> Result<Pushed, StoreError> {
        todo!()
    }

    /// The commit fails with `CommitError::LeaseLost` if the lease has ended by then.
    pub fn ack(&mut self, _lease: &Leased) {
        todo!()
    }

    pub fn fail(&mut self, _lease: &Leased, _failed: Failed) {
        todo!()
    }

    /// Takes the oldest ready event: leased now, acked by the commit, given back when the transaction is dropped.
    pub fn pop(&mut self, _queue: &str, _now_ms: u64, _until_ms: u64) -> Result<Option<Event>, StoreError> {
        todo!()
    }
}
