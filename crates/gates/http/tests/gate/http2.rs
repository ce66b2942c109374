//! HTTP/2 with prior knowledge.

use crate::support::{body_of, connect, http2, request, start, within};
use bytes::Bytes;
use gate_http::{BodyError, Config};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use problem::{Code, Problem};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn a_request_and_its_reply() {
    let gate = start(Config::default());
    let mut client = http2(gate.address).await;
    let reply = client.send_request(request(Method::GET, "/who")).await.unwrap();
    assert_eq!((reply.status(), reply.version()), (StatusCode::OK, Version::HTTP_2));
    let id = reply.headers()["x-request-id"].to_str().unwrap().to_owned();
    let body = reply.collect().await.unwrap().to_bytes();
    assert_eq!(body, format!("127.0.0.1 {id} HTTP/2.0"));
}

#[tokio::test]
async fn fields_and_methods_have_the_bounds_of_http1() {
    let gate = start(Config::default());
    let mut client = http2(gate.address).await;
    let mut with_fields = async |count| {
        let mut asked = request(Method::GET, "/hello");
        asked.headers_mut().extend((0..count).map(|_| (header::ACCEPT, HeaderValue::from_static("a"))));
        within(client.send_request(asked)).await.unwrap().status()
    };
    assert_eq!(with_fields(90).await, StatusCode::OK);
    assert_eq!(with_fields(101).await, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    let long = Method::from_bytes(&[b'A'; 33]).unwrap();
    assert_eq!(within(client.send_request(request(long, "/hello"))).await.unwrap().status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn requests_run_side_by_side() {
    let gate = start(Config::default());
    let mut client = http2(gate.address).await;
    let waiting = client.send_request(request(Method::GET, "/wait"));
    let reply = within(client.send_request(request(Method::GET, "/hello"))).await.unwrap();
    assert_eq!(reply.collect().await.unwrap().to_bytes(), "hello");
    gate.node.release.notify_one();
    assert_eq!(within(waiting).await.unwrap().collect().await.unwrap().to_bytes(), "waited");
}

#[tokio::test]
async fn bodies_and_trailers_go_both_ways() {
    let gate = start(Config::default());
    let mut client = http2(gate.address).await;
    let trailers = HeaderMap::from_iter([(header::ETAG, HeaderValue::from_static("sent"))]);
    let frames = vec![
        Frame::data(Bytes::from(vec![b'a'; 700_000])),
        Frame::data(Bytes::from_static(b"end")),
        Frame::trailers(trailers.clone()),
    ];
    let echo = request(Method::POST, "/echo").map(|_| body_of(frames));
    let reply = within(client.send_request(echo)).await.unwrap().collect();
    let body = within(reply).await.unwrap();
    assert_eq!(body.trailers(), Some(&trailers));
    assert_eq!(body.to_bytes().len(), 700_003);
    let reply = client.send_request(request(Method::GET, "/trailers")).await.unwrap();
    assert_eq!(reply.collect().await.unwrap().trailers().unwrap()[header::ETAG], "end");
}

#[tokio::test]
async fn head_has_a_length_and_no_body() {
    let gate = start(Config::default());
    let mut client = http2(gate.address).await;
    let reply = client.send_request(request(Method::HEAD, "/hello")).await.unwrap();
    assert_eq!(reply.headers()[header::CONTENT_LENGTH], "5");
    assert_eq!(reply.collect().await.unwrap().to_bytes(), "");
}

#[tokio::test]
async fn what_is_not_sound_is_refused_by_stream() {
    let gate = start(Config::default());
    let mut client = http2(gate.address).await;
    let mut two_hosts = request(Method::GET, "/hello");
    two_hosts.headers_mut().insert(header::HOST, HeaderValue::from_static("b"));
    let mut bad_host = request(Method::GET, "/hello");
    *bad_host.uri_mut() = "http://user@a/hello".parse().unwrap();
    for (request, code) in [
        (two_hosts, Code::RequestMalformed),
        (bad_host, Code::RequestMalformed),
        (request(Method::GET, "/a/../b"), Code::RequestMalformed),
        (request(Method::GET, "//b"), Code::RequestMalformed),
        (request(Method::GET, "/%2fb"), Code::RequestMalformed),
    ] {
        let shown = format!("{request:?}");
        let reply = within(client.send_request(request)).await.unwrap();
        assert_eq!(reply.status(), code.status(), "{shown}");
        assert!(reply.headers().contains_key("x-request-id"));
        let problem = Problem::from_json(&reply.collect().await.unwrap().to_bytes()).unwrap();
        assert_eq!(problem.code, code, "{shown}");
    }
    let reply = client.send_request(request(Method::GET, "/hello")).await.unwrap();
    assert_eq!(reply.status(), StatusCode::OK);
}

#[tokio::test]
async fn connect_is_refused() {
    let gate = start(Config::default());
    let mut client = http2(gate.address).await;
    let mut connect = request(Method::CONNECT, "/");
    *connect.uri_mut() = "a:80".parse().unwrap();
    let reply = within(client.send_request(connect)).await.unwrap();
    assert_eq!(reply.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn too_large_a_head_is_refused() {
    let gate = start(Config { head_bytes_max: 8 * 1024, ..Config::default() });
    let mut client = http2(gate.address).await;
    let mut large = request(Method::GET, "/hello");
    large.headers_mut().insert("x", HeaderValue::from_str(&"a".repeat(20_000)).unwrap());
    // hyper's client keeps to the limit that the gate announces, or the gate answers 431: refused either way.
    if let Ok(reply) = within(client.send_request(large)).await {
        assert_eq!(reply.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
}

#[tokio::test]
async fn a_function_has_no_say_over_the_connection() {
    let gate = start(Config::default());
    let mut client = http2(gate.address).await;
    let reply = client.send_request(request(Method::GET, "/liar")).await.unwrap();
    assert!(!reply.headers().contains_key(header::CONNECTION));
    assert_eq!(reply.collect().await.unwrap().to_bytes(), "truth");
    let reply = client.send_request(request(Method::GET, "/breaks")).await.unwrap();
    assert!(reply.collect().await.is_err());
}

#[tokio::test]
async fn a_body_that_stops_coming_fails() {
    let gate = start(Config { body_timeout: Duration::from_millis(150), ..Config::default() });
    let mut client = http2(gate.address).await;
    let stalled = request(Method::POST, "/collect").map(|_| Stalled(Some(Bytes::from_static(b"abc"))).boxed_unsync());
    let reply = within(client.send_request(stalled)).await.unwrap();
    assert_eq!(reply.status(), StatusCode::REQUEST_TIMEOUT);
    // The connection goes on.
    let reply = client.send_request(request(Method::GET, "/hello")).await.unwrap();
    assert_eq!(reply.status(), StatusCode::OK);
}

/// A body that says something and then nothing.
struct Stalled(Option<Bytes>);

impl Body for Stalled {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.0.take().map_or(Poll::Pending, |part| Poll::Ready(Some(Ok(Frame::data(part)))))
    }
}

#[tokio::test]
async fn noise_after_the_preface_closes_the_connection() {
    let gate = start(Config::default());
    let mut stream = connect(gate.address).await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&[0xff; 4096]).await.unwrap();
    let mut reply = Vec::new();
    let _ = within(stream.read_to_end(&mut reply)).await;
    assert!(!reply.starts_with(b"HTTP/1"), "{reply:?}");
}
