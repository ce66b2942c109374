//! The machine itself: where what is, and how it ends.

use arch_metal::report::Ways;
use arch_metal::{APIC, Ports, Region, report};
use core::panic::PanicInfo;
use drivers::Uart16550;

pub const VIRTIO: Region = Region { start: 0xfeb0_0000, bytes: 0x3000 };
/// What there is at least, should the loader not say.
const MEMORY: Region = Region { start: 1 << 20, bytes: 63 << 20 };

/// Turns protection and reports on; `left` is what the loader left. The memory there is, in bytes.
pub fn begin(left: usize) -> u64 {
    let ram = arch_metal::memory(left).unwrap_or(MEMORY);
    report::set_ways(Ways { put, reset: arch_metal::fault_reset });
    arch_metal::begin(ram, &[APIC, VIRTIO]);
    (ram.start + ram.bytes) as u64
}

fn put(byte: u8) {
    Uart16550(Ports::serial()).put(byte);
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    report::panic(info)
}
