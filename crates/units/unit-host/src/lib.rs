//! What isolation classes share, so that each of them is only about isolation.
//!
//! ```text
//!   attempt ──▶ the class takes a unit (Pool, Roster) and hands it the event
//!                  │ what the unit asks meanwhile, as frames
//!                  ▼
//!               Answers ──▶ the Host of the attempt, and the unit's Output
//! ```
//! A class whose units are on the other side of a wire begins at [`run`], which makes an attempt's [`Meter`] and its
//! [`Answers`](calls::Answers). A class turns these types into its own.
#![forbid(unsafe_code)]

mod attempt;
pub mod calls;
mod desk;
pub mod kernel;
mod meter;
pub mod pool;
mod roster;

pub use attempt::{Attempt, answers, run};
pub use desk::{AtWork, Desk};
pub use meter::{Meter, time_exceeded};
pub use roster::{Roster, RosterEntry};
