//! metal units: components on serverkernels, found by beacon, attested, reached over a secure channel.
//!
//! ```text
//!   beacons ─▶ Finder: which boards there are            (finder.rs)
//!   flash, boot ─▶ an image with a board's settings      (qemu.rs, line.rs, enrolled.rs)
//!   image ──compile─▶ a signed payload for each target   (class.rs)
//!   call ─▶ the least busy board ─▶ Session: handshake, evidence, code, event, host calls, reply   (prepared.rs, session.rs)
//! ```
//! The bytes and the decisions are those of `board-link`, which the kernel uses too.
#![forbid(unsafe_code)]

mod class;
pub mod enrolled;
pub mod finder;
pub mod line;
mod prepared;
pub mod qemu;
pub mod session;

pub use class::{Described, MetalClass, TARGETS, payload};

/// The kernel that comes with this program for such a board, as `kernel/build` made it.
pub fn kernel(machine: qemu::Machine) -> Vec<u8> {
    // Packed by `build.rs`.
    let packed: &[u8] = match machine {
        qemu::Machine::QemuArm => include_bytes!(concat!(env!("OUT_DIR"), "/qemu-arm")),
        qemu::Machine::QemuX86 => include_bytes!(concat!(env!("OUT_DIR"), "/qemu-x86")),
        qemu::Machine::Raspi3b => include_bytes!(concat!(env!("OUT_DIR"), "/raspi3b")),
    };
    miniz_oxide::inflate::decompress_to_vec(packed).expect("packed when this program was built")
}
