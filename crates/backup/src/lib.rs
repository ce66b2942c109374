//! The bytes of a backup, written by a node, read by `lighter backup` and `lighter restore`. Pure: no disk, no clock.
//!
//! ```text
//! lighter backup 1 \n │ head │ entries │ entries │ … │ image │ bytes │ bytes │ … │ sealed │ … │ end
//!                     └ a piece: kind 1, length 4 (low byte first), content                     └ SHA-256 of all before it
//! ```
//! - The **first line** says the format. A newer one is refused before anything else is looked at.
//! - The **head** says what is in it: [`Head`], as JSON.
//! - **Entries** are what the state stores, a part of the database after the other, in the order of keys; all of one
//!   instant.
//! - An **image** says its hash and its length; its bytes follow.
//! - What is **sealed** (secrets, keys of a fleet) can be read with a passphrase alone: [`Seal`].
//! - The **end** has the hash of everything before it. A backup without it is cut short, whatever else is in it.
//!
//! ```
//! use backup::{Head, Piece, Reader, BackupWriter};
//!
//! let mut writer = BackupWriter::default();
//! let mut bytes = writer.begin(&Head::default());
//! bytes.extend(writer.entries(1, &[(b"key".to_vec(), b"value".to_vec())]));
//! bytes.extend(writer.end());
//!
//! let mut reader = Reader::new(&bytes[..])?;
//! assert!(matches!(reader.next()?, Some(Piece::Entries { part: 1, .. })));
//! assert!(reader.next()?.is_none(), "it was read to its end, and the hash is right");
//! # Ok::<(), problem::Problem>(())
//! ```
#![forbid(unsafe_code)]

mod entries;
mod read;
mod seal;
mod secret;
mod write;

pub use entries::Entries;
pub use read::{Piece, Reader};
pub use seal::{Passphrase, SEAL_ROUNDS, Seal};
pub use secret::{KEY_FOLDERS, Secret, is_key_file};
pub use write::BackupWriter;

use serde::{Deserialize, Serialize};

/// The format that this version writes, and the newest it reads.
pub const FORMAT: u32 = 1;

/// What the first line begins with; the number of the format and a newline follow.
const MAGIC: &str = "lighter backup ";

/// Most bytes of one piece. A longer one is refused before it is read: the largest entry has 8 MiB, the largest sealed
/// file 32 MiB.
pub const PIECE_BYTES_MAX: usize = 40 << 20;

/// Most bytes of all sealed files of a backup together. A node with more makes no backup with a passphrase, and a
/// backup with more is not restored.
pub const KEY_BYTES_MAX: u64 = 64 << 20;

/// Most bytes of the head.
const HEAD_BYTES_MAX: usize = 1 << 20;

const HEAD: u8 = 1;
const ENTRIES: u8 = 2;
const IMAGE: u8 = 3;
const IMAGE_BYTES: u8 = 4;
const SEALED: u8 = 5;
const END: u8 = 6;

/// Bytes of a SHA-256.
const HASH_BYTES: usize = 32;

/// What a backup says of itself at its beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// When its instant was, in milliseconds since 1970.
    pub time_ms: u64,
    /// The version of `lighter` that made it.
    pub version: String,
    /// In which format the state stores its entries.
    pub state_format: String,
    /// Bytes that the state took on the node's disk: about what follows.
    pub state_bytes: u64,
    pub images: u64,
    pub images_bytes: u64,
    /// How what is sealed was sealed; none where there was no passphrase.
    pub seal: Option<Seal>,
    /// What is not in it, in words a user knows, such as `the secret SLACK_URL`. With a passphrase that is only what
    /// the node has lost.
    pub left_out: Vec<String>,
}
