//! The serverkernel on QEMU's x86-64 machine `microvm`: a console, a network card, randomness, a watchdog where there is one.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::boxed::Box;
use arch_metal::report::Ways;
use arch_metal::{APIC, Ports, Region, report};
use core::panic::PanicInfo;
use drivers::{Ib700, Nic, Randomness, Uart16550, VirtioNet, VirtioRng, find_virtio};
use serverkernel::Parts;

const VIRTIO: Region = Region { start: 0xfeb0_0000, bytes: 0x3000 };
const VIRTIO_BYTES: usize = 0x200;
/// What there is at least, should the loader not say.
const MEMORY: Region = Region { start: 1 << 20, bytes: 63 << 20 };

arch_metal::entry!(main);

fn main(left: usize) -> ! {
    let ram = arch_metal::memory(left).unwrap_or(MEMORY);
    report::set_ways(Ways { put, reset: arch_metal::fault_reset });
    arch_metal::begin(ram, &[APIC, VIRTIO]);
    let net = find_virtio(VirtioNet::KIND, slots()).and_then(VirtioNet::new);
    let rng = find_virtio(VirtioRng::KIND, slots()).and_then(VirtioRng::new);
    serverkernel::run(Parts {
        board: "microvm",
        architecture: "x86_64",
        memory_bytes: (ram.start + ram.bytes) as u64,
        nic: net.map(|net| Box::new(net) as Box<dyn Nic>),
        randomness: rng.map(|rng| Box::new(rng) as Box<dyn Randomness>),
        feed: Some(|us| Ib700(Ports::watchdog()).watch(us)),
    })
}

fn slots() -> impl Iterator<Item = Region> {
    let starts = (VIRTIO.start..VIRTIO.start + VIRTIO.bytes).step_by(VIRTIO_BYTES);
    starts.map(|start| Region { start, bytes: VIRTIO_BYTES })
}

fn put(byte: u8) {
    Uart16550(Ports::serial()).put(byte);
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    report::panic(info)
}
