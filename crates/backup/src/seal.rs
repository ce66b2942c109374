//! What a backup holds of secrets, sealed with a passphrase: ChaCha20-Poly1305 under a key of PBKDF2 with HMAC-SHA256.
//!
//! The key is made with a salt that is drawn for each backup, so the number of a piece is nonce enough. That number is
//! bound into each piece: one that is left out, doubled or moved does not open.

use crate::read::broken;
use problem::{Code, Problem};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::pbkdf2;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU32;

/// Rounds of the key's making: what OWASP advises for HMAC-SHA256. A third of a second on a PC, about two on a Pi 4.
pub const SEAL_ROUNDS: u32 = 600_000;
/// What a backup may ask for: more would only keep a machine busy.
const ROUNDS_MAX: u32 = 20_000_000;

/// How a backup's secrets are sealed. Without the passphrase it helps nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// Drawn anew for each backup.
    pub salt: [u8; 16],
    /// Rounds of PBKDF2.
    pub rounds: u32,
}

/// The key that a passphrase makes for one backup.
#[derive(Clone)]
pub struct Passphrase {
    key: LessSafeKey,
    /// Pieces sealed or opened with it.
    count: u64,
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase(…)")
    }
}

impl Passphrase {
    /// Takes a moment, on purpose.
    ///
    /// # Errors
    /// `BackupBroken`: the backup asks for rounds that no version writes.
    pub fn new(passphrase: &[u8], seal: &Seal) -> Result<Self, Problem> {
        let rounds = NonZeroU32::new(seal.rounds).filter(|rounds| rounds.get() <= ROUNDS_MAX);
        let rounds = rounds.ok_or_else(|| broken("how it is sealed makes no sense"))?;
        let mut key = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &seal.salt, passphrase, &mut key);
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).expect("a key of this length");
        Ok(Self { key: LessSafeKey::new(key), count: 0 })
    }

    /// Seals the next piece.
    pub fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut sealed = plain.to_vec();
        let nonce = self.nonce();
        let done = self.key.seal_in_place_append_tag(nonce, Aad::empty(), &mut sealed);
        done.expect("a piece is short enough");
        sealed
    }

    /// Opens the next piece.
    ///
    /// # Errors
    /// `BackupSealed`: it was sealed with another passphrase.
    pub fn open(&mut self, mut sealed: Vec<u8>) -> Result<Vec<u8>, Problem> {
        let nonce = self.nonce();
        let opened = self.key.open_in_place(nonce, Aad::empty(), &mut sealed).map(|plain| plain.len());
        let length = opened.map_err(|_| Problem::new(Code::BackupSealed, "the passphrase is not the backup's"))?;
        sealed.truncate(length);
        Ok(sealed)
    }

    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&self.count.to_le_bytes());
        self.count += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEAL: Seal = Seal { salt: [3; 16], rounds: 2 };

    fn key(word: &str) -> Passphrase {
        Passphrase::new(word.as_bytes(), &SEAL).unwrap()
    }

    #[test]
    fn the_passphrase_opens_what_it_sealed_in_its_order() {
        let mut sealing = key("open sesame");
        let sealed = [sealing.seal(b"first"), sealing.seal(b"second")];
        assert!(!sealed.concat().windows(5).any(|some| some == b"first"));
        let mut opening = key("open sesame");
        assert_eq!(opening.open(sealed[0].clone()).unwrap(), b"first");
        assert_eq!(opening.open(sealed[1].clone()).unwrap(), b"second");
        // Out of its place, it is another's.
        assert_eq!(key("open sesame").open(sealed[1].clone()).unwrap_err().code, Code::BackupSealed);
    }

    #[test]
    fn another_passphrase_or_another_byte_opens_nothing() {
        let sealed = key("open sesame").seal(b"secret");
        assert_eq!(key("open barley").open(sealed.clone()).unwrap_err().code, Code::BackupSealed);
        for at in 0..sealed.len() {
            let mut other = sealed.clone();
            other[at] ^= 1;
            assert!(key("open sesame").open(other).is_err(), "{at}");
        }
        assert!(key("open sesame").open(Vec::new()).is_err());
    }

    #[test]
    fn rounds_that_would_only_keep_busy_are_refused() {
        for rounds in [0, ROUNDS_MAX + 1] {
            assert_eq!(Passphrase::new(b"x", &Seal { rounds, ..SEAL }).unwrap_err().code, Code::BackupBroken);
        }
    }
}
