//! The signed datagram by which a board says that it is there, what it is and what it can run.

use crate::bytes::{Reader, Writer};
use crate::keys::{self, BoardId, Keys, PublicKey};
use crate::{Boot, Hash, VERSION};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Where beacons go and are waited for: UDP.
pub const BEACON_PORT: u16 = 7311;
/// One datagram, never a fragment.
pub const BEACON_BYTES_MAX: usize = 1_200;
/// Of a board's name, its kind and its architecture.
pub const NAME_BYTES_MAX: usize = 32;
pub const FORMATS_MAX: usize = 8;
pub const FORMAT_BYTES_MAX: usize = 64;

const MAGIC: [u8; 4] = *b"LBCN";
pub(crate) const PURPOSE: &[u8] = b"lighterage beacon 1";
const SIGNATURE_BYTES: usize = 64;

/// What a board says of itself, again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beacon {
    pub board: BoardId,
    /// Of its end of the secure channel.
    pub channel_key: PublicKey,
    pub boot: Boot,
    /// Counts the beacons of this boot, from 1.
    pub sequence: u32,
    pub uptime_ms: u64,
    /// Of the kernel's code and constants.
    pub kernel: Hash,
    /// TCP, at the address the beacon came from.
    pub link_port: u16,
    /// Given by whoever flashed it. Nobody else vouches for it.
    pub name: String,
    pub machine: Machine,
    /// What payloads it runs, best first: a target and the fingerprint of what made them.
    pub formats: Vec<String>,
    pub load: Load,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The kind of board: `qemu-arm`, `qemu-x86`, `raspi3b`.
    pub board: String,
    /// As Rust names it: `aarch64`, `x86_64`.
    pub architecture: String,
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    pub sessions: u8,
    /// A call runs now; another would be refused.
    pub is_running: bool,
    /// Calls answered since it started.
    pub runs: u32,
    pub free_bytes: u64,
}

/// Why bytes are no beacon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeaconFault {
    TooLarge,
    Magic,
    Version(u8),
    /// A field is missing, too long or not plain text, or bytes follow.
    Garbled,
    Signature,
}

impl Beacon {
    /// The datagram. `keys` are those of `self.board`.
    pub fn sign(&self, keys: &Keys) -> Vec<u8> {
        debug_assert!(self.board == keys.id() && self.channel_key == keys.channel_public(), "its own keys");
        let mut to = Writer::default();
        to.bytes(&MAGIC).u8(VERSION);
        to.bytes(&self.board.0).bytes(&self.channel_key).bytes(&self.boot);
        to.u32(self.sequence).u64(self.uptime_ms).bytes(&self.kernel).u16(self.link_port);
        to.text(&self.name, NAME_BYTES_MAX);
        to.text(&self.machine.board, NAME_BYTES_MAX).text(&self.machine.architecture, NAME_BYTES_MAX);
        to.u64(self.machine.memory_bytes);
        let formats = &self.formats[..self.formats.len().min(FORMATS_MAX)];
        // At most 8.
        to.u8(formats.len() as u8);
        for format in formats {
            to.text(format, FORMAT_BYTES_MAX);
        }
        to.u8(self.load.sessions).u8(self.load.is_running.into()).u32(self.load.runs).u64(self.load.free_bytes);
        let signature = keys.sign(PURPOSE, &to.0);
        to.bytes(&signature);
        to.0
    }

    /// Reads a datagram and checks its signature, which it does last, for it is the dearest.
    ///
    /// # Errors
    /// The first that is wrong. Nothing of such a datagram is to be believed.
    pub fn read(bytes: &[u8]) -> Result<Self, BeaconFault> {
        UnverifiedBeacon::read(bytes)?.verify()
    }

    fn fields(mut from: Reader<'_>) -> Option<Self> {
        let beacon = Self {
            board: BoardId(from.array()?),
            channel_key: from.array()?,
            boot: from.array()?,
            sequence: from.u32()?,
            uptime_ms: from.u64()?,
            kernel: from.array()?,
            link_port: from.u16()?,
            name: from.text(NAME_BYTES_MAX)?.into(),
            machine: Machine {
                board: from.text(NAME_BYTES_MAX)?.into(),
                architecture: from.text(NAME_BYTES_MAX)?.into(),
                memory_bytes: from.u64()?,
            },
            formats: {
                let count = from.u8().filter(|count| usize::from(*count) <= FORMATS_MAX)?;
                (0..count).map(|_| from.text(FORMAT_BYTES_MAX).map(String::from)).collect::<Option<_>>()?
            },
            load: Load {
                sessions: from.u8()?,
                is_running: match from.u8()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
                runs: from.u32()?,
                free_bytes: from.u64()?,
            },
        };
        from.end().map(|()| beacon)
    }
}

impl fmt::Display for BeaconFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "a beacon has at most {BEACON_BYTES_MAX} bytes"),
            Self::Magic => write!(f, "it is no beacon"),
            Self::Version(version) => write!(f, "the beacon has version {version}, known is {VERSION}"),
            Self::Garbled => write!(f, "a field of the beacon is not as it should be"),
            Self::Signature => write!(f, "the beacon is not signed by the board it names"),
        }
    }
}

impl core::error::Error for BeaconFault {}

/// A datagram that looks like a beacon. Whose it is remains to be seen.
pub(crate) struct UnverifiedBeacon<'a> {
    beacon: Beacon,
    said: &'a [u8],
    signature: &'a [u8; SIGNATURE_BYTES],
}

impl<'a> UnverifiedBeacon<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, BeaconFault> {
        if bytes.len() > BEACON_BYTES_MAX {
            return Err(BeaconFault::TooLarge);
        }
        let Some((said, signature)) = bytes.split_last_chunk::<SIGNATURE_BYTES>() else {
            return Err(BeaconFault::Garbled);
        };
        let mut from = Reader::new(said);
        if from.array() != Some(MAGIC) {
            return Err(BeaconFault::Magic);
        }
        match from.u8() {
            Some(VERSION) => {}
            version => return Err(version.map_or(BeaconFault::Garbled, BeaconFault::Version)),
        }
        let beacon = Beacon::fields(from).ok_or(BeaconFault::Garbled)?;
        Ok(Self { beacon, said, signature })
    }

    /// Whose it claims to be.
    pub(crate) fn board(&self) -> &BoardId {
        &self.beacon.board
    }

    pub(crate) fn verify(self) -> Result<Beacon, BeaconFault> {
        if keys::is_signed(&self.beacon.board.0, PURPOSE, self.said, self.signature) {
            Ok(self.beacon)
        } else {
            Err(BeaconFault::Signature)
        }
    }
}
