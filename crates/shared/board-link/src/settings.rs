//! What makes one board of a kernel image: a block of 4 KiB in the image that `lighter flash` fills in.
//!
//! ```text
//!  0      8       9        12       16                 16+bytes        …4096
//!  magic  version 0 0 0    bytes    fields             zeros           the last 32: SHA-256 of all before
//! ```
//! The block is no part of what the kernel's hash covers: one hash vouches for all boards with the same kernel.

use crate::bytes::{Reader, Writer};
use crate::keys::{KEY_BYTES, PublicKey};
use crate::{BEACON_PORT, LINK_PORT, NAME_BYTES_MAX, VERSION, hash};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub const SETTINGS_BYTES: usize = 4_096;
/// How an image's block is found. Unlikely enough; and two of them in one image are refused.
pub const SETTINGS_MAGIC: [u8; 8] = *b"\x89LTRSET\x1a";
/// Nodes that may open sessions, and signers of code.
pub const NODES_MAX: usize = 8;
pub const BEACON_TO_MAX: usize = 4;

/// Of a block in an image.
const ALIGNMENT: usize = 4_096;
const HASH_BYTES: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub name: String,
    /// What [`Keys`](crate::Keys) are made from. Whoever reads the image is the board.
    pub seed: [u8; KEY_BYTES],
    pub network: Network,
    /// TCP port the board listens on.
    pub link_port: u16,
    /// What beacons say instead, where something between board and node translates it.
    pub link_port_seen: u16,
    /// UDP port beacons are broadcast to.
    pub beacon_port: u16,
    pub beacon_pause_ms: u32,
    /// Where beacons go besides.
    pub beacon_to: Vec<Destination>,
    /// Channel keys of the nodes that may open sessions.
    pub nodes: Vec<PublicKey>,
    /// Keys that may sign code.
    pub signers: Vec<PublicKey>,
    /// No run lasts longer, whatever the node asks for.
    pub run_ms_max: u32,
    /// After so long without a sign of life the watchdog resets the board.
    pub watchdog_ms: u32,
    /// Whether the board's own watchdog is used beside the timer's interrupt. QEMU's Pi cannot have it.
    pub hardware_watchdog: bool,
    /// Datagrams to this UDP port are sent back, which is for measurements; 0: none are.
    pub echo_port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    Dhcp,
    Static {
        address: [u8; 4],
        /// Bits of the address that are the network's.
        prefix: u8,
        gateway: Option<[u8; 4]>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    pub address: [u8; 4],
    pub port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsFault {
    /// The image has no block, or more than one.
    NoBlock,
    /// It was never filled in.
    Empty,
    Version(u8),
    /// Its hash is wrong: it was not written to its end.
    Hash,
    Garbled,
    /// A field is over its limit.
    TooLarge,
}

impl Default for Settings {
    /// All but a seed and keys, which have no default worth having.
    fn default() -> Self {
        Self {
            name: String::new(),
            seed: [0; KEY_BYTES],
            network: Network::Dhcp,
            link_port: LINK_PORT,
            link_port_seen: LINK_PORT,
            beacon_port: BEACON_PORT,
            beacon_pause_ms: 1_000,
            beacon_to: Vec::new(),
            nodes: Vec::new(),
            signers: Vec::new(),
            run_ms_max: 60_000,
            watchdog_ms: 10_000,
            hardware_watchdog: true,
            echo_port: 0,
        }
    }
}

impl Settings {
    /// The block, filled in.
    ///
    /// # Errors
    /// [`SettingsFault::TooLarge`].
    pub fn write(&self) -> Result<Vec<u8>, SettingsFault> {
        let (nodes, signers) = (self.nodes.len(), self.signers.len());
        if self.name.len() > NAME_BYTES_MAX || nodes.max(signers) > NODES_MAX || self.beacon_to.len() > BEACON_TO_MAX {
            return Err(SettingsFault::TooLarge);
        }
        let mut to = Writer::default();
        to.text(&self.name, NAME_BYTES_MAX).bytes(&self.seed);
        match self.network {
            Network::Dhcp => to.u8(0),
            Network::Static { address, prefix, gateway } => {
                to.u8(1).bytes(&address).u8(prefix).bytes(&gateway.unwrap_or_default())
            }
        };
        to.u16(self.link_port).u16(self.link_port_seen).u16(self.beacon_port).u32(self.beacon_pause_ms);
        to.u32(self.run_ms_max).u32(self.watchdog_ms).u8(self.hardware_watchdog.into()).u16(self.echo_port);
        // Each count is below 9.
        to.u8(self.beacon_to.len() as u8);
        for one in &self.beacon_to {
            to.bytes(&one.address).u16(one.port);
        }
        for keys in [&self.nodes, &self.signers] {
            to.u8(keys.len() as u8);
            for key in keys {
                to.bytes(key);
            }
        }
        Ok(block(&to.0))
    }

    /// Reads a block.
    ///
    /// # Errors
    /// Nothing of it can be used.
    pub fn read(block: &[u8]) -> Result<Self, SettingsFault> {
        let block: &[u8; SETTINGS_BYTES] = block.try_into().map_err(|_| SettingsFault::Garbled)?;
        let (said, sum) = block.split_last_chunk::<HASH_BYTES>().ok_or(SettingsFault::Garbled)?;
        let mut from = Reader::new(said);
        if from.array() != Some(SETTINGS_MAGIC) {
            return Err(SettingsFault::Garbled);
        }
        if said[SETTINGS_MAGIC.len()..].iter().chain(sum).all(|byte| *byte == 0) {
            return Err(SettingsFault::Empty);
        }
        if hash(said) != *sum {
            return Err(SettingsFault::Hash);
        }
        match from.u8() {
            Some(VERSION) => {}
            version => return Err(version.map_or(SettingsFault::Garbled, SettingsFault::Version)),
        }
        let fields = (|| {
            from.take(3)?;
            let count = from.u32()? as usize;
            let fields = from.take(count)?;
            from.rest().iter().all(|byte| *byte == 0).then_some(fields)
        })();
        fields.and_then(|fields| Self::fields(Reader::new(fields))).ok_or(SettingsFault::Garbled)
    }

    fn fields(mut from: Reader<'_>) -> Option<Self> {
        let (name, seed) = (from.text(NAME_BYTES_MAX)?.into(), from.array()?);
        let network = match from.u8()? {
            0 => Network::Dhcp,
            1 => {
                let (address, prefix, gateway) = (from.array()?, from.u8()?, from.array()?);
                let gateway = (gateway != [0; 4]).then_some(gateway);
                (prefix <= 32).then_some(Network::Static { address, prefix, gateway })?
            }
            _ => return None,
        };
        let (link_port, link_port_seen, beacon_port) = (from.u16()?, from.u16()?, from.u16()?);
        let (beacon_pause_ms, run_ms_max, watchdog_ms) = (from.u32()?, from.u32()?, from.u32()?);
        let hardware_watchdog = match from.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let echo_port = from.u16()?;
        let count = from.u8().filter(|count| usize::from(*count) <= BEACON_TO_MAX)?;
        let beacon_to = (0..count).map(|_| Some(Destination { address: from.array()?, port: from.u16()? }));
        let beacon_to = beacon_to.collect::<Option<_>>()?;
        let mut keys = || {
            let count = from.u8().filter(|count| usize::from(*count) <= NODES_MAX)?;
            (0..count).map(|_| from.array()).collect::<Option<Vec<_>>>()
        };
        let (nodes, signers) = (keys()?, keys()?);
        from.end()?;
        Some(Self {
            name,
            seed,
            network,
            link_port,
            link_port_seen,
            beacon_port,
            beacon_pause_ms,
            beacon_to,
            nodes,
            signers,
            run_ms_max,
            watchdog_ms,
            hardware_watchdog,
            echo_port,
        })
    }
}

/// A block with these fields.
pub(crate) fn block(fields: &[u8]) -> Vec<u8> {
    let mut block = Writer::default();
    // All fields at their limits have less than 1 KiB.
    block.bytes(&SETTINGS_MAGIC).u8(VERSION).bytes(&[0; 3]).u32(fields.len() as u32).bytes(fields);
    debug_assert!(block.0.len() <= SETTINGS_BYTES - HASH_BYTES, "all fields at their limits fit");
    block.0.resize(SETTINGS_BYTES - HASH_BYTES, 0);
    let sum = hash(&block.0);
    block.bytes(&sum);
    block.0
}

/// Where in an image its one block begins.
///
/// # Errors
/// [`SettingsFault::NoBlock`].
pub fn find_settings(image: &[u8]) -> Result<usize, SettingsFault> {
    // A block lies at a multiple of its size in memory, and images keep at least the lower bits of an address. The
    // constant itself, in the code that reads a block, is hardly ever at such a place; if it is, it is the linker's to move.
    let aligned = (0..image.len().saturating_sub(SETTINGS_BYTES - 1)).step_by(ALIGNMENT);
    let mut found = aligned.filter(|at| image[*at..].starts_with(&SETTINGS_MAGIC));
    match (found.next(), found.next()) {
        (Some(at), None) => Ok(at),
        _ => Err(SettingsFault::NoBlock),
    }
}

impl fmt::Display for SettingsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBlock => write!(f, "the image has no block for settings, or several"),
            Self::Empty => write!(f, "the image was not given its settings"),
            Self::Version(version) => write!(f, "its settings have version {version}, known is {VERSION}"),
            Self::Hash => write!(f, "its settings are damaged: they do not have the hash they should"),
            Self::Garbled => write!(f, "its settings cannot be read"),
            Self::TooLarge => write!(f, "a setting is longer, or given more often, than the image has room for"),
        }
    }
}

impl core::error::Error for SettingsFault {}
