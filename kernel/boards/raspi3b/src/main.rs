//! The serverkernel on a Raspberry Pi 3B: the first serial line is the console, the second carries packets (SLIP).
//!
//! The Pi's Ethernet hangs on its USB and has no driver here. What is said of the real Pi is untested: QEMU's was at hand.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::boxed::Box;
use arch_metal::report::Ways;
use arch_metal::{Region, Registers, report};
use core::panic::PanicInfo;
use drivers::{BcmPower, BcmRng, MiniUart, Pl011};
use network::Slip;
use serverkernel::Parts;

const POWER: Region = Region { start: 0x3f10_0000, bytes: 0x1000 };
const RANDOM: Region = Region { start: 0x3f10_4000, bytes: 0x1000 };
const CONSOLE: Region = Region { start: 0x3f20_1000, bytes: 0x1000 };
const AUXILIARY: Region = Region { start: 0x3f21_5000, bytes: 0x1000 };
const LOCAL: Region = Region { start: 0x4000_0000, bytes: 0x1000 };
/// Of the gigabyte there is, what no firmware gives to graphics.
const RAM: Region = Region { start: 0, bytes: 512 << 20 };
const BAUD: u32 = 115_200;

arch_metal::entry!(main);

fn main(_: usize) -> ! {
    arch_metal::begin(RAM, &[POWER, RANDOM, CONSOLE, AUXILIARY, LOCAL]);
    report::set_ways(Ways { put, reset });
    drivers::lead_timer_to_core(&Registers::of(LOCAL));
    serverkernel::run(Parts {
        board: "raspi3b",
        architecture: "aarch64",
        memory_bytes: RAM.bytes as u64,
        nic: Some(Box::new(Slip::new(MiniUart::new(Registers::of(AUXILIARY), BAUD)))),
        randomness: Some(Box::new(BcmRng::new(Registers::of(RANDOM)))),
        feed: Some(|us| BcmPower(Registers::of(POWER)).watch(us)),
    })
}

fn put(byte: u8) {
    Pl011(Registers::of(CONSOLE)).put(byte);
}

fn reset() -> ! {
    BcmPower(Registers::of(POWER)).reset()
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    report::panic(info)
}
