//! What policies know of the past: a mean that forgets, and how often something happens.

use std::time::Duration;

/// How much one measurement counts: a new level is believed after about as many measurements.
const MEAN_WEIGHT: f64 = 1.0 / 16.0;

/// Time over which a rate is measured: halved about every so often.
const RATE_PERIOD: Duration = Duration::from_secs(1);

/// Mean of durations, the latest counting most.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mean {
    seconds: Option<f64>,
    count: u32,
}

impl Mean {
    pub fn add(&mut self, duration: Duration) {
        // The first few count alike, else the very first would stand for all for a long time.
        self.count = self.count.saturating_add(1);
        let weight = MEAN_WEIGHT.max(1.0 / f64::from(self.count));
        let before = self.seconds.unwrap_or_default();
        self.seconds = Some(before + (duration.as_secs_f64() - before) * weight);
    }

    /// None before the first.
    pub fn get(&self) -> Option<Duration> {
        self.seconds.map(Duration::from_secs_f64)
    }
}

/// Events a second, from a count that only grows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rate {
    per_second: f64,
    count: u64,
    at: Duration,
}

impl Rate {
    /// The count is `count` at `now`, which never goes back.
    pub fn note(&mut self, now: Duration, count: u64) {
        let passed = now.saturating_sub(self.at);
        if passed.is_zero() {
            return;
        }
        let happened = count.saturating_sub(self.count) as f64 / passed.as_secs_f64();
        let weight = 1.0 - (-passed.as_secs_f64() / RATE_PERIOD.as_secs_f64()).exp();
        self.per_second += (happened - self.per_second) * weight;
        (self.count, self.at) = (count, now);
    }

    pub fn per_second(&self) -> f64 {
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_follows_a_new_level_and_shrugs_at_one_that_is_off() {
        let mut mean = Mean::default();
        assert_eq!(mean.get(), None);
        (0..50).for_each(|_| mean.add(Duration::from_millis(10)));
        mean.add(Duration::from_millis(100));
        assert!(mean.get().unwrap() < Duration::from_millis(16));
        (0..100).for_each(|_| mean.add(Duration::from_millis(20)));
        assert!(mean.get().unwrap().abs_diff(Duration::from_millis(20)) < Duration::from_millis(1));
    }

    #[test]
    fn a_rate_is_found_whatever_the_pauses_between_looks() {
        let mut rate = Rate::default();
        let mut count = 0;
        for step in 1..=100_u64 {
            // 200 a second, looked at after 10 ms and after 90 ms in turns.
            count = step * 10;
            rate.note(Duration::from_millis(if step % 2 == 0 { step * 50 } else { step * 50 - 40 }), count);
        }
        assert!((rate.per_second() - 200.0).abs() < 40.0, "{}", rate.per_second());
        rate.note(Duration::from_secs(60), count);
        assert!(rate.per_second() < 1.0);
    }
}
