//! A fleet: its nodes, and what is asked of it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The fleet of a node, as this node sees it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetInfo {
    pub name: String,
    /// The beginning of the hash of the fleet's CA, in hexadecimal digits.
    pub id: String,
    /// Whether this node is an anchor.
    pub anchor: bool,
    /// This node first.
    pub nodes: Vec<FleetNode>,
    /// What keeps this node from its fleet; none if nothing does.
    pub trouble: Option<FleetTrouble>,
    /// Whether another machine had this node's key, and was refused, in the last hour.
    pub doubled: bool,
}

/// A node of a fleet.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetNode {
    /// The beginning of the hash of its key, in hexadecimal digits.
    pub id: String,
    pub name: String,
    /// Where it listens for other nodes; none if it has not been heard of.
    pub address: Option<String>,
    pub anchor: bool,
    pub this_node: bool,
    pub version: Option<String>,
    /// How long ago it was heard of; none: not since this node was started.
    pub heard_ms: Option<u64>,
}

/// A problem that lasts.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetTrouble {
    /// As `L9105`.
    pub code: String,
    pub detail: String,
    pub hint: String,
}

/// A fleet that is to be founded.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FleetRequest {
    /// 1 to 32 of a-z, 0-9 and -.
    pub name: String,
}

/// A fleet that is to be joined.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    /// An invitation: `lighter-join-1.…`.
    pub token: String,
}

/// An invitation that is to be made.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InvitationRequest {
    /// How many nodes it lets in; 1 if it is not said.
    #[serde(default = "once")]
    pub times: u32,
    /// For how long; an hour if it is not said.
    #[serde(default = "hour")]
    pub seconds: u64,
}

/// A new invitation, the one time it is shown.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct InvitationCreated {
    /// Its holder may join: it is as secret as a password.
    pub token: String,
}

/// A node that was taken out of its fleet.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetRemoved {
    pub id: String,
    pub name: String,
}

fn once() -> u32 {
    1
}

fn hour() -> u64 {
    3_600
}
