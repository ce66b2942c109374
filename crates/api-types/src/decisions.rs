//! Where devices ran their calls, what they had expected and what it took.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a device reports about its calls, several at once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionReport {
    /// The device, as it calls itself: at most 64 bytes.
    pub device: String,
    /// At most 100.
    pub decisions: Vec<OffloadDecision>,
    /// Decisions that the device made since its last report and left out, because there were too many.
    #[serde(default)]
    pub left_out: u64,
}

/// Where one call ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OffloadDecision {
    /// Name of the function at the device.
    pub function: String,
    /// `local`, or the node's name at the device.
    pub place: String,
    /// Why there, in the device's words.
    #[serde(default)]
    pub why: String,
    /// Microseconds it was expected to take there.
    pub predicted_us: u64,
    /// Microseconds it took.
    pub actual_us: u64,
    /// Of the best other place: what was expected there; none if there was no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_us: Option<u64>,
    /// Milliseconds before the report when the call ended.
    #[serde(default)]
    pub ago_ms: u64,
}

/// A decision as the node keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DecisionInfo {
    /// When the call ended, by the node's clock, in milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    pub device: String,
    /// Name of the token that reported it.
    pub token: String,
    #[serde(flatten)]
    pub decision: OffloadDecision,
}

/// The decisions that the node knows.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct DecisionsInfo {
    /// The newest first.
    pub decisions: Vec<DecisionInfo>,
    /// Decisions since the node's start that were reported, and those that devices left out.
    pub told: u64,
    pub left_out: u64,
}
