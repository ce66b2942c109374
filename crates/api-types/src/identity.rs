//! How a node proves to a client of its own data folder that it is the node of that folder.
//!
//! ```text
//!   client ── GET /v1/identity?nonce=N ──▶ whoever listens        key   = HMAC-SHA256(token, label)
//!          ◀── HMAC-SHA256(key, address N) ──                     right: the token goes out on this connection
//! ```
//! A node that was killed leaves its address behind in `node.json`, and any user of the machine may listen there next.
//! So the token of a data folder is sent on no connection whose other end has not shown that it knows the token
//! already. The address is in the answer, so that a listener elsewhere cannot have the node answer for it.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;

/// Keeps the key apart from every other use of the token.
const LABEL: &[u8] = b"lighterage identity 1";

const BLOCK_BYTES: usize = 64;

type Hash = [u8; 32];

/// What proves who a node is: made of the token in its data folder, and of no use for guessing it.
#[derive(Clone)]
pub struct Identity {
    key: Hash,
    /// The address of the API, as `node.json` has it.
    address: String,
}

impl Identity {
    pub fn new(token: &str, address: &str) -> Self {
        Self { key: hmac(token.as_bytes(), &[LABEL]), address: address.to_owned() }
    }

    /// The answer to a nonce, in hexadecimal digits.
    pub fn proof(&self, nonce: &str) -> String {
        hmac(&self.key, &[self.address.as_bytes(), b"\0", nonce.as_bytes()])
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Whether this is the answer to the nonce.
    pub fn is_proven(&self, nonce: &str, proof: &str) -> bool {
        self.proof(nonce).as_bytes().ct_eq(proof.as_bytes()).into()
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({})", self.address)
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address && bool::from(self.key.ct_eq(&other.key))
    }
}

impl Eq for Identity {}

/// Whether this is a nonce: so many bytes in lower-case hexadecimal digits.
pub fn is_nonce(text: &str) -> bool {
    text.len() == 2 * NONCE_BYTES && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// HMAC-SHA256 (RFC 2104) of the parts, one after the other.
fn hmac(key: &[u8], parts: &[&[u8]]) -> Hash {
    let mut block = [0; BLOCK_BYTES];
    match key.len() {
        ..=BLOCK_BYTES => block[..key.len()].copy_from_slice(key),
        _ => block[..32].copy_from_slice(&Sha256::digest(key)),
    }
    let mut inner = Sha256::new_with_prefix(block.map(|byte| byte ^ 0x36));
    parts.iter().for_each(|part| inner.update(part));
    Sha256::new_with_prefix(block.map(|byte| byte ^ 0x5c)).chain_update(inner.finalize()).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_code_is_the_one_of_rfc_4231() {
        let short = hmac(b"Jefe", &[b"what do ya want ", b"for nothing?"]);
        assert_eq!(hex(&short), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let long = hmac(&[0xaa; 131], &[b"Test Using Larger Than Block-Size Key - Hash Key First"]);
        assert_eq!(hex(&long), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    #[test]
    fn a_proof_is_for_one_token_one_address_and_one_nonce() {
        let (nonce, other) = ("0".repeat(64), "1".repeat(64));
        let node = Identity::new("lighter_a", "http://127.0.0.1:8701");
        let proof = node.proof(&nonce);
        assert!(node.is_proven(&nonce, &proof));
        assert!(!node.is_proven(&other, &proof) && !node.is_proven(&nonce, "") && !node.is_proven(&nonce, &proof[1..]));
        assert!(!Identity::new("lighter_b", "http://127.0.0.1:8701").is_proven(&nonce, &proof));
        assert!(!Identity::new("lighter_a", "http://127.0.0.1:8702").is_proven(&nonce, &proof));
    }

    #[test]
    fn the_proof_is_what_other_languages_make_of_it() {
        // `sdks/python/tests/test_config.py` has the same numbers.
        let node = Identity::new("lighter_secret", "http://127.0.0.1:8701");
        assert_eq!(node.proof(&"ab".repeat(32)), "7476013021bcd7720f461eb14bb80a01d4cf20181cd5aaf6c41d81a38a1cf4d3");
    }

    #[test]
    fn a_nonce_has_its_length_and_nothing_but_digits() {
        assert!(is_nonce(&"0f".repeat(32)));
        for bad in ["", "0f", &"0F".repeat(32), &"0g".repeat(32), &"0".repeat(65)] {
            assert!(!is_nonce(bad), "{bad:?}");
        }
    }
}
