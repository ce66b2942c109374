//! Serial lines: ARM's PL011, the mini-UART of a Pi, and the 16550 of a PC.

use arch_metal::Registers;
use network::SerialLine;

/// What `lighter boot` shows and a USB cable to a real board carries.
#[derive(Debug)]
pub struct Pl011(pub Registers);

impl Pl011 {
    /// Waits until there is room.
    pub fn put(&self, byte: u8) {
        const DATA: usize = 0x00;
        const FLAGS: usize = 0x18;
        const FULL: u32 = 1 << 5;
        while self.0.read(FLAGS) & FULL != 0 {}
        self.0.write(DATA, byte.into());
    }
}

/// The second line of a Pi, in its block of auxiliary devices.
#[derive(Debug)]
pub struct MiniUart(Registers);

impl MiniUart {
    const ENABLES: usize = 0x04;
    const DATA: usize = 0x40;
    const INTERRUPTS: usize = 0x48;
    const LINE: usize = 0x4c;
    const STATUS: usize = 0x54;
    const CONTROL: usize = 0x60;
    const BAUD: usize = 0x68;

    /// 8 bits, `baud` a second where the core runs at 250 MHz.
    pub fn new(auxiliary: Registers, baud: u32) -> Self {
        const CORE_HZ: u32 = 250_000_000;
        auxiliary.write(Self::ENABLES, 1);
        auxiliary.write(Self::CONTROL, 0);
        auxiliary.write(Self::LINE, 3);
        auxiliary.write(Self::INTERRUPTS, 0xc6);
        auxiliary.write(Self::BAUD, CORE_HZ / (8 * baud) - 1);
        auxiliary.write(Self::CONTROL, 3);
        Self(auxiliary)
    }
}

impl SerialLine for MiniUart {
    fn get(&mut self) -> Option<u8> {
        const READY: u32 = 1;
        // The upper bits are no data.
        (self.0.read(Self::STATUS) & READY != 0).then(|| self.0.read(Self::DATA) as u8)
    }

    fn put(&mut self, byte: u8) {
        const EMPTY: u32 = 1 << 5;
        while self.0.read(Self::STATUS) & EMPTY == 0 {}
        self.0.write(Self::DATA, byte.into());
    }
}

/// The first line of a PC.
#[cfg(target_arch = "x86_64")]
#[derive(Debug)]
pub struct Uart16550(pub arch_metal::Ports);

#[cfg(target_arch = "x86_64")]
impl Uart16550 {
    /// Waits until there is room, though not for ever: there may be nobody.
    pub fn put(&self, byte: u8) {
        const DATA: u16 = 0;
        const STATUS: u16 = 5;
        const EMPTY: u8 = 1 << 5;
        const TRIES_MAX: u32 = 100_000;
        let _ = (0..TRIES_MAX).find(|_| self.0.read(STATUS) & EMPTY != 0);
        self.0.write(DATA, byte);
    }
}
