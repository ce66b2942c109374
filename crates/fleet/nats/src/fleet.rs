//! All that one node has of its fleet's engine: started with its part in the fleet, ended with it.
//!
//! ```text
//!  an anchor    Engine ◀─ Far ◀─ members         streams are made, once it is up
//!                 ▲
//!  every node   Near ◀─ EngineLink ◀─ NatsNode   or: EngineLink ─▶ the user's own cluster
//! ```
//! Nothing here is waited for: a node whose anchor is away has it all, and each question to it is answered with "away".

use crate::cluster::Cluster;
use crate::keys::{Credentials, FleetKeys};
use crate::link::LinkConfig;
use crate::node::NatsNode;
use crate::process::{Engine, EngineConfig, EngineState, Launcher, Program};
use crate::streams::{NotMade, StreamBounds, make_streams};
use crate::taken;
use crate::tunnel::{Far, Near, Ways, name_of};
use facts::NodeName;
use fleet_trust::serve::MemberArrival;
use fleet_trust::{Anchor, Trust};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

/// Copies of everything with one anchor.
const REPLICAS: u64 = 1;
/// The first rest before the next connection. A thousand nodes that lost one anchor do not come back at once.
const REST_FIRST: Duration = Duration::from_millis(200);
const REST_MAX: Duration = Duration::from_secs(30);
/// Before streams that were not made are made again.
const STREAMS_PAUSE: Duration = Duration::from_secs(5);

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
    pub find: Box<dyn Fn() -> Result<Program, Problem> + Send>,
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
        let mut tasks = Vec::new();
        if let Some(Cluster { servers, credentials, tls }) = cluster {
            let link = LinkConfig { tls, ..LinkConfig::new(name.clone(), is_anchor, servers, credentials, rest) };
            let node = Arc::new(NatsNode::open(link));
            tasks.extend(is_anchor.then(|| keep(&node)).into_iter().flatten());
            return Ok(Self { name, node, near: None, far: Mutex::new(None), tasks });
        }
        let far = anchor.map(|anchor| start_engine(&anchor, &name, anchoring)).transpose()?;
        if let Some(far) = &far {
            tasks.push(tokio::spawn(far.clone().serve(trust.clone(), arrivals)));
        }
        let credentials = Credentials::generate();
        let ways = Ways { trust, credentials: credentials.clone(), own: far.clone() };
        let no_listener = |error| Problem::new(Code::EngineUnsound, format!("no way to the fleet's engine: {error}"));
        let near = Near::open(ways).map_err(no_listener)?;
        let link = LinkConfig::new(name.clone(), is_anchor, vec![near.address().to_string()], credentials, rest);
        let node = Arc::new(NatsNode::open(link));
        tasks.extend(is_anchor.then(|| keep(&node)).into_iter().flatten());
        Ok(Self { name, node, near: Some(near), far: Mutex::new(far), tasks })
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
        let server = self.far.lock().as_ref().map(|far| far.engine().state());
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
        if let Some(far) = far {
            far.engine().wait_known(timeout);
        }
    }

    /// Ends the connection, and on an anchor nats-server, which has 10 s to end.
    pub async fn end(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        let far = self.far.lock().take();
        if let Some(far) = far {
            // Its way out is a wait for a thread.
            let _ = spawn_blocking(move || far.engine().end()).await;
        }
    }
}

impl Drop for FleetEngine {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn start_engine(anchor: &Anchor, name: &NodeName, anchoring: Anchoring) -> Result<Arc<Far>, Problem> {
    let Anchoring { folder, find, launcher } = anchoring;
    let keys = Arc::new(FleetKeys::derived(|purpose| anchor.secret_for(purpose)));
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let config = EngineConfig {
        node: name.clone(),
        folder,
        listen: any,
        monitor: any,
        routes: None,
        tls: None,
        file_bytes_max: StreamBounds::new(REPLICAS).bytes(),
    };
    let engine = Engine::start(config, keys.clone(), find, launcher)?;
    Ok(Arc::new(Far::new(keys, engine)))
}

/// What an anchor does for all that use the engine.
fn keep(node: &Arc<NatsNode>) -> [JoinHandle<()>; 2] {
    [tokio::spawn(keep_streams(node.clone())), tokio::spawn(taken::serve(node.link().clone()))]
}

/// Makes what the engine keeps, as soon as it can be asked.
async fn keep_streams(node: Arc<NatsNode>) {
    loop {
        match make_streams(node.link(), StreamBounds::new(REPLICAS), SystemTime::now()).await {
            Ok(()) => return,
            Err(error @ NotMade::Refused(_)) => {
                let problem = Problem::from(error);
                tracing::error!("{} {}; {}", problem.code, problem.detail, problem.hint);
            }
            Err(NotMade::Away) => {}
        }
        sleep(STREAMS_PAUSE).await;
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
