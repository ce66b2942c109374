//! A release as `tools/release` makes it: a tar with the program in it, signed in minisign's format.
//!
//! ```text
//!  bytes ─▶ Signature::verify ─▶ Archive::open ─▶ version, processor ─▶ Archive::program ─▶ the program's bytes
//!              nothing is read before           of the folder's name      whole, or an error
//! ```
//! Nothing here touches a disk or a network. All of it may come from strangers: each part has a bound, and whatever is
//! not as `tools/release` writes it is refused.
#![forbid(unsafe_code)]

mod archive;
mod blake2b;
mod gunzip;
pub mod making;
mod minisign;
mod version;

pub use archive::{Archive, PROGRAM_BYTES_MAX, Unreadable, processor};
pub use minisign::{PublicKey, Signature, TEXT_BYTES_MAX};
pub use version::ReleaseVersion;

/// Bytes of a release; a larger file is none.
pub const RELEASE_BYTES_MAX: u64 = 256 << 20;
