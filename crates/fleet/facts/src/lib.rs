//! What a fleet has agreed on, and how its nodes send each other mail: two traits, whatever engine stands behind them.
//!
//! ```text
//!            planner · homes · rollouts                   outbox · inbox (crates/fleet/mail)
//!                       │                                          │
//!   Facts: get, list, watch, set if unchanged              Post: send, receive
//!                       └──────────┬───────────────┬───────────────┘
//!                               Memory         Simulated           NATS (crates/fleet/nats)
//!                             (for tests)   (away, forgetful)
//! ```
//! Neither trait promises more than it says. A read may be old, so no decision rests on one: a decision is
//! [`Facts::set`] with the revision that it was made from. A message may be lost, doubled or late, so mail has numbers
//! of its own. If a whole engine is lost, nothing is lost that nodes have on their disks.
//!
//! This crate has no clock, no disk and no socket; [`checks`] has what every implementation must do.
#![forbid(unsafe_code)]

pub mod checks;
mod key;
mod memory;
mod ready;
mod simulated;
mod traits;

pub use key::{Key, NodeName, Prefix, Writer};
pub use memory::{Memory, MemoryNode};
pub use ready::{at_once, wait};
pub use simulated::{Faults, Simulated, SimulatedNode};
pub use traits::{
    Answer, Fact, Facts, Heard, MESSAGE_BYTES_MAX, News, NotSent, NotSet, Post, Revision, Unavailable, VALUE_BYTES_MAX,
    Watch,
};
