//! Anchors of a fleet with their servers, in a folder that goes away.

use crate::name;
use crate::tls::Certificates;
use facts::{Facts as _, Heard, Key, NodeName, NotSet, Post as _};
use fleet_nats::{
    Engine, EngineConfig, FactBucket, FleetKeys, Launcher, LinkConfig, NatsNode, Program, Routes, Servers,
    StreamBounds, find, make_streams,
};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// Everything that should happen does so by then, on a busy machine too.
pub const SOON: Duration = Duration::from_secs(120);

/// What all towns need.
pub struct Stage {
    program: Program,
    three: OnceCell<Town>,
}

/// One or three anchors.
pub struct Town {
    stage: Program,
    folder: TempDir,
    configs: Vec<EngineConfig>,
    pub engines: Vec<Option<Engine>>,
    pub bounds: StreamBounds,
    pub certificates: Option<Certificates>,
}

impl Stage {
    pub fn open() -> Result<Self, String> {
        let found = find(None, "/nowhere".as_ref(), std::env::var_os("PATH").as_deref());
        found.map(|program| Self { program, three: OnceCell::new() }).map_err(|problem| problem.detail.into_owned())
    }

    pub fn program(&self) -> Program {
        self.program.clone()
    }

    /// Three anchors with certificates, that several tests share: they take seconds to elect their first leaders.
    pub async fn three(&self) -> &Town {
        self.three.get_or_init(|| self.town_with(3, Some(Certificates::make()))).await
    }

    /// Anchors whose servers run, with the streams of a fleet.
    pub async fn town(&self, anchors: usize) -> Town {
        self.town_with(anchors, None).await
    }

    /// The same, perhaps with certificates.
    async fn town_with(&self, anchors: usize, certificates: Option<Certificates>) -> Town {
        let folder = tempfile::tempdir().expect("a folder");
        let bounds = StreamBounds { mail_bytes_max: 64 << 20, facts_bytes_max: 8 << 20, replicas: anchors as u64 };
        let addresses: Vec<[SocketAddr; 3]> = (0..anchors).map(|_| [(); 3].map(|()| free_address())).collect();
        let config = |at: usize| {
            let others = (0..anchors).filter(|other| *other != at).map(|other| addresses[other][2]).collect();
            EngineConfig {
                node: name(&format!("anchor-{at}")),
                folder: folder.path().join(at.to_string()),
                listen: addresses[at][0],
                monitor: addresses[at][1],
                routes: (anchors > 1).then_some(Routes { listen: addresses[at][2], others }),
                tls: certificates.as_ref().map(|certificates| certificates.files(folder.path())),
                file_bytes_max: bounds.bytes() + (1 << 20),
                set: 0,
            }
        };
        let configs: Vec<_> = (0..anchors).map(config).collect();
        let engines = (0..anchors).map(|_| None).collect();
        let mut town = Town { stage: self.program.clone(), folder, configs, engines, bounds, certificates };
        for at in 0..anchors {
            town.start(at);
        }
        town.make_streams().await;
        town
    }
}

/// Secrets that need be none in a test.
pub fn secret_for(purpose: &str) -> [u8; 32] {
    std::array::from_fn(|at| purpose.as_bytes()[at % purpose.len()])
}

/// The bucket of the anchors.
pub fn of_anchors() -> FactBucket {
    FactBucket::of_anchors(&secret_for("anchors"))
}

pub fn launcher() -> Launcher {
    Launcher { program: std::env::current_exe().expect("it runs"), word: "engine".to_owned() }
}

impl Town {
    pub fn keys(&self) -> FleetKeys {
        FleetKeys::derived(secret_for)
    }

    pub fn config(&self, at: usize) -> &EngineConfig {
        &self.configs[at]
    }

    /// Starts a server. Its number.
    pub fn start(&mut self, at: usize) -> u32 {
        let (keys, stage) = (Arc::new(self.keys()), self.stage.clone());
        let engine = Engine::start(self.configs[at].clone(), keys, move || Ok(stage.clone()), launcher());
        let engine = engine.expect("it may run");
        let process = engine.wait_up(SOON).unwrap_or_else(|problem| panic!("{problem}"));
        self.engines[at] = Some(engine);
        process
    }

    /// Ends a server, and deletes what it kept.
    pub fn wipe(&mut self, at: usize) {
        self.engines[at] = None;
        std::fs::remove_dir_all(self.data(at)).expect("it was there");
    }

    pub fn data(&self, at: usize) -> PathBuf {
        self.folder.path().join(at.to_string()).join("js")
    }

    /// Which server leads the stream of facts.
    pub fn leader(&self) -> usize {
        let said = |at: usize| {
            let leader = self.streams(at, |name| name == "KV_facts").into_iter().next()?["cluster"]["leader"].clone();
            leader.as_str()?.strip_prefix("anchor-")?.parse().ok()
        };
        (0..self.configs.len()).find_map(said).expect("it has a leader")
    }

    /// Messages of mail that a server keeps.
    pub fn mail_kept(&self, at: usize) -> u64 {
        let streams = self.streams(at, |name| name.starts_with("mail_"));
        streams.iter().map(|stream| stream["state"]["messages"].as_u64().expect("a number")).sum()
    }

    /// Messages that a server keeps of a stream.
    pub fn messages_of(&self, at: usize, stream: &str) -> u64 {
        self.streams(at, |name| name == stream)[0]["state"]["messages"].as_u64().expect("a number")
    }

    /// What a server says of its streams that have such a name.
    fn streams(&self, at: usize, is_wanted: impl Fn(&str) -> bool) -> Vec<Value> {
        let mut stream = TcpStream::connect(self.configs[at].monitor).expect("it answers");
        stream
            .write_all(b"GET /jsz?streams=true&accounts=true&leader-only=false HTTP/1.0\r\n\r\n")
            .expect("it listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").expect("a body").1).expect("JSON");
        let accounts = body["account_details"].as_array().cloned().unwrap_or_default();
        let streams = accounts.iter().flat_map(|one| one["stream_detail"].as_array().cloned().unwrap_or_default());
        streams.filter(|stream| stream["name"].as_str().is_some_and(&is_wanted)).collect()
    }

    pub async fn make_streams(&self) {
        let anchor = self.impatient(&name("anchor-0"), true);
        let made = make_streams(anchor.link(), &Servers::Any, self.bounds, &of_anchors(), SystemTime::now()).await;
        made.unwrap_or_else(|error| panic!("{error}"));
    }

    /// The way of a node that waits for a busy machine.
    pub fn way(&self, node: &NodeName, is_anchor: bool) -> NatsNode {
        let (answer_timeout, ask_every) = (SOON / 2, SOON / 4);
        NatsNode::open(LinkConfig { answer_timeout, ask_every, ..self.link(node, is_anchor) })
    }

    /// The way of a node that waits as long as nodes do.
    pub fn impatient(&self, node: &NodeName, is_anchor: bool) -> NatsNode {
        NatsNode::open(self.link(node, is_anchor))
    }

    /// The way of a node whose mail goes from the engine soon after it was taken.
    pub fn tidy(&self, node: &NodeName, is_anchor: bool) -> NatsNode {
        let purge_rest = Duration::from_millis(200);
        NatsNode::open(LinkConfig { purge_rest, ..self.link(node, is_anchor) })
    }

    fn link(&self, node: &NodeName, is_anchor: bool) -> LinkConfig {
        let servers = self.configs.iter().map(|config| config.listen.to_string()).collect();
        let credentials = self.keys().admit(node, is_anchor, SystemTime::now());
        // A thousand nodes need longer rests; these are a few.
        let rest = |rounds: u32, random| Duration::from_millis(50 * (1 << rounds.min(4)) + random % 50);
        let tls = self.certificates.as_ref().map(|certificates| certificates.client(true));
        LinkConfig { tls, ..LinkConfig::new(node.clone(), is_anchor, servers, credentials, rest) }
    }
}

/// Sets a fact that nobody else sets, whatever happens meanwhile.
pub async fn set(node: &NatsNode, key: &Key) {
    // It may have been written by a try that nobody has confirmed.
    let is_set = async || matches!(node.set(key, None, Some(b"1")).await, Ok(_) | Err(NotSet::Changed));
    until("a fact is set", is_set).await;
}

/// The next message to a node. A way that broke meanwhile says that it is back: the messages are no less there.
pub async fn next_message(node: &NatsNode) -> Heard {
    let message = async {
        loop {
            match node.receive().await {
                Heard::Back => {}
                message => return message,
            }
        }
    };
    timeout(SOON, message).await.expect("there is one more")
}

/// An address that nobody has now. Below those that systems give to connections, so that none of them takes it.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() as u16 % 10_000;
    loop {
        let port = 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// Waits until it is true.
pub async fn until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + SOON;
    while !is_true().await {
        assert!(tokio::time::Instant::now() < deadline, "not within {SOON:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
