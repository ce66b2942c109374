//! Unpacks gzip as it is read. What follows the compressed part, a sum and a length, is counted and not compared: the
//! signature has covered every byte already.

use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZFlush, MZStatus};

/// A gzip file without a name, a comment or other fields: what Python's `gzip.compress` writes.
const HEAD: [u8; 4] = [0x1f, 0x8b, 8, 0];
const HEAD_BYTES: usize = 10;
const TAIL_BYTES: usize = 8;

pub struct Gunzip<'a> {
    rest: &'a [u8],
    state: Box<InflateState>,
    is_over: bool,
}

impl<'a> Gunzip<'a> {
    /// None of what is no such file.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let rest = bytes.get(HEAD_BYTES..).filter(|_| bytes.starts_with(&HEAD))?;
        Some(Self { rest, state: InflateState::new_boxed(DataFormat::Raw), is_over: false })
    }

    /// Fills `to`; false if the file is not sound, or ends before.
    pub fn fill(&mut self, to: &mut [u8]) -> bool {
        let mut filled = 0;
        while filled < to.len() {
            if self.is_over {
                return false;
            }
            let step = inflate(&mut self.state, self.rest, &mut to[filled..], MZFlush::None);
            self.rest = &self.rest[step.bytes_consumed..];
            filled += step.bytes_written;
            match step.status {
                Ok(MZStatus::StreamEnd) => self.is_over = true,
                Ok(_) if step.bytes_consumed > 0 || step.bytes_written > 0 => {}
                _ => return false,
            }
        }
        true
    }

    /// Whether nothing but zeros and the file's own end comes yet; reads at most `bytes_max` of them.
    pub fn ends(&mut self, bytes_max: u64) -> bool {
        let mut read = 0;
        let mut one = [0];
        while !self.is_over && read < bytes_max {
            if self.fill(&mut one) && one != [0] {
                return false;
            }
            read += 1;
        }
        self.is_over && self.rest.len() == TAIL_BYTES
    }
}
