//! Reads a journal batch by batch, with little memory, and says where it stops being sound.

use super::batch::{Flaw, Parsed, parse};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What is read at once, where there is that much.
const READ_BYTES: usize = 256 << 10;
/// Largest batch that is believed: four times what may wait to be written together, because that is counted roughly.
const BATCH_BYTES_MAX: usize = 4 * crate::engine::BATCH_BYTES_MAX;

/// Sound batches in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sound {
    /// Where the last of them ends.
    pub end: u64,
    /// Sequence numbers of the first and the last one; 0 if there is none.
    pub first: u64,
    pub last: u64,
}

/// Why the sound batches end where they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Nothing follows but zeros, as far as was looked.
    Nothing,
    /// The file ends in the middle of a batch.
    Cut,
    Flawed(Flaw),
    /// A batch that is sound in itself, with a sequence number that is not greater than the one before.
    Sequence {
        found: u64,
        before: u64,
    },
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Cut => f.write_str("the end of the file in the middle of a batch"),
            Self::Flawed(flaw) => flaw.fmt(f),
            Self::Sequence { found, before } => write!(f, "sequence number {found} after {before}"),
        }
    }
}

/// A journal that is being read.
pub struct Scan<'a> {
    file: &'a File,
    buffer: Vec<u8>,
    /// Where in the file the buffer begins.
    offset: u64,
    /// How much of the buffer has been looked at, and how much of it is filled.
    at: usize,
    filled: usize,
    read_bytes: usize,
}

impl<'a> Scan<'a> {
    /// Begins at `offset`, which must be the end of a batch, or 0, and reads `read_bytes` at first.
    pub fn new(file: &'a File, offset: u64, buffer: Vec<u8>, read_bytes: usize) -> Self {
        Self { file, buffer, offset, at: 0, filled: 0, read_bytes }
    }

    pub fn whole(file: &'a File) -> Self {
        Self::new(file, 0, Vec::new(), READ_BYTES)
    }

    pub fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    /// Reads on after `sound` as long as batches are sound, calling `each` after every one.
    pub fn run(&mut self, sound: &mut Sound, mut each: impl FnMut(&Sound)) -> io::Result<Stop> {
        loop {
            match parse(&self.buffer[self.at..self.filled]) {
                Parsed::Nothing if self.at == self.filled => {
                    if self.fill(1)? == 0 {
                        return Ok(Stop::Nothing);
                    }
                }
                Parsed::Nothing => return Ok(Stop::Nothing),
                Parsed::NeedsMore { bytes } if bytes > BATCH_BYTES_MAX => return Ok(Stop::Flawed(Flaw::Item)),
                Parsed::NeedsMore { bytes } => {
                    let missing = bytes - (self.filled - self.at);
                    if self.fill(missing)? < missing {
                        return Ok(Stop::Cut);
                    }
                }
                Parsed::Flawed(flaw) => return Ok(Stop::Flawed(flaw)),
                Parsed::Whole { sequence, .. } if sequence <= sound.last && sound.last > 0 => {
                    return Ok(Stop::Sequence { found: sequence, before: sound.last });
                }
                Parsed::Whole { bytes, sequence } => {
                    self.at += bytes;
                    sound.end = self.offset + self.at as u64;
                    if sound.first == 0 {
                        sound.first = sequence;
                    }
                    sound.last = sequence;
                    each(sound);
                }
            }
        }
    }

    /// Whether there are only zeros from here on.
    pub fn rest_is_zero(&mut self) -> io::Result<bool> {
        loop {
            if self.buffer[self.at..self.filled].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            self.at = self.filled;
            if self.fill(1)? == 0 {
                return Ok(true);
            }
        }
    }

    /// Reads at least `missing` bytes more if the file has them, moving what is not looked at yet to the front.
    fn fill(&mut self, missing: usize) -> io::Result<usize> {
        self.buffer.copy_within(self.at..self.filled, 0);
        self.offset += self.at as u64;
        self.filled -= self.at;
        self.at = 0;
        // A large batch is looked at again each time there is more of it: so it is doubled, not added to.
        let wanted = self.filled + missing.max(self.read_bytes).max(self.filled);
        self.read_bytes = READ_BYTES;
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        let mut got = 0;
        while got < missing {
            let place = &mut self.buffer[self.filled..wanted];
            match self.file.read_at(place, self.offset + self.filled as u64) {
                Ok(0) => break,
                Ok(bytes) => {
                    got += bytes;
                    self.filled += bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(got)
    }
}
