//! ARM's interrupt controller, version 2: lets the virtual timer through to this core, and nothing else.

use arch_metal::Registers;

/// The virtual timer's number, the same on every machine.
const TIMER: u32 = 27;

/// `distributor` and `interface` are the two halves of the controller.
pub fn let_in_timer(distributor: &Registers, interface: &Registers) {
    const ENABLE: usize = 0x000;
    const SET_ENABLE: usize = 0x100;
    const PRIORITIES: usize = 0x400;
    const PRIORITY_MASK: usize = 0x004;
    const ALL: u32 = 0xff;
    distributor.write(ENABLE, 1);
    distributor.write(SET_ENABLE, 1 << TIMER);
    distributor.write(PRIORITIES + (TIMER as usize & !3), 0);
    interface.write(PRIORITY_MASK, ALL);
    interface.write(0, 1);
}
