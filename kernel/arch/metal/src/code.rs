//! Pages for code that arrived: written while it is data, run once it is code, never both.

use crate::tables::{self, Access, PAGE};
use alloc::alloc::{alloc_zeroed, dealloc};
use core::alloc::Layout;
use core::ptr::{self, NonNull};

/// Memory in whole pages, of which nothing else is a part.
#[derive(Debug)]
pub struct CodePages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory.
unsafe impl Send for CodePages {}
// SAFETY: shared, it can only be read.
unsafe impl Sync for CodePages {}

impl CodePages {
    /// A copy of `code`. None: there is no room.
    pub fn copy(code: &[u8]) -> Option<Self> {
        let layout = Self::layout(code.len())?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // SAFETY: as long as the layout at least, and just made.
        unsafe { start.as_ptr().copy_from_nonoverlapping(code.as_ptr(), code.len()) };
        Some(Self { start, bytes: code.len() })
    }

    pub fn bytes(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.start, self.bytes)
    }

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.max(1).checked_next_multiple_of(PAGE)?, PAGE).ok()
    }
}

impl Drop for CodePages {
    fn drop(&mut self) {
        let Some(layout) = Self::layout(self.bytes) else { return };
        tables::set(self.start.as_ptr().addr(), layout.size(), Access::Data);
        // SAFETY: made in `copy` with the same layout, and writable again.
        unsafe { dealloc(self.start.as_ptr(), layout) }
    }
}

/// Makes pages code, and data again.
#[derive(Debug)]
pub struct Pages;

impl Pages {
    pub const BYTES: usize = PAGE;

    /// Whole pages around these bytes become code: run and read, not written.
    pub fn publish(&self, start: *const u8, bytes: usize) {
        crate::machine::code_was_written(start.addr(), bytes);
        Self::set(start, bytes, Access::Code);
    }

    /// They become data again: not run.
    pub fn unpublish(&self, start: *const u8, bytes: usize) {
        Self::set(start, bytes, Access::Data);
    }

    fn set(start: *const u8, bytes: usize, access: Access) {
        let (first, end) = (start.addr() & !(PAGE - 1), (start.addr() + bytes).next_multiple_of(PAGE));
        tables::set(first, end - first, access);
    }
}

/// Reads a word of the stack for a backtrace, if the address is in the kernel's memory at all.
pub(crate) fn stack_word(address: usize, stack: [usize; 2]) -> Option<usize> {
    let [low, high] = stack;
    let is_there = address >= low && address + size_of::<usize>() <= high && address.is_multiple_of(size_of::<usize>());
    // SAFETY: within the stack, which is always mapped.
    is_there.then(|| unsafe { ptr::with_exposed_provenance::<usize>(address).read_volatile() })
}
