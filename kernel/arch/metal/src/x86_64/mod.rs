//! x86-64 at ring 0, one processor, entered as PVH.

mod apic;
mod interrupts;
mod ports;
mod start;

pub use apic::{APIC, idle, now_ns, set_alarm};
pub use ports::Ports;
pub use start::memory;

use crate::tables::Access;
use core::arch::asm;
use core::arch::x86_64::{__cpuid, _rdtsc};
use core::fmt;

/// Bits of an entry of a page table.
pub(crate) mod entry {
    use super::Access;

    const PRESENT: u64 = 1;
    const WRITABLE: u64 = 1 << 1;
    const UNCACHED: u64 = 1 << 3 | 1 << 4;
    const NEVER_RUN: u64 = 1 << 63;

    pub fn leaf(address: u64, access: Access) -> u64 {
        match access {
            Access::Code => address | PRESENT,
            Access::Constants => address | PRESENT | NEVER_RUN,
            Access::Data => address | PRESENT | WRITABLE | NEVER_RUN,
            Access::Device => address | PRESENT | WRITABLE | UNCACHED | NEVER_RUN,
        }
    }

    pub fn branch(address: u64) -> u64 {
        address | PRESENT | WRITABLE
    }

    pub fn address(entry: u64) -> u64 {
        entry & 0x000f_ffff_ffff_f000
    }
}

/// Turns the kernel's own page tables on, after those the first instructions made do with.
pub(crate) fn protect(root: u64) {
    /// Ring 0 too does not write what is read-only.
    const WRITE_PROTECT: u64 = 1 << 16;
    // SAFETY: the tables map code, constants, data and stack where they are, so that the next instruction is there.
    unsafe {
        asm!("mov cr3, {}", in(reg) root);
        asm!("mov {0}, cr0", "or {0}, {1}", "mov cr0, {0}", out(reg) _, in(reg) WRITE_PROTECT);
    }
    interrupts::begin();
    apic::begin();
}

/// Makes a change of page tables take effect.
pub(crate) fn flush(_: usize, _: usize) {
    // SAFETY: forgets translations, which are read again.
    unsafe { asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _) }
}

/// Code is fetched from where it was written.
pub(crate) fn code_was_written(_: usize, _: usize) {}

pub(crate) fn device_fence() {
    // SAFETY: waits.
    unsafe { asm!("mfence") }
}

#[inline(always)]
pub(crate) fn frame_pointer() -> usize {
    let frame: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack)) };
    frame
}

/// Nothing more, for ever.
pub fn stop() -> ! {
    loop {
        // SAFETY: sleeps, with interrupts kept out.
        unsafe { asm!("cli", "hlt") }
    }
}

/// Something that is hard to guess, a little: the counter.
pub fn jitter() -> u64 {
    // SAFETY: every x86-64 has it.
    unsafe { _rdtsc() }
}

/// What code may be compiled for.
pub fn has_feature(name: &str) -> Option<bool> {
    let leaf = __cpuid(1);
    Some(match name {
        "sse3" => leaf.ecx & 1 != 0,
        "ssse3" => leaf.ecx >> 9 & 1 != 0,
        "sse4.1" => leaf.ecx >> 19 & 1 != 0,
        "sse4.2" => leaf.ecx >> 20 & 1 != 0,
        "popcnt" => leaf.ecx >> 23 & 1 != 0,
        // Wider registers would have to be switched on first.
        _ => return None,
    })
}

/// Starts the machine again, by a fault that cannot be handled.
pub fn fault_reset() -> ! {
    let nothing = [0_u8; 10];
    // SAFETY: there is no way on from here.
    unsafe { asm!("lidt [{}]", "int3", in(reg) nothing.as_ptr()) };
    stop()
}

/// What `interrupts` saves when an exception comes.
#[repr(C)]
pub struct Registers {
    cr2: u64,
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    r11: u64,
    r10: u64,
    r9: u64,
    r8: u64,
    rbp: u64,
    rdi: u64,
    rsi: u64,
    rdx: u64,
    rcx: u64,
    rbx: u64,
    rax: u64,
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

impl Registers {
    pub(crate) fn frame_pointer(&self) -> usize {
        self.rbp as usize
    }
}

impl fmt::Display for Registers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, r12, r13, r14, r15, .. } = self;
        let Self { rip, rflags, vector, error, cr2, .. } = self;
        writeln!(
            f,
            "  rip {rip:016x} rsp {rsp:016x} flags {rflags:08x} vector {vector} error {error:x} cr2 {cr2:016x}"
        )?;
        writeln!(f, "  rax {rax:016x} rbx {rbx:016x} rcx {rcx:016x} rdx {rdx:016x}")?;
        writeln!(f, "  rsi {rsi:016x} rdi {rdi:016x} rbp {rbp:016x} r8  {r8:016x}")?;
        writeln!(f, "  r9  {r9:016x} r10 {r10:016x} r11 {r11:016x} r12 {r12:016x}")?;
        write!(f, "  r13 {r13:016x} r14 {r14:016x} r15 {r15:016x}")
    }
}

#[unsafe(no_mangle)]
extern "C" fn exception_taken(seen: &Registers) -> ! {
    const PAGE_FAULT: u64 = 14;
    const FETCH: u64 = 1 << 4;
    let guard = crate::image::layout().guard as u64;
    let is_guard = (guard..guard + crate::tables::PAGE as u64).contains(&seen.cr2);
    let name = match seen.vector {
        apic::ALARM_VECTOR => "watchdog: no sign of life",
        0 => "exception: division",
        6 => "exception: unknown instruction",
        8 => "exception: double fault",
        13 => "exception: protection",
        PAGE_FAULT if is_guard => "exception: stack overflow",
        PAGE_FAULT if seen.error & FETCH != 0 => "exception: memory that must not be run",
        PAGE_FAULT => "exception: memory that must not be read or written",
        _ => "exception",
    };
    crate::report::exception(name, seen)
}
