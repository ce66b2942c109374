//! Ids of calls and spans: never the same twice while the node runs, hard to guess the sequence of, and a few
//! nanoseconds each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a request id we take over from a caller.
const REQUEST_ID_BYTES_MAX: usize = 64;

pub struct Ids {
    next: AtomicU64,
}

impl Ids {
    /// `seed` is random, so that ids differ from those of an earlier run.
    pub fn new(seed: u64) -> Self {
        Self { next: AtomicU64::new(seed) }
    }

    /// SplitMix64: the counter goes through a one-to-one mix, so ids repeat only after 2^64 of them. Never 0, which
    /// traces take for "none".
    pub fn next(&self) -> u64 {
        let mut mixed = self.next.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).max(1)
    }

    /// The caller's id if it can stand in logs and headers, else a new one of 16 hexadecimal digits.
    pub fn request_id(&self, callers: Option<&[u8]>) -> Arc<str> {
        let usable = |id: &&[u8]| {
            (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(|b| b.is_ascii_graphic() && !b"\"\\,;".contains(b))
        };
        if let Some(id) = callers.filter(usable).and_then(|id| std::str::from_utf8(id).ok()) {
            return Arc::from(id);
        }
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let id = self.next();
        let mut text = [0; 16];
        for (place, digit) in text.iter_mut().enumerate() {
            *digit = DIGITS[(id >> (60 - 4 * place)) as usize & 15];
        }
        Arc::from(std::str::from_utf8(&text).expect("hexadecimal digits are ASCII"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_do_not_repeat() {
        let ids = Ids::new(1);
        let many: std::collections::HashSet<u64> = (0..10_000).map(|_| ids.next()).collect();
        assert_eq!(many.len(), 10_000);
    }

    #[test]
    fn a_callers_id_is_kept_if_it_is_plain() {
        let ids = Ids::new(1);
        assert_eq!(&*ids.request_id(Some(b"order-7/a")), "order-7/a");
        for bad in [&b""[..], b"a b", b"a\nb", b"a\"b", "é".as_bytes(), &[b'x'; 65]] {
            let id = ids.request_id(Some(bad));
            assert!(id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id:?} for {bad:?}");
        }
    }
}
