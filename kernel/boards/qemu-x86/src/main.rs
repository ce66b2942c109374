//! The serverkernel on QEMU's x86-64 machine `microvm`: a console, a network card, randomness, a watchdog where there is one.
#![no_std]
#![no_main]

extern crate alloc;

mod machine;

use alloc::boxed::Box;
use arch_metal::{Ports, Region};
use drivers::{Ib700, Randomness, VirtioNet, VirtioRng, find_virtio};
use machine::VIRTIO;
use network::Nic;
use serverkernel::Parts;

const VIRTIO_BYTES: usize = 0x200;

arch_metal::entry!(main);

fn main(left: usize) -> ! {
    let memory_bytes = machine::begin(left);
    let net = find_virtio(VirtioNet::KIND, slots()).and_then(VirtioNet::new);
    let rng = find_virtio(VirtioRng::KIND, slots()).and_then(VirtioRng::new);
    serverkernel::run(Parts {
        board: "qemu-x86",
        architecture: "x86_64",
        memory_bytes,
        nic: net.map(|net| Box::new(net) as Box<dyn Nic>),
        randomness: rng.map(|rng| Box::new(rng) as Box<dyn Randomness>),
        feed: Some(|us| Ib700(Ports::watchdog()).watch(us)),
    })
}

fn slots() -> impl Iterator<Item = Region> {
    let starts = (VIRTIO.start..VIRTIO.start + VIRTIO.bytes).step_by(VIRTIO_BYTES);
    starts.map(|start| Region { start, bytes: VIRTIO_BYTES })
}
