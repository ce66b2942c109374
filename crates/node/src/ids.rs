//! Ids of spans: never the same twice while the node runs, hard to guess the sequence of, and a few
//! nanoseconds each.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub struct Ids {
    next: AtomicU64,
}

impl Ids {
    /// `seed` is random, so that ids differ from those of an earlier run.
    pub fn new(seed: u64) -> Self {
        Self { next: AtomicU64::new(seed) }
    }

    /// The counter goes through a one-to-one mix, so ids repeat only after 2^64 of them. Never 0, which traces take for
    /// "none".
    pub fn next(&self) -> u64 {
        random::mix(self.next.fetch_add(random::STEP, Relaxed)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_do_not_repeat() {
        let ids = Ids::new(1);
        let many: std::collections::HashSet<u64> = (0..10_000).map(|_| ids.next()).collect();
        assert_eq!(many.len(), 10_000);
    }
}
