//! What is done with events on disk, a bounded number at a time: reading on, moving what is due, dropping, listing.

use super::apply::Op;
use super::core::{Core, SWEEP_PERIOD_MS, Slot, SlotState, Taken, WINDOW_BYTES, WINDOW_EVENTS};
use super::keys;
use super::record::{self, EventHead};
use super::varint::Reader;
use super::{Listed, Part, Position, Queue};
use crate::damage;
use crate::page::{LIMIT_MAX, PAGE_BYTES_MAX};
use crate::{CommitError, Ticket};
use fjall::{Readable, Slice};
use problem::Problem;
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Events one step moves or removes.
pub const STEP_EVENTS: usize = 512;
/// And their bytes.
pub const STEP_BYTES: usize = 1 << 20;
/// Steps of each kind at one time.
const TICK_STEPS: usize = 8;

impl Queue {
    /// Reads on into memory.
    pub(super) fn refill(&self) -> Result<(), Problem> {
        // In the common case there is nothing to do, and nobody to wait for.
        if self.shared.core.lock().refill_from().is_none() {
            return Ok(());
        }
        let _disk = self.shared.disk.lock();
        let (id, from, tail, ordered, expected) = {
            let core = self.shared.core.lock();
            let Some(from) = core.refill_from() else { return Ok(()) };
            (core.numbers.id, from, core.numbers.tail, core.config.order_by_key, core.on_disk_only())
        };
        let (mut read, mut bytes, mut is_whole) = (Vec::new(), 0, true);
        self.scan(keys::ready(id, from), keys::ready_end(id), |key, value| {
            let sequence = keys::sequence_of(key).ok_or_else(|| self.corrupt("a key"))?;
            if read.len() == WINDOW_EVENTS || (bytes > 0 && bytes + value.len() > WINDOW_BYTES) {
                is_whole = false;
                return Ok(ControlFlow::Break(()));
            }
            bytes += value.len();
            read.push((sequence, value));
            Ok(ControlFlow::Continue(()))
        })?;
        // Of what was read, some may have been committed a moment ago.
        let batch = self.state.inner.engine.newest();
        let slots: Vec<_> =
            read.into_iter().map(|(sequence, value)| (sequence, slot_of(value, ordered, batch))).collect();
        let found = slots.iter().filter(|(sequence, _)| *sequence < tail).count() as u64;
        let mut core = self.shared.core.lock();
        if is_whole {
            core.miss(expected.saturating_sub(found));
        }
        let reached = slots.last().map_or(from, |(sequence, _)| sequence + 1);
        for (sequence, mut slot) in slots {
            if let SlotState::Held { until } = slot.state {
                slot.since_ms = core.clock.node_time(until);
                if until <= core.clock.time() {
                    slot.state = SlotState::Ready;
                }
            }
            core.insert(sequence, slot);
        }
        core.set_cursor(if is_whole { reached.max(tail) } else { reached });
        Ok(())
    }

    /// Reads the bytes of an event that waited for others of its key.
    pub(super) fn read_again(&self, sequence: u64) -> Result<(), Problem> {
        let id = self.shared.core.lock().numbers.id;
        let engine = &self.state.inner.engine;
        let stored = engine.snapshot().get(&engine.queues, keys::ready(id, sequence));
        match stored.map_err(|error| self.read_failed(&error))? {
            Some(value) => self.shared.core.lock().fill(sequence, value),
            // Purged meanwhile; or damage, which is named then.
            None => self.shared.core.lock().fill(sequence, Slice::default()),
        }
        Ok(())
    }

    /// Moves events whose life is over to the dead letters.
    pub(super) fn expire(&self, expired: Vec<Taken>) -> Result<(), Problem> {
        if expired.is_empty() {
            return Ok(());
        }
        let died_ms = Some(self.shared.core.lock().clock.seen_ms());
        let die = |taken: &Taken| {
            let dead = EventHead::split(&taken.value).map(|(head, body)| {
                let head =
                    EventHead { died_ms, reason: Some("expired".to_owned()), since: None, rewritten: false, ..head };
                record::with_head(&head, body)
            });
            let lease = super::LeaseId(taken.lease);
            Op::Die { sequence: taken.sequence, lease, value: dead, is_expired: true }
        };
        let Err(error) = self.commit(expired.iter().map(die).collect()) else {
            return self.trim_dead().map(|_| ());
        };
        expired.iter().for_each(|taken| self.shared.release(super::LeaseId(taken.lease)));
        match error {
            // One of them was in the middle of something else; they are looked at again.
            CommitError::LeaseLost => Ok(()),
            error => Err(error.into()),
        }
    }

    /// Moves delayed events that are due to the end of the ready ones. Says whether there are more.
    pub(super) fn move_due(&self) -> Result<bool, Problem> {
        for _ in 0..TICK_STEPS {
            let _disk = self.shared.disk.lock();
            let (id, time, from) = {
                let mut core = self.shared.core.lock();
                let numbers = &core.numbers;
                if numbers.delayed == 0 || numbers.due_floor > core.clock.time() {
                    return Ok(false);
                }
                let numbers = (numbers.id, core.clock.time(), numbers.due_floor);
                core.due_new = u64::MAX;
                numbers
            };
            let (mut due, mut bytes, mut next) = (Vec::new(), 0, None);
            self.scan(keys::delayed(id, from, 0), keys::delayed_end(id), |key, value| {
                let (at, sequence) = keys::due_of(key).ok_or_else(|| self.corrupt("a key"))?;
                if at > time || due.len() == STEP_EVENTS || bytes > STEP_BYTES {
                    next = Some(at);
                    return Ok(ControlFlow::Break(()));
                }
                bytes += value.len();
                due.push((at, sequence, value));
                Ok(ControlFlow::Continue(()))
            })?;
            let is_last = next.is_none_or(|next| next > time);
            if !due.is_empty() {
                let _nobody_waits = self.commit(vec![Op::Due(due)])?;
            }
            {
                let mut core = self.shared.core.lock();
                core.numbers.due_floor = next.unwrap_or(u64::MAX).min(core.due_new);
            }
            if is_last {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Drops the oldest dead letters beyond the bound. Says whether there are more.
    pub(super) fn trim_dead(&self) -> Result<bool, Problem> {
        let too_many = |core: &Core| core.numbers.dead > core.config.dead_letters_max;
        for _ in 0..TICK_STEPS {
            if !too_many(&self.shared.core.lock()) {
                return Ok(false);
            }
            let _disk = self.shared.disk.lock();
            let (id, from, is_known) = {
                let core = self.shared.core.lock();
                (core.numbers.id, core.numbers.dead_head, !core.oldest_dead.is_empty())
            };
            if !is_known {
                let mut oldest = Vec::new();
                self.scan(keys::dead(id, from), keys::dead_end(id), |key, value| {
                    oldest.push((keys::sequence_of(key).ok_or_else(|| self.corrupt("a key"))?, value.len() as u64));
                    Ok(if oldest.len() == STEP_EVENTS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                })?;
                if oldest.is_empty() {
                    return Ok(false);
                }
                self.shared.core.lock().oldest_dead = oldest.into();
            }
            let _nobody_waits = self.commit(vec![Op::TrimDead])?;
        }
        Ok(too_many(&self.shared.core.lock()))
    }

    /// Forgets event ids whose time is over. Walks through all of them in turn; says whether it should go on at once.
    pub(super) fn forget_ids(&self) -> Result<bool, Problem> {
        let _disk = self.shared.disk.lock();
        let (id, time, from) = {
            let mut core = self.shared.core.lock();
            if core.numbers.ids == 0 || core.clock.time() < core.swept_at.saturating_add(SWEEP_PERIOD_MS) {
                return Ok(false);
            }
            // What is noted from now on may have an id that is found to be over.
            core.ids_since_look = Some(HashSet::new());
            (core.numbers.id, core.clock.time(), core.swept)
        };
        let (mut over, mut seen, mut next) = (Vec::new(), 0, [0; 16]);
        self.scan(keys::id_hash(id, &from), keys::id_hash_end(id), |key, value| {
            let hash = keys::id_hash_of(key).ok_or_else(|| self.corrupt("a key"))?;
            if seen == SWEEP_IDS {
                next = hash;
                return Ok(ControlFlow::Break(()));
            }
            seen += 1;
            let until = Reader(&value).number().ok_or_else(|| self.corrupt("a remembered event id"))?;
            if until <= time {
                over.push(hash);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let many = over.len() * 4 > seen && seen == SWEEP_IDS;
        if !over.is_empty() {
            let _nobody_waits = self.commit(vec![Op::ForgetIds(over)])?;
        }
        let mut core = self.shared.core.lock();
        core.ids_since_look = None;
        core.swept = next;
        if !many {
            core.swept_at = time;
        }
        Ok(many)
    }

    /// A page of at most `limit` (1 to 1,000), after this place.
    ///
    /// # Errors
    /// `StateCorrupt` names an event that cannot be read.
    pub fn list(&self, part: Part, after: Option<Position>, limit: u32) -> Result<Vec<Listed>, Problem> {
        crate::page::check_limit(limit)?;
        let (id, start, end) = {
            let core = self.shared.core.lock();
            let (id, numbers) = (core.numbers.id, &core.numbers);
            let next = after.map(|position| position.sequence.saturating_add(1));
            match part {
                Part::Ready => (id, keys::ready(id, core.head().max(next.unwrap_or(0))), keys::ready_end(id)),
                Part::Dead => (id, keys::dead(id, numbers.dead_head.max(next.unwrap_or(0))), keys::dead_end(id)),
                Part::Delayed => {
                    let due = after.map_or(numbers.due_floor, |position| position.due);
                    (id, keys::delayed(id, due, next.unwrap_or(0)), keys::delayed_end(id))
                }
            }
        };
        let (mut listed, mut bytes) = (Vec::new(), 0);
        self.scan(start, end, |key, value| {
            let (due, sequence) = match part {
                Part::Delayed => keys::due_of(key).ok_or_else(|| self.corrupt("a key"))?,
                _ => (0, keys::sequence_of(key).ok_or_else(|| self.corrupt("a key"))?),
            };
            let core = self.shared.core.lock();
            let is_leased =
                |core: &Core| matches!(core.slot(sequence).map(|slot| slot.state), Some(SlotState::Leased { .. }));
            if part == Part::Ready && is_leased(&core) {
                return Ok(ControlFlow::Continue(()));
            }
            let (head, mut event) = record::decode(&value)
                .ok_or_else(|| self.corrupt(&format!("event {sequence} ({part:?}, key {id})")))?;
            if part == Part::Dead {
                // No try comes next: it says how many there were.
                event.attempt = head.attempts;
            }
            let at_ms = match part {
                Part::Delayed => Some(core.clock.node_time(due)),
                Part::Dead => head.died_ms,
                Part::Ready => None,
            };
            bytes += value.len();
            let position = Position { due, sequence };
            let EventHead { pushed_ms, attempts, reason, .. } = head;
            listed.push(Listed { sequence, position, event, tries: attempts, pushed_ms, at_ms, reason });
            let is_full = listed.len() == limit.min(LIMIT_MAX) as usize || bytes > PAGE_BYTES_MAX;
            Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(listed)
    }

    /// Removes all events of these parts, in steps; leased ones stay. Says how many. Durable when it returns.
    pub async fn purge(&self, parts: &[Part]) -> Result<u64, Problem> {
        let mut purged = 0;
        for part in parts {
            let mut from = None;
            while let Some((ticket, count, next)) = self.purge_step(*part, from)? {
                (purged, from) = (purged + count, Some(next));
                // Else a large queue would fill the memory for what waits to be written.
                self.state.durable(ticket).await?;
            }
        }
        // Where there was nothing, others may have purged it just now.
        self.state.durable_all().await?;
        Ok(purged)
    }

    fn purge_step(&self, part: Part, from: Option<Position>) -> Result<Option<(Ticket, u64, Position)>, Problem> {
        let _disk = self.shared.disk.lock();
        let (start, end, before, unseen) = {
            let core = self.shared.core.lock();
            let unseen = core.unseen(part);
            let (id, next) = (core.numbers.id, from.map(|position| position.sequence.saturating_add(1)));
            let (start, end) = match part {
                Part::Ready => (keys::ready(id, next.unwrap_or(core.head())), keys::ready_end(id)),
                Part::Dead => (keys::dead(id, next.unwrap_or(core.numbers.dead_head)), keys::dead_end(id)),
                Part::Delayed => {
                    let due = from.map_or(core.numbers.due_floor, |position| position.due);
                    (keys::delayed(id, due, next.unwrap_or(0)), keys::delayed_end(id))
                }
            };
            (start, end, core.totals.purged, unseen)
        };
        let (mut sequences, mut delayed) = (Vec::new(), Vec::new());
        let mut last = None;
        self.scan(start, end, |key, value| {
            let (due, sequence) = match part {
                Part::Delayed => keys::due_of(key).ok_or_else(|| self.corrupt("a key"))?,
                _ => (0, keys::sequence_of(key).ok_or_else(|| self.corrupt("a key"))?),
            };
            last = Some(Position { due, sequence });
            match part {
                Part::Delayed => delayed.push((due, sequence, value.len() as u64)),
                _ => sequences.push((sequence, value.len() as u64)),
            }
            let is_full = sequences.len().max(delayed.len()) == STEP_EVENTS;
            Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        let Some(last) = last else {
            // All that can be read is gone. What is counted still stands in damaged places: it is forgotten unread.
            let (events, bytes) = unseen;
            if events == 0 {
                return Ok(None);
            }
            let ticket = self.commit(vec![Op::PurgeUnseen { part, events, bytes }])?;
            return Ok(Some((ticket, events, from.unwrap_or(Position { due: 0, sequence: 0 }))));
        };
        let op = match part {
            Part::Ready => Op::PurgeReady(sequences),
            Part::Delayed => Op::PurgeDelayed(delayed),
            Part::Dead => Op::PurgeDead(sequences),
        };
        let ticket = self.commit(vec![op])?;
        Ok(Some((ticket, self.shared.core.lock().totals.purged - before, last)))
    }

    /// Forgets queue and events. Leases on them are lost. A queue of this name can begin anew.
    pub async fn remove(&self) -> Result<(), Problem> {
        {
            let mut core = self.shared.core.lock();
            core.is_closed = true;
            core.drop_leases();
        }
        self.purge(&[Part::Ready, Part::Delayed, Part::Dead]).await?;
        while self.forget_all_ids()? {
            tokio::task::yield_now().await;
        }
        let ticket = self.commit(vec![Op::Remove])?;
        self.state.inner.queues.forget(&self.shared);
        self.state.durable(ticket).await
    }

    fn forget_all_ids(&self) -> Result<bool, Problem> {
        let _disk = self.shared.disk.lock();
        let id = self.shared.core.lock().numbers.id;
        let mut hashes = Vec::new();
        self.scan(keys::id_hash(id, &[0; 16]), keys::id_hash_end(id), |key, _| {
            hashes.push(keys::id_hash_of(key).ok_or_else(|| self.corrupt("a key"))?);
            Ok(if hashes.len() == STEP_EVENTS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        let found = !hashes.is_empty();
        if found {
            let _the_last_one_is_waited_for = self.commit(vec![Op::ForgetIds(hashes)])?;
        }
        Ok(found)
    }

    /// Walks through what is stored from `start` to before `end`, all commits until now included. Steps over damaged
    /// places of tables, and over nothing else.
    pub(super) fn scan(
        &self,
        start: Slice,
        end: Slice,
        mut visit: impl FnMut(&[u8], Slice) -> Result<ControlFlow<()>, Problem>,
    ) -> Result<(), Problem> {
        if start >= end {
            return Ok(());
        }
        let engine = &self.state.inner.engine;
        let (snapshot, mut start) = (engine.snapshot(), start);
        'part: loop {
            for guard in snapshot.range(&engine.queues, start.clone()..end.clone()) {
                let (key, value) = match guard.into_inner() {
                    Ok(stored) => stored,
                    Err(error) => {
                        let problem = self.read_failed(&error);
                        start = damage::behind(&error, &start).ok_or(problem)?.into();
                        if start >= end {
                            return Ok(());
                        }
                        continue 'part;
                    }
                };
                if visit(&key, value)?.is_break() {
                    return Ok(());
                }
            }
            return Ok(());
        }
    }
}

/// Ids one sweep looks at.
const SWEEP_IDS: usize = 4_096;

fn slot_of(value: Slice, ordered: bool, batch: u64) -> Slot {
    let head = EventHead::split(&value).map(|(head, _)| head);
    let key = if ordered { record::decode(&value).map_or(0, |(_, event)| record::key_of(&event)) } else { 0 };
    let state = match &head {
        // Reading it names the damage.
        None => SlotState::Ready,
        Some(head) => head.since.map_or(SlotState::Ready, |until| SlotState::Held { until }),
    };
    let head = head.unwrap_or_default();
    Slot {
        since_ms: head.pushed_ms,
        expires: head.expires.unwrap_or(u64::MAX),
        key,
        lease_ends: 0,
        rewritten: head.rewritten,
        batch,
        state,
        length: value.len() as u64,
        value: Some(value),
    }
}
