//! Where what lies in a microvm. Guest-virtual addresses are guest-physical ones; what is not listed is not mapped.
//!
//! ```text
//!   0          ┌───────────────┐
//!              │ page tables   │  in guest-physical memory, mapped nowhere: the guest cannot even read them
//!   1 MiB      ├───────────────┤
//!              │ boot page     │  R    what the tender says of itself and of the unit
//!              │ call page     │  RW   one call at a time
//!              │ log ring      │  RW   lines that wait for the next exit
//!              │ inbox         │  RW   events and answers that fit
//!              ├─ guard ───────┤
//!              │ stack         │  RW
//!              ├─ guard ───────┤
//!   4 MiB      │ kernel        │  text RX, constants R, data RW
//!              ├─ guard ───────┤
//!   8 MiB      │ code          │  RW while it is loaded; its text is published RX and never written again
//!              ├─ guard ───────┤
//!   2 MiB × n  │ heap          │  RW   to the end of the memory
//!              └───────────────┘
//! ```

pub const PAGE: u64 = 4_096;
/// What one entry of a page directory maps.
pub const LARGE_PAGE: u64 = 2 << 20;

pub const PAGE_TABLES: u64 = 0x1000;
pub const PAGE_TABLES_END: u64 = 0x10_0000;

pub const BOOT: u64 = 0x10_0000;
pub const CALL: u64 = 0x10_1000;
pub const LOG: u64 = 0x10_2000;
pub const LOG_BYTES: u64 = 32 << 10;
pub const INBOX: u64 = 0x11_0000;
pub const INBOX_BYTES: u64 = 64 << 10;

pub const STACK: u64 = 0x20_0000;
pub const STACK_BYTES: u64 = 1 << 20;

pub const KERNEL: u64 = 0x40_0000;
pub const KERNEL_END: u64 = 0x7f_0000;

pub const CODE: u64 = 0x80_0000;
/// Compiled code is refused over this.
pub const CODE_BYTES_MAX: u64 = 192 << 20;

/// Memory the kernel needs beside what a unit was granted: its own tables, and copies of events and replies.
pub const HEAP_OVERHEAD: u64 = 8 << 20;

/// Where the heap begins behind `code_bytes` of code: with a page of its own kind, and a guard before it.
pub const fn heap(code_bytes: u64) -> u64 {
    (CODE + code_bytes + PAGE).next_multiple_of(LARGE_PAGE)
}
