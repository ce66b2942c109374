//! Which pages of a memory were written since they were mapped: the system knows, because each has become a copy of its
//! own.
#![expect(unsafe_code, reason = "asks the system about pages of this process")]

use crate::memory::{Memory, system_page};
use kernel_abi::layout::PAGE;
use std::fs::File;
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

/// `PAGEMAP_SCAN`, since Linux 6.7.
pub const SCAN: u64 = 0xC060_6610;

/// What the system says of a page.
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO: u64 = 1 << 5;

/// Runs of pages one question returns.
const RUNS: usize = 64;

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
struct Question {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_max: u64,
    pages_max: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    returned: u64,
}

/// What is known of this process's pages; none where the system does not say. Opened before a filter forbids that.
pub fn open() -> Option<&'static File> {
    static PAGES: OnceLock<Option<File>> = OnceLock::new();
    PAGES.get_or_init(|| File::open("/proc/self/pagemap").ok()).as_ref()
}

/// Calls `each` with the number of every page of a memory that the system has put aside; pages are a guest's, and the
/// first one is 0. Where the system does not say, it calls nobody.
pub fn swapped(memory: &Memory, mut each: impl FnMut(usize)) -> io::Result<()> {
    /// In an entry of `/proc/self/pagemap`.
    const SWAPPED: u64 = 1 << 62;
    /// Pages that are asked about at once.
    const ASKED: usize = 4 << 10;
    let Some(file) = open() else { return Ok(()) };
    let (page, mut entries) = (system_page(), [0; 8 * ASKED]);
    let each_has = usize::try_from(page / PAGE).map_err(io::Error::other)?;
    let first = memory.host_address() / page;
    let pages = usize::try_from(memory.bytes() / page).map_err(io::Error::other)?;
    for begun in (0..pages).step_by(ASKED) {
        let entries = &mut entries[..8 * (pages - begun).min(ASKED)];
        file.read_exact_at(entries, 8 * (first + begun as u64))?;
        for (index, entry) in entries.chunks_exact(8).enumerate() {
            let entry = u64::from_ne_bytes(entry.try_into().expect("8 bytes"));
            if entry & SWAPPED != 0 {
                (0..each_has).for_each(|one| each((begun + index) * each_has + one));
            }
        }
    }
    Ok(())
}

/// Calls `each` with every run of pages of a private map that are its own by now, which all are that were written,
/// whoever wrote them; in their order, until it breaks.
///
/// # Errors
/// The system does not say, or `each` fails: nothing is known of the rest.
pub fn runs<B>(
    memory: &Memory,
    mut each: impl FnMut(Range<u64>) -> io::Result<ControlFlow<B>>,
) -> io::Result<ControlFlow<B>> {
    let file = open().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
    let base = memory.host_address();
    let (mut start, end) = (base, base + memory.bytes());
    while start < end {
        let mut regions = [Region::default(); RUNS];
        let mut question = Question {
            size: size_of::<Question>() as u64,
            flags: 0,
            start,
            end,
            walk_end: 0,
            regions: regions.as_mut_ptr().expose_provenance() as u64,
            regions_max: RUNS as u64,
            pages_max: 0,
            // Neither the file's own pages nor the one page of zeros; there, or put aside.
            inverted: IS_FILE | IS_ZERO,
            all_of: IS_FILE | IS_ZERO,
            any_of: IS_PRESENT | IS_SWAPPED,
            returned: 0,
        };
        // SAFETY: the question and the regions it names are valid for writes, and as large as it says.
        let found = unsafe { libc::ioctl(file.as_raw_fd(), SCAN, &raw mut question) };
        let found = usize::try_from(found).map_err(|_| io::Error::last_os_error())?;
        for region in regions.iter().take(found) {
            if let ControlFlow::Break(with) = each(region.start - base..region.end - base)? {
                return Ok(ControlFlow::Break(with));
            }
        }
        if question.walk_end <= start {
            return Err(io::Error::other("the system looked at no page"));
        }
        start = question.walk_end;
    }
    Ok(ControlFlow::Continue(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_abi::layout::PAGE;

    #[test]
    fn what_is_written_is_found_and_what_is_read_is_not() {
        const PAGES: u64 = 1_000;
        let memory = Memory::reserve(PAGES * PAGE).unwrap();
        memory.read(500 * PAGE, &mut [0; 8]).unwrap();
        // More runs than one question returns.
        let written: Vec<u64> = (0..PAGES).filter(|page| page % 5 == 1).collect();
        written.iter().for_each(|page| memory.write(page * PAGE + 7, &[1]).unwrap());
        let mut found = Vec::new();
        let asked = runs::<()>(&memory, |run| {
            found.extend(run.step_by(PAGE as usize).map(|at| at / PAGE));
            Ok(ControlFlow::Continue(()))
        });
        match asked {
            Ok(_) => assert_eq!(found, written),
            Err(error) => println!("skipped: pagemap-scan: pages that a microvm unit wrote: {error}"),
        }
    }
}
