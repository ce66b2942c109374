//! Machines of our own: x86-64 at ring 0, entered as PVH, and aarch64 at EL1. All behind safe functions.
//!
//! ```text
//!   _start (assembler) ─▶ start ─▶ page tables: code RX, constants R, data RW, guards and everything else nothing
//!                           └─▶ the board's main ─▶ serverkernel
//!   exception ─▶ report: registers and backtrace to the console ─▶ reset
//! ```
//! One processor, one task. Interrupts only ever end things: the one that is let in is the watchdog's, and it does not
//! return. So nothing here is entered twice at once, and nothing needs a lock that waits.
#![no_std]
#![expect(unsafe_code, reason = "registers, page tables and raw memory are what this crate is for")]

extern crate alloc;

mod code;
mod dma;
mod exclusive;
mod image;
mod memory;
mod registers;
pub mod report;
mod tables;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64/mod.rs"]
mod machine;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64/mod.rs"]
mod machine;

pub use code::{CodePages, Pages};
pub use dma::Dma;
pub use exclusive::Exclusive;
pub use image::{measured, settings};
pub use machine::*;
pub use memory::{Region, begin, free_bytes};
pub use registers::Registers;

/// The first thing that runs in Rust: `_start` jumps here with what the boot loader left.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        #[unsafe(no_mangle)]
        extern "C" fn board_main(left: usize) -> ! {
            $main(left)
        }
    };
}
