//! The hands of both clocks, which only the simulation moves: the wall clock may jump, the other never does.

use state::Clock;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Hands {
    wall_ms: AtomicU64,
    steady_ms: AtomicU64,
}

impl Hands {
    pub fn new() -> Self {
        Self { wall_ms: AtomicU64::new(1_700_000_000_000), steady_ms: AtomicU64::new(1_000) }
    }

    pub fn pass(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
        self.steady_ms.fetch_add(ms, Ordering::SeqCst);
    }

    pub fn jump(&self, wall_ms: i64) {
        let now = self.wall_ms.load(Ordering::SeqCst);
        self.wall_ms.store(now.saturating_add_signed(wall_ms), Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn wall_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn steady_ms(&self) -> u64 {
        self.steady_ms.load(Ordering::SeqCst)
    }
}
