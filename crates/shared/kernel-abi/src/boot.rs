//! The boot page: what the tender says of itself and of the unit. The kernel only reads it.
//!
//! It is read anew for each event: a snapshot is taken before the tender knows whose unit it will be.

use crate::VERSION;

/// `b"lighter\0"`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"lighter\0");

/// Little-endian words, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Boot {
    pub magic: u64,
    pub version: u64,
    /// Compiled code at [`CODE`](crate::layout::CODE); 0 until there is some.
    pub code_bytes: u64,
    pub heap: u64,
    pub heap_end: u64,
    /// Linear memory the unit may have.
    pub memory_bytes: u64,
    /// The bits of its [`Policy`](crate::Policy).
    pub policy: u64,
    /// Turns of the time-stamp counter in a second, or of the virtual counter of aarch64.
    pub tsc_hz: u64,
}

impl Boot {
    pub const WORDS: usize = 8;

    pub const fn new() -> Self {
        Self {
            magic: MAGIC,
            version: VERSION as u64,
            code_bytes: 0,
            heap: 0,
            heap_end: 0,
            memory_bytes: 0,
            policy: 0,
            tsc_hz: 0,
        }
    }

    pub const fn words(&self) -> [u64; Self::WORDS] {
        [
            self.magic,
            self.version,
            self.code_bytes,
            self.heap,
            self.heap_end,
            self.memory_bytes,
            self.policy,
            self.tsc_hz,
        ]
    }
}
