//! How a value is stored: what kind it is, when it expires, then its bytes.
//!
//! ```text
//! lives for ever   01 · value
//! expires          02 · own time in ms, 8 bytes, high first · value
//! ```
//! Another first byte is damage, or a later version's: it is never served.

use crate::error::StoreError;
use problem::{Code, Problem};

const LASTS: u8 = 1;
const EXPIRES: u8 = 2;
/// Most bytes a stored value has beside the value itself.
pub const OVERHEAD_BYTES_MAX: usize = 9;

/// What is known of a stored value without looking at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The state's own time at which it is gone; none when it lasts.
    pub expires_ms: Option<u64>,
    pub value_bytes: usize,
}

/// What is stored for `value`.
pub fn seal(value: &[u8], expires_ms: Option<u64>) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(OVERHEAD_BYTES_MAX + value.len());
    match expires_ms {
        None => sealed.push(LASTS),
        Some(at) => {
            sealed.push(EXPIRES);
            sealed.extend_from_slice(&at.to_be_bytes());
        }
    }
    sealed.extend_from_slice(value);
    sealed
}

/// Takes apart what is stored.
pub fn open(sealed: &[u8]) -> Result<(Header, &[u8]), StoreError> {
    let parts = match sealed {
        [LASTS, value @ ..] => Some((None, value)),
        [EXPIRES, rest @ ..] => rest.split_first_chunk().map(|(at, value)| (Some(u64::from_be_bytes(*at)), value)),
        _ => None,
    };
    let (expires_ms, value) = parts.ok_or_else(|| {
        let first = sealed.first().copied();
        let detail =
            format!("a stored value of {} bytes begins with {first:02x?}: no kind that is known", sealed.len());
        StoreError::Unavailable(Problem::new(Code::StateCorrupt, detail))
    })?;
    Ok((Header { expires_ms, value_bytes: value.len() }, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_again() {
        for expires_ms in [None, Some(0), Some(u64::MAX)] {
            for value in [&b""[..], b"v", &[2; 20]] {
                let header = Header { expires_ms, value_bytes: value.len() };
                assert_eq!(open(&seal(value, expires_ms)), Ok((header, value)));
            }
        }
    }

    #[test]
    fn anything_else_is_named() {
        for damaged in [&b""[..], b"\0v", b"\x03v", b"\x021234567"] {
            let Err(StoreError::Unavailable(problem)) = open(damaged) else { panic!("{damaged:?}") };
            assert_eq!(problem.code, Code::StateCorrupt);
        }
    }
}
