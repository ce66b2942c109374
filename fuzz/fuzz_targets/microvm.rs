//! What a hostile guest can say to its tender, and what a kernel's image can say to its loader. Whatever is let through
//! lies where it may.
#![no_main]
#![allow(dead_code, reason = "parts of a crate whose other parts need KVM")]

#[path = "../../crates/units/unit-microvm/src/elf.rs"]
mod elf;
#[path = "../../crates/units/unit-microvm/src/x86_64/entry.rs"]
mod entry;
#[path = "../../crates/units/unit-microvm/src/exits.rs"]
mod exits;
#[path = "../../crates/units/unit-microvm/src/memory.rs"]
mod memory;
#[path = "../../crates/units/unit-microvm/src/tables.rs"]
mod tables;
#[path = "../../crates/units/unit-microvm/src/written.rs"]
mod written;
mod processor {
    pub(crate) use crate::entry;
    /// x86-64, as the kernels in the seeds are.
    pub const ELF_MACHINE: u16 = 62;
}

use exits::{Asked, Bounds, GuestRange};
use kernel_abi::exits::CallPage;
use kernel_abi::{Policy, layout, ring};
use lighter_fuzz::fuzz_target;

const HEAP: std::ops::Range<u64> = 0x100_0000..0x500_0000;

fn inside(range: GuestRange, start: u64, end: u64) -> bool {
    range.at >= start && range.at.checked_add(range.bytes as u64).is_some_and(|stop| stop <= end)
}

fn readable(range: GuestRange) -> bool {
    range.bytes == 0
        || inside(range, HEAP.start, HEAP.end)
        || inside(range, layout::STACK, layout::STACK + layout::STACK_BYTES)
        || inside(range, layout::KERNEL, layout::KERNEL_END)
}

fn writable(range: GuestRange) -> bool {
    inside(range, HEAP.start, HEAP.end) || inside(range, layout::INBOX, layout::INBOX + layout::INBOX_BYTES)
}

fuzz_target!(|data: &[u8]| {
    // A call page, and the port it came with.
    let word = |index: usize| {
        let mut bytes = [0; 8];
        let from = data.get(8 * index..).unwrap_or_default();
        let length = from.len().min(8);
        bytes[..length].copy_from_slice(&from[..length]);
        u64::from_le_bytes(bytes)
    };
    let page = CallPage::from_words(std::array::from_fn(|index| word(index + 1)));
    let policy = Policy(word(10));
    let code = layout::CODE..layout::CODE + (word(11) % 64) * layout::PAGE;
    let bounds = Bounds { heap: HEAP, code: code.clone(), policy, bytes_max: 1 << 24 };
    let port = 0x500 + (word(0) % 8) as u16;
    match exits::check(port, &page, &bounds) {
        Ok(Asked::Publish(range)) => {
            assert!(inside(range, code.start, code.end) && range.at % layout::PAGE == 0);
        }
        Ok(Asked::Call { verb, request, answer }) => {
            assert!(readable(request) && writable(answer) && verb.is_none_or(|verb| policy.allows(verb)));
        }
        Ok(Asked::Fetch { answer }) => assert!(writable(answer)),
        Ok(Asked::Receive { reply, answer, .. }) => assert!(readable(reply) && writable(answer)),
        Ok(Asked::Panic(range)) => assert!(readable(range)),
        Ok(Asked::Ready | Asked::Log) | Err(_) => {}
    }
    // A log ring: lines are parts of it, and it ends.
    let lines = exits::lines(data);
    assert!(lines.iter().map(|(_, text)| text.len() + ring::RECORD_HEAD).sum::<usize>() <= data.len());
    // A kernel's image.
    if let Ok(kernel) = elf::Kernel::read(data) {
        assert!(
            kernel.segments.iter().all(|one| one.pages.start >= layout::KERNEL && one.pages.end <= layout::KERNEL_END)
        );
    }
});
