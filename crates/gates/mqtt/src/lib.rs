//! The MQTT gate: a broker whose confirmations mean durable, and a bridge to another broker.
//!
//! ```text
//!  socket ─▶ client ─▶ broker (one lock, no I/O) ─▶ commit ─▶ node: records and events, together or not at all
//!               ▲                                     │ durable
//!               └── line ◀── what is to be sent ◀─────┘
//! ```
//! A message of QoS 1 or 2 is confirmed only when everything it caused is durable: the events in functions' queues, the
//! retained message, and the copies for sessions that outlive their connections. `docs/mqtt.md` has the exact promises,
//! and `docs/decisions/mqtt.md` says why this is a broker of our own.
#![forbid(unsafe_code)]

mod bell;
mod bridge;
pub mod broker;
mod client;
pub mod codec;
mod gate;
mod limits;
mod line;
mod node;
mod passwords;
mod peers;
mod secured;
pub mod topic;
mod users;

pub use bridge::{Bridge, BridgeConfig, BridgeCounts, PublishError, Secure};
pub use codec::{Qos, Version};
pub use gate::{Gate, Listener};
pub use gate_connections::Certificates;
pub use limits::{Limits, PACKET_BYTES_CEILING, SESSIONS_CEILING, TOPIC_BYTES_MAX, WhenFull};
pub use node::{Changes, Delivery, Node, Refused};
pub use users::{Identity, User, Users, hash_password};
