//! aarch64 at EL1, one core.

mod start;

use crate::tables::Access;
use core::arch::asm;
use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bits of an entry of a page table.
pub(crate) mod entry {
    use super::Access;

    const PAGE_OR_TABLE: u64 = 0b11;
    const NORMAL: u64 = 1 << 2;
    const READ_ONLY: u64 = 0b10 << 6;
    const SHARED: u64 = 0b11 << 8;
    const ACCESSED: u64 = 1 << 10;
    /// Not run at EL1, not run at EL0.
    const NEVER_RUN: u64 = 1 << 53;
    const NEVER_RUN_BELOW: u64 = 1 << 54;

    pub fn leaf(address: u64, access: Access) -> u64 {
        const MEMORY: u64 = PAGE_OR_TABLE | NORMAL | SHARED | ACCESSED | NEVER_RUN_BELOW;
        match access {
            Access::Code => address | MEMORY | READ_ONLY,
            Access::Constants => address | MEMORY | READ_ONLY | NEVER_RUN,
            Access::Data => address | MEMORY | NEVER_RUN,
            Access::Device => address | PAGE_OR_TABLE | ACCESSED | NEVER_RUN | NEVER_RUN_BELOW,
        }
    }

    pub fn branch(address: u64) -> u64 {
        address | PAGE_OR_TABLE
    }

    pub fn address(entry: u64) -> u64 {
        entry & 0x0000_ffff_ffff_f000
    }
}

macro_rules! read {
    ($register:literal) => {{
        let value: u64;
        // SAFETY: reading this register changes nothing.
        unsafe { asm!(concat!("mrs {}, ", $register), out(reg) value, options(nomem, nostack)) };
        value
    }};
}

/// Turns the page tables on. From here on code is not written and data is not run, whatever a table says: WXN.
pub(crate) fn protect(root: u64) {
    /// Attribute 0: devices; attribute 1: memory, written back.
    const ATTRIBUTES: u64 = 0xff04;
    /// 48 bits of addresses below, none above; tables in cached memory; 40 bits of physical addresses.
    const TRANSLATION: u64 = 16 | 1 << 8 | 1 << 10 | 0b11 << 12 | 1 << 23 | 0b010 << 32;
    /// Tables, data cache, stack alignment, instruction cache, what is writable is not run.
    const ON: u64 = 1 | 1 << 2 | 1 << 3 | 1 << 12 | 1 << 19;
    const ALIGNMENT_CHECK: u64 = 1 << 1;
    let control = read!("sctlr_el1") & !ALIGNMENT_CHECK | ON;
    // SAFETY: the tables map code, constants, data and stack where they are, so that the next instruction is there.
    unsafe {
        asm!(
            "dsb sy",
            "msr mair_el1, {attributes}",
            "msr tcr_el1, {translation}",
            "msr ttbr0_el1, {root}",
            "isb",
            "tlbi vmalle1",
            "ic iallu",
            "dsb sy",
            "isb",
            "msr sctlr_el1, {control}",
            "isb",
            attributes = in(reg) ATTRIBUTES,
            translation = in(reg) TRANSLATION,
            root = in(reg) root,
            control = in(reg) control,
        );
    }
}

/// Makes a change of page tables take effect.
pub(crate) fn flush(_: usize, _: usize) {
    // SAFETY: forgets translations, which are read again.
    unsafe { asm!("dsb ishst", "tlbi vmalle1", "dsb ish", "isb") }
}

/// Brings code from where it was written to where it is fetched from.
pub(crate) fn code_was_written(start: usize, bytes: usize) {
    const LINE: usize = 64;
    for line in (start & !(LINE - 1)..start + bytes).step_by(LINE) {
        // SAFETY: writes a cache line back, of memory that is mapped.
        unsafe { asm!("dc cvau, {}", in(reg) line) }
    }
    // SAFETY: forgets instructions, which are fetched again.
    unsafe { asm!("dsb ish", "ic iallu", "dsb ish", "isb") }
}

pub(crate) fn device_fence() {
    // SAFETY: waits.
    unsafe { asm!("dsb sy") }
}

#[inline(always)]
pub(crate) fn frame_pointer() -> usize {
    let frame: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, x29", out(reg) frame, options(nomem, nostack)) };
    frame
}

/// Nothing more, for ever.
pub fn stop() -> ! {
    loop {
        // SAFETY: sleeps, with interrupts kept out.
        unsafe { asm!("msr daifset, #15", "wfi") }
    }
}

// --- Time.

/// Nanoseconds since the machine started.
pub fn now_ns() -> u64 {
    // SAFETY: waits for what was before.
    unsafe { asm!("isb") };
    let (count, frequency) = (u128::from(read!("cntvct_el0")), u128::from(read!("cntfrq_el0")));
    // 2⁶⁴ ns are 584 years.
    (count * 1_000_000_000 / frequency.max(1)) as u64
}

/// Something that is hard to guess, a little: the counter.
pub fn jitter() -> u64 {
    read!("cntvct_el0")
}

static ALARM: AtomicU64 = AtomicU64::new(u64::MAX);

/// In so many microseconds the machine reports where it is and starts again, unless this is called before. The board has
/// led the interrupt of the virtual timer to this core.
pub fn set_alarm(in_us: u64) {
    let at = read!("cntvct_el0") + ticks(in_us);
    ALARM.store(at, Relaxed);
    set_timer(at);
    // SAFETY: interrupts end in a report, and a report is sound at any time.
    unsafe { asm!("msr daifclr, #2") };
}

/// Sleeps, for at most so long.
pub fn idle(us: u64) {
    // SAFETY: interrupts are kept out while the timer is not the alarm's. A pending one ends the sleep all the same.
    unsafe { asm!("msr daifset, #2") };
    set_timer(read!("cntvct_el0") + ticks(us));
    // SAFETY: sleeps until the timer.
    unsafe { asm!("wfi") };
    set_timer(ALARM.load(Relaxed));
    if ALARM.load(Relaxed) != u64::MAX {
        // SAFETY: as in `set_alarm`.
        unsafe { asm!("isb", "msr daifclr, #2") };
    }
}

fn ticks(us: u64) -> u64 {
    (u128::from(us) * u128::from(read!("cntfrq_el0")) / 1_000_000) as u64
}

fn set_timer(at: u64) {
    // SAFETY: the timer interrupts, which ends in a report or a sleep.
    unsafe { asm!("msr cntv_cval_el0, {}", "msr cntv_ctl_el0, {}", "isb", in(reg) at, in(reg) 1_u64) }
}

// --- What else there is.

/// Nothing beyond what every aarch64 has is asked for, or told.
pub fn has_feature(_: &str) -> Option<bool> {
    None
}

/// Starts a machine with firmware again.
pub fn firmware_reset() -> ! {
    const SYSTEM_RESET: u64 = 0x8400_0009;
    // SAFETY: does not return where there is firmware, and fails where there is none.
    unsafe { asm!("hvc #0", inlateout("x0") SYSTEM_RESET => _, options(nostack)) };
    stop()
}

/// The device tree a boot loader left at this address; only before [`begin`](crate::begin).
pub fn device_tree(at: usize) -> Option<&'static [u8]> {
    const MAGIC: u32 = 0xd00d_feed;
    const BYTES_MAX: usize = 2 << 20;
    // SAFETY: memory is not protected yet, and boards call this with addresses where there is some.
    let head = unsafe { &*ptr::with_exposed_provenance::<[[u8; 4]; 2]>(at) };
    let [magic, bytes] = head.map(u32::from_be_bytes);
    let bytes = bytes as usize;
    // SAFETY: the loader says how long it is, and nothing is written there before memory is protected.
    (magic == MAGIC && bytes <= BYTES_MAX)
        .then(|| unsafe { core::slice::from_raw_parts(ptr::with_exposed_provenance(at), bytes) })
}

/// What `start` saves when an exception comes.
#[repr(C)]
pub struct Registers {
    x: [u64; 31],
    sp: u64,
    vector: u64,
    elr: u64,
    esr: u64,
    far: u64,
    spsr: u64,
}

impl Registers {
    pub(crate) fn frame_pointer(&self) -> usize {
        self.x[29] as usize
    }
}

impl fmt::Display for Registers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  pc {:016x} sp {:016x} esr {:08x} far {:016x}", self.elr, self.sp, self.esr, self.far)?;
        for (number, value) in self.x.iter().enumerate() {
            write!(f, "  x{number:<2} {value:016x}{}", if number % 4 == 3 { "\n" } else { "" })?;
        }
        write!(f, "  spsr {:08x}", self.spsr)
    }
}

#[unsafe(no_mangle)]
extern "C" fn exception_taken(seen: &Registers) -> ! {
    let class = seen.esr >> 26 & 0x3f;
    let name = match (seen.vector % 4, class) {
        (1, _) => "watchdog: no sign of life",
        (0, 0x20 | 0x21) => "exception: memory that must not be run",
        (0, 0x24 | 0x25) if is_guard(seen.far) => "exception: stack overflow",
        (0, 0x24 | 0x25) => "exception: memory that must not be read or written",
        (0, 0) => "exception: unknown instruction",
        (0, 0x3c) => "exception: breakpoint",
        (0, _) => "exception",
        (2, _) => "fast interrupt",
        _ => "system error",
    };
    crate::report::exception(name, seen)
}

fn is_guard(address: u64) -> bool {
    let guard = crate::image::layout().guard as u64;
    (guard..guard + crate::tables::PAGE as u64).contains(&address)
}
