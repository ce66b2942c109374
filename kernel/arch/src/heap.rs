//! The kernel's heap: small blocks by size from free lists, large ones as runs of pages that can grow where they lie.
//!
//! ```text
//!   heap ─▶ │ small blocks and pages, first fit │ 4 MiB in: a huge block, free to grow │ …          end
//! ```
//! Linear memories are huge blocks. They are placed apart from the rest, so that `memory.grow` rarely has to copy, and the
//! rest lies close together, so that few pages differ between units. The heap's end is asked for when it is reached: a
//! snapshot taken in a small machine goes on in a large one.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;

const PAGE: usize = 4_096;
/// Small blocks: 16 bytes and its doubles up to half a page.
const CLASSES: usize = 8;
const SMALLEST: usize = 16;
const SMALL_MAX: usize = SMALLEST << (CLASSES - 1);
/// Pages taken at once for small blocks.
const CHUNK_PAGES: usize = 4;
/// From this many pages on, a block is huge.
const HUGE_PAGES: usize = 256;
/// Room that is left for others before a huge block.
const ROOM_PAGES: usize = 1_024;
/// Free runs that are remembered. Of more than these the shortest is lost until the kernel starts anew.
const RUNS_MAX: usize = 256;

/// Set once by the board, before anything is allocated.
pub struct Heap(UnsafeCell<State>);

// SAFETY: the kernel is one task without interrupts, on one processor: no two calls are ever under way.
unsafe impl Sync for Heap {}

#[derive(Clone, Copy)]
struct Run {
    start: usize,
    pages: usize,
}

struct State {
    /// Heads of the free lists; a free block begins with the address of the next one.
    free: [usize; CLASSES],
    /// What is left of the last chunk.
    chunk: (usize, usize),
    /// Free runs by address; two never touch.
    runs: [Run; RUNS_MAX],
    runs_count: usize,
    end: usize,
    more: fn() -> usize,
}

impl Heap {
    pub const fn new() -> Self {
        Self(UnsafeCell::new(State {
            free: [0; CLASSES],
            chunk: (0, 0),
            runs: [Run { start: 0, pages: 0 }; RUNS_MAX],
            runs_count: 0,
            end: 0,
            more: || 0,
        }))
    }

    /// Gives it the memory from `start` on; `more` says where it ends, and may say more later.
    ///
    /// # Safety
    /// The memory is mapped and writable, and nothing else uses it. `start` is not 0.
    pub unsafe fn begin(&self, start: usize, more: fn() -> usize) {
        // SAFETY: one task; the board calls this before it allocates.
        let state = unsafe { &mut *self.0.get() };
        state.end = start.next_multiple_of(PAGE);
        state.more = more;
        state.extend();
    }

    /// Pages that nobody has; small blocks that are free do not count.
    pub fn free_bytes(&self) -> u64 {
        // SAFETY: one task.
        let state = unsafe { &*self.0.get() };
        state.runs[..state.runs_count].iter().map(|run| (run.pages * PAGE) as u64).sum()
    }
}

impl Default for Heap {
    fn default() -> Self {
        Self::new()
    }
}

/// The free list for blocks of this layout; none if it takes pages.
fn class(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(SMALLEST);
    (bytes <= SMALL_MAX).then(|| (bytes.next_power_of_two() / SMALLEST).trailing_zeros() as usize)
}

fn pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE)
}

impl State {
    /// Takes in what the machine has more than before.
    fn extend(&mut self) -> bool {
        let end = (self.more)() & !(PAGE - 1);
        if end <= self.end {
            return false;
        }
        let start = core::mem::replace(&mut self.end, end);
        self.give_pages(start, (end - start) / PAGE);
        true
    }

    fn take_pages(&mut self, count: usize) -> usize {
        match self.find_pages(count) {
            0 if self.extend() => self.find_pages(count),
            start => start,
        }
    }

    fn find_pages(&mut self, count: usize) -> usize {
        let runs = &self.runs[..self.runs_count];
        if count >= HUGE_PAGES
            && let Some(index) = runs.iter().rposition(|run| run.pages >= count + ROOM_PAGES)
        {
            let Run { start, pages } = self.runs[index];
            let block = start + ROOM_PAGES * PAGE;
            self.runs[index].pages = ROOM_PAGES;
            let left = pages - ROOM_PAGES - count;
            if left > 0 {
                self.insert(index + 1, Run { start: block + count * PAGE, pages: left });
            }
            return block;
        }
        let Some(index) = runs.iter().position(|run| run.pages >= count) else { return 0 };
        self.cut(index, count)
    }

    /// Takes the first pages of a run.
    fn cut(&mut self, index: usize, count: usize) -> usize {
        let run = &mut self.runs[index];
        let start = run.start;
        run.start += count * PAGE;
        run.pages -= count;
        if run.pages == 0 {
            self.runs.copy_within(index + 1..self.runs_count, index);
            self.runs_count -= 1;
        }
        start
    }

    fn give_pages(&mut self, start: usize, count: usize) {
        let index = self.runs[..self.runs_count].partition_point(|run| run.start < start);
        let end = start + count * PAGE;
        let joins_next = index < self.runs_count && self.runs[index].start == end;
        let before = index.checked_sub(1).filter(|before| {
            let run = self.runs[*before];
            run.start + run.pages * PAGE == start
        });
        match (before, joins_next) {
            (Some(before), true) => {
                self.runs[before].pages += count + self.runs[index].pages;
                self.runs.copy_within(index + 1..self.runs_count, index);
                self.runs_count -= 1;
            }
            (Some(before), false) => self.runs[before].pages += count,
            (None, true) => self.runs[index] = Run { start, pages: count + self.runs[index].pages },
            (None, false) => self.insert(index, Run { start, pages: count }),
        }
    }

    fn insert(&mut self, mut index: usize, run: Run) {
        if self.runs_count == RUNS_MAX {
            let shortest = (0..RUNS_MAX).min_by_key(|index| self.runs[*index].pages).unwrap_or(0);
            if self.runs[shortest].pages >= run.pages {
                return;
            }
            self.runs.copy_within(shortest + 1.., shortest);
            self.runs_count -= 1;
            index -= usize::from(shortest < index);
        }
        self.runs.copy_within(index..self.runs_count, index + 1);
        self.runs[index] = run;
        self.runs_count += 1;
    }

    /// Lets a block of pages grow into what is free behind it.
    fn grow_pages(&mut self, start: usize, have: usize, want: usize) -> bool {
        let end = start + have * PAGE;
        let Some(index) = self.runs[..self.runs_count].iter().position(|run| run.start == end) else {
            return false;
        };
        if self.runs[index].pages < want - have {
            // The last run may reach further by now; it stays at its index.
            if !self.extend() || self.runs[index].pages < want - have {
                return false;
            }
        }
        self.cut(index, want - have);
        true
    }

    fn take_small(&mut self, class: usize) -> usize {
        let block = self.free[class];
        if block != 0 {
            // SAFETY: blocks in a free list are free, aligned to 16, and begin with the address of the next.
            self.free[class] = unsafe { *(block as *const usize) };
            return block;
        }
        let bytes = SMALLEST << class;
        let (start, end) = self.chunk;
        let start = start.next_multiple_of(bytes);
        if start + bytes <= end {
            self.chunk = (start + bytes, end);
            return start;
        }
        let chunk = self.take_pages(CHUNK_PAGES);
        if chunk != 0 {
            self.chunk = (chunk + bytes, chunk + CHUNK_PAGES * PAGE);
        }
        chunk
    }
}

// SAFETY: blocks come from memory that is the heap's alone; no block is handed out twice before it came back; sizes and
// alignments are those asked for: small blocks are aligned to their size, others to a page.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: one task.
        let state = unsafe { &mut *self.0.get() };
        let block = match class(layout) {
            Some(class) => state.take_small(class),
            None if layout.align() > PAGE => 0,
            None => state.take_pages(pages(layout.size())),
        };
        block as *mut u8
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: one task.
        let state = unsafe { &mut *self.0.get() };
        match class(layout) {
            Some(class) => {
                // SAFETY: the block has at least 16 bytes, aligned to 16, and is the heap's again.
                unsafe { *(block as *mut usize) = state.free[class] };
                state.free[class] = block as usize;
            }
            None => state.give_pages(block as usize, pages(layout.size())),
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        // SAFETY: the caller keeps the rules of `GlobalAlloc`: a size that is not 0 and no overflow.
        let new = unsafe { Layout::from_size_align_unchecked(new_bytes, layout.align()) };
        // SAFETY: one task.
        let state = unsafe { &mut *self.0.get() };
        match (class(layout), class(new)) {
            (Some(old), Some(new)) if old == new => return block,
            (None, None) => {
                let (have, want) = (pages(layout.size()), pages(new_bytes));
                if want <= have {
                    if want < have {
                        state.give_pages(block as usize + want * PAGE, have - want);
                    }
                    return block;
                }
                if state.grow_pages(block as usize, have, want) {
                    return block;
                }
            }
            _ => {}
        }
        // SAFETY: the new block is another than the old one, and both have at least the bytes that are copied.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, layout.size().min(new_bytes));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    /// A heap on 64 MiB of its own.
    fn heap() -> (Heap, Vec<u8>) {
        static END: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);
        static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _one_at_a_time = LOCK.lock();
        let memory = std::vec![0_u8; 64 << 20];
        let heap = Heap::new();
        END.store(memory.as_ptr() as usize + memory.len(), core::sync::atomic::Ordering::SeqCst);
        // SAFETY: the memory lives as long as the heap, and is nobody else's.
        unsafe { heap.begin(memory.as_ptr() as usize, || END.load(core::sync::atomic::Ordering::SeqCst)) };
        // SAFETY: nobody else uses it here.
        unsafe { (*heap.0.get()).more = || 0 };
        (heap, memory)
    }

    /// A plain record of what is taken, and random steps against it; contents must survive.
    #[test]
    fn blocks_never_overlap_and_keep_what_is_in_them() {
        let (heap, _memory) = heap();
        let mut taken: Vec<(usize, Layout, u8)> = Vec::new();
        let mut seed = 7_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        for step in 0..20_000 {
            let bytes = [1, 16, 100, 2_048, 2_049, 5_000, 70_000, 1 << 20][random(8)] + random(64);
            let layout = Layout::from_size_align(bytes, [1, 8, 16, 64, 4_096][random(5)]).unwrap();
            let tag = step as u8;
            match random(3) {
                0 | 1 if taken.len() < 20 || (random(2) == 0 && taken.len() < 200) => {
                    // SAFETY: a layout with a size.
                    let block = unsafe { heap.alloc(layout) };
                    if block.is_null() {
                        continue;
                    }
                    assert_eq!(block as usize % layout.align(), 0);
                    let (start, end) = (block as usize, block as usize + bytes);
                    assert!(taken.iter().all(|(at, other, _)| end <= *at || at + other.size() <= start));
                    // SAFETY: the block is ours.
                    unsafe { ptr::write_bytes(block, tag, bytes) };
                    taken.push((start, layout, tag));
                }
                1 if !taken.is_empty() => {
                    let index = random(taken.len());
                    let (at, old, tag) = taken[index];
                    // SAFETY: the block was allocated with this layout.
                    let moved = unsafe { heap.realloc(at as *mut u8, old, bytes) };
                    if moved.is_null() {
                        continue;
                    }
                    // SAFETY: as many bytes were carried over.
                    let kept = unsafe { core::slice::from_raw_parts(moved, old.size().min(bytes)) };
                    assert!(kept.iter().all(|byte| *byte == tag));
                    // SAFETY: the block is ours.
                    unsafe { ptr::write_bytes(moved, tag, bytes) };
                    taken[index] = (moved as usize, Layout::from_size_align(bytes, old.align()).unwrap(), tag);
                }
                _ if !taken.is_empty() => {
                    let (at, layout, tag) = taken.swap_remove(random(taken.len()));
                    // SAFETY: the block is ours until it is given back.
                    let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, layout.size()) };
                    assert!(bytes.iter().all(|byte| *byte == tag));
                    // SAFETY: as above.
                    unsafe { heap.dealloc(at as *mut u8, layout) };
                }
                _ => {}
            }
        }
    }

    #[test]
    fn a_huge_block_grows_where_it_is_and_all_comes_back() {
        let (heap, _memory) = heap();
        let layout = Layout::from_size_align(1 << 20, 16).unwrap();
        // SAFETY: layouts with sizes; blocks are given back as they were taken.
        unsafe {
            let block = heap.alloc(layout);
            let others: Vec<_> = (0..50).map(|_| heap.alloc(Layout::from_size_align(9_000, 8).unwrap())).collect();
            assert_eq!(heap.realloc(block, layout, 40 << 20), block);
            assert!(heap.alloc(Layout::from_size_align(40 << 20, 16).unwrap()).is_null(), "there is no such room");
            for other in others {
                heap.dealloc(other, Layout::from_size_align(9_000, 8).unwrap());
            }
            heap.dealloc(block, Layout::from_size_align(40 << 20, 16).unwrap());
            assert_eq!((*heap.0.get()).runs_count, 1, "free runs are joined again");
        }
    }
}
