//! Numbers that look random and are the same everywhere.

pub struct Random(u64);

impl Random {
    pub const fn new() -> Self {
        Self(88_172_645_463_325_252)
    }

    pub const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
