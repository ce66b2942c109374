//! How nodes and serverkernels find, check and talk to each other: the bytes and the decisions, without I/O.
//!
//! `contracts/board-link.md` is the contract, this crate its Rust side, shared by node and kernel. Time, randomness and
//! the network are parameters, so that a test replays any of it.
//!
//! ```text
//!  board                                               node
//!  Beacon::sign ────────── UDP, broadcast ───────────▶ Sightings::hear          found
//!  Link::accept ◀───────── TCP: challenge ──────────── Link::open
//!       └───────────────── evidence ─────────────────▶ Policy::judge            attested, and a secure channel
//!  Link::read, write ◀──── offer, code, call ───────── Link::write, read
//!       └───────────────── host calls, reply ────────▶
//! ```
//! Everything that arrives is bounded before it is kept, and whatever cannot be read is a typed fault that ends the
//! session it came from.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod beacon;
mod bytes;
mod evidence;
mod image;
mod keys;
mod link;
mod message;
mod noise;
mod payload;
mod settings;
mod sightings;

pub use beacon::{
    BEACON_BYTES_MAX, BEACON_PORT, Beacon, BeaconFault, FORMAT_BYTES_MAX, FORMATS_MAX, Load, Machine, NAME_BYTES_MAX,
};
pub use evidence::{Claim, Evidence, EvidenceFault, PROOF_BYTES_MAX, Policy, Root};
pub use image::{Image, ImageFault};
pub use keys::{BoardId, KEY_BYTES, Keys, PublicKey, fingerprint};
pub use link::{BoardSide, Goal, HANDSHAKE_MS_MAX, IDLE_MS_MAX, LINK_PORT, Link, LinkFault};
pub use message::{
    CODE_BYTES_MAX, DATA_BYTES_MAX, Failed, FailedKind, MESSAGE_OVERHEAD_BYTES, Message, MessageFault, Stages,
};
pub use noise::{RECORD_BYTES_MAX, RECORD_TEXT_BYTES_MAX};
pub use payload::{PayloadFault, open_payload, seal_payload};
pub use settings::{
    BEACON_TO_MAX, Destination, NODES_MAX, Network, SETTINGS_BYTES, SETTINGS_MAGIC, Settings, SettingsFault,
    find_settings,
};
pub use sightings::{Heard, SIGHTINGS_MAX, Sighting, Sightings, VERIFICATIONS_PER_SECOND_MAX};

#[cfg(fuzzing)]
pub use fuzzing::{block_of_fields, sign_beacon};

/// Doors for the fuzzer, who would never get past a hash or a signature by chance.
#[cfg(fuzzing)]
mod fuzzing {
    use alloc::vec::Vec;

    /// A datagram's signature, whatever it says.
    pub fn sign_beacon(keys: &crate::Keys, said: &[u8]) -> [u8; 64] {
        keys.sign(crate::beacon::PURPOSE, said)
    }

    /// A block with these fields and a sound hash.
    pub fn block_of_fields(fields: &[u8]) -> Vec<u8> {
        crate::settings::block(&fields[..fields.len().min(crate::SETTINGS_BYTES - 64)])
    }
}

/// The version of everything here. Both sides refuse another one.
pub const VERSION: u8 = 1;

/// SHA-256 of what a board says or is given: kernel, code.
pub type Hash = [u8; 32];

/// Chosen at random when a board starts: tells one life of it from the next.
pub type Boot = [u8; 16];

/// SHA-256 of `bytes`, as all of this protocol's hashes.
pub fn hash(bytes: &[u8]) -> Hash {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).into()
}

/// [`hash`] of one after the other.
pub fn hash_of_two(first: &[u8], second: &[u8]) -> Hash {
    use sha2::Digest;
    sha2::Sha256::new().chain_update(first).chain_update(second).finalize().into()
}

/// The format of payloads compiled for `target`. Its second half changes with every change of compiler or settings.
pub fn format_of(target: &str) -> alloc::string::String {
    alloc::format!("{target}/wasmtime-48.1")
}
