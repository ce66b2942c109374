//! How fast calls may come: a token bucket, kept as the one moment at which it would be full again.

use std::time::Duration;

/// So many calls a second on average, and so many at once after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// 0 counts as 1.
    pub per_second: u32,
    /// Calls at once; 0 counts as 1.
    pub burst: u32,
}

/// What is left of the burst. Starts full.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bucket {
    /// Nanoseconds from the caller's start to when no call counts any more.
    full_at: u64,
}

impl Rate {
    /// Nanoseconds in which one call is earned.
    fn interval(self) -> u64 {
        let per_second = u64::from(self.per_second.max(1));
        // Rounded to the nearest: half a nanosecond is 0.5 % of the fastest rate a manifest can ask for.
        ((1_000_000_000 + per_second / 2) / per_second).max(1)
    }

    /// Nanoseconds in which a whole burst is earned.
    fn window(self) -> u64 {
        self.interval().saturating_mul(u64::from(self.burst.max(1)))
    }
}

impl Bucket {
    /// Takes a token, or says after what time there will be one. `now` is the time since a start of the caller's
    /// choice.
    pub fn take(&mut self, rate: Rate, now: Duration) -> Result<(), Duration> {
        let full_at = self.after_take(rate, now)?;
        self.full_at = full_at;
        Ok(())
    }

    /// Like [`Bucket::take`], but takes nothing.
    pub fn check(&self, rate: Rate, now: Duration) -> Result<(), Duration> {
        self.after_take(rate, now).map(drop)
    }

    /// To be called when the rate changes: what was owed under the old one is not owed longer than the new one allows.
    pub fn adopt(&mut self, rate: Rate, now: Duration) {
        self.full_at = self.full_at.min(nanoseconds(now).saturating_add(rate.window()));
    }

    fn after_take(&self, rate: Rate, now: Duration) -> Result<u64, Duration> {
        let now = nanoseconds(now);
        let full_at = self.full_at.max(now).saturating_add(rate.interval());
        match full_at.saturating_sub(now.saturating_add(rate.window())) {
            0 => Ok(full_at),
            missing => Err(Duration::from_nanos(missing)),
        }
    }
}

/// 584 years fit.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_second: 10, burst: 2 };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_burst_passes_and_then_one_call_an_interval() {
        let mut bucket = Bucket::default();
        let passed: Vec<u64> = (0..500).filter(|now| bucket.take(RATE, ms(*now)).is_ok()).collect();
        assert_eq!(passed, [0, 1, 100, 200, 300, 400]);
    }

    #[test]
    fn a_refused_call_is_told_when_to_come_and_then_passes() {
        let mut bucket = Bucket::default();
        assert_eq!([bucket.take(RATE, ms(0)), bucket.take(RATE, ms(0))], [Ok(()), Ok(())]);
        assert_eq!(bucket.take(RATE, ms(30)), Err(ms(70)));
        assert_eq!(bucket.check(RATE, ms(99)), Err(ms(1)));
        assert_eq!(bucket.take(RATE, ms(100)), Ok(()));
    }

    #[test]
    fn rates_at_the_ends_hold() {
        let mut bucket = Bucket::default();
        let least = Rate { per_second: 0, burst: 0 };
        assert_eq!(bucket.take(least, ms(0)), Ok(()));
        assert_eq!(bucket.take(least, ms(0)), Err(Duration::from_secs(1)));
        let most = Rate { per_second: u32::MAX, burst: u32::MAX };
        assert_eq!(bucket.take(most, Duration::MAX), Ok(()));
        assert_eq!(Bucket::default().take(most, ms(0)), Ok(()));
    }

    #[test]
    fn a_faster_rate_counts_at_once() {
        let mut bucket = Bucket::default();
        let slow = Rate { per_second: 1, burst: 1_000 };
        (0..1_000).for_each(|_| bucket.take(slow, ms(0)).unwrap());
        bucket.adopt(RATE, ms(0));
        assert_eq!(bucket.take(RATE, ms(0)), Err(ms(100)));
        assert_eq!(bucket.take(RATE, ms(100)), Ok(()));
    }
}
