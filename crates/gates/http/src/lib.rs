//! The HTTP gate: accepts connections, refuses malformed requests, and hands the others to the node.
//!
//! ```text
//!  socket ─▶ accept ─▶ TLS? ─▶ Guard ─────────▶ hyper ─▶ service ──▶ Handler (the node)
//!            limit             strict framing   HTTP/1    host, path, id    │ RouteTable::route
//!                              of HTTP/1        HTTP/2    access log        ▼
//!            ◀──────────────── watch: quiet, slow, draining ◀──────────── reply
//! ```
//! - [`routes`] and [`path`] decide where a request goes: pure functions, no I/O.
//! - [`http1`] reads the framing of HTTP/1 before hyper does, more strictly than hyper, so that no two readers can
//!   disagree about where a request ends.
//! - [`watch`] closes connections that are quiet or too slow, with one timer a connection and none a request.
//!
//! A request costs the gate no task and no timer of its own (HTTP/2 costs one task a stream, which hyper spawns).
//! `docs/http.md` has the gate's promises to users.
#![forbid(unsafe_code)]

mod accept;
mod access;
mod body;
mod config;
mod crowd;
mod frames;
mod gate;
mod host;
pub mod http1;
mod id;
mod line;
pub mod path;
mod peers;
mod reply;
mod room;
pub mod routes;
mod service;
mod watch;

pub use body::{BodyError, RequestBody};
pub use config::Config;
pub use gate::{Drained, Gate, Listener};
pub use gate_connections::Certificates;
pub use host::request_host;
pub use reply::{Handled, ReplyBody, problem_reply};
pub use routes::{Refusal, Route, RouteTable};
pub use service::{Arrival, Handler, Peer, Trust};
