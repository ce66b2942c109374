//! The watchdog of an IB700 board (`-device ib700` of QEMU), for when interrupts no longer get through.

use arch_metal::Ports;
use kernel_arch::watchdog;

#[derive(Debug)]
pub struct Ib700(pub Ports);

impl Ib700 {
    /// The machine is reset in about so long, unless this is called before. For more than 30 s it is turned off: it
    /// must not end a run that may take so long.
    pub fn watch(&self, us: u64) {
        const STOP: u16 = 0;
        const START: u16 = 2;
        const STEP_US: u64 = 2_000_000;
        const STEPS_MAX: u32 = 15;
        match watchdog::units(us, STEP_US, STEPS_MAX) {
            // From 14, two seconds, down to 0, thirty.
            Some(steps) => self.0.write(START, (STEPS_MAX - steps) as u8),
            None => self.0.write(STOP, 0),
        }
    }
}
