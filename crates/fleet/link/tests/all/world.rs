//! A fleet for tests: nodes that listen, have functions, and know each other.

use budget::Budget;
use bytes::Bytes;
use choice::{Report, Truth};
use fleet_link::{CallBody, FarBody, FarCall, Fault, Link, Local, Members, Offers, Ran, Sent, Undecided, Way, Why};
use fleet_trust::dates::Dates;
use fleet_trust::serve::{Arrivals, MemberArrival, serve};
use fleet_trust::{Address, Authority, Clock, Membership, NodeId, NodeKey, Trust};
use futures_util::stream;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const NOW: u64 = 1_795_425_300;
/// Longer than anything takes on a machine that has much else to do.
pub const LONG: Duration = Duration::from_secs(60);
/// Bytes of a piece of `source` and of `bytes`.
pub const PIECE: usize = 64 << 10;

/// Who is in a fleet.
#[derive(Default)]
pub struct Book(Mutex<BTreeMap<NodeId, (Address, String)>>);

impl Book {
    pub fn remove(&self, node: &NodeId) {
        self.0.lock().remove(node);
    }

    pub fn set(&self, node: NodeId, address: Address, name: &str) {
        self.0.lock().insert(node, (address, name.to_owned()));
    }
}

impl Members for Book {
    fn others(&self) -> Vec<NodeId> {
        self.0.lock().keys().copied().collect()
    }

    fn address(&self, node: &NodeId) -> Option<Address> {
        self.0.lock().get(node).map(|(address, _)| address.clone())
    }

    fn name(&self, node: &NodeId) -> Option<String> {
        self.0.lock().get(node).map(|(_, name)| name.clone())
    }
}

/// A node with functions for tests.
pub struct Tested {
    /// Seconds until a call would begin.
    pub backlog: Mutex<f64>,
    /// Calls that have begun, that run now, and that waited at `gate` or `never`.
    pub began: AtomicU64,
    pub running: Arc<AtomicU64>,
    /// Bytes that `source` has made, and that `sink` has read.
    pub made: Arc<AtomicU64>,
    pub read: Arc<AtomicU64>,
    pub gate: Semaphore,
    pub offers: Mutex<Offers>,
    pub learned: Mutex<BTreeMap<NodeId, Offers>>,
    /// Messages of mail, and who sent them.
    pub mail: Mutex<Vec<(NodeId, Vec<u8>)>>,
    /// Nodes that have asked or answered.
    pub reached: Mutex<BTreeSet<NodeId>>,
    /// Where `onwards` tries to send its call.
    pub link: OnceLock<(Arc<Link<Tested>>, NodeId)>,
}

/// Counts a call while it runs.
struct Running(Arc<AtomicU64>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

type TestBody = UnsyncBoxBody<Bytes, Fault>;

impl Local for Tested {
    type Body = TestBody;

    fn report(&self) -> Report {
        Report { truth: Truth { backlog: *self.backlog.lock() }, places: 2, speed: 1.0 }
    }

    fn truth(&self, function: &str) -> Option<Truth> {
        (function != "absent").then(|| Truth { backlog: *self.backlog.lock() })
    }

    fn offers(&self) -> Offers {
        self.offers.lock().clone()
    }

    fn learn(&self, node: NodeId, offers: Offers) {
        self.learned.lock().insert(node, offers);
    }

    fn forget_others(&self, members: &[NodeId]) {
        self.learned.lock().retain(|node, _| members.contains(node));
    }

    async fn mail(&self, from: NodeId, message: Bytes) -> Option<Duration> {
        if message == b"not now"[..] {
            return None;
        }
        self.mail.lock().push((from, message.to_vec()));
        Some(if message == b"rest"[..] { Duration::from_secs(3_600) } else { Duration::ZERO })
    }

    fn reached(&self, node: NodeId) {
        self.reached.lock().insert(node);
    }

    async fn answer(self: &Arc<Self>, from: NodeId, request: Request<FarBody>) -> Option<Response<TestBody>> {
        match request.uri().path() {
            "/echo" => Some(Response::new(full(request.into_body().collect().await.unwrap().to_bytes()))),
            "/who" => Some(Response::new(full(from.to_string()))),
            "/refused" => {
                let mut response =
                    Response::new(full(problem::Problem::new(problem::Code::NothingFits, "no").to_json()));
                *response.status_mut() = StatusCode::CONFLICT;
                Some(response)
            }
            "/refused/slowly" => {
                let mut response = Response::new(drip());
                *response.status_mut() = StatusCode::NOT_FOUND;
                Some(response)
            }
            _ => None,
        }
    }

    async fn run(self: &Arc<Self>, request: Request<FarBody>, call: FarCall) -> Result<Ran<TestBody>, Why> {
        if call.function == "closed" {
            return Err(Why::Closed);
        }
        self.began.fetch_add(1, Relaxed);
        self.running.fetch_add(1, Relaxed);
        let running = Running(self.running.clone());
        let body = match call.function.as_str() {
            "echo" => whole_until(request.into_body(), running),
            "mirror" => full(format!("{} {} {:?}", request.method(), request.uri(), request.headers())),
            "source" => self.source(running),
            "sink" => {
                let mut body = request.into_body();
                while let Some(Ok(frame)) = body.frame().await {
                    self.read.fetch_add(frame.data_ref().map_or(0, |data| data.len() as u64), Relaxed);
                }
                full(self.read.load(Relaxed).to_string())
            }
            "gate" => {
                self.gate.acquire().await.unwrap().forget();
                full("through")
            }
            "never" => std::future::pending().await,
            "onwards" => {
                let (link, node) = self.link.get().unwrap();
                let wanted = Undecided { function: "echo", bytes: 0, here: None, nodes: &[*node] };
                match link.send(&wanted, (*node, 0.0), request.map(CallBody::new), LONG).await {
                    Sent::Failed(problem) => full(problem.code.to_string()),
                    Sent::Ran(_) | Sent::Here(_) => full("went on"),
                }
            }
            _ => full("hello"),
        };
        let mut response = Response::new(body);
        if call.function == "teapot" {
            *response.status_mut() = StatusCode::IM_A_TEAPOT;
        }
        response.headers_mut().insert("server-timing", "run;dur=0.100".parse().unwrap());
        Ok(Ran { response, run: Some(Duration::from_micros(100)) })
    }
}

impl Tested {
    fn source(&self, running: Running) -> TestBody {
        let made = self.made.clone();
        let pieces = stream::unfold((made, running), |(made, running)| async move {
            made.fetch_add(PIECE as u64, Relaxed);
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from(vec![7; PIECE]))), (made, running)))
        });
        StreamBody::new(pieces).map_err(|never| match never {}).boxed_unsync()
    }
}

/// The same body; the call runs until it has ended.
fn whole_until(body: FarBody, running: Running) -> TestBody {
    let pieces =
        stream::unfold(
            (body, running),
            |(mut body, running)| async move { Some((body.frame().await?, (body, running))) },
        );
    StreamBody::new(pieces).map_err(Into::into).boxed_unsync()
}

/// Bytes that come one by one and never end.
fn drip() -> TestBody {
    let bytes = stream::unfold((), |()| async {
        sleep(Duration::from_millis(5)).await;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(b" "))), ()))
    });
    StreamBody::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn full(text: impl Into<Bytes>) -> TestBody {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

pub struct TestNode {
    pub id: NodeId,
    pub tested: Arc<Tested>,
    pub link: Arc<Link<Tested>>,
    pub trust: Arc<Trust>,
    pub budget: Arc<Budget>,
    pub address: Address,
    tasks: Vec<JoinHandle<()>>,
}

impl TestNode {
    /// Ends as a node does that is killed.
    pub fn kill(&mut self) {
        self.tasks.drain(..).for_each(|task| task.abort());
    }

    /// Asks the others for reports from now on.
    pub fn hears(&mut self) {
        self.tasks.push(tokio::spawn(self.link.clone().keep_hearing()));
    }

    /// Sends a call to a node that is not heard of otherwise.
    pub async fn call(&self, to: &TestNode, function: &str, body: CallBody) -> Sent {
        self.send(function, &[to], None, Request::new(body)).await
    }

    /// Sends a call to the first of these nodes, and to the others if it refuses.
    pub async fn send(
        &self,
        function: &str,
        to: &[&TestNode],
        here: Option<Truth>,
        request: Request<CallBody>,
    ) -> Sent {
        let nodes: Vec<NodeId> = to.iter().map(|node| node.id).collect();
        let wanted = Undecided { function, bytes: 0, here, nodes: &nodes };
        let sent = self.link.send(&wanted, (nodes[0], 0.0), request, LONG);
        timeout(LONG, sent).await.expect("it comes to an end")
    }

    /// Waits until this node has heard of others.
    pub async fn knows(&self, others: &[&TestNode]) {
        for other in others {
            let wanted = Undecided { function: "x", bytes: 0, here: None, nodes: &[other.id] };
            until(|| self.link.choose(&wanted) != Way::Nowhere).await;
        }
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.kill();
    }
}

pub struct Town {
    authority: Authority,
    pub book: Arc<Book>,
}

impl Town {
    pub fn new(seed: u8) -> Self {
        Self { authority: Authority::found("campus", &[seed; 32]).unwrap(), book: Arc::default() }
    }

    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    pub fn trust(&self, seed: u8) -> Arc<Trust> {
        let key = NodeKey::from_seed(&[seed; 32]);
        let role = fleet_trust::Role::Member;
        let certificate = self.authority.issue(&key.public(), role, Dates::from(NOW), [seed; 16]).unwrap();
        let ca = self.authority.certificate().to_vec();
        let membership =
            Membership { fleet_name: "campus".into(), ca, certificate, anchors: Vec::new(), incarnation: 1 };
        Arc::new(Trust::new(key, membership, None, Clock::new(|| NOW, NOW)).unwrap())
    }

    pub async fn node(&self, seed: u8) -> TestNode {
        self.node_with(seed, Budget::new(64 << 20)).await
    }

    pub async fn node_with(&self, seed: u8, budget: Arc<Budget>) -> TestNode {
        self.node_at(seed, budget, 0).await
    }

    /// A node at a TCP port of its choice.
    pub async fn node_at(&self, seed: u8, budget: Arc<Budget>, port: u16) -> TestNode {
        let trust = self.trust(seed);
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, port).into()).unwrap();
        let listener: TcpListener = socket.listen(1_024).unwrap();
        let address = Address::Ip(listener.local_addr().unwrap());
        let id = trust.node();
        self.book.set(id, address.clone(), &format!("pi-{seed}"));
        let tested = Arc::new(Tested {
            backlog: Mutex::new(0.0),
            began: AtomicU64::new(0),
            running: Arc::default(),
            made: Arc::default(),
            read: Arc::default(),
            gate: Semaphore::new(0),
            offers: Mutex::default(),
            learned: Mutex::default(),
            mail: Mutex::default(),
            reached: Mutex::default(),
            link: OnceLock::new(),
        });
        let link = Link::new(trust.clone(), self.book.clone(), tested.clone(), budget.clone());
        let (sender, arrivals) = mpsc::channel(16);
        let tasks = vec![
            tokio::spawn(serve(listener, trust.clone(), None, arrivals_to(sender))),
            tokio::spawn(link.clone().receive(arrivals)),
        ];
        TestNode { id, tested, link, trust, budget, address, tasks }
    }
}

/// Nobody speaks of anything but calls.
pub fn arrivals_to(calls: mpsc::Sender<MemberArrival>) -> Arrivals {
    Arrivals { calls: Some(calls), ..mpsc::channel(1).0.into() }
}

pub fn port(address: &Address) -> u16 {
    let Address::Ip(address) = address else { panic!("tests have addresses") };
    address.port()
}

pub fn empty() -> CallBody {
    CallBody::new(Empty::new())
}

pub fn text(text: &'static str) -> CallBody {
    CallBody::new(Full::new(Bytes::from(text)))
}

/// So many bytes in pieces, each with the number of its piece; `given` counts what was asked for.
pub fn bytes(pieces: u64, given: &Arc<AtomicU64>) -> CallBody {
    let given = given.clone();
    let piece = move |at: u64| {
        given.fetch_add(PIECE as u64, Relaxed);
        Ok::<_, Infallible>(Frame::data(Bytes::from(vec![at as u8; PIECE])))
    };
    CallBody::new(StreamBody::new(stream::iter((0..pieces).map(piece))))
}

/// Pieces for ever, with turns for others.
pub fn endless(given: &Arc<AtomicU64>) -> CallBody {
    let pieces = stream::unfold(given.clone(), |given| async move {
        tokio::task::yield_now().await;
        given.fetch_add(PIECE as u64, Relaxed);
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(vec![7; PIECE]))), given))
    });
    CallBody::new(StreamBody::new(pieces))
}

/// The reply of a call that ran elsewhere, as status and text.
pub async fn replied(sent: Sent) -> (StatusCode, String) {
    match sent {
        Sent::Ran(response) => {
            let status = response.status();
            (status, read(response.into_body()).await)
        }
        Sent::Here(_) => panic!("it ran here"),
        Sent::Failed(problem) => panic!("{problem}"),
    }
}

pub fn failed(sent: Sent) -> problem::Code {
    match sent {
        Sent::Failed(problem) => problem.code,
        Sent::Ran(response) => panic!("it ran: {}", response.status()),
        Sent::Here(_) => panic!("it ran here"),
    }
}

pub async fn read<B>(body: B) -> String
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let whole = timeout(LONG, body.collect()).await.expect("it comes to an end").unwrap();
    String::from_utf8_lossy(&whole.to_bytes()).into_owned()
}

/// Waits until something is so.
pub async fn until(is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(LONG, wait).await.expect("it comes to be so");
}
