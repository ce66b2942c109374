//! The first 64 bytes of a frame: enough to know how much to read and whether to want it.
//!
//! A reader on a stream takes 64 bytes, calls [`Header::read`], makes room for `total_bytes` and reads on.

use crate::{DecodeError, Limits, crc32};

/// Media type of a frame over HTTP.
pub const MEDIA_TYPE: &str = "application/vnd.lighter.frame";
pub const VERSION: u8 = 1;
pub const HEADER_BYTES: usize = 64;
/// Buffers begin at multiples of this.
pub const ALIGNMENT: usize = 64;

pub(crate) const TABLE_ENTRY_BYTES: usize = 16;
pub(crate) const FLAG_BULK_CHECKSUM: u16 = 1;
const MAGIC: [u8; 4] = *b"\x8cLFR";

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Work whose sender waits for the answer.
    Call = 1,
    Reply = 2,
    Failure = 3,
    /// Work that is queued.
    Event = 4,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Call, Kind::Reply, Kind::Failure, Kind::Event];

    pub const fn name(self) -> &'static str {
        match self {
            Kind::Call => "call",
            Kind::Reply => "reply",
            Kind::Failure => "failure",
            Kind::Event => "event",
        }
    }
}

/// The header, checked: its checksum is right and its lengths are within the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    /// A reply or failure repeats the id of its call.
    pub id: u64,
    /// Of the whole frame, header included.
    pub total_bytes: u64,
    pub meta_bytes: u32,
    pub buffers: u32,
    pub(crate) front_checksum: u32,
    /// Of the buffers, if the writer made one.
    pub(crate) bulk_checksum: Option<u32>,
}

impl Header {
    /// Reads the header at the start of `bytes`, of which it looks at the first 64.
    ///
    /// # Errors
    /// Those of steps 1 and 2 of the contract; [`DecodeError::Truncated`] when there are fewer than 64 bytes.
    pub fn read(bytes: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(DecodeError::Truncated { needed: HEADER_BYTES as u64, found: bytes.len() as u64 });
        };
        if bytes[..4] != MAGIC {
            return Err(DecodeError::Magic);
        }
        if bytes[4] != VERSION {
            return Err(DecodeError::Version(bytes[4]));
        }
        if crc32(&bytes[..60]) != u32_at(bytes, 60) {
            return Err(DecodeError::HeaderChecksum);
        }
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == bytes[5]).ok_or(DecodeError::Kind(bytes[5]))?;
        let flags = u16::from_le_bytes([bytes[6], bytes[7]]);
        if flags & !FLAG_BULK_CHECKSUM != 0 {
            return Err(DecodeError::Flags(flags));
        }
        let bulk_checksum = (flags & FLAG_BULK_CHECKSUM != 0).then(|| u32_at(bytes, 36));
        if bytes[40..60].iter().any(|byte| *byte != 0) || bulk_checksum.is_none() && u32_at(bytes, 36) != 0 {
            return Err(DecodeError::Reserved);
        }
        let header = Self {
            kind,
            id: u64_at(bytes, 16),
            total_bytes: u64_at(bytes, 8),
            meta_bytes: u32_at(bytes, 24),
            buffers: u32_at(bytes, 28),
            front_checksum: u32_at(bytes, 32),
            bulk_checksum,
        };
        header.check(limits)?;
        Ok(header)
    }

    /// Header, buffer table and meta together.
    pub fn front_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.buffers) * TABLE_ENTRY_BYTES as u64 + u64::from(self.meta_bytes)
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.kind as u8;
        let flags = if self.bulk_checksum.is_some() { FLAG_BULK_CHECKSUM } else { 0 };
        bytes[6..8].copy_from_slice(&flags.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.total_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.meta_bytes.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.buffers.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.front_checksum.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.bulk_checksum.unwrap_or(0).to_le_bytes());
        let checksum = crc32(&bytes[..60]);
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn check(&self, limits: &Limits) -> Result<(), DecodeError> {
        if self.total_bytes > limits.total_bytes_max {
            return Err(DecodeError::TotalTooLarge { found: self.total_bytes, max: limits.total_bytes_max });
        }
        if self.meta_bytes > limits.meta_bytes_max {
            return Err(DecodeError::MetaTooLarge { found: self.meta_bytes, max: limits.meta_bytes_max });
        }
        if self.buffers > limits.buffers_max {
            return Err(DecodeError::TooManyBuffers { found: self.buffers, max: limits.buffers_max });
        }
        if self.front_bytes() > self.total_bytes {
            return Err(DecodeError::Length);
        }
        Ok(())
    }
}

/// The first multiple of [`ALIGNMENT`] at or after `position`.
pub(crate) fn aligned(position: u64) -> Option<u64> {
    position.checked_next_multiple_of(ALIGNMENT as u64)
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(core::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(core::array::from_fn(|i| bytes[at + i]))
}
