//! What a commit does to queues: first it is judged as a whole, then done as a whole.

use super::core::{Core, Slot, SlotState};
use super::keys::{self, IdHash};
use super::record::{self, EventHead};
use super::{LeaseId, Part, QueueConfig, QueueInner};
use crate::error::{CommitError, FullQueue};
use crate::pending::{Pending, Space};
use fjall::Slice;
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One change of a queue within a commit.
pub enum Op {
    Push(New),
    Ack {
        sequence: u64,
        lease: LeaseId,
    },
    /// `value` is none when the lease had ended already.
    Retry {
        sequence: u64,
        lease: LeaseId,
        at_ms: u64,
        value: Option<Slice>,
    },
    Die {
        sequence: u64,
        lease: LeaseId,
        value: Option<Slice>,
        is_expired: bool,
    },
    /// Delayed events that are due, as (due, sequence, bytes).
    Due(Vec<(u64, u64, Slice)>),
    /// Dead letters go back, as (sequence, bytes on disk, new event).
    Replay(Vec<(u64, u64, New)>),
    /// All ready events up to the last of these, leased ones excepted, as (sequence, bytes on disk).
    PurgeReady(Vec<(u64, u64)>),
    /// Delayed events, as (due, sequence, bytes on disk).
    PurgeDelayed(Vec<(u64, u64, u64)>),
    /// All dead letters up to the last of these, as (sequence, bytes on disk).
    PurgeDead(Vec<(u64, u64)>),
    /// Some dead letters, as (sequence, bytes on disk).
    Discard(Vec<(u64, u64)>),
    /// Events of this part that are counted and cannot be found, and their bytes.
    PurgeUnseen {
        part: Part,
        events: u64,
        bytes: u64,
    },
    /// The oldest dead letters beyond the bound, as far as they are known.
    TrimDead,
    ForgetIds(Vec<IdHash>),
    Remove,
}

/// An event that is new in its queue.
#[derive(Debug, Clone)]
pub struct New {
    pub value: Slice,
    pub since_ms: u64,
    pub expires: u64,
    pub key: u64,
    /// In the queue's own time; 0 is at once.
    pub due: u64,
    /// To be remembered until then.
    pub id: Option<(IdHash, u64)>,
}

/// The oracle's name for an event id: no bucket's name begins with a zero byte.
pub fn oracle_key(queue: u32, hash: &IdHash) -> Vec<u8> {
    [&[0], &queue.to_be_bytes()[..], hash].concat()
}

struct Locked<'a> {
    queue: &'a Arc<QueueInner>,
    core: MutexGuard<'a, Core>,
    events: i64,
    bytes: i64,
    pushes: bool,
}

/// What there is to do once the locks are free.
#[derive(Default)]
pub struct Applied {
    /// Names under which the oracle should note the commit.
    pub noted: Vec<Vec<u8>>,
    /// Queues where something became ready.
    pub news: Vec<Arc<QueueInner>>,
    /// Queues with more dead letters than they may have.
    pub over: Vec<Arc<QueueInner>>,
}

/// Judges `ops` and does them all, or none.
pub fn apply(ops: &[(Arc<QueueInner>, Op)], pending: &mut Pending) -> Result<Applied, CommitError> {
    if ops.is_empty() {
        return Ok(Applied::default());
    }
    let mut locked: Vec<Locked<'_>> = Vec::with_capacity(1);
    for (queue, op) in ops {
        let at = find(&locked, queue).unwrap_or_else(|| {
            locked.push(Locked { queue, core: queue.core.lock(), events: 0, bytes: 0, pushes: false });
            locked.len() - 1
        });
        judge(&mut locked[at], op)?;
    }
    for Locked { queue, core, events, bytes, pushes } in &mut locked {
        let held = (core.numbers.ready + core.numbers.delayed) as i64 + *events;
        let held_bytes = (core.numbers.ready_bytes + core.numbers.delayed_bytes) as i64 + *bytes;
        let QueueConfig { events_max, bytes_max, .. } = core.config;
        if *pushes && (held > to_signed(events_max) || held_bytes > to_signed(bytes_max)) {
            core.totals.refused += 1;
            return Err(CommitError::QueueFull(FullQueue { queue: queue.name.to_string(), events_max, bytes_max }));
        }
    }
    let mut applied = Applied::default();
    for Locked { queue, core, .. } in &mut locked {
        if !core.is_changed {
            core.is_changed = true;
            pending.queues.push(Arc::clone(queue));
        }
    }
    for (queue, op) in ops {
        let at = find(&locked, queue).expect("locked above");
        perform(&mut locked[at].core, op, pending, &mut applied.noted);
    }
    for Locked { queue, core, .. } in &mut locked {
        if std::mem::take(&mut core.has_news) {
            applied.news.push(Arc::clone(queue));
        }
        if core.numbers.dead > core.config.dead_letters_max {
            applied.over.push(Arc::clone(queue));
        }
    }
    Ok(applied)
}

fn to_signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn find(locked: &[Locked<'_>], queue: &Arc<QueueInner>) -> Option<usize> {
    locked.iter().position(|locked| Arc::ptr_eq(locked.queue, queue))
}

fn judge(locked: &mut Locked<'_>, op: &Op) -> Result<(), CommitError> {
    let core = &locked.core;
    match op {
        // Whoever tries again finds a new queue of this name.
        Op::Push(_) | Op::Replay(_) if core.is_closed => return Err(CommitError::Conflict),
        Op::Push(_) if core.config.is_ended => return Err(CommitError::QueueEnded(locked.queue.name.to_string())),
        Op::Push(new) => {
            locked.pushes = true;
            locked.events += 1;
            locked.bytes += new.value.len() as i64;
        }
        Op::Ack { sequence, lease } | Op::Die { sequence, lease, value: Some(_), .. } => {
            let slot = core.leased(*sequence, *lease).ok_or(CommitError::LeaseLost)?;
            locked.events -= 1;
            locked.bytes -= slot.length as i64;
        }
        Op::Retry { sequence, lease, value: Some(_), .. } => {
            core.leased(*sequence, *lease).ok_or(CommitError::LeaseLost)?;
        }
        Op::Retry { value: None, .. } | Op::Die { value: None, .. } => return Err(CommitError::LeaseLost),
        Op::Replay(events) => {
            locked.pushes = true;
            locked.events += events.len() as i64;
            locked.bytes += events.iter().map(|(_, _, new)| new.value.len() as i64).sum::<i64>();
        }
        Op::Due(_) | Op::PurgeReady(_) | Op::PurgeDelayed(_) | Op::PurgeDead(_) => {}
        Op::Discard(_) | Op::PurgeUnseen { .. } | Op::TrimDead | Op::ForgetIds(_) | Op::Remove => {}
    }
    Ok(())
}

fn perform(core: &mut Core, op: &Op, pending: &mut Pending, noted: &mut Vec<Vec<u8>>) {
    match op {
        Op::Push(new) => {
            core.totals.pushed += 1;
            note_id(core, new, pending, noted);
            push(core, new, pending);
        }
        Op::Ack { sequence, .. } => {
            core.totals.acked += 1;
            leave(core, *sequence, pending);
        }
        Op::Retry { sequence, at_ms, value, .. } => {
            retry(core, *sequence, *at_ms, value.clone().expect("judged"), pending);
        }
        Op::Die { sequence, value, is_expired, .. } => {
            die(core, *sequence, value.clone().expect("judged"), *is_expired, pending);
        }
        Op::Due(events) => become_ready(core, events, pending),
        Op::Replay(events) => {
            for (sequence, bytes, new) in events {
                forget_dead(core, *sequence, *bytes, pending);
                push(core, new, pending);
            }
            core.oldest_dead.clear();
        }
        Op::PurgeReady(events) => purge_ready(core, events, pending),
        Op::PurgeDelayed(events) => purge_delayed(core, events, pending),
        Op::PurgeDead(events) => purge_dead(core, events, pending),
        Op::Discard(events) => discard(core, events, pending),
        Op::PurgeUnseen { part, events, bytes } => {
            core.totals.purged += events;
            core.forget_unseen(*part, *events, *bytes);
        }
        Op::TrimDead => trim_dead(core, pending),
        Op::ForgetIds(hashes) => forget_ids(core, hashes, pending),
        Op::Remove => core.is_removed = true,
    }
}

/// Keeps the id of an event for as long as its copies are told by it.
fn note_id(core: &mut Core, new: &New, pending: &mut Pending, noted: &mut Vec<Vec<u8>>) {
    let Some((hash, until)) = new.id else { return };
    let id = core.numbers.id;
    noted.push(oracle_key(id, &hash));
    core.ids_since_look.as_mut().map(|since| since.insert(hash));
    if core.ids.insert(hash, until).is_none() {
        core.numbers.ids += 1;
    }
    let mut value = Vec::with_capacity(8);
    super::varint::put(&mut value, until);
    pending.put(Space::Queues, keys::id_hash(id, &hash), value.into());
}

fn retry(core: &mut Core, sequence: u64, at_ms: u64, value: Slice, pending: &mut Pending) {
    core.totals.retried += 1;
    let until = core.clock.queue_time(at_ms);
    if core.config.order_by_key {
        let before = core.slot(sequence).map_or(0, |slot| slot.length);
        let value = rewritten(&value, until);
        core.numbers.ready_bytes = core.numbers.ready_bytes - before + value.len() as u64;
        pending.put(Space::Queues, keys::ready(core.numbers.id, sequence), value.clone());
        core.hold(sequence, value, until);
    } else {
        let slot = leave(core, sequence, pending);
        let due = if until > core.clock.time() { until } else { 0 };
        let since_ms = core.clock.seen_ms();
        push(core, &New { value, since_ms, expires: slot.expires, key: slot.key, due, id: None }, pending);
    }
}

fn die(core: &mut Core, sequence: u64, value: Slice, is_expired: bool, pending: &mut Pending) {
    *(if is_expired { &mut core.totals.expired } else { &mut core.totals.died }) += 1;
    leave(core, sequence, pending);
    if core.config.dead_letters_max > 0 {
        core.numbers.dead += 1;
        core.numbers.dead_bytes += value.len() as u64;
        let sequence = next(core);
        pending.put_new(Space::Queues, keys::dead(core.numbers.id, sequence), value);
    }
}

fn become_ready(core: &mut Core, events: &[(u64, u64, Slice)], pending: &mut Pending) {
    for (due, sequence, value) in events {
        core.numbers.delayed -= 1;
        core.numbers.delayed_bytes -= value.len() as u64;
        pending.delete_once(Space::Queues, keys::delayed(core.numbers.id, *due, *sequence));
        let new = super::new_of(core, value, *due);
        push(core, &new, pending);
    }
}

fn purge_ready(core: &mut Core, events: &[(u64, u64)], pending: &mut Pending) {
    for (sequence, bytes) in events {
        match core.slot(*sequence).map(|slot| slot.state) {
            Some(SlotState::Leased { .. }) => continue,
            Some(_) => drop(leave(core, *sequence, pending)),
            // It has left since it was found: all that is below the cursor and there is in memory.
            None if *sequence < core.cursor() => continue,
            // Whether it was stored more than once is not known.
            None => {
                core.numbers.ready -= 1;
                core.numbers.ready_bytes -= bytes;
                pending.delete(Space::Queues, keys::ready(core.numbers.id, *sequence));
            }
        }
        core.totals.purged += 1;
    }
    if let Some((last, _)) = events.last() {
        core.set_cursor(last + 1);
    }
}

fn purge_delayed(core: &mut Core, events: &[(u64, u64, u64)], pending: &mut Pending) {
    for (due, sequence, bytes) in events {
        core.numbers.delayed -= 1;
        core.numbers.delayed_bytes -= bytes;
        pending.delete_once(Space::Queues, keys::delayed(core.numbers.id, *due, *sequence));
    }
    core.totals.purged += events.len() as u64;
}

fn discard(core: &mut Core, events: &[(u64, u64)], pending: &mut Pending) {
    events.iter().for_each(|(sequence, bytes)| forget_dead(core, *sequence, *bytes, pending));
    core.oldest_dead.clear();
    core.totals.purged += events.len() as u64;
}

fn purge_dead(core: &mut Core, events: &[(u64, u64)], pending: &mut Pending) {
    discard(core, events, pending);
    if let Some((last, _)) = events.last() {
        core.numbers.dead_head = core.numbers.dead_head.max(last + 1);
    }
}

fn trim_dead(core: &mut Core, pending: &mut Pending) {
    while core.numbers.dead > core.config.dead_letters_max {
        let Some((sequence, bytes)) = core.oldest_dead.pop_front() else { break };
        forget_dead(core, sequence, bytes, pending);
        core.numbers.dead_head = sequence + 1;
        core.totals.dropped += 1;
    }
}

fn forget_ids(core: &mut Core, hashes: &[IdHash], pending: &mut Pending) {
    let since_look = core.ids_since_look.take().unwrap_or_default();
    for hash in hashes.iter().filter(|hash| !since_look.contains(*hash)) {
        core.numbers.ids = core.numbers.ids.saturating_sub(1);
        pending.delete(Space::Queues, keys::id_hash(core.numbers.id, hash));
    }
}

fn next(core: &mut Core) -> u64 {
    let sequence = core.numbers.tail;
    core.numbers.tail += 1;
    sequence
}

fn push(core: &mut Core, new: &New, pending: &mut Pending) {
    let (id, sequence, bytes) = (core.numbers.id, next(core), new.value.len() as u64);
    if new.due > 0 {
        // Whoever looks after the time has to look earlier than it thought.
        core.has_news |= core.numbers.delayed == 0 || new.due < core.numbers.due_floor;
        core.due_new = core.due_new.min(new.due);
        core.numbers.due_floor = if core.numbers.delayed == 0 { new.due } else { core.numbers.due_floor.min(new.due) };
        core.numbers.delayed += 1;
        core.numbers.delayed_bytes += bytes;
        pending.put_new(Space::Queues, keys::delayed(id, new.due, sequence), new.value.clone());
        return;
    }
    core.numbers.ready += 1;
    core.numbers.ready_bytes += bytes;
    pending.put_new(Space::Queues, keys::ready(id, sequence), new.value.clone());
    let slot = Slot {
        value: Some(new.value.clone()),
        length: bytes,
        since_ms: new.since_ms,
        expires: new.expires,
        key: if core.config.order_by_key { new.key } else { 0 },
        lease_ends: 0,
        rewritten: false,
        batch: pending.batch,
        state: SlotState::Ready,
    };
    core.insert_new(sequence, slot);
}

/// Takes an event that is in memory out of the ready ones.
fn leave(core: &mut Core, sequence: u64, pending: &mut Pending) -> Slot {
    let slot = core.remove(sequence).expect("judged, or just seen");
    core.numbers.ready -= 1;
    core.numbers.ready_bytes -= slot.length;
    let key = keys::ready(core.numbers.id, sequence);
    if slot.rewritten {
        pending.delete(Space::Queues, key);
    } else {
        pending.delete_once(Space::Queues, key);
    }
    slot
}

fn forget_dead(core: &mut Core, sequence: u64, bytes: u64, pending: &mut Pending) {
    core.numbers.dead -= 1;
    core.numbers.dead_bytes -= bytes;
    pending.delete_once(Space::Queues, keys::dead(core.numbers.id, sequence));
}

/// The same event, stored a second time under its key.
fn rewritten(value: &Slice, until: u64) -> Slice {
    let (head, body) = EventHead::split(value).expect("just encoded");
    record::with_head(&EventHead { rewritten: true, since: Some(until), ..head }, body)
}

/// The same event, ready since then. Damaged bytes stay as they are, to be named when they are read.
pub fn with_since(value: &Slice, since: u64) -> Slice {
    match EventHead::split(value) {
        Some((head, body)) => record::with_head(&EventHead { since: Some(since), ..head }, body),
        None => value.clone(),
    }
}

/// Puts the numbers of all queues that changed into the batch.
pub fn write_numbers(pending: &mut Pending) {
    for queue in pending.queues.clone() {
        let mut core = queue.core.lock();
        core.is_changed = false;
        core.ids_applying = std::mem::take(&mut core.ids);
        if core.is_removed {
            pending.delete(Space::Queues, keys::numbers(&queue.name));
            let mut last_id = Vec::new();
            super::varint::put(&mut last_id, u64::from(queue.last_id.load(Ordering::Relaxed)));
            pending.put(Space::Queues, keys::LAST_ID.into(), last_id.into());
            continue;
        }
        core.numbers.head = core.head();
        core.numbers.time = core.clock.time();
        pending.put(Space::Queues, keys::numbers(&queue.name), core.numbers.encode());
    }
}
