//! Bodies of any length in bounded memory, both ways.

use crate::world::{LONG, PIECE, TestNode, Town, bytes, empty, read, replied, until};
use fleet_link::Sent;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::time::timeout;

/// What may be between the one that makes and the one that reads: the windows of both ways, what waits to be written,
/// and the buffers of two sockets each way.
const BETWEEN_MAX: u64 = 8 << 20;
const PIECES: u64 = 1_600;

fn used(node: &TestNode) -> u64 {
    node.budget.total_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_megabytes_go_there_and_back_in_bounded_memory() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let given = Arc::new(AtomicU64::new(0));
    let Sent::Ran(response) = one.call(&other, "echo", bytes(PIECES, &given)).await else { panic!("it ran there") };
    let (mut body, mut got) = (response.into_body(), 0);
    while let Some(frame) = timeout(LONG, body.frame()).await.expect("it goes on") {
        let data = frame.unwrap().into_data().unwrap();
        for at in [0, data.len().saturating_sub(1)].into_iter().filter(|at| *at < data.len()) {
            assert_eq!(data[at], ((got + at as u64) / PIECE as u64) as u8, "byte {}", got + at as u64);
        }
        got += data.len() as u64;
        assert!(given.load(Relaxed) - got <= BETWEEN_MAX, "{} bytes are between", given.load(Relaxed) - got);
        assert!(used(&one) <= 4 << 20 && used(&other) <= 4 << 20, "{} and {}", used(&one), used(&other));
    }
    assert_eq!(got, PIECES * PIECE as u64);
    drop(body);
    until(|| used(&one) == 136 << 10 && used(&other) == 136 << 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_slows_the_far_end_and_nobody_else() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let Sent::Ran(response) = one.call(&other, "source", empty()).await else { panic!("it ran there") };
    let (mut slow, mut got) = (response.into_body(), 0);
    for _ in 0..20 {
        let piece = timeout(LONG, slow.frame()).await.expect("it goes on").unwrap().unwrap();
        got += piece.into_data().unwrap().len() as u64;
        assert_eq!(replied(one.call(&other, "hello", empty()).await).await.1, "hello");
        let made = other.tested.made.load(Relaxed);
        assert!(made - got <= BETWEEN_MAX, "{made} made, {got} read");
    }
    drop(slow);
    until(|| other.tested.running.load(Relaxed) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_slow_readers_leave_the_way_open() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let mut slow = Vec::new();
    for _ in 0..3 {
        let Sent::Ran(response) = one.call(&other, "source", empty()).await else { panic!("it ran there") };
        slow.push(response.into_body());
    }
    // Three windows of a stream are less than the connection's, so a fourth reply comes through.
    let given = Arc::new(AtomicU64::new(0));
    let Sent::Ran(response) = one.call(&other, "echo", bytes(32, &given)).await else { panic!("it ran there") };
    assert_eq!(read(response.into_body()).await.len(), 32 * PIECE);
    drop(slow);
    until(|| other.tested.running.load(Relaxed) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_does_not_read_stops_the_caller() {
    let town = Town::new(1);
    let (one, other) = (Arc::new(town.node(1).await), town.node(2).await);
    let given = Arc::new(AtomicU64::new(0));
    let call = {
        let (one, id, body) = (one.clone(), other.id, bytes(PIECES, &given));
        tokio::spawn(async move {
            let wanted = fleet_link::Undecided { function: "gate", bytes: 0, here: None, nodes: &[id] };
            one.link.send(&wanted, (id, 0.0), http::Request::new(body), LONG).await
        })
    };
    until(|| other.tested.running.load(Relaxed) == 1).await;
    // Another call goes there and back: what the first one may send has been sent.
    assert_eq!(replied(one.call(&other, "hello", empty()).await).await.1, "hello");
    assert!(given.load(Relaxed) <= 1 << 20, "{} bytes were asked for", given.load(Relaxed));
    other.tested.gate.add_permits(1);
    let sent = timeout(LONG, call).await.expect("it ends").unwrap();
    assert_eq!(replied(sent).await.1, "through");
}
