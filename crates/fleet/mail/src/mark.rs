//! A place in a stream of letters: a number, and a chain over all letters up to it.
//!
//! Numbers alone cannot tell a letter that was resent from another letter that got the same number after its sender was
//! restored from a backup. The chain can: two streams have the same chain at a number only if all their letters up to
//! it are the same.

/// A hash over all letters of a stream up to one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain(pub [u8; Self::BYTES]);

impl Chain {
    pub const BYTES: usize = 16;

    /// Where a stream begins. The nonce keeps a stream that is begun again from looking like its predecessor.
    pub fn begin(nonce: &[u8; 16]) -> Self {
        Self(short(&blake3::hash(nonce)))
    }

    /// The chain after one more letter.
    #[must_use]
    pub fn then(self, letter: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0).update(letter);
        Self(short(&hasher.finalize()))
    }
}

fn short(hash: &blake3::Hash) -> [u8; Chain::BYTES] {
    std::array::from_fn(|at| hash.as_bytes()[at])
}

/// A place in a stream. Number 0 is before the first letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub number: u64,
    pub chain: Chain,
}

impl Mark {
    /// The last number. A message or a record with a larger one is unreadable, and so all sums of numbers fit.
    pub const NUMBER_MAX: u64 = 1 << 62;

    /// The place after one more letter; none where numbers end.
    #[must_use]
    pub fn then(self, letter: &[u8]) -> Option<Self> {
        (self.number < Self::NUMBER_MAX).then(|| Self { number: self.number + 1, chain: self.chain.then(letter) })
    }
}
