//! Randomness: a pool that everything hard to guess is stirred into, and that never gives the same twice.

use alloc::boxed::Box;
use arch_metal::jitter;
use board_link::hash;
use drivers::Randomness;

/// Taken from the device at a time.
const STIR_BYTES: usize = 32;

pub struct Entropy {
    pool: [u8; 32],
    device: Option<Box<dyn Randomness>>,
}

impl Entropy {
    /// `secret` is the board's own: what comes out cannot be guessed without it, even where there is no device.
    pub fn new(secret: &[u8; 32], device: Option<Box<dyn Randomness>>) -> Self {
        let mut entropy = Self { pool: hash(&[&b"entropy"[..], secret].concat()), device };
        for _ in 0..8 {
            entropy.stir();
        }
        entropy
    }

    /// 32 bytes for one use.
    pub fn seed(&mut self) -> [u8; 32] {
        self.stir();
        self.next()
    }

    pub fn fill(&mut self, into: &mut [u8]) {
        self.stir();
        for chunk in into.chunks_mut(32) {
            chunk.copy_from_slice(&self.next()[..chunk.len()]);
        }
    }

    fn stir(&mut self) {
        let mut fresh = [0; STIR_BYTES];
        let bytes = self.device.as_mut().map_or(0, |device| device.fill(&mut fresh));
        self.pool = hash(&[&self.pool[..], &fresh[..bytes], &jitter().to_le_bytes()].concat());
    }

    fn next(&mut self) -> [u8; 32] {
        let given = hash(&[&b"given"[..], &self.pool].concat());
        self.pool = hash(&[&b"kept"[..], &self.pool].concat());
        given
    }
}
