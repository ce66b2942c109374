//! Images of boards: an ELF file, what its kernel's hash is taken of, and the block its settings go into.

use crate::{Hash, SETTINGS_BYTES, Settings, SettingsFault, find_settings, hash_of_two};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const LOAD: u32 = 1;
const RUN: u32 = 1;
const WRITE: u32 = 2;
/// A flat image is the memory a firmware loads; no board has one as large.
const FLAT_BYTES_MAX: u64 = 64 << 20;
/// A kernel has one for each kind of page.
const SEGMENTS_MAX: usize = 16;

/// A kernel for a board.
#[derive(Debug, Clone)]
pub struct Image {
    elf: Vec<u8>,
    segments: Vec<Segment>,
    settings: usize,
}

/// Why bytes are no image, or cannot become another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFault {
    /// No ELF file of a 64-bit machine, or one whose parts lie outside of it.
    NoKernel,
    Settings(SettingsFault),
    /// Its segments lie too far apart to be loaded as one.
    Scattered,
}

#[derive(Debug, Clone)]
struct Segment {
    flags: u32,
    bytes: Range<usize>,
    address: u64,
}

impl Image {
    /// # Errors
    /// It is no kernel of ours.
    pub fn read(elf: Vec<u8>) -> Result<Self, ImageFault> {
        let segments = segments(&elf).ok_or(ImageFault::NoKernel)?;
        let settings = find_settings(&elf).map_err(ImageFault::Settings)?;
        Ok(Self { elf, segments, settings })
    }

    /// What the board says it runs, when it runs this.
    pub fn kernel(&self) -> Hash {
        let part = |runs: bool| {
            let mut parts = self.segments.iter().filter(|one| one.flags & WRITE == 0 && (one.flags & RUN != 0) == runs);
            parts.next().map_or(&[][..], |one| &self.elf[one.bytes.clone()])
        };
        hash_of_two(part(true), part(false))
    }

    /// The same image, as one board's.
    ///
    /// # Errors
    /// [`ImageFault::Settings`]: they do not fit.
    pub fn with(mut self, settings: &Settings) -> Result<Self, ImageFault> {
        let block = settings.write().map_err(ImageFault::Settings)?;
        self.elf[self.settings..self.settings + SETTINGS_BYTES].copy_from_slice(&block);
        Ok(self)
    }

    pub fn elf(&self) -> &[u8] {
        &self.elf
    }

    /// The memory from the first segment on, as a Pi's firmware loads it.
    ///
    /// # Errors
    /// [`ImageFault::Scattered`].
    pub fn flat(&self) -> Result<Vec<u8>, ImageFault> {
        let start = self.segments.iter().map(|one| one.address).min().unwrap_or_default();
        let from = |segment: &Segment| segment.address - start;
        if self.segments.iter().any(|one| from(one) > FLAT_BYTES_MAX) {
            return Err(ImageFault::Scattered);
        }
        // In one piece: what grows from one segment to the next is held twice meanwhile. At most 64 MiB and a segment.
        let end = self.segments.iter().map(|one| from(one) as usize + one.bytes.len()).max();
        let mut flat = vec![0; end.unwrap_or_default()];
        for segment in &self.segments {
            flat[from(segment) as usize..][..segment.bytes.len()].copy_from_slice(&self.elf[segment.bytes.clone()]);
        }
        Ok(flat)
    }
}

fn segments(elf: &[u8]) -> Option<Vec<Segment>> {
    const MAGIC_64_LITTLE: [u8; 6] = *b"\x7fELF\x02\x01";
    let header = elf.get(..HEADER_BYTES).filter(|header| header.starts_with(&MAGIC_64_LITTLE))?;
    let long = |bytes: &[u8], at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let word = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let table = usize::try_from(long(header, 32)?).ok()?;
    let count = usize::from(u16::from_le_bytes([header[56], header[57]]));
    let mut segments = Vec::new();
    for index in 0..count {
        let entry = elf.get(table.checked_add(index * PROGRAM_HEADER_BYTES)?..)?.get(..PROGRAM_HEADER_BYTES)?;
        let (offset, bytes) = (usize::try_from(long(entry, 8)?).ok()?, usize::try_from(long(entry, 32)?).ok()?);
        if word(entry, 0)? == LOAD {
            let bytes = offset..offset.checked_add(bytes).filter(|end| *end <= elf.len())?;
            segments.push(Segment { flags: word(entry, 4)?, bytes, address: long(entry, 24)? });
        }
    }
    (1..=SEGMENTS_MAX).contains(&segments.len()).then_some(segments)
}

impl fmt::Display for ImageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKernel => write!(f, "it is no ELF file of a kernel"),
            Self::Settings(fault) => write!(f, "{fault}"),
            Self::Scattered => write!(f, "its segments lie too far apart for a flat image"),
        }
    }
}

impl core::error::Error for ImageFault {}
