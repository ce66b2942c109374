//! Images of boards: what of an ELF file a firmware loads.

use board_link::{Image, ImageFault, SETTINGS_BYTES, Settings};

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;

/// A file whose segments have these addresses and bytes, with a block for settings at its end.
fn image(segments: &[(u64, &[u8])]) -> Image {
    let mut elf = vec![0; HEADER_BYTES + segments.len() * PROGRAM_HEADER_BYTES];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    elf[32..40].copy_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
    elf[56..58].copy_from_slice(&u16::try_from(segments.len()).unwrap().to_le_bytes());
    for (index, (address, bytes)) in segments.iter().enumerate() {
        let (offset, length) = (elf.len() as u64, bytes.len() as u64);
        let entry = &mut elf[HEADER_BYTES + index * PROGRAM_HEADER_BYTES..][..PROGRAM_HEADER_BYTES];
        entry[..4].copy_from_slice(&1_u32.to_le_bytes());
        for (at, value) in [(8, offset), (24, *address), (32, length)] {
            entry[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        elf.extend_from_slice(bytes);
    }
    elf.resize(elf.len().next_multiple_of(SETTINGS_BYTES), 0);
    elf.extend_from_slice(&Settings::default().write().unwrap());
    Image::read(elf).unwrap()
}

#[test]
fn a_flat_image_begins_at_the_lowest_address_and_has_noughts_between_segments() {
    let flat = image(&[(0x8_0004, b"four"), (0x8_0000, b"zero"), (0x8_000a, b"ten")]).flat().unwrap();
    assert_eq!(flat, b"zerofour\0\0ten");
}

#[test]
fn segments_beyond_what_a_firmware_loads_are_refused() {
    assert!(image(&[(0, b"a"), (64 << 20, b"b")]).flat().is_ok());
    assert_eq!(image(&[(0, b"a"), ((64 << 20) + 1, b"b")]).flat(), Err(ImageFault::Scattered));
    assert_eq!(image(&[(0, b"a"), (u64::MAX, b"b")]).flat(), Err(ImageFault::Scattered));
}

/// The memory grew from one segment to the next, and the old was held while the new was filled: a file of 243 bytes took
/// more than a flat image may have, and could have taken three times that. A fuzzer found it.
#[test]
fn a_flat_image_is_made_in_one_piece() {
    let flat = image(&[(0, b"a"), (5_000, b"b"), (6_000, b"c")]).flat().unwrap();
    assert_eq!((flat.len(), flat.capacity()), (6_001, 6_001));
}
