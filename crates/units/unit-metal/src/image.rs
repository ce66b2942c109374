//! Images of boards: an ELF file, what its kernel's hash is taken of, and the block its settings go into.

use board_link::{Hash, SETTINGS_BYTES, Settings, find_settings, hash_of_two};
use problem::{Code, Problem};
use std::ops::Range;

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const LOAD: u32 = 1;
const RUN: u32 = 1;
const WRITE: u32 = 2;
/// A flat image is the memory a firmware loads; no board has one as large.
const FLAT_BYTES_MAX: u64 = 64 << 20;

/// A kernel for a board.
pub struct Image {
    elf: Vec<u8>,
    segments: Vec<Segment>,
    settings: usize,
}

struct Segment {
    flags: u32,
    bytes: Range<usize>,
    address: u64,
}

impl Image {
    /// # Errors
    /// [`Code::BoardImage`]: it is no kernel of ours.
    pub fn read(elf: Vec<u8>) -> Result<Self, Problem> {
        let segments = segments(&elf).ok_or_else(|| problem("it is no ELF file of a kernel"))?;
        let settings = find_settings(&elf).map_err(|fault| problem(&fault.to_string()))?;
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
    /// [`Code::BoardImage`]: the settings do not fit.
    pub fn with(mut self, settings: &Settings) -> Result<Self, Problem> {
        let block = settings.write().map_err(|fault| problem(&fault.to_string()))?;
        self.elf[self.settings..self.settings + SETTINGS_BYTES].copy_from_slice(&block);
        Ok(self)
    }

    pub fn elf(&self) -> &[u8] {
        &self.elf
    }

    /// The memory from the first segment on, as a Pi's firmware loads it.
    ///
    /// # Errors
    /// [`Code::BoardImage`]: there is too much of it.
    pub fn flat(&self) -> Result<Vec<u8>, Problem> {
        let start = self.segments.iter().map(|one| one.address).min().unwrap_or_default();
        let mut flat = Vec::new();
        for segment in &self.segments {
            let from = segment.address - start;
            if from > FLAT_BYTES_MAX {
                return Err(problem("its segments lie too far apart for a flat image"));
            }
            // At most 64 MiB.
            let from = from as usize;
            flat.resize(flat.len().max(from + segment.bytes.len()), 0);
            flat[from..from + segment.bytes.len()].copy_from_slice(&self.elf[segment.bytes.clone()]);
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
    (!segments.is_empty()).then_some(segments)
}

fn problem(why: &str) -> Problem {
    Problem::new(Code::BoardImage, format!("the board's image cannot be used: {why}"))
}
