//! metal units: components on serverkernels, found by beacon, attested, reached over a secure channel.
//!
//! ```text
//!   beacons ─▶ Finder: which boards there are            (finder.rs)
//!   flash, boot ─▶ an image with a board's settings      (image.rs, qemu.rs)
//!   call ─▶ Session: handshake, evidence, code, event, host calls, reply   (session.rs)
//! ```
//! The bytes and the decisions are those of `board-link`, which the kernel uses too.
#![forbid(unsafe_code)]

pub mod finder;
pub mod image;
pub mod qemu;
pub mod session;
