//! All memory of a board: what lies where, and what may be done with it.
//!
//! ```text
//!   code RX │ constants R │ settings R │ data RW │ guard │ stack RW │ heap RW …  ║ devices
//! ```
//! Everything lies where it is mapped. What is not named here is not mapped: null pointers and stray ones end in a report.

use crate::image;
use crate::tables::{self, Access, PAGE};
use crate::{Exclusive, machine};
use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use kernel_arch::heap::Heap;

/// More than this would need more page tables than there is room for; no function is allowed as much.
const HEAP_BYTES_MAX: usize = 448 << 20;
const REGIONS_MAX: usize = 8;

/// Some addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    pub start: usize,
    pub bytes: usize,
}

static DEVICES: Exclusive<[Option<Region>; REGIONS_MAX]> = Exclusive::new([None; REGIONS_MAX]);
static HEAP_END: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static HEAP: Scrubbed = Scrubbed(Heap::new());

/// A heap that leaves nothing behind: what one function had is zeros before another can get it.
struct Scrubbed(Heap);

// SAFETY: it is the heap's word that counts; a block is written to only while it still is its owner's. Blocks that grow
// are always moved, for what they leave behind must be scrubbed too.
unsafe impl GlobalAlloc for Scrubbed {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised by the caller.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block has this layout, and is the caller's until the next line.
        unsafe {
            block.write_bytes(0, layout.size());
            self.0.dealloc(core::hint::black_box(block), layout);
        }
    }
}

/// Maps a board's memory and devices, and turns protection on. `ram` is the memory that is there; the image lies in it.
///
/// # Panics
/// More devices than a board has, or too little memory to live with.
pub fn begin(ram: Region, devices: &[Region]) {
    let image = image::layout();
    DEVICES.with(|known| {
        for (place, device) in known.iter_mut().zip(devices) {
            *place = Some(*device);
        }
    });
    assert!(devices.len() <= REGIONS_MAX, "more devices than a board has");
    let heap_end = (ram.start + ram.bytes).min(image.end + HEAP_BYTES_MAX) & !(PAGE - 1);
    assert!(heap_end > image.end, "memory for less than the kernel itself");
    let [text, text_end] = image.text;
    let [constants, constants_end] = image.constants;
    tables::set(text, text_end - text, Access::Code);
    tables::set(constants, constants_end - constants, Access::Constants);
    tables::set(image.settings, PAGE, Access::Constants);
    tables::set(image.data, image.guard - image.data, Access::Data);
    let stack = image.guard + PAGE;
    tables::set(stack, heap_end - stack, Access::Data);
    for device in devices {
        tables::set(device.start, device.bytes, Access::Device);
    }
    machine::protect(tables::root());
    HEAP_END.store(heap_end, Relaxed);
    // SAFETY: mapped above as memory to be written to, and the image ends before it.
    unsafe { HEAP.0.begin(image.end, || HEAP_END.load(Relaxed)) };
}

/// Memory that nobody uses.
pub fn free_bytes() -> u64 {
    HEAP.0.free_bytes()
}

pub(crate) fn is_device(region: &Region) -> bool {
    let end = region.start + region.bytes;
    DEVICES.with(|known| known.iter().flatten().any(|one| one.start <= region.start && end <= one.start + one.bytes))
}
