//! The end of a gate.

use crate::support::{connect, http2, read_all, read_until, request, start, within};
use gate_http::{Config, Drained, Listener};
use http::Method;
use http_body_util::BodyExt;
use problem::Code;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

#[tokio::test]
async fn a_drain_lets_running_requests_finish() {
    let running = start(Config::default());
    let mut idle = connect(running.address).await;
    idle.write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    read_until(&mut idle, "hello").await;
    let mut silent = connect(running.address).await;
    let mut slow = connect(running.address).await;
    slow.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut client = http2(running.address).await;
    let slow_http2 = tokio::spawn(client.send_request(request(Method::GET, "/wait")));
    while running.node.begun.load(SeqCst) < 2 || running.gate.connections() < 4 {
        tokio::task::yield_now().await;
    }
    let drain = tokio::spawn(running.gate.drain(Duration::from_secs(30)));
    assert_eq!(read_all(&mut idle).await, "");
    assert_eq!(read_all(&mut silent).await, "");
    assert!(TcpStream::connect(running.address).await.is_err(), "still accepts");
    assert!(!drain.is_finished());
    running.node.release.notify_waiters();
    let reply = read_all(&mut slow).await;
    assert!(reply.contains("connection: close") && reply.ends_with("waited"), "{reply}");
    let reply = within(slow_http2).await.unwrap().unwrap();
    assert_eq!(reply.collect().await.unwrap().to_bytes(), "waited");
    assert_eq!(within(drain).await.unwrap(), Drained { cut: 0 });
}

#[tokio::test]
async fn a_drain_cuts_what_does_not_finish() {
    let running = start(Config::default());
    let mut slow = connect(running.address).await;
    slow.write_all(b"GET /forever HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut client = http2(running.address).await;
    let slow_http2 = tokio::spawn(client.send_request(request(Method::GET, "/forever")));
    while running.node.begun.load(SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    let begin = Instant::now();
    assert_eq!(within(running.gate.drain(Duration::from_millis(100))).await, Drained { cut: 2 });
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(read_all(&mut slow).await, "");
    assert!(within(slow_http2).await.unwrap().is_err());
    within(async {
        while running.node.dropped.load(SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_dropped_gate_cuts_all() {
    let running = start(Config::default());
    let mut stream = connect(running.address).await;
    stream.write_all(b"GET /forever HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    while running.node.begun.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    drop(running.gate);
    assert_eq!(read_all(&mut stream).await, "");
}

#[tokio::test]
async fn an_address_in_use_is_a_problem_with_the_address() {
    let running = start(Config::default());
    let problem = Listener::bind(running.address, None).unwrap_err();
    assert_eq!(problem.code, Code::ListenFailed);
    assert!(problem.detail.contains(&running.address.to_string()), "{problem}");
}
