//! One connection to the engine, to whichever server answers.
//!
//! ```text
//!  connect to a server ─▶ ask again and again whether JetStream is there ─▶ two answers missed, or the connection is gone
//!       ▲                                                                           │
//!       └──────────── the next server, after a pause that is partly random ◀────────┘
//! ```
//! A server that was cut off from the others stays connected and answers nothing that matters; nobody else notices. So
//! this does, and changes servers. A server that says that there is no leader gets more time: during an election all
//! servers say so, and a thousand nodes that change servers make it no shorter.

use crate::Credentials;
use crate::rights::inbox;
use async_nats::{Client, ConnectOptions, Event};
use facts::NodeName;
use rustls::ClientConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Answers of a server that are missed before another one is asked.
const MISSED_MAX: u32 = 2;
/// A server that has just answered well is asked again after so many times [`LinkConfig::ask_every`], or as soon as it
/// owes somebody else an answer: questions each second were five sixths of the bytes that a node in an idle fleet may
/// cost, and each five seconds still a quarter.
const ASK_WELL: u32 = 15;
/// How often a server may say, one time after the other, that there is no leader.
const LEADERLESS_MAX: u32 = 12;
/// A connection that held so long was a good one: the next pause is the shortest again.
const HELD: Duration = Duration::from_secs(10);
/// What is taken has long been on the disk then, and much goes at once.
const PURGE_REST: Duration = Duration::from_secs(30);
/// Messages that wait in the client for one subscription. More are dropped, and read from the stream again.
const WAITING_MAX: usize = 64;

/// How a node gets to the engine.
#[derive(Clone)]
pub struct LinkConfig {
    pub node: NodeName,
    pub is_anchor: bool,
    /// Where servers listen, as host and port; any of them will do.
    pub servers: Vec<String>,
    pub credentials: Credentials,
    /// Whose certificates are believed, and the node's own. None for servers that listen on loopback.
    pub tls: Option<ClientConfig>,
    /// How long an answer is waited for. An election of servers takes longer: then nobody has answered.
    pub answer_timeout: Duration,
    /// How often a server is asked whether it is there while that is in doubt, and how long it may take to say so.
    pub ask_every: Duration,
    /// How long mail that was taken stays in the engine at least.
    pub purge_rest: Duration,
    /// How long to wait before the next connection, by how many have failed and a random number.
    pub rest: fn(u32, u64) -> Duration,
}

/// A connection to the engine, kept up. Cheap to clone; with the last clone it ends.
#[derive(Clone)]
pub struct EngineLink(Arc<Kept>);

struct Kept {
    state: watch::Receiver<Option<Connection>>,
    keeping: JoinHandle<()>,
    answer_timeout: Duration,
    purge_rest: Duration,
}

/// Which servers may be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Servers {
    Any,
    /// Those whose cluster has this name; none: a server that is in no cluster.
    Of(Option<String>),
}

/// A connection while it lasts.
#[derive(Clone)]
pub struct Connection {
    pub client: Client,
    /// Counts the connections of a link.
    pub number: u64,
    /// Told when messages were dropped, as nobody took them in time.
    pub dropped: Arc<Notify>,
    /// Told when an answer did not come: the server is asked at once whether it is there.
    doubts: Arc<Notify>,
    /// Which of the servers.
    server: usize,
}

impl LinkConfig {
    /// Answers within 5 s; a question each second, and every fifteen where all is well.
    pub fn new(
        node: NodeName,
        is_anchor: bool,
        servers: Vec<String>,
        credentials: Credentials,
        rest: fn(u32, u64) -> Duration,
    ) -> Self {
        let (answer_timeout, ask_every) = (Duration::from_secs(5), Duration::from_secs(1));
        let (tls, purge_rest) = (None, PURGE_REST);
        Self { node, is_anchor, servers, credentials, tls, answer_timeout, ask_every, purge_rest, rest }
    }
}

impl Connection {
    /// Whether it leads to one of these.
    pub fn leads_to(&self, servers: &Servers) -> bool {
        match servers {
            Servers::Any => true,
            Servers::Of(cluster) => self.client.server_info().cluster == *cluster,
        }
    }

    /// It owes an answer: it is asked whether it is there.
    pub fn doubt(&self) {
        self.doubts.notify_one();
    }
}

impl EngineLink {
    /// Begins to connect, on the present runtime.
    pub fn open(config: LinkConfig) -> Self {
        let (tell, state) = watch::channel(None);
        let LinkConfig { answer_timeout, purge_rest, .. } = config;
        Self(Arc::new(Kept { state, keeping: tokio::spawn(keep(config, tell)), answer_timeout, purge_rest }))
    }

    pub(crate) fn answer_timeout(&self) -> Duration {
        self.0.answer_timeout
    }

    pub(crate) fn purge_rest(&self) -> Duration {
        self.0.purge_rest
    }

    /// The server that is connected, by its place in the list; none for now.
    pub fn server(&self) -> Option<usize> {
        self.0.state.borrow().as_ref().map(|connection| connection.server)
    }

    /// Whether there is a connection that leads to one of these.
    pub fn leads_to(&self, servers: &Servers) -> bool {
        self.0.state.borrow().as_ref().is_some_and(|connection| connection.leads_to(servers))
    }

    /// Waits for a connection.
    pub(crate) async fn connection(&self) -> Connection {
        let mut state = self.0.state.clone();
        loop {
            if let Some(connection) = state.borrow_and_update().clone() {
                return connection;
            }
            if state.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until this connection is no longer the one in use.
    pub(crate) async fn lost(&self, number: u64) {
        let mut state = self.0.state.clone();
        // An error: nobody keeps the link any more.
        let _ = state.wait_for(|state| state.as_ref().is_none_or(|connection| connection.number != number)).await;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

async fn keep(config: LinkConfig, tell: watch::Sender<Option<Connection>>) {
    let (mut number, mut failures) = (0, 0_u32);
    let mut server = random() as usize % config.servers.len().max(1);
    loop {
        let began = Instant::now();
        let (dropped, doubts) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        match connect(&config, server, Arc::clone(&dropped)).await {
            Ok((client, events)) => {
                number += 1;
                tracing::info!(server = %config.servers[server], "connected to the fleet's engine");
                let connection = Connection { client: client.clone(), number, dropped, doubts: doubts.clone(), server };
                tell.send_replace(Some(connection));
                let why = watched(&client, events, &doubts, config.ask_every).await;
                tell.send_replace(None);
                tracing::warn!(server = %config.servers[server], why, "left the fleet's engine");
            }
            Err(why) => {
                tracing::debug!(server = ?config.servers.get(server), why, "no connection to the fleet's engine")
            }
        }
        failures = if began.elapsed() >= HELD { 0 } else { failures.saturating_add(1) };
        server = (server + 1) % config.servers.len().max(1);
        // One round of all servers counts as one failure.
        let rounds = failures / config.servers.len().max(1) as u32;
        sleep((config.rest)(rounds, random())).await;
    }
}

fn random() -> u64 {
    // Without randomness all wait the same time, which is only slower.
    getrandom::u64().unwrap_or_default()
}

async fn connect(
    config: &LinkConfig,
    server: usize,
    dropped: Arc<Notify>,
) -> Result<(Client, mpsc::Receiver<()>), String> {
    let address = config.servers.get(server).ok_or("no servers are known")?;
    let (tell, events) = mpsc::channel(1);
    let credentials = config.credentials.clone();
    let is_gone = Arc::new(AtomicBool::new(false));
    let mut options = ConnectOptions::with_auth_callback(move |nonce| {
        let credentials = credentials.clone();
        async move {
            let mut auth = async_nats::Auth::new();
            auth.signature = Some(credentials.sign(&nonce).map_err(async_nats::AuthError::new)?);
            auth.jwt = Some(credentials.jwt());
            Ok(auth)
        }
    })
    .name(config.node.as_str())
    .custom_inbox_prefix(inbox(&config.node))
    .connection_timeout(CONNECT_TIMEOUT)
    .subscription_capacity(WAITING_MAX)
    .ignore_discovered_servers()
    // It is this file that connects again.
    .max_reconnects(1)
    .event_callback(move |event| {
        if matches!(event, Event::SlowConsumer(_)) {
            dropped.notify_one();
        }
        let is_end = matches!(event, Event::Disconnected | Event::Closed | Event::LameDuckMode);
        if is_end && !is_gone.swap(true, Ordering::Relaxed) {
            // There is room for the one that is sent.
            let _ = tell.try_send(());
        }
        async {}
    });
    if let Some(tls) = &config.tls {
        options = options.require_tls(true).tls_client_config(tls.clone());
    }
    match timeout(CONNECT_TIMEOUT, options.connect(address)).await {
        Ok(Ok(client)) => Ok((client, events)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}

/// Why the connection is of no use any more.
async fn watched(
    client: &Client,
    mut events: mpsc::Receiver<()>,
    doubts: &Notify,
    ask_every: Duration,
) -> &'static str {
    let (mut missed, mut leaderless, mut rest) = (0, 0, Duration::ZERO);
    loop {
        tokio::select! {
            _ = events.recv() => return "the connection is gone",
            () = doubts.notified() => {}
            () = sleep(rest) => {}
        }
        let asked = Instant::now();
        let is_well = match timeout(ask_every, client.request("$JS.API.INFO", "".into())).await {
            Ok(Ok(answer)) if has_leader(&answer.payload) => {
                (missed, leaderless) = (0, 0);
                true
            }
            Ok(Ok(_)) => {
                (missed, leaderless) = (0, leaderless + 1);
                false
            }
            Ok(Err(_)) | Err(_) => {
                missed += 1;
                false
            }
        };
        rest = if is_well { ask_every * ASK_WELL } else { ask_every.saturating_sub(asked.elapsed()) };
        if missed >= MISSED_MAX {
            return "two answers were missed";
        }
        if leaderless >= LEADERLESS_MAX {
            return "it knows no leader";
        }
    }
}

fn has_leader(answer: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(answer).is_ok_and(|answer| answer.get("error").is_none())
}
