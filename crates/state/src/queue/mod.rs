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

mod apply;
mod clock;
mod core;
mod discard;
pub mod keys;
pub mod record;
mod registry;
mod replay;
mod slot;
mod steps;
mod transaction;
mod varint;

pub use apply::{Op, apply, write_numbers};
pub use discard::Discard;
pub use keys::IdHash;
pub use registry::{QueueInner, Registry};
pub use replay::{REPLAYS, Replay, Replayed};
pub use transaction::{OwnOps, trim};

use self::core::Taken;
use crate::books::Books;
use crate::engine::Commit;
use crate::error::from_database;
use crate::transaction::Writes;
use crate::{CommitError, State, Ticket};
use apply::New;
use event::Event;
use fjall::Slice;
use problem::{Code, Problem};
use record::EventHead;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Largest event, all its attributes and what the queue knows about it included.
pub const EVENT_BYTES_MAX: usize = 8 << 20;
/// Longest reason of a failure that is kept; the rest is cut off.
pub const REASON_BYTES_MAX: usize = 1_024;

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
    /// Beyond, the oldest goes.
    pub dead_letters_max: u64,
    /// Its workflow has ended, and it takes no new events: commits that push some are refused.
    pub is_ended: bool,
}

impl Default for QueueConfig {
    /// 100,000 events, 256 MiB, 10,000 dead letters, and nothing else.
    fn default() -> Self {
        Self {
            events_max: 100_000,
            bytes_max: 256 << 20,
            ttl: None,
            deduplicate: None,
            order_by_key: false,
            dead_letters_max: 10_000,
            is_ended: false,
        }
    }
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

/// An event in the hands of one handler. Ack it in a transaction, or fail it, or release it; else it is ready again
/// when the lease ends.
#[derive(Debug, Clone)]
pub struct Leased {
    pub lease: LeaseId,
    pub queue: std::sync::Arc<str>,
    /// Its place in the queue. An event that is delayed, becomes ready or dies takes a new one.
    pub sequence: u64,
    /// `attempt` says which try this is.
    pub event: Event,
    pub pushed_ms: u64,
    /// Of the commit that put it there, or a later one. What is told to the world outside because of the event waits
    /// until it is durable.
    pub ticket: Ticket,
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
    /// Those among them that could be leased now. One that waits for another of its key could not.
    pub leasable: u64,
    pub delayed: u64,
    pub leased: u64,
    /// Those in damaged places of the disk: neither leased nor counted as ready, until they are purged.
    pub damaged: u64,
    pub bytes: u64,
    pub dead: u64,
    /// Since when the oldest ready event is ready. None also while it is on disk only: for a moment after a start.
    pub oldest_ms: Option<u64>,
    pub since_start: QueueTotals,
}

/// What became of a queue's events since the node started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueTotals {
    pub pushed: u64,
    pub acked: u64,
    pub retried: u64,
    pub died: u64,
    pub expired: u64,
    pub duplicates: u64,
    pub refused: u64,
    pub leases_ended: u64,
    /// Dead letters that went because there were too many.
    pub dropped: u64,
    pub purged: u64,
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
    /// Pass it as `after` to read on.
    pub position: Position,
    pub event: Event,
    /// How often it was tried.
    pub tries: u32,
    pub pushed_ms: u64,
    /// When a delayed one is ready; when a dead letter died.
    pub at_ms: Option<u64>,
    /// Why it failed last.
    pub reason: Option<String>,
}

/// Where a listing is. Text like `17` or, among the delayed ones, `1700000000000.17`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Of a delayed event; else 0.
    pub(crate) due: u64,
    pub(crate) sequence: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.due {
            0 => write!(f, "{}", self.sequence),
            due => write!(f, "{due}.{}", self.sequence),
        }
    }
}

impl FromStr for Position {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (due, sequence) = text.split_once('.').unwrap_or(("0", text));
        Ok(Self { due: due.parse()?, sequence: sequence.parse()? })
    }
}

/// One queue. Cheap to clone. Keeps the state open.
#[derive(Clone)]
pub struct Queue {
    state: State,
    shared: Arc<QueueInner>,
}

impl Queue {
    pub fn name(&self) -> &Arc<str> {
        &self.shared.name
    }

    pub fn configure(&self, config: QueueConfig) {
        self.shared
            .core
            .lock()
            .configure(config, |value| record::decode(value).map_or(0, |(_, event)| record::key_of(&event)));
        self.shared.tell();
    }

    pub fn config(&self) -> QueueConfig {
        self.shared.core.lock().config.clone()
    }

    /// Leases up to `count` events that are ready at `now_ms`, until `until_ms`. May read a block from disk.
    ///
    /// # Errors
    /// `StateCorrupt` names an event that cannot be read: it stays where it is, out of the way, until it is purged.
    /// What could not be leased because of an error is ready again.
    pub fn lease(&self, now_ms: u64, until_ms: u64, count: usize) -> Result<Vec<Leased>, Problem> {
        self.lease_some(now_ms, until_ms, count, usize::MAX)
    }

    /// As [`Queue::lease`], and no more once they have `bytes_max` bytes.
    pub fn lease_some(
        &self,
        now_ms: u64,
        until_ms: u64,
        count: usize,
        bytes_max: usize,
    ) -> Result<Vec<Leased>, Problem> {
        let mut taken = Vec::new();
        let most = (count, bytes_max);
        let leased = self.take(now_ms, until_ms, most, &mut taken).and_then(|()| self.read(&mut taken));
        // What is left was not read.
        let mut core = self.shared.core.lock();
        for taken in taken {
            core.release(LeaseId(taken.lease));
        }
        leased
    }

    fn take(&self, now_ms: u64, until_ms: u64, most: (usize, usize), taken: &mut Vec<Taken>) -> Result<(), Problem> {
        for _ in 0..TAKE_STEPS_MAX + most.0 {
            let found = self.shared.core.lock().take(now_ms, until_ms, most, taken);
            let has_more = found.is_short || !found.expired.is_empty() || !found.unread.is_empty();
            self.expire(found.expired)?;
            if taken.len() == most.0 || !has_more {
                return Ok(());
            }
            for sequence in found.unread {
                self.read_again(sequence)?;
            }
            if found.is_short {
                self.refill()?;
            }
        }
        self.shared.tell();
        Ok(())
    }

    /// Takes what could be read out of `taken`.
    fn read(&self, taken: &mut Vec<Taken>) -> Result<Vec<Leased>, Problem> {
        let mut leased = Vec::with_capacity(taken.len());
        while let Some(Taken { lease, sequence, value, lease_ends, batch }) = taken.pop() {
            let Some((head, mut event)) = record::decode(&value) else {
                self.shared.core.lock().set_aside(sequence);
                taken.extend(leased.iter().map(|leased: &Leased| Taken {
                    lease: leased.lease.0,
                    sequence: leased.sequence,
                    value: Slice::default(),
                    lease_ends: 0,
                    batch: 0,
                }));
                return Err(self.corrupt(&format!("event {sequence}")));
            };
            event.attempt = event.attempt.saturating_add(lease_ends);
            let queue = Arc::clone(&self.shared.name);
            let (lease, ticket, pushed_ms) = (LeaseId(lease), Ticket(batch), head.pushed_ms);
            leased.push(Leased { lease, queue, sequence, event, pushed_ms, ticket });
        }
        leased.reverse();
        Ok(leased)
    }

    /// Gives an event back as if it had not been leased; it keeps its place.
    pub fn release(&self, lease: LeaseId) {
        self.shared.release(lease);
    }

    /// Has a lease end at another time. Says whether it was still on; one that has ended stays so.
    pub fn renew(&self, lease: LeaseId, now_ms: u64, until_ms: u64) -> bool {
        let (is_on, news) = {
            let mut core = self.shared.core.lock();
            let is_on = core.renew(lease, now_ms, until_ms);
            (is_on, std::mem::take(&mut core.has_news))
        };
        if news {
            self.shared.tell();
        }
        is_on
    }

    /// Whether the lease is still on, as far as the queue's clock has been told.
    pub fn has_lease(&self, lease: LeaseId) -> bool {
        self.shared.core.lock().has_lease(lease)
    }

    /// Moves what is due to the ready ones and ends leases and lives that are over. Called by the node's clock.
    /// Says when it wants to be called next; at once if there is more to do than one call should take.
    pub fn do_due(&self, now_ms: u64) -> Result<Option<u64>, Problem> {
        self.shared.core.lock().clock.observe(now_ms);
        let mut is_behind = self.move_due()?;
        self.refill()?;
        let expired = {
            let mut core = self.shared.core.lock();
            let time = core.clock.time();
            core.pass(time);
            core.take_expired(time)
        };
        let some_expired = !expired.is_empty();
        self.expire(expired)?;
        is_behind |= self.trim_dead()? | self.forget_ids()?;
        let (news, next) = {
            let mut core = self.shared.core.lock();
            // Behind those there may be more.
            is_behind |= some_expired && core.refill_from().is_some();
            let next = core.next_change().map(|time| core.clock.node_time(time).max(now_ms));
            (std::mem::take(&mut core.has_news), next)
        };
        if news {
            self.shared.tell();
        }
        Ok(if is_behind { Some(now_ms) } else { next })
    }

    pub fn counts(&self) -> QueueCounts {
        let core = self.shared.core.lock();
        let (numbers, leased, held) = (&core.numbers, core.leased_count(), core.held_count());
        QueueCounts {
            ready: (numbers.ready - leased - held).saturating_sub(core.damaged_count()),
            leasable: core.leasable(),
            delayed: numbers.delayed + held,
            leased,
            damaged: core.damaged_count(),
            bytes: numbers.ready_bytes + numbers.delayed_bytes,
            dead: numbers.dead,
            oldest_ms: core.oldest_ms(),
            since_start: core.totals,
        }
    }

    /// Event ids it remembers, those among them whose time is over and that were not removed yet.
    pub fn remembered_ids(&self) -> u64 {
        self.shared.core.lock().numbers.ids
    }

    /// Changes each time an event becomes ready. The value says nothing; wait with `changed().await`.
    pub fn watch(&self) -> tokio::sync::watch::Receiver<u64> {
        self.shared.watch.subscribe()
    }

    /// Commits changes of this queue alone.
    fn commit(&self, ops: Vec<Op>) -> Result<Ticket, CommitError> {
        let ops = ops.into_iter().map(|op| (Arc::clone(&self.shared), op)).collect();
        let space = crate::pending::Space::Queues;
        let commit = Commit { space, writes: Writes::new(), bytes: 0, ops, records: Default::default() };
        let (ticket, _) = self.state.inner.commit(commit, |_, _| Ok(Books::default()))?;
        Ok(ticket)
    }

    fn corrupt(&self, what: &str) -> Problem {
        Problem::new(Code::StateCorrupt, format!("queue {:?}: {what} cannot be read", self.shared.name))
    }

    fn read_failed(&self, error: &fjall::Error) -> Problem {
        self.state.inner.engine.damage.note(error);
        from_database(&format!("read queue {:?}", self.shared.name), error)
    }
}

/// Steps of one lease: each makes way for a window of events whose life is over.
const TAKE_STEPS_MAX: usize = 16;

/// What became of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    Accepted,
    /// The queue remembers an event with this id and source: nothing was pushed.
    Duplicate,
}

impl State {
    /// The queue of this name: the same one for all who ask. It exists on disk from its first push.
    ///
    /// # Errors
    /// `QueueUnknown` when there can be no queue of this name.
    pub fn queue(&self, name: &str) -> Result<Queue, Problem> {
        let shared = self.inner.queues.get(name)?;
        Ok(Queue { state: self.clone(), shared })
    }

    /// Names of all queues that hold something or were asked for, in order.
    pub fn queues(&self) -> Vec<String> {
        self.inner.queues.names()
    }

    /// Relaxed mode: with a period, a commit counts as durable once the operating system has it (it survives the end of
    /// the process, however it ends, but not a power cut), and a sync follows every so often. `None`, the default: once
    /// the disk has confirmed.
    pub fn set_sync_every(&self, period: Option<Duration>) {
        self.inner.engine.group.set_relaxed(period);
        self.inner.syncer.as_ref().expect("it runs until the last clone is dropped").wake();
    }
}

/// A stored event that becomes ready.
fn new_of(core: &self::core::Core, value: &Slice, due: u64) -> New {
    let expires = EventHead::split(value).and_then(|(head, _)| head.expires).unwrap_or(u64::MAX);
    let key =
        if core.config.order_by_key { record::decode(value).map_or(0, |(_, event)| record::key_of(&event)) } else { 0 };
    let since_ms = core.clock.node_time(due);
    New { value: apply::with_since(value, due), since_ms, expires, key, due: 0, id: None }
}
