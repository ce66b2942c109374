//! What travels over the API, both ways. The node serves these, the command line reads them; nothing else is shared.

use manifest::{Function, Name};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Header with the id of a call, on every reply of the gate and the API.
pub const REQUEST_ID: &str = "x-request-id";

/// The node at a glance.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NodeInfo {
    pub version: String,
    /// Address of the HTTP gate, for instance `http://127.0.0.1:8700`.
    pub gate: String,
    pub data_folder: String,
    pub isolation: Vec<String>,
    pub functions: usize,
    pub units_running: usize,
    pub units_max: usize,
    pub uptime_seconds: u64,
    pub rss_bytes: u64,
    pub cores: usize,
    pub architecture: String,
    /// What compiled artefacts depend on: engine version, CPU, settings.
    pub engine: String,
}

/// A function as deployed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FunctionInfo {
    #[schema(value_type = String)]
    pub name: Name,
    /// The version that takes calls now.
    pub version: u32,
    /// Every version kept, newest first.
    pub versions: Vec<VersionInfo>,
    pub isolation: String,
    /// The contract it exports: `lighter:unit` or `wasi:http`.
    pub contract: String,
    pub routes: Vec<String>,
    /// URLs under which the gate serves it.
    pub urls: Vec<String>,
    pub units_running: usize,
    pub calls: u64,
    pub errors: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct VersionInfo {
    pub version: u32,
    /// SHA-256 of the image.
    pub image: String,
    pub image_bytes: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub deployed_ms: u64,
    #[schema(value_type = Object)]
    pub function: Function,
}

/// One line of the answer to a deployment; the last is `done` or `failed`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(tag = "step", rename_all = "lowercase")]
pub enum DeployStep {
    /// The image fits the contract and its imports are known.
    Checked { function: String, contract: String },
    /// Compiling ahead of time; JavaScript and Python images take several seconds.
    Compiling { function: String, image_bytes: u64 },
    /// The artefact is ready: compiled now, or kept from before.
    Compiled { function: String, milliseconds: u64, artefact_bytes: u64, kept: bool },
    /// A unit was started once, to see that it can.
    Started { function: String, microseconds: u64 },
    /// Nothing changed for this function: same image, same manifest.
    Unchanged { function: String, version: u32 },
    /// A `queue`, `sink` or `bucket` is as the manifest says; a `workflow` that had ended goes on.
    Configured { kind: String, name: String },
    /// All functions of the manifest answer with their new versions.
    Done { functions: Vec<FunctionInfo> },
    /// Nothing was changed.
    Failed {
        #[schema(value_type = Object)]
        problem: serde_json::Value,
    },
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct RollbackRequest {
    /// The version to go back to; by default the one before the current.
    pub version: Option<u32>,
}

/// A running unit.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct UnitInfo {
    pub unit: u64,
    pub function: String,
    pub version: u32,
    pub isolation: String,
    /// The call it serves; none while it waits to be used again.
    pub request_id: Option<String>,
    pub age_ms: u64,
    pub calls: u64,
}

/// One function's numbers since the node started.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FunctionStats {
    pub function: String,
    pub version: u32,
    pub calls: u64,
    pub running: u64,
    pub waiting: u64,
    /// Failed calls by error code.
    pub errors: std::collections::BTreeMap<String, u64>,
    pub total_us: Quantiles,
    pub queue_us: Quantiles,
    pub start_us: Quantiles,
    pub run_us: Quantiles,
}

/// Estimates from histogram buckets, in microseconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
pub struct Quantiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// Counts up by one within a function; a gap means lines were dropped.
    pub sequence: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// `trace`, `debug`, `info`, `warn` or `error`.
    pub level: String,
    pub function: String,
    pub version: u32,
    pub unit: u64,
    pub request_id: String,
    /// `log` (the contract's log), `stdout`, `stderr` or `node`.
    pub stream: String,
    pub message: String,
}

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Call functions and see metrics.
    Call,
    /// Also deploy, roll back, remove, read logs and dumps.
    Deploy,
    /// Also tokens, secrets and stopping the node.
    Admin,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TokenRequest {
    pub name: String,
    pub scope: Scope,
    /// Seconds until it ends; none: never.
    pub expires_seconds: Option<u64>,
}

/// A token as kept: without the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenInfo {
    pub name: String,
    pub scope: Scope,
    pub created_ms: u64,
    pub expires_ms: Option<u64>,
}

/// A new token, the one time its secret is shown.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    pub token: String,
    pub info: TokenInfo,
}
