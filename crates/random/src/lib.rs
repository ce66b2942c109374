//! Random numbers that one seed repeats, for simulations, and for jitter that nobody must guess. They keep no secret.
//!
//! They are SplitMix64's: 64 bits of state, each number once in 2^64. A change here changes what the seed of a failed
//! test means.
//!
//! ```
//! let (mut one, mut other) = (random::Random(7), random::Random(7));
//! assert!((0..100).all(|_| one.below(6) == other.below(6)));
//! ```
#![no_std]
#![forbid(unsafe_code)]

/// What the state grows by with each number.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number that belongs to a state. No two states have the same.
#[must_use]
pub const fn mix(state: u64) -> u64 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Numbers from the seed in it.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// Any number.
    #[expect(clippy::should_implement_trait, reason = "it has no end")]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number less than `end`.
    ///
    /// # Panics
    /// `end` is 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A number of these two and those between them.
    ///
    /// # Panics
    /// `most` is less than `least`.
    pub const fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True once in so many times; never for 0.
    pub const fn once_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }

    /// From 0 to below 1.
    pub const fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One of these.
    ///
    /// # Panics
    /// There are none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_numbers_of_the_reference() {
        // Those of Vigna's splitmix64.c.
        let mut random = Random(1_234_567);
        let numbers = [(); 3].map(|()| random.next());
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_stay_within_their_bounds_and_reach_them() {
        let mut random = Random(1);
        let mut seen = [0; 6];
        (0..1_000).for_each(|_| seen[random.below(6) as usize] += 1);
        assert!(seen.iter().all(|times| *times > 100), "{seen:?}");
        assert!((0..1_000).all(|_| (3..=4).contains(&random.between(3, 4)) && (0.0..1.0).contains(&random.share())));
        assert!((0..1_000).all(|_| !random.once_in(0) && random.once_in(1)));
    }
}
