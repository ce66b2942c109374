//! All that one node has of its fleet's engine: started with its part in the fleet, ended with it.
//!
//! ```text
//!  an anchor    Engine ◀─ Far ◀─ members         streams are made, once it is up
//!                 ▲
//!  every node   Near ◀─ EngineLink ◀─ NatsNode   or: EngineLink ─▶ the user's own cluster
//! ```
//! Nothing here is waited for: a node whose anchor is away has it all, and each question to it is answered with "away".

use crate::agreed::{Agreed, bucket, follow, servers};
use crate::bucket::{FactBucket, NatsFacts};
use crate::cluster::Cluster;
use crate::keys::{Credentials, FleetKeys};
use crate::link::{LinkConfig, Servers};
use crate::node::NatsNode;
use crate::process::{Engine, EngineConfig, EngineState, Launcher, Program, Routes};
use crate::streams::{NotMade, StreamBounds, make_streams};
use crate::taken;
use crate::tunnel::{Far, Near, RouteWay, Ways, name_of};
use facts::NodeName;
use fleet_trust::serve::MemberArrival;
use fleet_trust::{Address, Anchor, NodeId, Trust};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

/// Copies of everything with one anchor. With several each has one.
const ALONE: u64 = 1;
/// The first rest before the next connection. A thousand nodes that lost one anchor do not come back at once.
const REST_FIRST: Duration = Duration::from_millis(200);
const REST_MAX: Duration = Duration::from_secs(30);
/// Before streams that were not made are made again.
const STREAMS_PAUSE: Duration = Duration::from_secs(5);
/// How often several anchors look whether the streams are there: their servers may all have lost them.
const STREAMS_LOOK: Duration = Duration::from_secs(30);

/// A node's part in its fleet, as far as the engine needs it.
pub struct Standing {
    pub trust: Arc<Trust>,
    /// If this node is one.
    pub anchor: Option<Arc<Anchor>>,
    /// Members that have connected for the engine.
    pub arrivals: mpsc::Receiver<MemberArrival>,
}

/// How an anchor runs its engine.
pub struct Anchoring {
    /// Configuration, log and data of the engine.
    pub folder: PathBuf,
    /// Looks for the program.
    pub find: Arc<dyn Fn() -> Result<Program, Problem> + Send + Sync>,
    pub launcher: Launcher,
}

/// See the top of this file. Call [`FleetEngine::end`] before it is dropped: dropping waits for nats-server.
pub struct FleetEngine {
    name: NodeName,
    node: Arc<NatsNode>,
    near: Option<Near>,
    far: Mutex<Option<Arc<Far>>>,
    tasks: Vec<JoinHandle<()>>,
}

/// How a node's way to the engine is.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineReport {
    pub is_connected: bool,
    /// The nats-server of this node; none if it is no anchor, or needs none.
    pub server: Option<EngineState>,
    /// What keeps the node from the engine.
    pub trouble: Option<Problem>,
}

impl FleetEngine {
    /// Starts what a node has of the engine, on the present runtime. With a `cluster` no anchor runs one.
    ///
    /// # Errors
    /// [`Code::EngineUnsound`]: the system gives no thread or no listener.
    pub fn start(standing: Standing, anchoring: Anchoring, cluster: Option<Cluster>) -> Result<Self, Problem> {
        let Standing { trust, anchor, arrivals } = standing;
        let (name, is_anchor) = (name_of(&trust.node()), anchor.is_some());
        let (mut tasks, mut far, mut near) = (Vec::new(), None, None);
        let link = if let Some(Cluster { servers, credentials, tls }) = cluster {
            LinkConfig { tls, ..LinkConfig::new(name.clone(), is_anchor, servers, credentials, rest) }
        } else {
            if let Some(anchor) = &anchor {
                let station = Station::new(trust.clone(), anchor.clone(), name.clone(), anchoring);
                let (ways, set) = station.run()?;
                far = Some(station.far.clone());
                tasks.push(tokio::spawn(station.far.clone().serve(trust.clone(), arrivals)));
                tasks.push(tokio::spawn(station.keep_set(ways, set)));
            }
            let credentials = Credentials::generate();
            let ways = Ways { trust: trust.clone(), credentials: credentials.clone(), own: far.clone() };
            let no_listener =
                |error| Problem::new(Code::EngineUnsound, format!("no way to the fleet's engine: {error}"));
            let opened = Near::open(ways).map_err(no_listener)?;
            let servers = vec![opened.address().to_string()];
            near = Some(opened);
            LinkConfig::new(name.clone(), is_anchor, servers, credentials, rest)
        };
        let node = Arc::new(NatsNode::open(link));
        if let Some(anchor) = &anchor {
            let is_own = near.is_some();
            let link = node.link();
            let facts = Arc::new(NatsFacts::new(link.clone(), bucket(anchor), None));
            let agreed = Agreed::new(link.clone(), facts.clone(), trust.clone(), anchor, is_own);
            anchor.agree_by(Some(Arc::new(agreed)));
            tasks.extend(keep(&node, anchor, is_own));
            tasks.push(tokio::spawn(follow(anchor.clone(), link.clone(), facts, trust.node())));
        }
        Ok(Self { name, node, near, far: Mutex::new(far), tasks })
    }

    /// What the node is called in facts and mail: its id.
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// Facts and post.
    pub fn node(&self) -> Arc<NatsNode> {
        self.node.clone()
    }

    pub fn report(&self) -> EngineReport {
        let server = self.far.lock().as_ref().map(|far| far.state());
        let is_connected = self.node.link().server().is_some();
        let trouble = match &server {
            Some(EngineState::Resting(problem)) => Some(problem.clone()),
            // It is not known yet.
            Some(EngineState::Starting | EngineState::Ended) => None,
            _ if is_connected => None,
            _ => self.near.as_ref().and_then(Near::trouble),
        };
        EngineReport { is_connected, server, trouble }
    }

    /// Waits until it is known whether this anchor's server is up, and no longer than `timeout`. Blocks.
    pub fn wait_known(&self, timeout: Duration) {
        let far = self.far.lock().clone();
        if let Some(engine) = far.and_then(|far| far.engine()) {
            engine.wait_known(timeout);
        }
    }

    /// Ends the connection, and on an anchor nats-server, which has 10 s to end.
    pub async fn end(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        let far = self.far.lock().take();
        if let Some(engine) = far.and_then(|far| far.set_engine(None)) {
            // Its way out is a wait for a thread.
            let _ = spawn_blocking(move || engine.end()).await;
        }
    }
}

impl Drop for FleetEngine {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Where an anchor runs its server, for one set of anchors after the other.
struct Station {
    trust: Arc<Trust>,
    anchor: Arc<Anchor>,
    name: NodeName,
    anchoring: Anchoring,
    keys: Arc<FleetKeys>,
    far: Arc<Far>,
}

impl Station {
    fn new(trust: Arc<Trust>, anchor: Arc<Anchor>, name: NodeName, anchoring: Anchoring) -> Self {
        let keys = Arc::new(FleetKeys::derived(|purpose| anchor.secret_for(purpose)));
        let far = Arc::new(Far::new(keys.clone(), anchor.clone()));
        Self { trust, anchor, name, anchoring, keys, far }
    }

    /// Starts the server for the set of anchors that there is: the ways to the others, and which set it is.
    fn run(&self) -> Result<(Vec<RouteWay>, u64), Problem> {
        let (set, anchors) = self.anchor.set();
        let others = others(anchors, &self.trust.node());
        let no_listener =
            |error| Problem::new(Code::EngineUnsound, format!("no way to the servers of other anchors: {error}"));
        let open = |node| RouteWay::open(self.trust.clone(), self.anchor.clone(), node).map_err(no_listener);
        let ways = others.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let routes = Routes { listen: any, others: ways.iter().map(RouteWay::address).collect() };
        let config = EngineConfig {
            node: self.name.clone(),
            folder: self.anchoring.folder.clone(),
            listen: any,
            monitor: any,
            routes: (!ways.is_empty()).then_some(routes),
            tls: None,
            file_bytes_max: StreamBounds::new(ALONE).bytes(),
            set,
        };
        let (find, launcher) = (self.anchoring.find.clone(), self.anchoring.launcher.clone());
        let engine = Engine::start(config, self.keys.clone(), move || find(), launcher)?;
        self.far.set_engine(Some(engine));
        Ok((ways, set))
    }

    /// Begins anew with each other set of anchors. One that is none any more has no server.
    async fn keep_set(self, mut ways: Vec<RouteWay>, mut running: u64) {
        let mut changes = self.anchor.changes();
        loop {
            if self.anchor.set().0 != running {
                if let Some(engine) = self.far.set_engine(None) {
                    let _ = spawn_blocking(move || engine.end()).await;
                }
                drop(std::mem::take(&mut ways));
                (ways, running) = self.run_again().await;
            }
            // The anchor is held here.
            let _ = changes.changed().await;
        }
    }

    /// Runs a server for the set that there is now, once it can; none where this node is no anchor any more.
    async fn run_again(&self) -> (Vec<RouteWay>, u64) {
        while self.anchor.is_anchor(&self.trust.node()) {
            match self.run() {
                Ok((ways, set)) => {
                    tracing::info!(set, others = ways.len(), "another set of anchors");
                    return (ways, set);
                }
                Err(problem) => tracing::error!("{} {}", problem.code, problem.detail),
            }
            sleep(STREAMS_PAUSE).await;
        }
        (Vec::new(), self.anchor.set().0)
    }
}

fn others(anchors: BTreeMap<NodeId, Address>, own: &NodeId) -> Vec<NodeId> {
    match anchors.contains_key(own) {
        true => anchors.into_keys().filter(|node| node != own).collect(),
        false => Vec::new(),
    }
}

/// What an anchor does for all that use the engine. `is_own`: the servers are those of the anchors.
fn keep(node: &Arc<NatsNode>, anchor: &Arc<Anchor>, is_own: bool) -> [JoinHandle<()>; 2] {
    [tokio::spawn(keep_streams(node.clone(), anchor.clone(), is_own)), tokio::spawn(taken::serve(node.link().clone()))]
}

/// Makes what the engine keeps, as soon as it can be asked, and again for each set of anchors.
async fn keep_streams(node: Arc<NatsNode>, anchor: Arc<Anchor>, is_own: bool) {
    let mut changes = anchor.changes();
    let of_anchors = bucket(&anchor);
    loop {
        let (set, anchors) = anchor.set();
        let replicas = if is_own { (anchors.len() as u64).max(ALONE) } else { ALONE };
        let servers = servers(&anchor, is_own);
        let another_set = async {
            // The anchor is held here.
            while anchor.set().0 == set && changes.changed().await.is_ok() {}
        };
        tokio::select! {
            // First, because from then on other servers are asked, which keep another number of copies.
            biased;
            () = another_set => {}
            never = keep_made(&node, &servers, replicas, &of_anchors) => match never {},
        }
    }
}

/// Makes what one set of anchors keeps, and again when several servers have lost it.
async fn keep_made(node: &NatsNode, servers: &Servers, replicas: u64, of_anchors: &FactBucket) -> Infallible {
    loop {
        let bounds = StreamBounds::new(replicas);
        match make_streams(node.link(), servers, bounds, of_anchors, SystemTime::now()).await {
            Ok(()) if replicas > ALONE => sleep(STREAMS_LOOK).await,
            Ok(()) => std::future::pending().await,
            Err(error) => {
                if let NotMade::Refused(_) = error {
                    let problem = Problem::from(error);
                    tracing::error!("{} {}; {}", problem.code, problem.detail, problem.hint);
                }
                sleep(STREAMS_PAUSE).await;
            }
        }
    }
}

/// How long to wait before the next connection: doubled for each round that has failed, and up to half as long again.
fn rest(rounds: u32, random: u64) -> Duration {
    let rest = REST_FIRST.saturating_mul(1 << rounds.min(16)).min(REST_MAX);
    rest + rest.mul_f64((random % 1_024) as f64 / 2_048.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_up_to_a_bound_and_differ() {
        assert_eq!([0, 1, 7, 8, 1_000].map(|rounds| rest(rounds, 0).as_millis()), [200, 400, 25_600, 30_000, 30_000]);
        assert_eq!(rest(0, 512), Duration::from_millis(250));
        assert!(rest(1_000, u64::MAX) < REST_MAX.mul_f64(1.5));
    }
}
