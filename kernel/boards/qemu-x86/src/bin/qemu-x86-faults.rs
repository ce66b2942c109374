//! The machine `microvm` with mistakes instead of the serverkernel: see the crate `faults`.
#![no_std]
#![no_main]

#[path = "../machine.rs"]
mod machine;

arch_metal::entry!(main);

fn main(left: usize) -> ! {
    machine::begin(left);
    faults::commit()
}
