//! What a board proves before it is given anything, and what a node accepts as proof.
//!
//! Evidence is signed over the node's challenge and over the secure channel it travels in: it cannot be kept for another
//! day, nor passed on from another board's channel.

use crate::bytes::{Reader, Writer};
use crate::keys::{self, BoardId, Keys, PublicKey};
use crate::{Boot, Hash, VERSION};
use alloc::vec::Vec;
use core::fmt;

/// Of a hardware root's own proof.
pub const PROOF_BYTES_MAX: usize = 4_096;

const PURPOSE: &[u8] = b"lighterage evidence 1";
const SIGNATURE_BYTES: usize = 64;

/// What vouches for the kernel hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// The kernel itself: proof against whoever sends packets, not against whoever holds the board.
    Software,
    /// A piece of hardware, by its number, with a proof of its own. No policy accepts one yet.
    Hardware { kind: u8, proof: Vec<u8> },
}

/// What a board says of itself, under its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub board: BoardId,
    pub channel_key: PublicKey,
    pub boot: Boot,
    pub kernel: Hash,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    pub claim: Claim,
    pub root: Root,
}

/// What a node accepts.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Kernels it trusts.
    pub kernels: Vec<Hash>,
    /// Whether the kernel's own word for its hash is enough.
    pub accepts_software_root: bool,
}

/// Why a board was not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvidenceFault {
    Garbled,
    Version(u8),
    /// Not signed by the board, or for another challenge or channel.
    Signature,
    /// Another board, another key or another boot than the session was opened with.
    Mismatch,
    KernelUnknown(Hash),
    SoftwareRoot,
    HardwareRoot(u8),
}

impl Claim {
    fn write(&self, to: &mut Writer) {
        to.u8(VERSION).bytes(&self.board.0).bytes(&self.channel_key).bytes(&self.boot).bytes(&self.kernel);
    }
}

impl Evidence {
    /// The bytes, signed over `challenge` and `channel`, which both ends of the channel know and nobody chose alone.
    pub fn sign(&self, keys: &Keys, challenge: &Hash, channel: &Hash) -> Vec<u8> {
        let mut to = Writer::default();
        self.claim.write(&mut to);
        match &self.root {
            Root::Software => to.u8(0).u16(0),
            Root::Hardware { kind, proof } => {
                let proof = &proof[..proof.len().min(PROOF_BYTES_MAX)];
                // At most 4,096.
                to.u8(*kind).u16(proof.len() as u16).bytes(proof)
            }
        };
        let signature = keys.sign(PURPOSE, &signed(&to.0, challenge, channel));
        to.bytes(&signature);
        to.0
    }

    fn read(bytes: &[u8]) -> Result<Self, EvidenceFault> {
        let mut from = Reader::new(bytes);
        match from.u8() {
            Some(VERSION) => {}
            version => return Err(version.map_or(EvidenceFault::Garbled, EvidenceFault::Version)),
        }
        Self::fields(from).ok_or(EvidenceFault::Garbled)
    }

    fn fields(mut from: Reader<'_>) -> Option<Self> {
        let claim = Claim {
            board: BoardId(from.array()?),
            channel_key: from.array()?,
            boot: from.array()?,
            kernel: from.array()?,
        };
        let (kind, count) = (from.u8()?, usize::from(from.u16()?));
        let proof = from.take(count).filter(|proof| proof.len() <= PROOF_BYTES_MAX)?;
        let root = match kind {
            0 if proof.is_empty() => Root::Software,
            0 => return None,
            kind => Root::Hardware { kind, proof: proof.to_vec() },
        };
        from.end().map(|()| Self { claim, root })
    }
}

impl Policy {
    /// Reads evidence and says whether it is good enough. `claimed` is what the session was opened with, of which the
    /// kernel's hash alone may differ from the beacon's.
    ///
    /// # Errors
    /// The first thing that is wrong: the session must end without anything having been sent.
    pub fn judge(
        &self,
        evidence: &[u8],
        challenge: &Hash,
        channel: &Hash,
        claimed: (BoardId, PublicKey, Boot),
    ) -> Result<Evidence, EvidenceFault> {
        let Some((said, signature)) = evidence.split_last_chunk::<SIGNATURE_BYTES>() else {
            return Err(EvidenceFault::Garbled);
        };
        let read = Evidence::read(said)?;
        if (read.claim.board, read.claim.channel_key, read.claim.boot) != claimed {
            return Err(EvidenceFault::Mismatch);
        }
        if !keys::is_signed(&read.claim.board.0, PURPOSE, &signed(said, challenge, channel), signature) {
            return Err(EvidenceFault::Signature);
        }
        match &read.root {
            Root::Software if !self.accepts_software_root => return Err(EvidenceFault::SoftwareRoot),
            Root::Hardware { kind, .. } => return Err(EvidenceFault::HardwareRoot(*kind)),
            Root::Software => {}
        }
        if !self.kernels.contains(&read.claim.kernel) {
            return Err(EvidenceFault::KernelUnknown(read.claim.kernel));
        }
        Ok(read)
    }
}

fn signed(said: &[u8], challenge: &Hash, channel: &Hash) -> Vec<u8> {
    [said, challenge, channel].concat()
}

impl fmt::Display for EvidenceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Garbled => write!(f, "its evidence cannot be read"),
            Self::Version(version) => write!(f, "its evidence has version {version}, known is {VERSION}"),
            Self::Signature => write!(f, "its evidence is not signed by it for this session"),
            Self::Mismatch => write!(f, "its evidence is that of another board or another boot"),
            Self::KernelUnknown(kernel) => {
                write!(f, "it runs a kernel that is not trusted, {}", keys::fingerprint(kernel))
            }
            Self::SoftwareRoot => write!(f, "only its own kernel vouches for it, and the policy wants hardware"),
            Self::HardwareRoot(kind) => write!(f, "hardware of kind {kind} vouches for it, which cannot be checked"),
        }
    }
}

impl core::error::Error for EvidenceFault {}
