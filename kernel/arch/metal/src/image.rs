//! The kernel's own image, as the linker laid it out: see a board's `link.ld`.

use core::ptr;
use core::slice;

unsafe extern "C" {
    static __text_start: u8;
    static __text_end: u8;
    static __constants_start: u8;
    static __constants_end: u8;
    static __settings: u8;
    static __data_start: u8;
    static __guard: u8;
    static __image_end: u8;
}

const SETTINGS_BYTES: usize = 4_096;

/// Addresses, from the lowest to the highest, each at the start of a page.
pub(crate) struct Layout {
    pub text: [usize; 2],
    pub constants: [usize; 2],
    pub settings: usize,
    pub data: usize,
    /// Below the stack.
    pub guard: usize,
    pub end: usize,
}

pub(crate) fn layout() -> Layout {
    // Their addresses are taken; nothing is read.
    Layout {
        text: [(&raw const __text_start).addr(), (&raw const __text_end).addr()],
        constants: [(&raw const __constants_start).addr(), (&raw const __constants_end).addr()],
        settings: (&raw const __settings).addr(),
        data: (&raw const __data_start).addr(),
        guard: (&raw const __guard).addr(),
        end: (&raw const __image_end).addr(),
    }
}

/// What the kernel's hash is taken of: its code and its constants, none of which can be written to.
pub fn measured() -> [&'static [u8]; 2] {
    let Layout { text, constants, .. } = layout();
    [text, constants].map(|[start, end]| {
        // SAFETY: the linker put this there, it is mapped without the right to write, and it stays.
        unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(start), end - start) }
    })
}

/// The block that `lighter flash` fills in.
pub fn settings() -> &'static [u8; SETTINGS_BYTES] {
    // SAFETY: the linker keeps a page for it, mapped without the right to write.
    unsafe { &*ptr::with_exposed_provenance(layout().settings) }
}

/// Its magic number is all it has before it is filled in.
#[unsafe(link_section = ".settings")]
#[used]
static EMPTY: Block = Block { magic: [0x89, b'L', b'T', b'R', b'S', b'E', b'T', 0x1a], rest: [0; SETTINGS_BYTES - 8] };

#[repr(C, align(4096))]
struct Block {
    magic: [u8; 8],
    rest: [u8; SETTINGS_BYTES - 8],
}
