//! The name of an image: the SHA-256 of its bytes.

use std::fmt;
use std::str::FromStr;

/// Written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageHash(pub [u8; 32]);

/// Text that is not 64 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAHash;

impl ImageHash {
    /// The name `image` has.
    pub fn of(image: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(image).into())
    }
}

impl FromStr for ImageHash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        from_hex(text).map(Self).ok_or(NotAHash)
    }
}

impl fmt::Display for ImageHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ImageHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageHash({self})")
    }
}

impl fmt::Display for NotAHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a hash is 64 lower-case hex digits")
    }
}

impl std::error::Error for NotAHash {}

/// Lower case only: a hash has one name.
pub(crate) fn from_hex(text: &str) -> Option<[u8; 32]> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let mut bytes = [0; 32];
    if pairs.len() != bytes.len() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

fn digit(hex: u8) -> Option<u8> {
    match hex {
        b'0'..=b'9' => Some(hex - b'0'),
        b'a'..=b'f' => Some(hex - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_reads_back_and_has_one_name() {
        let hash = ImageHash::of(b"abc");
        let name = hash.to_string();
        assert_eq!(name, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(name.parse(), Ok(hash));
        for wrong in [&name[1..], &name.to_uppercase(), &format!("{name}0"), "", "../../../../etc/passwd"] {
            assert_eq!(wrong.parse::<ImageHash>(), Err(NotAHash));
        }
    }
}
