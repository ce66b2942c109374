//! What travels over the API, both ways. The node serves these, the command line reads them; nothing else is shared.
#![forbid(unsafe_code)]

mod audit;
mod decisions;
mod deployments;
mod fleet;
mod handlings;
pub mod identity;
mod live;
mod seen;
mod tokens;
mod work;

pub use audit::AuditEntry;
pub use decisions::{DecisionInfo, DecisionReport, DecisionsInfo, OffloadDecision};
pub use deployments::{
    DeployerCreated, DeployerInfo, DeployerRequest, DeploymentNode, FleetDeployment, FleetDeployments, FleetPlaced,
    FleetPlacedNode, FleetReturned, FleetRollout, OrderTaken,
};
pub use fleet::{
    FleetAnchor, FleetAnchors, FleetCopies, FleetDigits, FleetDrain, FleetEngine, FleetForecast, FleetInfo, FleetKnock,
    FleetKnocking, FleetLeft, FleetLoad, FleetNode, FleetOther, FleetPlace, FleetPlaces, FleetReason, FleetRemoved,
    FleetRequest, FleetRule, FleetShown, FleetTrouble, FleetWhy, InvitationCreated, InvitationRequest, JoinRequest,
};
pub use handlings::HandlingInfo;
pub use live::{FunctionTimes, HourInfo, LiveFunction, LiveHandler, LiveLine, LiveNow, LiveQueue};
pub use seen::SeenUnit;
pub use tokens::{Scope, TokenCreated, TokenInfo, TokenRequest};
pub use work::{AckRequest, FailReply, FailRequest, LeaseReply, LeaseRequest, LeasedEvent, RenewRequest};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use manifest::{Function, Name};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::ToSchema;

/// Header with the id of a call, on every reply of the gate and the API.
pub const REQUEST_ID: &str = "x-request-id";

/// The id of a request, for whoever handles it.
#[derive(Clone)]
pub struct RequestId(pub Arc<str>);

/// Proof that this is the node of its data folder.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct IdentityProof {
    /// HMAC-SHA256 in hexadecimal digits; docs/api.md says of what.
    pub proof: String,
}

/// What a backup is to hold. It has no `Debug`: a passphrase stands in no log.
#[derive(Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupRequest {
    /// What secrets and keys are sealed with. Without one they are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<String>,
}

/// The node at a glance.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NodeInfo {
    pub version: String,
    /// Address of the HTTP gate, for instance `http://127.0.0.1:8700`.
    pub gate: String,
    pub data_folder: String,
    /// Why all queues except some are paused; none if they are not.
    #[serde(default)]
    pub queues_paused: Option<String>,
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
    /// The base of process functions in Python; none before it was made, which the first deployment of one does.
    #[serde(default)]
    pub python: Option<PythonInfo>,
    /// Protections of process units that this system refuses; `jail` if there can be none at all. Without
    /// `--allow-weaker-jail` process functions do not run while this is not empty.
    #[serde(default)]
    pub missing_protections: Vec<MissingProtection>,
    /// The token of the request, and what it allows.
    #[serde(default)]
    pub token: Option<TokenInfo>,
}

/// A session of an MQTT client.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MqttSession {
    /// The client's id.
    pub client: String,
    /// None if the client gave no name.
    pub user: Option<String>,
    pub connected: bool,
    /// Whether it outlives its connection.
    pub kept: bool,
    /// When it ends, in milliseconds since 1970, while its client is away.
    pub expires_ms: Option<u64>,
    pub subscriptions: usize,
    /// Messages that wait in it, or are on their way.
    pub messages: usize,
    /// What all of it takes in memory, about.
    pub bytes: usize,
}

/// The base `python` of a node.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PythonInfo {
    /// As `3.11.7`.
    pub version: String,
    pub implementation: String,
    pub numpy: String,
    /// Versions of all packages, by name.
    pub packages: BTreeMap<String, String>,
    /// `lighterage.benchmark.speed()` on this machine, measured when the base was made.
    pub speed: f64,
}

/// A protection of process units that a system refuses.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MissingProtection {
    pub protection: String,
    pub why: String,
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
    /// The queue whose events it handles; none if only HTTP calls it.
    #[serde(default)]
    pub queue: Option<String>,
    /// What makes events for it, as `mqtt meter/+/power`, `every 10s`, `cron 0 7 * * *`.
    #[serde(default)]
    pub triggers: Vec<String>,
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

/// A queue, and what became of its events since the node started.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct QueueInfo {
    pub name: String,
    /// Whether its events wait until it is resumed.
    #[serde(default)]
    pub paused: bool,
    /// The function or sink that handles it; none if nothing does.
    pub handler: Option<HandlerInfo>,
    /// Events that can be handled now.
    pub ready: u64,
    /// Events that wait for their time: delayed, or to be tried again.
    pub delayed: u64,
    /// Events that are being handled.
    pub leased: u64,
    /// Events in damaged places of the disk, which cannot be read. They go when the queue is purged.
    #[serde(default)]
    pub damaged: u64,
    /// Dead letters.
    pub dead: u64,
    pub bytes: u64,
    /// For how long the oldest ready event has been ready.
    pub oldest_age_ms: Option<u64>,
    pub pushed: u64,
    pub acked: u64,
    pub retried: u64,
    pub died: u64,
    /// Events whose time to live was over before they were handled.
    pub expired: u64,
    pub duplicates: u64,
    /// Pushes refused for want of room.
    pub refused: u64,
    /// Leases that ended before their event was handled.
    pub leases_ended: u64,
    /// Dead letters that went because there were too many.
    pub dropped: u64,
    /// How it was configured, or the defaults.
    #[schema(value_type = Object)]
    pub configuration: manifest::Queue,
}

/// Which queues to pause or to resume.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    /// None for all queues, those to come among them.
    #[serde(default)]
    pub queues: Vec<String>,
}

/// Which queues are paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Paused {
    /// Whether all are, but for those in `but`; else none is, but for those.
    pub all: bool,
    pub but: Vec<String>,
}

/// What handles a queue.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HandlerInfo {
    /// `function`, `sink`, or `node`: its events go to another node of the fleet, which is its home.
    pub kind: String,
    pub name: String,
    /// Workers that take events now.
    pub workers: u32,
    /// Workers there may be at once; 0 pauses the queue.
    pub workers_max: u32,
    /// Handlings put off because the node could not do them.
    pub postponed: u64,
    /// Handlings undone because their lease had ended.
    pub lost: u64,
    /// Mean time of a handling, in microseconds.
    pub service_us: Option<u64>,
    /// Why its workflow has ended, if it has.
    pub ended: Option<String>,
}

/// Which events of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum QueuePart {
    Ready,
    Delayed,
    Dead,
}

/// What was pushed, once it is durable.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PushReply {
    pub queue: String,
    /// Ids of the events, in the order of the request.
    pub ids: Vec<String>,
    /// How many of them the queue had already.
    pub duplicates: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    pub events: Vec<EventInfo>,
    /// Pass it as `after` for the next page; none if this one is empty.
    pub next: Option<String>,
}

/// An event in a queue.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EventInfo {
    /// Its place in the queue, by which a dead letter is replayed.
    pub sequence: u64,
    /// How often it was tried.
    pub tries: u32,
    /// Milliseconds since 1970-01-01 UTC.
    pub pushed_ms: u64,
    /// When a delayed event is ready; when a dead letter died.
    pub at_ms: Option<u64>,
    /// Why it failed last: a code and a sentence.
    pub reason: Option<String>,
    /// The event in the JSON of CloudEvents 1.0. Data of more than 64 levels stands there in base64.
    #[schema(value_type = Object)]
    pub event: serde_json::Value,
}

/// A bucket of the store.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BucketInfo {
    pub name: String,
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Its bounds, where a manifest has set some.
    #[schema(value_type = Object)]
    pub bounds: manifest::Bucket,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct KeyPage {
    pub keys: Vec<KeyInfo>,
    /// Pass it as `after` to read on; none when this was the last page.
    pub next: Option<String>,
}

/// A key of a bucket: its value as text, or in base64 where it is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyInfo {
    pub key: String,
    /// Bytes of the value.
    pub bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

impl KeyInfo {
    pub fn new(key: String, value: Vec<u8>) -> Self {
        let bytes = value.len() as u64;
        match String::from_utf8(value) {
            Ok(text) => Self { key, bytes, value: Some(text), base64: None },
            Err(error) => Self { key, bytes, value: None, base64: Some(BASE64.encode(error.as_bytes())) },
        }
    }
}

/// What an import brought.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ImportReply {
    pub keys: u64,
    /// Lines left out because their time was over.
    pub expired: u64,
}

/// Which keys of a bucket to delete: these, or all that begin so.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteRequest {
    /// At most 1,000, in a request of at most 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
}

/// What was deleted.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct DeletedReply {
    pub deleted: Vec<String>,
    /// Keys that were named and are not there.
    pub missing: Vec<String>,
    /// Of a prefix: there are more keys than one request deletes.
    pub more: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RemovedReply {
    pub removed: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayRequest {
    /// Dead letters by their sequence; without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequences: Option<Vec<u64>>,
    /// Only those that died for a reason with this text in it, such as `L6003`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of a single one: text in place of its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The same for bytes, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// Only says how many would be replayed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Also replay those that were already replayed five times.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

impl ReplayRequest {
    /// The data that takes the place of the dead letter's.
    ///
    /// # Errors
    /// [`Code::ApiRequest`]: there is data for no or several letters, or twice, or no base64.
    pub fn edited(&self) -> Result<Option<Vec<u8>>, Problem> {
        let bad = |what: &str| Err(Problem::new(Code::ApiRequest, what.to_owned()));
        let one = self.sequences.as_ref().is_some_and(|sequences| sequences.len() == 1);
        match (&self.data, &self.data_base64) {
            (None, None) => Ok(None),
            _ if !one => bad("other data is for a single dead letter: name it in `sequences`"),
            (Some(text), None) => Ok(Some(text.clone().into_bytes())),
            (None, Some(text)) => BASE64.decode(text).map(Some).or_else(|_| bad("`data_base64` is no base64")),
            (Some(_), Some(_)) => bad("either `data` or `data_base64`"),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReplayReply {
    /// Or, of a dry run, how many would be.
    pub replayed: u64,
    /// Dead letters that were replayed five times before, and stay.
    #[serde(default)]
    pub stayed: u64,
}

/// A board: a machine that runs our kernel and nothing else.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct BoardInfo {
    pub name: String,
    /// The beginning of the key it signs with.
    pub id: String,
    /// `attested`: it has proved what it runs, and that is trusted. `distrusted`: it has not, or it is not. `heard`:
    /// its beacons arrive, and it could not be asked. `silent`: enrolled, and not heard for five seconds. `unknown`:
    /// heard, and nobody has enrolled it here.
    pub state: String,
    /// Why it is distrusted, or could not be asked.
    pub detail: Option<String>,
    /// The kind of board.
    pub machine: String,
    /// The beginning of its kernel's hash, as it says itself.
    pub kernel: Option<String>,
    pub address: Option<String>,
    pub heard_ms_ago: Option<u64>,
    pub architecture: Option<String>,
    pub memory_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    pub uptime_ms: Option<u64>,
    /// Calls it has answered since it started.
    pub runs: Option<u32>,
    /// What code it takes.
    pub formats: Vec<String>,
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
    pub errors: BTreeMap<String, u64>,
    /// The queue it handles, if it does.
    #[serde(default)]
    pub queue: Option<QueuedStats>,
    pub total_us: Quantiles,
    pub queue_us: Quantiles,
    pub start_us: Quantiles,
    pub run_us: Quantiles,
}

/// What waits for a function.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct QueuedStats {
    pub queue: String,
    /// Events that are ready, or delayed.
    pub waiting: u64,
    pub dead: u64,
    pub workers: u32,
    pub oldest_age_ms: Option<u64>,
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
