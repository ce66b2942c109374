//! Replies that wait for their client, counted in the node's memory until the last byte is sent.
//!
//! A client may ask for many replies at once and read none of them. Their units are gone by then, and nothing else
//! bounds how many there are.

use budget::{Budget, Full, Purpose, Share};
use bytes::Bytes;
use std::sync::Arc;

/// Bytes of a reply that is not counted: its connection counts as much for each of its requests.
const SMALL_BYTES: u64 = 4 << 10;

/// The same bytes with a share of the memory, which every part of them holds: an engine of HTTP lets go of a body when
/// its last piece is queued, and not when that is sent.
///
/// # Errors
/// There is no room for them.
pub fn kept(budget: &Arc<Budget>, bytes: Bytes) -> Result<Bytes, Full> {
    let count = bytes.len() as u64;
    if count <= SMALL_BYTES {
        return Ok(bytes);
    }
    let share = budget.take(Purpose::Bodies, count)?;
    Ok(Bytes::from_owner(Kept { bytes, _share: share }))
}

struct Kept {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_counted_until_the_last_part_of_it_is_gone() {
        let budget = Budget::new(1 << 20);
        let small = kept(&budget, Bytes::from(vec![1; 4 << 10])).unwrap();
        assert_eq!((small.len(), budget.total_bytes()), (4 << 10, 0));
        let mut whole = kept(&budget, Bytes::from(vec![2; 300 << 10])).unwrap();
        let last = whole.split_off(200 << 10);
        assert_eq!(budget.used_bytes(Purpose::Bodies), 300 << 10);
        let full = kept(&budget, Bytes::from(vec![3; 300 << 10])).unwrap_err();
        assert_eq!((full.purpose, full.used_bytes), (Purpose::Bodies, 300 << 10));
        drop(whole);
        assert_eq!((budget.total_bytes(), &last[..2]), (300 << 10, &[2, 2][..]));
        drop(last);
        assert_eq!(budget.total_bytes(), 0);
    }
}
