//! What one attempt uses, as a host on the other side of a wire sees it.

use parking_lot::Mutex;
use problem::{Code, Problem};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use unit::{Spent, Stages, Timing};

pub struct Meter {
    /// When the attempt began.
    pub began: Instant,
    /// When the call's wall time ends.
    pub deadline: Instant,
    start: Mutex<Option<Duration>>,
    stages: Mutex<Option<Stages>>,
    cpu_ns: AtomicU64,
    memory_bytes: AtomicU64,
}

impl Meter {
    pub fn new(deadline: Instant) -> Self {
        Self {
            began: Instant::now(),
            deadline,
            start: Mutex::default(),
            stages: Mutex::default(),
            cpu_ns: AtomicU64::new(0),
            memory_bytes: AtomicU64::new(0),
        }
    }

    /// To be called when there is a unit that can take the event.
    pub fn started(&self) {
        *self.start.lock() = Some(self.began.elapsed());
    }

    /// What the unit says of its own part of the run.
    pub fn staged(&self, stages: Option<Stages>) {
        *self.stages.lock() = stages;
    }

    pub fn used_cpu(&self, cpu: Duration) {
        self.cpu_ns.store(u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    pub fn used_memory(&self, bytes: u64) {
        self.memory_bytes.store(bytes, Relaxed);
    }

    pub fn time_exceeded(&self) -> Problem {
        time_exceeded(self.began, self.deadline)
    }

    /// What was used until now.
    pub fn spent(&self) -> Spent {
        let total = self.began.elapsed();
        let start = self.start.lock().unwrap_or(total);
        let timing = Timing { start, run: total.saturating_sub(start), stages: *self.stages.lock() };
        let cpu = Duration::from_nanos(self.cpu_ns.load(Relaxed));
        Spent { timing, cpu, memory_bytes: self.memory_bytes.load(Relaxed) }
    }
}

/// The problem of a call that began at one time and had not ended at the other.
pub fn time_exceeded(began: Instant, deadline: Instant) -> Problem {
    let limit = deadline.saturating_duration_since(began);
    Problem::new(Code::TimeExceeded, format!("the call had not ended after {} ms", limit.as_millis()))
}
