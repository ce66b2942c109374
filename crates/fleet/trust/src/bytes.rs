//! A cursor over bytes that arrived, and its counterpart: numbers little-endian, bytes behind two bytes of length.

/// Reads from the front. `None` whenever there is too little, or what is there is not what it should be.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn bytes(&mut self, bytes_max: usize) -> Option<&'a [u8]> {
        let count = usize::from(self.u16()?);
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        (count <= bytes_max).then_some(taken)
    }

    /// Printable ASCII: it ends up in logs and on screens.
    pub fn text(&mut self, bytes_max: usize) -> Option<String> {
        let text = self.bytes(bytes_max)?;
        let is_plain = text.iter().all(|byte| (b' '..=b'~').contains(byte));
        String::from_utf8(text.to_vec()).ok().filter(|_| is_plain)
    }

    pub fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Writes to the back.
#[derive(Default)]
pub(crate) struct Writer(pub Vec<u8>);

impl Writer {
    pub fn array(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// At most 65,535 bytes, which every bound here is below: what is beyond is cut.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
        self.array(&(bytes.len() as u16).to_le_bytes()).array(bytes)
    }
}
