//! Who may run now: how many calls of a function at once, how many wait for how long, and how fast they come.
//!
//! ```text
//!            rate?        a place?            a place on the node?
//! admit ──▶ [bucket] ──▶ [line: running | waiting …] ──▶ [line of the node] ──▶ Permit ──drop──▶ the next in line
//!              │ L3008       │ L3007, L3009                   │ L3010
//! ```
//! Every decision is made in [`WaitingLine`], which takes the time as a parameter and can be replayed. Around it
//! [`Admission`] is a thin shell: a short lock, and a timer for waiting calls. A call that finds a place takes two
//! locks and allocates nothing.
//!
//! ```
//! use dispatch::{Admission, Limits, NodeTurns};
//! use std::time::Duration;
//! use tokio::time::Instant;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let node = NodeTurns::new(1_000, 1_000);
//! let limits = Limits { running_max: 1, waiting_max: 0, wait_max: Duration::from_secs(1), rate: None };
//! let hello = Admission::new(limits, &node);
//!
//! let permit = hello.admit(Instant::now()).await.unwrap();
//! assert_eq!(hello.admit(Instant::now()).await.unwrap_err().code().to_string(), "L3007");
//! drop(permit);
//! assert!(hello.admit(Instant::now()).await.is_ok());
//! # }
//! ```
#![forbid(unsafe_code)]

mod admission;
mod bucket;
mod line;
mod refusal;

pub use admission::{Admission, NodeTurns, Permit};
pub use bucket::{Bucket, Rate};
pub use line::{Arrival, Counts, Limits, Ticket, WaitingLine};
pub use refusal::Refusal;
