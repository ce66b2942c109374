//! What became of events: each handling that the node remembers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One handling of an event: a try, and what became of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HandlingInfo {
    /// Of the event.
    pub id: String,
    pub source: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub queue: String,
    /// Its place in the queue; another one for each try.
    pub sequence: u64,
    /// The function that handled it, and its version; none of a sink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Which try it was, from 1.
    pub attempt: u32,
    /// When the event came into the queue, in milliseconds since 1970-01-01 UTC.
    pub pushed_ms: u64,
    /// When the handling began.
    pub began_ms: u64,
    /// From then to its end.
    pub total_us: u64,
    /// Where the time went, if a unit had it: waiting for its turn, starting, running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_us: Option<u64>,
    /// `done`, `retry` (it is tried again), `dead`, `postponed` (no try was counted), or `lost` (the lease had ended,
    /// and the event was another handling's).
    pub outcome: String,
    /// Why it was not done: a code and a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_ms: Option<u64>,
    /// The event in whose handling this one was pushed, where it is among those that are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed_by: Option<String>,
}
