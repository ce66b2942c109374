//! Request ids: the client's, if it is plain, else one that no other request has.
//!
//! `4f0c1a77e2b95d38-1c-5` is the fifth request of connection 0x1c of the gate that drew `4f0c1a77e2b95d38`.

use http::{HeaderMap, HeaderName};
use std::sync::Arc;

/// Carries the id, in requests and in every reply.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Bytes of a client's id.
const ID_BYTES_MAX: usize = 64;

/// Drawn once for each gate, so that ids of two nodes, or of one before and after a restart, differ.
#[derive(Debug)]
pub struct Seed([u8; 16]);

impl Seed {
    pub fn new(random: u64) -> Self {
        let mut digits = [0; 16];
        write_hex(&mut digits, random, 16);
        Self(digits)
    }
}

/// The id of a request.
pub fn choose(headers: &HeaderMap, seed: &Seed, connection: u64, request: u64) -> Arc<str> {
    if let Some(id) = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok())
        && is_plain(id)
    {
        return id.into();
    }
    let mut id = [b'-'; 16 + 1 + 16 + 1 + 16];
    id[..16].copy_from_slice(&seed.0);
    let mut end = 17 + write_hex(&mut id[17..], connection, 1);
    end += 1 + write_hex(&mut id[end + 1..], request, 1);
    std::str::from_utf8(&id[..end]).expect("digits and dashes").into()
}

fn is_plain(id: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Writes `value` with at least `digits` digits; returns how many.
fn write_hex(to: &mut [u8], value: u64, digits: usize) -> usize {
    let needed = (64 - value.leading_zeros() as usize).div_ceil(4).max(digits);
    for (at, digit) in to[..needed].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(value >> (4 * (needed - 1 - at)) & 15) as usize];
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(sent: Option<&str>) -> String {
        let mut headers = HeaderMap::new();
        if let Some(sent) = sent {
            headers.insert(REQUEST_ID, sent.parse().unwrap());
        }
        choose(&headers, &Seed::new(0xabc), 0x1c, 5).to_string()
    }

    #[test]
    fn a_plain_id_is_kept_and_any_other_replaced() {
        let own = "0000000000000abc-1c-5";
        assert_eq!(chosen(None), own);
        assert_eq!(chosen(Some("Trace_7-b")), "Trace_7-b");
        assert_eq!(chosen(Some(&"x".repeat(64))), "x".repeat(64));
        for bad in ["", "a b", "a\"b", "a;b", "é", &"x".repeat(65)] {
            assert_eq!(chosen(Some(bad)), own, "{bad:?}");
        }
    }

    #[test]
    fn an_id_has_at_most_64_bytes() {
        let id = choose(&HeaderMap::new(), &Seed::new(u64::MAX), u64::MAX, u64::MAX);
        assert_eq!(&*id, "ffffffffffffffff-ffffffffffffffff-ffffffffffffffff");
    }
}
