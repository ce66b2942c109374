//! The kernel's image: an ELF file of a few loadable segments, each of one kind of page.

use crate::memory::Memory;
use crate::processor::ELF_MACHINE;
use crate::tables::Access;
use kernel_abi::layout::{KERNEL, KERNEL_END, PAGE};
use std::ops::Range;

/// Segments of one image.
const SEGMENTS_MAX: usize = 16;

/// What is wrong with an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// A part of the image, and what may be done with its pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment<'i> {
    pub pages: Range<u64>,
    pub at: u64,
    pub bytes: &'i [u8],
    pub access: Access,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel<'i> {
    pub entry: u64,
    pub segments: Vec<Segment<'i>>,
}

impl<'i> Kernel<'i> {
    /// Reads the image; nothing of it is believed.
    ///
    /// # Errors
    /// It is no ELF image of a kernel: what is wrong.
    pub fn read(image: &'i [u8]) -> Result<Self, Malformed> {
        if image.get(..6) != Some(b"\x7fELF\x02\x01") {
            return Err(Malformed("no 64-bit little-endian ELF file"));
        }
        if number::<2>(image, 18)? != u64::from(ELF_MACHINE) || number::<2>(image, 16)? != 2 {
            return Err(Malformed("no program for this processor"));
        }
        let entry = number::<8>(image, 24)?;
        let table = number::<8>(image, 32)?;
        let (size, count) = (number::<2>(image, 54)?, number::<2>(image, 56)?);
        if size < 56 {
            return Err(Malformed("program headers too small"));
        }
        let mut segments: Vec<Segment<'i>> = Vec::new();
        for index in 0..count {
            let header = index.checked_mul(size).and_then(|offset| table.checked_add(offset));
            let header = header.ok_or(Malformed("program headers beyond the file"))?;
            if number::<4>(image, header)? != 1 {
                continue;
            }
            let segment = segment(image, header)?;
            let overlaps =
                |other: &Segment<'_>| other.pages.start < segment.pages.end && segment.pages.start < other.pages.end;
            if segments.len() == SEGMENTS_MAX || segments.iter().any(overlaps) {
                return Err(Malformed("segments too many, or on the same pages"));
            }
            segments.push(segment);
        }
        let is_code = |segment: &Segment<'_>| segment.access == Access::Execute && segment.pages.contains(&entry);
        if !segments.iter().any(is_code) {
            return Err(Malformed("the entry is not in its code"));
        }
        Ok(Self { entry, segments })
    }

    /// Copies it to where it belongs.
    pub fn place(&self, memory: &Memory) -> Result<(), crate::memory::Outside> {
        self.segments.iter().try_for_each(|segment| memory.write(segment.at, segment.bytes))
    }
}

fn segment(image: &[u8], header: u64) -> Result<Segment<'_>, Malformed> {
    let field = |offset| number::<8>(image, header + offset);
    let flags = number::<4>(image, header + 4)?;
    let (offset, at, file_bytes, bytes) = (field(8)?, field(16)?, field(32)?, field(40)?);
    let access = match flags & 7 {
        5 => Access::Execute,
        4 => Access::Read,
        6 => Access::Write,
        _ => return Err(Malformed("a segment is both writable and executable, or cannot be read")),
    };
    let end = at.checked_add(bytes).ok_or(Malformed("a segment beyond all addresses"))?;
    if at < KERNEL || end > KERNEL_END || file_bytes > bytes {
        return Err(Malformed("a segment outside of the kernel's place"));
    }
    let start = usize::try_from(offset).map_err(|_| Malformed("a segment beyond the file"))?;
    let file_end = offset.checked_add(file_bytes).and_then(|end| usize::try_from(end).ok());
    let contents = file_end.and_then(|end| image.get(start..end)).ok_or(Malformed("a segment beyond the file"))?;
    let pages = at - at % PAGE..end.next_multiple_of(PAGE);
    Ok(Segment { pages, at, bytes: contents, access })
}

/// A little-endian number of `N` bytes.
fn number<const N: usize>(image: &[u8], at: u64) -> Result<u64, Malformed> {
    const CUT: Malformed = Malformed("the file ends too soon");
    let at = usize::try_from(at).map_err(|_| CUT)?;
    let bytes = image.get(at..at.checked_add(N).ok_or(CUT)?).ok_or(CUT)?;
    Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_read_and_no_cut_of_it_is() {
        let image = crate::processor::KERNEL;
        let kernel = Kernel::read(image).unwrap();
        assert_eq!(kernel.segments.len(), 3);
        // Names of sections come after what is loaded; nobody here reads them.
        let end_of = |segment: &Segment<'_>| segment.bytes.as_ptr_range().end.addr() - image.as_ptr().addr();
        let loaded = kernel.segments.iter().map(end_of).max().unwrap();
        for end in (0..loaded).step_by(997).chain(0..200).chain(loaded - 200..loaded) {
            assert!(Kernel::read(&image[..end]).is_err(), "{end} of {loaded}");
        }
    }

    #[test]
    fn headers_that_lie_are_refused() {
        for at in 16..64 + 3 * 56 {
            for value in [0, 0x7f, 0xff] {
                let mut image = crate::processor::KERNEL.to_vec();
                image[at] = value;
                // Whatever it says: no panic, and nothing outside of the kernel's place.
                if let Ok(kernel) = Kernel::read(&image) {
                    let inside =
                        |segment: &Segment<'_>| segment.pages.start >= KERNEL && segment.pages.end <= KERNEL_END;
                    assert!(kernel.segments.iter().all(inside));
                }
            }
        }
    }
}
