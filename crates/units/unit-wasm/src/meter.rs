//! What a call has used, shared between the unit (which may be deep in wasm code) and the future that polls it.

use crate::engine::SLICE;
use crate::patience::Stay;
use parking_lot::Mutex;
use problem::Code;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use unit::{Spent, Timing};
use unit_lines::Told;

pub struct Meter {
    /// When the unit was asked to start.
    pub began: Instant,
    /// When the call's wall time ends.
    pub deadline: Instant,
    /// Nanoseconds of CPU before the current poll.
    cpu_ns: AtomicU64,
    /// The clock when the current poll began.
    poll_began_ns: AtomicU64,
    /// Nanoseconds of the current poll when its thread looked last.
    seen_ns: AtomicU64,
    /// The thread's CPU time when the first slice of the current poll ended; 0 before it.
    slice_cpu_ns: AtomicU64,
    /// Nanoseconds the start took; 0 until there is a unit.
    start_ns: AtomicU64,
    /// Used up a slice on the threads everyone shares: is to move to the threads for hogs.
    pub hog: AtomicBool,
    /// Runs on the threads for hogs, where other threads may take the core: its clock is the thread's CPU time.
    moved: AtomicBool,
    /// Whether it may use more than a slice where it began.
    stay: Mutex<Stay>,
    /// The unit has failed; its end will tell how. Set before its side of a reply is dropped.
    pub failed: AtomicBool,
    pub memory_bytes: AtomicU64,
    /// The limit that was hit, as its code; 0 for none.
    exceeded: AtomicU64,
    /// Nanoseconds the work took; 0 while it goes on.
    ended_ns: AtomicU64,
    /// The way to the trap it ended with, on its way to the log.
    telling: Mutex<Option<Told>>,
}

impl Meter {
    pub fn new(deadline: Instant) -> Self {
        Self {
            began: Instant::now(),
            deadline,
            cpu_ns: AtomicU64::new(0),
            poll_began_ns: AtomicU64::new(0),
            seen_ns: AtomicU64::new(0),
            slice_cpu_ns: AtomicU64::new(0),
            start_ns: AtomicU64::new(0),
            hog: AtomicBool::new(false),
            moved: AtomicBool::new(false),
            stay: Mutex::default(),
            failed: AtomicBool::new(false),
            memory_bytes: AtomicU64::new(0),
            exceeded: AtomicU64::new(0),
            ended_ns: AtomicU64::new(0),
            telling: Mutex::new(None),
        }
    }

    pub fn poll_begins(&self) {
        self.seen_ns.store(0, Relaxed);
        self.poll_began_ns.store(self.clock_ns(Instant::now()), Relaxed);
        self.slice_cpu_ns.store(0, Relaxed);
    }

    /// To be asked when a slice ends: has this poll used a whole slice, or the call most of a core with polls that
    /// are all shorter?
    pub fn is_hog(&self, now: Instant) -> bool {
        // A poll that is long by the wall clock may only have waited, for its core or for a disk.
        let is_short = u128::from(self.this_poll_ns(now)) < 2 * SLICE.as_nanos();
        self.used_a_slice() || (is_short && self.is_busy(now))
    }

    /// Whether this poll has used a whole slice of CPU since its first one ended. On a busy machine slices also pass
    /// while the thread waits for its core, and a unit that waits is no hog.
    fn used_a_slice(&self) -> bool {
        let now = thread_cpu_ns();
        let first = self.slice_cpu_ns.load(Relaxed);
        if first == 0 {
            self.slice_cpu_ns.store(now, Relaxed);
            return false;
        }
        u128::from(now - first) >= SLICE.as_nanos()
    }

    /// Decides, when the call begins and when it ends, whether it may use more than a slice where it began.
    pub fn set_stay(&self, stay: Stay) {
        *self.stay.lock() = stay;
    }

    /// To be asked when a slice is used: whether the call goes on where it began.
    pub fn stays(&self) -> bool {
        self.stay.lock().goes_on(self.cpu())
    }

    /// Whether it has used most of a core since it began. A unit that gives way all the time, as one whose tasks take
    /// turns or that writes little by little, uses no whole slice in one poll, and is a hog all the same.
    pub fn is_busy(&self, now: Instant) -> bool {
        const SLICES_MIN: u32 = 8;
        let cpu = self.cpu_at(now);
        cpu > SLICE * SLICES_MIN && cpu * 2 > now.duration_since(self.began)
    }

    pub fn poll_ends(&self) {
        self.cpu_ns.fetch_add(self.used_ns(Instant::now()), Relaxed);
        self.poll_began_ns.store(0, Relaxed);
    }

    /// What this poll has used, now that it ends. On the shared threads nobody asks what it had used when its first
    /// slice ended, because that is a system call: on average it is half of one. Until then, and in all of a poll in
    /// which no slice of the unit's ended, its thread has waited if it took longer.
    fn used_ns(&self, now: Instant) -> u64 {
        const SLICE_NS: u64 = SLICE.as_nanos() as u64;
        let took = self.this_poll_ns(now);
        if self.has_moved() || took <= SLICE_NS {
            return took;
        }
        let since = match self.slice_cpu_ns.load(Relaxed) {
            0 => 0,
            first => thread_cpu_ns() - first,
        };
        took.min(SLICE_NS / 2 + since)
    }

    /// From now on polls happen on a thread that others may take the core from.
    pub fn moves(&self) {
        self.moved.store(true, Relaxed);
    }

    pub fn has_moved(&self) -> bool {
        self.moved.load(Relaxed)
    }

    /// CPU time used so far, whichever thread asks. Of a poll on a thread for hogs only that thread knows: it counts
    /// as far as it has [looked](Self::cpu_at).
    pub fn cpu(&self) -> Duration {
        let running = match (self.poll_began_ns.load(Relaxed), self.has_moved()) {
            (0, _) => 0,
            (_, false) => self.this_poll_ns(Instant::now()),
            (_, true) => self.seen_ns.load(Relaxed),
        };
        Duration::from_nanos(self.cpu_ns.load(Relaxed) + running)
    }

    /// The same to the moment, asked by the thread the unit runs on, which has just read the clock.
    pub fn cpu_at(&self, now: Instant) -> Duration {
        let running = if self.poll_began_ns.load(Relaxed) == 0 { 0 } else { self.this_poll_ns(now) };
        self.seen_ns.store(running, Relaxed);
        Duration::from_nanos(self.cpu_ns.load(Relaxed) + running)
    }

    fn this_poll_ns(&self, now: Instant) -> u64 {
        self.clock_ns(now).saturating_sub(self.poll_began_ns.load(Relaxed))
    }

    /// On the shared threads a poll lasts a slice or two, and wall time (cheap to read) stands for CPU time until it
    /// ends.
    fn clock_ns(&self, now: Instant) -> u64 {
        if self.has_moved() {
            thread_cpu_ns()
        } else {
            u64::try_from(now.duration_since(self.began).as_nanos()).unwrap_or(u64::MAX).max(1)
        }
    }

    pub fn started(&self) {
        self.start_ns.store(self.began.elapsed().as_nanos() as u64, Relaxed);
    }

    /// How long the start took; none while there is no unit yet.
    pub fn start(&self) -> Option<Duration> {
        Some(self.start_ns.load(Relaxed)).filter(|ns| *ns > 0).map(Duration::from_nanos)
    }

    pub fn ended(&self) {
        self.ended_ns.store(self.began.elapsed().as_nanos() as u64, Relaxed);
    }

    /// Since it began, until it ended if it has.
    pub fn total(&self) -> Duration {
        match self.ended_ns.load(Relaxed) {
            0 => self.began.elapsed(),
            ns => Duration::from_nanos(ns),
        }
    }

    pub fn tells(&self, told: Told) {
        *self.telling.lock() = Some(told);
    }

    pub fn take_telling(&self) -> Option<Told> {
        self.telling.lock().take()
    }

    pub fn exceed(&self, code: Code) {
        self.exceeded.store(code as u64, Relaxed);
    }

    /// What a start found no room for says nothing about the call: it is begun again, or came to be without that.
    pub fn forget_exceeded(&self) {
        self.exceeded.store(0, Relaxed);
    }

    pub fn exceeded(&self) -> Option<Code> {
        let number = self.exceeded.load(Relaxed);
        Code::ALL.iter().copied().find(|code| *code as u64 == number)
    }

    /// What was used until now, or until the work ended.
    pub fn spent(&self) -> Spent {
        let total = self.total();
        let start = self.start().unwrap_or(total);
        let timing = Timing { start, run: total.saturating_sub(start), stages: None };
        Spent { timing, cpu: self.cpu(), memory_bytes: self.memory_bytes.load(Relaxed) }
    }
}

fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {}
    }

    /// One that wrote a little after each 0.8 ms never moved, however long it ran: each of its polls was short.
    #[test]
    fn a_call_that_gives_way_within_each_slice_is_a_hog_in_time() {
        let meter = Meter::new(Instant::now() + Duration::from_secs(20));
        let is_hog = |_| {
            meter.poll_begins();
            spin(SLICE * 4 / 5);
            let is_hog = meter.is_hog(Instant::now());
            meter.poll_ends();
            is_hog
        };
        let turns = (0..200).map(is_hog).take_while(|is_hog| !is_hog).count();
        assert!(turns < 100, "{turns}");
    }

    /// On a machine whose cores were taken, light functions became heavy, and their calls began on threads that
    /// starved.
    #[test]
    fn a_poll_that_waits_for_its_core_has_not_used_that_time() {
        let used = |poll: &dyn Fn(&Meter)| {
            let meter = Meter::new(Instant::now() + Duration::from_secs(20));
            meter.poll_begins();
            poll(&meter);
            meter.poll_ends();
            meter.cpu()
        };
        let waits = || std::thread::sleep(SLICE * 10);
        assert!(used(&|_| waits()) < SLICE);
        let after_a_slice = used(&|meter| {
            assert!(!meter.is_hog(Instant::now()));
            waits();
        });
        assert!(after_a_slice < SLICE, "{after_a_slice:?}");
        let works = used(&|meter| {
            meter.is_hog(Instant::now());
            spin(SLICE * 30);
        });
        assert!(works > SLICE * 2, "{works:?}");
    }

    /// Who asked from another thread, as one whose caller goes away does, got the difference of two threads' clocks.
    #[test]
    fn what_was_used_on_a_thread_for_hogs_is_the_same_for_all_who_ask() {
        let meter = Meter::new(Instant::now() + Duration::from_secs(20));
        meter.moves();
        spin(SLICE * 50);
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                meter.poll_begins();
                spin(SLICE);
                meter.cpu_at(Instant::now())
            });
            let seen = there.join().unwrap();
            assert!(seen > Duration::ZERO);
            assert_eq!(meter.cpu(), seen, "its poll has not ended");
        });
    }
}
