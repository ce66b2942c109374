//! Ring 3 of x86-64.

use core::arch::asm;

/// Leaves to the tender, and comes back.
pub fn leave(port: u16) {
    // SAFETY: what the words point to is in memory before the tender looks, and what it wrote is seen afterwards.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") 0, options(nostack, preserves_flags)) };
}

/// The time-stamp counter.
pub fn tsc() -> u64 {
    // SAFETY: an instruction without effects; the tender leaves it open to ring 3.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// What `cpuid` says of instructions that compiled code may use; none for names unknown here.
pub fn has_feature(name: &str) -> Option<bool> {
    let (one, seven) = (core::arch::x86_64::__cpuid(1), core::arch::x86_64::__cpuid_count(7, 0));
    let extended = core::arch::x86_64::__cpuid(0x8000_0001);
    let bit = |register: u32, bit: u32| Some(register >> bit & 1 == 1);
    match name {
        "sse3" => bit(one.ecx, 0),
        "ssse3" => bit(one.ecx, 9),
        "cmpxchg16b" => bit(one.ecx, 13),
        "sse4.1" => bit(one.ecx, 19),
        "sse4.2" => bit(one.ecx, 20),
        "popcnt" => bit(one.ecx, 23),
        "bmi1" => bit(seven.ebx, 3),
        "bmi2" => bit(seven.ebx, 8),
        "lzcnt" => bit(extended.ecx, 5),
        _ => None,
    }
}

/// The end: a privileged instruction, which no tender lets pass.
pub fn halt() -> ! {
    loop {
        // SAFETY: in ring 3 it faults, and the machine ends.
        unsafe { asm!("hlt", options(nomem, nostack)) }
    }
}
