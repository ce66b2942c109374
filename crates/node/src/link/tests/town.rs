//! A fleet of two nodes on this machine. Their units are of a class that says which node it is on.

use super::LONG;
use crate::config::{Config, UpArgs};
use crate::functions::Steps;
use crate::link::CallLink;
use crate::mqtt::MqttSinks;
use crate::{Class, Node, Opening, clock, gate};
use api_types::{Scope, TokenRequest};
use bytes::Bytes;
use fleet_link::Members;
use fleet_trust::dates::Dates;
use fleet_trust::serve::{Arrivals, serve};
use fleet_trust::{Address, Authority, Clock, Membership, NodeId, NodeKey, Role, Trust};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use gate_http::{Gate, Listener};
use manifest::{Isolation, Manifest};
use problem::{Code, Problem};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use unit::{
    Artefact, Attempt, Contract, Deployed, Given, Host, IsolationClass, Prepared, Running, Shape, Spent, Timing,
    UnitStatus, Work,
};

const NOW: u64 = 1_795_425_300;
const NAMES: [&str; 2] = ["one", "two"];

/// Units that answer `NODE/FUNCTION/BODY`; those that are to wait do so until they are let through. A function with
/// `broken` in its config does not start.
struct Saying {
    node: &'static str,
    gate: Arc<Semaphore>,
}

struct Said {
    deployed: Arc<Deployed>,
    node: &'static str,
    gate: Arc<Semaphore>,
}

struct Answering {
    answer: BoxFuture<'static, Bytes>,
    began: Instant,
}

impl Class for Saying {
    fn units(&self) -> Arc<dyn IsolationClass> {
        Arc::new(Self { node: self.node, gate: self.gate.clone() })
    }
}

impl IsolationClass for Saying {
    fn isolation(&self) -> Isolation {
        Isolation::Wasm
    }

    fn fingerprint(&self) -> &str {
        "saying"
    }

    fn check(&self, _image: &[u8]) -> Result<Shape, Problem> {
        Ok(Shape { contract: Contract::Unit, imports: Vec::new() })
    }

    fn compile(&self, image: &[u8]) -> Result<Vec<u8>, Problem> {
        Ok(image.to_vec())
    }

    fn load(&self, _artefact: Artefact, function: Deployed) -> Result<Arc<dyn Prepared>, Problem> {
        Ok(Arc::new(Said { deployed: Arc::new(function), node: self.node, gate: self.gate.clone() }))
    }
}

impl Prepared for Said {
    fn deployed(&self) -> &Arc<Deployed> {
        &self.deployed
    }

    fn try_start(self: Arc<Self>, _host: Arc<dyn Host>) -> BoxFuture<'static, Result<Duration, Problem>> {
        let starts = !self.deployed.function.config.contains_key("broken");
        async move { starts.then_some(Duration::ZERO).ok_or_else(|| Problem::new(Code::StartFailed, "it is broken")) }
            .boxed()
    }

    fn attempt(self: Arc<Self>, attempt: Attempt) -> Box<dyn Running> {
        let Work::Event(event) = attempt.work else { panic!("it takes events") };
        let answer = async move {
            let data = String::from_utf8_lossy(&event.data);
            if data == "wait" {
                self.gate.acquire().await.unwrap().forget();
            }
            Bytes::from(format!("{}/{}/{data}", self.node, self.deployed.name))
        };
        Box::new(Answering { answer: answer.boxed(), began: Instant::now() })
    }

    fn units(&self) -> Vec<UnitStatus> {
        Vec::new()
    }

    fn dump(&self) -> Option<Arc<Vec<u8>>> {
        None
    }

    fn sweep(&self, _now: Instant, _all: bool) {}
}

impl Running for Answering {
    fn poll_given(&mut self, cx: &mut Context<'_>) -> Poll<Result<Given, Problem>> {
        self.answer.as_mut().poll(cx).map(|bytes| Ok(Given::Reply(bytes)))
    }

    fn spent(&self) -> Spent {
        let timing = Timing { run: self.began.elapsed(), ..Timing::default() };
        Spent { timing, cpu: Duration::ZERO, memory_bytes: 0 }
    }

    fn give_back(&mut self) -> Option<event::Event> {
        None
    }
}

pub struct Town {
    pub nodes: [Arc<TownNode>; 2],
}

pub struct TownNode {
    pub node: Arc<Node>,
    address: SocketAddr,
    units: Arc<Semaphore>,
    _gate: Gate,
    _folder: TempDir,
}

/// Both know where the other one is.
#[derive(Default)]
struct Book(OnceLock<[(NodeId, SocketAddr); 2]>);

impl Members for Book {
    fn others(&self) -> Vec<NodeId> {
        self.0.get().into_iter().flatten().map(|(node, _)| *node).collect()
    }

    fn address(&self, node: &NodeId) -> Option<Address> {
        let found = self.0.get()?.iter().find(|(known, _)| known == node);
        found.map(|(_, address)| Address::Ip(*address))
    }

    fn name(&self, node: &NodeId) -> Option<String> {
        let at = self.0.get()?.iter().position(|(known, _)| known == node)?;
        Some(NAMES[at].to_owned())
    }
}

impl Town {
    pub async fn new() -> Self {
        let authority = Authority::found("campus", &[1; 32]).unwrap();
        let book = Arc::new(Book::default());
        let mut at = Vec::new();
        let mut nodes = Vec::new();
        for (number, name) in (1..).zip(NAMES) {
            let node = TownNode::start(name).await;
            let trust = trust(&authority, number);
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            at.push((trust.node(), listener.local_addr().unwrap()));
            let (sender, calls) = mpsc::channel(4);
            let to = Arrivals { calls: Some(sender.clone()), ..sender.into() };
            tokio::spawn(serve(listener, trust.clone(), None, to));
            nodes.push((node, trust, calls));
        }
        book.0.set(at.try_into().unwrap()).unwrap();
        let nodes = nodes.into_iter().map(|(node, trust, calls)| {
            node.node.set_link(Some(Arc::new(CallLink::start(&node.node, trust, book.clone(), None, calls))));
            Arc::new(node)
        });
        let Ok(nodes) = nodes.collect::<Vec<_>>().try_into() else { panic!("there are two") };
        Self { nodes }
    }
}

fn trust(authority: &Authority, number: u8) -> Arc<Trust> {
    let key = NodeKey::from_seed(&[number; 32]);
    let certificate = authority.issue(&key.public(), Role::Member, Dates::from(NOW), [number; 16]).unwrap();
    let ca = authority.certificate().to_vec();
    let membership = Membership { fleet_name: "campus".into(), ca, certificate, anchors: Vec::new(), incarnation: 1 };
    Arc::new(Trust::new(key, membership, None, Clock::new(|| NOW, NOW)).unwrap())
}

/// A reply, read whole.
pub struct Reply {
    pub status: u16,
    pub body: String,
    heads: String,
}

impl Reply {
    pub fn head(&self, name: &str) -> Option<&str> {
        let mut lines = self.heads.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl TownNode {
    pub async fn start(name: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config =
            Config::new(UpArgs { data_folder: Some(folder.path().to_owned()), ..UpArgs::default() }).unwrap();
        config.fleet.listen = (Ipv4Addr::LOCALHOST, 0).into();
        config.fleet.node_name = Some(name.to_owned());
        let units = Arc::new(Semaphore::new(0));
        let opening = Opening {
            files_kept: 16,
            classes: vec![Arc::new(Saying { node: name, gate: units.clone() })],
            mqtt_sinks: Arc::new(MqttSinks::new(false)),
            started: Instant::now(),
        };
        let node = Node::open(config, opening).await.unwrap();
        let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), None).unwrap();
        let address = listener.address();
        let config = gate_http::Config { budget: node.budget.clone(), ..gate_http::Config::default() };
        let gate = gate::serve(&node, listener, config).unwrap();
        Self { node, address, units, _gate: gate, _folder: folder }
    }

    /// A manifest whose images are here. They are what the text has for them.
    pub fn manifest(&self, text: &str) -> Manifest {
        let mut manifest: Manifest = toml::from_str(text).unwrap();
        for function in manifest.function.values_mut() {
            let mut writer = self.node.functions.loader.warehouse.receive_image(None, None).unwrap();
            writer.write(function.image.as_bytes()).unwrap();
            function.image = writer.finish().unwrap().to_string();
        }
        manifest
    }

    pub async fn deploy(&self, text: &str) {
        let manifest = self.manifest(text);
        let (steps, _heard) = Steps::new(&manifest);
        self.node.functions.deploy(manifest, clock::now_ms(), &steps).await.unwrap();
    }

    pub async fn token(&self) -> String {
        let request = TokenRequest {
            name: "caller".into(),
            scope: Scope::Call,
            expires_seconds: None,
            functions: Vec::new(),
            queues: Vec::new(),
        };
        self.node.access.create(request, clock::now_ms()).await.unwrap().token
    }

    /// One request on a connection of its own. With a token, unless that is empty.
    pub async fn ask(&self, method: &str, path: &str, token: &str, body: &str) -> Reply {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let token = if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n{token}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        timeout(LONG, stream.read_to_string(&mut reply)).await.expect("it is answered").unwrap();
        let (heads, body) = reply.split_once("\r\n\r\n").unwrap();
        let status = heads.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, body: body.to_owned(), heads: heads.to_owned() }
    }

    /// Asks until the route is known. Says the first reply.
    pub async fn until_found(&self, path: &str) -> String {
        let found = async {
            loop {
                let reply = self.ask("POST", path, "", "hello").await;
                if reply.status == 200 {
                    return reply.body;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LONG, found).await.expect("it is heard of")
    }

    /// Whether another node is known to have the same function.
    pub fn knows(&self, function: &str) -> bool {
        let fleet = self.node.link().unwrap();
        fleet.seen(&self.node).elsewhere.same(function).is_some()
    }

    pub async fn until_knows(&self, function: &str) {
        self.until(|| self.knows(function)).await;
    }

    pub async fn until_running(&self, function: &str, count: u32) {
        let live = self.node.functions.get(function).unwrap().live;
        self.until(|| live.identity.admission.counts().running == count).await;
    }

    /// Lets so many units through that wait.
    pub fn let_through(&self, count: usize) {
        self.units.add_permits(count);
    }

    pub async fn until(&self, is_so: impl Fn() -> bool) {
        let wait = async {
            while !is_so() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, wait).await.expect("it comes to be so");
    }
}
