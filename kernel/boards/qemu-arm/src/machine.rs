//! The machine itself: where what is, and how it ends.

use arch_metal::report::Ways;
use arch_metal::{Region, Registers, report};
use core::panic::PanicInfo;
use drivers::Pl011;

const INTERRUPTS: Region = Region { start: 0x0800_0000, bytes: 0x1000 };
const INTERRUPTS_HERE: Region = Region { start: 0x0801_0000, bytes: 0x1000 };
const CONSOLE: Region = Region { start: 0x0900_0000, bytes: 0x1000 };
pub const VIRTIO: Region = Region { start: 0x0a00_0000, bytes: 0x4000 };
const MEMORY: usize = 0x4000_0000;
/// What every `virt` has at least, should the device tree not say.
const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// Turns protection and reports on. The memory there is, in bytes.
pub fn begin() -> u64 {
    // QEMU leaves the tree at the start of memory.
    let tree = arch_metal::device_tree(MEMORY).and_then(drivers::memory);
    let memory_bytes = tree.map_or(MEMORY_BYTES_MIN, |(_, bytes)| bytes);
    let ram = Region { start: MEMORY, bytes: memory_bytes as usize };
    arch_metal::begin(ram, &[INTERRUPTS, INTERRUPTS_HERE, CONSOLE, VIRTIO]);
    report::set_ways(Ways { put, reset: arch_metal::firmware_reset });
    drivers::let_in_timer(&Registers::of(INTERRUPTS), &Registers::of(INTERRUPTS_HERE));
    memory_bytes
}

fn put(byte: u8) {
    Pl011(Registers::of(CONSOLE)).put(byte);
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    report::panic(info)
}
