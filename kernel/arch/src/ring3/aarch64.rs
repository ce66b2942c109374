//! EL0 of aarch64.

use core::arch::asm;
use kernel_abi::layout;

/// Leaves to the tender, and comes back. Registers of floating point are not those of before: a snapshot has none.
pub fn leave(port: u16) {
    // SAFETY: no memory is there, so that the store leaves the machine. What the words point to is in memory before the
    // tender looks, and what it wrote is seen afterwards.
    unsafe {
        asm!(
            "str {port:w}, [{exit}]",
            port = in(reg) u32::from(port),
            exit = in(reg) layout::EXIT,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _, out("v7") _,
            out("v8") _, out("v9") _, out("v10") _, out("v11") _, out("v12") _, out("v13") _, out("v14") _,
            out("v15") _, out("v16") _, out("v17") _, out("v18") _, out("v19") _, out("v20") _, out("v21") _,
            out("v22") _, out("v23") _, out("v24") _, out("v25") _, out("v26") _, out("v27") _, out("v28") _,
            out("v29") _, out("v30") _, out("v31") _,
            options(nostack, preserves_flags),
        );
    }
}

/// The virtual counter.
pub fn tsc() -> u64 {
    let count;
    // SAFETY: reads a register, which the tender leaves open to EL0.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags)) };
    count
}

/// Nothing beyond what every aarch64 has is asked for, or told.
pub fn has_feature(_: &str) -> Option<bool> {
    None
}

/// The end: an instruction that is none.
pub fn halt() -> ! {
    loop {
        // SAFETY: it faults, and the machine ends.
        unsafe { asm!("udf #0", options(nomem, nostack)) }
    }
}
