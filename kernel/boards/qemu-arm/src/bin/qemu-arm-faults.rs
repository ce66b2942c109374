//! The machine `virt` with mistakes instead of the serverkernel: see the crate `faults`.
#![no_std]
#![no_main]

#[path = "../machine.rs"]
mod machine;

arch_metal::entry!(main);

fn main(_: usize) -> ! {
    machine::begin();
    faults::commit()
}
