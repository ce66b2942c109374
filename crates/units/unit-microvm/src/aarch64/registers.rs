//! The registers of a guest, as KVM, artefacts, core files and debuggers know them.

/// The registers of a guest that stands still: x0 to x30, sp, pc, and the state. Floating point is at rest wherever
/// they are copied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Registers([u64; Self::WORDS]);

impl Default for Registers {
    fn default() -> Self {
        Self([0; Self::WORDS])
    }
}

pub const SP: usize = 31;
pub const PC: usize = 32;
pub const STATE: usize = 33;

impl Registers {
    pub const WORDS: usize = 34;
    pub const NAMES: [&str; Self::WORDS] = [
        "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
        "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp", "pc",
        "state",
    ];

    pub fn words(&self) -> [u64; Self::WORDS] {
        self.0
    }

    /// Whatever the state says, it is one of EL0.
    pub fn from_words(mut words: [u64; Self::WORDS]) -> Self {
        words[STATE] = words[STATE] & OWN_FLAGS | MASKED;
        Self(words)
    }

    /// Where a kernel begins.
    pub fn at(entry: u64, stack_end: u64) -> Self {
        let mut words = [0; Self::WORDS];
        (words[PC], words[SP]) = (entry, stack_end);
        Self::from_words(words)
    }

    /// The next instruction.
    pub fn pc(&self) -> u64 {
        self.0[PC]
    }

    /// Where the frames of the stack begin.
    pub fn frame(&self) -> u64 {
        self.0[29]
    }

    /// As `struct user_pt_regs` of Linux has them.
    pub fn of_linux(&self) -> [u64; Self::WORDS] {
        self.0
    }

    /// In gdb's order: all by 8 bytes but the state, by 4. Those of floating point, which follow, are not there.
    pub fn of_gdb(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(8 * STATE + 4);
        bytes
    }

    /// As gdb has changed them. None: too few bytes.
    pub fn set_by_gdb(&self, bytes: &[u8]) -> Option<Self> {
        let mut words = [0; Self::WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.get(..8 * STATE)?.chunks(8)) {
            *word = bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        }
        words[STATE] = u32::from_le_bytes(bytes.get(8 * STATE..8 * STATE + 4)?.try_into().ok()?).into();
        Some(Self::from_words(words))
    }
}

/// Flags of arithmetic, which are a program's own; the others make the machine what it is.
const OWN_FLAGS: u64 = 0xf000_0000;
/// EL0, and no interrupt is let in.
const MASKED: u64 = 0x3c0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_registers_are_those_of_more_than_el0() {
        let words: [u64; Registers::WORDS] = std::array::from_fn(|index| 0x100 * index as u64 + 7);
        let before = Registers::from_words(words);
        assert_eq!(before.words()[STATE], MASKED);
        assert_eq!(before.set_by_gdb(&before.of_gdb()).unwrap(), before);
        let mut bytes = before.of_gdb();
        bytes[8 * STATE..].fill(0xff);
        assert_eq!(before.set_by_gdb(&bytes).unwrap().words()[STATE], OWN_FLAGS | MASKED);
        assert_eq!(before.set_by_gdb(&bytes[..260]), None);
    }
}
