//! The units of one function: spares made ahead of need, those kept for reuse, and who waits for one.
//!
//! ```text
//!   take ──▶ a kept one? ─▶ a spare? ─▶ wait for the next one that is made
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
    waiting: VecDeque<oneshot::Sender<Result<T, Problem>>>,
    coming: u32,
    peak: u32,
    used: Option<Instant>,
}

struct Kept<T> {
    unit: T,
    entry: RosterEntry,
    since: Instant,
}

/// A unit for a call.
pub enum Taken<T> {
    /// It has served calls before.
    Again(T, RosterEntry),
    Fresh(T, RosterEntry),
    Later(oneshot::Receiver<Result<T, Problem>>),
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

    /// A unit for one call: one kept for reuse, a spare, or the next one that is made. The class then makes what is
    /// [missing](Self::missing).
    pub fn take(&self, request_id: &Arc<str>) -> Taken<T> {
        if let Some((unit, entry)) = self.again(request_id) {
            self.begins();
            return Taken::Again(unit, entry);
        }
        loop {
            let spare = {
                let mut shelf = self.shelf.lock();
                let spare = shelf.spares.pop_front();
                if spare.is_none() {
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

    /// Waits for one that is made, if none was there.
    ///
    /// # Errors
    /// There can be none.
    pub async fn wait(&self, taken: Taken<T>, request_id: &Arc<str>) -> Result<(T, RosterEntry), Problem> {
        let waits = match taken {
            Taken::Again(unit, entry) | Taken::Fresh(unit, entry) => return Ok((unit, entry)),
            Taken::Later(waits) => waits,
        };
        let unit = waits.await.map_err(|_| Problem::new(Code::Internal, "nobody makes a unit any more"))??;
        let entry = self.enter(unit.number(), request_id);
        self.begins();
        Ok((unit, entry))
    }

    /// Keeps a unit for its next call; ends it where enough are kept.
    pub fn keep(&self, unit: T, entry: RosterEntry) {
        entry.serves(None);
        let kept = Kept { unit, entry, since: Instant::now() };
        let mut shelf = self.shelf.lock();
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
        self.shelf.lock().spares.push_front(unit);
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
        shelf.kept.extend(kept);
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

    /// To the call that waits longest and still waits, or else to the spares.
    fn give(&mut self, mut unit: T) {
        while let Some(waiting) = self.waiting.pop_front() {
            match waiting.send(Ok(unit)) {
                Ok(()) => return,
                Err(Ok(back)) => unit = back,
                Err(Err(_)) => unreachable!("a unit was sent"),
            }
        }
        self.spares.push_back(unit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPARES: Spares = Spares::new(2, 8);

    fn counts() -> Counts {
        Counts { are_fresh: true, ..Counts::default() }
    }

    #[test]
    fn a_call_finds_a_spare_and_the_next_one_too() {
        assert_eq!(counts().to_make(false, &SPARES), 2);
        assert_eq!(Counts { spares: 2, ..counts() }.to_make(false, &SPARES), 0);
        assert_eq!(Counts { spares: 1, busy: 1, ..counts() }.to_make(true, &SPARES), 0, "not while the call runs");
        assert_eq!(Counts { spares: 0, busy: 2, ..counts() }.to_make(true, &SPARES), 2, "unless there is none left");
        assert_eq!(Counts { spares: 1, ..counts() }.to_make(false, &SPARES), 1);
    }

    #[test]
    fn a_burst_makes_units_for_all_who_wait_and_keeps_as_many_spares_as_it_may() {
        assert_eq!(Counts { waiting: 10, ..counts() }.to_make(true, &SPARES), 12);
        assert_eq!(Counts { waiting: 10, coming: 10, peak: 20, ..counts() }.to_make(true, &SPARES), 0);
        assert_eq!(Counts { peak: 20, ..counts() }.to_make(false, &SPARES), 8);
    }

    /// 32 callers in turn: half of their calls had ended, and what was made anew for them was ended beyond the eighth,
    /// to be made from nothing for the next calls a moment later.
    #[test]
    fn what_was_at_work_a_moment_ago_is_kept_for_the_calls_that_come_again() {
        let of_late = Counts { peak: 32, ..counts() };
        for (busy, places) in [(0, 40), (16, 24), (31, 9), (32, 8)] {
            assert!(Counts { busy, spares: places - 1, ..of_late }.has_room(&SPARES));
            assert!(!Counts { busy, spares: places, ..of_late }.has_room(&SPARES));
            assert!(Counts { busy, spares: places, waiting: 1, ..of_late }.has_room(&SPARES));
        }
        // One call after another: two wait, and the one that is made anew.
        assert!(!Counts { peak: 1, spares: 3, ..counts() }.has_room(&SPARES));
    }

    struct Unit {
        number: u64,
        is_there: bool,
    }

    impl Spare for Unit {
        fn number(&self) -> u64 {
            self.number
        }

        fn is_there(&mut self) -> bool {
            self.is_there
        }
    }

    fn unit(number: u64) -> Option<Result<Unit, Problem>> {
        Some(Ok(Unit { number, is_there: true }))
    }

    fn numbers(pool: &Pool<Unit>) -> Vec<u64> {
        pool.shelf.lock().spares.iter().map(|unit| unit.number).collect()
    }

    #[test]
    fn a_unit_goes_to_the_call_that_waits_longest_and_still_waits() {
        let (pool, id) = (Pool::new(1, SPARES, 8), "r".into());
        let waits = |pool: &Pool<Unit>| match pool.take(&id) {
            Taken::Later(waits) => waits,
            Taken::Again(..) | Taken::Fresh(..) => panic!("there is none"),
        };
        drop(waits(&pool));
        let (mut first, mut second) = (waits(&pool), waits(&pool));
        assert_eq!((pool.missing_now(), pool.missing_now()), (2, 0), "for those who still wait");
        assert!(pool.is_missing(false));
        assert_eq!((pool.missing(false), pool.is_missing(false)), (2, false), "and spares");
        pool.came(unit(1));
        assert_eq!(first.try_recv().unwrap().unwrap().number, 1);
        pool.came(Some(Err(Problem::new(Code::NodeFull, "no room"))));
        assert_eq!(second.try_recv().unwrap().err().unwrap().code, Code::NodeFull);
        pool.came(unit(2));
        pool.came(None);
        assert_eq!((numbers(&pool), pool.missing(true)), (vec![2], 0));
    }

    #[test]
    fn what_waits_is_used_in_its_order_and_what_is_gone_is_not() {
        let (pool, id) = (Pool::new(2, SPARES, 1), Arc::<str>::from("r"));
        (1..=3).for_each(|number| pool.came(unit(number)));
        pool.shelf.lock().spares[0].is_there = false;
        let Taken::Fresh(used, entry) = pool.take(&id) else { panic!("a spare waits") };
        assert_eq!((used.number, pool.units().len()), (2, 1));
        pool.keep(used, entry);
        assert!(matches!(pool.take(&id), Taken::Again(Unit { number: 2, .. }, _)));
        // Kept for a while, spares as long as calls come.
        let Taken::Fresh(used, entry) = pool.take(&id) else { panic!("a spare waits") };
        pool.keep(used, entry);
        let (now, minute) = (Instant::now(), Duration::from_secs(60));
        assert!(!pool.sweep(now, false, minute, minute) && pool.units().len() == 1);
        assert!(!pool.sweep(now + minute, false, minute / 2, minute * 2) && pool.units().is_empty());
        pool.came(unit(4));
        assert!(pool.sweep(now + minute * 3, false, minute, minute) && numbers(&pool).is_empty());
    }

    /// A function whose callers had gone away was never idle again, and had as many spares as there may be.
    #[test]
    fn a_call_that_is_given_up_in_its_middle_is_at_work_no_more() {
        let (pool, id) = (Pool::new(1, SPARES, 8), Arc::<str>::from("r"));
        let minute = Duration::from_secs(60);
        for number in 1..=3 {
            pool.came(unit(number));
            let Taken::Fresh(used, entry) = pool.take(&id) else { panic!("a spare waits") };
            assert!(!pool.sweep(Instant::now() + minute * 2, false, minute, minute), "it is at work");
            drop((used, entry));
        }
        assert_eq!((pool.roster.busy(), pool.missing(false)), (0, SPARES.min));
        assert!(pool.sweep(Instant::now() + minute * 2, false, minute, minute));
    }

    /// 200 calls at once, then one after the other: the units of the spike go, and so does the second spare of a class
    /// that wants one.
    #[test]
    fn what_a_spike_has_made_goes_after_it() {
        let spares = Spares::new(1, 6);
        let (pool, id) = (Pool::new(1, spares, 8), Arc::<str>::from("r"));
        let minute = Duration::from_secs(60);
        let waits: Vec<_> = (0..200).map(|_| pool.take(&id)).collect();
        assert_eq!(pool.missing(true), 201, "for each that waits, and one more");
        let mut at_work = Vec::new();
        for (number, taken) in waits.into_iter().enumerate() {
            pool.came(unit(number as u64));
            let Taken::Later(mut waits) = taken else { panic!("there was none") };
            let unit = waits.try_recv().unwrap().unwrap();
            at_work.push((pool.enter(unit.number, &id), unit));
            pool.begins();
        }
        at_work.clear();
        pool.came(unit(200));
        assert_eq!(pool.missing(false), 5, "the next spike finds some");
        (201..206).for_each(|number| pool.came(unit(number)));
        assert!(!pool.sweep(Instant::now(), false, minute, minute) && numbers(&pool).len() == 6);
        assert!(!pool.sweep(Instant::now(), false, minute, minute));
        assert_eq!((numbers(&pool), pool.missing(false)), (vec![205], 0));
    }

    #[test]
    fn warm_units_are_there_before_the_first_call_and_long_after_the_last() {
        let minute = Duration::from_secs(60);
        for reuse_calls in [1, 50] {
            let (pool, id) = (Pool::new(reuse_calls, SPARES.with_warm(3), 8), Arc::<str>::from("r"));
            assert_eq!(pool.missing(false), 3, "no call has come yet");
            (1..=3).for_each(|number| pool.came(unit(number)));
            assert!(!pool.sweep(Instant::now() + minute * 9, false, minute, minute), "some are to stay");
            assert_eq!((numbers(&pool), pool.missing(false)), (vec![1, 2, 3], 0));
            let Taken::Fresh(used, entry) = pool.take(&id) else { panic!("a spare waits") };
            drop((used, entry));
            assert_eq!(pool.missing(false), 1, "the one that was used is made again");
            pool.came(unit(4));
            // One of them has died.
            pool.shelf.lock().spares[1].is_there = false;
            pool.forget_gone();
            assert_eq!((numbers(&pool), pool.missing(false)), (vec![2, 4], 1));
            assert!(pool.sweep(Instant::now(), true, minute, minute) && numbers(&pool).is_empty(), "it was replaced");
        }
    }

    #[test]
    fn units_that_are_used_again_need_few_spares() {
        assert_eq!(Counts { peak: 5, are_fresh: false, ..counts() }.to_make(false, &SPARES), 1);
    }
}
