//! Very many connections that say nothing.

use crate::support::{Node, send};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use std::fs;
use std::io::ErrorKind;
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
