//! The units of one function: spares made ahead of need, those kept for reuse, and who waits for one.
//!
//! ```text
//!   take ──▶ a kept one? ─▶ a spare? ─▶ wait for the next one that is made or kept
//!   keep ◀── used again                             missing ──▶ the class makes so many ──▶ came
//!   sweep ──▶ those that wait for too long
//! ```
//! Who is at work is what the roster says: a call that is given up in its middle gives its place back by itself.
//!
//! What is to be made now is a pure decision on plain numbers. Making one is the class's own: forking a process,
//! starting a machine. There is one lock, and it is held for the bookkeeping alone: units are made, looked at and
//! dropped outside of it.

mod restless;

use crate::{Roster, RosterEntry};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use unit::UnitStatus;

/// A unit that can wait for its call.
pub trait Spare: Send {
    /// Its number in logs and in the roster.
    fn number(&self) -> u64;

    /// Whether it can still take a call. Asked of one that has waited.
    fn is_there(&mut self) -> bool {
        true
    }

    /// Whether it has done next to nothing while it waited. Asked now and then of one that waits.
    fn rests(&mut self, now: Instant) -> bool {
        let _ = now;
        true
    }
}

/// How many units there are and are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ready for work.
    pub spares: u32,
    /// Being made.
    pub coming: u32,
    /// At work.
    pub busy: u32,
    /// Calls without a unit.
    pub waiting: u32,
    /// The most at work at once of late.
    pub peak: u32,
    /// One is used for a single call: each call wants a fresh one after it.
    pub are_fresh: bool,
}

impl Counts {
    /// How many to begin making. `in_call`: a call has just begun, and making one beside it would take its core.
    pub fn to_make(&self, in_call: bool, spares: &Spares) -> u32 {
        let have = self.spares + self.coming;
        let needed = self.needed();
        let spares = spares.wanted(self.peak, self.are_fresh);
        // With a spare left the next call has one, and this one need not share its core.
        if in_call && have > 0 {
            return needed;
        }
        needed.max((self.waiting + spares).saturating_sub(have))
    }

    /// How many to begin making at once: those for which calls wait.
    fn needed(&self) -> u32 {
        self.waiting.saturating_sub(self.spares + self.coming)
    }

    /// Whether one that could be made anew at once would find its place: among the spares, and beside them among as
    /// many as were at work at once of late. Where calls come as fast as they go, those that have just gone come again.
    fn has_room(&self, spares: &Spares) -> bool {
        let place = spares.wanted(self.peak, true) + self.peak.saturating_sub(self.busy);
        self.spares + self.coming < place + self.waiting
    }
}

/// How many spares there are while a function is in use: the fewest, and the most, as many as were at work at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spares {
    pub min: u32,
    pub max: u32,
    /// So many there are always, whether it is in use or not.
    pub warm: u32,
}

impl Spares {
    /// Units are made when they are needed.
    pub const NONE: Self = Self::new(0, 0);

    pub const fn new(min: u32, max: u32) -> Self {
        Self { min, max, warm: 0 }
    }

    /// The same with so many that are always there.
    pub fn with_warm(self, warm: u32) -> Self {
        Self { warm, ..self }
    }

    /// The most there ever are without a call.
    pub fn most(&self) -> u32 {
        self.max.max(self.warm)
    }

    /// One that is used again leaves few calls without: then a single spare will do.
    fn wanted(&self, peak: u32, are_fresh: bool) -> u32 {
        let of_late = if are_fresh { peak.max(self.min).min(self.max) } else { self.max.min(1) };
        of_late.max(self.warm)
    }
}

/// The units of one function that are at nobody's service, and the calls without one.
pub struct Pool<T> {
    shelf: Mutex<Shelf<T>>,
    roster: Arc<Roster>,
    /// A unit is used for a single call.
    are_fresh: bool,
    spares: Spares,
    kept_max: usize,
}

struct Shelf<T> {
    spares: VecDeque<T>,
    /// Waiting to be used again, the most recently used last.
    kept: Vec<Kept<T>>,
    waiting: VecDeque<oneshot::Sender<Result<Handed<T>, Problem>>>,
    coming: u32,
    peak: u32,
    used: Option<Instant>,
}

struct Kept<T> {
    unit: T,
    entry: RosterEntry,
    since: Instant,
}

/// A unit for a call that waited, with its place in the roster if it has served before.
type Handed<T> = (T, Option<RosterEntry>);

/// A unit for a call.
pub enum Taken<T> {
    /// It has served calls before.
    Again(T, RosterEntry),
    Fresh(T, RosterEntry),
    Later(oneshot::Receiver<Result<Handed<T>, Problem>>),
}

impl<T: Spare> Pool<T> {
    /// `reuse_calls`: how many calls a unit serves. `spares`: how many fresh ones wait, `kept_max`: how many used.
    pub fn new(reuse_calls: u32, spares: Spares, kept_max: usize) -> Self {
        let (waiting_spares, kept, waiting) = Default::default();
        let shelf = Shelf { spares: waiting_spares, kept, waiting, coming: 0, peak: 0, used: None };
        let roster = Arc::default();
        Self { shelf: Mutex::new(shelf), roster, are_fresh: reuse_calls == 1, spares, kept_max }
    }

    /// The units that exist now, but for spares.
    pub fn units(&self) -> Vec<UnitStatus> {
        self.roster.units()
    }

    /// A place in the roster for a unit that begins its first call.
    pub fn enter(&self, number: u64, request_id: &Arc<str>) -> RosterEntry {
        Roster::enter(&self.roster, number, request_id.clone())
    }

    /// A unit that is used again, if one waits for that.
    pub fn again(&self, request_id: &Arc<str>) -> Option<(T, RosterEntry)> {
        loop {
            let Kept { mut unit, entry, .. } = self.shelf.lock().kept.pop()?;
            if unit.is_there() {
                entry.serves(Some(request_id.clone()));
                return Some((unit, entry));
            }
        }
    }

    /// A unit for one call: one kept for reuse, a spare, or the next one that is made or kept. The class then makes
    /// what is [missing](Self::missing).
    pub fn take(&self, request_id: &Arc<str>) -> Taken<T> {
        loop {
            if let Some((unit, entry)) = self.again(request_id) {
                self.begins();
                return Taken::Again(unit, entry);
            }
            let spare = {
                let mut shelf = self.shelf.lock();
                let spare = shelf.spares.pop_front();
                // One may have been kept meanwhile.
                if spare.is_none() && shelf.kept.is_empty() {
                    let (sender, receiver) = oneshot::channel();
                    shelf.used = Some(Instant::now());
                    shelf.waiting.push_back(sender);
                    return Taken::Later(receiver);
                }
                spare
            };
            if let Some(mut unit) = spare
                && unit.is_there()
            {
                let entry = self.enter(unit.number(), request_id);
                self.begins();
                return Taken::Fresh(unit, entry);
            }
        }
    }

    /// Waits for one that is made or kept, if none was there.
    ///
    /// # Errors
    /// There can be none.
    pub async fn wait(&self, taken: Taken<T>, request_id: &Arc<str>) -> Result<(T, RosterEntry), Problem> {
        let waits = match taken {
            Taken::Again(unit, entry) | Taken::Fresh(unit, entry) => return Ok((unit, entry)),
            Taken::Later(waits) => waits,
        };
        let handed = waits.await.map_err(|_| Problem::new(Code::Internal, "nobody makes a unit any more"))?;
        let (unit, entry) = handed?;
        let entry = match entry {
            Some(entry) => {
                entry.serves(Some(request_id.clone()));
                entry
            }
            None => self.enter(unit.number(), request_id),
        };
        self.begins();
        Ok((unit, entry))
    }

    /// Keeps a unit for its next call: that which waits longest, or one that comes. Ends it where enough are kept, or
    /// where it can take no call any more.
    pub fn keep(&self, mut unit: T, entry: RosterEntry) {
        entry.serves(None);
        if !unit.is_there() {
            return;
        }
        let mut shelf = self.shelf.lock();
        let Some(kept) = shelf.hand_again(Kept { unit, entry, since: Instant::now() }) else { return };
        if shelf.kept.len() < self.kept_max {
            shelf.kept.push(kept);
            return;
        }
        drop(shelf);
        drop(kept);
    }

    /// Since when the one waits that has waited longest to be used again.
    pub fn idle_since(&self) -> Option<Instant> {
        self.shelf.lock().kept.iter().map(|kept| kept.since).min()
    }

    /// Ends that one. False if there is none any more.
    pub fn end_idle(&self) -> bool {
        let mut shelf = self.shelf.lock();
        let oldest = (0..shelf.kept.len()).min_by_key(|index| shelf.kept[*index].since);
        let oldest = oldest.map(|index| shelf.kept.remove(index));
        drop(shelf);
        oldest.is_some()
    }

    /// A unit that nobody has used, after all: it is the next call's.
    pub fn give_back(&self, unit: T) {
        let mut shelf = self.shelf.lock();
        if let Some((unit, _)) = shelf.hand(unit, None) {
            shelf.spares.push_front(unit);
        }
    }

    /// A unit has gone to work.
    fn begins(&self) {
        let busy = self.roster.busy();
        let mut shelf = self.shelf.lock();
        shelf.used = Some(Instant::now());
        shelf.peak = shelf.peak.max(busy);
    }

    /// How many units to begin making now; each of them [comes](Self::came), or does not.
    pub fn missing(&self, in_call: bool) -> u32 {
        self.makes(|counts| counts.to_make(in_call, &self.spares))
    }

    /// The same of those for which calls wait, and none ahead of need.
    pub fn missing_now(&self) -> u32 {
        self.makes(Counts::needed)
    }

    /// Whether there are any to make.
    pub fn is_missing(&self, in_call: bool) -> bool {
        self.shelf.lock().counts(self.roster.busy(), self.are_fresh).to_make(in_call, &self.spares) > 0
    }

    fn makes(&self, count: impl Fn(&Counts) -> u32) -> u32 {
        let mut shelf = self.shelf.lock();
        shelf.waiting.retain(|waiting| !waiting.is_closed());
        let missing = count(&shelf.counts(self.roster.busy(), self.are_fresh));
        shelf.coming += missing;
        missing
    }

    /// Whether a unit that is made anew now is wanted; then it is on its way.
    pub fn wants_one(&self) -> bool {
        let mut shelf = self.shelf.lock();
        let is_wanted = shelf.counts(self.roster.busy(), self.are_fresh).has_room(&self.spares);
        shelf.coming += u32::from(is_wanted);
        is_wanted
    }

    /// One that was on its way is there, and goes to the call that waits longest, or is a spare. Or it cannot be made:
    /// every call that waits is told why. None: it got lost.
    pub fn came(&self, made: Option<Result<T, Problem>>) {
        let mut shelf = self.shelf.lock();
        shelf.coming = shelf.coming.saturating_sub(1);
        match made {
            Some(Ok(unit)) => shelf.give(unit),
            Some(Err(problem)) => {
                let waiting = std::mem::take(&mut shelf.waiting);
                drop(shelf);
                waiting.into_iter().for_each(|waiting| _ = waiting.send(Err(problem.clone())));
            }
            None => {}
        }
    }

    /// Ends units that waited longer than `kept_idle`, spares beyond those that the calls of late need, and all
    /// spares but the warm ones if no call came for `spares_idle`; with `all`, whatever waits. Says whether all went.
    pub fn sweep(&self, now: Instant, all: bool, kept_idle: Duration, spares_idle: Duration) -> bool {
        let busy = self.roster.busy();
        let mut shelf = self.shelf.lock();
        // The peak since the last sweep: what a spike has left goes one sweep later.
        let peak = std::mem::replace(&mut shelf.peak, busy);
        let since_use = shelf.used.map(|used| now.saturating_duration_since(used));
        let is_idle = all || (busy == 0 && since_use.is_none_or(|since| since > spares_idle));
        let (stay, go): (Vec<_>, Vec<_>) = std::mem::take(&mut shelf.kept)
            .into_iter()
            .partition(|kept| !all && now.saturating_duration_since(kept.since) < kept_idle);
        shelf.kept = stay;
        let stays = match (all, is_idle) {
            (true, _) => 0,
            (false, true) => self.spares.warm as usize,
            (false, false) => self.spares.wanted(peak, self.are_fresh) as usize,
        };
        let spares = shelf.spares.len().saturating_sub(stays);
        let spares: VecDeque<T> = shelf.spares.drain(..spares).collect();
        drop(shelf);
        drop((go, spares));
        is_idle && stays == 0
    }

    /// Lets go of units that can take no call any more.
    pub fn forget_gone(&self) {
        let (mut spares, mut kept) = {
            let mut shelf = self.shelf.lock();
            (std::mem::take(&mut shelf.spares), std::mem::take(&mut shelf.kept))
        };
        spares.retain_mut(Spare::is_there);
        kept.retain_mut(|kept| kept.unit.is_there());
        let mut shelf = self.shelf.lock();
        // A call may have come meanwhile, and found none.
        spares.into_iter().for_each(|spare| shelf.give(spare));
        for kept in kept {
            let kept = shelf.hand_again(kept);
            shelf.kept.extend(kept);
        }
    }
}

impl<T> Shelf<T> {
    fn counts(&self, busy: u32, are_fresh: bool) -> Counts {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Counts {
            spares: number(self.spares.len()),
            coming: self.coming,
            busy,
            waiting: number(self.waiting.len()),
            peak: self.peak,
            are_fresh,
        }
    }

    /// A fresh one to the call that waits longest and still waits, or else to the spares.
    fn give(&mut self, unit: T) {
        let spare = self.hand(unit, None);
        self.spares.extend(spare.map(|(unit, _)| unit));
    }

    /// One that has served to the call that waits longest and still waits; back where there is none.
    fn hand_again(&mut self, Kept { unit, entry, since }: Kept<T>) -> Option<Kept<T>> {
        let (unit, entry) = self.hand(unit, Some(entry))?;
        Some(Kept { unit, entry: entry?, since })
    }

    fn hand(&mut self, unit: T, entry: Option<RosterEntry>) -> Option<Handed<T>> {
        let mut handed = (unit, entry);
        while let Some(waiting) = self.waiting.pop_front() {
            match waiting.send(Ok(handed)) {
                Ok(()) => return None,
                Err(Ok(back)) => handed = back,
                Err(Err(_)) => unreachable!("a unit was sent"),
            }
        }
        Some(handed)
    }
}

#[cfg(test)]
mod tests;
