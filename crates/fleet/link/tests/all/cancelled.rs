//! A caller that goes away ends its call at the far end.

use crate::world::{LONG, TestNode, Town, empty, endless, replied, until};
use fleet_link::{CallBody, Sent, Undecided};
use http::Request;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::task::JoinHandle;

fn begin(one: &Arc<TestNode>, other: &TestNode, function: &'static str, body: CallBody) -> JoinHandle<()> {
    let (one, id) = (one.clone(), other.id);
    tokio::spawn(async move {
        let wanted = Undecided { function, bytes: 0, here: None, nodes: &[id] };
        let _ = one.link.send(&wanted, (id, 0.0), Request::new(body), LONG).await;
        panic!("it does not end by itself");
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_given_up_ends_at_the_far_end() {
    let town = Town::new(1);
    let (one, other) = (Arc::new(town.node(1).await), town.node(2).await);
    let given = Arc::new(AtomicU64::new(0));
    for (function, body) in [("never", empty()), ("never", endless(&given)), ("sink", endless(&given))] {
        let call = begin(&one, &other, function, body);
        until(|| other.tested.running.load(Relaxed) == 1).await;
        call.abort();
        until(|| other.tested.running.load(Relaxed) == 0).await;
        // Neither does the caller's body go on, and the connection serves others.
        until(|| one.budget.used_bytes(budget::Purpose::Bodies) == 0).await;
        assert_eq!(replied(one.call(&other, "hello", empty()).await).await.1, "hello");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_is_given_up_ends_at_the_far_end() {
    let town = Town::new(1);
    let (one, other) = (town.node(1).await, town.node(2).await);
    let given = Arc::new(AtomicU64::new(0));
    for function in ["source", "echo"] {
        let Sent::Ran(response) = one.call(&other, function, endless(&given)).await else { panic!("it ran there") };
        let mut body = response.into_body();
        body.frame().await.unwrap().unwrap();
        assert_eq!(other.tested.running.load(Relaxed), 1);
        drop(body);
        until(|| other.tested.running.load(Relaxed) == 0).await;
        until(|| one.budget.total_bytes() == 136 << 10 && other.budget.total_bytes() == 136 << 10).await;
    }
}
