//! An artefact of a microvm function: whatever it says is refused, or laid out within bounds, and what a unit wrote
//! over it is gone for the next one. The warehouse checks its hash before; here that is believed of nobody.
#![no_main]
#![allow(dead_code, reason = "parts of a crate whose other parts need KVM")]

#[path = "../../crates/units/unit-microvm/src/x86_64/entry.rs"]
mod entry;
#[path = "../../crates/units/unit-microvm/src/memory.rs"]
mod memory;
#[path = "../../crates/units/unit-microvm/src/x86_64/registers.rs"]
mod registers;
#[path = "../../crates/units/unit-microvm/src/snapshot.rs"]
mod snapshot;
#[path = "../../crates/units/unit-microvm/src/tables.rs"]
mod tables;
#[path = "../../crates/units/unit-microvm/src/written.rs"]
mod written;
mod processor {
    pub(crate) use crate::entry;
    pub(crate) use crate::registers::Registers;
}

use kernel_abi::boot::Boot;
use kernel_abi::layout;
use lighter_fuzz::fuzz_target;
use memory::Memory;
use snapshot::{Parts, Snapshot};

/// Of memory, to be fast.
const BYTES_MAX: u64 = 64 << 20;

fuzz_target!(|data: &[u8]| {
    // A head that is hard to guess, before what is not.
    let head = [&b"lghtvm\0\x01"[..], &u64::from(kernel_abi::VERSION).to_le_bytes(), &layout::PAGE.to_le_bytes()];
    let places = [layout::heap(layout::PAGE).to_le_bytes(), (layout::PAGE_TABLES + 3 * layout::PAGE).to_le_bytes()];
    // And pages behind it, for the runs it speaks of.
    let guessed = [&head.concat()[..], &places.concat(), data, &[7; 16 << 10]].concat();
    for bytes in [data, &guessed] {
        let Ok(parts) = Parts::read(bytes) else { continue };
        let about = parts.about;
        assert!(about.code_bytes <= layout::CODE_BYTES_MAX && about.tables_end <= layout::PAGE_TABLES_END);
        if about.heap > BYTES_MAX {
            continue;
        }
        let Ok(snapshot) = Snapshot::lay_out(&parts, 1 << 20) else { continue };
        assert_eq!(snapshot.heap().start, about.heap);
        if snapshot.memory_bytes() > BYTES_MAX {
            continue;
        }
        let memory = Memory::reserve(snapshot.memory_bytes()).unwrap();
        snapshot.lay(&memory, &Boot::new()).unwrap();
        let first = memory.used().unwrap();
        for at in [layout::BOOT, layout::STACK, layout::KERNEL, about.heap, memory.bytes() - 8] {
            memory.write(at, &[0xaa; 8]).unwrap();
        }
        snapshot.renew(&memory, &Boot::new()).unwrap();
        assert_eq!(memory.used().unwrap(), first);
    }
});
