//! Very many connections that say nothing.

use crate::support::{Node, send};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use std::fs;
use std::net::TcpStream;
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
        println!("SKIPPED: a process may have {:?} descriptors at most, {needed} are needed", limit.maximum);
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
