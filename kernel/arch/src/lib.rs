//! What differs between machines, behind safe functions; beside the glue of `kernel-core` the only unsafe code here.
//!
//! ```text
//!   heap     memory by size, for the whole kernel (every machine)
//!   ring3    the guest of a tender, x86-64 or aarch64: exits, pages shared with it, time
//!   watchdog what watchdogs in hardware count in (boards)
//! ```
//! One task, no interrupts: nothing here is ever entered twice at once.
#![no_std]
#![expect(unsafe_code, reason = "registers, fixed addresses and raw memory are what this crate is for")]

pub mod heap;
#[cfg(feature = "ring3")]
pub mod ring3;
pub mod watchdog;
