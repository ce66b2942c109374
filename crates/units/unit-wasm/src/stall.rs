//! Whether threads of the idle class get any CPU time at all.
//!
//! On a machine that is busy, with other programs or with short calls, a thread of the idle class may wait for seconds,
//! each time it wants a core. A unit that has begun there is stuck until then. So units do not even try unless a thread
//! of that class has just answered at once, and not for a while after a unit has found out by waiting.
//!
//! ```text
//!   ticker ── every 10 ms of calls ──▶ asks ──wakes──▶ a thread of the idle class, which answers
//! ```

use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// A wait of less is nothing unusual: hogs wait for each other, too.
pub const STALL_MIN: Duration = Duration::from_millis(20);

/// No question comes sooner after the one before.
const ASK_EVERY: Duration = Duration::from_millis(10);

/// An answer counts for so long.
const FRESH: Duration = Duration::from_millis(40);

/// It is remembered for this part of the time it took to find out, so that of all time it is mostly the idle class that
/// is tried, and for so long at most.
const PART: u32 = 2;
const REMEMBERED_MAX: Duration = Duration::from_secs(2);

/// Nothing is asked.
const ANSWERED: u64 = 0;

pub struct Stall {
    remembered: Mutex<Option<Instant>>,
    began: Instant,
    /// Nanoseconds from `began` to the question that waits for its answer.
    asked: AtomicU64,
    /// To the last question.
    last: AtomicU64,
    /// To the last prompt answer.
    answered: AtomicU64,
    thread: OnceLock<Thread>,
}

impl Stall {
    /// Starts the thread that answers; `enter` puts it into the idle class.
    pub fn start(enter: fn()) -> io::Result<Arc<Self>> {
        let stall = Arc::new(Self::new());
        let answering = Arc::downgrade(&stall);
        let handle = thread::Builder::new().name("lighter-idle".into()).spawn(move || {
            enter();
            while let Some(stall) = answering.upgrade() {
                stall.answer(Instant::now());
                drop(stall);
                thread::park();
            }
        })?;
        stall.thread.set(handle.thread().clone()).expect("set once, here");
        Ok(stall)
    }

    fn new() -> Self {
        Self {
            remembered: Mutex::default(),
            began: Instant::now(),
            asked: AtomicU64::new(ANSWERED),
            last: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            thread: OnceLock::new(),
        }
    }

    fn since_began(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX).max(ANSWERED + 1)
    }

    /// Asks, unless it has only just asked, or still waits.
    pub fn ask(&self, now: Instant) {
        let now = self.since_began(now);
        let is_due = now.saturating_sub(self.last.load(SeqCst)) >= ASK_EVERY.as_nanos() as u64;
        if is_due && self.asked.compare_exchange(ANSWERED, now, SeqCst, SeqCst).is_ok() {
            self.last.store(now, SeqCst);
            self.thread.get().map(Thread::unpark);
        }
    }

    fn answer(&self, now: Instant) {
        let waited = self.waits(now);
        self.asked.store(ANSWERED, SeqCst);
        if waited <= STALL_MIN {
            self.answered.store(self.since_began(now), SeqCst);
        } else {
            self.note(waited, now);
        }
    }

    fn has_answered(&self, now: Instant) -> bool {
        let answered = self.answered.load(SeqCst);
        answered > 0 && self.since_began(now).saturating_sub(answered) <= FRESH.as_nanos() as u64
    }

    /// How long it has waited for an answer.
    fn waits(&self, now: Instant) -> Duration {
        match self.asked.load(SeqCst) {
            ANSWERED => Duration::ZERO,
            asked => Duration::from_nanos(self.since_began(now).saturating_sub(asked)),
        }
    }

    /// A thread of the idle class wanted a core for `lasted`, and got next to nothing.
    pub fn note(&self, lasted: Duration, now: Instant) {
        let until = now + (lasted / PART).min(REMEMBERED_MAX);
        let mut remembered = self.remembered.lock();
        *remembered = Some(remembered.map_or(until, |before| before.max(until)));
    }

    pub fn is_on(&self, now: Instant) -> bool {
        !self.has_answered(now) || self.remembered.lock().is_some_and(|until| now < until)
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.thread.get().map(Thread::unpark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// It asks, and is answered so much later.
    fn answer(stall: &Stall, now: Instant, after: Duration) {
        stall.ask(now);
        stall.answer(now + after);
    }

    #[test]
    fn a_stall_is_remembered_for_a_part_of_the_time_it_took() {
        let (stall, now) = (Stall::new(), Instant::now() + 20 * MS);
        stall.note(100 * MS, now);
        answer(&stall, now + 30 * MS, MS);
        assert!(stall.is_on(now + 49 * MS));
        assert!(!stall.is_on(now + 50 * MS));
    }

    #[test]
    fn the_longest_counts_and_none_counts_for_ever() {
        let (stall, now) = (Stall::new(), Instant::now() + 20 * MS);
        stall.note(Duration::from_secs(3_600), now);
        stall.note(60 * MS, now);
        answer(&stall, now + 1_990 * MS, MS);
        assert!(stall.is_on(now + 1_999 * MS));
        assert!(!stall.is_on(now + 2_000 * MS));
    }

    #[test]
    fn who_answers_late_is_stalled_until_then_and_for_a_while_after() {
        let (stall, now) = (Stall::new(), Instant::now() + 20 * MS);
        assert!(stall.is_on(now), "nobody has answered yet");
        stall.ask(now);
        // Asked again while it waits, it does not forget since when.
        stall.ask(now + 60 * MS);
        stall.answer(now + 400 * MS);
        answer(&stall, now + 590 * MS, 2 * MS);
        assert!(stall.is_on(now + 599 * MS));
        assert!(!stall.is_on(now + 600 * MS));
    }

    #[test]
    fn who_answers_in_time_is_not_stalled_as_long_as_its_answers_are_fresh() {
        let (stall, now) = (Stall::new(), Instant::now() + 20 * MS);
        answer(&stall, now, 2 * MS);
        stall.ask(now + 5 * MS);
        assert_eq!(stall.waits(now + 41 * MS), Duration::ZERO, "it was asked too soon after");
        assert!(!stall.is_on(now + 42 * MS));
        assert!(stall.is_on(now + 43 * MS), "that was long ago");
        answer(&stall, now + 50 * MS, 21 * MS);
        assert!(stall.is_on(now + 71 * MS), "it took too long");
        answer(&stall, now + 80 * MS, 20 * MS);
        assert!(!stall.is_on(now + 100 * MS));
    }

    #[test]
    fn the_thread_answers_and_ends() {
        let stall = Stall::start(|| {}).unwrap();
        thread::sleep(ASK_EVERY);
        stall.ask(Instant::now());
        while stall.waits(Instant::now()) > Duration::ZERO {
            thread::yield_now();
        }
        let left = Arc::downgrade(&stall);
        drop(stall);
        while left.strong_count() > 0 {
            thread::yield_now();
        }
    }
}
