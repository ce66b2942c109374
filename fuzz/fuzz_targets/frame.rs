//! Any bytes are a frame or a typed error; what is read can be written and reads the same again.
#![no_main]

use frame::{Checksum, Frame, HEADER_BYTES, Kind, Limits, crc32, encode_event, read_event, read_failure};
use lighter_fuzz::fuzz_target;

fuzz_target!(|data: &[u8]| {
    check(data);
    if let Some(sound) = with_sound_checksums(data) {
        check(&sound);
    }
});

fn check(bytes: &[u8]) {
    let limits = Limits::default();
    let Ok(frame) = Frame::decode(bytes, &limits) else { return };
    // A reader takes a buffer that is named twice; a writer stores it twice.
    let limits = Limits { total_bytes_max: u64::MAX, buffers_max: u32::MAX, ..limits };
    let written = frame.encode(Checksum::All, &limits).expect("what was read can be written").to_vec();
    let again = Frame::decode(&written, &limits).expect("what was written can be read");
    // Compared as bytes: a NaN does not equal itself.
    assert_eq!(again.encode(Checksum::All, &limits).unwrap().to_vec(), written);
    match frame.kind {
        Kind::Failure => drop(read_failure(&frame.body)),
        _ => {
            let Ok(event) = read_event(&frame.body) else { return };
            let written =
                encode_event(&event, Checksum::Front, &limits).expect("an event that was read can be written");
            assert_eq!(frame::decode_event(&written.to_vec(), &limits), Ok(event));
        }
    }
}

/// The same bytes as a writer would send them who knows how to sum: chance alone never gets past the checksums.
fn with_sound_checksums(data: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = data.to_vec();
    let header = bytes.get_mut(..HEADER_BYTES)?;
    header[..5].copy_from_slice(b"\x8cLFR\x01");
    header[5] = header[5] % 4 + 1;
    header[6..8].fill(0);
    header[36..60].fill(0);
    header[8..16].copy_from_slice(&(data.len() as u64).to_le_bytes());
    let field = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap()) as usize;
    // Lengths that fit are kept; others become the only ones that do without buffers.
    let buffers = field(28).min((data.len() - HEADER_BYTES) / 16);
    let left = data.len() - HEADER_BYTES - 16 * buffers;
    let meta = if buffers == 0 { left } else { field(24).min(left) };
    header[24..28].copy_from_slice(&(meta as u32).to_le_bytes());
    header[28..32].copy_from_slice(&(buffers as u32).to_le_bytes());
    let front = crc32(&bytes[HEADER_BYTES..HEADER_BYTES + 16 * buffers + meta]);
    bytes[32..36].copy_from_slice(&front.to_le_bytes());
    let checksum = crc32(&bytes[..60]);
    bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    Some(bytes)
}
