//! What the kernel and whoever hosts it agree on: numbers, addresses and layouts. Nothing here does anything.
//!
//! ```text
//!   verbs    what a unit may ask of its host, by number; which of them it may ask
//!   layout   where what lies in a microvm's memory
//!   boot     the page by which the tender tells the kernel about itself
//!   exits    how the kernel leaves to its tender, and the page they talk over
//!   ring     log lines that wait for the next exit
//!   fields   which header fields of HTTP are not a unit's, and how large they may be
//!   engine   the settings of code that the node compiles and the kernel loads
//! ```
//! Used by the kernel (`kernel/`) and by the node (`crates/units/unit-microvm`), so that both are built from one text.
#![no_std]
#![forbid(unsafe_code)]

pub mod boot;
mod engine;
pub mod exits;
pub mod fields;
pub mod layout;
pub mod ring;
pub mod verbs;

pub use verbs::{Policy, Verb};

/// Changes with every change of what is written here: a snapshot of one version is nothing to another.
pub const VERSION: u32 = 3;
