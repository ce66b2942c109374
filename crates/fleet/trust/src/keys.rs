//! A node's key, and what is signed with it: one Ed25519 seed, made on the node, that never leaves it.

use crate::id::NodeId;
use problem::{Code, Problem};
use ring::digest;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls_pki_types::PrivatePkcs8KeyDer;
use std::fmt;

/// An Ed25519 key that everybody may know.
pub type PublicKey = [u8; 32];
/// 32 bytes that nobody can guess.
pub type Seed = [u8; 32];
/// What is signed with one of them.
pub type Signature = [u8; 64];

/// What stands before the seed in PKCS #8 version 1 (RFC 8410, section 7).
const PKCS8_HEAD: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
/// What stands before an Ed25519 key in a certificate (RFC 8410, section 4).
pub(crate) const SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

/// The secret half of a node's name.
pub struct NodeKey {
    seed: Seed,
    pair: Ed25519KeyPair,
}

impl NodeKey {
    pub fn from_seed(seed: &Seed) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("every 32 bytes are a seed");
        Self { seed: *seed, pair }
    }

    pub fn public(&self) -> PublicKey {
        self.pair.public_key().as_ref().try_into().expect("an Ed25519 key has 32 bytes")
    }

    pub fn id(&self) -> NodeId {
        NodeId::of(&self.public())
    }

    pub(crate) fn seed(&self) -> &Seed {
        &self.seed
    }

    pub(crate) fn pkcs8(&self) -> PrivatePkcs8KeyDer<'static> {
        [&PKCS8_HEAD[..], &self.seed].concat().into()
    }

    /// The hash of the purpose, a zero and the seed.
    pub(crate) fn secret_for(&self, purpose: &str) -> Seed {
        sha256(&[purpose.as_bytes(), &[0], &self.seed])
    }

    /// Signs `parts` for one `purpose`: a signature made for one is worth nothing for another.
    pub fn sign(&self, purpose: &str, parts: &[&[u8]]) -> Signature {
        let signature = self.pair.sign(&for_purpose(purpose, parts));
        signature.as_ref().try_into().expect("an Ed25519 signature has 64 bytes")
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeKey({})", self.id())
    }
}

/// Whether `signature` is that of `key` over `parts`, for this `purpose`.
pub fn is_signed(key: &PublicKey, purpose: &str, parts: &[&[u8]], signature: &Signature) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(&for_purpose(purpose, parts), signature).is_ok()
}

/// Every part behind its length, so that no two lists of parts give the same bytes.
fn for_purpose(purpose: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut signed = [purpose.as_bytes(), &[0]].concat();
    for part in parts {
        signed.extend_from_slice(&(part.len() as u64).to_le_bytes());
        signed.extend_from_slice(part);
    }
    signed
}

pub(crate) fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in parts {
        hash.update(part);
    }
    hash.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Random bytes of the operating system.
///
/// # Errors
/// [`Code::Internal`]: it has none.
pub fn random<const N: usize>() -> Result<[u8; N], Problem> {
    let mut bytes = [0; N];
    let failed = |error: getrandom::Error| Problem::new(Code::Internal, format!("there is no randomness: {error}"));
    getrandom::fill(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_holds_for_its_key_its_purpose_and_its_parts_alone() {
        let (key, other) = (NodeKey::from_seed(&[1; 32]), NodeKey::from_seed(&[2; 32]));
        let signature = key.sign("join", &[b"ab", b"c"]);
        assert!(is_signed(&key.public(), "join", &[b"ab", b"c"], &signature));
        assert!(!is_signed(&other.public(), "join", &[b"ab", b"c"], &signature));
        assert!(!is_signed(&key.public(), "renew", &[b"ab", b"c"], &signature));
        assert!(!is_signed(&key.public(), "join", &[b"a", b"bc"], &signature));
    }

    #[test]
    fn a_key_prints_its_name_and_no_secret() {
        let key = NodeKey::from_seed(&[1; 32]);
        assert_eq!(format!("{key:?}"), format!("NodeKey({})", key.id()));
    }
}
