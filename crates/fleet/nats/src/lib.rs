//! Facts and post of a fleet over NATS JetStream, and the nats-server that an anchor runs.
//!
//! ```text
//!  a node                                  an anchor
//!  FleetEngine                             FleetEngine
//!    NatsNode: Facts, Post                   Engine: a thread that starts nats-server and starts it again
//!      │  each wait has an end                 │  its configuration is written, and read back
//!    EngineLink: one connection, watched     nats-server: KV_facts, anchors, mail_0 … mail_7
//!      └── tunnel: TLS of the fleet, a key ────┘  bound to this process: it ends when this one does
//!                  with the rights of the node
//! ```
//! The engine is asked in JetStream's own JSON over the plain client: see `docs/decisions/engine.md`.
#![forbid(unsafe_code)]

mod agreed;
mod api;
mod bucket;
mod cluster;
mod fleet;
mod keys;
mod link;
mod node;
mod post;
mod process;
mod pull;
mod rights;
mod streams;
mod taken;
mod tunnel;
mod watch;

pub use bucket::{FactBucket, NatsFacts};
pub use cluster::Cluster;
pub use fleet::{Anchoring, EngineReport, FleetEngine, Standing};
pub use keys::{Credentials, FleetKeys, KeysUnreadable};
pub use link::{EngineLink, LinkConfig, Servers};
pub use node::NatsNode;
pub use process::{Engine, EngineConfig, EngineState, Launcher, Program, Routes, Tls, find, launch};
pub use streams::{NotMade, StreamBounds, make_streams};
pub use taken::serve as purge_taken;
