//! What one client may take of the gate: connections, memory, attention.

use crate::support::{Running, body_of, connect, get, http2, read_all, read_until, request, start, talk, within};
use budget::{Budget, Purpose};
use bytes::Bytes;
use futures_util::future::join_all;
use gate_http::Config;
use http::{HeaderValue, Method, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, 0, 0, 0, 0, 0], payload].concat()
}

/// 12 million PRIORITY frames were read without a word.
#[tokio::test]
async fn frames_that_ask_nothing_end_the_connection() {
    let gate = start(Config::default());
    // Of stream 3, which depends on none; a PING; a change of nothing.
    let priority = [&[0, 0, 5, 2, 0, 0, 0, 0, 3][..], &[0, 0, 0, 0, 16]].concat();
    for (name, one) in [("PRIORITY", priority), ("PING", frame(6, &[7; 8])), ("SETTINGS", frame(4, &[]))] {
        let (mut reader, mut writer) = connect(gate.address).await.into_split();
        let reading = tokio::spawn(async move { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await });
        let writing = async move {
            writer.write_all(&[PREFACE, &frame(4, &[])].concat()).await?;
            let thousand = one.repeat(1_000);
            for _ in 0..1_000 {
                writer.write_all(&thousand).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        assert!(within(writing).await.is_err(), "a million frames of {name} were read");
        let _ = within(reading).await.unwrap();
    }
    assert_eq!(get(gate.address, "/hello").await.lines().last(), Some("hello"));
}

/// 3,000 connections that were closed at once kept a neighbour waiting for 42 ms: all of them had their turns before
/// it, and closing one takes long.
#[tokio::test]
async fn a_crowd_that_comes_and_goes_leaves_others_their_turns() {
    const CROWD: u32 = 200;
    let gate = start(Config::default());
    let crowd: Vec<_> = (0..CROWD).map(|_| std::net::TcpStream::connect(gate.address).unwrap()).collect();
    let (since, mut open, mut most) = (Instant::now(), 0, 0);
    while open < CROWD && since.elapsed() < Duration::from_secs(20) {
        tokio::task::yield_now().await;
        most = most.max(gate.gate.connections() - open);
        open = gate.gate.connections();
    }
    assert!(open == CROWD && most <= 16, "{open} came, up to {most} at once");
    drop(crowd);
    most = 0;
    while open > 0 && since.elapsed() < Duration::from_secs(20) {
        tokio::task::yield_now().await;
        most = most.max(open - gate.gate.connections());
        open = gate.gate.connections();
    }
    assert!(open == 0 && most <= 8, "{open} are left, up to {most} went at once");
}

fn counted(mebibytes: u64) -> (Arc<Budget>, Running) {
    let budget = Budget::new(mebibytes << 20);
    (budget.clone(), start(Config { budget, ..Config::default() }))
}

async fn nothing_is_held(budget: &Budget) {
    let since = Instant::now();
    while budget.total_bytes() > 0 {
        assert!(since.elapsed() < Duration::from_secs(20), "{} bytes are still held", budget.total_bytes());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// 30 connections with 250 streams of 54 kB of head each made the node 560 MB larger.
#[tokio::test]
async fn heads_of_one_connection_have_a_bound_and_are_counted() {
    let (budget, gate) = counted(64);
    let mut client = http2(gate.address).await;
    let waiting = join_all((0..40).map(|_| {
        let mut request = request(Method::GET, "/wait");
        request.headers_mut().insert("x-long", HeaderValue::from_bytes(&[b'x'; 54_000]).unwrap());
        client.send_request(request)
    }));
    let waiting = tokio::spawn(waiting);
    let since = Instant::now();
    while gate.node.begun.load(std::sync::atomic::Ordering::SeqCst) < 19 {
        assert!(since.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let held = budget.used_bytes(Purpose::Heads);
    assert!((1 << 19..=1 << 20).contains(&held), "{held} bytes of heads are held");
    let (mut served, mut refused) = (0, 0);
    while !waiting.is_finished() {
        gate.node.release.notify_waiters();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for reply in waiting.await.unwrap() {
        let reply = reply.unwrap();
        match reply.status() {
            StatusCode::OK => served += 1,
            StatusCode::SERVICE_UNAVAILABLE => refused += 1,
            other => panic!("{other}"),
        }
        reply.collect().await.unwrap();
    }
    assert_eq!((served, refused), (19, 21));
    drop(client);
    nothing_is_held(&budget).await;
}

#[tokio::test]
async fn a_head_of_http1_that_is_not_whole_is_counted() {
    let (budget, gate) = counted(64);
    let mut stream = connect(gate.address).await;
    let head = format!("GET /hello HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(50_000));
    stream.write_all(head.as_bytes()).await.unwrap();
    let since = Instant::now();
    while budget.used_bytes(Purpose::Heads) < 50_000 {
        assert!(since.elapsed() < Duration::from_secs(20), "{} bytes", budget.used_bytes(Purpose::Heads));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stream.write_all(b"\r\nConnection: close\r\n\r\n").await.unwrap();
    assert!(read_all(&mut stream).await.ends_with("hello"));
    nothing_is_held(&budget).await;
}

#[tokio::test]
async fn what_waits_of_bodies_is_counted_up_to_the_window() {
    let (budget, gate) = counted(64);
    let mut client = http2(gate.address).await;
    let idle = || budget.used_bytes(Purpose::Connections);
    let reply = client.send_request(request(Method::GET, "/hello")).await.unwrap();
    reply.collect().await.unwrap();
    let before = idle();
    let sending = join_all((0..6).map(|_| {
        let body = body_of(vec![Frame::data(Bytes::from(vec![b'a'; 400_000]))]);
        client.send_request(request(Method::POST, "/wait").map(|_| body))
    }));
    let sending = tokio::spawn(sending);
    while gate.node.begun.load(std::sync::atomic::Ordering::SeqCst) < 6 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(idle() - before, 1 << 20);
    while !sending.is_finished() {
        gate.node.release.notify_waiters();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop((sending.await.unwrap(), client));
    nothing_is_held(&budget).await;
}

#[tokio::test]
async fn a_connection_the_node_has_no_memory_for_is_closed() {
    let budget = Budget::new(256 << 10);
    let gate = start(Config { budget: budget.clone(), ..Config::default() });
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(connect(gate.address).await);
    }
    let mut late = connect(gate.address).await;
    assert_eq!(read_all(&mut late).await, "");
    drop(open);
    nothing_is_held(&budget).await;
    assert!(get(gate.address, "/hello").await.ends_with("hello"));
}

#[tokio::test]
async fn a_peer_has_as_many_connections_as_it_may() {
    let gate = start(Config { connections_per_peer_max: Some(2), ..Config::default() });
    let mut first = connect(gate.address).await;
    let _second = connect(gate.address).await;
    first.write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    read_until(&mut first, "hello").await;
    assert_eq!(get(gate.address, "/hello").await, "", "the third is closed at once");
    drop(first);
    let since = Instant::now();
    while !get(gate.address, "/hello").await.ends_with("hello") {
        assert!(since.elapsed() < Duration::from_secs(20), "the place of the first is not given back");
    }
}

#[tokio::test]
async fn a_body_that_drips_makes_room_when_others_wait() {
    let gate = start(Config { connections_max: 1, idle_timeout: Duration::from_millis(400), ..Config::default() });
    let mut slow = connect(gate.address).await;
    slow.write_all(b"POST /collect HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").await.unwrap();
    let dripping = tokio::spawn(async move {
        let mut reply = [0; 64];
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if slow.write_all(b"x").await.is_err() || matches!(slow.try_read(&mut reply), Ok(0)) {
                return;
            }
        }
    });
    assert!(get(gate.address, "/hello").await.ends_with("hello"));
    within(dripping).await.unwrap();
}

#[tokio::test]
async fn a_panic_is_an_answer_and_its_neighbours_go_on() {
    let gate = start(Config::default());
    let reply = talk(
        gate.address,
        b"GET /panic HTTP/1.1\r\nHost: a\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    )
    .await;
    assert!(reply.starts_with("HTTP/1.1 500 ") && reply.contains("L9001") && reply.ends_with("hello"), "{reply}");
    let mut client = http2(gate.address).await;
    let waiting = client.send_request(request(Method::GET, "/wait"));
    let broken = within(client.send_request(request(Method::GET, "/panic"))).await.unwrap();
    assert_eq!(broken.status(), StatusCode::INTERNAL_SERVER_ERROR);
    gate.node.release.notify_one();
    assert_eq!(within(waiting).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_hello_of_tls_is_answered_at_once() {
    let gate = start(Config::default());
    let mut stream = connect(gate.address).await;
    stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await.unwrap();
    let begin = Instant::now();
    let mut reply = [0; 12];
    within(stream.read_exact(&mut reply)).await.unwrap();
    assert_eq!(&reply, b"HTTP/1.1 400");
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn what_speaks_of_the_connection_is_not_shown_and_an_upgrade_is_declined() {
    let gate = start(Config::default());
    let reply = talk(
        gate.address,
        b"GET /fields HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade, close\r\nKeep-Alive: 5\r\n\
          Proxy-Connection: close\r\nX-Own: 1\r\n\r\n",
    )
    .await;
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("host x-own"), "{reply}");
}

#[tokio::test]
async fn a_reply_that_resets_has_no_content() {
    let gate = start(Config::default());
    let reply = get(gate.address, "/reset").await;
    assert!(reply.starts_with("HTTP/1.1 205 ") && reply.ends_with("\r\n\r\n"), "{reply}");
    assert!(!reply.contains("content-length: 7"), "{reply}");
}
