//! The node's part in a fleet: what it is told at the start, what stands on it, and what it shows of it.

pub mod engine;
mod look;

pub use look::{PLACES_MAX, places, proof, why};

use crate::Node;
use crate::config::Config;
use crate::deployments::{Deployments, Parts};
use crate::link::CallLink;
use crate::mail::{Book, Mail};
use api_types::{FleetAnchor, FleetEngine, FleetInfo, FleetKnocking, FleetShown, FleetTrouble};
use engine::{EngineStatus, EngineWay, ForEngine};
use fleet_agent::{Agent, ApiPlace, Directory, Part, Settings, Shown, Status, outward};
use fleet_link::Members;
use fleet_trust::anchor::Knocking;
use fleet_trust::digits::Digits;
use fleet_trust::link::KNOCK_TIMEOUT;
use fleet_trust::{Address, Clock, NodeId, Token, Trust};
use problem::{Code, Problem};
use std::future::ready;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// Says where the node's API listens, once it does: devices that reach the fleet are told. Where the API has a name of
/// its own (`--api-name`), that is told, because a certificate is for a name.
pub fn tell_api(node: &Node, listening: SocketAddr, is_tls: bool) {
    let scheme = if is_tls { "https" } else { "http" };
    let name = node.config.api_names.first().map(|name| name.to_ascii_lowercase());
    node.fleet.tell_api(ApiPlace { scheme, listening, name });
}

/// A day that is surely past, in seconds since 1970: 23 November 2026. Clocks that stand before it are wrong.
const PAST: u64 = 1_795_392_000;

/// How long a node whose part in the fleet could not begin waits before it tries again.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// The part of a node that has this configuration. It does nothing before it is opened.
pub(crate) fn agent(config: &Config) -> Agent {
    Agent::new(Settings {
        folder: config.data.join("fleet"),
        listen: config.fleet.listen,
        address: config.fleet.address.clone(),
        name: config.fleet.node_name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clock: Clock::system(PAST),
        seek: None,
        outward,
    })
}

/// Has calls and mail carried, and the engine opened, in each fleet that the node becomes a part of. Call this before
/// that. `open` gives none if there is no engine to be had; then calls and mail are carried all the same.
pub fn take_part(node: &Arc<Node>, open: impl Fn(ForEngine) -> Option<Arc<dyn EngineWay>> + Send + Sync + 'static) {
    let weak = Arc::downgrade(node);
    tokio::spawn(follow_role(weak.clone()));
    node.fleet.on_part(move |Part { trust, anchor, directory, calls, engine }| {
        let Some(node) = weak.upgrade() else { return Box::pin(ready(())) };
        node.set_engine(open(ForEngine { trust: trust.clone(), anchor: anchor.clone(), arrivals: engine }));
        let own = (trust.node(), directory.own_name());
        let listed = Arc::new(Listed { directory: directory.clone(), trust: trust.clone() });
        let post = node.engine().map(|engine| engine.post());
        // Before the link: others may have mail for this node at once.
        match Mail::start(&node, own, listed.clone(), post) {
            Ok(mail) => node.events.set_mail(Some(mail)),
            Err(problem) => tracing::error!("no mail goes out or in: {} {}", problem.code, problem.detail),
        }
        Box::pin(async move {
            let folder = node.config.data.join("fleet");
            let parts = Parts { trust: trust.clone(), directory, anchor, folder };
            let deployments = Deployments::open(&node, parts).await.inspect_err(|problem| {
                tracing::error!("no part in the fleet's deployments: {} {}", problem.code, problem.detail);
            });
            let link = CallLink::start(&node, trust, listed, deployments.ok(), calls);
            node.set_link(Some(Arc::new(link)));
        })
    });
}

/// A node that has become an anchor, or is none any more, leaves its part in the fleet and takes it anew.
async fn follow_role(weak: Weak<Node>) {
    while let Some(node) = weak.upgrade() {
        let role = node.fleet.role();
        drop(node);
        role.changed().await;
        let Some(node) = weak.upgrade() else { return };
        end(&node).await;
        drop(node);
        take_part_again(&weak).await;
    }
}

/// Until it has a part again: a full disk may have room later.
async fn take_part_again(weak: &Weak<Node>) {
    let mut told = None;
    while let Some(node) = weak.upgrade() {
        let Err(problem) = node.fleet.again().await else { return };
        drop(node);
        if told.replace(problem.code) != Some(problem.code) {
            tracing::error!("no part in the fleet yet: {} {}", problem.code, problem.detail);
        }
        sleep(AGAIN_AFTER).await;
    }
}

/// Makes members anchors beside this one.
///
/// # Errors
/// [`Code::NoFleet`], [`Code::NotAnchor`]; as [`Agent::appoint`].
pub async fn appoint(node: &Arc<Node>, which: &[String]) -> Result<Vec<FleetAnchor>, Problem> {
    if !node.fleet.status()?.is_anchor {
        return Err(Problem::new(Code::NotAnchor, "this node is a member of its fleet, and no anchor"));
    }
    let deployments = node.link().and_then(|link| link.deployments().cloned());
    let estate = deployments.map(|deployments| deployments.estate()).transpose()?.unwrap_or_default();
    let appointed = node.fleet.appoint(which, estate).await?;
    Ok(appointed.into_iter().map(|(id, name)| FleetAnchor { id: id.to_string(), name }).collect())
}

/// Nothing more goes to other nodes, or comes from them.
pub async fn end(node: &Node) {
    node.events.set_mail(None);
    node.set_link(None);
    if let Some(engine) = node.engine() {
        engine.end().await;
    }
    node.set_engine(None);
    node.access.set_shared(None);
    node.fleet.end();
}

impl Book for Listed {
    fn find(&self, name_or_id: &str) -> Option<NodeId> {
        let id = NodeId::read(name_or_id);
        let others = self.directory.others();
        // A name may look like another node's id.
        if let Some(row) = others.iter().find(|row| Some(row.node) == id) {
            return Some(row.node);
        }
        let mut called = others.iter().filter(|row| row.record.name == name_or_id);
        called.next().filter(|_| called.next().is_none()).map(|row| row.node)
    }

    fn name(&self, node: &NodeId) -> Option<String> {
        Members::name(self, node)
    }

    fn all(&self) -> Vec<NodeId> {
        Members::others(self)
    }

    fn is_out(&self, node: &NodeId) -> bool {
        self.trust.is_revoked(node)
    }
}

/// The members, as the link asks for them.
struct Listed {
    directory: Directory,
    trust: Arc<Trust>,
}

impl Members for Listed {
    fn others(&self) -> Vec<NodeId> {
        self.directory.others().into_iter().map(|row| row.node).collect()
    }

    fn address(&self, node: &NodeId) -> Option<Address> {
        self.directory.record(node)?.address
    }

    fn name(&self, node: &NodeId) -> Option<String> {
        Some(self.directory.record(node)?.name)
    }
}

/// Leaves the fleet: no calls go to other nodes or come from them any more, and the node is alone.
///
/// # Errors
/// As [`Agent::leave`]; then nothing has changed.
pub async fn leave(node: &Node) -> Result<String, Problem> {
    let fleet = node.fleet.leave().await?;
    end(node).await;
    if let Err(problem) = node.gate_node.far.forget_others(node.events.state(), |_| false) {
        tracing::warn!(%problem, "what other nodes wanted by MQTT is forgotten later");
    }
    Ok(fleet)
}

/// Reads an invitation.
///
/// # Errors
/// [`problem::Code::InvitationGarbled`].
pub fn read_token(text: &str) -> Result<Token, Problem> {
    Ok(Token::read(text)?)
}

/// Reads where an anchor listens.
///
/// # Errors
/// [`Code::Usage`].
pub fn read_address(text: &str) -> Result<Address, Problem> {
    Address::read(text).ok_or_else(|| {
        Problem::new(Code::Usage, format!("{text:?} is no address of an anchor"))
            .with_hint("give HOST:PORT, such as 192.168.1.2:8702")
    })
}

/// Reads digits that a person types.
///
/// # Errors
/// [`Code::Usage`].
pub fn read_digits(text: &str) -> Result<Digits, Problem> {
    Digits::read(text).ok_or_else(|| {
        Problem::new(Code::Usage, format!("{text:?} are no digits that a node shows"))
            .with_hint("type the six digits that the new node shows, such as 123456")
    })
}

/// What the API says of a node that waits to be let in.
pub fn shown(shown: Shown) -> FleetShown {
    let Shown { fleet, anchor, name, digits } = shown;
    let seconds = KNOCK_TIMEOUT.as_secs();
    FleetShown { fleet, anchor: anchor.to_string(), name, digits: digits.to_string(), seconds }
}

/// The same, on the anchor.
pub fn knocking(knocking: Knocking) -> FleetKnocking {
    FleetKnocking { id: knocking.node.to_string(), name: knocking.name }
}

/// What the API says of a fleet.
pub fn describe(node: &Node, status: Status) -> FleetInfo {
    let Status { name, fleet, is_anchor, rows, trouble, is_doubled } = status;
    let engine = node.engine().map(|engine| engine.status());
    let engine = engine.map(|EngineStatus { is_connected, process, trouble }| FleetEngine {
        connected: is_connected,
        process,
        trouble: trouble.map(in_words),
    });
    let (link, mail) = (node.link(), node.events.mail());
    let copies = link.as_ref().map(|link| look::copies(node, link, &rows)).unwrap_or_default();
    let member = |row| look::member(node, (link.as_deref(), mail.as_deref()), row);
    let nodes = rows.into_iter().map(member).collect();
    let trouble = trouble.map(in_words);
    FleetInfo { name, id: fleet.to_string(), anchor: is_anchor, nodes, copies, trouble, engine, doubled: is_doubled }
}

fn in_words(problem: Problem) -> FleetTrouble {
    FleetTrouble {
        code: problem.code.to_string(),
        detail: problem.detail.into_owned(),
        hint: problem.hint.into_owned(),
    }
}
