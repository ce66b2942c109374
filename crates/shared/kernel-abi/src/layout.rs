//! Where what lies in a microvm. Guest-virtual addresses are guest-physical ones; what is not listed is not mapped.
//!
//! ```text
//!   0          ┌───────────────┐
//!              │ vectors       │  aarch64, mapped for EL1 alone: a fault goes there, and leaves
//!   4 KiB      ├───────────────┤
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
//!   32 GiB     ═ exit            aarch64: W, without memory: a store leaves to the tender
//! ```

pub const PAGE: u64 = 4_096;
/// What one entry of a page directory maps.
pub const LARGE_PAGE: u64 = 2 << 20;

/// Exception vectors of aarch64, for EL1 alone.
pub const VECTORS: u64 = 0;

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

/// Where aarch64, which has no ports, stores the number of one: beyond all memory, and within the 36 bits of address that
/// the smallest machines of KVM have.
pub const EXIT: u64 = 32 << 30;
/// Where its vectors store that there was a fault.
pub const EXIT_FAULT: u64 = EXIT + 8;

/// Memory the kernel needs beside what a unit was granted: its own tables, and copies of events and replies.
pub const HEAP_OVERHEAD: u64 = 8 << 20;

/// Where the heap begins behind `code_bytes` of code: with a page of its own kind, and a guard before it.
pub const fn heap(code_bytes: u64) -> u64 {
    (CODE + code_bytes + PAGE).next_multiple_of(LARGE_PAGE)
}
