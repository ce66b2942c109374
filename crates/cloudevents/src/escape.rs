//! Attribute values in header fields (HTTP protocol binding, 3.1.3.2): percent signs for what a field cannot hold.

use crate::error::Fault;

/// Percent-encodes what the standard says: space, `"`, `%` and all beyond printable ASCII.
pub fn encode(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'"' | b'%' => push_hex(&mut encoded, byte),
            b'!'..=b'~' => encoded.push(byte.into()),
            _ => push_hex(&mut encoded, byte),
        }
    }
    encoded
}

fn push_hex(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push('%');
    text.push(DIGITS[usize::from(byte >> 4)].into());
    text.push(DIGITS[usize::from(byte & 15)].into());
}

/// Undoes [`encode`], and before it the double quotes that older senders write. A percent sign without two digits
/// behind it stands for itself.
pub fn decode(field: &[u8]) -> Result<String, Fault> {
    let unquoted = match field {
        [b'"', inner @ .., b'"'] => unquote(inner),
        _ => field.to_vec(),
    };
    let mut decoded = Vec::with_capacity(unquoted.len());
    let mut rest = unquoted.as_slice();
    while let Some((byte, after)) = rest.split_first() {
        let hex = (*byte == b'%').then(|| after.get(..2)).flatten();
        match hex.and_then(|digits| Some((digit(digits[0])?, digit(digits[1])?))) {
            Some((high, low)) => {
                decoded.push(high << 4 | low);
                rest = &after[2..];
            }
            None => {
                decoded.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8(decoded).map_err(|_| Fault::Utf8)
}

fn unquote(inner: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        plain.push(*if *byte == b'\\' { bytes.next().unwrap_or(byte) } else { byte });
    }
    plain
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}
