//! Reads the framing of a chunked body: sizes, line ends and trailers, not the data.

use super::Refused;

/// Hexadecimal digits of a chunk size: what fits into 60 bits.
const SIZE_DIGITS_MAX: u8 = 15;

/// Bytes of the extensions of all chunks of one body. Nobody uses them.
const EXTENSION_BYTES_MAX: u32 = 4 * 1024;

/// Bytes of all trailers of one body.
const TRAILER_BYTES_MAX: u32 = 8 * 1024;

/// Where in a chunked body the reader stands.
#[derive(Debug)]
pub struct Chunks {
    state: State,
    extension_bytes: u32,
    trailer_bytes: u32,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Size {
        size: u64,
        digits: u8,
    },
    Extension {
        size: u64,
    },
    SizeEnd {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    /// At the beginning of a trailer line.
    Line,
    Trailer,
    TrailerLf,
    LastLf,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { state: State::Size { size: 0, digits: 0 }, extension_bytes: 0, trailer_bytes: 0 }
    }
}

impl Chunks {
    /// Reads on from where the last call ended: how many bytes belong to the body, and whether it ends with them.
    ///
    /// # Errors
    /// The bytes that were sound, and what is wrong with the next.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(usize, bool), (usize, Refused)> {
        let mut at = 0;
        while at < bytes.len() {
            if let State::Data { left } = self.state {
                let take = left.min((bytes.len() - at) as u64);
                at += usize::try_from(take).expect("no more than there are bytes");
                self.state = if take == left { State::DataCr } else { State::Data { left: left - take } };
                continue;
            }
            let ended = self.step(bytes[at]).map_err(|what| (at, Refused::Malformed(what)))?;
            at += 1;
            if ended {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    fn step(&mut self, byte: u8) -> Result<bool, &'static str> {
        self.state = match (self.state, byte) {
            (State::Size { size, digits }, _) if byte.is_ascii_hexdigit() => {
                if digits == SIZE_DIGITS_MAX {
                    return Err("a chunk size is too large");
                }
                let digit = char::from(byte).to_digit(16).expect("a hexadecimal digit");
                State::Size { size: size * 16 + u64::from(digit), digits: digits + 1 }
            }
            (State::Size { size, digits: 1.. }, b'\r') => State::SizeEnd { size },
            (State::Size { size, digits: 1.. }, b';') => State::Extension { size },
            (State::Size { .. }, _) => return Err("a chunk size is not a hexadecimal number"),
            (State::Extension { size }, b'\r') => State::SizeEnd { size },
            (State::Extension { .. }, 0..=8 | 10..=31 | 127) => return Err("a chunk extension has control characters"),
            (State::Extension { size }, _) => {
                self.extension_bytes += 1;
                if self.extension_bytes > EXTENSION_BYTES_MAX {
                    return Err("the chunk extensions are too long");
                }
                State::Extension { size }
            }
            (State::SizeEnd { size: 0 }, b'\n') => State::Line,
            (State::SizeEnd { size }, b'\n') => State::Data { left: size },
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size { size: 0, digits: 0 },
            (State::Line, b'\r') => State::LastLf,
            (State::LastLf, b'\n') => return Ok(true),
            (State::Line, b' ' | b'\t') => return Err("a trailer is folded over two lines"),
            (State::Trailer, b'\r') => State::TrailerLf,
            (State::TrailerLf, b'\n') => State::Line,
            (State::Line | State::Trailer, b'\n') => return Err("a trailer does not end with CR LF"),
            (State::Line | State::Trailer, _) => {
                self.trailer_bytes += 1;
                if self.trailer_bytes > TRAILER_BYTES_MAX {
                    return Err("the trailers are too long");
                }
                State::Trailer
            }
            (State::DataCr | State::DataLf, _) => return Err("a chunk is longer than its size"),
            (State::SizeEnd { .. } | State::TrailerLf | State::LastLf, _) => {
                return Err("a line does not end with CR LF");
            }
            (State::Data { .. }, _) => unreachable!("data is skipped, not stepped through"),
        };
        Ok(false)
    }
}
