//! What it costs that a call enters at one node and runs at another: `cargo run --release -p fleet-link --example
//! forward`.
//!
//! ```text
//!   this process ── HTTP/1 ──▶ entry, a process ── the link ──▶ far, a process
//!                                └─ direct: runs it here          └─ forward: runs it there
//! ```
//! It prints `forward_added_p50_ms`, one call after the other, and `forward_vs_direct`, the rate with 64 at once.

use budget::Budget;
use bytes::Bytes;
use choice::{Report, Truth};
use fleet_link::{CallBody, FarBody, FarCall, Link, Local, Members, Offers, Ran, Sent, Undecided, Why};
use fleet_trust::dates::Dates;
use fleet_trust::serve::{Arrivals, serve};
use fleet_trust::{Address, Authority, Clock, Membership, NodeId, NodeKey, Role, Trust};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

const NOW: u64 = 1_795_425_300;
const CALLS: usize = 4_000;
const AT_ONCE: usize = 64;
const LEFT: Duration = Duration::from_secs(30);

/// A node with one function, which answers at once.
struct Hello;

impl Local for Hello {
    type Body = Full<Bytes>;

    fn report(&self) -> Report {
        Report { truth: Truth { backlog: 0.0 }, places: 2, speed: 1.0 }
    }

    fn truth(&self, _function: &str) -> Option<Truth> {
        Some(Truth { backlog: 0.0 })
    }

    fn offers(&self) -> Offers {
        Offers::default()
    }

    fn learn(&self, _node: NodeId, _offers: Offers) {}

    async fn run(self: &Arc<Self>, request: Request<FarBody>, _call: FarCall) -> Result<Ran<Full<Bytes>>, Why> {
        Ok(Ran { response: hello(request.into_body()).await, run: None })
    }
}

async fn hello<B: http_body::Body<Data = Bytes>>(body: B) -> Response<Full<Bytes>> {
    let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    Response::new(Full::new(bytes))
}

/// A fleet of two.
struct Two(Option<(NodeId, Address)>);

impl Members for Two {
    fn others(&self) -> Vec<NodeId> {
        self.0.iter().map(|(node, _)| *node).collect()
    }

    fn address(&self, _node: &NodeId) -> Option<Address> {
        self.0.as_ref().map(|(_, address)| address.clone())
    }

    fn name(&self, _node: &NodeId) -> Option<String> {
        Some("far".to_owned())
    }
}

fn trust(seed: u8) -> Arc<Trust> {
    let authority = Authority::found("bench", &[1; 32]).unwrap();
    let key = NodeKey::from_seed(&[seed; 32]);
    let certificate = authority.issue(&key.public(), Role::Member, Dates::from(NOW), [seed; 16]).unwrap();
    let ca = authority.certificate().to_vec();
    let membership = Membership { fleet_name: "bench".into(), ca, certificate, anchors: Vec::new(), incarnation: 1 };
    Arc::new(Trust::new(key, membership, None, Clock::new(|| NOW, NOW)).unwrap())
}

/// Serves calls of the other node.
async fn far() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    say(listener.local_addr().unwrap());
    let trust = trust(2);
    let (sender, arrivals) = mpsc::channel(4);
    let arrivals_to = Arrivals { calls: Some(sender.clone()), ..sender.into() };
    tokio::spawn(serve(listener, trust.clone(), None, arrivals_to));
    Link::new(trust, Arc::new(Two(None)), Arc::new(Hello), Budget::unbounded()).receive(arrivals).await;
}

/// Serves HTTP/1: `/direct` runs here, all else at the far node.
async fn entry(far: SocketAddr) {
    let node = trust(2).node();
    let members = Arc::new(Two(Some((node, Address::Ip(far)))));
    let link = Link::new(trust(1), members, Arc::new(Hello), Budget::unbounded());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    say(listener.local_addr().unwrap());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let link = link.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let link = link.clone();
            async move { Ok::<_, Infallible>(answer(&link, node, request).await) }
        });
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(
    link: &Link<Hello>,
    node: NodeId,
    request: Request<Incoming>,
) -> Response<UnsyncBoxBody<Bytes, fleet_link::Fault>> {
    if request.uri().path() == "/direct" {
        return hello(request.into_body()).await.map(|body| body.map_err(|never| match never {}).boxed_unsync());
    }
    let wanted = Undecided { function: "hello", bytes: 0, here: None, nodes: &[node] };
    match link.send(&wanted, (node, 0.0), request.map(CallBody::new), LEFT).await {
        Sent::Ran(response) => response.map(|body| body.map_err(Into::into).boxed_unsync()),
        Sent::Here(_) => panic!("it has to run there"),
        Sent::Failed(problem) => panic!("{problem}"),
    }
}

fn say(address: SocketAddr) {
    println!("{address}");
    std::io::stdout().flush().unwrap();
}

/// A process that ends with this one.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn process(arguments: &[&str]) -> (Process, SocketAddr) {
    let program = std::env::current_exe().unwrap();
    let mut child = Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (Process(child), line.trim().parse().unwrap())
}

async fn client(to: SocketAddr) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(to).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn call(sender: &mut SendRequest<Full<Bytes>>, path: &str) {
    let request = Request::post(path).header("host", "x").body(Full::new(Bytes::from_static(b"hello"))).unwrap();
    sender.ready().await.unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
}

/// The middle of the times, in milliseconds, of calls one after the other.
async fn median(to: SocketAddr, path: &str) -> f64 {
    let mut sender = client(to).await;
    let mut times = Vec::with_capacity(CALLS);
    for number in 0..CALLS + CALLS / 4 {
        let began = Instant::now();
        call(&mut sender, path).await;
        if number >= CALLS / 4 {
            times.push(began.elapsed());
        }
    }
    times.sort_unstable();
    times[CALLS / 2].as_secs_f64() * 1e3
}

/// Calls a second, many at once.
async fn rate(to: SocketAddr, path: &'static str) -> f64 {
    let began = Instant::now();
    let each = CALLS * 4 / AT_ONCE;
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            tokio::spawn(async move {
                let mut sender = client(to).await;
                for _ in 0..each {
                    call(&mut sender, path).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    (each * AT_ONCE) as f64 / began.elapsed().as_secs_f64()
}

async fn measure() {
    let (_far, far) = process(&["far"]);
    let (_entry, entry) = process(&["entry", &far.to_string()]);
    let (mut added, mut parts) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (direct, forward) = (median(entry, "/direct").await, median(entry, "/forward").await);
        let (direct_rate, forward_rate) = (rate(entry, "/direct").await, rate(entry, "/forward").await);
        println!("direct {direct:.3} ms, {direct_rate:.0}/s · forward {forward:.3} ms, {forward_rate:.0}/s");
        added.push(forward - direct);
        parts.push(forward_rate / direct_rate);
    }
    added.sort_by(f64::total_cmp);
    parts.sort_by(f64::total_cmp);
    println!("forward_added_p50_ms {:.3}\nforward_vs_direct {:.2}", added[1], parts[1]);
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["far"] => far().await,
        ["entry", address] => entry(address.parse().unwrap()).await,
        _ => measure().await,
    }
}
