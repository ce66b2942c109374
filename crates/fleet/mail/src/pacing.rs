//! Catching up is paced: mail that is behind shares a rate, so that live mail and calls go first.
//!
//! There are two lanes. A stream with few letters waiting is live and sends at once. One with many is behind: it sends
//! when no live stream has anything to send, and only while the bucket that all such streams share holds bytes.
//!
//! Both ends rest after each message while they have calls to serve: the bucket bounds what is sent, and this the time
//! that a small machine spends on it.

use std::time::Duration;

/// After work for mail that took t comes a rest of so many t, while there are calls: mail has a fifth of one thread.
const RESTS: u32 = 4;
/// The longest rest, however long the work took or how many senders wait. Whoever waits for an answer waits longer.
pub const BREATH_MAX: Duration = Duration::from_millis(500);

/// The rests of one end. All messages share them, whoever sent them.
#[derive(Debug, Default)]
pub struct Rests {
    until: Duration,
}

impl Rests {
    /// Work for one message that has just ended took so long. Says how long the next one is to wait.
    pub fn worked(&mut self, took: Duration, now: Duration, has_calls: bool) -> Duration {
        if !has_calls {
            self.until = now;
            return Duration::ZERO;
        }
        self.until = (self.until.max(now) + took.saturating_mul(RESTS)).min(now + BREATH_MAX);
        self.until - now
    }
}

/// Bytes a second for all streams that are behind, and how many may go at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub bytes_a_second: u64,
    pub burst_bytes: u64,
}

impl Default for Rate {
    /// 8 MiB a second, 1 MiB at once.
    fn default() -> Self {
        Self { bytes_a_second: 8 << 20, burst_bytes: 1 << 20 }
    }
}

/// A token bucket. What is sent may overdraw it once; then nothing goes until that is paid back.
#[derive(Debug)]
pub struct TokenBucket {
    rate: Rate,
    level: i64,
    at: Duration,
}

impl TokenBucket {
    pub fn new(rate: Rate) -> Self {
        Self { rate, level: clamped(rate.burst_bytes), at: Duration::ZERO }
    }

    /// Whether something may go now. A clock that went back adds nothing.
    pub fn is_open(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.at);
        let gained = passed.as_micros() * u128::from(self.rate.bytes_a_second) / 1_000_000;
        if gained > 0 {
            let gained = i64::try_from(gained).unwrap_or(i64::MAX);
            self.level = self.level.saturating_add(gained).min(clamped(self.rate.burst_bytes));
            self.at = now;
        }
        self.level > 0
    }

    pub fn pay(&mut self, bytes: u64) {
        self.level = self.level.saturating_sub(clamped(bytes));
    }

    /// When it is open again.
    pub fn opens(&self) -> Duration {
        let missing = 1_i64.saturating_sub(self.level).max(0) as u128;
        let micros = (missing * 1_000_000).div_ceil(u128::from(self.rate.bytes_a_second.max(1)));
        self.at + Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

fn clamped(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_a_burst_is_bounded() {
        let mut bucket = TokenBucket::new(Rate { bytes_a_second: 1_000, burst_bytes: 500 });
        let mut sent = 0;
        for ms in 0..10_000 {
            while bucket.is_open(Duration::from_millis(ms)) {
                bucket.pay(100);
                sent += 100;
            }
            assert!(bucket.opens() > Duration::from_millis(ms));
        }
        assert!((10_000..=10_600).contains(&sent), "{sent}");
        let rested = Duration::from_secs(1_000_000);
        assert!(bucket.is_open(rested) && bucket.level == 500);
    }

    /// Plays a second in which as much mail is taken as the rests allow. Returns the time that was worked.
    fn worked_in_a_second(took: Duration, has_calls: bool) -> Duration {
        let (mut rests, mut now, mut worked) = (Rests::default(), Duration::ZERO, Duration::ZERO);
        while now < Duration::from_secs(1) {
            now += took;
            worked += took;
            now += rests.worked(took, now, has_calls);
        }
        worked
    }

    #[test]
    fn mail_has_a_fifth_of_the_time_while_there_are_calls_and_all_of_it_else() {
        for took_ms in [1, 3, 20] {
            let took = Duration::from_millis(took_ms);
            let shared = worked_in_a_second(took, true);
            assert!((Duration::from_millis(195)..=Duration::from_millis(220)).contains(&shared), "{shared:?}");
            assert!(worked_in_a_second(took, false) >= Duration::from_secs(1));
        }
    }

    #[test]
    fn many_senders_share_the_rests_and_nobody_waits_for_long() {
        let (mut rests, now) = (Rests::default(), Duration::from_secs(9));
        let took = Duration::from_millis(10);
        let waits: Vec<_> = (0..20).map(|_| rests.worked(took, now, true)).collect();
        assert_eq!(waits[..3], [40, 80, 120].map(Duration::from_millis));
        assert_eq!(waits[19], BREATH_MAX);
        assert_eq!(rests.worked(Duration::from_secs(7), now, true), BREATH_MAX);
        assert_eq!(rests.worked(took, now, false), Duration::ZERO, "the calls are over");
        assert_eq!(rests.worked(took, now, true), Duration::from_millis(40), "and so is what was owed");
    }

    #[test]
    fn a_clock_that_goes_back_opens_nothing() {
        let mut bucket = TokenBucket::new(Rate { bytes_a_second: 1_000, burst_bytes: 500 });
        assert!(bucket.is_open(Duration::from_secs(10)));
        bucket.pay(1_000);
        assert!(!bucket.is_open(Duration::from_secs(5)) && !bucket.is_open(Duration::from_secs(10)));
        assert!(bucket.is_open(Duration::from_millis(10_501)));
    }
}
