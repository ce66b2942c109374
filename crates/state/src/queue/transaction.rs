//! What a transaction does with queues: pushes, acks, failures and pops, which happen when it commits.

use super::apply::{New, Op, oracle_key};
use super::keys::{self, IdHash};
use super::record::{self, EventHead};
use super::varint::Reader;
use super::{EVENT_BYTES_MAX, Failed, LeaseId, Leased, Push, Pushed, Queue, QueueConfig, QueueInner, REASON_BYTES_MAX};
use crate::error::{FullQueue, StoreError};
use crate::part::Undo;
use crate::transaction::Transaction;
use crate::{Inner, State};
use event::Event;
use problem::{Code, Problem};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

impl Transaction {
    /// Pushes an event when the transaction commits.
    ///
    /// # Errors
    /// `QueueFull` where that is known already; else the commit fails with `CommitError::QueueFull`, or with
    /// `CommitError::QueueEnded`. `QueueName`, `EventLength`, `WriteCount`, `WriteBytes`. `Unavailable` when a
    /// remembered id cannot be looked up.
    pub fn push(&mut self, queue: &str, push: &Push, now_ms: u64) -> Result<Pushed, StoreError> {
        let shared = self.inner.queues.get(queue)?;
        let (time, config, id) = {
            let mut core = shared.core.lock();
            (core.clock.observe(now_ms), core.config.clone(), core.numbers.id)
        };
        let Push { event, delay, ttl } = push;
        let after = |span: Duration| time.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
        let expires = [*ttl, config.ttl].into_iter().flatten().min().map(after);
        let head = EventHead { pushed_ms: now_ms, expires, ..EventHead::default() };
        let value = record::encode(&head, event);
        if value.len() > EVENT_BYTES_MAX {
            return Err(StoreError::EventLength { bytes: value.len() });
        }
        let remembered = match config.deduplicate {
            None => None,
            Some(window) => {
                let hash = hash_of(event);
                if self.ops.ids.contains(&(id, hash)) || self.is_duplicate(&shared, id, &hash, time)? {
                    shared.core.lock().totals.duplicates += 1;
                    return Ok(Pushed::Duplicate);
                }
                Some((hash, after(window)))
            }
        };
        self.check_room(&shared, value.len() as u64)?;
        let bytes = value.len();
        let new = New {
            value,
            since_ms: now_ms,
            expires: expires.unwrap_or(u64::MAX),
            key: if config.order_by_key { record::key_of(event) } else { 0 },
            due: if delay.is_zero() { 0 } else { after(*delay) },
            id: remembered,
        };
        self.count_op(bytes)?;
        if let Some((hash, _)) = remembered {
            self.ops.ids.insert((id, hash));
            if let Some(part) = &mut self.part {
                part.note(Undo::Id((id, hash)));
            }
        }
        self.ops.list.push((shared, Op::Push(new)));
        Ok(Pushed::Accepted)
    }

    /// The commit fails with `CommitError::LeaseLost` if the lease has ended by then.
    pub fn ack(&mut self, lease: &Leased) {
        self.end_lease(lease, |sequence, lease, _| Op::Ack { sequence, lease });
    }

    /// The handling failed; what became of the event is decided by `failed`. As [`Transaction::ack`] otherwise.
    pub fn fail(&mut self, lease: &Leased, failed: Failed) {
        self.end_lease(lease, |sequence, lease, shared| {
            let (value, seen_ms) = {
                let core = shared.core.lock();
                let slot = core.leased(sequence, lease).and_then(|slot| Some((slot.value.clone()?, slot.lease_ends)));
                (slot, core.clock.seen_ms())
            };
            let (reason, at_ms) = match failed {
                Failed::Retry { at_ms, reason } => (reason, Some(at_ms)),
                Failed::Dead { reason } => (reason, None),
            };
            let died_ms = at_ms.is_none().then_some(seen_ms);
            let value = value.and_then(|(value, lease_ends)| {
                let (head, body) = EventHead::split(&value)?;
                let attempts = head.attempts.saturating_add(lease_ends).saturating_add(1);
                let head =
                    EventHead { attempts, reason: Some(cut(reason)), died_ms, since: None, rewritten: false, ..head };
                Some(record::with_head(&head, body))
            });
            match at_ms {
                Some(at_ms) => Op::Retry { sequence, lease, at_ms, value },
                None => Op::Die { sequence, lease, value, is_expired: false },
            }
        });
    }

    /// Takes the oldest ready event: leased until `until_ms`, acked by the commit, given back when the transaction is
    /// dropped or cannot commit.
    pub fn pop(&mut self, queue: &str, now_ms: u64, until_ms: u64) -> Result<Option<Event>, StoreError> {
        let shared = self.inner.queues.get(queue)?;
        let queue = Queue { state: State { inner: Arc::clone(&self.inner) }, shared: Arc::clone(&shared) };
        let Some(leased) = queue.lease(now_ms, until_ms, 1).map_err(StoreError::Unavailable)?.pop() else {
            // Somebody may have taken the last one.
            self.rest_on(self.inner.engine.newest());
            return Ok(None);
        };
        // From here on it is given back when anything fails.
        self.popped.push((Arc::clone(&shared), leased.lease));
        self.count_op(0)?;
        self.end(shared, leased.lease, Op::Ack { sequence: leased.sequence, lease: leased.lease });
        Ok(Some(leased.event))
    }

    fn end_lease(&mut self, leased: &Leased, op: impl FnOnce(u64, LeaseId, &QueueInner) -> Op) {
        // Of a queue that was removed the leases are gone too; the commit says so.
        let shared = self.inner.queues.known(&leased.queue).unwrap_or_else(|| QueueInner::gone(&leased.queue));
        let op = op(leased.sequence, leased.lease, &shared);
        self.end(shared, leased.lease, op);
    }

    fn end(&mut self, shared: Arc<QueueInner>, lease: LeaseId, op: Op) {
        if let (Some((at, before)), Some(part)) = (self.ops.end(shared, lease, op), &mut self.part) {
            part.note_op(at, before);
        }
    }

    fn is_duplicate(
        &mut self,
        shared: &Arc<QueueInner>,
        id: u32,
        hash: &IdHash,
        time: u64,
    ) -> Result<bool, StoreError> {
        // Whoever pushes the same id from now on is in conflict with this transaction.
        self.watch_reads();
        let name = oracle_key(id, hash);
        self.reads.add_key(&name);
        let in_memory = {
            let core = shared.core.lock();
            core.ids.get(hash).or_else(|| core.ids_applying.get(hash)).copied()
        };
        let until = match in_memory {
            Some(until) => Some(until),
            None => {
                let stored =
                    self.inner.engine.queue_value(&keys::id_hash(id, hash)).map_err(StoreError::Unavailable)?;
                stored.map(|value| Reader(&value).number().ok_or_else(|| damaged_id(shared))).transpose()?
            }
        };
        let is_duplicate = until.is_some_and(|until| until > time);
        if is_duplicate {
            self.rest_on(self.inner.engine.noted(&name));
        }
        Ok(is_duplicate)
    }

    /// Refuses now what the commit would refuse anyway.
    fn check_room(&self, shared: &Arc<QueueInner>, bytes: u64) -> Result<(), StoreError> {
        // What acks will free is known at the commit.
        if !self.ops.by_lease.is_empty() {
            return Ok(());
        }
        let mut core = shared.core.lock();
        let QueueConfig { events_max, bytes_max, is_ended, .. } = core.config;
        if is_ended {
            // The commit says so, whether there is room or not.
            return Ok(());
        }
        let numbers = &core.numbers;
        if numbers.ready + numbers.delayed < events_max
            && numbers.ready_bytes + numbers.delayed_bytes + bytes <= bytes_max
        {
            return Ok(());
        }
        core.totals.refused += 1;
        Err(StoreError::QueueFull(FullQueue { queue: shared.name.to_string(), events_max, bytes_max }))
    }
}

/// What one transaction does with queues.
#[derive(Default)]
pub struct OwnOps {
    list: Vec<(Arc<QueueInner>, Op)>,
    /// Where in the list a lease is ended: the last word counts.
    by_lease: HashMap<LeaseId, usize>,
    /// Events it pushes to queues that remember them.
    ids: HashSet<(u32, IdHash)>,
}

impl OwnOps {
    pub fn count(&self) -> usize {
        self.list.len()
    }

    pub fn into_list(self) -> Vec<(Arc<QueueInner>, Op)> {
        self.list
    }

    /// Says what this replaces, and where, if it does.
    fn end(&mut self, shared: Arc<QueueInner>, lease: LeaseId, op: Op) -> Option<(usize, Op)> {
        let at = *self.by_lease.entry(lease).or_insert(self.list.len());
        if at == self.list.len() {
            self.list.push((shared, op));
            return None;
        }
        Some((at, std::mem::replace(&mut self.list[at].1, op)))
    }

    /// Forgets all but the first `count`.
    pub fn truncate(&mut self, count: usize) {
        self.list.truncate(count);
        self.by_lease.retain(|_, at| *at < count);
    }

    pub fn put_back(&mut self, at: usize, op: Op) {
        self.list[at].1 = op;
    }

    pub fn forget_id(&mut self, id: &(u32, IdHash)) {
        self.ids.remove(id);
    }
}

/// Drops dead letters where there are too many. What cannot be dropped now is when the queue next does what is due.
pub fn trim(inner: &Arc<Inner>, over: Vec<Arc<QueueInner>>) {
    for shared in over {
        let queue = Queue { state: State { inner: Arc::clone(inner) }, shared };
        if let Err(problem) = queue.trim_dead() {
            tracing::warn!(code = %problem.code, queue = %queue.shared.name, "dead letters stay: {}", problem.detail);
        }
    }
}

fn damaged_id(shared: &QueueInner) -> StoreError {
    let detail = format!("queue {:?}: a remembered event id cannot be read", shared.name);
    StoreError::Unavailable(Problem::new(Code::StateCorrupt, detail))
}

/// Unique together: the id, and who gave it.
fn hash_of(event: &Event) -> IdHash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(event.id_giver().as_bytes()).update(&[0]).update(event.id.as_bytes());
    *hasher.finalize().as_bytes().first_chunk().expect("a hash is longer")
}

fn cut(mut reason: String) -> String {
    if reason.len() > REASON_BYTES_MAX {
        reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
    }
    reason
}
