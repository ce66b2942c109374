//! Random numbers that a seed repeats (SplitMix64).

#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below 1.
    pub fn share(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From `-size` to `size`, small ones more often: the sum of three.
    pub fn noise(&mut self, size: f64) -> f64 {
        (self.share() + self.share() + self.share() - 1.5) / 1.5 * size
    }

    pub fn below(&mut self, count: usize) -> usize {
        (self.number() % count as u64) as usize
    }
}
