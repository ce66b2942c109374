//! Reads and writes the fields of messages and records. All integers are little-endian.

use crate::{Chain, Household, Mark};

/// Reads from front to back; none where the bytes end too early.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.fixed().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.fixed().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.fixed().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.fixed().map(u64::from_le_bytes)
    }

    pub fn chain(&mut self) -> Option<Chain> {
        self.fixed().map(Chain)
    }

    pub fn mark(&mut self) -> Option<Mark> {
        let mark = Mark { number: self.u64()?, chain: self.chain()? };
        (mark.number <= Mark::NUMBER_MAX).then_some(mark)
    }

    /// Bytes behind their length in one byte.
    pub fn short(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    pub fn household(&mut self) -> Option<Household> {
        Household::read(self.short()?)
    }
}

pub fn put_mark(out: &mut Vec<u8>, mark: &Mark) {
    out.extend_from_slice(&mark.number.to_le_bytes());
    out.extend_from_slice(&mark.chain.0);
}

/// At most 255 bytes, behind their length in one byte.
pub fn put_short(out: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(bytes.len() <= usize::from(u8::MAX));
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
}
