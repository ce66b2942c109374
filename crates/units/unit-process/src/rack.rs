//! Large memory of one function that waits to be used again: its pages are there already.
//!
//! ```text
//!   take ──▶ the smallest that is large enough, or a new one, counted in the node's budget
//!   put ◀── used     sweep ──▶ what waited for too long
//! ```

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How many wait, and how large one of them is at most. What is beyond is given back at once.
const KEPT_MAX: usize = 2;
const KEPT_BYTES_MAX: usize = 32 << 20;
/// How long one waits; then it is given back.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// What has room for so many bytes.
pub trait Large {
    fn len(&self) -> usize;
}

#[derive(Debug)]
pub struct Rack<T> {
    waiting: Mutex<Vec<(T, Instant)>>,
}

impl<T> Default for Rack<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default() }
    }
}

impl<T: Large> Rack<T> {
    /// The smallest one that has room for `bytes`.
    pub fn take(&self, bytes: usize) -> Option<T> {
        let mut waiting = self.waiting.lock();
        let enough = waiting.iter().enumerate().filter(|(_, (one, _))| one.len() >= bytes);
        let place = enough.min_by_key(|(_, (one, _))| one.len()).map(|(place, _)| place)?;
        Some(waiting.swap_remove(place).0)
    }

    /// Keeps it for the next one; of too many the largest.
    pub fn put(&self, one: T, now: Instant) {
        if one.len() > KEPT_BYTES_MAX {
            return;
        }
        let mut waiting = self.waiting.lock();
        waiting.push((one, now));
        let smallest = waiting.iter().enumerate().min_by_key(|(_, (one, _))| one.len()).map(|(place, _)| place);
        let gone = smallest.filter(|_| waiting.len() > KEPT_MAX).map(|place| waiting.swap_remove(place));
        // Giving memory back takes longer than a lock should be held.
        drop(waiting);
        drop(gone);
    }

    /// Gives back what waited for too long; with `all`, whatever waits.
    pub fn sweep(&self, now: Instant, all: bool) {
        let stays = |since: Instant| !all && now.saturating_duration_since(since) < IDLE_MAX;
        let gone: Vec<_> = self.waiting.lock().extract_if(.., |(_, since)| !stays(*since)).collect();
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Large for usize {
        fn len(&self) -> usize {
            *self
        }
    }

    #[test]
    fn the_smallest_that_is_large_enough_is_used_again() {
        let (rack, now) = (Rack::default(), Instant::now());
        assert_eq!(rack.take(1), None);
        for one in [4_usize, 9, 2] {
            rack.put(one, now);
        }
        // Two wait at most: the smallest has gone.
        assert_eq!([rack.take(10), rack.take(3), rack.take(3), rack.take(0)], [None, Some(4), Some(9), None]);
        rack.put(KEPT_BYTES_MAX + 1, now);
        assert_eq!(rack.take(0), None, "one as large is not kept");
    }

    #[test]
    fn what_nobody_wants_for_a_while_is_given_back() {
        let (rack, now) = (Rack::default(), Instant::now());
        rack.put(1_usize, now);
        rack.put(2, now + IDLE_MAX / 2);
        rack.sweep(now + IDLE_MAX, false);
        assert_eq!([rack.take(0), rack.take(0)], [Some(2), None]);
        rack.put(3, now);
        rack.sweep(now, true);
        assert_eq!(rack.take(0), None);
    }
}
