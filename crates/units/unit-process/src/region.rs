//! A file in memory as the node writes to it: mapped once and written to many times, because eight megabytes of new
//! pages cost several times what copying eight megabytes costs.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{NonNull, null_mut};
use std::slice;

/// A region has a multiple of so many bytes: calls of about the same size find room in the same one.
const STEP_BYTES: usize = 2 << 20;

/// Mapped memory, all zeros when it is new. Given back when it is dropped.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory as a boxed slice does; nothing about it belongs to a thread.
#[expect(unsafe_code, reason = "a region may be made on one thread and used on another")]
unsafe impl Send for Region {}
// SAFETY: as above; shared references only read.
#[expect(unsafe_code, reason = "a region may be read on several threads")]
unsafe impl Sync for Region {}

impl Region {
    /// So many bytes a region has that is to hold `bytes`.
    pub const fn rounded(bytes: usize) -> usize {
        bytes.saturating_add(STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES
    }

    /// The first `bytes` bytes of a file in memory, which must stay as long as that. Nobody else may write to them:
    /// that is for the caller to make sure of.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn of_file(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        map(bytes, libc::MAP_SHARED, file.as_fd().as_raw_fd())
    }

    /// The same, and what is written to is this mapping's own.
    #[cfg(test)]
    pub fn of_file_to_read(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        map(bytes, libc::MAP_PRIVATE, file.as_fd().as_raw_fd())
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped and readable for as long as the region lives; written to through `&mut self` alone.
        #[expect(unsafe_code, reason = "mapped memory as a slice")]
        unsafe {
            slice::from_raw_parts(self.start.as_ptr(), self.bytes)
        }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped, writable, and borrowed for as long as the slice.
        #[expect(unsafe_code, reason = "mapped memory as a slice")]
        unsafe {
            slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes)
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this very length, and nothing refers to it any more.
        #[expect(unsafe_code, reason = "giving mapped memory back")]
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.bytes);
        }
    }
}

fn map(bytes: usize, flags: libc::c_int, file: libc::c_int) -> io::Result<Region> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the system chooses where, so nothing that is there is touched.
    #[expect(unsafe_code, reason = "no safe call maps memory")]
    let mapped = unsafe { libc::mmap(null_mut(), bytes, rights, flags, file, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = NonNull::new(mapped.cast()).ok_or_else(|| io::Error::other("memory at no address"))?;
    Ok(Region { start, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_room_for_more_than_it_is_asked_for() {
        let rounded = [0, 1, 2 << 20, (2 << 20) + 1].map(Region::rounded);
        assert_eq!(rounded, [0, 2 << 20, 2 << 20, 4 << 20]);
    }
}
