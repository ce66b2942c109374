//! What every target shares: the memory an input may take.
//!
//! ```text
//!   an input begins ─▶ allocated bytes from here on are counted ─▶ it ends: was the most of them more than it may take?
//! ```
//! libFuzzer's own limits see the whole process, and single requests only with a sanitizer. A parser that makes
//! megabytes of a few bytes stays below both, and is what an attacker looks for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What any input may take, and what more for each of its bytes.
const BYTES_FREE: usize = 4 << 20;
const BYTES_A_BYTE: usize = 1 << 10;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static ALLOWED: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn add(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed).wrapping_add(bytes);
    MOST.fetch_max(live, Relaxed);
}

// SAFETY: all is the system's, which keeps what is asked of an allocator; counting changes none of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as our caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        add(bytes);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as our caller promises.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

/// One input, from its beginning to its end.
pub struct Input {
    bytes: usize,
    before: usize,
}

impl Input {
    pub fn begin(bytes: usize) -> Self {
        let before = LIVE.load(Relaxed);
        MOST.store(before, Relaxed);
        ALLOWED.store(BYTES_FREE + BYTES_A_BYTE * bytes, Relaxed);
        Self { bytes, before }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        let (bytes, most) = (self.bytes, MOST.load(Relaxed).saturating_sub(self.before));
        let bytes_max = ALLOWED.load(Relaxed);
        if most > bytes_max && !std::thread::panicking() {
            panic!("an input of {bytes} bytes took {most} bytes of memory, it may take {bytes_max}");
        }
    }
}

/// This input may take so many bytes more: what it asks for is large by design, and has a bound of its own.
pub fn allow(bytes: usize) {
    ALLOWED.fetch_add(bytes, Relaxed);
}

/// As libfuzzer-sys has it, with the bound.
#[macro_export]
macro_rules! fuzz_target {
    (|$data:ident: &[u8]| $body:expr) => {
        libfuzzer_sys::fuzz_target!(|$data: &[u8]| {
            let _input = $crate::Input::begin($data.len());
            $body
        });
    };
    (|$data:ident: &str| $body:expr) => {
        libfuzzer_sys::fuzz_target!(|$data: &str| {
            let _input = $crate::Input::begin($data.len());
            $body
        });
    };
}
