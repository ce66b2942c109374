//! Whether calls come to this node just now: what can wait then leaves them room.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long after a call another one is reckoned with.
const RECENT: Duration = Duration::from_secs(1);

/// When the last call came, over the gate or from another node.
#[derive(Debug)]
pub struct Calls {
    began: Instant,
    /// Since then, and one more; 0: none has come.
    last_ms: AtomicU64,
}

impl Default for Calls {
    fn default() -> Self {
        Self { began: Instant::now(), last_ms: AtomicU64::new(0) }
    }
}

impl Calls {
    /// A call has come.
    pub fn came(&self) {
        self.last_ms.store(self.now_ms() + 1, Relaxed);
    }

    /// Whether any has come.
    pub fn have_come(&self) -> bool {
        self.last_ms.load(Relaxed) > 0
    }

    /// Whether one came a moment ago.
    pub fn are_coming(&self) -> bool {
        is_recent(self.last_ms.load(Relaxed), self.now_ms())
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }
}

fn is_recent(last_ms: u64, now_ms: u64) -> bool {
    last_ms > 0 && now_ms.saturating_sub(last_ms - 1) <= RECENT.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_for_a_second() {
        let calls = Calls::default();
        assert!(!calls.are_coming() && !calls.have_come(), "none has come");
        calls.came();
        assert!(calls.are_coming() && calls.have_come());
        let of = |last_ms, now_ms| is_recent(last_ms, now_ms);
        assert_eq!([of(0, 0), of(1, 1_000), of(1, 1_001), of(5_001, 4_000)], [false, true, false, true]);
    }
}
