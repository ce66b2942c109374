//! Members that break the rules: one member's node may be in others' hands.

use crate::world::{LONG, TestNode, Town, empty, replied, until};
use bytes::Bytes;
use fleet_trust::link::connect_for_calls;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::sync::atomic::Ordering::Relaxed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A member that speaks HTTP/2 as it likes.
pub async fn raw(from: &TestNode, to: &TestNode) -> SendRequest<Full<Bytes>> {
    let (peer, stream) = connect_for_calls(&from.trust, &to.address, &to.id).await.unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
        drop(peer);
    });
    sender
}

async fn say(sender: &mut SendRequest<Full<Bytes>>, name: &str, value: &str) -> hyper::Result<Response<Incoming>> {
    let request = Request::post("http://x/").header(name, value).body(Full::new(Bytes::from("x"))).unwrap();
    timeout(LONG, sender.send_request(request)).await.expect("it is answered")
}

async fn serves(one: &TestNode, other: &TestNode) {
    assert_eq!(replied(one.call(other, "hello", empty()).await).await.1, "hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_make_no_sense_are_refused() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let mut sender = raw(&one, &other).await;
    for (field, why) in [
        ("", "garbled"),
        ("hello", "garbled"),
        ("hello;hops=1;refusals=0;expected=NaN;left=1000", "garbled"),
        ("hello;hops=0;refusals=0;expected=0;left=1000", "looped"),
        ("hello;hops=2;refusals=0;expected=0;left=1000", "looped"),
        ("absent;hops=1;refusals=0;expected=0;left=1000", "absent"),
    ] {
        let response = say(&mut sender, "lighter-fleet-call", field).await.unwrap();
        let said = response.headers()["lighter-fleet-reply"].to_str().unwrap();
        assert_eq!((said, response.status().as_u16()), (&*format!("refused;why={why}"), 409), "{field}");
    }
    let lies = "1;backlog=-1e300;places=4294967295;speed=inf";
    assert!(say(&mut sender, "lighter-fleet-report", lies).await.unwrap().status().is_success());
    assert_eq!(other.tested.began.load(Relaxed), 0);
    serves(&one, &other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_is_too_large_is_refused_and_held_by_nobody() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let mut sender = raw(&one, &other).await;
    let bomb = HeaderValue::from_str(&"y".repeat(200 << 10)).unwrap();
    for _ in 0..8 {
        let mut request = Request::new(Full::new(Bytes::from("x")));
        *request.uri_mut() = "http://x/".parse().unwrap();
        request.headers_mut().insert("x-bomb", bomb.clone());
        let call = HeaderValue::from_static("hello;hops=1;refusals=0;expected=0;left=1000");
        request.headers_mut().insert("lighter-fleet-call", call);
        match timeout(LONG, sender.send_request(request)).await.expect("it is answered") {
            Ok(response) => assert_eq!(response.status().as_u16(), 431),
            Err(_) => sender = raw(&one, &other).await,
        }
    }
    assert_eq!(other.tested.began.load(Relaxed), 0);
    assert!(other.budget.used_bytes(budget::Purpose::Heads) == 0);
    serves(&one, &other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_ends_its_connection_and_no_other() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let mut state = 7_u64;
    let mut noise = |count: usize| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..count).map(|_| next()).collect()
    };
    for begins in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", PREFACE, &[PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat()] {
        for _ in 0..8 {
            let (_peer, mut stream) = connect_for_calls(&one.trust, &other.address, &other.id).await.unwrap();
            // It may close at once, and not read on.
            let _ = stream.write_all(begins).await;
            let _ = stream.write_all(&noise(4_000)).await;
            let _ = stream.shutdown().await;
            let mut rest = Vec::new();
            let _ = timeout(LONG, stream.read_to_end(&mut rest)).await.expect("it is closed");
        }
    }
    assert_eq!(other.tested.began.load(Relaxed), 0);
    serves(&one, &other).await;
    until(|| other.budget.total_bytes() == 136 << 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_has_a_few_connections_and_the_newest_count() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let mut all = Vec::new();
    for _ in 0..12 {
        let mut sender = raw(&one, &other).await;
        let served = say(&mut sender, "lighter-fleet-offers", "1;revision=0").await;
        assert!(served.is_ok(), "the newest is served");
        all.push(sender);
    }
    until(|| all.iter().filter(|sender| !sender.is_closed()).count() == 4).await;
    until(|| other.budget.total_bytes() == 4 * (136 << 10)).await;
}

/// A receiver that says nothing of what became of a call is not believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_without_the_links_word_is_no_reply() {
    use fleet_trust::serve::{Arrivals, MemberArrival, serve};
    use hyper::server::conn::http2::Builder;
    use hyper::service::service_fn;
    let town = Town::new(1);
    let one = town.node(1).await;
    let trust = town.trust(9);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    town.book.set(trust.node(), fleet_trust::Address::Ip(listener.local_addr().unwrap()), "pi-9");
    let node = trust.node();
    let (sender, mut arrivals) = tokio::sync::mpsc::channel(1);
    tokio::spawn(serve(listener, trust, None, Arrivals { calls: Some(sender.clone()), ..sender.into() }));
    tokio::spawn(async move {
        while let Some(MemberArrival { peer, stream }) = arrivals.recv().await {
            let hello = service_fn(|_| async {
                Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from("hi"))))
            });
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), hello).await;
            drop(peer);
        }
    });
    let wanted = fleet_link::Undecided { function: "hello", bytes: 0, here: None, nodes: &[node] };
    let sent = one.link.send(&wanted, (node, 0.0), Request::new(empty()), LONG).await;
    assert_eq!(crate::world::failed(sent), problem::Code::FleetMessage);
}
