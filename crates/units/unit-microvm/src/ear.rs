//! Whether listening has paid of late: a guess that costs little where it is wrong.
//!
//! Whoever listens keeps a processor from others. After each time that nothing was heard in time, twice as many chances
//! are let pass before the next try, up to a bound; one success, and every chance is taken again.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Misses in a row that make a difference: at most so many powers of two of chances are let pass.
const MISSES_MAX: u32 = 6;

/// Shared by all units of a function; two that change it at once may count as one.
#[derive(Debug, Default)]
pub struct Ear {
    misses: AtomicU32,
    to_skip: AtomicU32,
}

impl Ear {
    /// Whether to listen this time.
    pub fn listens(&self) -> bool {
        let to_skip = self.to_skip.load(Relaxed);
        self.to_skip.store(to_skip.saturating_sub(1), Relaxed);
        to_skip == 0
    }

    /// What came of it.
    pub fn heard(&self, in_time: bool) {
        let misses = if in_time { 0 } else { (self.misses.load(Relaxed) + 1).min(MISSES_MAX) };
        self.misses.store(misses, Relaxed);
        self.to_skip.store((1 << misses) - 1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_pays_is_tried_seldom_and_what_pays_always() {
        let ear = Ear::default();
        let tries = (0..1_000).filter(|_| ear.listens().then(|| ear.heard(false)).is_some()).count();
        assert!((15..25).contains(&tries), "{tries}");
        while !ear.listens() {}
        ear.heard(true);
        assert!((0..100).all(|_| ear.listens()));
    }
}
