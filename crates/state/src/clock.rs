//! How long keys live is measured on a clock of the state's own: it never jumps and never goes back.
//!
//! ```text
//!  wall clock   ──12:00──12:01──▶(set back)──09:00──09:01──   jumps whenever somebody sets it
//!  own time     ──── 0 ──── 60 ───────────── 61 ── 121 ────   what the node has run, and how long it was off
//! ```
//! While the node runs only the steady clock counts. At the next start the wall clock says how long the node was off,
//! if it is later than its last written value; if not, no time has passed. So an expired key stays expired, and a key
//! that was given an hour lives an hour. The state trusts only the wall clock at the start.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// How far both clocks may drift apart before it is written down anew.
const DRIFT_MS_MAX: u64 = 1_000;

/// Where the state gets the time from. A parameter, so that a test can make it jump.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970. May jump.
    fn wall_ms(&self) -> u64;

    /// Milliseconds since some moment; never goes back. Goes on while the machine sleeps.
    fn steady_ms(&self) -> u64;
}

/// The machine's own clocks.
#[derive(Debug, Clone, Copy)]
pub struct RealClock;

impl Clock for RealClock {
    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn steady_ms(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        u64::try_from(now.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
    }
}

/// Own time and wall clock at one moment, as they are kept on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub own_ms: u64,
    pub wall_ms: u64,
}

impl Moment {
    pub fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.own_ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.wall_ms.to_be_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (own, wall) = bytes.split_at_checked(8)?;
        Some(Self {
            own_ms: u64::from_be_bytes(own.try_into().ok()?),
            wall_ms: u64::from_be_bytes(wall.try_into().ok()?),
        })
    }

    /// Own time when the node starts again and the wall clock says `wall_ms`.
    fn own_at(self, wall_ms: u64) -> u64 {
        self.own_ms.saturating_add(wall_ms.saturating_sub(self.wall_ms))
    }
}

/// The state's own time.
pub struct OwnTime {
    clock: Arc<dyn Clock>,
    /// Own time and the steady clock when the state was opened.
    opened_own_ms: u64,
    opened_steady_ms: u64,
    /// What was last written down.
    saved: Mutex<Option<Moment>>,
}

impl OwnTime {
    /// Goes on from what was written down. A new state begins with the wall clock's time.
    pub fn resume(clock: Arc<dyn Clock>, saved: Option<Moment>) -> Self {
        let (wall_ms, opened_steady_ms) = (clock.wall_ms(), clock.steady_ms());
        let opened_own_ms = saved.map_or(wall_ms, |saved| saved.own_at(wall_ms));
        Self { clock, opened_own_ms, opened_steady_ms, saved: Mutex::new(saved) }
    }

    pub fn now_ms(&self) -> u64 {
        self.opened_own_ms.saturating_add(self.clock.steady_ms().saturating_sub(self.opened_steady_ms))
    }

    pub fn moment(&self) -> Moment {
        Moment { own_ms: self.now_ms(), wall_ms: self.clock.wall_ms() }
    }

    /// Whether what was written down would no longer give the present time.
    pub fn is_stale(&self) -> bool {
        let now = self.moment();
        self.saved.lock().is_none_or(|saved| {
            let passed = |now: u64, then: u64| i128::from(now) - i128::from(then);
            let drift = passed(now.wall_ms, saved.wall_ms) - passed(now.own_ms, saved.own_ms);
            drift.unsigned_abs() > u128::from(DRIFT_MS_MAX)
        })
    }

    pub fn is_saved(&self) -> bool {
        self.saved.lock().is_some()
    }

    pub fn set_saved(&self, moment: Moment) {
        *self.saved.lock() = Some(moment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Default)]
    struct Hands {
        wall_ms: AtomicU64,
        steady_ms: AtomicU64,
    }

    impl Clock for Hands {
        fn wall_ms(&self) -> u64 {
            self.wall_ms.load(Ordering::Relaxed)
        }

        fn steady_ms(&self) -> u64 {
            self.steady_ms.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn jumps_of_the_wall_clock_do_not_move_own_time_while_the_node_runs() {
        let hands = Arc::new(Hands::default());
        hands.wall_ms.store(1_000_000, Ordering::Relaxed);
        let time = OwnTime::resume(hands.clone(), None);
        assert_eq!(time.now_ms(), 1_000_000);
        for wall in [0, 9_000_000, 5] {
            hands.wall_ms.store(wall, Ordering::Relaxed);
            assert_eq!(time.now_ms(), 1_000_000);
        }
        hands.steady_ms.store(60, Ordering::Relaxed);
        assert_eq!(time.now_ms(), 1_000_060);
    }

    #[test]
    fn time_off_counts_once_and_never_backwards() {
        let saved = Moment { own_ms: 500, wall_ms: 10_000 };
        assert_eq!([10_000, 12_000, 3].map(|wall| saved.own_at(wall)), [500, 2_500, 500]);
        assert_eq!(Moment::decode(&saved.encode()), Some(saved));
        assert_eq!(Moment::decode(&[0; 15]), None);
    }

    #[test]
    fn a_jump_makes_what_was_written_down_stale() {
        let hands = Arc::new(Hands::default());
        let time = OwnTime::resume(hands.clone(), Some(Moment { own_ms: 0, wall_ms: 0 }));
        hands.steady_ms.store(70_000, Ordering::Relaxed);
        hands.wall_ms.store(70_500, Ordering::Relaxed);
        assert!(!time.is_stale());
        for wall in [90_000, 0] {
            hands.wall_ms.store(wall, Ordering::Relaxed);
            assert!(time.is_stale());
        }
    }
}
