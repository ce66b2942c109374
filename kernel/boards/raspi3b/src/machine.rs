//! The machine itself: where what is, and how it ends.

use arch_metal::report::Ways;
use arch_metal::{Region, Registers, report};
use core::panic::PanicInfo;
use drivers::{BcmPower, Pl011};

pub const POWER: Region = Region { start: 0x3f10_0000, bytes: 0x1000 };
pub const RANDOM: Region = Region { start: 0x3f10_4000, bytes: 0x1000 };
const CONSOLE: Region = Region { start: 0x3f20_1000, bytes: 0x1000 };
pub const AUXILIARY: Region = Region { start: 0x3f21_5000, bytes: 0x1000 };
const LOCAL: Region = Region { start: 0x4000_0000, bytes: 0x1000 };
/// Of the gigabyte there is, what no firmware gives to graphics.
const RAM: Region = Region { start: 0, bytes: 512 << 20 };

/// Turns protection and reports on. The memory there is, in bytes.
pub fn begin() -> u64 {
    arch_metal::begin(RAM, &[POWER, RANDOM, CONSOLE, AUXILIARY, LOCAL]);
    report::set_ways(Ways { put, reset });
    drivers::lead_timer_to_core(&Registers::of(LOCAL));
    RAM.bytes as u64
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
