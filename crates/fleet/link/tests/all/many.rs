//! A thousand calls at once.

use crate::world::{LONG, Town, empty, failed, replied, text, until};
use fleet_link::{Sent, Undecided};
use futures_util::future::join_all;
use http::Request;
use problem::Code;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_are_on_their_way_at_once() {
    let town = Town::new(1);
    let (one, other) = (Arc::new(town.node(1).await), town.node(2).await);
    // The second connection is there before there are more calls than one may have.
    let begin = |count: usize| -> Vec<_> {
        let call = |_| {
            let (one, id) = (one.clone(), other.id);
            tokio::spawn(async move {
                let wanted = Undecided { function: "gate", bytes: 0, here: None, nodes: &[id] };
                one.link.send(&wanted, (id, 0.0), Request::new(text("x")), LONG).await
            })
        };
        (0..count).map(call).collect()
    };
    let mut calls = begin(100);
    until(|| other.tested.running.load(Relaxed) == 100).await;
    calls.extend(begin(900));
    until(|| other.tested.running.load(Relaxed) == 1_000).await;
    // There are no more than two connections, and no more calls than they may have.
    calls.extend(begin(24));
    until(|| other.tested.running.load(Relaxed) == 1_024).await;
    assert_eq!(failed(one.call(&other, "hello", empty()).await), Code::CallsRefused);
    other.tested.gate.add_permits(1_024);
    for call in timeout(LONG, join_all(calls)).await.expect("all end") {
        assert_eq!(replied(call.unwrap()).await.1, "through");
    }
    assert_eq!(replied(one.call(&other, "hello", empty()).await).await.1, "hello");
    let ran = one.link.counts().outgoing().find(|(word, _)| *word == "ran").unwrap().1;
    assert_eq!(ran, 1_025);
    let is_spread = |bytes: u64| bytes == 2 * (136 << 10);
    until(|| is_spread(one.budget.total_bytes()) && is_spread(other.budget.total_bytes())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_come_together_share_the_first_connection() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let calls = join_all((0..20).map(|_| one.call(&other, "hello", empty()))).await;
    assert!(calls.iter().all(|sent| matches!(sent, Sent::Ran(_))));
    drop(calls);
    until(|| other.budget.total_bytes() == 136 << 10).await;
}
