//! What can be wrong with a frame, in the words of the contract.

use crate::{ArrayError, Kind};
use core::fmt;

/// Why bytes are not a frame this reader takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// More bytes have to arrive.
    Truncated {
        needed: u64,
        found: u64,
    },
    Magic,
    Version(u8),
    HeaderChecksum,
    Kind(u8),
    Flags(u16),
    Reserved,
    TotalTooLarge {
        found: u64,
        max: u64,
    },
    MetaTooLarge {
        found: u32,
        max: u32,
    },
    TooManyBuffers {
        found: u32,
        max: u32,
    },
    /// The lengths contradict each other.
    Length,
    /// Bytes follow after the frame.
    Trailing {
        total: u64,
        found: u64,
    },
    FrontChecksum,
    Codec(u8),
    Padding,
    BulkChecksum,
    TooDeep {
        max: u32,
    },
    TooManyValues {
        max: u32,
    },
    /// A value ends after the meta does.
    ValueTruncated,
    Tag(u8),
    Utf8,
    DuplicateKey,
    BufferIndex(u32),
    Array(ArrayError),
    /// Bytes follow after the value.
    MetaTrailing,
}

/// Why a value cannot be written as a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    TotalTooLarge {
        found: u64,
        max: u64,
    },
    MetaTooLarge {
        found: u64,
        max: u32,
    },
    TooManyBuffers {
        max: u32,
    },
    TooDeep {
        max: u32,
    },
    TooManyValues {
        max: u32,
    },
    DuplicateKey,
    Array(ArrayError),
    /// A time after the year 292 million.
    Time(u64),
}

/// Why a frame is not the record it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordError {
    Frame(DecodeError),
    Kind(Kind),
    /// This field is missing, of the wrong type or out of range; an empty name stands for one that is not known.
    Field(&'static str),
}

impl DecodeError {
    /// The word of the contract for it, the same in every language.
    pub const fn name(&self) -> &'static str {
        match self {
            DecodeError::Truncated { .. } => "truncated",
            DecodeError::Magic => "magic",
            DecodeError::Version(_) => "version",
            DecodeError::HeaderChecksum => "header-checksum",
            DecodeError::Kind(_) => "kind",
            DecodeError::Flags(_) => "flags",
            DecodeError::Reserved => "reserved",
            DecodeError::TotalTooLarge { .. } => "total-too-large",
            DecodeError::MetaTooLarge { .. } => "meta-too-large",
            DecodeError::TooManyBuffers { .. } => "too-many-buffers",
            DecodeError::Length => "length",
            DecodeError::Trailing { .. } => "trailing",
            DecodeError::FrontChecksum => "front-checksum",
            DecodeError::Codec(_) => "codec",
            DecodeError::Padding => "padding",
            DecodeError::BulkChecksum => "bulk-checksum",
            DecodeError::TooDeep { .. } => "too-deep",
            DecodeError::TooManyValues { .. } => "too-many-values",
            DecodeError::ValueTruncated => "value-truncated",
            DecodeError::Tag(_) => "tag",
            DecodeError::Utf8 => "utf8",
            DecodeError::DuplicateKey => "duplicate-key",
            DecodeError::BufferIndex(_) => "buffer-index",
            DecodeError::Array(error) => error.name(),
            DecodeError::MetaTrailing => "meta-trailing",
        }
    }
}

impl RecordError {
    /// The word of the contract for it.
    pub const fn name(&self) -> &'static str {
        match self {
            RecordError::Frame(error) => error.name(),
            RecordError::Kind(_) => "record-kind",
            RecordError::Field(_) => "record-field",
        }
    }
}

impl From<ArrayError> for DecodeError {
    fn from(error: ArrayError) -> Self {
        DecodeError::Array(error)
    }
}

impl From<ArrayError> for EncodeError {
    fn from(error: ArrayError) -> Self {
        EncodeError::Array(error)
    }
}

impl From<DecodeError> for RecordError {
    fn from(error: DecodeError) -> Self {
        RecordError::Frame(error)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated { needed, found } => write!(f, "the frame has {found} bytes of {needed}"),
            DecodeError::Magic => write!(f, "these bytes are not a frame"),
            DecodeError::Version(version) => write!(f, "the frame has version {version}, this reader knows 1"),
            DecodeError::HeaderChecksum => write!(f, "the header of the frame is corrupt"),
            DecodeError::Kind(kind) => write!(f, "the frame has the unknown kind {kind}"),
            DecodeError::Flags(flags) => write!(f, "the frame has unknown flags in {flags:#06x}"),
            DecodeError::Reserved => write!(f, "bytes of the frame that must be zero are not"),
            DecodeError::TotalTooLarge { found, max } => {
                write!(f, "the frame has {found} bytes, the limit is {max}")
            }
            DecodeError::MetaTooLarge { found, max } => {
                write!(f, "the meta of the frame has {found} bytes, the limit is {max}")
            }
            DecodeError::TooManyBuffers { found, max } => {
                write!(f, "the frame has {found} buffers, the limit is {max}")
            }
            DecodeError::Length => write!(f, "the lengths in the frame contradict each other"),
            DecodeError::Trailing { total, found } => write!(f, "the frame has {total} bytes, {found} arrived"),
            DecodeError::FrontChecksum => write!(f, "the meta of the frame is corrupt"),
            DecodeError::Codec(codec) => write!(f, "a buffer of the frame has the unknown codec {codec}"),
            DecodeError::Padding => write!(f, "bytes between the buffers of the frame are not zero"),
            DecodeError::BulkChecksum => write!(f, "the buffers of the frame are corrupt"),
            DecodeError::TooDeep { max } => write!(f, "values are nested deeper than {max}"),
            DecodeError::TooManyValues { max } => write!(f, "there are more than {max} values"),
            DecodeError::ValueTruncated => write!(f, "a value ends after the meta of the frame"),
            DecodeError::Tag(tag) => write!(f, "a value has the unknown tag {tag:#04x}"),
            DecodeError::Utf8 => write!(f, "a text is not UTF-8"),
            DecodeError::DuplicateKey => write!(f, "a map has a key twice"),
            DecodeError::BufferIndex(index) => write!(f, "there is no buffer {index}"),
            DecodeError::Array(error) => error.fmt(f),
            DecodeError::MetaTrailing => write!(f, "bytes follow after the value of the frame"),
        }
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EncodeError::TotalTooLarge { found, max } => {
                write!(f, "the frame would have {found} bytes, the limit is {max}")
            }
            EncodeError::MetaTooLarge { found, max } => {
                write!(f, "the meta of the frame would have {found} bytes, the limit is {max}")
            }
            EncodeError::TooManyBuffers { max } => write!(f, "the frame would have more than {max} buffers"),
            EncodeError::TooDeep { max } => write!(f, "values are nested deeper than {max}"),
            EncodeError::TooManyValues { max } => write!(f, "there are more than {max} values"),
            EncodeError::DuplicateKey => write!(f, "a map has a key twice"),
            EncodeError::Array(error) => error.fmt(f),
            EncodeError::Time(time_ms) => write!(f, "the time {time_ms} ms is beyond what a frame can say"),
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Frame(error) => error.fmt(f),
            RecordError::Kind(kind) => write!(f, "the frame is a {}, which is not expected here", kind.name()),
            RecordError::Field("") => write!(f, "the record has a field that is not known"),
            RecordError::Field(name) => write!(f, "the field `{name}` of the record is missing or not right"),
        }
    }
}

impl core::error::Error for DecodeError {}
impl core::error::Error for EncodeError {}
impl core::error::Error for RecordError {}
