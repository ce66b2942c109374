//! Calls from node to node: a call that enters at one node and runs at another, one hop away and never two.
//!
//! ```text
//!   gate ─▶ Link::choose ─▶ Link::send ══ HTTP/2 over mutual TLS 1.3 ══▶ Link::receive ─▶ Local::run
//!             ▲ Known          │ refused: another one, or here             │ judges the head: refuses before the body
//!             └── reports ◀────┴───────── with each reply ◀───────────────┘
//! ```
//! - [`fields`]: what travels beside a request and its reply · `known`: what was learned of others. Both are pure.
//! - `link`, `pool`, `pump`: the side that sends · `receive`: the side that runs a call
//! - `reports`: how busy every node is, every five seconds · `mail`: messages beside calls · `exchange`: the rest
//! - `silence`: machines that vanish without closing their connections
//! - [`Local`] is this node, [`Members`] is who is in the fleet: the link asks them and knows nothing else.
//!
//! **What is certain.** A call is sent to a second node only if the first one refused it or it was never sent, so that
//! nothing of it was done. In all other cases the caller gets L9121 and decides. A request that came by the link is
//! never sent on. Bodies are streamed with HTTP/2's windows; a window at most is kept of a body for a second try. A
//! caller that leaves resets the stream, and the far end drops what runs.
//!
//! Bounds are in [`limits`]; what is kept is counted in the node's budget.
#![forbid(unsafe_code)]

mod body;
mod counts;
mod exchange;
pub mod fields;
mod known;
pub mod limits;
mod link;
mod local;
mod mail;
mod pool;
mod pump;
mod receive;
mod reply;
mod reports;
mod rest;
mod room;
mod silence;

pub use body::{Arriving, CallBody, Fault};
pub use counts::Counts;
pub use exchange::whole;
pub use fields::Why;
pub use known::{Forecast, Neighbour, Undecided, Way, Weighed};
pub use link::{Link, Sent};
pub use local::{CameByLink, FarBody, FarCall, Local, Offers, Ran, RanAt};
pub use pool::Members;
pub use reply::FarReply;
