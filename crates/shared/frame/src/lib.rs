//! The bytes of calls, replies and events between hosts, units and SDKs.
//!
//! `contracts/frame.md` is the contract, this crate its Rust side: a fixed header, a small typed part, and 64-byte
//! aligned buffers that are neither copied nor re-encoded on the way in or out.
//!
//! ```text
//! Value ──Frame::encode──▶ Encoded ──pieces()──▶ [front, buffer, zeros, buffer, …]   for writev, nothing copied
//!                                                        │
//! Value ◀──Frame::decode── one slice ◀───────────────────┘   strings and buffers borrow from the slice
//! ```
//!
//! ```
//! use frame::{Array, Checksum, Class, ByteOrder, Frame, Kind, Layout, Limits, Value};
//!
//! let samples: Vec<u8> = [1.5_f64, 2.5, 3.5].iter().flat_map(|v| v.to_le_bytes()).collect();
//! let array = Array {
//!     class: Class::Float, byte_order: ByteOrder::Little, layout: Layout::C,
//!     item_bytes: 8, shape: vec![3], unit: "", data: &samples,
//! };
//! let call = Frame { kind: Kind::Call, id: 7, body: Value::List(vec![Value::Str("mean"), array.into()]) };
//! let bytes = call.encode(Checksum::All, &Limits::default())?.to_vec();
//!
//! let read = Frame::decode(&bytes, &Limits::default())?;
//! assert_eq!(read, call);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod array;
mod checksum;
mod decode;
mod encode;
mod error;
mod header;
mod record;
mod value;

pub use array::{Array, ArrayError, ByteOrder, Class, Layout, RANK_MAX, UNIT_BYTES_MAX};
pub use checksum::{crc32, crc32_continued};
pub use encode::{Encoded, Pieces};
pub use error::{DecodeError, EncodeError, RecordError};
pub use header::{ALIGNMENT, HEADER_BYTES, Header, Kind, MEDIA_TYPE, VERSION};
pub use record::{decode_event, encode_event, event_body, failure_body, read_event, read_failure};
pub use value::{Frame, Value};

/// What a reader accepts and a writer makes. Checked before anything is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The whole frame.
    pub total_bytes_max: u64,
    /// The typed part.
    pub meta_bytes_max: u32,
    pub buffers_max: u32,
    /// Values around a value, itself included. Over [`DEPTH_CEILING`] it counts as that.
    pub depth_max: u32,
    /// All values of the typed part.
    pub values_max: u32,
}

/// No limit lets values nest deeper than this: reading them takes stack.
pub const DEPTH_CEILING: u32 = 128;

impl Default for Limits {
    fn default() -> Self {
        Self {
            total_bytes_max: 256 << 20,
            meta_bytes_max: 1 << 20,
            buffers_max: 1_024,
            depth_max: 32,
            values_max: 65_536,
        }
    }
}

impl Limits {
    /// The limit that `depth` is over, if it is.
    pub(crate) fn exceeded_depth(&self, depth: u32) -> Option<u32> {
        let max = self.depth_max.min(DEPTH_CEILING);
        (depth > max).then_some(max)
    }
}

/// How much of a frame its checksums cover. Header, buffer table and meta always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksum {
    #[default]
    Front,
    /// The buffers too: for disks and networks that have no checks of their own.
    All,
}
