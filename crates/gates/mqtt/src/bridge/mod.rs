//! A bridge: the functions' filters are subscribed at another broker, and sinks publish there.
//!
//! ```text
//!  outside broker ──PUBLISH──▶ Link ──commit──▶ node ──durable──▶ PUBACK
//!                 ◀──PUBLISH── Link ◀── publish ── sink          (confirmed: the event is done)
//! ```
//! Its session at the outside broker outlives its connection, so that broker keeps what comes while the two do not hear
//! each other. A message is acknowledged only when its event is durable; one that a full queue refuses is not, and
//! nothing more is read until there is room.

mod connect;
mod link;
mod outward;

pub use connect::Secure;

use crate::broker::View;
use crate::codec::{Qos, Version};
use crate::node::Node;
use connect::Connector;
use link::{BridgeMemory, Ended, Link};
use problem::{Code, Problem};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// Publishes that wait for the outside broker; the sink of one more waits.
const PUBLISHES_MAX: usize = 256;

/// How long a publish waits for its confirmation, over new connections too.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(25);

/// Between attempts to connect: at first, and at most. Each is up to twice as long as said, so that many bridges do not
/// come back at the same moment.
const REST_MIN: Duration = Duration::from_millis(500);
const REST_MAX: Duration = Duration::from_secs(30);

/// Where the outside broker is, and as whom to go there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeConfig {
    pub host: String,
    pub port: u16,
    /// TLS, and whom to trust.
    pub secure: Option<Secure>,
    pub version: Version,
    /// Names the session in which the outside broker keeps what comes meanwhile: must be nobody else's.
    pub client_id: String,
    pub user: Option<String>,
    pub password: Option<String>,
    /// The best the outside broker offers; more is not asked for.
    pub qos_max: Qos,
}

/// Numbers for the metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BridgeCounts {
    pub is_connected: bool,
    pub connects: u64,
    pub received: u64,
    pub published: u64,
}

/// Why a message was not published, or nobody knows.
#[derive(Debug, Clone)]
pub enum PublishError {
    /// The outside broker does not take this message, or did not confirm it.
    Refused(Problem),
    /// The outside broker is away: it takes none now.
    Unavailable(Problem),
}

impl PublishError {
    pub fn problem(&self) -> &Problem {
        match self {
            Self::Refused(problem) | Self::Unavailable(problem) => problem,
        }
    }
}

/// One message for the outside broker.
#[derive(Debug)]
pub(crate) struct Outward {
    pub topic: String,
    pub payload: Vec<u8>,
    pub lasting: Vec<u8>,
    pub qos: Qos,
    pub retain: bool,
    pub done: oneshot::Sender<Result<(), PublishError>>,
}

#[derive(Debug, Default)]
pub(crate) struct BridgeInner {
    is_connected: AtomicBool,
    connects: AtomicU64,
    pub received: AtomicU64,
    pub published: AtomicU64,
}

/// A running bridge. Dropping it ends it; the outside broker goes on keeping its messages.
pub struct Bridge {
    outward: mpsc::Sender<Outward>,
    shared: Arc<BridgeInner>,
    running: JoinHandle<()>,
}

impl Bridge {
    /// Connects, and goes on connecting. `filters` are subscribed now and whenever they change.
    ///
    /// # Errors
    /// What was kept cannot be read, or the certificates cannot be used.
    pub fn start<N: Node>(
        config: BridgeConfig,
        node: Arc<N>,
        filters: watch::Receiver<Vec<(String, Qos)>>,
    ) -> Result<Self, Problem> {
        let connector = Connector::new(&config)?;
        let memory = BridgeMemory::restore(&*node)?;
        let (outward, requests) = mpsc::channel(PUBLISHES_MAX);
        let shared = Arc::new(BridgeInner::default());
        let running = tokio::spawn(run(config, connector, node, filters, requests, memory, shared.clone()));
        Ok(Self { outward, shared, running })
    }

    /// Publishes at the outside broker. Returns once it has confirmed. A dropped future may or may not have published.
    ///
    /// # Errors
    /// The outside broker refused, or is away; or it confirmed nothing in time, and it is not known.
    pub async fn publish(&self, view: View<'_>, retain: bool) -> Result<(), PublishError> {
        let unavailable = |why| PublishError::Unavailable(Problem::new(Code::SinkFailed, why));
        let is_connected = || self.shared.is_connected.load(Ordering::Relaxed);
        if !is_connected() {
            return Err(unavailable("the MQTT bridge is not connected"));
        }
        let (done, confirmed) = oneshot::channel();
        let (topic, payload, lasting) = (view.topic.to_owned(), view.payload.to_vec(), view.lasting.to_vec());
        let outward = Outward { topic, payload, lasting, qos: view.qos, retain, done };
        let done = async {
            let ended = || unavailable("the MQTT bridge has ended");
            self.outward.send(outward).await.map_err(|_| ended())?;
            confirmed.await.map_err(|_| ended())?
        };
        match tokio::time::timeout(CONFIRM_TIMEOUT, done).await {
            Ok(done) => done,
            Err(_) if !is_connected() => Err(unavailable("the MQTT bridge lost its connection")),
            Err(_) => {
                let detail = format!("the outside broker did not confirm within {} s", CONFIRM_TIMEOUT.as_secs());
                Err(PublishError::Refused(Problem::new(Code::SinkFailed, detail)))
            }
        }
    }

    pub fn counts(&self) -> BridgeCounts {
        let BridgeInner { is_connected, connects, received, published } = &*self.shared;
        BridgeCounts {
            is_connected: is_connected.load(Ordering::Relaxed),
            connects: connects.load(Ordering::Relaxed),
            received: received.load(Ordering::Relaxed),
            published: published.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn run<N: Node>(
    config: BridgeConfig,
    connector: Connector,
    node: Arc<N>,
    mut filters: watch::Receiver<Vec<(String, Qos)>>,
    mut requests: mpsc::Receiver<Outward>,
    mut memory: BridgeMemory,
    shared: Arc<BridgeInner>,
) {
    let mut rest = REST_MIN;
    let place = format!("{}:{}", config.host, config.port);
    loop {
        match connector.connect().await {
            Ok(stream) => {
                let link = Link::new(&config, &*node, &mut memory, &shared);
                let told = Told { shared: &shared, place: &place, is_told: false };
                match link.run(stream, &mut filters, &mut requests, told).await {
                    Ended::NoMoreWork => return,
                    Ended::Lost { why, was_connected } => {
                        if was_connected {
                            rest = REST_MIN;
                        }
                        tracing::warn!(%place, "the MQTT bridge lost its connection: {why}");
                    }
                }
                shared.is_connected.store(false, Ordering::Relaxed);
            }
            Err(error) => tracing::warn!(%place, "the MQTT bridge cannot connect: {error}"),
        }
        let jitter = getrandom::u32().unwrap_or(0) % 1_000;
        tokio::time::sleep(rest + rest * jitter / 1_000).await;
        rest = (rest * 2).min(REST_MAX);
    }
}

/// Says once that the connection stands.
pub(crate) struct Told<'a> {
    shared: &'a BridgeInner,
    place: &'a str,
    is_told: bool,
}

impl Told<'_> {
    pub fn connected(&mut self) {
        if !std::mem::replace(&mut self.is_told, true) {
            self.shared.is_connected.store(true, Ordering::Relaxed);
            self.shared.connects.fetch_add(1, Ordering::Relaxed);
            tracing::info!(place = self.place, "the MQTT bridge is connected");
        }
    }
}
