//! Devices of QEMU over MMIO, version 2 of the transport: found, reset, agreed with, given queues.

mod net;
mod queue;
mod rng;

pub use net::VirtioNet;
pub use rng::VirtioRng;

use arch_metal::{Region, Registers};

const MAGIC: usize = 0x000;
const VERSION: usize = 0x004;
const DEVICE: usize = 0x008;
const OFFERED: usize = 0x010;
const OFFERED_WHICH: usize = 0x014;
const TAKEN: usize = 0x020;
const TAKEN_WHICH: usize = 0x024;
const QUEUE: usize = 0x030;
const QUEUE_ENTRIES_MAX: usize = 0x034;
const QUEUE_ENTRIES: usize = 0x038;
const QUEUE_READY: usize = 0x044;
const QUEUE_NOTIFY: usize = 0x050;
const STATUS: usize = 0x070;
const QUEUE_DESCRIPTORS: usize = 0x080;
const QUEUE_AVAILABLE: usize = 0x090;
const QUEUE_USED: usize = 0x0a0;
const CONFIGURATION: usize = 0x100;

const ACKNOWLEDGED: u32 = 1;
const DRIVER: u32 = 2;
const DRIVER_OK: u32 = 4;
const FEATURES_OK: u32 = 8;

/// Feature 32: the device speaks version 1 of the standard.
const VERSION_1_HIGH: u32 = 1;

/// The registers of the first device of this kind among `slots`.
pub fn find(kind: u32, slots: impl Iterator<Item = Region>) -> Option<Registers> {
    const MAGIC_VALUE: u32 = 0x7472_6976;
    slots.map(Registers::of).find(|registers| {
        registers.read(MAGIC) == MAGIC_VALUE && registers.read(VERSION) == 2 && registers.read(DEVICE) == kind
    })
}

/// Resets a device and takes the features of `low` that it offers. None: it does not agree.
fn agree(registers: &Registers, low: u32) -> Option<u32> {
    registers.write(STATUS, 0);
    registers.write(STATUS, ACKNOWLEDGED | DRIVER);
    let offered = |which| {
        registers.write(OFFERED_WHICH, which);
        registers.read(OFFERED)
    };
    let (low, high) = (offered(0) & low, offered(1) & VERSION_1_HIGH);
    for (which, taken) in [(0, low), (1, high)] {
        registers.write(TAKEN_WHICH, which);
        registers.write(TAKEN, taken);
    }
    registers.write(STATUS, ACKNOWLEDGED | DRIVER | FEATURES_OK);
    (high == VERSION_1_HIGH && registers.read(STATUS) & FEATURES_OK != 0).then_some(low)
}

fn begin(registers: &Registers) {
    registers.write(STATUS, ACKNOWLEDGED | DRIVER | FEATURES_OK | DRIVER_OK);
}
