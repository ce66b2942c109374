//! The last handlings, in so many bytes: those that failed and the slowest are kept longest. Pure.
//!
//! ```text
//!  handling ─▶ recent ─ pushed out ─┬ it failed ──────────────▶ failed ─▶ forgotten, the oldest first
//!                                   ├ slower than one of slow ▶ slow ──▶ forgotten, the fastest first
//!                                   └ else ────────────────────────────▶ forgotten
//! ```

use super::Kept;
use std::collections::VecDeque;

/// Bytes of the last handlings, whatever became of them.
const RECENT_BYTES_MAX: usize = 256 << 10;
/// Bytes of those before them that failed; the oldest are forgotten.
const FAILED_BYTES_MAX: usize = 128 << 10;
/// Bytes of those before them that took longest; the fastest are forgotten.
const SLOW_BYTES_MAX: usize = 64 << 10;
/// Bytes of all of them.
pub const BYTES_MAX: usize = RECENT_BYTES_MAX + FAILED_BYTES_MAX + SLOW_BYTES_MAX;

#[derive(Default)]
pub struct Ring {
    recent: Part,
    failed: Part,
    /// The slowest first.
    slow: Part,
}

/// Some handlings and their bytes.
#[derive(Default)]
struct Part {
    kept: VecDeque<Kept>,
    bytes: usize,
}

impl Ring {
    pub fn push(&mut self, kept: Kept) {
        self.recent.push_back(kept);
        while let Some(old) = self.recent.pop_over(RECENT_BYTES_MAX, VecDeque::pop_front) {
            if old.has_failed() {
                self.failed.push_back(old);
                while self.failed.pop_over(FAILED_BYTES_MAX, VecDeque::pop_front).is_some() {}
            } else {
                self.keep_if_slow(old);
            }
        }
    }

    fn keep_if_slow(&mut self, old: Kept) {
        let is_full = self.slow.bytes + old.bytes() > SLOW_BYTES_MAX;
        if is_full && self.slow.kept.back().is_some_and(|fastest| fastest.took >= old.took) {
            return;
        }
        let place = self.slow.kept.partition_point(|kept| kept.took >= old.took);
        self.slow.bytes += old.bytes();
        self.slow.kept.insert(place, old);
        while self.slow.pop_over(SLOW_BYTES_MAX, VecDeque::pop_back).is_some() {}
    }

    /// Those it has, in no order that means something.
    pub fn iter(&self) -> impl Iterator<Item = &Kept> {
        [&self.recent, &self.failed, &self.slow].into_iter().flat_map(|part| &part.kept)
    }

    /// What they take in memory, about.
    pub fn bytes(&self) -> usize {
        self.recent.bytes + self.failed.bytes + self.slow.bytes
    }
}

impl Part {
    fn push_back(&mut self, kept: Kept) {
        self.bytes += kept.bytes();
        self.kept.push_back(kept);
    }

    /// The next one to go, as long as there are more bytes than `bytes_max`.
    fn pop_over(&mut self, bytes_max: usize, pop: fn(&mut VecDeque<Kept>) -> Option<Kept>) -> Option<Kept> {
        let over = self.bytes > bytes_max;
        let gone = over.then(|| pop(&mut self.kept)).flatten();
        self.bytes -= gone.as_ref().map_or(0, Kept::bytes);
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Became, Kept};
    use super::*;
    use std::time::Duration;

    fn kept(number: u64, became: Became, took_us: u64) -> Kept {
        let took = Duration::from_micros(took_us);
        Kept { sequence: number, id: number.to_string().into(), became, took, ..Kept::default() }
    }

    fn dead() -> Became {
        Became::Dead { reason: "L6003: no JSON".into() }
    }

    fn has(ring: &Ring, number: u64) -> bool {
        ring.iter().any(|kept| kept.sequence == number)
    }

    #[test]
    fn failures_and_the_slowest_outlive_a_flood_and_the_bytes_are_bounded() {
        let mut ring = Ring::default();
        ring.push(kept(1, dead(), 5));
        ring.push(kept(2, Became::Done, 9_000_000));
        ring.push(kept(3, Became::Done, 5));
        for number in 10..10_000 {
            ring.push(kept(number, Became::Done, number));
            assert!(ring.bytes() <= BYTES_MAX);
        }
        assert_eq!([1, 2, 3, 9_999].map(|number| has(&ring, number)), [true, true, false, true]);
        let told: usize = ring.iter().map(Kept::bytes).sum();
        assert_eq!(told, ring.bytes(), "what is counted is what is there");
        assert!(ring.slow.kept.iter().is_sorted_by(|one, next| one.took >= next.took));
        for number in 10_000..20_000 {
            ring.push(kept(number, dead(), 5));
            assert!(ring.bytes() <= BYTES_MAX);
        }
        assert_eq!([1, 2, 19_999].map(|number| has(&ring, number)), [false, true, true], "the oldest failure goes");
    }

    #[test]
    fn one_that_is_larger_than_all_leaves_the_bound_whole() {
        let mut ring = Ring::default();
        ring.push(Kept { id: "x".repeat(BYTES_MAX).into(), ..kept(1, dead(), 5) });
        assert_eq!((ring.bytes(), ring.iter().count()), (0, 0));
    }
}
