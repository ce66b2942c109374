//! A histogram of durations in a few kilobytes: exact to an eighth, lock-free, for metrics and quantiles.
//!
//! ```text
//!   0 1 2 … 7 | 8 9 … 15 | 16 18 … 30 | 32 36 … 60 | …   microseconds
//!    one each    one each   two each     four each        eight buckets for every doubling
//! ```
//! The first bucket a duration does not fit is the last one, for everything from 134 s up. The buckets are allocated by
//! the first record: a function that is deployed and never called costs a pointer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Buckets for every doubling, and how many of the first microseconds have one each.
const STEPS: usize = 8;
/// Doublings covered: up to 2^27 µs.
const DOUBLINGS: usize = 24;
const BUCKETS: usize = STEPS * (DOUBLINGS + 1);

/// Upper bounds under which durations are counted in the metrics, in microseconds.
pub const BOUNDS_US: [u64; 14] =
    [8, 16, 32, 64, 128, 256, 512, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 16_777_216];

#[derive(Default)]
pub struct Histogram {
    counts: OnceLock<Box<Counts>>,
}

struct Counts {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// What a histogram held at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    buckets: Vec<u64>,
    pub count: u64,
    pub sum: Duration,
    pub max: Duration,
}

impl Histogram {
    pub fn record(&self, duration: Duration) {
        let counts = self.counts.get_or_init(Counts::new);
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        counts.buckets[bucket(ns / 1_000)].fetch_add(1, Relaxed);
        counts.sum_ns.fetch_add(ns, Relaxed);
        // Most values are no new maximum: reading first keeps the cache line shared between cores.
        if ns > counts.max_ns.load(Relaxed) {
            counts.max_ns.fetch_max(ns, Relaxed);
        }
    }

    pub fn snapshot(&self) -> Snapshot {
        let Some(counts) = self.counts.get() else { return Snapshot::default() };
        let buckets: Vec<u64> = counts.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        Snapshot {
            count: buckets.iter().sum(),
            buckets,
            sum: Duration::from_nanos(counts.sum_ns.load(Relaxed)),
            max: Duration::from_nanos(counts.max_ns.load(Relaxed)),
        }
    }
}

impl Counts {
    fn new() -> Box<Self> {
        Box::new(Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
        })
    }
}

impl Snapshot {
    /// An estimate of the value that the share `quantile` of all values does not exceed, in microseconds; 0 without
    /// values. Off by a sixteenth of the value at most.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let rank = ((self.count as f64 * quantile).ceil() as u64).clamp(1, self.count);
        let mut below = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            below += count;
            if below >= rank {
                let middle = (lower_us(index) + lower_us(index + 1)) as f64 / 2.0;
                return middle.min(self.max_us());
            }
        }
        self.max_us()
    }

    pub fn max_us(&self) -> f64 {
        self.max.as_nanos() as f64 / 1_000.0
    }

    /// The buckets that hold something: the least microseconds of each, and how many values.
    pub fn filled(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets.iter().enumerate().filter(|(_, count)| **count > 0).map(|(at, count)| (lower_us(at), *count))
    }

    /// Values below each of [`BOUNDS_US`], each count including those before it.
    pub fn below_bounds(&self) -> [u64; BOUNDS_US.len()] {
        let mut below = [0; BOUNDS_US.len()];
        for (index, count) in self.buckets.iter().enumerate() {
            for (bound, sum) in BOUNDS_US.iter().zip(&mut below) {
                if lower_us(index) < *bound {
                    *sum += count;
                }
            }
        }
        below
    }
}

fn bucket(us: u64) -> usize {
    if us < STEPS as u64 {
        return us as usize;
    }
    let doubling = us.ilog2() as usize - STEPS.ilog2() as usize;
    let step = (us >> doubling) as usize - STEPS;
    (STEPS * (doubling + 1) + step).min(BUCKETS - 1)
}

/// The least value that falls into the bucket.
fn lower_us(bucket: usize) -> u64 {
    match bucket.checked_sub(STEPS) {
        None => bucket as u64,
        Some(rest) => ((STEPS + rest % STEPS) as u64) << (rest / STEPS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_the_bucket_whose_bounds_hold_it() {
        for us in (0..70_000).chain((17..27).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1])) {
            let index = bucket(us);
            assert!(lower_us(index) <= us && (us < lower_us(index + 1) || index == BUCKETS - 1), "{us} µs in {index}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_within_a_sixteenth() {
        let histogram = Histogram::default();
        for us in 1..=10_000 {
            histogram.record(Duration::from_micros(us));
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.count, 10_000);
        for (quantile, exact) in [(0.5, 5_000.0), (0.9, 9_000.0), (0.99, 9_900.0)] {
            let estimate = snapshot.quantile_us(quantile);
            assert!((estimate - exact).abs() <= exact / 16.0, "p{quantile}: {estimate}, exact {exact}");
        }
        assert_eq!(snapshot.max_us(), 10_000.0);
    }

    #[test]
    fn bounds_count_what_is_below_them() {
        let histogram = Histogram::default();
        for us in [1, 7, 8, 100, 5_000_000] {
            histogram.record(Duration::from_micros(us));
        }
        let below = histogram.snapshot().below_bounds();
        assert_eq!((below[0], below[1], below[4], below[12], below[13]), (2, 3, 4, 4, 5));
    }

    #[test]
    fn only_buckets_that_hold_something_are_told() {
        let histogram = Histogram::default();
        for us in [3, 3, 17, 60] {
            histogram.record(Duration::from_micros(us));
        }
        assert_eq!(histogram.snapshot().filled().collect::<Vec<_>>(), [(3, 2), (16, 1), (60, 1)]);
    }

    #[test]
    fn a_histogram_without_values_takes_no_memory_and_says_zero() {
        let histogram = Histogram::default();
        assert!(histogram.counts.get().is_none());
        assert_eq!(histogram.snapshot().quantile_us(0.99), 0.0);
    }
}
