//! What a call carries there and back.

use crate::world::{TestNode, Town, empty, failed, replied, text, until};
use bytes::Bytes;
use fleet_link::{CallBody, Sent, Undecided};
use futures_util::stream;
use http::{HeaderValue, Request, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use problem::{Code, Problem};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_runs_at_the_other_node_and_its_reply_comes_back() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    assert_eq!(replied(one.call(&other, "echo", text("over there")).await).await.1, "over there");
    assert_eq!(replied(one.call(&other, "teapot", empty()).await).await, (StatusCode::IM_A_TEAPOT, "hello".into()));
    assert_eq!(other.tested.began.load(Relaxed), 2);
    assert_eq!(replied(other.call(&one, "echo", text("and back")).await).await.1, "and back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_function_sees_the_request_as_it_came() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let request = Request::put("/plate/7?fast=yes")
        .header("host", "cars.example:8700")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .header("x-twice", "a")
        .header("x-twice", "b")
        .header("te", "gzip")
        .header("lighter-fleet-call", "other;hops=0")
        .header("lighter-fleet-report", "1;backlog=9;places=1;speed=9")
        .body(empty())
        .unwrap();
    let (_, seen) = replied(one.send("mirror", &[&other], None, request).await).await;
    assert!(seen.starts_with("PUT http://cars.example:8700/plate/7?fast=yes "), "{seen}");
    for field in [r#""traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01""#, r#""x-twice": "b""#] {
        assert!(seen.contains(field), "{seen}");
    }
    for field in ["lighter-fleet", "\"te\"", "\"host\""] {
        assert!(!seen.contains(field), "{seen}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_says_where_it_ran_and_how_long_the_way_was() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let Sent::Ran(response) = one.call(&other, "hello", empty()).await else { panic!("it ran there") };
    let timing = response.headers()["server-timing"].to_str().unwrap();
    let (way, rest) = timing.split_once(", ").unwrap();
    assert!(way.starts_with("fleet;dur=") && way.ends_with(r#";desc="pi-2""#), "{timing}");
    assert_eq!(rest, "run;dur=0.100");
    assert!(response.headers().keys().all(|name| !name.as_str().starts_with("lighter-fleet")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_breaks_off_is_the_callers_fault() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let pieces = [Ok(Frame::data(Bytes::from("a"))), Err(Problem::new(Code::RequestTimeout, "the caller is slow"))];
    let sent = one.call(&other, "sink", CallBody::new(StreamBody::new(stream::iter(pieces)))).await;
    assert_eq!(failed(sent), Code::RequestTimeout);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_time_is_over_ends_at_the_far_end() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let nodes = [other.id];
    let wanted = Undecided { function: "never", bytes: 0, here: None, nodes: &nodes };
    let sent = one.link.send(&wanted, (other.id, 0.0), Request::new(empty()), Duration::from_millis(300)).await;
    let (status, body) = replied(sent).await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    assert!(body.contains("L3001"), "{body}");
    until(|| other.tested.running.load(Relaxed) == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_cannot_travel_is_not_sent() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let sent = one.call(&other, "a;hops=0", empty()).await;
    assert_eq!((failed(sent), other.tested.began.load(Relaxed)), (Code::RequestMalformed, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_given_back() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let mut request = Request::new(text("x"));
    request.headers_mut().insert("x-large", HeaderValue::from_str(&"y".repeat(40_000)).unwrap());
    let (status, _) = replied(one.send("echo", &[&other], None, request).await).await;
    assert_eq!(status, StatusCode::OK);
    let connections = |node: &TestNode| node.budget.total_bytes() == 136 << 10;
    until(|| connections(&one) && connections(&other)).await;
}
