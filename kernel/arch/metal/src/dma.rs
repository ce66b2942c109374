//! Memory that a device reads and writes too: never looked at by reference, always copied.

use alloc::alloc::{alloc_zeroed, dealloc};
use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};

const ALIGNMENT: usize = 4_096;

/// Some pages in one piece. The device may change them at any time; each access is checked and volatile.
#[derive(Debug)]
pub struct Dma {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory, and all access to it is by copy.
unsafe impl Send for Dma {}

impl Dma {
    /// # Panics
    /// There is no such memory: boards do this when they start, and start again.
    pub fn new(bytes: usize) -> Self {
        let layout = Self::layout(bytes);
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory for a device");
        Self { start, bytes }
    }

    /// Where a device finds the byte at `offset`: memory is mapped where it is.
    pub fn address(&self, offset: usize) -> u64 {
        assert!(offset < self.bytes, "no byte at {offset:#x}");
        (self.start.as_ptr().addr() + offset) as u64
    }

    pub fn read_u16(&self, offset: usize) -> u16 {
        // SAFETY: `at` checks place and alignment.
        unsafe { self.at::<u16>(offset).read_volatile() }
    }

    pub fn read_u32(&self, offset: usize) -> u32 {
        // SAFETY: `at` checks place and alignment.
        unsafe { self.at::<u32>(offset).read_volatile() }
    }

    pub fn write_u16(&mut self, offset: usize, value: u16) {
        // SAFETY: `at` checks place and alignment.
        unsafe { self.at::<u16>(offset).write_volatile(value) }
    }

    pub fn write_u32(&mut self, offset: usize, value: u32) {
        // SAFETY: `at` checks place and alignment.
        unsafe { self.at::<u32>(offset).write_volatile(value) }
    }

    pub fn write_u64(&mut self, offset: usize, value: u64) {
        // SAFETY: `at` checks place and alignment.
        unsafe { self.at::<u64>(offset).write_volatile(value) }
    }

    /// Copies bytes out.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        // SAFETY: checked above; the device may write meanwhile, and then some bytes are old and some are new, all of them
        // bytes.
        unsafe { self.start.add(offset).as_ptr().copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes in.
    pub fn write(&mut self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: checked above.
        unsafe { self.start.add(offset).as_ptr().copy_from_nonoverlapping(from.as_ptr(), from.len()) }
    }

    /// What was written before is seen before what is written after, by devices too.
    pub fn order() {
        fence(Ordering::SeqCst);
        crate::machine::device_fence();
    }

    fn at<T>(&self, offset: usize) -> *mut T {
        self.check(offset, size_of::<T>());
        assert!(offset.is_multiple_of(size_of::<T>()), "{offset:#x} is not aligned");
        // SAFETY: checked above.
        unsafe { self.start.add(offset).as_ptr().cast() }
    }

    fn check(&self, offset: usize, bytes: usize) {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "{bytes} bytes at {offset:#x}");
    }

    fn layout(bytes: usize) -> Layout {
        assert!(bytes > 0, "no memory is no memory for a device");
        Layout::from_size_align(bytes, ALIGNMENT).expect("a device wants less than all there is")
    }
}

impl Drop for Dma {
    fn drop(&mut self) {
        // SAFETY: made in `new` with the same layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.bytes)) }
    }
}
