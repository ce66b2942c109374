//! The portable part of the kernel: takes compiled code, links what it asks for to numbered calls, hands it events.
//!
//! ```text
//!   code ─▶ Program::link ─▶ imports resolved to numbers, instance made if that asks nothing of the host
//!   event ─▶ Program::handle ─▶ handler ─▶ reply
//!                                  │ what it asks meanwhile
//!                                  ▼
//!                    policy ─▶ Host::call: a frame to whoever hosts this kernel, and its answer
//! ```
//! A board owns the machine: memory, time, the way to its host. The same component runs in the `wasm` class.
#![no_std]

extern crate alloc;

mod bindings;
mod contract;
mod convert;
mod failure;
mod glue;
mod imports;
mod program;
#[cfg(feature = "wasi")]
mod wasi;

pub use glue::{Machine, engine};
pub use program::{Program, Terms};

use alloc::vec::Vec;
use kernel_abi::Verb;

/// The way out: how a board reaches whoever answers its unit.
pub trait Host: Send {
    /// Asks, and waits for the answer, a frame. Called for verbs the policy allows.
    ///
    /// # Errors
    /// [`Lost`]: there will be no answer, and the unit is ended.
    fn call(&mut self, verb: Verb, request: &[u8]) -> Result<Vec<u8>, Lost>;

    /// A line for the unit's log; `level` is an index of [`kernel_abi::ring::LEVELS`]. May be kept for a while.
    fn log(&mut self, level: u32, text: &str);

    /// Bytes the unit wrote to [`kernel_abi::ring::STDOUT`] or [`STDERR`](kernel_abi::ring::STDERR). May be kept for a
    /// while. Only units with WASI have these streams.
    fn print(&mut self, stream: u32, bytes: &[u8]);

    /// Nanoseconds since 1970-01-01 UTC.
    fn unix_ns(&mut self) -> u64;

    /// Nanoseconds from a start of its own; never goes back.
    fn monotonic_ns(&mut self) -> u64;
}

/// The host does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;
