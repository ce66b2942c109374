//! Time: the processor's counter, measured once against the timer of its interrupt controller; alarm and sleep.

use crate::{Region, Registers};
use core::arch::asm;
use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The interrupt controller: boards name it among their devices.
pub const APIC: Region = Region { start: 0xfee0_0000, bytes: 4_096 };

pub(super) const ALARM_VECTOR: u64 = 0x20;
pub(super) const WAKE_VECTOR: u64 = 0x21;

const SPURIOUS: usize = 0xf0;
const TIMER: usize = 0x320;
const COUNT_FROM: usize = 0x380;
const COUNT: usize = 0x390;
const DIVIDE: usize = 0x3e0;
/// QEMU's timer, with or without KVM, counts nanoseconds; here every 128 of them.
const TICK_NS: u64 = 128;
const DIVIDE_BY_128: u32 = 0b1010;

/// Of the processor's counter.
static TICKS_PER_MS: AtomicU64 = AtomicU64::new(1);
static START: AtomicU64 = AtomicU64::new(0);
/// When the alarm goes off; 0: never.
static ALARM_NS: AtomicU64 = AtomicU64::new(0);

/// Only called once memory is protected.
fn apic() -> Registers {
    Registers::of(APIC)
}

pub(super) fn begin() {
    const MEASURED_TICKS: u32 = 15_625;
    const ENABLE_AND_VECTOR: u32 = 0x1ff;
    const MASKED: u32 = 1 << 16;
    let apic = apic();
    apic.write(SPURIOUS, ENABLE_AND_VECTOR);
    apic.write(DIVIDE, DIVIDE_BY_128);
    apic.write(TIMER, MASKED);
    apic.write(COUNT_FROM, u32::MAX);
    let (from, start) = (apic.read(COUNT), counter());
    while from - apic.read(COUNT) < MEASURED_TICKS {}
    let (ticks, counted) = (u64::from(from - apic.read(COUNT)), counter() - start);
    TICKS_PER_MS.store((counted * 1_000_000 / (ticks * TICK_NS)).max(1), Relaxed);
    START.store(start, Relaxed);
}

fn counter() -> u64 {
    // SAFETY: every x86-64 has it.
    unsafe { _rdtsc() }
}

/// Nanoseconds since the machine started.
pub fn now_ns() -> u64 {
    let ticks = u128::from(counter().saturating_sub(START.load(Relaxed)));
    // 2⁶⁴ ns are 584 years.
    (ticks * 1_000_000 / u128::from(TICKS_PER_MS.load(Relaxed))) as u64
}

/// In so many microseconds the machine reports where it is and starts again, unless this is called before.
pub fn set_alarm(in_us: u64) {
    ALARM_NS.store(now_ns() + in_us * 1_000, Relaxed);
    set_timer(ALARM_VECTOR, in_us * 1_000);
    // SAFETY: interrupts end in a report, and a report is sound at any time.
    unsafe { asm!("sti") };
}

/// Sleeps, for at most so long.
pub fn idle(us: u64) {
    // SAFETY: interrupts are kept out while the timer is not the alarm's.
    unsafe { asm!("cli") };
    set_timer(WAKE_VECTOR, us * 1_000);
    // SAFETY: the only interrupt that can come does nothing but end the sleep; `sti` lets none in before `hlt`.
    unsafe { asm!("sti", "hlt", "cli") };
    let alarm = ALARM_NS.load(Relaxed);
    if alarm != 0 {
        set_timer(ALARM_VECTOR, alarm.saturating_sub(now_ns()).max(1_000));
        // SAFETY: as in `set_alarm`.
        unsafe { asm!("sti") };
    }
}

fn set_timer(vector: u64, in_ns: u64) {
    let apic = apic();
    // Below 48.
    apic.write(TIMER, vector as u32);
    // Longer than nine minutes is as good as nine minutes.
    apic.write(COUNT_FROM, u32::try_from(in_ns / TICK_NS).unwrap_or(u32::MAX).max(1));
}
