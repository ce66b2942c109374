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
//! Neither trait is believed further than it says. A read may be old, so nothing is decided by one: a decision is
//! [`Facts::set`] with the revision that it was made from. A message may be lost, doubled or late, and mail has its own
//! numbers. So the loss of a whole engine loses nothing that nodes have on their disks.
//!
//! No clock, no disk and no socket is in here; [`checks`] has what every implementation must do.
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
