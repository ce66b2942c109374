//! Noise (`IK`, Curve25519, ChaCha20-Poly1305, SHA-256) by way of `snow`, fed with randomness from outside.

use crate::keys::{BoardId, KEY_BYTES};
use crate::{Boot, Hash, hash};
use alloc::boxed::Box;
use alloc::vec::Vec;
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{BoxedCryptoResolver, CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash as NoiseHash, Random};
use snow::{Builder, Error};

/// What a record carries at most. Small, so that a board needs little room for half a record.
pub const RECORD_TEXT_BYTES_MAX: usize = 16 << 10;
/// A record on the wire, without the two bytes of its length.
pub const RECORD_BYTES_MAX: usize = RECORD_TEXT_BYTES_MAX + TAG_BYTES;

const TAG_BYTES: usize = 16;
const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_SHA256";

/// What a handshake needs besides keys.
pub(crate) fn builder<'a>(seed: [u8; KEY_BYTES], prologue: &'a [u8], secret: &'a [u8]) -> Result<Builder<'a>, Error> {
    let params: NoiseParams = PATTERN.parse()?;
    let resolver: BoxedCryptoResolver = Box::new(Seeded(seed));
    Builder::with_resolver(params, resolver).prologue(prologue)?.local_private_key(secret)
}

/// Ties a session to the protocol's version, one board and one life of it.
pub(crate) fn prologue(board: &BoardId, boot: &Boot) -> Vec<u8> {
    [&b"lighterage link 1"[..], &board.0, boot].concat()
}

/// The default primitives, and randomness from a seed that is used for one session.
struct Seeded([u8; KEY_BYTES]);

impl CryptoResolver for Seeded {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Stream { seed: self.0, blocks: 0 }))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn NoiseHash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// SHA-256 of the seed and a counter: a handshake takes 32 bytes of it.
struct Stream {
    seed: [u8; KEY_BYTES],
    blocks: u64,
}

impl Random for Stream {
    fn try_fill_bytes(&mut self, into: &mut [u8]) -> Result<(), Error> {
        for chunk in into.chunks_mut(size_of::<Hash>()) {
            let block = hash(&[&b"lighterage ephemeral"[..], &self.seed, &self.blocks.to_le_bytes()].concat());
            self.blocks += 1;
            chunk.copy_from_slice(&block[..chunk.len()]);
        }
        Ok(())
    }
}
