//! A queue's own time: follows the clock of the node forwards, and goes on where that jumps back.
//!
//! ```text
//! clock of the node   10  11  12   5   6   7  15  16     set back by 7, and later set right again
//! the queue's time    10  11  12  12  13  14  15  16     never goes back, never stands still
//! ```
//! So a delay is never longer than it was said to be, whatever is done to the clock; after a jump forwards it may be
//! shorter. The time is stored with the queue and goes on from there after a restart.

/// Callers read the clock and then come here in any order: that much back is no jump.
const DISORDER_MS: u64 = 1_000;

#[derive(Debug, Clone, Copy)]
pub struct Clock {
    time: u64,
    /// The node's clock, as last seen.
    seen_ms: Option<u64>,
}

impl Clock {
    pub fn at(time: u64) -> Self {
        Self { time, seen_ms: None }
    }

    /// The queue's time now, where the node's clock shows `now_ms`.
    pub fn observe(&mut self, now_ms: u64) -> u64 {
        let seen_ms = self.seen_ms.unwrap_or(now_ms);
        if now_ms >= self.time {
            self.time = now_ms;
            self.seen_ms = Some(now_ms);
        } else if now_ms >= seen_ms {
            self.time = self.time.saturating_add(now_ms - seen_ms);
            self.seen_ms = Some(now_ms);
        } else if now_ms + DISORDER_MS < seen_ms {
            self.seen_ms = Some(now_ms);
        }
        self.time
    }

    pub fn time(&self) -> u64 {
        self.time
    }

    /// The node's clock, as last seen.
    pub fn seen_ms(&self) -> u64 {
        self.seen_ms.unwrap_or(self.time)
    }

    /// The moment of the queue's time that the node's clock calls `ms`.
    pub fn queue_time(&self, ms: u64) -> u64 {
        ms.saturating_add(self.time.saturating_sub(self.seen_ms()))
    }

    /// What the node's clock will show at this moment of the queue's time.
    pub fn node_time(&self, time: u64) -> u64 {
        time.saturating_sub(self.time.saturating_sub(self.seen_ms()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back_and_never_stands_still_for_long() {
        let mut clock = Clock::at(0);
        let times = [10_000, 12_000, 5_000, 6_000, 7_000, 15_000, 14_900, 16_000].map(|now| clock.observe(now));
        assert_eq!(times, [10_000, 12_000, 12_000, 13_000, 14_000, 15_000, 15_000, 16_000]);
    }
}
