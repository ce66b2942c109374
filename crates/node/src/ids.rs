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

    /// SplitMix64: the counter goes through a one-to-one mix, so ids repeat only after 2^64 of them. Never 0, which
    /// traces take for "none".
    pub fn next(&self) -> u64 {
        let mut mixed = self.next.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).max(1)
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
