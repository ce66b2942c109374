//! Backtraces of traps, with source lines, logged outside of the call's time.
//!
//! ```text
//!   unit traps ──▶ frames: function, byte of the image       (its kind, in the call's time: microseconds)
//!                     │
//!                     ▼ one thread for each class, of normal priority
//!                  image's debug information ─▶ function, file, line ─▶ log
//! ```
//! The function supplies its own debug information: it may be long to read, or wrong. So it is read on a thread that no
//! call waits for, for each function at most [a share](Share), and only if it is [not too large](worth_keeping). A
//! reader of the log waits [`WAIT_MAX`] and no longer.
#![forbid(unsafe_code)]

mod share;
mod sources;
mod teller;

pub use share::Share;
pub use sources::{SourceLine, Sources, worth_keeping};
pub use teller::{Image, Teller, Told, WAIT_MAX};
