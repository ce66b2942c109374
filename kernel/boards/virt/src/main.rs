//! The serverkernel on QEMU's aarch64 machine `virt`: a console, a network card, randomness, firmware to reset it.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::boxed::Box;
use arch_metal::report::Ways;
use arch_metal::{Region, Registers, report};
use core::panic::PanicInfo;
use drivers::{Nic, Pl011, Randomness, VirtioNet, VirtioRng, find_virtio};
use serverkernel::Parts;

const INTERRUPTS: Region = Region { start: 0x0800_0000, bytes: 0x1000 };
const INTERRUPTS_HERE: Region = Region { start: 0x0801_0000, bytes: 0x1000 };
const CONSOLE: Region = Region { start: 0x0900_0000, bytes: 0x1000 };
const VIRTIO: Region = Region { start: 0x0a00_0000, bytes: 0x4000 };
const VIRTIO_BYTES: usize = 0x200;
const MEMORY: usize = 0x4000_0000;
/// What every `virt` has at least, should the device tree not say.
const MEMORY_BYTES_MIN: u64 = 64 << 20;

arch_metal::entry!(main);

fn main(_: usize) -> ! {
    // QEMU leaves the tree at the start of memory.
    let tree = arch_metal::device_tree(MEMORY).and_then(drivers::memory);
    let memory_bytes = tree.map_or(MEMORY_BYTES_MIN, |(_, bytes)| bytes);
    let ram = Region { start: MEMORY, bytes: memory_bytes as usize };
    arch_metal::begin(ram, &[INTERRUPTS, INTERRUPTS_HERE, CONSOLE, VIRTIO]);
    report::set_ways(Ways { put, reset: arch_metal::firmware_reset });
    drivers::let_in_timer(&Registers::of(INTERRUPTS), &Registers::of(INTERRUPTS_HERE));
    let net = find_virtio(VirtioNet::KIND, slots()).and_then(VirtioNet::new);
    let rng = find_virtio(VirtioRng::KIND, slots()).and_then(VirtioRng::new);
    serverkernel::run(Parts {
        board: "virt",
        architecture: "aarch64",
        memory_bytes,
        nic: net.map(|net| Box::new(net) as Box<dyn Nic>),
        randomness: rng.map(|rng| Box::new(rng) as Box<dyn Randomness>),
        feed: None,
    })
}

fn slots() -> impl Iterator<Item = Region> {
    let starts = (VIRTIO.start..VIRTIO.start + VIRTIO.bytes).step_by(VIRTIO_BYTES);
    starts.map(|start| Region { start, bytes: VIRTIO_BYTES })
}

fn put(byte: u8) {
    Pl011(Registers::of(CONSOLE)).put(byte);
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    report::panic(info)
}
