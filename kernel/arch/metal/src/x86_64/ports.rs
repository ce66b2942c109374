//! Ports of the devices a PC has had for ever.

use core::arch::asm;

/// Some ports in a row.
#[derive(Debug)]
pub struct Ports {
    first: u16,
    count: u16,
}

impl Ports {
    /// The first serial line.
    pub const fn serial() -> Self {
        Self { first: 0x3f8, count: 8 }
    }

    /// The watchdog of an IB700 board, which QEMU has as `ib700`. Nobody minds if there is none.
    pub const fn watchdog() -> Self {
        Self { first: 0x441, count: 3 }
    }

    /// # Panics
    /// It is none of these.
    pub fn read(&self, offset: u16) -> u8 {
        let (port, value): (u16, u8);
        port = self.at(offset);
        // SAFETY: ports of devices that only do what their registers say.
        unsafe { asm!("in al, dx", out("al") value, in("dx") port, options(nomem, nostack)) };
        value
    }

    /// # Panics
    /// It is none of these.
    pub fn write(&self, offset: u16, value: u8) {
        // SAFETY: as above.
        unsafe { asm!("out dx, al", in("al") value, in("dx") self.at(offset), options(nomem, nostack)) }
    }

    fn at(&self, offset: u16) -> u16 {
        assert!(offset < self.count, "no port {offset}");
        self.first + offset
    }
}
