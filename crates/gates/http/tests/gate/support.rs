//! A gate with a small node behind it, and clients that speak raw bytes, HTTP/1 and HTTP/2.

use bytes::Bytes;
use gate_http::{Arrival, BodyError, Config, Gate, Handled, Handler, Listener, RequestBody, RouteTable};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use manifest::HttpTrigger;
use problem::Problem;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Long enough for a loaded machine, short enough to fail.
pub const PATIENCE: Duration = Duration::from_secs(20);

type NodeBody = UnsyncBoxBody<Bytes, BodyError>;

/// What stands behind the gate.
#[derive(Default)]
pub struct Node {
    /// Lets `/wait` answer.
    pub release: Notify,
    /// Requests to `/wait` and `/forever` that have begun, and those that ended without an answer.
    pub begun: AtomicU32,
    pub dropped: AtomicU32,
    pub dropping: Notify,
}

/// Notices a handler that is dropped.
struct Dropped<'a>(&'a Node);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, SeqCst);
        self.0.dropping.notify_waiters();
    }
}

impl Handler for Node {
    type Body = NodeBody;

    async fn handle(self: &Arc<Self>, request: Request<RequestBody>, arrival: Arrival) -> Handled<NodeBody> {
        let path = request.uri().path().to_owned();
        let is_head = request.method() == Method::HEAD;
        if path.starts_with("/routed") {
            return self.routed(&request).into();
        }
        let response = match path.as_str() {
            "/hello" => text("hello"),
            "/echo" => Response::new(request.into_body().boxed_unsync()),
            "/trailers" => Response::new(Trailing::default().boxed_unsync()),
            "/collect" => match request.into_body().collect().await {
                Ok(body) => {
                    let trailers = body.trailers().map_or(0, HeaderMap::len);
                    text(format!("{} bytes {trailers} trailers", body.to_bytes().len()))
                }
                Err(error) => {
                    let problem = Problem::from(error);
                    gate_http::problem_reply(&problem)
                        .map(|bytes| Full::new(bytes).map_err(|never| match never {}).boxed_unsync())
                }
            },
            "/ignore" => text("ignored"),
            "/who" => text(format!("{} {} {:?}", arrival.peer.address.ip(), arrival.request_id, request.version())),
            "/path" => text(request.uri().to_string()),
            "/wait" | "/forever" => {
                self.begun.fetch_add(1, SeqCst);
                let dropped = Dropped(self);
                if path == "/forever" {
                    std::future::pending::<()>().await;
                }
                self.release.notified().await;
                std::mem::forget(dropped);
                text("waited")
            }
            "/panic" => panic!("a handler that fails, as a test of the gate wants"),
            "/fields" => {
                let names: Vec<_> = request.headers().keys().map(http::HeaderName::as_str).collect();
                text(names.join(" "))
            }
            "/reset" => {
                let mut response = text("content");
                *response.status_mut() = StatusCode::RESET_CONTENT;
                response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("7"));
                response
            }
            "/longer" | "/twice" => {
                let mut response = text(if is_head { "" } else { "truth" });
                let lengths = if path == "/longer" { &["50"][..] } else { &["5", "5"] };
                for length in lengths {
                    response.headers_mut().append(header::CONTENT_LENGTH, HeaderValue::from_static(length));
                }
                response
            }
            "/unchanged" => {
                let mut response = text("");
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("50"));
                response
            }
            "/large" => text(vec![b'x'; 32 * 1024 * 1024]),
            "/breaks" => Response::new(Breaking(0).boxed_unsync()),
            "/continue" => {
                let mut response = text("");
                *response.status_mut() = StatusCode::CONTINUE;
                response
            }
            "/liar" => {
                let mut response = text("truth");
                for (name, value) in
                    [("connection", "upgrade"), ("transfer-encoding", "gzip"), ("upgrade", "x"), ("keep-alive", "x")]
                {
                    response.headers_mut().insert(name, HeaderValue::from_static(value));
                }
                response
            }
            _ => {
                let mut response = text("none");
                *response.status_mut() = StatusCode::NOT_FOUND;
                response
            }
        };
        Handled { response, function: Some("test".into()) }
    }
}

impl Node {
    fn routed<B>(&self, request: &Request<B>) -> Response<NodeBody> {
        let mut get = HttpTrigger::new("/routed/*");
        get.methods = vec!["GET".to_owned()];
        let table = RouteTable::build([
            ("f", &get, "any"),
            ("g", &HttpTrigger { host: Some("b".to_owned()), ..get.clone() }, "b"),
        ]);
        match table.unwrap().route(request) {
            Ok(route) => text(format!("to {}", route.target)),
            Err(refusal) => {
                refusal.reply().map(|bytes| Full::new(bytes).map_err(|never| match never {}).boxed_unsync())
            }
        }
    }
}

fn text(content: impl Into<Bytes>) -> Response<NodeBody> {
    Response::new(Full::new(content.into()).map_err(|never| match never {}).boxed_unsync())
}

/// Two parts, then a trailer.
#[derive(Default)]
struct Trailing(u32);

impl Body for Trailing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.0 += 1;
        Poll::Ready(match self.0 {
            1 | 2 => Some(Ok(Frame::data(Bytes::from_static(b"part ")))),
            3 => Some(Ok(Frame::trailers(HeaderMap::from_iter([(header::ETAG, HeaderValue::from_static("end"))])))),
            _ => None,
        })
    }
}

/// One part, a pause in which it is sent, then an error.
struct Breaking(u32);

impl Body for Breaking {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.0 += 1;
        match self.0 {
            1 => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"part "))))),
            2 => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            _ => Poll::Ready(Some(Err(BodyError::TimedOut(Duration::ZERO)))),
        }
    }
}

/// A running gate.
pub struct Running {
    pub gate: Gate,
    pub node: Arc<Node>,
    pub address: SocketAddr,
}

pub fn start(config: Config) -> Running {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let address = listener.address();
    let node = Arc::new(Node::default());
    Running { gate: Gate::start(vec![listener], config, node.clone()).unwrap(), node, address }
}

pub async fn connect(address: SocketAddr) -> TcpStream {
    within(TcpStream::connect(address)).await.unwrap()
}

pub async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("nothing happened for too long")
}

/// Sends bytes and returns all that comes back until the gate closes the connection.
pub async fn talk(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(address).await;
    stream.write_all(bytes).await.unwrap();
    read_all(&mut stream).await
}

pub async fn read_all(stream: &mut TcpStream) -> String {
    let mut reply = Vec::new();
    // A reset after a reply is the end of it, too.
    let _ = within(stream.read_to_end(&mut reply)).await;
    String::from_utf8_lossy(&reply).into_owned()
}

/// Reads until `end` stands in what came.
pub async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut reply = Vec::new();
    let mut part = [0; 4096];
    while !String::from_utf8_lossy(&reply).contains(end) {
        let length = within(stream.read(&mut part)).await.unwrap();
        assert!(length > 0, "closed after {:?}, without {end:?}", String::from_utf8_lossy(&reply));
        reply.extend_from_slice(&part[..length]);
    }
    String::from_utf8_lossy(&reply).into_owned()
}

pub async fn get(address: SocketAddr, path: &str) -> String {
    talk(address, format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes()).await
}

pub type Client = SendRequest<UnsyncBoxBody<Bytes, BodyError>>;

pub async fn http2(address: SocketAddr) -> Client {
    let stream = connect(address).await;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub fn request(method: Method, path: &str) -> Request<NodeBody> {
    let uri = format!("http://a{path}");
    Request::builder()
        .method(method)
        .uri(uri)
        .body(Empty::new().map_err(|never| match never {}).boxed_unsync())
        .unwrap()
}

pub fn body_of(frames: Vec<Frame<Bytes>>) -> NodeBody {
    Frames(frames.into_iter()).boxed_unsync()
}

/// A body of given frames.
struct Frames(std::vec::IntoIter<Frame<Bytes>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(self.0.next().map(Ok))
    }
}
