//! A receiver that refuses, before it has read the body; and what the caller's node does then.

use crate::world::{PIECE, TestNode, Town, bytes, empty, failed, read, replied, text};
use budget::Budget;
use choice::Truth;
use fleet_link::{CallBody, Sent};
use http::Request;
use problem::Code;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const FREE: Option<Truth> = Some(Truth { backlog: 100.0 });

fn busy(node: &TestNode, seconds: f64) {
    *node.tested.backlog.lock() = seconds;
}

fn refused(node: &TestNode, why: &str) -> u64 {
    node.link.counts().incoming().find(|(word, _)| *word == why).unwrap().1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_node_refuses_and_the_next_one_gets_the_whole_body() {
    let town = Town::new(1);
    let (mut one, two, three) = (town.node(1).await, town.node(2).await, town.node(3).await);
    one.hears();
    one.knows(&[&two, &three]).await;
    busy(&two, 5.0);
    for pieces in [0, 1, 3, 40] {
        let given = Arc::new(AtomicU64::new(0));
        let request = Request::new(bytes(pieces, &given));
        let Sent::Ran(response) = one.send("echo", &[&two, &three], None, request).await else {
            panic!("the third runs it")
        };
        let timing = response.headers()["server-timing"].to_str().unwrap().to_owned();
        assert!(timing.contains(r#"desc="pi-3""#), "{timing}");
        let body = read(response.into_body()).await;
        assert_eq!(body.len(), pieces as usize * PIECE);
        assert_eq!(given.load(Relaxed), pieces * PIECE as u64, "each piece was asked for once");
    }
    assert_eq!((two.tested.began.load(Relaxed), two.tested.read.load(Relaxed), refused(&two, "busy")), (0, 0, 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_refused_runs_here_where_that_is_best() {
    let town = Town::new(1);
    let (one, two) = (town.node(1).await, town.node(2).await);
    busy(&two, 5.0);
    let here = Some(Truth { backlog: 0.0 });
    let request = Request::post("/plate").header("host", "x").header("a", "b").body(text("whole")).unwrap();
    let Sent::Here(request) = one.send("echo", &[&two], here, request).await else { panic!("it runs here") };
    assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/plate"));
    assert_eq!((request.headers()["host"].as_bytes(), request.headers().len()), (&b"x"[..], 2));
    assert_eq!(read(request.into_body()).await, "whole");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_node_that_has_it_runs_it_after_it_has_said_how_busy_it_is() {
    let town = Town::new(1);
    let (one, two) = (town.node(1).await, town.node(2).await);
    busy(&two, 5.0);
    assert_eq!(replied(one.call(&two, "echo", text("after all")).await).await.1, "after all");
    assert_eq!((refused(&two, "busy"), two.tested.began.load(Relaxed)), (1, 1));
}

/// With two copies, both busy, or one busy and the other just taken away, a call that entered elsewhere failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_that_are_both_busy_the_one_that_is_less_so_runs_it() {
    let town = Town::new(1);
    let (mut one, two, three) = (town.node(1).await, town.node(2).await, town.node(3).await);
    one.hears();
    one.knows(&[&two, &three]).await;
    busy(&two, 5.0);
    busy(&three, 50.0);
    let request = Request::new(text("x"));
    assert_eq!(replied(one.send("echo", &[&two, &three], None, request).await).await.1, "x");
    let began = |node: &TestNode| node.tested.began.load(Relaxed);
    assert_eq!((refused(&two, "busy"), refused(&three, "busy"), began(&two), began(&three)), (1, 1, 1, 0));

    three.link.drain();
    let request = Request::new(text("y"));
    busy(&two, 500.0);
    assert_eq!(replied(one.send("echo", &[&two, &three], None, request).await).await.1, "y");
    assert_eq!((began(&two), began(&three)), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_two_refusals_the_call_runs_where_it_arrives() {
    let town = Town::new(1);
    let mut one = town.node(1).await;
    let others = [town.node(2).await, town.node(3).await, town.node(4).await];
    let others = [&others[0], &others[1], &others[2]];
    one.hears();
    one.knows(&others).await;
    others.iter().for_each(|node| busy(node, 5.0));
    let request = Request::new(text("x"));
    assert_eq!(replied(one.send("echo", &others, None, request).await).await.1, "x");
    let sum = |count: &dyn Fn(&TestNode) -> u64| others.iter().map(|node| count(node)).sum::<u64>();
    assert_eq!((sum(&|node| refused(node, "busy")), sum(&|node| node.tested.began.load(Relaxed))), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lacks_the_function_or_closes_its_door_did_nothing() {
    let town = Town::new(1);
    let (one, two) = (town.node(1).await, town.node(2).await);
    for (function, code) in [("absent", Code::CallsRefused), ("closed", Code::TokenMissing)] {
        let given = Arc::new(AtomicU64::new(0));
        assert_eq!(failed(one.call(&two, function, bytes(3, &given)).await), code);
        let sent = one.send(function, &[&two], FREE, Request::new(text("x"))).await;
        let Sent::Here(request) = sent else { panic!("it runs here") };
        assert_eq!(read(request.into_body()).await, "x");
    }
    let request = Request::get("/").header("authorization", "Bearer x").body(empty()).unwrap();
    assert_eq!(failed(one.send("closed", &[&two], None, request).await), Code::TokenInvalid);
    assert_eq!(two.tested.began.load(Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_memory_refuses_and_one_that_ends_does_too() {
    let town = Town::new(1);
    // A connection finds room in it, and a body on it does not.
    let (one, full) = (town.node(1).await, town.node_with(2, Budget::new(800 << 10)).await);
    let given = Arc::new(AtomicU64::new(0));
    let sent = one.send("echo", &[&full], FREE, Request::new(bytes(2, &given))).await;
    assert!(matches!(sent, Sent::Here(_)));
    assert_eq!(refused(&full, "full"), 1);
    assert_eq!(replied(one.call(&full, "hello", empty()).await).await.1, "hello");
    full.link.drain();
    let sent = one.send("echo", &[&full], FREE, Request::new(empty())).await;
    assert!(matches!(sent, Sent::Here(_)));
    assert_eq!(full.tested.began.load(Relaxed), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_goes_on_once_and_never_twice() {
    let town = Town::new(1);
    let (one, two, three) = (town.node(1).await, town.node(2).await, town.node(3).await);
    for (seed, to) in [(20, three.id), (21, one.id), (22, two.id)] {
        let two = town.node(seed).await;
        two.tested.link.set((two.link.clone(), to)).ok().unwrap();
        assert_eq!(replied(one.call(&two, "onwards", text("x")).await).await.1, "L9123");
    }
    let began = |node: &TestNode| node.tested.began.load(Relaxed);
    assert_eq!((began(&one), began(&two), began(&three)), (0, 0, 0));
    // The mark is on the request, not in its bytes: what a caller writes there changes nothing.
    let request = Request::get("/").header("lighter-fleet-call", "x;hops=9").body(CallBody::new(text("x"))).unwrap();
    assert_eq!(replied(one.send("echo", &[&three], None, request).await).await.1, "x");
}
