//! The serverkernel on QEMU's aarch64 machine `virt`: a console, a network card, randomness, firmware to reset it.
#![no_std]
#![no_main]

extern crate alloc;

mod machine;

use alloc::boxed::Box;
use arch_metal::Region;
use drivers::{Randomness, VirtioNet, VirtioRng, find_virtio};
use machine::VIRTIO;
use network::Nic;
use serverkernel::Parts;

const VIRTIO_BYTES: usize = 0x200;

arch_metal::entry!(main);

fn main(_: usize) -> ! {
    let memory_bytes = machine::begin();
    let net = find_virtio(VirtioNet::KIND, slots()).and_then(VirtioNet::new);
    let rng = find_virtio(VirtioRng::KIND, slots()).and_then(VirtioRng::new);
    serverkernel::run(Parts {
        board: "qemu-arm",
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
