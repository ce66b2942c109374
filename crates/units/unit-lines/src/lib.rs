//! Backtraces of traps, with source lines, logged outside of the call's time.
//!
//! ```text
//!   unit traps ──▶ frames: function, byte of the image       (its class, in the call's time: microseconds)
//!                     │
//!                     ▼ one thread for each class, of normal priority
//!                  image's debug information ─▶ function, file, line ─▶ log
//! ```
//! A function brings its own debug information, which may be long to read, or wrong. So a thread reads it that no call
//! waits for, at most [a share](Share) of it for each function, and only if it is [not too large](worth_keeping). A
//! reader of the log waits [`WAIT_MAX`] and no longer.
#![forbid(unsafe_code)]

mod share;
mod sources;
mod teller;

pub use share::Share;
pub use sources::{SourceLine, Sources, worth_keeping};
pub use teller::{Image, Teller, Told, WAIT_MAX};
