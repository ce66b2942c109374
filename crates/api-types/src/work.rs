//! Work of workers outside of the node: events leased, renewed, acked and failed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a worker asks for.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LeaseRequest {
    /// Events at most, 1 to 100. Default 1.
    #[schema(minimum = 1, maximum = 100)]
    pub count: Option<u32>,
    /// How long it may have them before they are another's, in milliseconds: 1,000 to 3,600,000. Default 30,000.
    #[schema(minimum = 1_000, maximum = 3_600_000)]
    pub lease_ms: Option<u64>,
    /// How long the answer may wait for a first event, in milliseconds, up to 60,000. Default 0.
    #[schema(maximum = 60_000)]
    pub wait_ms: Option<u64>,
}

/// The oldest events that were ready; none if there were none in time.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LeaseReply {
    pub leases: Vec<LeasedEvent>,
}

/// An event that is the worker's until the lease ends.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LeasedEvent {
    /// Name of the lease, for the token that took it alone. Never used again.
    pub lease: String,
    /// How long it lasts from now.
    pub lease_ms: u64,
    /// Which try this is, from 1.
    pub attempt: u32,
    /// Milliseconds since 1970-01-01 UTC.
    pub pushed_ms: u64,
    /// The event in the JSON of CloudEvents 1.0. Data of more than 64 levels stands there in base64.
    #[schema(value_type = Object)]
    pub event: serde_json::Value,
}

/// Which lease ends later.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    pub lease: String,
    /// How long from now, as of the lease; a day after it was taken it ends all the same. Default 30,000.
    #[serde(default)]
    #[schema(minimum = 1_000, maximum = 3_600_000)]
    pub lease_ms: Option<u64>,
}

/// Whose event is handled.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AckRequest {
    pub lease: String,
}

/// Whose event could not be handled, and why.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailRequest {
    pub lease: String,
    /// Kept with the event, up to 512 characters.
    #[serde(default)]
    pub reason: String,
    /// It can never be handled: a dead letter at once.
    #[serde(default)]
    pub dead: bool,
    /// Try again after this time at the earliest, in milliseconds, up to 86,400,000.
    #[serde(default)]
    #[schema(maximum = 86_400_000)]
    pub after_ms: Option<u64>,
}

/// What became of an event that failed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FailReply {
    /// When it is ready again, in milliseconds since 1970-01-01 UTC; none of a dead letter.
    pub again_ms: Option<u64>,
}
