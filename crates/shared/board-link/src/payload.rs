//! Code on its way to a board: what it was made for, its hash, and who answers for it, before the code itself.
//!
//! ```text
//!  LPLD  version 1  format (text)  code bytes 4  hash of the code 32  signer 32  signature 64  code
//!  └─────────────────────────── signed ───────────────────────────────────┘
//! ```
//! A board looks at nothing of the code before format, signature and hash are right.

use crate::beacon::FORMAT_BYTES_MAX;
use crate::bytes::{Reader, Writer};
use crate::keys::{self, Keys, PublicKey};
use crate::{Hash, VERSION, hash};
use alloc::vec::Vec;
use core::fmt;

const MAGIC: [u8; 4] = *b"LPLD";
const PURPOSE: &[u8] = b"lighterage payload 1";

/// Why a payload is not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadFault {
    Magic,
    Version(u8),
    /// It ends too early, or a field is not as it should be.
    Garbled,
    /// Made for another target, or by another compiler or other settings of it.
    Format,
    SignerUnknown(PublicKey),
    Signature,
    /// More or fewer bytes of code than were signed.
    Length {
        said: u32,
        found: usize,
    },
    Hash,
}

/// A payload of `code`, which is of `format`, signed by `keys`.
pub fn seal_payload(code: &[u8], format: &str, keys: &Keys) -> Vec<u8> {
    let mut to = Writer::default();
    to.bytes(&MAGIC).u8(VERSION).text(format, FORMAT_BYTES_MAX);
    // Code is at most 32 MiB; one that is longer fails to open.
    to.u32(u32::try_from(code.len()).unwrap_or(u32::MAX)).bytes(&hash(code)).bytes(&keys.id().0);
    let signature = keys.sign(PURPOSE, &to.0);
    to.bytes(&signature).bytes(code);
    to.0
}

/// The code of a payload and the place of its format in `formats`, if one of `signers` answers for it.
///
/// # Errors
/// The first thing that is wrong. The code is not to be looked at.
pub fn open_payload<'a>(
    payload: &'a [u8],
    formats: &[impl AsRef<str>],
    signers: &[PublicKey],
) -> Result<(&'a [u8], usize), PayloadFault> {
    let mut from = Reader::new(payload);
    if from.array() != Some(MAGIC) {
        return Err(PayloadFault::Magic);
    }
    match from.u8() {
        Some(VERSION) => {}
        version => return Err(version.map_or(PayloadFault::Garbled, PayloadFault::Version)),
    }
    let head = head(&mut from).ok_or(PayloadFault::Garbled)?;
    let format = formats.iter().position(|format| format.as_ref() == head.format).ok_or(PayloadFault::Format)?;
    if !signers.contains(&head.signer) {
        return Err(PayloadFault::SignerUnknown(head.signer));
    }
    let code = from.rest();
    let signed = &payload[..payload.len() - code.len() - head.signature.len()];
    if !keys::is_signed(&head.signer, PURPOSE, signed, &head.signature) {
        return Err(PayloadFault::Signature);
    }
    if usize::try_from(head.bytes) != Ok(code.len()) {
        return Err(PayloadFault::Length { said: head.bytes, found: code.len() });
    }
    if hash(code) != head.hash {
        return Err(PayloadFault::Hash);
    }
    Ok((code, format))
}

struct Label<'a> {
    format: &'a str,
    bytes: u32,
    hash: Hash,
    signer: PublicKey,
    signature: [u8; 64],
}

fn head<'a>(from: &mut Reader<'a>) -> Option<Label<'a>> {
    Some(Label {
        format: from.text(FORMAT_BYTES_MAX)?,
        bytes: from.u32()?,
        hash: from.array()?,
        signer: from.array()?,
        signature: from.array()?,
    })
}

impl fmt::Display for PayloadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => write!(f, "it is no payload"),
            Self::Version(version) => write!(f, "the payload has version {version}, known is {VERSION}"),
            Self::Garbled => write!(f, "the head of the payload cannot be read"),
            Self::Format => write!(f, "the payload is for another target, or was compiled with other settings"),
            Self::SignerUnknown(signer) => {
                write!(f, "the payload is signed by {}, whom the board does not know", keys::fingerprint(signer))
            }
            Self::Signature => write!(f, "the signature of the payload is wrong"),
            Self::Length { said, found } => write!(f, "the payload says {said} bytes of code and has {found}"),
            Self::Hash => write!(f, "the code of the payload does not have the hash that was signed"),
        }
    }
}

impl core::error::Error for PayloadFault {}
