//! What kits in a building measure over a day, with the faults of real ones: the same seed gives the same messages.
//!
//! ```text
//!   Kits::new(seed) ──next(time)──▶ Message { topic, payload, fault }
//! ```
//! Nothing here knows the clock or the network: the time of each reading is given.
#![forbid(unsafe_code)]

mod kit;
mod random;
pub mod time;

pub use kit::{Fault, Kits, Message, Options};
pub use random::Random;
