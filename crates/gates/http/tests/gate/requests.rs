//! Sound requests over HTTP/1: what the node sees and what the client gets.

use crate::support::{connect, get, http2, read_all, read_until, request, start, talk};
use gate_http::Config;
use http::{Method, StatusCode};
use std::sync::atomic::Ordering::SeqCst;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn requests_follow_each_other_on_one_connection_however_they_are_cut() {
    let gate = start(Config::default());
    let requests = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n\
                    POST /collect HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12345\
                    POST /collect HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nx: y\r\n\r\n\
                    GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for size in [1, 2, 3, 7, 50, 1_000] {
        let mut stream = connect(gate.address).await;
        for piece in requests.as_bytes().chunks(size) {
            stream.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        let reply = read_all(&mut stream).await;
        assert_eq!(reply.matches("HTTP/1.1 200").count(), 4, "in pieces of {size}: {reply}");
        assert!(reply.contains("5 bytes 0 trailers") && reply.contains("7 bytes 1 trailers"), "{reply}");
        assert_eq!(reply.matches("hello").count(), 2);
    }
}

#[tokio::test]
async fn a_request_id_is_kept_or_made_and_always_sent_back() {
    let gate = start(Config::default());
    let sent = "GET /who HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Request-Id: ";
    let reply = talk(gate.address, format!("{sent}mine-1\r\n\r\n").as_bytes()).await;
    assert!(reply.contains("x-request-id: mine-1\r\n") && reply.contains("127.0.0.1 mine-1 HTTP/1.1"), "{reply}");
    let mut made = Vec::new();
    for _ in 0..2 {
        let reply = talk(gate.address, format!("{sent}not plain\r\n\r\n").as_bytes()).await;
        let (_, rest) = reply.split_once("x-request-id: ").unwrap();
        let id = rest.split("\r\n").next().unwrap().to_owned();
        assert!(reply.contains(&format!("127.0.0.1 {id} HTTP/1.1")), "{reply}");
        made.push(id);
    }
    assert_ne!(made[0], made[1]);
}

#[tokio::test]
async fn the_node_sees_the_target_as_it_was_sent() {
    let gate = start(Config::default());
    assert!(get(gate.address, "/path?a=%2F..//&b").await.ends_with("/path?a=%2F..//&b"));
    let absolute = "GET http://a/path?x HTTP/1.1\r\nHost: A\r\nConnection: close\r\n\r\n";
    assert!(talk(gate.address, absolute.as_bytes()).await.ends_with("http://a/path?x"));
}

#[tokio::test]
async fn head_has_the_head_of_get_and_no_body() {
    let gate = start(Config::default());
    let reply = talk(gate.address, b"HEAD /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("content-length: 5\r\n"), "{reply}");
    assert!(reply.ends_with("\r\n\r\n"), "{reply}");
}

#[tokio::test]
async fn options_of_the_gate_itself_is_answered() {
    let gate = start(Config::default());
    let reply = talk(gate.address, b"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 204"), "{reply}");
}

#[tokio::test]
async fn http_1_0_is_served_and_closed() {
    let gate = start(Config::default());
    let reply = talk(gate.address, b"GET /hello HTTP/1.0\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.0 200") && reply.ends_with("hello"), "{reply}");
}

#[tokio::test]
async fn an_offer_of_h2c_is_declined_by_answering_in_http_1() {
    let gate = start(Config::default());
    let offer = "GET /hello HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nConnection: Upgrade, HTTP2-Settings, close\r\n\r\n";
    let reply = talk(gate.address, offer.as_bytes()).await;
    assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with("hello"), "{reply}");
}

#[tokio::test]
async fn expect_100_continue_is_answered_when_the_body_is_read() {
    let gate = start(Config::default());
    let mut stream = connect(gate.address).await;
    stream
        .write_all(b"POST /collect HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        .await
        .unwrap();
    read_until(&mut stream, "HTTP/1.1 100 Continue\r\n\r\n").await;
    stream.write_all(b"abc").await.unwrap();
    read_until(&mut stream, "3 bytes").await;
}

#[tokio::test]
async fn bodies_stream_both_ways_at_once() {
    let gate = start(Config::default());
    let mut stream = connect(gate.address).await;
    stream.write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    for part in ["one", "two", "six"] {
        stream.write_all(format!("3\r\n{part}\r\n").as_bytes()).await.unwrap();
        read_until(&mut stream, &format!("3\r\n{part}\r\n")).await;
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    read_until(&mut stream, "0\r\n\r\n").await;
    stream.write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    read_until(&mut stream, "hello").await;
}

#[tokio::test]
async fn trailers_reach_a_client_that_wants_them() {
    let gate = start(Config::default());
    let asked =
        talk(gate.address, b"GET /trailers HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close\r\n\r\n").await;
    assert!(asked.contains("5\r\npart \r\n"), "{asked}");
    // hyper sends only the trailers that the reply's head announces.
    let wanted = asked.ends_with("0\r\n\r\n") || asked.ends_with("0\r\netag: end\r\n\r\n");
    assert!(wanted, "{asked}");
}

#[tokio::test]
async fn large_bodies_arrive_whole() {
    let gate = start(Config::default());
    let size = 20 * 1024 * 1024;
    let mut stream = connect(gate.address).await;
    stream
        .write_all(format!("POST /collect HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n").as_bytes())
        .await
        .unwrap();
    stream.write_all(&vec![b'\n'; size]).await.unwrap();
    read_until(&mut stream, &format!("{size} bytes")).await;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    assert!(reply.len() > 32 * 1024 * 1024, "{}", reply.len());
}

#[tokio::test]
async fn a_body_nobody_reads_does_not_become_the_next_request() {
    let gate = start(Config::default());
    let inner = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n".repeat(5_000);
    let mut stream = connect(gate.address).await;
    let head = format!("POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", inner.len());
    let _ = stream.write_all(format!("{head}{inner}").as_bytes()).await;
    let _ = stream.shutdown().await;
    let reply = read_all(&mut stream).await;
    assert!(!reply.contains("hello"), "{reply}");
}

#[tokio::test]
async fn a_reply_that_breaks_off_is_not_whole() {
    let gate = start(Config::default());
    let reply = get(gate.address, "/breaks").await;
    assert!(reply.starts_with("HTTP/1.1 200") && !reply.ends_with("0\r\n\r\n"), "{reply}");
}

#[tokio::test]
async fn a_function_has_no_say_over_the_connection() {
    let gate = start(Config::default());
    let mut stream = connect(gate.address).await;
    for _ in 0..2 {
        stream.write_all(b"GET /liar HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let reply = read_until(&mut stream, "truth").await;
        assert!(reply.contains("content-length: 5\r\n"), "{reply}");
        for field in ["upgrade", "gzip", "keep-alive"] {
            assert!(!reply.contains(field), "{reply}");
        }
    }
    let reply = get(gate.address, "/continue").await;
    assert!(reply.starts_with("HTTP/1.1 502") && reply.contains("L6006"), "{reply}");
}

/// What a function said of its reply's length went out unread: a client of the same proxy could be made to read the
/// next reply at the wrong place.
#[tokio::test]
async fn a_function_does_not_decide_where_its_reply_ends() {
    let gate = start(Config::default());
    for path in ["/longer", "/twice"] {
        let reply = get(gate.address, path).await;
        assert!(reply.starts_with("HTTP/1.1 502") && reply.contains("L6006"), "{reply}");
        let mut client = http2(gate.address).await;
        let reply = client.send_request(request(Method::GET, path)).await.unwrap();
        assert_eq!(reply.status(), StatusCode::BAD_GATEWAY);
    }
    // Of what has no content it may say how much there would be.
    let head = b"HEAD /longer HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert!(talk(gate.address, head).await.contains("content-length: 50\r\n"));
    assert!(get(gate.address, "/unchanged").await.starts_with("HTTP/1.1 304"));
}

#[tokio::test]
async fn the_node_hears_of_a_client_that_goes_away() {
    let gate = start(Config::default());
    let mut stream = connect(gate.address).await;
    let dropping = gate.node.dropping.notified();
    stream.write_all(b"GET /forever HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    while gate.node.begun.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    drop(stream);
    crate::support::within(dropping).await;
    assert_eq!(gate.node.dropped.load(SeqCst), 1);
}

#[tokio::test]
async fn routes_are_found_by_host_path_and_method() {
    let gate = start(Config::default());
    for (method, path, host, parts) in [
        ("GET", "/routed/x", "a", &["HTTP/1.1 200", "to any"][..]),
        ("GET", "/routed/x?y=//", "B:8080", &["HTTP/1.1 200", "to b"]),
        ("GET", "http://b/routed/x", "b", &["HTTP/1.1 200", "to b"]),
        ("HEAD", "/routed/x", "a", &["HTTP/1.1 200", "content-length: 6"]),
        ("POST", "/routed/x", "a", &["HTTP/1.1 405", "allow: GET, HEAD, OPTIONS", "L4002"]),
        ("OPTIONS", "/routed/x", "a", &["HTTP/1.1 204", "allow: GET, HEAD, OPTIONS"]),
        ("GET", "/routed-not", "a", &["HTTP/1.1 404", "L4001"]),
    ] {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let reply = talk(gate.address, request.as_bytes()).await;
        for part in parts {
            assert!(reply.contains(part), "{method} {path} at {host} is answered {reply}, without {part}");
        }
    }
}

#[tokio::test]
async fn a_hundred_header_fields_go_through() {
    let gate = start(Config::default());
    let fields = "x: y\r\n".repeat(98);
    let request = format!("GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    assert!(talk(gate.address, request.as_bytes()).await.ends_with("hello"));
}
