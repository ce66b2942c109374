//! What a frame says: one value, of which the large parts lie in buffers.
//!
//! The same type is written and read. Reading borrows: strings, bytes and buffers point into the frame.

use crate::{Array, Checksum, DecodeError, EncodeError, Encoded, Kind, Limits, decode, encode};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// One frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame<'a> {
    pub kind: Kind,
    /// A reply or failure repeats the id of its call; 0 where nothing is answered.
    pub id: u64,
    pub body: Value<'a>,
}

/// A self-describing value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    I64(i64),
    F64(f64),
    Str(&'a str),
    /// Bytes among the other values. For large ones [`Value::Buffer`] is better: it is never copied.
    Bytes(&'a [u8]),
    List(Vec<Value<'a>>),
    /// Entries in their order; a key occurs once.
    Map(Vec<(&'a str, Value<'a>)>),
    /// A name for what the value stands for, such as `tuple`.
    Tagged(&'a str, Box<Value<'a>>),
    /// Bytes in an aligned buffer of their own.
    Buffer(&'a [u8]),
    /// Boxed to keep a value at 32 bytes.
    Array(Box<Array<'a>>),
}

impl<'a> Frame<'a> {
    /// Lays the frame out. Buffers are not copied: [`Encoded`] points to them.
    ///
    /// # Errors
    /// The frame would be over a limit, a map has a key twice, or an array breaks a rule.
    pub fn encode(&self, checksum: Checksum, limits: &Limits) -> Result<Encoded<'a>, EncodeError> {
        encode::encode(self, checksum, limits)
    }

    /// Reads the frame that `bytes` is from its first to its last byte.
    ///
    /// # Errors
    /// The first check of the contract that fails. No input panics or allocates more than the limits allow.
    pub fn decode(bytes: &'a [u8], limits: &Limits) -> Result<Self, DecodeError> {
        decode::decode(bytes, limits)
    }
}

impl<'a> Value<'a> {
    /// The value of `key` in a map; none in any other value.
    pub fn get(&self, key: &str) -> Option<&Value<'a>> {
        match self {
            Value::Map(entries) => entries.iter().find(|(name, _)| *name == key).map(|(_, value)| value),
            _ => None,
        }
    }
}

impl<'a> From<Array<'a>> for Value<'a> {
    fn from(array: Array<'a>) -> Self {
        Value::Array(Box::new(array))
    }
}

/// The bytes that say which value follows.
pub(crate) mod tag {
    pub const NULL: u8 = 0x00;
    pub const FALSE: u8 = 0x01;
    pub const TRUE: u8 = 0x02;
    pub const I64: u8 = 0x03;
    pub const F64: u8 = 0x04;
    pub const STR: u8 = 0x05;
    pub const BYTES: u8 = 0x06;
    pub const LIST: u8 = 0x07;
    pub const MAP: u8 = 0x08;
    pub const TAGGED: u8 = 0x09;
    pub const BUFFER: u8 = 0x0A;
    pub const ARRAY: u8 = 0x0B;
}
