//! The engine of the node's fleet, as the rest of the node sees it: facts, post, and how it is.
//!
//! The program brings it (`crates/lighter/src/engine.rs`): the node knows no NATS. It is there while the node belongs
//! to a fleet; [`crate::Node::engines`] tells when that begins and ends. It is there while no anchor answers, too: then
//! each question is answered with "away", at once or within seconds, and nothing waits for it.

use facts::{Answer, Facts, NodeName, Post};
use fleet_trust::serve::MemberArrival;
use fleet_trust::{Anchor, Trust};
use problem::Problem;
use std::sync::Arc;
use tokio::sync::mpsc;

/// What whoever opens an engine gets of the node's part in its fleet.
pub struct ForEngine {
    pub trust: Arc<Trust>,
    /// If this node is one.
    pub anchor: Option<Arc<Anchor>>,
    /// Members that have connected for the engine; they come to anchors alone.
    pub arrivals: mpsc::Receiver<MemberArrival>,
}

/// See the top of this file.
pub trait EngineWay: Send + Sync {
    /// What this node is called in facts and mail: its id.
    fn name(&self) -> &NodeName;

    fn facts(&self) -> Arc<dyn Facts>;

    fn post(&self) -> Arc<dyn Post>;

    fn status(&self) -> EngineStatus;

    /// Waits until an anchor knows whether its engine runs, some seconds at most. Others have nothing to wait for.
    fn settle(&self) -> Answer<'_, ()>;

    /// Ends it, once. From then on each question is answered with "away".
    fn end(&self) -> Answer<'_, ()>;
}

/// How the way to the engine is.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineStatus {
    pub is_connected: bool,
    /// The engine's process, where this node runs one and it is up.
    pub process: Option<u32>,
    /// What keeps this node from the engine.
    pub trouble: Option<Problem>,
}
