//! The registers of a guest, as KVM, artefacts, core files and debuggers know them.

use kvm_bindings::kvm_regs;

/// The registers of a guest that stands still. Floating point is at rest wherever they are copied.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Registers(pub kvm_regs);

impl Registers {
    pub const WORDS: usize = 18;

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

    /// Where a kernel begins: interrupts on for the processor's sake, all ports open, and nothing else.
    pub fn at(entry: u64, stack: u64) -> Self {
        Self(kvm_regs { rip: entry, rsp: stack, rflags: FLAGS, ..kvm_regs::default() })
    }
}

/// Reserved bit, interrupts, and I/O privilege 3: an `out` leaves to the tender instead of faulting.
const FLAGS: u64 = 0x3202;
