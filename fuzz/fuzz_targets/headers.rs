//! The framing of HTTP/1 says the same however the bytes arrive, and what it passes the HTTP library reads in the same
//! way.
#![no_main]

use gate_http::http1::{Framing, Refused};
use lighter_fuzz::fuzz_target;

const HEAD_BYTES_MAX: usize = 1_024;

fuzz_target!(|data: &[u8]| {
    let whole = feed(data, data.len().max(1));
    for size in [1, 2, 3, 7, 64] {
        assert_eq!(feed(data, size), whole, "in pieces of {size}");
    }
    if let Some(end) = first_head_end(data) {
        let mut fields = [httparse::EMPTY_HEADER; 1_024];
        let mut request = httparse::Request::new(&mut fields);
        assert_eq!(request.parse(&data[..end]), Ok(httparse::Status::Complete(end)));
    }
});

/// How much passed, why no more, and how many heads there were.
fn feed(bytes: &[u8], size: usize) -> (usize, Option<Refused>, u64) {
    let mut framing = Framing::new(HEAD_BYTES_MAX);
    let (mut passed, mut arrived) = (0, 0);
    while arrived < bytes.len() {
        arrived = (arrived + size).min(bytes.len());
        let vetted = framing.vet(&bytes[passed..arrived]);
        passed += vetted.pass;
        if vetted.refused.is_some() {
            return (passed, vetted.refused, framing.heads());
        }
    }
    (passed, None, framing.heads())
}

fn first_head_end(bytes: &[u8]) -> Option<usize> {
    let mut framing = Framing::new(HEAD_BYTES_MAX);
    // Nothing passes before the first head is whole, so that each call begins where it begins.
    let end = (1..=bytes.len()).find(|end| framing.vet(&bytes[..*end]).refused.is_some() || framing.heads() > 0)?;
    (framing.heads() > 0).then_some(end)
}
