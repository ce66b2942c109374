//! The anchor's end: lets members through to its nats-server, each with its own rights, and the servers of other
//! anchors.

use crate::keys::FleetKeys;
use crate::process::{Engine, EngineState};
use crate::tunnel::{GREETING_TIMEOUT, answer, asked};
use facts::NodeName;
use fleet_trust::serve::MemberArrival;
use fleet_trust::{Anchor, NodeId, Trust, link};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// Members that are let through at once, one connection each. Another member's is closed, and tries another anchor.
const PLACES_MAX: usize = 4_096;
/// Connections of other anchors' servers. Each of two others has two for a moment.
const ROUTES_MAX: usize = 8;

/// See the top of this file.
pub struct Far {
    keys: Arc<FleetKeys>,
    anchor: Arc<Anchor>,
    /// None: another set of anchors begins.
    engine: RwLock<Option<Arc<Engine>>>,
    routes: Arc<Semaphore>,
}

/// Where a node may connect, and what it shows there.
pub struct Admitted {
    pub listen: SocketAddr,
    pub jwt: String,
}

impl Far {
    pub fn new(keys: Arc<FleetKeys>, anchor: Arc<Anchor>) -> Self {
        Self { keys, anchor, engine: RwLock::default(), routes: Arc::new(Semaphore::new(ROUTES_MAX)) }
    }

    /// What the server does.
    pub fn state(&self) -> EngineState {
        self.engine().map_or(EngineState::Starting, |engine| engine.state())
    }

    pub fn engine(&self) -> Option<Arc<Engine>> {
        self.engine.read().clone()
    }

    /// From now on this is the server; gives the one before.
    pub fn set_engine(&self, engine: Option<Engine>) -> Option<Arc<Engine>> {
        std::mem::replace(&mut *self.engine.write(), engine.map(Arc::new))
    }

    /// Signs a node's key. None: the engine is not up, or it is no key.
    pub fn admit(&self, public_key: &str, node: &NodeName, is_anchor: bool) -> Option<Admitted> {
        let EngineState::Up { listen, .. } = self.state() else { return None };
        let jwt = self.keys.sign(public_key, node, is_anchor, SystemTime::now()).ok()?;
        Some(Admitted { listen, jwt })
    }

    /// Serves members until it is aborted: of each its newest connection.
    pub async fn serve(self: Arc<Self>, trust: Arc<Trust>, mut arrivals: mpsc::Receiver<MemberArrival>) {
        let mut through = JoinSet::new();
        let mut of_node: BTreeMap<NodeId, AbortHandle> = BTreeMap::new();
        loop {
            let arrival = tokio::select! {
                Some(arrival) = arrivals.recv() => arrival,
                Some(_) = through.join_next() => continue,
                else => return,
            };
            of_node.retain(|_, one| !one.is_finished());
            let node = arrival.peer.node;
            if arrival.stream.get_ref().1.alpn_protocol() == Some(link::ROUTES) {
                let far = self.clone();
                through.spawn(async move {
                    if let Err(error) = far.let_route(arrival).await {
                        tracing::debug!(%node, %error, "an anchor's way to the server here ended");
                    }
                });
                continue;
            }
            if of_node.len() >= PLACES_MAX && !of_node.contains_key(&node) {
                continue;
            }
            let (far, trust) = (self.clone(), trust.clone());
            let one = through.spawn(async move {
                if let Err(error) = far.let_through(&trust, arrival).await {
                    tracing::debug!(%node, %error, "a node's way to the engine ended");
                }
            });
            of_node.insert(node, one).inspect(AbortHandle::abort);
        }
    }

    /// The server of another anchor. The ledger says who is one.
    async fn let_route(&self, MemberArrival { mut peer, mut stream }: MemberArrival) -> io::Result<()> {
        let Ok(_place) = self.routes.clone().try_acquire_owned() else { return Ok(()) };
        let EngineState::Up { routes: Some(routes), .. } = self.state() else { return Ok(()) };
        if !self.anchor.is_anchor(&peer.node) {
            return Err(io::Error::other("it is no anchor"));
        }
        let mut server = timeout(GREETING_TIMEOUT, TcpStream::connect(routes)).await.map_err(io::Error::other)??;
        server.set_nodelay(true)?;
        tokio::select! {
            copied = copy_bidirectional(&mut stream, &mut server) => copied.map(|_| ()),
            _ = peer.ended() => Ok(()),
        }
    }

    async fn let_through(&self, trust: &Trust, arrival: MemberArrival) -> io::Result<()> {
        let MemberArrival { mut peer, mut stream } = arrival;
        let leaf = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let is_anchor = leaf.is_some_and(|leaf| trust.is_anchor(leaf));
        let node = name_of(&peer.node);
        let greeting = async {
            let key = asked(&mut stream).await?;
            let admitted = self.admit(&key, &node, is_anchor);
            let server = match &admitted {
                Some(admitted) => Some(TcpStream::connect(admitted.listen).await?),
                None => None,
            };
            answer(&mut stream, admitted.as_ref().map(|admitted| admitted.jwt.as_str())).await?;
            Ok(server)
        };
        let Some(mut server) = timeout(GREETING_TIMEOUT, greeting).await.map_err(io::Error::other).flatten()? else {
            return Ok(());
        };
        server.set_nodelay(true)?;
        tokio::select! {
            copied = copy_bidirectional(&mut stream, &mut server) => copied.map(|_| ()),
            _ = peer.ended() => Ok(()),
        }
    }
}

/// What a node is called in facts and mail: its id.
pub fn name_of(node: &NodeId) -> NodeName {
    NodeName::new(&node.to_string()).expect("hexadecimal digits are a name")
}
