//! A cursor over bytes that arrived, and its counterpart: numbers little-endian, texts behind one byte of length.

use alloc::vec::Vec;

/// Reads from the front. `None` whenever there is too little, or what is there is not what it should be.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Printable ASCII of at most `bytes_max` bytes: it ends up in logs and on screens.
    pub fn text(&mut self, bytes_max: usize) -> Option<&'a str> {
        let count = usize::from(self.u8()?);
        let text = self.take(count)?;
        (count <= bytes_max && is_plain(text)).then(|| core::str::from_utf8(text).ok())?
    }

    pub fn rest(self) -> &'a [u8] {
        self.0
    }

    pub fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Whether it may stand in a log as it is.
pub(crate) fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| (b' '..=b'~').contains(byte))
}

/// Writes to the back. What is written was checked by whoever made it: a text too long is cut.
#[derive(Default)]
pub(crate) struct Writer(pub Vec<u8>);

impl Writer {
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn u8(&mut self, number: u8) -> &mut Self {
        self.bytes(&[number])
    }

    pub fn u16(&mut self, number: u16) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    pub fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    pub fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    pub fn text(&mut self, text: &str, bytes_max: usize) -> &mut Self {
        let plain = text.bytes().map(|byte| if is_plain(&[byte]) { byte } else { b'?' });
        let plain: Vec<u8> = plain.take(bytes_max.min(usize::from(u8::MAX))).collect();
        // Cut to 255 bytes above.
        self.u8(plain.len() as u8).bytes(&plain)
    }
}
