//! The watchdog of an IB700 board (`-device ib700` of QEMU), for when interrupts no longer get through.

use arch_metal::Ports;

#[derive(Debug)]
pub struct Ib700(pub Ports);

impl Ib700 {
    /// The machine is reset in about so long, at most 30 s, unless this is called before.
    pub fn watch(&self, us: u64) {
        const START: u16 = 2;
        const STEP_US: u64 = 2_000_000;
        const STEPS_MAX: u64 = 15;
        // From 15, two seconds, down to 0, thirty.
        let steps = us.div_ceil(STEP_US).clamp(1, STEPS_MAX);
        self.0.write(START, (STEPS_MAX - steps) as u8);
    }
}
