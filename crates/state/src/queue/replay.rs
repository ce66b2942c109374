//! Puts dead letters back into their queue: named ones or all, as they are or with other data.

use super::Queue;
use super::apply::{New, Op};
use super::keys;
use super::record::{self, EventHead};
use super::steps::{STEP_BYTES, STEP_EVENTS};
use crate::Ticket;
use event::{ATTRIBUTES_MAX, Event};
use fjall::{Readable, Slice};
use problem::Problem;
use std::ops::ControlFlow;

/// The attribute that counts how often an event was replayed.
pub const REPLAYS: &str = "replays";

/// Which dead letters go back, and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct Replay<'a> {
    /// These; none: all.
    pub sequences: Option<&'a [u64]>,
    /// Only those that died for a reason with this text in it.
    pub reason: Option<&'a str>,
    /// Data in place of their own.
    pub data: Option<&'a [u8]>,
    /// Counts each replay in the attribute [`REPLAYS`] of its event, and lets those stay that were replayed so often.
    pub replays_max: Option<u32>,
    /// Only looks.
    pub dry_run: bool,
}

/// What became of the dead letters that were wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replayed {
    pub replayed: u64,
    /// Replayed too often before: they are dead letters still.
    pub stayed: u64,
}

/// Which letters one step looks at.
pub(super) enum Letters<'a> {
    Named(&'a [u64]),
    /// All from the first to before the second.
    From(u64, u64),
}

/// A step that found letters.
pub(super) struct Step {
    pub ticket: Ticket,
    /// Where the next one begins.
    pub next: u64,
    /// How many of those named it has looked at.
    pub looked: usize,
}

/// Dead letters, and how many of those named were looked at to find them.
pub(super) struct Found {
    pub letters: Vec<(u64, Slice)>,
    pub looked: usize,
}

impl Queue {
    /// As [`Queue::replay_with`], without a count: those named, or all.
    ///
    /// # Errors
    /// The same.
    pub async fn replay(&self, sequences: Option<&[u64]>, now_ms: u64) -> Result<u64, Problem> {
        let replay = Replay { sequences, ..Replay::default() };
        Ok(self.replay_with(replay, now_ms).await?.replayed)
    }

    /// Dead letters go back to the end of the queue, tries counted from 1 again. Durable when it returns.
    ///
    /// # Errors
    /// `QueueFull` when not one more fits; those before are back already.
    pub async fn replay_with(&self, replay: Replay<'_>, now_ms: u64) -> Result<Replayed, Problem> {
        let mut all = Replayed::default();
        self.in_steps(replay.sequences, |wanted| self.replay_step(wanted, replay, now_ms, &mut all)).await?;
        Ok(all)
    }

    /// Goes through the dead letters that are named, or all, one bounded step after the other. What the steps did is
    /// durable when it returns.
    pub(super) async fn in_steps(
        &self,
        sequences: Option<&[u64]>,
        mut step: impl FnMut(&Letters<'_>) -> Result<Option<Step>, Problem>,
    ) -> Result<(), Problem> {
        // Letters that die again meanwhile are not replayed for ever.
        let tail = self.shared.core.lock().numbers.tail;
        let (mut named, mut from) = (sequences, 0);
        loop {
            let wanted = match named {
                Some([]) => break,
                Some(rest) => Letters::Named(&rest[..rest.len().min(STEP_EVENTS)]),
                None => Letters::From(from, tail),
            };
            let looked = match step(&wanted)? {
                Some(Step { ticket, next, looked }) => {
                    from = next;
                    // As with purging.
                    self.state.durable(ticket).await?;
                    looked
                }
                None if named.is_none() => break,
                None => STEP_EVENTS,
            };
            named = named.map(|rest| &rest[looked.min(rest.len())..]);
        }
        self.state.durable_all().await
    }

    fn replay_step(
        &self,
        wanted: &Letters<'_>,
        replay: Replay<'_>,
        now_ms: u64,
        all: &mut Replayed,
    ) -> Result<Option<Step>, Problem> {
        let _disk = self.shared.disk.lock();
        let (id, dead_head, time, ttl, ordered) = {
            let mut core = self.shared.core.lock();
            let time = core.clock.observe(now_ms);
            (core.numbers.id, core.numbers.dead_head, time, core.config.ttl, core.config.order_by_key)
        };
        let each = replay.data.map_or(0, <[u8]>::len);
        let Found { letters, looked } = self.dead_letters(wanted, id, dead_head, each)?;
        let Some((last, _)) = letters.last() else { return Ok(None) };
        let next = last + 1;
        let expires = ttl.map(|ttl| time.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)));
        let (mut events, mut stayed) = (Vec::new(), 0);
        for (sequence, value) in letters {
            let (head, mut event) =
                record::decode(&value).ok_or_else(|| self.corrupt(&format!("dead letter {sequence}")))?;
            if !died_of(&head, replay.reason) {
                continue;
            }
            if !replay.may_change(&mut event) {
                stayed += 1;
                continue;
            }
            let head = EventHead { pushed_ms: head.pushed_ms, expires, ..EventHead::default() };
            let new = New {
                value: record::encode(&head, &event),
                since_ms: now_ms,
                expires: expires.unwrap_or(u64::MAX),
                key: if ordered { record::key_of(&event) } else { 0 },
                due: 0,
                id: None,
            };
            events.push((sequence, value.len() as u64, new));
        }
        all.replayed += events.len() as u64;
        all.stayed += stayed;
        let ticket = match replay.dry_run || events.is_empty() {
            true => Ticket::NOTHING_WRITTEN,
            false => self.commit(vec![Op::Replay(events)])?,
        };
        Ok(Some(Step { ticket, next, looked }))
    }

    /// As many as one step takes: bytes count too, and each letter has `each` at least, because of what is made of it.
    pub(super) fn dead_letters(
        &self,
        wanted: &Letters<'_>,
        id: u32,
        dead_head: u64,
        each: usize,
    ) -> Result<Found, Problem> {
        let (mut found, mut looked, mut bytes): (Vec<(u64, Slice)>, _, _) = (Vec::new(), 0, 0);
        match *wanted {
            Letters::Named(sequences) => {
                let snapshot = self.state.inner.engine.snapshot();
                for sequence in sequences {
                    if bytes > STEP_BYTES {
                        break;
                    }
                    looked += 1;
                    let key = keys::dead(id, *sequence);
                    let value =
                        snapshot.get(&self.state.inner.engine.queues, key).map_err(|error| self.read_failed(&error))?;
                    if let Some(value) = value.filter(|_| found.iter().all(|(known, _)| known != sequence)) {
                        bytes += value.len().max(each);
                        found.push((*sequence, value));
                    }
                }
            }
            Letters::From(from, until) => {
                self.scan(keys::dead(id, from.max(dead_head)), keys::dead(id, until), |key, value| {
                    bytes += value.len().max(each);
                    found.push((keys::sequence_of(key).ok_or_else(|| self.corrupt("a key"))?, value));
                    let is_full = found.len() == STEP_EVENTS || bytes > STEP_BYTES;
                    Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                })?;
            }
        }
        Ok(Found { letters: found, looked })
    }
}

/// Whether the letter died for a reason with this text in it; without one, any does.
pub fn died_of(head: &EventHead, text: Option<&str>) -> bool {
    text.is_none_or(|text| head.reason.as_deref().is_some_and(|reason| reason.contains(text)))
}

impl Replay<'_> {
    /// Makes of the event what goes back; false if it has to stay.
    fn may_change(&self, event: &mut Event) -> bool {
        if let Some(most) = self.replays_max {
            let before = event.attribute(REPLAYS).and_then(|text| text.parse().ok()).unwrap_or(0_u32);
            if before >= most {
                return false;
            }
            let count = before.saturating_add(1).to_string();
            let is_full = event.attributes.len() >= ATTRIBUTES_MAX;
            match event.attributes.iter_mut().find(|(name, _)| name == REPLAYS) {
                Some((_, value)) => *value = count,
                // One that has no room for it is not counted.
                None if is_full => {}
                None => event.attributes.push((REPLAYS.to_owned(), count)),
            }
        }
        if let Some(data) = self.data {
            event.data = data.to_vec();
        }
        true
    }
}
