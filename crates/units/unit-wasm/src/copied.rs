//! Small memories begin as copies of their first contents, and not as maps of the artefact.
//!
//! The engine maps what a memory begins with from the artefact, and a page is copied when it is written. That is best
//! for megabytes that are mostly read, as interpreters have them. But a slot of the pool that had another function
//! before is mapped anew, twice, and faults at every page; where a thousand functions are called in turn, each call
//! pays for that. A few kilobytes are copied in less than a microsecond into pages that are there already, whoever had
//! them before.
//!
//! ```text
//!   data segment   at (i32.const 1048576)                         ──▶ mapped
//!                  at (i32.add (i32.const 1048576) (i32.const 0)) ──▶ copied
//! ```
//! The engine decides when it compiles: it maps where each segment's place is a plain constant. So the place of a small
//! module's first segment is written as a sum, which is the same place.

use std::borrow::Cow;

/// A module with more bytes of data stays mapped: copying them would cost each unit more than faults do, and each live
/// unit pages of its own.
const COPIED_BYTES_MAX: usize = 16 << 10;

/// A module with more segments stays mapped: each is copied by a call of its own.
const SEGMENTS_MAX: u32 = 16;

/// Components within components beyond this depth are left as they are.
const DEPTH_MAX: u32 = 8;

const HEADER_BYTES: usize = 8;
const MODULE: [u8; HEADER_BYTES] = *b"\0asm\x01\0\0\0";
const COMPONENT: [u8; HEADER_BYTES] = *b"\0asm\x0d\0\x01\0";

/// Sections of a component.
const CORE_MODULE: u8 = 1;
const INNER_COMPONENT: u8 = 4;
/// A section of a module.
const DATA: u8 = 11;

/// Opcodes.
const I32_CONST: u8 = 0x41;
const I32_ADD: u8 = 0x6a;
const END: u8 = 0x0b;

/// The same image, whose small modules have their data copied. What cannot be read is left to whoever compiles it.
pub fn copied(image: &[u8]) -> Cow<'_, [u8]> {
    of_component(image, DEPTH_MAX).map_or(Cow::Borrowed(image), Cow::Owned)
}

/// None: nothing is to be changed.
fn of_component(component: &[u8], depth: u32) -> Option<Vec<u8>> {
    let depth = depth.checked_sub(1)?;
    of_sections(component, COMPONENT, |id, body| match id {
        CORE_MODULE => of_module(body),
        INNER_COMPONENT => of_component(body, depth),
        _ => None,
    })
}

fn of_module(module: &[u8]) -> Option<Vec<u8>> {
    of_sections(module, MODULE, |id, body| if id == DATA { of_data(body) } else { None })
}

/// Puts `change` in the place of each section for which there is one.
fn of_sections(bytes: &[u8], header: [u8; 8], change: impl Fn(u8, &[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let mut rest = Reader(bytes.strip_prefix(&header)?);
    let (mut made, mut has_changed) = (header.to_vec(), false);
    while let Some(id) = rest.byte() {
        let body = rest.counted()?;
        let changed = change(id, body);
        has_changed |= changed.is_some();
        made.push(id);
        put_counted(&mut made, &changed.map_or(Cow::Borrowed(body), Cow::Owned));
    }
    has_changed.then_some(made)
}

/// The data section with the first place as a sum; none if it is large, or is not what compilers usually make.
fn of_data(section: &[u8]) -> Option<Vec<u8>> {
    let mut rest = Reader(section);
    let segments = rest.number()?;
    if segments == 0 || segments > SEGMENTS_MAX {
        return None;
    }
    let (mut data_bytes, mut place_ends) = (0, None);
    for _ in 0..segments {
        // Of the first memory, at a place that is known.
        if rest.number()? != 0 || rest.byte()? != I32_CONST {
            return None;
        }
        rest.number()?;
        place_ends.get_or_insert(section.len() - rest.0.len());
        if rest.byte()? != END {
            return None;
        }
        data_bytes += rest.counted()?.len();
    }
    if data_bytes > COPIED_BYTES_MAX || !rest.0.is_empty() {
        return None;
    }
    let (before, after) = section.split_at(place_ends?);
    Some([before, &[I32_CONST, 0, I32_ADD], after].concat())
}

fn put_counted(to: &mut Vec<u8>, bytes: &[u8]) {
    let mut left = bytes.len();
    while left > 0x7f {
        to.push(left as u8 | 0x80);
        left >>= 7;
    }
    to.push(left as u8);
    to.extend_from_slice(bytes);
}

/// What is left to be read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    /// Seven bits in a byte, the lowest ones first. Of a signed number the value is wrong, and the end is right.
    fn number(&mut self) -> Option<u32> {
        let mut number = 0;
        for shift in (0..u32::BITS).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(number).ok();
            }
        }
        None
    }

    fn counted(&mut self) -> Option<&'a [u8]> {
        let length = self.number()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A section of an id.
    fn section(id: u8, body: &[u8]) -> Vec<u8> {
        let mut made = vec![id];
        put_counted(&mut made, body);
        made
    }

    /// A component around a module around a data section, with another section beside each.
    fn image(data: &[u8]) -> Vec<u8> {
        let module = [&MODULE[..], &section(5, b"memory"), &section(DATA, data), &section(0, b"after")].concat();
        [&COMPONENT[..], &section(0, b"name"), &section(CORE_MODULE, &module), &section(8, b"export")].concat()
    }

    /// One segment at 1048576.
    fn segment(bytes: &[u8]) -> Vec<u8> {
        let mut made = vec![1, 0, I32_CONST, 0x80, 0x80, 0xc0, 0, END];
        put_counted(&mut made, bytes);
        made
    }

    #[test]
    fn the_place_of_a_small_segment_becomes_a_sum() {
        for length in [1, 0x7f, 0x80, 8 << 10, COPIED_BYTES_MAX] {
            let bytes = vec![7; length];
            let mut sum = vec![1, 0, I32_CONST, 0x80, 0x80, 0xc0, 0, I32_CONST, 0, I32_ADD, END];
            put_counted(&mut sum, &bytes);
            assert_eq!(copied(&image(&segment(&bytes))), image(&sum), "{length}");
        }
    }

    #[test]
    fn a_component_within_one_is_looked_into() {
        let within = |image: &[u8]| [&COMPONENT[..], &section(INNER_COMPONENT, image)].concat();
        let small = image(&segment(b"small"));
        let expected = within(&copied(&small));
        assert!(matches!(copied(&within(&small)), Cow::Owned(made) if made == expected));
        let deep = (0..DEPTH_MAX).fold(small, |inner, _| within(&inner));
        assert!(matches!(copied(&deep), Cow::Borrowed(_)));
    }

    #[test]
    fn what_is_large_or_unusual_stays_as_it_is() {
        let many: Vec<u8> = [SEGMENTS_MAX as u8 + 1].into_iter().chain([0, I32_CONST, 0, END, 0].repeat(17)).collect();
        for data in [
            segment(&vec![7; COPIED_BYTES_MAX + 1]),
            vec![0],
            // Passive, of the second memory, at the place of a global.
            vec![1, 1, 1, 7],
            vec![1, 2, 1, I32_CONST, 0, END, 1, 7],
            vec![1, 0, 0x23, 0, END, 1, 7],
            vec![1, 0, I32_CONST, 0, END, 2, 7],
            many,
        ] {
            assert!(matches!(copied(&image(&data)), Cow::Borrowed(_)), "{data:x?}");
        }
        for image in [&b""[..], b"#!/bin/sh", &MODULE, &COMPONENT, b"\0asm\x0d\0\x01\0\x01\xff\xff\xff\xff\xff"] {
            assert!(matches!(copied(image), Cow::Borrowed(_)), "{image:x?}");
        }
    }
}
