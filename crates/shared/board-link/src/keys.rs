//! Who is who: one secret seed gives the key that signs and the key of the secure channel.

use crate::hash;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use snow::resolvers::CryptoResolver;

pub const KEY_BYTES: usize = 32;

/// A public key, of either kind.
pub type PublicKey = [u8; KEY_BYTES];

/// A board is named by the key it signs with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoardId(pub PublicKey);

impl fmt::Display for BoardId {
    /// The first 8 bytes: enough for people to tell boards apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&fingerprint(&self.0))
    }
}

impl fmt::Debug for BoardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoardId({self})")
    }
}

/// The first 8 bytes in hexadecimal.
pub fn fingerprint(key: &PublicKey) -> String {
    key[..8].iter().map(|byte| alloc::format!("{byte:02x}")).collect()
}

/// The secret half. Made from 32 bytes that nobody can guess; the same bytes give the same keys.
#[derive(Clone)]
pub struct Keys {
    signing: SigningKey,
    channel: [u8; KEY_BYTES],
    channel_public: PublicKey,
}

impl Keys {
    pub fn from_seed(seed: &[u8; KEY_BYTES]) -> Self {
        let signing = SigningKey::from_bytes(&derived(b"lighterage key: sign", seed));
        let channel = derived(b"lighterage key: channel", seed);
        Self { signing, channel_public: channel_public(&channel), channel }
    }

    /// What it signs with is also its name.
    pub fn id(&self) -> BoardId {
        BoardId(self.signing.verifying_key().to_bytes())
    }

    /// The public key of its end of a secure channel.
    pub fn channel_public(&self) -> PublicKey {
        self.channel_public
    }

    pub(crate) fn channel_secret(&self) -> &[u8; KEY_BYTES] {
        &self.channel
    }

    /// Signs `bytes` for one `purpose`: a signature made for one is worth nothing for another.
    pub(crate) fn sign(&self, purpose: &[u8], bytes: &[u8]) -> [u8; 64] {
        self.signing.sign(&for_purpose(purpose, bytes)).to_bytes()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.id())
    }
}

/// Whether `signature` is that of `key` over `bytes`, for this `purpose`.
pub(crate) fn is_signed(key: &PublicKey, purpose: &[u8], bytes: &[u8], signature: &[u8; 64]) -> bool {
    let Ok(key) = VerifyingKey::from_bytes(key) else { return false };
    key.verify_strict(&for_purpose(purpose, bytes), &Signature::from_bytes(signature)).is_ok()
}

fn for_purpose(purpose: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut signed = Vec::with_capacity(purpose.len() + 1 + bytes.len());
    signed.extend_from_slice(purpose);
    signed.push(0);
    signed.extend_from_slice(bytes);
    signed
}

fn derived(purpose: &[u8], seed: &[u8; KEY_BYTES]) -> [u8; KEY_BYTES] {
    hash(&for_purpose(purpose, seed))
}

fn channel_public(secret: &[u8; KEY_BYTES]) -> PublicKey {
    let dh = snow::resolvers::DefaultResolver.resolve_dh(&snow::params::DHChoice::Curve25519);
    let mut dh = dh.expect("snow is built with this curve");
    dh.set(secret);
    let mut public = [0; KEY_BYTES];
    public.copy_from_slice(dh.pubkey());
    public
}
