//! Keeps the program's own pages in memory once they were used.
//!
//! A program is a file, and pages of files are what the kernel takes first where memory is short. A node whose units
//! fill their control group then reads its own code from the disk again, in the middle of somebody's call. So its pages
//! are locked, each when it is first used: what is never used is never there.
//!
//! ```text
//!   /proc/self/maps ──▶ the program's file, not writable ──▶ mlock2(…, ONFAULT) for each part of it
//! ```

use rustix::mm::{MlockFlags, mlock_with};
use std::fs;
use std::io;
use std::path::PathBuf;

/// Bytes of `/proc/self/maps` that are read. It has a line for each mapping, a few dozen when a program begins.
const MAPS_BYTES_MAX: usize = 1 << 20;

/// A part of the program in memory.
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
    let program = fs::read_link("/proc/self/exe")?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    if maps.len() > MAPS_BYTES_MAX {
        return Err(io::Error::other(format!("/proc/self/maps has {} bytes", maps.len())));
    }
    let mut bytes = 0;
    for part in parts(&maps, &program) {
        lock(part)?;
        bytes += part.end - part.begin;
    }
    Ok(bytes)
}

/// The parts of `program` that nobody writes to. Those that are written are the process's own, and not the file's.
fn parts(maps: &str, program: &PathBuf) -> Vec<Part> {
    let part = |line: &str| {
        // 55d0c8a00000-55d0c8b00000 r-xp 00100000 fe:01 1234    /usr/bin/program
        let (addresses, rest) = line.split_once(' ')?;
        let (permissions, rest) = rest.split_once(' ')?;
        let path = rest.find('/').map(|at| PathBuf::from(&rest[at..]))?;
        let (begin, end) = addresses.split_once('-')?;
        let address = |digits| usize::from_str_radix(digits, 16).ok();
        let part = Part { begin: address(begin)?, end: address(end)? };
        (path == *program && permissions.starts_with("r-")).then_some(part)
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
        assert_eq!(parts(maps, &"/opt/my program".into()), [part(0x55d0, 0x55d8), part(0x55d8, 0x55e0)]);
        assert_eq!(parts("", &"/opt/x".into()), []);
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
