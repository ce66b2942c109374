//! Keeps the program's own pages in memory once they were used.
//!
//! A program is a file, and pages of files are what the kernel takes first where memory is short. A node whose units
//! fill their control group then reads its own code from the disk again, in the middle of somebody's call. So its pages
//! are locked, each when it is first used: what is never used is never there.
//!
//! ```text
//!   /proc/self/maps ──▶ the program's file, not writable ──▶ mlock2(…, ONFAULT) for each part of it
//! ```
//!
//! What only a start needs is not to stay. With each page that is used the kernel maps its neighbours, 64 KiB of them,
//! so a start leaves most of the program there. When it is over all of it is given back at once, and what is used from
//! then on comes again, from the system's memory and not from the disk.
//!
//! ```text
//!   /proc/self/pagemap ──▶ are all of a part's pages the file's? ──▶ madvise(…, MADV_DONTNEED_LOCKED)
//! ```

use rustix::mm::{Advice, MlockFlags, madvise, mlock_with};
use rustix::param::page_size;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of `/proc/self/maps` that are read. It has a line for each mapping: a few dozen when a program begins,
/// and two for each slot of a unit when it has started.
const MAPS_BYTES_MAX: usize = 1 << 20;

/// A part of a file in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    begin: usize,
    end: usize,
}

/// Locks the program's code and constants; says how many bytes of addresses that are. Call it once, at the start.
/// Children do not inherit it.
///
/// # Errors
/// The system does not say where the program lies, or allows fewer locked bytes than it has (`ulimit -l`,
/// `LimitMEMLOCK=`). Parts that were locked before stay so.
pub fn keep() -> io::Result<usize> {
    let mut bytes = 0;
    let program = fs::read_link("/proc/self/exe")?;
    for part in mapped(|file| file == program)? {
        lock(part)?;
        bytes += part.end - part.begin;
    }
    Ok(bytes)
}

/// Gives back the code and constants of the program and its libraries; says how many bytes of them were in memory. What
/// is used again comes again, from the system's memory as long as that has it. To be called when what only a start
/// needs is done.
///
/// A page that is no longer the file's, as where a debugger has put a breakpoint, keeps its part of the program in
/// memory.
///
/// # Errors
/// The system does not say where the program lies or which pages are the file's, or knows no way to give locked pages
/// back (before Linux 5.18). All pages are as they were, or come again.
pub fn give_back() -> io::Result<usize> {
    let pagemap = File::open("/proc/self/pagemap")?;
    let mut bytes = 0;
    let program = fs::read_link("/proc/self/exe")?;
    for part in mapped(|file| file == program || is_library(file))? {
        // SAFETY: these are private maps of files that nobody may write to, and that stay where they are until the
        // process ends: no other memory comes to their place meanwhile.
        #[expect(unsafe_code, reason = "the call takes addresses")]
        let given_back = unsafe { give_back_part(&pagemap, part, Advice::LinuxDontneedLocked) }?;
        bytes += given_back;
    }
    Ok(bytes)
}

/// Gives back what is in memory of a map of a file, as [`give_back`] does for the program; says how many bytes that
/// were. Nothing is given back if one page of it is not as the file has it.
///
/// # Errors
/// The system does not say which pages are the file's, or the map is locked.
///
/// # Safety
/// The addresses are those of private maps of files, whole pages of them, and nobody writes to them meanwhile.
#[expect(unsafe_code, reason = "whoever calls it knows what lies at the addresses")]
pub unsafe fn give_back_map(addresses: Range<usize>) -> io::Result<usize> {
    let part = Part { begin: addresses.start, end: addresses.end.next_multiple_of(page_size()) };
    // SAFETY: as of this function.
    unsafe { give_back_part(&File::open("/proc/self/pagemap")?, part, Advice::LinuxDontNeed) }
}

/// # Safety
/// As of [`give_back_map`].
#[expect(unsafe_code, reason = "the call takes an address")]
unsafe fn give_back_part(pagemap: &File, part: Part, advice: Advice) -> io::Result<usize> {
    let present = present_bytes(pagemap, part)?.unwrap_or(0);
    if present > 0 {
        let address = std::ptr::without_provenance_mut(part.begin);
        // SAFETY: every page of it that is in memory is as the file has it. So whoever reads it again reads the same.
        unsafe { madvise(address, part.end - part.begin, advice) }?;
    }
    Ok(present)
}

/// How much of a part is in memory; none if a page of it is not the file's.
fn present_bytes(pagemap: &File, part: Part) -> io::Result<Option<usize>> {
    let mut entries = vec![0; (part.end - part.begin) / page_size() * ENTRY_BYTES];
    pagemap.read_exact_at(&mut entries, (part.begin / page_size() * ENTRY_BYTES) as u64)?;
    let (entries, []) = entries.as_chunks::<ENTRY_BYTES>() else { unreachable!("a whole number of entries") };
    Ok(pages_of_file(entries.iter().map(|entry| u64::from_ne_bytes(*entry))).map(|pages| pages * page_size()))
}

/// Bytes of an entry of `/proc/self/pagemap`, of which there is one for each page.
const ENTRY_BYTES: usize = 8;

/// Counts the pages that are in memory; none if one of them is not a file's, or was put aside.
fn pages_of_file(entries: impl Iterator<Item = u64>) -> Option<usize> {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;
    let mut pages = 0;
    for entry in entries {
        if entry & SWAPPED != 0 || entry & (PRESENT | OF_FILE) == PRESENT {
            return None;
        }
        pages += usize::from(entry & PRESENT != 0);
    }
    Some(pages)
}

/// Whether it is a shared library, as `libc.so.6` is. Nothing here unloads one.
fn is_library(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".so") || name.contains(".so.")
}

/// What is mapped of such files, and not to be written.
fn mapped(is_wanted: impl Fn(&Path) -> bool) -> io::Result<Vec<Part>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    if maps.len() > MAPS_BYTES_MAX {
        return Err(io::Error::other(format!("/proc/self/maps has {} bytes", maps.len())));
    }
    Ok(parts(&maps, is_wanted))
}

/// The parts of files that nobody writes to. Those that are written are the process's own, and not the file's.
fn parts(maps: &str, is_wanted: impl Fn(&Path) -> bool) -> Vec<Part> {
    let part = |line: &str| {
        // 55d0c8a00000-55d0c8b00000 r-xp 00100000 fe:01 1234    /usr/bin/program
        let (addresses, rest) = line.split_once(' ')?;
        let (permissions, rest) = rest.split_once(' ')?;
        let file = rest.find('/').map(|at| Path::new(&rest[at..]))?;
        let (begin, end) = addresses.split_once('-')?;
        let address = |digits| usize::from_str_radix(digits, 16).ok();
        let part = Part { begin: address(begin)?, end: address(end)? };
        (matches!(permissions, "r--p" | "r-xp") && is_wanted(file)).then_some(part)
    };
    maps.lines().filter_map(part).collect()
}

fn lock(part: Part) -> io::Result<()> {
    let address = std::ptr::without_provenance_mut(part.begin);
    // SAFETY: locking changes no byte and no permission of any page; an address that is not mapped is an error.
    #[expect(unsafe_code, reason = "the call takes an address")]
    let locked = unsafe { mlock_with(address, part.end - part.begin, MlockFlags::ONFAULT) };
    Ok(locked?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_the_program_that_nobody_writes_to() {
        let maps = "\
55d0-55d8 r--p 00000000 fe:01 1234                       /opt/my program
55d8-55e0 r-xp 00008000 fe:01 1234                       /opt/my program
55e0-55f0 rw-p 00010000 fe:01 1234                       /opt/my program
7f00-7f10 r-xp 00000000 fe:01 1235                       /lib/libc.so.6
7f10-7f20 rw-p 00000000 00:00 0 
7f20-7f30 r-xp 00000000 00:00 0                          [vdso]
nonsense
";
        let part = |begin, end| Part { begin, end };
        let program = [part(0x55d0, 0x55d8), part(0x55d8, 0x55e0)];
        assert_eq!(parts(maps, |file| file == Path::new("/opt/my program")), program);
        assert_eq!(parts(maps, is_library), [part(0x7f00, 0x7f10)]);
        assert_eq!(parts("", |_| true), []);
        assert!(["/lib/ld-linux.so.2", "/usr/lib/libm.so"].map(Path::new).into_iter().all(is_library));
        assert!(!is_library(Path::new("/data/artefacts/wasm/0a.so-called")));
    }

    #[test]
    fn a_page_that_is_not_the_files_keeps_its_part() {
        let (present, of_file, swapped) = (1 << 63, 1 << 61, 1 << 62);
        let pages = |entries: &[u64]| pages_of_file(entries.iter().copied());
        assert_eq!(pages(&[0, present | of_file, present | of_file | 1 << 55, 0]), Some(2));
        assert_eq!(pages(&[present | of_file, present]), None, "a breakpoint");
        assert_eq!(pages(&[present | of_file, swapped]), None);
        assert_eq!(pages(&[]), Some(0));
    }

    /// Text in the constants of the program, on a page or more of its own.
    static CONSTANTS: [u8; 64 << 10] = [7; 64 << 10];

    #[test]
    fn what_is_given_back_reads_the_same_again() {
        let sum = || std::hint::black_box(&CONSTANTS).iter().map(|byte| u64::from(*byte)).sum::<u64>();
        let before = sum();
        // Where the system is older, nothing was promised.
        let Ok(bytes) = give_back() else { return };
        assert!(bytes > CONSTANTS.len(), "{bytes}");
        assert_eq!(sum(), before);
    }

    #[test]
    fn the_system_counts_this_program_as_locked() {
        let locked = || {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("Linux says it");
            line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
        };
        assert_eq!(locked(), 0);
        match keep() {
            Ok(bytes) => assert!(bytes > 100 << 10 && locked() >= bytes, "{bytes} of {}", locked()),
            // Where the limit is lower, nothing was promised.
            Err(error) => assert!(matches!(error.raw_os_error(), Some(1 | 11 | 12)), "{error}"),
        }
    }
}
