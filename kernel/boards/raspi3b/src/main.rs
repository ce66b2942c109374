//! The serverkernel on a Raspberry Pi 3B: the first serial line is the console, the second carries packets (SLIP).
//!
//! The Pi's Ethernet hangs on its USB and has no driver here. What is said of the real Pi is untested: QEMU's was at hand.
#![no_std]
#![no_main]

extern crate alloc;

mod machine;

use alloc::boxed::Box;
use arch_metal::Registers;
use drivers::{BcmPower, BcmRng, MiniUart};
use machine::{AUXILIARY, POWER, RANDOM};
use network::Slip;
use serverkernel::Parts;

const BAUD: u32 = 115_200;

arch_metal::entry!(main);

fn main(_: usize) -> ! {
    let memory_bytes = machine::begin();
    serverkernel::run(Parts {
        board: "raspi3b",
        architecture: "aarch64",
        memory_bytes,
        nic: Some(Box::new(Slip::new(MiniUart::new(Registers::of(AUXILIARY), BAUD)))),
        randomness: Some(Box::new(BcmRng::new(Registers::of(RANDOM)))),
        feed: Some(|us| BcmPower(Registers::of(POWER)).watch(us)),
    })
}
