//! The node: functions that answer, within their limits, those who may call them.
//!
//! In reading order:
//! - [`options`], [`config`]: what it was told · `open`: what is kept on disk, opened
//! - [`gate`]: where requests come in · `serve`, `event`, `body`: a request made into work · [`call`]: the hot path
//! - [`events`]: the door for events, and who handles them
//! - [`fleet`]: other nodes · [`link`]: calls that run there, and theirs that run here · [`mail`]: events for them
//! - [`deployments`]: what the fleet is to run, and this node's share of it
//! - [`mqtt`]: the MQTT gate · [`functions`]: what is deployed, made ready, swapped
//! - [`Class`]: what an isolation class brings · [`registry`]: the classes there are
//! - [`access`]: tokens, secrets, the guard · [`log`], [`metrics`], [`traces`]: what can be seen of it all
//! - `backup`: all of it at one instant, on its way out
//!
//! Its life (start, serve, drain, end) is the program's, `lighter`; its API is `api`.
#![forbid(unsafe_code)]

mod access;
mod asker;
pub mod audit;
mod backup;
pub mod body;
mod call;
mod calls;
mod class;
pub mod clock;
pub mod compiler;
pub mod config;
mod decisions;
pub mod deployments;
mod describe;
mod drain;
mod event;
pub mod events;
pub mod fleet;
mod functions;
pub mod gate;
mod hour;
mod ids;
mod later;
mod life;
pub mod link;
mod live;
mod log;
pub mod mail;
mod memory;
pub mod metrics;
pub mod mqtt;
mod open;
pub mod options;
mod pace;
mod records;
mod registry;
mod results;
mod serve;
mod sinks;
pub mod starts;
pub mod timers;
mod timing;
mod traces;

pub use access::{Guard, SECRET_BYTES_MAX};
pub use backup::BackupPieces;
pub use call::{Failed, Incoming};
pub use class::{Class, ClassMemory, Header};
pub use event::hide_token;
pub use fleet_agent::Row;
pub use functions::{Claim, Steps, Table, TableEntry, blocking};
pub use live::LiveNumbers;
pub use log::{FOLLOWERS_MAX, Follower};
pub use open::Opening;
pub use pace::Pace;
pub use serve::{ReplyBody, Wanted, reply_to_event, serve};
pub use traces::HEADER as TRACEPARENT;

use access::Access;
use api_types::identity::Identity;
use audit::Audit;
use body::BodyRoom;
use budget::Budget;
use calls::Calls;
use config::Config;
use decisions::Decisions;
use events::Events;
use fleet::engine::EngineWay;
use fleet_agent::Agent;
use functions::Functions;
use hour::Hour;
use link::CallLink;
use log::Logs;
use metrics::Counters;
use mqtt::{GateNode, Mqtt};
use parking_lot::RwLock;
use results::ResultIds;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::watch;
use traces::Traces;

/// Everything a request may need, shared by the gate and the API.
pub struct Node {
    pub config: Config,
    pub functions: Arc<Functions>,
    pub events: Arc<Events>,
    pub access: Access,
    pub audit: Arc<Audit>,
    /// This node's part in a fleet, if it belongs to one.
    pub fleet: Agent,
    pub logs: Arc<Logs>,
    /// What devices tell of where they ran their calls.
    pub decisions: Decisions,
    /// The last hour, for small lines.
    pub hour: Hour,
    pub traces: Option<Arc<Traces>>,
    /// What the node may hold for others, of all that follows here and of units.
    pub budget: Arc<Budget>,
    pub bodies: Arc<BodyRoom>,
    pub result_ids: ResultIds,
    /// Requests of the gate that reached no function.
    pub strays: Counters,
    pub started: Instant,
    /// Whether calls come just now.
    pub calls: Arc<Calls>,
    /// Runs before this one that ended soon and badly, one after the other.
    pub short_runs: u32,
    /// The MQTT gate, once it has started; none without one.
    pub mqtt: OnceLock<Arc<Mqtt>>,
    /// What MQTT keeps in this node, and what crosses to others: there without a gate, too.
    pub gate_node: Arc<GateNode>,
    /// None in a node that belongs to no fleet.
    link: RwLock<Option<Arc<CallLink>>>,
    engine: watch::Sender<Option<Arc<dyn EngineWay>>>,
    gate_url: OnceLock<String>,
    /// Once the API listens.
    identity: OnceLock<Identity>,
    stopping: watch::Sender<Option<Then>>,
    is_draining: AtomicBool,
}

/// What comes after a node that was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    End,
    Again,
}

impl Node {
    /// Asks the node to end.
    pub fn stop(&self) {
        self.stopping.send_replace(Some(Then::End));
    }

    /// Asks the node to end, and its program to begin again in the same process: by its file, which may be another one
    /// by then.
    pub fn restart(&self) {
        self.stopping.send_replace(Some(Then::Again));
    }

    /// Whether the program is to begin again when the node has ended.
    pub fn restarts(&self) -> bool {
        *self.stopping.borrow() == Some(Then::Again)
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.borrow().is_some()
    }

    /// Address of the gate, as `http://127.0.0.1:8700`; empty before it listens.
    pub fn gate_url(&self) -> &str {
        self.gate_url.get().map_or("", String::as_str)
    }

    /// The answer to who asks whether this is the node of its data folder.
    pub fn proof(&self, nonce: &str) -> String {
        self.identity.get().map_or_else(String::new, |identity| identity.proof(nonce))
    }

    /// The way of calls to other nodes and from them, if there is one.
    pub fn link(&self) -> Option<Arc<CallLink>> {
        self.link.read().clone()
    }

    /// From now on calls may run on other nodes, and theirs here; with none no more.
    pub fn set_link(&self, link: Option<Arc<CallLink>>) {
        *self.link.write() = link;
    }

    /// The engine of the node's fleet; none in a node that belongs to none.
    pub fn engine(&self) -> Option<Arc<dyn EngineWay>> {
        self.engine.borrow().clone()
    }

    /// Tells when the node gets an engine, or has none any more.
    pub fn engines(&self) -> watch::Receiver<Option<Arc<dyn EngineWay>>> {
        self.engine.subscribe()
    }

    /// From now on this is the engine. Whoever takes it away ends it.
    pub fn set_engine(&self, engine: Option<Arc<dyn EngineWay>>) {
        self.engine.send_replace(engine);
    }

    /// Says where the gate listens, once it does.
    pub fn set_gate_url(&self, url: String) {
        self.gate_url.set(url).ok();
    }

    /// Says how the node proves who it is, once its API listens.
    pub fn set_identity(&self, identity: Identity) {
        self.identity.set(identity).ok();
    }

    /// Returns when somebody has asked the node to end.
    pub async fn stop_wanted(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives as long as the node.
        stopping.wait_for(Option::is_some).await.ok();
    }
}
