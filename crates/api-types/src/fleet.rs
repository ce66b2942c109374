//! A fleet: its nodes, and what is asked of it.

use crate::FleetPlaced;
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
    /// Functions that keep nothing, by name, and which of the nodes that this one hears of have a copy.
    #[serde(default)]
    pub copies: Vec<FleetCopies>,
    /// What keeps this node from its fleet; none if nothing does.
    pub trouble: Option<FleetTrouble>,
    /// The fleet's engine, as this node reaches it; none if the system let it open none.
    pub engine: Option<FleetEngine>,
    /// Whether another machine had this node's key, and was refused, in the last hour.
    pub doubled: bool,
}

/// The copies of a function that keeps nothing: a call may run at any of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetCopies {
    pub function: String,
    /// Ids of the nodes that have it and take calls of it from others.
    pub nodes: Vec<String>,
}

/// The nodes of a fleet that a device can call.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetPlaces {
    /// Name of the fleet.
    pub fleet: String,
    /// Its id, in hexadecimal digits.
    pub id: String,
    /// Up to 256: the node that answers first, then those that were heard of last.
    pub places: Vec<FleetPlace>,
}

/// A node that a device can call.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetPlace {
    /// Its id, in hexadecimal digits.
    pub id: String,
    pub name: String,
    pub this_node: bool,
    /// Its API, as `https://pi-7.example.org:8701`.
    pub api: String,
    /// How long ago it was heard of: less than 30 seconds.
    pub heard_ms: u64,
    /// Up to 256 of its functions that can be called from other nodes, and that the asker's token is for.
    pub functions: Vec<String>,
}

/// What keeps the facts of a fleet and its mail: nats-server on an anchor.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetEngine {
    /// Whether this node is connected to it.
    pub connected: bool,
    /// Its process, where this node runs it and it is up.
    pub process: Option<u32>,
    /// What keeps this node from it; none if nothing does, or if it has only just been started.
    pub trouble: Option<FleetTrouble>,
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
    /// Events that wait on the node that says this, until the disk of this one has them.
    #[serde(default)]
    pub mail_waiting: u64,
    /// How it was when it last said so; none of this node, and of nodes that cannot be reached or that it does not ask.
    pub load: Option<FleetLoad>,
    /// The functions there that other nodes can send calls to.
    pub functions: Vec<String>,
}

/// How another node is, as this node knows it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct FleetLoad {
    /// Milliseconds of the way there and back.
    pub round_trip_ms: f64,
    /// Milliseconds until a call that comes there now begins to run.
    pub wait_ms: f64,
    /// Calls that it runs at once.
    pub places: u32,
    /// How fast it is, by its own word.
    pub speed: f64,
    /// Calls that entered here and ran there, since this node was started.
    pub calls: u64,
}

/// Why a call of a function that enters here runs where it runs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetWhy {
    pub function: String,
    pub rule: FleetRule,
    /// Id of the node where a call that comes now would run; none: nowhere.
    pub runs: Option<String>,
    /// What a call is expected to take at each node that may run it and was heard, the soonest first.
    pub forecasts: Vec<FleetForecast>,
    /// Nodes that have a function of this name, and get no call of it.
    pub others: Vec<FleetOther>,
    /// Where the fleet has put it; none: no deployment of the fleet has it, as far as this node knows.
    #[serde(default)]
    pub placed: Option<FleetPlaced>,
}

/// By what it is decided where a call runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FleetRule {
    /// It has no route that is answered at once: its work stays where it comes in.
    NoRoute,
    /// It is here and may use buckets or queues.
    KeepsHere,
    /// It is here, and no other node has the very same one.
    OnlyHere,
    /// It is here and elsewhere and keeps nothing: where it ends soonest. Another node has to be better by more than
    /// what a hop costs.
    Soonest,
    /// It is not here, and keeps nothing: at that of the nodes with it where it ends soonest.
    SoonestElsewhere,
    /// It is not here, and may use buckets or queues: at the node with the least id, for every caller the same.
    KeepsElsewhere,
}

/// What a call is expected to take at a node.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetForecast {
    /// Its id.
    pub id: String,
    pub name: String,
    pub this_node: bool,
    /// Milliseconds of the way there and back.
    pub way_ms: f64,
    /// Milliseconds of the body's way.
    pub body_ms: f64,
    pub wait_ms: f64,
    pub run_ms: f64,
    pub total_ms: f64,
}

/// A node that gets no call of a function though it has one of this name.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetOther {
    /// Its id.
    pub id: String,
    pub name: String,
    pub reason: FleetReason,
}

/// Why a node gets no call of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FleetReason {
    /// Manifest or image differ.
    Different,
    /// The function keeps something, and another node is the one for it.
    Keeps,
    /// It was not heard, or could not be reached since.
    NotHeard,
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

/// A fleet that is to be joined without an invitation.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FleetKnock {
    /// Where an anchor listens, as `192.168.1.2:8702`. None: it is looked for in the networks around.
    #[serde(default)]
    pub at: Option<String>,
}

/// What a new node shows while it waits.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetShown {
    /// The fleet's name, as its anchor said it to whoever asks. None: the address was given.
    pub fleet: Option<String>,
    /// Where the anchor listens.
    pub anchor: String,
    /// The name that this node will have.
    pub name: String,
    /// Six digits. A person types them on the anchor.
    pub digits: String,
    /// How long they hold.
    pub seconds: u64,
}

/// Digits that a person has read.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FleetDigits {
    /// Six of them, with or without a space.
    pub digits: String,
}

/// A node that waits to be let in, or was let in just now.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetKnocking {
    /// Its id, in hexadecimal digits.
    pub id: String,
    /// The name that it says.
    pub name: String,
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

/// What still runs on a node that takes nothing new any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetDrain {
    /// Calls and events that have a unit.
    pub running: u32,
    /// Those that wait for one.
    pub waiting: u32,
    /// Queues of which an event is being handled.
    pub queues: usize,
}

/// What a node has left.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetLeft {
    /// The fleet.
    pub name: String,
}

/// Members that are to be anchors.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FleetAnchors {
    /// Of each its id, the beginning of its id, or its name.
    pub nodes: Vec<String>,
}

/// A node that is an anchor now, or was one.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FleetAnchor {
    pub id: String,
    pub name: String,
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
