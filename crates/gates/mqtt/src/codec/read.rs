//! Reads the types packets are made of from borrowed bytes.

use super::Fault;

/// What is left of a packet.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub const fn is_empty(self) -> bool {
        self.rest.is_empty()
    }

    pub const fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub fn take(&mut self, bytes: usize) -> Result<&'a [u8], Fault> {
        let Some((taken, rest)) = self.rest.split_at_checked(bytes) else {
            return Err(Fault::malformed("the packet ends in the middle of a field"));
        };
        self.rest = rest;
        Ok(taken)
    }

    pub fn byte(&mut self) -> Result<u8, Fault> {
        Ok(self.take(1)?[0])
    }

    pub fn two(&mut self) -> Result<u16, Fault> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub fn four(&mut self) -> Result<u32, Fault> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A packet identifier, which is never 0.
    pub fn id(&mut self) -> Result<u16, Fault> {
        match self.two()? {
            0 => Err(Fault::protocol("a packet identifier is 0")),
            id => Ok(id),
        }
    }

    /// A variable byte integer in its shortest form.
    pub fn variable(&mut self) -> Result<u32, Fault> {
        let mut value = 0;
        for place in 0..4 {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                if byte == 0 && place > 0 {
                    return Err(Fault::malformed("a variable byte integer takes more bytes than it needs"));
                }
                return Ok(value);
            }
        }
        Err(Fault::malformed("a variable byte integer takes more than four bytes"))
    }

    pub fn binary(&mut self) -> Result<&'a [u8], Fault> {
        let bytes = usize::from(self.two()?);
        self.take(bytes)
    }

    /// UTF-8 without U+0000.
    pub fn text(&mut self) -> Result<&'a str, Fault> {
        let bytes = self.binary()?;
        match std::str::from_utf8(bytes) {
            Ok(text) if !bytes.contains(&0) => Ok(text),
            _ => Err(Fault::malformed("a text is not UTF-8, or holds U+0000")),
        }
    }

    /// What a property length says belongs to the properties.
    pub fn properties(&mut self) -> Result<Self, Fault> {
        let bytes = self.variable()? as usize;
        self.take(bytes).map(Self::new)
    }

    pub fn end(self) -> Result<(), Fault> {
        if self.is_empty() { Ok(()) } else { Err(Fault::malformed("the packet goes on after its last field")) }
    }
}
