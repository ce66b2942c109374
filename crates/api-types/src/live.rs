//! What `GET /v1/live` sends: numbers that move, small enough for a thousand functions at once.

use crate::{FunctionStats, NodeInfo, TokenInfo, UnitInfo};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::ToSchema;

/// One line of the stream. The first line holds everything; in those that follow, a part that is missing and a row that
/// is missing are as they were.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct LiveLine {
    /// The node's clock, in milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// Whether the lists hold all rows there are: in the first line, and after something was removed.
    pub whole: bool,
    /// Milliseconds until the next line, about: 1,000, or 2,000 with more than 200 functions.
    pub every_ms: u64,
    /// Counts what was deployed or removed while somebody looks: when it changes, `/v1/functions` and `/v1/flow` have
    /// changed.
    pub deployed: u64,
    /// The token of the request, in lines that are whole.
    pub token: Option<TokenInfo>,
    /// The node at a glance, in lines that are whole, and now and then in others.
    pub node: Option<NodeInfo>,
    /// The values of the node that always change.
    pub now: LiveNow,
    /// The last hour of the whole node, where there is a new point of it; not for a token that is bound.
    pub hour: Option<HourInfo>,
    pub functions: Vec<LiveFunction<'static>>,
    pub queues: Vec<LiveQueue>,
    /// The units that exist now, if they were asked for.
    pub units: Option<Vec<UnitInfo>>,
    /// The function that was asked for.
    pub function: Option<FunctionTimes>,
}

/// A node, as it is now.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct LiveNow {
    pub uptime_seconds: u64,
    pub units_running: usize,
    pub rss_bytes: u64,
}

/// The last hour, the oldest point first; less after a start.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct HourInfo {
    /// Milliseconds between points.
    pub every_ms: u64,
    /// Calls a second.
    pub calls: Vec<f64>,
    /// Calls that ended with a problem, a second.
    pub errors: Vec<f64>,
    /// Events done, a second.
    pub acked: Vec<f64>,
    /// Events that are ready or delayed.
    pub waiting: Vec<u64>,
    /// Dead letters.
    pub dead: Vec<u64>,
    pub units: Vec<u64>,
    /// Of the node's process, in RAM.
    pub memory_bytes: Vec<u64>,
}

/// A function, as it does now. Numbers of 0 are left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct LiveFunction<'a> {
    pub function: Cow<'a, str>,
    pub version: u32,
    pub isolation: Cow<'a, str>,
    #[serde(skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// Calls that ended with a problem.
    #[serde(skip_serializing_if = "is_zero")]
    pub errors: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub running: u64,
    /// Calls that wait for their turn.
    #[serde(skip_serializing_if = "is_zero")]
    pub waiting: u64,
    /// The queue it handles, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Cow<'a, str>>,
    /// Of the whole time of a call, in whole microseconds, since the node started.
    #[serde(skip_serializing_if = "is_zero")]
    pub p50_us: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub p99_us: u64,
}

/// A queue, as it is now, counted as in `/v1/queues`. Numbers of 0 are left out, and what is false.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct LiveQueue {
    pub name: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<LiveHandler>,
    #[serde(skip_serializing_if = "is_zero")]
    pub ready: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub delayed: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub leased: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub damaged: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub dead: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// Since when the oldest ready event has been ready, in milliseconds since 1970-01-01 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<u64>,
    #[serde(skip_serializing_if = "is_zero")]
    pub pushed: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub acked: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub retried: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub died: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub refused: u64,
}

/// What handles a queue, as in `/v1/queues`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LiveHandler {
    /// `function` or `sink`, or `node` where the queue is at home.
    pub kind: String,
    pub name: String,
    pub workers: u32,
    pub workers_max: u32,
    /// Why its workflow has ended, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// One function's numbers, and how its times are spread.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FunctionTimes {
    #[serde(flatten)]
    pub stats: FunctionStats,
    /// Of the whole time of its calls since the node started: the least microseconds of a bucket, and how many calls
    /// are in it. A bucket reaches to the next one of eight for each doubling; empty ones are left out.
    #[schema(value_type = Vec<Vec<u64>>)]
    pub histogram: Vec<(u64, u64)>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
