//! A node's part in its fleet: it founds one or joins one, listens for other nodes, and knows which there are.
//!
//! ```text
//!   new, join ─▶ Agent ─▶ Active ─┬─ listens: strangers and members (`fleet-trust`)
//!                                 ├─ dials: anchors first, then members that do not dial themselves
//!                                 ├─ renews its certificate, keeps what it knows on disk
//!                                 └─ Table ◀─ hellos, every three seconds on each link ─▶ other nodes
//! ```
//! Without an invitation a node finds its anchor by the beacon, and a person compares digits (`beacon`, `knock`).
//!
//! A node that belongs to no fleet has an [`Agent`] and nothing else: no socket, no task, no folder.
//!
//! Certificates say who is a member. A member is believed about itself alone, an anchor about all nodes. [`table`]
//! keeps what they say, as pure code, and `hello` has the bytes: another way to spread the same facts replaces these
//! two files.
#![forbid(unsafe_code)]

mod active;
mod agent;
mod beacon;
mod dial;
mod hello;
mod knock;
mod known;
mod office;
mod places;
pub mod table;
mod talk;
mod turns;

pub use active::{ApiPlace, LINKS_IN_MAX, LINKS_OUT_MAX};
pub use agent::{Agent, Began, Directory, Part, Settings, Status};
pub use knock::Shown;
pub use office::Role;
pub use places::outward;
pub use table::Row;
