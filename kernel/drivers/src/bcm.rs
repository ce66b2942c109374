//! What is the Raspberry Pi's own: the way of the timer's interrupt, the watchdog that is also the reset, randomness.

use crate::Randomness;
use arch_metal::Registers;
use kernel_arch::watchdog;

/// Leads the virtual timer's interrupt to the first core. `local` are the registers each core has.
pub fn lead_timer_to_core(local: &Registers) {
    const CORE_0_TIMERS: usize = 0x40;
    const VIRTUAL: u32 = 1 << 3;
    local.write(CORE_0_TIMERS, VIRTUAL);
}

/// The power manager: a watchdog of at most 16 seconds, which resets the whole machine.
#[derive(Debug)]
pub struct BcmPower(pub Registers);

impl BcmPower {
    const PASSWORD: u32 = 0x5a00_0000;
    const RESET_CONTROL: usize = 0x1c;
    const STATUS: usize = 0x20;
    const WATCHDOG: usize = 0x24;
    const FULL_RESET: u32 = 0x20;
    const CONTROL_MASK: u32 = 0xffff_ffcf;
    const TICK_US: u64 = 16;
    const TICKS_MAX: u32 = 0xf_ffff;

    /// The machine is reset in so long, unless this is called before. QEMU's Pi resets at once. For a longer time
    /// than it counts it is turned off: it must not end a run that may take so long.
    pub fn watch(&self, us: u64) {
        let control = Self::PASSWORD | (self.0.read(Self::RESET_CONTROL) & Self::CONTROL_MASK);
        let Some(ticks) = watchdog::units(us, Self::TICK_US, Self::TICKS_MAX) else {
            return self.0.write(Self::RESET_CONTROL, control);
        };
        self.0.write(Self::WATCHDOG, Self::PASSWORD | ticks);
        self.0.write(Self::RESET_CONTROL, control | Self::FULL_RESET);
    }

    pub fn reset(&self) -> ! {
        // Not to the partition that means halt.
        self.0.write(Self::STATUS, Self::PASSWORD);
        self.watch(160);
        arch_metal::stop()
    }
}

/// The generator of a Pi 3.
#[derive(Debug)]
pub struct BcmRng(Registers);

impl BcmRng {
    const CONTROL: usize = 0x0;
    const STATUS: usize = 0x4;
    const DATA: usize = 0x8;

    pub fn new(registers: Registers) -> Self {
        // The first words are not random yet: so many are thrown away.
        const WARM_UP_WORDS: u32 = 0x4_0000;
        registers.write(Self::STATUS, WARM_UP_WORDS);
        registers.write(Self::CONTROL, 1);
        Self(registers)
    }
}

impl Randomness for BcmRng {
    fn fill(&mut self, into: &mut [u8]) -> usize {
        let mut filled = 0;
        for chunk in into.chunks_mut(4) {
            if self.0.read(Self::STATUS) >> 24 == 0 {
                break;
            }
            chunk.copy_from_slice(&self.0.read(Self::DATA).to_le_bytes()[..chunk.len()]);
            filled += chunk.len();
        }
        filled
    }
}
