//! Very many connections that say nothing.

use crate::support::{Node, send, wait_for};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// As many as the gate serves at once.
const CONNECTIONS: u64 = 10_000;
/// Descriptors of a process beside them.
const OTHERS: u64 = 500;
/// What one may take: its task, its timer and its socket; a request would need more.
const CONNECTION_BYTES_MAX: u64 = 16 << 10;

/// Descriptors may be had for the connections here and for those in the node, whose limit is the same.
fn enough_descriptors() -> bool {
    let mut limit = getrlimit(Resource::Nofile);
    let needed = CONNECTIONS + OTHERS;
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        println!("skipped: descriptors: {needed} of them for idle connections: {:?} at most", limit.maximum);
        return false;
    }
    limit.current = limit.current.map(|current| current.max(needed));
    setrlimit(Resource::Nofile, limit).unwrap();
    true
}

fn descriptors(node: &Node) -> u64 {
    fs::read_dir(format!("/proc/{}/fd", node.pid())).unwrap().count() as u64
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_leave_room_for_a_request() {
    if !enough_descriptors() {
        return;
    }
    let node = Node::start();
    node.deploy_one("hello", "hello", json!({}));
    assert_eq!(node.get("/hello").status, 200);
    let (descriptors_before, rss_before) = (descriptors(&node), node.rss_bytes());
    let gate = node.gate.strip_prefix("http://").unwrap();
    let since = Instant::now();
    let open: Vec<TcpStream> = (0..CONNECTIONS).map(|_| TcpStream::connect(gate).unwrap()).collect();
    // Quiet ones are closed after a while: on a machine so slow the most there were counts.
    let mut most = 0;
    while most < CONNECTIONS && since.elapsed() < Duration::from_secs(30) {
        most = most.max(descriptors(&node).saturating_sub(descriptors_before));
        thread::sleep(Duration::from_millis(5));
    }
    assert!(most >= CONNECTIONS * 99 / 100, "{most} connections are open");
    let each = node.rss_bytes().saturating_sub(rss_before) / most;
    assert!(each <= CONNECTION_BYTES_MAX, "a connection takes {each} bytes");
    println!("a connection takes {each} bytes");
    // It waits until a quiet one has made room.
    assert_eq!(node.get("/hello").status, 200);
    let health =
        send("GET", &format!("{}/v1/node", node.api), &[("authorization", &format!("Bearer {}", node.token))], &[]);
    assert_eq!(health.status, 200);
    drop(open);
}

/// Replies whose units had ended waited for their client, as many and as large as it liked, and nothing counted them.
#[test]
fn replies_that_nobody_reads_are_counted_and_then_refused() {
    const STREAMS: u32 = 48;
    let node = Node::start_with(&["--memory-bytes-max", "67108864"]);
    let limits = json!({ "body_bytes": 4 << 20, "concurrency": 2, "waiting": STREAMS });
    node.deploy_one("attack", "attack", json!({ "limits": limits }));
    let metric = |name: &str| {
        let page = node.api("GET", "/metrics", &[]).text();
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name}{{for=\"bodies\"}} "))?.parse().ok());
        line.unwrap_or_else(|| panic!("{name} is not in {page}"))
    };
    let host = node.gate.strip_prefix("http://").unwrap();
    let mut client = TcpStream::connect(host).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    // Windows of nothing: no byte of a body may be sent.
    client.write_all(&frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])).unwrap();
    let head = [&b"\x83\x86\x04\x07/attack\x01"[..], &[host.len() as u8][..], host.as_bytes()].concat();
    for stream in (1..).step_by(2).take(STREAMS as usize) {
        client.write_all(&frame(1, 4, stream, &head)).unwrap();
        client.write_all(&frame(0, 1, stream, b"big-reply 2000000")).unwrap();
    }
    let answered = count_heads(&mut client, STREAMS);
    assert_eq!(answered, STREAMS, "each has the head of its reply");
    let (used, refused): (u64, u64) = (metric("lighter_memory_bytes"), metric("lighter_memory_refused_total"));
    assert!((8_000_000..=32 << 20).contains(&used) && refused > 0, "{used} bytes, {refused} refused");
    assert_eq!(u64::from(STREAMS), used / 2_000_000 + refused);
    drop(client);
    wait_for("the memory", || (metric("lighter_memory_bytes") == 0).then_some(()));
    assert_eq!(send("POST", &format!("{}/attack", node.gate), &[], b"big-reply 2000000").body.len(), 2_000_000);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = &(payload.len() as u32).to_be_bytes()[1..];
    [length, &[kind, flags], &stream.to_be_bytes()[..], payload].concat()
}

/// Reads frames until so many replies have begun.
fn count_heads(client: &mut TcpStream, wanted: u32) -> u32 {
    let mut heads = 0;
    while heads < wanted {
        let mut head = [0; 9];
        client.read_exact(&mut head).unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        client.read_exact(&mut payload).unwrap();
        heads += u32::from(head[3] == 1);
    }
    heads
}

/// They locked the administrator out of the API, `/healthz` among it, for as long as they were refilled.
#[test]
fn silent_connections_without_a_token_that_are_refilled_do_not_lock_the_administrator_out() {
    /// More than the API serves at once.
    const SILENT: usize = 300;
    let node = Node::start();
    let address = node.api.strip_prefix("http://").unwrap().to_owned();
    let connect = move || {
        let stream = TcpStream::connect(&address).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let ends = Arc::new(AtomicBool::new(false));
    let ended = ends.clone();
    let flood = thread::spawn(move || {
        let mut open: Vec<TcpStream> = (0..SILENT).map(|_| connect()).collect();
        let mut refilled = 0;
        while !ended.load(Relaxed) {
            for stream in &mut open {
                // Closed by the node, where there is an end or an error to read.
                if !stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                    *stream = connect();
                    refilled += 1;
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
        refilled
    });
    thread::sleep(Duration::from_millis(500));
    let mut took: Vec<Duration> = (0..100)
        .map(|number| {
            let began = Instant::now();
            let path = if number % 2 == 0 { "/v1/node" } else { "/healthz" };
            assert_eq!(node.api("GET", path, &[]).status, 200);
            began.elapsed()
        })
        .collect();
    ends.store(true, Relaxed);
    let refilled = flood.join().unwrap();
    took.sort();
    println!("p50 {:?} p99 {:?}, {refilled} connections refilled", took[50], took[98]);
    assert!(took[98] <= Duration::from_millis(500), "p99 {:?}", took[98]);
}
