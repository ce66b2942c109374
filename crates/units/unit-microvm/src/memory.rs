//! The memory of one microvm, as the tender sees it: copied from and to, never pointed into.
//!
//! While a vCPU runs its guest writes here as it likes; whoever looks meanwhile reads single words, and checks a copy.
#![expect(unsafe_code, reason = "maps memory for a guest, and copies from and to it")]

use crate::written;
use kernel_abi::layout::PAGE;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Mapped for a guest; freed when it is dropped.
pub struct Memory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone, and no reference into it ever exists.
unsafe impl Send for Memory {}
// SAFETY: as above; all access is by copying. Two writers at once could mix their bytes, which no one relies on.
unsafe impl Sync for Memory {}

/// An address outside of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outside;

impl Memory {
    /// Address space for so many bytes, empty; pages come when they are touched.
    pub fn reserve(bytes: u64) -> io::Result<Self> {
        let bytes = usize::try_from(bytes.next_multiple_of(system_page())).map_err(io::Error::other)?;
        let base = map(ptr::null_mut(), bytes, libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)?;
        Ok(Self { base, bytes })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Where the memory lies in this process, for KVM.
    pub fn host_address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// Lays a copy-on-write map of the first bytes of `file` over the beginning, and empties the rest. What was written
    /// before is gone.
    pub fn lay(&self, file: &File, bytes: u64) -> io::Result<()> {
        let bytes = usize::try_from(bytes.next_multiple_of(system_page())).map_err(io::Error::other)?;
        if bytes > self.bytes {
            return Err(io::Error::other("a snapshot larger than the memory"));
        }
        let base = self.base.as_ptr();
        if bytes > 0 {
            map(base, bytes, libc::MAP_FIXED | libc::MAP_NORESERVE, file.as_raw_fd())?;
        }
        self.forget(bytes as u64)
    }

    /// Gives these bytes the contents they have in `first`, and zeros where that ends. The pages stay where they are,
    /// so that neither this process nor a guest has to fault for them again.
    pub fn rewrite(&self, first: &Self, run: Range<u64>) -> Result<(), Outside> {
        let inside = run.end.min(first.bytes()).saturating_sub(run.start);
        let length = |bytes: u64| usize::try_from(bytes).map_err(|_| Outside);
        let (inside, all) = (length(inside)?, length(run.end.saturating_sub(run.start))?);
        let to = self.place(run.start, all)?;
        let from = first.place(run.start.min(first.bytes()), inside)?;
        // SAFETY: both have as many bytes, and two memories never overlap.
        unsafe { ptr::copy_nonoverlapping(from, to, inside) };
        // SAFETY: the rest of what `to` has.
        unsafe { ptr::write_bytes(to.add(inside), 0, all - inside) };
        Ok(())
    }

    /// Gives back what was written from here on: what was mapped is there again.
    pub fn forget(&self, from: u64) -> io::Result<()> {
        let bytes = usize::try_from(self.bytes().saturating_sub(from)).map_err(io::Error::other)?;
        let start = self.place(from, bytes).map_err(|Outside| io::Error::other("nothing to forget there"))?;
        // SAFETY: the range is ours; private pages are given back.
        if unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Makes these pages this memory's own, before anybody writes to them.
    pub fn make(&self, run: Range<u64>) -> io::Result<()> {
        let bytes = usize::try_from(run.end.saturating_sub(run.start)).map_err(io::Error::other)?;
        let start = self.place(run.start, bytes).map_err(|Outside| io::Error::other("nothing to make there"))?;
        // SAFETY: the range is ours; what can be read there stays as it is.
        if unsafe { libc::madvise(start.cast(), bytes, libc::MADV_POPULATE_WRITE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Maps nothing again: as it was when it was reserved.
    pub fn clear(&self) -> io::Result<()> {
        let flags = libc::MAP_FIXED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        map(self.base.as_ptr(), self.bytes, flags, -1).map(drop)
    }

    fn place(&self, at: u64, bytes: usize) -> Result<*mut u8, Outside> {
        let at = usize::try_from(at).map_err(|_| Outside)?;
        let end = at.checked_add(bytes).ok_or(Outside)?;
        if end > self.bytes {
            return Err(Outside);
        }
        // SAFETY: within the mapping.
        Ok(unsafe { self.base.as_ptr().add(at) })
    }

    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Outside> {
        let from = self.place(at, into.len())?;
        // SAFETY: `from` has as many bytes, and `into` is not guest memory.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    pub fn copy(&self, at: u64, bytes: usize) -> Result<Vec<u8>, Outside> {
        self.place(at, bytes)?;
        let mut copy = vec![0; bytes];
        self.read(at, &mut copy)?;
        Ok(copy)
    }

    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Outside> {
        let to = self.place(at, bytes.len())?;
        // SAFETY: `to` has as many bytes, and `bytes` is not guest memory.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    pub fn read_words<const N: usize>(&self, at: u64) -> Result<[u64; N], Outside> {
        let mut words = [0; N];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.read_word(at + 8 * index as u64)?;
        }
        Ok(words)
    }

    pub fn read_word(&self, at: u64) -> Result<u64, Outside> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// A word that a running guest may write at any time. One that does not lie on a word's place is outside, too.
    fn word(&self, at: u64) -> Result<&AtomicU64, Outside> {
        let place = self.place(at, 8)?;
        if !at.is_multiple_of(8) {
            return Err(Outside);
        }
        // SAFETY: mapped as long as `self` lives, and aligned, for the mapping begins on a page.
        Ok(unsafe { AtomicU64::from_ptr(place.cast()) })
    }

    pub fn load(&self, at: u64) -> Result<u64, Outside> {
        Ok(self.word(at)?.load(SeqCst))
    }

    pub fn store(&self, at: u64, value: u64) -> Result<(), Outside> {
        self.word(at)?.store(value, SeqCst);
        Ok(())
    }

    pub fn write_words(&self, at: u64, words: &[u64]) -> Result<(), Outside> {
        words.iter().enumerate().try_for_each(|(index, word)| self.write(at + 8 * index as u64, &word.to_le_bytes()))
    }

    /// The pages that hold anything but zeros, as runs: where each begins, and how many bytes it has. Only pages that
    /// were touched are looked at, and not those that the system has put aside.
    pub fn used(&self) -> io::Result<Vec<(u64, u64)>> {
        self.contents(self.resident()?)
    }

    /// The same with pages that the system has put aside (swap). Not behind the filter of a tender, which lets nobody
    /// ask that.
    pub fn used_and_swapped(&self) -> io::Result<Vec<(u64, u64)>> {
        let mut pages = self.resident()?;
        written::swapped(self, |page| pages[page] = true)?;
        self.contents(pages)
    }

    fn contents(&self, pages: Vec<bool>) -> io::Result<Vec<(u64, u64)>> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut page = vec![0; PAGE as usize];
        for (index, is_there) in pages.into_iter().enumerate() {
            let at = index as u64 * PAGE;
            if !is_there {
                continue;
            }
            self.read(at, &mut page).map_err(|Outside| io::Error::other("a page beyond the memory"))?;
            if page.iter().all(|byte| *byte == 0) {
                continue;
            }
            match runs.last_mut() {
                Some((start, bytes)) if *start + *bytes == at => *bytes += PAGE,
                _ => runs.push((at, PAGE)),
            }
        }
        Ok(runs)
    }

    /// For each page, whether it was ever touched and is there.
    fn resident(&self) -> io::Result<Vec<bool>> {
        let mut pages = vec![0_u8; self.bytes / system_page() as usize];
        // SAFETY: the mapping is ours, and there is a byte for each of its pages.
        if unsafe { libc::mincore(self.base.as_ptr().cast(), self.bytes, pages.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let each = (system_page() / PAGE) as usize;
        Ok(pages.into_iter().flat_map(|byte| std::iter::repeat_n(byte & 1 == 1, each)).collect())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a pointer into it: a VM that uses it is dropped before.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// What the system maps and gives back at once: a guest's page, or on some machines of aarch64 four or sixteen.
pub fn system_page() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    // SAFETY: a plain number.
    *BYTES.get_or_init(|| u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(PAGE).max(PAGE))
}

fn map(at: *mut u8, bytes: usize, flags: libc::c_int, file: libc::c_int) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: either a new mapping, or one over a range that is ours.
    let mapped = unsafe { libc::mmap(at.cast(), bytes, access, libc::MAP_PRIVATE | flags, file, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(mapped.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_on_their_places_within() {
        let memory = Memory::reserve(PAGE).unwrap();
        memory.store(PAGE - 8, 7).unwrap();
        assert_eq!((memory.load(PAGE - 8), memory.read_word(PAGE - 8)), (Ok(7), Ok(7)));
        for at in [1, PAGE - 4, PAGE, u64::MAX - 7] {
            assert_eq!((memory.load(at), memory.store(at, 1)), (Err(Outside), Err(Outside)), "{at:#x}");
        }
    }

    #[test]
    fn nothing_outside_is_touched() {
        let memory = Memory::reserve(2 * PAGE).unwrap();
        assert_eq!(memory.write(2 * PAGE - 1, &[1, 2]), Err(Outside));
        assert_eq!(memory.read(u64::MAX, &mut [0]), Err(Outside));
        assert_eq!(memory.copy(u64::MAX - 1, usize::MAX), Err(Outside));
        assert_eq!(memory.copy(0, usize::MAX), Err(Outside));
        memory.write(2 * PAGE - 2, &[1, 2]).unwrap();
        assert_eq!(memory.copy(2 * PAGE - 2, 2).unwrap(), [1, 2]);
        assert_eq!(memory.used().unwrap(), [(PAGE, PAGE)]);
    }
}
