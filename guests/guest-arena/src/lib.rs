//! An allocator for functions whose units serve one call: the first bytes come from the unit's initial memory.
//!
//! The standard allocator of Rust's wasm targets begins with a `memory.grow`. For the host that is two changes of page
//! protection a call, about 4 µs of the 25 of a whole small call. Here the first [`BYTES`] are part of the memory a unit
//! starts with, and are never given back; what goes beyond them comes from the standard allocator, and is.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};

/// Bytes served without growing the memory.
pub const BYTES: usize = 32 << 10;

/// To be used as `#[global_allocator] static ARENA: Arena = Arena::new();`.
pub struct Arena {
    memory: UnsafeCell<[u8; BYTES]>,
    used: Cell<usize>,
}

// SAFETY: a unit has one thread.
unsafe impl Sync for Arena {}

impl Arena {
    pub const fn new() -> Self {
        Self { memory: UnsafeCell::new([0; BYTES]), used: Cell::new(0) }
    }

    fn holds(&self, pointer: *mut u8) -> bool {
        let start = self.memory.get() as usize;
        (start..start + BYTES).contains(&(pointer as usize))
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: each block lies in `memory`, aligned, and no two overlap, since `used` only grows; or it is the system's.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let start = self.memory.get() as usize;
        let begin = (start + self.used.get()).next_multiple_of(layout.align()) - start;
        match begin.checked_add(layout.size()).filter(|end| *end <= BYTES) {
            Some(end) => {
                self.used.set(end);
                (start + begin) as *mut u8
            }
            // SAFETY: the caller's promise is the one the system asks for.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if !self.holds(pointer) {
            // SAFETY: what is not in the arena came from the system.
            unsafe { System.dealloc(pointer, layout) }
        }
    }
}
