//! Parcels and receipts as bytes: version 1 of `contracts/fleet.md`.
//!
//! ```text
//! magic (4) │ version (1) │ kind (1) │ head bytes (2) │ total bytes (4) │ checksum (4) │ rest of the head │ letters
//! ```
//! The checksum covers the head, and the head has the chain after the last letter: bytes that were damaged on the way,
//! or in the engine, are never taken for mail.

mod parcel;
mod receipt;

pub use parcel::{LETTERS_MAX, Parcel};
pub use receipt::{Receipt, Verdict};

use crate::bytes::Reader;
use frame::{crc32, crc32_continued};
use std::fmt;

const MAGIC: [u8; 4] = *b"\x8cLML";
const VERSION: u8 = 1;
/// Magic to checksum.
const FIXED_BYTES: usize = 16;
/// Before the checksum.
const SUMMED_BYTES: usize = 12;

/// Bytes of one message. A larger one is refused unread, and none is made.
pub const MESSAGE_BYTES_MAX: usize = 640 << 10;

/// What travels between households.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    Parcel(Parcel<'a>),
    Receipt(Receipt),
}

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireError {
    Magic,
    /// The message has a version that this node does not read.
    Version(u8),
    Kind(u8),
    /// It has more or fewer bytes than it says, or more than [`MESSAGE_BYTES_MAX`].
    Length,
    Checksum,
    /// A field is missing or holds what it cannot hold.
    Head,
    /// The letters are not those that the head speaks of.
    Letters,
}

#[derive(Clone, Copy)]
enum Kind {
    Parcel = 1,
    Receipt = 2,
}

impl<'a> Message<'a> {
    /// # Errors
    /// The bytes are no message.
    pub fn read(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader(bytes);
        if reader.fixed() != Some(MAGIC) {
            return Err(WireError::Magic);
        }
        match reader.u8().ok_or(WireError::Length)? {
            VERSION => {}
            other => return Err(WireError::Version(other)),
        }
        let kind = reader.u8().ok_or(WireError::Length)?;
        let head_bytes = usize::from(reader.u16().ok_or(WireError::Length)?);
        let total_bytes = reader.u32().ok_or(WireError::Length)? as usize;
        let checksum = reader.u32().ok_or(WireError::Length)?;
        if bytes.len() != total_bytes || total_bytes > MESSAGE_BYTES_MAX {
            return Err(WireError::Length);
        }
        let head = head_bytes.checked_sub(FIXED_BYTES).and_then(|rest| reader.take(rest)).ok_or(WireError::Length)?;
        if checksum != sum(&bytes[..SUMMED_BYTES], head) {
            return Err(WireError::Checksum);
        }
        match kind {
            kind if kind == Kind::Parcel as u8 => parcel::read(head, reader.0).map(Self::Parcel),
            kind if kind == Kind::Receipt as u8 && reader.0.is_empty() => {
                receipt::read(head).map(Self::Receipt).ok_or(WireError::Head)
            }
            kind if kind == Kind::Receipt as u8 => Err(WireError::Letters),
            other => Err(WireError::Kind(other)),
        }
    }
}

/// The same bytes with lengths, checksum and chain that fit: tests and fuzzers never get past those by chance.
#[cfg(any(test, fuzzing))]
pub fn sealed_anew(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    let head_bytes = usize::from(u16::from_le_bytes(*bytes.get(6..)?.first_chunk()?)).min(bytes.len()).max(FIXED_BYTES);
    bytes[..5].copy_from_slice(b"\x8cLML\x01");
    if bytes.get(5) == Some(&(Kind::Parcel as u8)) && head_bytes >= parcel::AFTER.end {
        let after = parcel::chain_after(&bytes, head_bytes);
        bytes[parcel::AFTER].copy_from_slice(&after.0);
    }
    seal(&mut bytes, head_bytes).then_some(bytes)
}

fn begin(kind: Kind, capacity: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(capacity);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION, kind as u8]);
    out.resize(FIXED_BYTES, 0);
    out
}

/// Writes lengths and checksum, once all else is there. Whether they fit.
fn seal(out: &mut [u8], head_bytes: usize) -> bool {
    if out.len() < head_bytes {
        return false;
    }
    out[6..8].copy_from_slice(&(head_bytes as u16).to_le_bytes());
    let total_bytes = out.len() as u32;
    out[8..12].copy_from_slice(&total_bytes.to_le_bytes());
    let checksum = sum(&out[..SUMMED_BYTES], &out[FIXED_BYTES..head_bytes]);
    out[SUMMED_BYTES..FIXED_BYTES].copy_from_slice(&checksum.to_le_bytes());
    true
}

fn sum(fixed: &[u8], head: &[u8]) -> u32 {
    crc32_continued(crc32(fixed), head)
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("it does not begin like mail"),
            Self::Version(version) => write!(f, "it is mail of version {version}, this node reads version {VERSION}"),
            Self::Kind(kind) => write!(f, "it is of the unknown kind {kind}"),
            Self::Length => write!(f, "its length is not what it says, or above {MESSAGE_BYTES_MAX} bytes"),
            Self::Checksum => f.write_str("its head was damaged on the way"),
            Self::Head => f.write_str("a field of its head is missing or impossible"),
            Self::Letters => f.write_str("its letters are not those that its head speaks of"),
        }
    }
}

impl std::error::Error for WireError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Chain, Household, Mark};

    #[test]
    fn whatever_a_writer_who_can_sum_sends_is_read_as_it_is_or_refused() {
        let name = |text| Household::new(text).expect("it is a name");
        let base = Mark { number: 3, chain: Chain([3; 16]) };
        let after = base.then(b"letter").expect("numbers go on");
        let parcel = Parcel {
            from: name("a"),
            to: name("b"),
            epoch: 1,
            incarnation: 1,
            begun: 0,
            serial: 9,
            base,
            before: base,
            letters: vec![(b"letter", after)],
        };
        let receipt = Receipt {
            from: name("b"),
            to: name("a"),
            epoch: 1,
            epoch_answered: 1,
            incarnation: 1,
            answers: 9,
            durable: after,
            expects: 5,
            verdict: Verdict::Taken,
        };
        let mut read = 0;
        for message in [parcel.write(), receipt.write()] {
            for (at, value) in (0..message.len()).flat_map(|at| [0, 1, 0x7f, 0x80, 0xff].map(|value| (at, value))) {
                let mut changed = message.clone();
                changed[at] = value;
                let Some(sealed) = sealed_anew(&changed) else { continue };
                let again = match Message::read(&sealed) {
                    Ok(Message::Parcel(parcel)) => parcel.write(),
                    Ok(Message::Receipt(receipt)) => receipt.write(),
                    Err(_) => continue,
                };
                assert_eq!(again, sealed, "byte {at} as {value}");
                read += 1;
            }
        }
        assert!(read > 100, "{read}");
    }
}
