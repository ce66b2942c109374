//! An array: element type, shape, and raw bytes that nobody converts.
//!
//! The element types are those of numpy's array interface, so that every numpy array but those of Python objects
//! and of records has one. [`Array::check`] holds the rules; writer and reader both apply it.

use alloc::vec::Vec;
use core::fmt;

/// Axes an array may have, as in numpy 2.
pub const RANK_MAX: usize = 64;
/// Bytes of a unit such as `ns` or `25s`.
pub const UNIT_BYTES_MAX: usize = 16;

/// What an element is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    Bool = b'b',
    Signed = b'i',
    Unsigned = b'u',
    Float = b'f',
    Complex = b'c',
    /// A signed number of units.
    TimeSpan = b'm',
    /// A signed number of units since 1970.
    TimePoint = b'M',
    /// Bytes, padded with zeros.
    Bytes = b'S',
    /// Unicode scalar values of 4 bytes, padded with zeros.
    Text = b'U',
    Raw = b'V',
}

/// Which byte of an element comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ByteOrder {
    Little = b'<',
    Big = b'>',
    /// Elements of one byte, or of bytes.
    None = b'|',
}

/// Which axis runs fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Layout {
    /// The last one.
    C = b'C',
    /// The first one.
    F = b'F',
}

/// An array whose elements stay where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array<'a> {
    pub class: Class,
    pub byte_order: ByteOrder,
    pub layout: Layout,
    /// Of one element.
    pub item_bytes: u32,
    /// Elements along each axis; none for a scalar.
    pub shape: Vec<u64>,
    /// Of [`Class::TimeSpan`] and [`Class::TimePoint`], empty otherwise.
    pub unit: &'a str,
    pub data: &'a [u8],
}

/// What is wrong with an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrayError {
    Class(u8),
    ByteOrder,
    Layout(u8),
    Rank(u32),
    ItemBytes(u32),
    Unit,
    /// More elements than can be counted.
    Shape,
    /// The shape asks for another number of bytes than there are.
    Length {
        needed: u64,
        found: u64,
    },
}

impl Class {
    pub const ALL: [Class; 10] = [
        Class::Bool,
        Class::Signed,
        Class::Unsigned,
        Class::Float,
        Class::Complex,
        Class::TimeSpan,
        Class::TimePoint,
        Class::Bytes,
        Class::Text,
        Class::Raw,
    ];

    fn allows_item_bytes(self, bytes: u32) -> bool {
        match self {
            Class::Bool => bytes == 1,
            Class::Signed | Class::Unsigned => matches!(bytes, 1 | 2 | 4 | 8),
            Class::Float => matches!(bytes, 2 | 4 | 8),
            Class::Complex => matches!(bytes, 8 | 16),
            Class::TimeSpan | Class::TimePoint => bytes == 8,
            Class::Bytes | Class::Raw => bytes > 0,
            Class::Text => bytes > 0 && bytes.is_multiple_of(4),
        }
    }

    fn has_byte_order(self, item_bytes: u32) -> bool {
        match self {
            Class::Bool | Class::Bytes | Class::Raw => false,
            Class::Signed | Class::Unsigned => item_bytes > 1,
            Class::Float | Class::Complex | Class::TimeSpan | Class::TimePoint | Class::Text => true,
        }
    }

    fn has_unit(self) -> bool {
        matches!(self, Class::TimeSpan | Class::TimePoint)
    }
}

impl ByteOrder {
    pub const ALL: [ByteOrder; 3] = [ByteOrder::Little, ByteOrder::Big, ByteOrder::None];
}

impl Layout {
    pub const ALL: [Layout; 2] = [Layout::C, Layout::F];
}

impl Array<'_> {
    /// Checks what the contract demands of an array, in its order.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), ArrayError> {
        let needed = self.check_type()?;
        let found = self.data.len() as u64;
        if needed != found {
            return Err(ArrayError::Length { needed, found });
        }
        Ok(())
    }

    /// Everything but the data. Returns how many bytes the shape asks for.
    pub(crate) fn check_type(&self) -> Result<u64, ArrayError> {
        if self.shape.len() > RANK_MAX {
            return Err(ArrayError::Rank(u32::try_from(self.shape.len()).unwrap_or(u32::MAX)));
        }
        if !self.class.allows_item_bytes(self.item_bytes) {
            return Err(ArrayError::ItemBytes(self.item_bytes));
        }
        if self.class.has_byte_order(self.item_bytes) == (self.byte_order == ByteOrder::None) {
            return Err(ArrayError::ByteOrder);
        }
        let unit_fits = self.unit.len() <= UNIT_BYTES_MAX && self.unit.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !unit_fits || self.class.has_unit() == self.unit.is_empty() {
            return Err(ArrayError::Unit);
        }
        self.bytes_needed().ok_or(ArrayError::Shape)
    }

    /// None from 2⁶³ on. Axes of 0 do not hide an overflow: numpy would refuse the shape.
    fn bytes_needed(&self) -> Option<u64> {
        let mut bytes = u64::from(self.item_bytes);
        for axis in self.shape.iter().filter(|axis| **axis != 0) {
            bytes = bytes.checked_mul(*axis)?;
        }
        let empty = self.shape.contains(&0);
        i64::try_from(bytes).ok().map(|_| if empty { 0 } else { bytes })
    }
}

impl ArrayError {
    /// The word of the contract for it.
    pub const fn name(&self) -> &'static str {
        match self {
            ArrayError::Class(_) => "array-class",
            ArrayError::ByteOrder => "array-byte-order",
            ArrayError::Layout(_) => "array-layout",
            ArrayError::Rank(_) => "array-rank",
            ArrayError::ItemBytes(_) => "array-item-bytes",
            ArrayError::Unit => "array-unit",
            ArrayError::Shape => "array-shape",
            ArrayError::Length { .. } => "array-length",
        }
    }
}

impl fmt::Display for ArrayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArrayError::Class(class) => write!(f, "an array has the unknown class {class:#04x}"),
            ArrayError::ByteOrder => write!(f, "the byte order of an array does not fit its class"),
            ArrayError::Layout(layout) => write!(f, "an array has the unknown layout {layout:#04x}"),
            ArrayError::Rank(rank) => write!(f, "an array has {rank} axes, the limit is {RANK_MAX}"),
            ArrayError::ItemBytes(bytes) => write!(f, "elements of {bytes} bytes do not fit the class of the array"),
            ArrayError::Unit => write!(f, "the unit of an array does not fit its class"),
            ArrayError::Shape => write!(f, "an array has more elements than can be counted"),
            ArrayError::Length { needed, found } => {
                write!(f, "the shape of an array asks for {needed} bytes, its buffer has {found}")
            }
        }
    }
}

impl core::error::Error for ArrayError {}
