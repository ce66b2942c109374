//! Seals 32 secret bytes to one node, inside of a connection that has shown who both are.
//!
//! The node makes a key for this one connection (X25519) and signs it with the key that is its name. So what is sealed
//! can be read by this node alone, in this connection alone, even where TLS should end somewhere else.

use crate::anchor::Channel;
use crate::keys::{NodeKey, PublicKey, Seed, Signature, is_signed, sha256};
use problem::{Code, Problem};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use ring::rand::SystemRandom;

const PURPOSE: &str = "lighterage seal 1";

/// A key of X25519 that everybody may know.
pub type BoxKey = [u8; 32];

/// The half that opens what was sealed, once.
pub struct Opener {
    private: EphemeralPrivateKey,
    public: BoxKey,
}

impl Opener {
    /// # Errors
    /// [`Code::Internal`]: there is no randomness.
    pub fn new() -> Result<Self, Problem> {
        let (private, public) = pair()?;
        Ok(Self { private, public })
    }

    /// The public half, and the node's word that it is its own, for this connection.
    pub fn shown(&self, key: &NodeKey, channel: &Channel) -> (BoxKey, Signature) {
        (self.public, key.sign(PURPOSE, &[channel, &self.public]))
    }

    /// # Errors
    /// [`Code::FleetMessage`]: it was not sealed to this key in this connection.
    pub fn open(self, from: &BoxKey, channel: &Channel, sealed: &[u8]) -> Result<Seed, Problem> {
        let key = agreed(self.private, from, (&self.public, from), channel)?;
        let mut bytes = sealed.to_vec();
        let opened = key.open_in_place(once(), Aad::empty(), &mut bytes).map_err(|_| not_sealed())?;
        opened.try_into().map_err(|_| not_sealed())
    }
}

/// Seals to the node that has shown `to`: the sealer's public half, and what it has sealed.
///
/// # Errors
/// [`Code::FleetMessage`]: the node with the key `node` did not sign it for this connection.
pub fn seal(
    secret: &Seed,
    node: &PublicKey,
    (to, signature): (&BoxKey, &Signature),
    channel: &Channel,
) -> Result<(BoxKey, Vec<u8>), Problem> {
    if !is_signed(node, PURPOSE, &[channel, to], signature) {
        return Err(Problem::new(Code::FleetMessage, "the node has not signed the key that is sealed to"));
    }
    let (private, from) = pair()?;
    let key = agreed(private, to, (to, &from), channel)?;
    let mut bytes = secret.to_vec();
    let failed = |_| Problem::new(Code::Internal, "nothing can be sealed");
    key.seal_in_place_append_tag(once(), Aad::empty(), &mut bytes).map_err(failed)?;
    Ok((from, bytes))
}

fn pair() -> Result<(EphemeralPrivateKey, BoxKey), Problem> {
    let failed = |_| Problem::new(Code::Internal, "no key can be made");
    let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).map_err(failed)?;
    let public = private.compute_public_key().map_err(failed)?;
    let public =
        public.as_ref().try_into().map_err(|_| Problem::new(Code::Internal, "a key of X25519 has 32 bytes"))?;
    Ok((private, public))
}

/// The key of one seal: of both halves and the connection.
fn agreed(
    private: EphemeralPrivateKey,
    other: &BoxKey,
    (to, from): (&BoxKey, &BoxKey),
    channel: &Channel,
) -> Result<LessSafeKey, Problem> {
    let key = agree_ephemeral(private, &UnparsedPublicKey::new(&X25519, other), |shared| {
        sha256(&[PURPOSE.as_bytes(), &[0], shared, to, from, channel])
    });
    let key = key.map_err(|_| not_sealed())?;
    UnboundKey::new(&CHACHA20_POLY1305, &key).map(LessSafeKey::new).map_err(|_| not_sealed())
}

/// A key seals once, so its nonce may be any.
fn once() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

fn not_sealed() -> Problem {
    Problem::new(Code::FleetMessage, "what was sealed cannot be opened")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_opened_by_its_node_in_its_connection_alone() {
        let (key, other) = (NodeKey::from_seed(&[1; 32]), NodeKey::from_seed(&[2; 32]));
        let (channel, elsewhere) = ([7; 32], [8; 32]);
        let opener = Opener::new().unwrap();
        let (to, signature) = opener.shown(&key, &channel);
        assert!(seal(&[9; 32], &other.public(), (&to, &signature), &channel).is_err());
        assert!(seal(&[9; 32], &key.public(), (&to, &signature), &elsewhere).is_err());
        let (from, sealed) = seal(&[9; 32], &key.public(), (&to, &signature), &channel).unwrap();
        assert!(Opener::new().unwrap().open(&from, &channel, &sealed).is_err(), "another key");
        assert_eq!(opener.open(&from, &channel, &sealed), Ok([9; 32]));
        for at in 0..sealed.len() {
            let opener = Opener::new().unwrap();
            let (to, signature) = opener.shown(&key, &channel);
            let (from, mut sealed) = seal(&[9; 32], &key.public(), (&to, &signature), &channel).unwrap();
            sealed[at] ^= 1;
            assert!(opener.open(&from, &channel, &sealed).is_err(), "byte {at}");
        }
        let opener = Opener::new().unwrap();
        let (to, signature) = opener.shown(&key, &channel);
        let (from, sealed) = seal(&[9; 32], &key.public(), (&to, &signature), &channel).unwrap();
        assert!(opener.open(&from, &elsewhere, &sealed).is_err(), "another connection");
    }
}
