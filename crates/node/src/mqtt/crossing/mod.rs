//! MQTT in a fleet: what is published at one node reaches subscribers and triggers at all.
//!
//! ```text
//!   node B: subscriptions, triggers ─▶ tell ─▶ mail ═▶ node A: take ─▶ Far: what B wants
//!   node A: broker ─▶ GateNode::commit ─▶ letters for B, in the commit of the message
//!                                           └═ mail ═▶ node B: queue mqtt.fleet ─▶ take ─▶ broker ─▶ clients, triggers
//! ```
//! A message crosses once: what came from another node goes nowhere else. The commit that takes it at B acks its event
//! in the queue, so each is taken once. Retained messages that came from another node are forgotten when nobody here
//! subscribes to them any more, and are sent anew when somebody does.

mod far;
mod leaving;
mod letter;
mod take;
mod tell;
#[cfg(test)]
mod tests;
mod wanted;

pub use far::{Arrived, Far, Whose};
pub use leaving::Leaving;
pub use letter::{QUEUE, put_back};

use crate::Node;
use std::sync::Weak;

/// Has messages cross, until it is dropped or the node is gone.
pub async fn cross(node: Weak<Node>) {
    tokio::join!(tell::keep_telling(node.clone()), take::keep_taking(node));
}
