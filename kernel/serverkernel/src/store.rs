//! Payloads that have been checked, kept by hash until others need their room.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use board_link::Hash;

const PAYLOADS_MAX: usize = 16;

/// Code a board may run.
pub struct Code {
    pub hash: Hash,
    pub code: Vec<u8>,
    /// Bytecode for the interpreter instead of machine code.
    pub is_portable: bool,
}

/// The least recently used is first, and goes first.
#[derive(Default)]
pub struct Store(VecDeque<Code>);

impl Store {
    pub fn holds(&self, hash: &Hash) -> bool {
        self.0.iter().any(|held| held.hash == *hash)
    }

    /// Takes it out for a run; see [`Store::keep`].
    pub fn take(&mut self, hash: &Hash) -> Option<Code> {
        let at = self.0.iter().position(|held| held.hash == *hash)?;
        self.0.remove(at)
    }

    pub fn keep(&mut self, code: Code) {
        if self.0.len() == PAYLOADS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(code);
    }

    /// Gives up payloads until there is room, if that helps.
    pub fn make_room(&mut self, bytes: u64) -> bool {
        while arch_metal::free_bytes() < bytes {
            if self.0.pop_front().is_none() {
                return false;
            }
        }
        true
    }
}
