//! The registers of a guest, as KVM, artefacts, core files and debuggers know them.

use kvm_bindings::kvm_regs;

/// The registers of a guest that stands still. Floating point is at rest wherever they are copied.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Registers(pub kvm_regs);

impl Registers {
    pub const WORDS: usize = 18;
    pub const NAMES: [&str; Self::WORDS] = [
        "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
        "rip", "rflags",
    ];

    pub fn words(&self) -> [u64; Self::WORDS] {
        let r = &self.0;
        [
            r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14,
            r.r15, r.rip, r.rflags,
        ]
    }

    pub fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags] = words;
        Self(kvm_regs { rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags })
    }

    /// Where a kernel begins: interrupts on for the processor's sake, all ports open, and nothing else. The stack ends
    /// where it would if a call had come before.
    pub fn at(entry: u64, stack_end: u64) -> Self {
        Self(kvm_regs { rip: entry, rsp: stack_end - 8, rflags: FLAGS, ..kvm_regs::default() })
    }

    /// The next instruction.
    pub fn pc(&self) -> u64 {
        self.0.rip
    }

    /// Where the frames of the stack begin.
    pub fn frame(&self) -> u64 {
        self.0.rbp
    }

    /// As `struct user_regs_struct` of Linux has them.
    pub fn of_linux(&self) -> [u64; 27] {
        let r = &self.0;
        let (code, stack) = (0x33, 0x2b);
        [
            r.r15,
            r.r14,
            r.r13,
            r.r12,
            r.rbp,
            r.rbx,
            r.r11,
            r.r10,
            r.r9,
            r.r8,
            r.rax,
            r.rcx,
            r.rdx,
            r.rsi,
            r.rdi,
            u64::MAX,
            r.rip,
            code,
            r.rflags,
            r.rsp,
            stack,
            0,
            0,
            0,
            0,
            0,
            0,
        ]
    }

    /// In gdb's order: general ones and rip by 8 bytes, flags and selectors by 4. Those of floating point, which
    /// follow, are not there.
    pub fn of_gdb(&self) -> Vec<u8> {
        let r = &self.0;
        let wide = [
            r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14,
            r.r15, r.rip,
        ];
        let mut bytes: Vec<u8> = wide.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend((r.rflags as u32).to_le_bytes());
        bytes.extend(SELECTORS.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    /// As gdb has changed them. None: too few bytes.
    pub fn set_by_gdb(&self, bytes: &[u8]) -> Option<Self> {
        let words: Vec<u64> = bytes
            .get(..8 * WIDE)?
            .chunks(8)
            .map(|word| word.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
            .collect();
        let flags = u32::from_le_bytes(bytes.get(8 * WIDE..8 * WIDE + 4)?.try_into().ok()?);
        let [rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, r12, r13, r14, r15, rip] =
            words.try_into().ok()?;
        let rflags = self.0.rflags & !OWN_FLAGS | u64::from(flags) & OWN_FLAGS;
        let words = [rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, r12, r13, r14, r15, rip, rflags];
        Some(Self::from_words(words))
    }
}

/// Reserved bit, interrupts, and I/O privilege 3: an `out` leaves to the tender instead of faulting.
const FLAGS: u64 = 0x3202;
/// Flags that are a program's own: arithmetic and direction. The others make the machine what it is.
const OWN_FLAGS: u64 = 0xcd5;
/// For gdb: registers of 8 bytes, and the selectors of which it hears.
const WIDE: usize = 17;
const SELECTORS: [u32; 6] = [0x33, 0x2b, 0, 0, 0, 0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gdb_changes_registers_and_the_machines_flags_stay() {
        let words: [u64; Registers::WORDS] = std::array::from_fn(|index| 0x100 * index as u64 + 7);
        let before = Registers::from_words(words);
        assert_eq!(before.set_by_gdb(&before.of_gdb()).unwrap(), before);
        let mut bytes = before.of_gdb();
        bytes[8 * WIDE..8 * WIDE + 4].fill(0xff);
        assert_eq!(before.set_by_gdb(&bytes).unwrap().0.rflags, before.0.rflags | OWN_FLAGS);
        assert_eq!(before.set_by_gdb(&bytes[..130]), None);
    }
}
