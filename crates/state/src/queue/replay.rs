//! Dead letters go back to their queue: those that are named or all, as they are or with other data.

use super::Queue;
use super::apply::{New, Op};
use super::keys;
use super::record::{self, EventHead};
use super::steps::STEP_EVENTS;
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
enum Wanted<'a> {
    Named(&'a [u64]),
    /// All from the first to before the second.
    From(u64, u64),
}

struct Step {
    ticket: Ticket,
    done: Replayed,
    /// Where the next one begins.
    next: u64,
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
        // Letters that die again meanwhile are not replayed for ever.
        let tail = self.shared.core.lock().numbers.tail;
        let mut named = replay.sequences.map(|sequences| sequences.chunks(STEP_EVENTS));
        let mut from = 0;
        loop {
            let wanted = match &mut named {
                Some(chunks) => match chunks.next() {
                    Some(chunk) => Wanted::Named(chunk),
                    None => break,
                },
                None => Wanted::From(from, tail),
            };
            match self.replay_step(&wanted, replay, now_ms)? {
                Some(Step { ticket, done, next }) => {
                    all.replayed += done.replayed;
                    all.stayed += done.stayed;
                    from = next;
                    // As with purging.
                    self.state.durable(ticket).await?;
                }
                None if named.is_none() => break,
                None => {}
            }
        }
        self.state.durable_all().await?;
        Ok(all)
    }

    fn replay_step(&self, wanted: &Wanted<'_>, replay: Replay<'_>, now_ms: u64) -> Result<Option<Step>, Problem> {
        let _disk = self.shared.disk.lock();
        let (id, dead_head, time, ttl, ordered) = {
            let mut core = self.shared.core.lock();
            let time = core.clock.observe(now_ms);
            (core.numbers.id, core.numbers.dead_head, time, core.config.ttl, core.config.order_by_key)
        };
        let found = self.dead_letters(wanted, id, dead_head)?;
        let Some((last, _)) = found.last() else { return Ok(None) };
        let next = last + 1;
        let expires = ttl.map(|ttl| time.saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)));
        let (mut events, mut stayed) = (Vec::new(), 0);
        for (sequence, value) in found {
            let (head, mut event) =
                record::decode(&value).ok_or_else(|| self.corrupt(&format!("dead letter {sequence}")))?;
            if !replay.reason.is_none_or(|text| head.reason.as_deref().is_some_and(|reason| reason.contains(text))) {
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
        let done = Replayed { replayed: events.len() as u64, stayed };
        let ticket = match replay.dry_run || events.is_empty() {
            true => Ticket::NOTHING_WRITTEN,
            false => self.commit(vec![Op::Replay(events)])?,
        };
        Ok(Some(Step { ticket, done, next }))
    }

    fn dead_letters(&self, wanted: &Wanted<'_>, id: u32, dead_head: u64) -> Result<Vec<(u64, Slice)>, Problem> {
        let mut found: Vec<(u64, Slice)> = Vec::new();
        match *wanted {
            Wanted::Named(sequences) => {
                let snapshot = self.state.inner.engine.snapshot();
                for sequence in sequences {
                    let key = keys::dead(id, *sequence);
                    let value =
                        snapshot.get(&self.state.inner.engine.queues, key).map_err(|error| self.read_failed(&error))?;
                    if let Some(value) = value.filter(|_| found.iter().all(|(known, _)| known != sequence)) {
                        found.push((*sequence, value));
                    }
                }
            }
            Wanted::From(from, until) => {
                self.scan(keys::dead(id, from.max(dead_head)), keys::dead(id, until), |key, value| {
                    found.push((keys::sequence_of(key).ok_or_else(|| self.corrupt("a key"))?, value));
                    Ok(if found.len() == STEP_EVENTS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                })?;
            }
        }
        Ok(found)
    }
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
