//! Six digits that two machines show and a person compares: joining without an invitation.
//!
//! ```text
//!   new node                                  anchor
//!   commitment = H(its key, its nonce) ─────▶
//!              ◀───────────────────────────── its nonce
//!   its nonce ──────────────────────────────▶ does the commitment fit?
//!   digits = H(node's key, CA, both nonces) mod 1,000,000: the same on both sides, or somebody is between
//! ```
//! The new node commits itself before it sees the anchor's nonce, and the anchor chooses its nonce before it sees the
//! node's. Somebody between them has to choose everything before the digits can be known, on either side: one guess in
//! a million for each try, and each try shows a person other digits.
//!
//! This is how others do it: numeric comparison in Bluetooth (Core Specification 5.4, volume 3, part H, 2.3.5.6.2), the
//! hash commitment of ZRTP (RFC 6189, 4.4.1.1), and S. Vaudenay, "Secure Communications over Insecure Channels Based on
//! Short Authenticated Strings", CRYPTO 2005.

use crate::keys::{PublicKey, sha256};
use std::fmt;

/// Random bytes that make the digits other ones each time.
pub type Nonce = [u8; 32];

const COUNT: u64 = 1_000_000;

/// What both sides show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digits(u32);

impl Digits {
    pub fn of(node: &PublicKey, ca_hash: &[u8; 32], of_node: &Nonce, of_anchor: &Nonce) -> Self {
        let hash = sha256(&[b"lighterage digits 1\0", node, ca_hash, of_node, of_anchor]);
        let number = u64::from_le_bytes(std::array::from_fn(|at| hash[at]));
        // Below a million. 2^64 is so much more that no digits are likelier than others.
        Self((number % COUNT) as u32)
    }

    /// Reads what a person types: six digits, with or without a space between.
    pub fn read(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|one| !one.is_whitespace()).collect();
        let is_number = digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| is_number).map(Self)
    }
}

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03} {:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

/// What a new node sends before it sees the anchor's nonce. It fixes key and nonce, and tells neither nonce nor digits.
pub fn commitment(node: &PublicKey, nonce: &Nonce) -> [u8; 32] {
    sha256(&[b"lighterage commitment 1\0", node, nonce])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_matters_and_digits_read_back() {
        let digits = Digits::of(&[1; 32], &[2; 32], &[3; 32], &[4; 32]);
        for other in [
            Digits::of(&[9; 32], &[2; 32], &[3; 32], &[4; 32]),
            Digits::of(&[1; 32], &[9; 32], &[3; 32], &[4; 32]),
            Digits::of(&[1; 32], &[2; 32], &[9; 32], &[4; 32]),
            Digits::of(&[1; 32], &[2; 32], &[3; 32], &[9; 32]),
        ] {
            assert_ne!(other, digits);
        }
        assert_eq!(Digits::read(&digits.to_string()), Some(digits));
        assert_eq!(Digits::read("000 007").map(|digits| digits.to_string()), Some("000 007".to_owned()));
        for text in ["", "12345", "1234567", "12a456", "+12345"] {
            assert_eq!(Digits::read(text), None, "{text}");
        }
    }
}
