//! The kernel on a machine of its own: one task that goes round and round.
//!
//! ```text
//!        ┌──────────────────────────────────────────────────────────────────┐
//!        ▼                                                                  │
//!  feed the watchdog ─▶ packets in and out ─▶ beacon, when due ─▶ sessions ─┤ nothing to do: sleep a little
//!                                                                 │         │
//!      receive ─▶ check ─▶ link ─▶ run ─▶ reply ─▶ unlink ◀───────┘ a call  │
//!                                   │ host calls go out to the node         │
//!                                   └───────────────────────────────────────┘
//! ```
//! A run that hangs is not fed: the watchdog's interrupt reports where it was and starts the machine again.
#![no_std]

extern crate alloc;

mod entropy;
mod executive;
mod host;
mod load;
mod station;
mod store;

pub use station::{Parts, run};

/// A line on the console.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {{
        use core::fmt::Write;
        let _ = writeln!(arch_metal::report::Console, "kernel: {}", format_args!($($argument)*));
    }};
}
