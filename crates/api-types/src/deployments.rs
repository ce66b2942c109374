//! What a fleet should run, and who may decide that.

use crate::FleetTrouble;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// All deployments of a fleet.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetDeployments {
    /// The fleet's id.
    pub fleet: String,
    /// The node whose view this is: an anchor, if one answers.
    pub told_by: String,
    #[serde(rename = "anchor")]
    pub is_anchor: bool,
    pub deployments: Vec<FleetDeployment>,
}

/// A deployment of a fleet, and how far each node is with it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetDeployment {
    pub name: String,
    /// Counts its changes. An order names the one that it was made from.
    pub serial: u64,
    /// Which form of it holds.
    pub revision: u64,
    /// Revisions that can be gone back to, the last one first.
    pub earlier: Vec<u64>,
    /// The name of the key that ordered it.
    pub deployer: String,
    /// When, in seconds since 1970, by the anchor's clock.
    pub made_s: u64,
    #[serde(rename = "removed")]
    pub is_removed: bool,
    pub functions: Vec<String>,
    /// The nodes that it is for.
    pub nodes: Vec<DeploymentNode>,
    /// The revision is on its way, step by step: see `revision` of each node.
    #[serde(default)]
    pub rollout: Option<FleetRollout>,
    /// The revision holds because a later one failed.
    #[serde(default)]
    pub returned: Option<FleetReturned>,
}

/// Where a deployment of a fleet has a function, and by what of its `place` that was decided.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetPlaced {
    pub deployment: String,
    /// What a node must have.
    #[serde(rename = "where")]
    pub terms: Vec<String>,
    /// A node or a label: of the nodes that fit, the nearest to it have the function.
    pub near: Option<String>,
    /// Milliseconds of the way there and back; a node that is farther does not fit.
    pub within_ms: Option<u64>,
    /// How many nodes have it: a number, or the fewest and the most, as `1..8`, between which it follows load.
    pub copies: Option<String>,
    /// Why there are as many copies as there are, where that follows load and has changed.
    pub scaled: Option<String>,
    /// Units that each of them keeps ready.
    pub warm: u32,
    /// What the function keeps something in: it is on one node, and does not move.
    pub keeps: Vec<String>,
    /// Those that have it; none: all that fit.
    pub nodes: Option<Vec<FleetPlacedNode>>,
}

/// A node that is to have a function.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetPlacedNode {
    /// Its id.
    pub id: String,
    pub name: String,
    /// Milliseconds of the way to what it is near to and back, as it was measured when the node was chosen.
    pub round_trip_ms: Option<f64>,
}

/// How far a new revision is on its way.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetRollout {
    /// From 1.
    pub step: usize,
    /// All nodes have it at the last one.
    pub steps: usize,
    /// The revision that all others have, and that is gone back to if this one fails.
    pub before: u64,
    /// How long each step is watched.
    pub watch_ms: u64,
}

/// A revision that was gone back from.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetReturned {
    pub revision: u64,
    /// What was seen of it.
    pub why: String,
}

/// How far a node is with a deployment.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeploymentNode {
    pub id: String,
    pub name: String,
    /// Whether it was heard of in the last seconds.
    #[serde(rename = "there")]
    pub is_there: bool,
    /// `waiting`: it has not said that it knows of it; `working`, `ready` or `failed`.
    pub stage: String,
    /// Which form it is to have.
    #[serde(default)]
    pub revision: u64,
    /// Those of its functions that are for this node.
    pub functions: Vec<String>,
    /// Why it failed.
    pub trouble: Option<FleetTrouble>,
}

/// What an anchor made of an order.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OrderTaken {
    /// Of the deployment.
    pub name: String,
    pub serial: u64,
    pub revision: u64,
}

/// One who may deploy to the fleet.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeployerInfo {
    pub name: String,
    /// Since when, in seconds since 1970.
    pub added_s: u64,
}

/// A deployer that is to be added.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeployerRequest {
    /// 1 to 32 of a-z, 0-9 and -.
    pub name: String,
}

/// A new deployer's key, the one time it is shown.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeployerCreated {
    /// Its holder may deploy to the whole fleet: it is as secret as a password.
    pub key: String,
}
