//! Numbers and texts as few bytes: seven bits of a number each, low ones first; a text is its length and its bytes.

/// Longest encoding of a 64-bit number.
const BYTES_MAX: usize = 10;

pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Small numbers of either sign stay small.
pub fn put_signed(out: &mut Vec<u8>, number: i64) {
    put(out, ((number << 1) ^ (number >> 63)) as u64);
}

/// Takes numbers and texts off the front of bytes that may be anything. None as soon as they are not what was put.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for place in 0..BYTES_MAX {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if place == BYTES_MAX - 1 && bits > 1 {
                return None;
            }
            number |= bits << (7 * place);
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        if length > self.0.len() {
            return None;
        }
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_too_long_ones_do_not() {
        for shift in 0..64 {
            for number in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put(&mut bytes, number);
                put_signed(&mut bytes, number as i64);
                let mut reader = Reader(&bytes);
                assert_eq!(
                    (reader.number(), reader.signed(), reader.byte()),
                    (Some(number), Some(number as i64), None)
                );
            }
        }
        assert_eq!(Reader(&[0xff; 12]).number(), None);
        assert_eq!(Reader(&[0x80, 0x80]).number(), None);
        assert_eq!(Reader(&[5, b'a']).text(), None);
        assert_eq!(Reader(&[1, 0xff]).text(), None);
    }
}
