//! Devices of boards, without `unsafe`: each driver is given the registers of its device and memory to share with it.
//!
//! ```text
//!   pl011 mini_uart uart16550      a console; the second one of a Pi carries packets instead
//!   virtio: net, rng               QEMU's devices over MMIO, version 2
//!   gic bcm_local                  where the timer's interrupt, which is the watchdog's, is let in
//!   bcm_power ib700                watchdogs in hardware, and the Pi's reset
//!   bcm_rng  device_tree           randomness of a Pi; how much memory there is
//! ```
//! Everything is polled.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(target_arch = "aarch64")]
mod bcm;
mod device_tree;
#[cfg(target_arch = "aarch64")]
mod gic;
#[cfg(target_arch = "x86_64")]
mod ib700;
mod serial;
mod virtio;

#[cfg(target_arch = "aarch64")]
pub use bcm::{BcmPower, BcmRng, lead_timer_to_core};
pub use device_tree::memory;
#[cfg(target_arch = "aarch64")]
pub use gic::let_in_timer;
#[cfg(target_arch = "x86_64")]
pub use ib700::Ib700;
#[cfg(target_arch = "x86_64")]
pub use serial::Uart16550;
pub use serial::{MiniUart, Pl011};
pub use virtio::{VirtioNet, VirtioRng, find as find_virtio};

/// Randomness of a device.
pub trait Randomness: Send {
    /// Fills as much as the device gives now; says how much.
    fn fill(&mut self, into: &mut [u8]) -> usize;
}
