//! Nodes that go away: before a call, in its middle, and when they are there again.

use crate::world::{LONG, TestNode, Town, bytes, empty, endless, failed, port, read, replied, text, until};
use budget::Budget;
use choice::Truth;
use fleet_link::{CallBody, Sent, Undecided};
use fleet_trust::revoked::Revoked;
use http::Request;
use http_body_util::BodyExt;
use problem::Code;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const HERE: Option<Truth> = Some(Truth { backlog: 0.0 });

/// Begins a call that may run here as well.
fn begin(one: &Arc<TestNode>, to: &[&TestNode], function: &'static str, body: CallBody) -> JoinHandle<Sent> {
    let (one, nodes) = (one.clone(), to.iter().map(|node| node.id).collect::<Vec<_>>());
    tokio::spawn(async move {
        let wanted = Undecided { function, bytes: 0, here: HERE, nodes: &nodes };
        one.link.send(&wanted, (nodes[0], 0.0), Request::new(body), LONG).await
    })
}

async fn ended(call: JoinHandle<Sent>) -> Sent {
    timeout(LONG, call).await.expect("it comes to an end").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_dies_in_the_middle_may_have_run_the_call_and_nobody_runs_it_again() {
    let town = Town::new(1);
    let (one, mut two, three) = (Arc::new(town.node(1).await), town.node(2).await, town.node(3).await);
    let given = Arc::new(AtomicU64::new(0));
    let calls = [("never", empty()), ("gate", text("x")), ("sink", endless(&given))];
    let calls = calls.map(|(function, body)| begin(&one, &[&two, &three], function, body));
    until(|| two.tested.running.load(Relaxed) == 3).await;
    two.kill();
    for call in calls {
        assert_eq!(failed(ended(call).await), Code::CallLost);
    }
    assert_eq!(three.tested.began.load(Relaxed), 0);
    until(|| one.budget.total_bytes() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_breaks_off_is_not_taken_for_a_whole_one() {
    let town = Town::new(1);
    let (one, mut two) = (town.node(1).await, town.node(2).await);
    let Sent::Ran(response) = one.call(&two, "source", empty()).await else { panic!("it ran there") };
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    two.kill();
    let error = timeout(LONG, async {
        loop {
            match body.frame().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => return error,
                None => panic!("a reply that broke off looks whole"),
            }
        }
    });
    assert_eq!(error.await.expect("it ends").code, Code::CallLost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_cannot_be_sent_did_not_begin_and_runs_elsewhere() {
    let town = Town::new(1);
    let (one, mut two) = (town.node(1).await, town.node(2).await);
    assert_eq!(replied(one.call(&two, "hello", empty()).await).await.1, "hello");
    let kept = two.address.clone();
    two.kill();
    // The connection's end is noticed, and nothing listens any more.
    let gone = async {
        loop {
            let given = Arc::new(AtomicU64::new(0));
            match one.send("echo", &[&two], HERE, Request::new(bytes(5, &given))).await {
                Sent::Here(request) => return read(request.into_body()).await.len(),
                Sent::Ran(_) => {}
                Sent::Failed(problem) => assert_eq!(problem.code, Code::CallLost),
            }
        }
    };
    assert_eq!(timeout(LONG, gone).await.expect("it is noticed"), 5 * crate::world::PIECE);
    assert_eq!(failed(one.call(&two, "echo", empty()).await), Code::MemberAway);
    // It is back at its address: after a rest it is tried again.
    let again = town.node_at(2, Budget::new(64 << 20), port(&kept)).await;
    let back = async { while !matches!(one.call(&again, "hello", empty()).await, Sent::Ran(_)) {} };
    timeout(LONG, back).await.expect("it is found again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_node_is_cut_off_in_the_middle_of_its_calls() {
    let town = Town::new(1);
    let (one, two) = (Arc::new(town.node(1).await), town.node(2).await);
    let call = begin(&one, &[&two], "never", empty());
    until(|| two.tested.running.load(Relaxed) == 1).await;
    let list = Revoked::sign(town.authority(), 1, 1_795_425_300, &BTreeMap::from([(one.id, 1)]));
    assert!(two.trust.learn_revoked(list.bytes()).unwrap());
    assert_eq!(failed(ended(call).await), Code::CallLost);
    until(|| two.tested.running.load(Relaxed) == 0).await;
    // TLS lets the client finish first, so the refusal may show at the first call; nothing of it runs.
    for _ in 0..3 {
        let sent = one.call(&two, "hello", empty()).await;
        let code = failed(sent);
        assert!([Code::NodeRevoked, Code::MemberAway, Code::CallLost].contains(&code), "{code}");
    }
    assert_eq!(two.tested.began.load(Relaxed), 1);
    // The other way round: what it has open to the revoked node ends, too.
    assert!(matches!(failed(two.call(&one, "hello", empty()).await), Code::NodeRevoked | Code::MemberAway));
    assert_eq!(one.tested.began.load(Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_fleet_is_not_called_and_cannot_call() {
    let (ours, theirs) = (Town::new(1), Town::new(2));
    let (one, stranger) = (ours.node(1).await, theirs.node(2).await);
    ours.book.set(stranger.id, stranger.address.clone(), "pi-2");
    theirs.book.set(one.id, one.address.clone(), "pi-1");
    for (from, to) in [(&one, &stranger), (&stranger, &one)] {
        let code = failed(from.call(to, "hello", text("secret")).await);
        assert!(matches!(code, Code::FleetUnknown | Code::MemberAway), "{code}");
        assert_eq!(to.tested.began.load(Relaxed), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_takes_connections_and_says_nothing_is_away() {
    let town = Town::new(1);
    let one = town.node(1).await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = town.trust(9).node();
    town.book.set(node, fleet_trust::Address::Ip(silent.local_addr().unwrap()), "pi-9");
    let wanted = Undecided { function: "hello", bytes: 0, here: None, nodes: &[node] };
    let sent = one.link.send(&wanted, (node, 0.0), Request::new(empty()), LONG).await;
    assert_eq!(failed(sent), Code::MemberAway);
}
