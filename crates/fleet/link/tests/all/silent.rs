//! Machines that vanish without a word: no byte comes any more, and no connection ends.

use crate::cable::Cable;
use crate::world::{LONG, TestNode, Town, empty, failed, read, replied, until};
use choice::Truth;
use fleet_link::limits::{CONNECT_TIMEOUT, PING_INTERVAL};
use fleet_link::{Sent, Undecided, Way};
use http::Request;
use problem::Code;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Two nodes, and the cable by which the first one reaches the second.
async fn two_with_a_cable(town: &Town) -> (Arc<TestNode>, TestNode, Cable) {
    let (one, two) = (Arc::new(town.node(1).await), town.node(2).await);
    let cable = Cable::to(&two.address).await;
    town.book.set(two.id, cable.address.clone(), "pi-2");
    assert_eq!(replied(one.call(&two, "hello", empty()).await).await.1, "hello");
    (one, two, cable)
}

/// Begins a call that may run here as well.
fn begin(one: &Arc<TestNode>, two: &TestNode, function: &'static str) -> JoinHandle<Sent> {
    let (one, node) = (one.clone(), two.id);
    tokio::spawn(async move {
        let here = Some(Truth { backlog: 0.0 });
        let wanted = Undecided { function, bytes: 0, here, nodes: &[node] };
        one.link.send(&wanted, (node, 0.0), Request::new(empty()), LONG).await
    })
}

/// Sends calls until one leaves the silent node. Returns those that are still under way.
async fn until_one_leaves(one: &Arc<TestNode>, two: &TestNode) -> Vec<JoinHandle<Sent>> {
    let mut under_way = Vec::new();
    let leaves = async {
        loop {
            let mut call = begin(one, two, "hello");
            match timeout(Duration::from_millis(200), &mut call).await {
                Ok(Ok(Sent::Here(_))) => return,
                Ok(sent) => assert!(matches!(sent, Ok(Sent::Ran(_))), "what was on its way when the cable was pulled"),
                Err(_) => under_way.push(call),
            }
        }
    };
    timeout(LONG, leaves).await.expect("new calls leave a silent node");
    under_way
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_calls_leave_a_silent_node_and_those_under_way_are_lost() {
    let town = Town::new(1);
    let (one, two, cable) = two_with_a_cable(&town).await;
    let never = begin(&one, &two, "never");
    until(|| two.tested.running.load(Relaxed) == 1).await;
    cable.pull(true);
    let under_way = until_one_leaves(&one, &two).await;
    assert!(!never.is_finished(), "calls under way have longer");
    // Whoever may run nowhere else is told at once, and not after a timeout.
    assert_eq!(failed(one.call(&two, "hello", empty()).await), Code::MemberAway);
    for call in under_way.into_iter().chain([never]) {
        let sent = timeout(LONG, call).await.expect("it comes to an end").unwrap();
        let Sent::Failed(problem) = sent else { panic!("nobody answered") };
        assert_eq!(problem.code, Code::CallLost);
        assert!(problem.detail.contains("said nothing for 6 s"), "{}", problem.detail);
    }
    // The other end gives the caller up, too, and drops what it has called.
    until(|| two.tested.running.load(Relaxed) == 0).await;
    // The cable is in again: after a rest calls go through it.
    cable.pull(false);
    let back = async { while !matches!(one.call(&two, "hello", empty()).await, Sent::Ran(_)) {} };
    timeout(LONG, back).await.expect("it is found again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_silence_ends_no_call() {
    let town = Town::new(1);
    let (one, two, cable) = two_with_a_cable(&town).await;
    let gate = begin(&one, &two, "gate");
    until(|| two.tested.running.load(Relaxed) == 1).await;
    cable.pull(true);
    let under_way = until_one_leaves(&one, &two).await;
    cable.pull(false);
    two.tested.gate.add_permits(1);
    for (call, text) in under_way.into_iter().map(|call| (call, "hello")).chain([(gate, "through")]) {
        match timeout(LONG, call).await.expect("it comes to an end").unwrap() {
            Sent::Ran(response) => assert_eq!(read(response.into_body()).await, text),
            _ => panic!("its node is there again"),
        }
    }
    assert_eq!(replied(one.call(&two, "hello", empty()).await).await.1, "hello");
}

/// A node behind a router dials others, and nobody can dial it. Each of its questions made it one to call again, and
/// then all calls waited for three seconds, until it turned out once more that nobody gets through to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_waits_for_a_node_that_asks_and_cannot_be_asked() {
    let town = Town::new(1);
    let (one, mut two) = (town.node(1).await, town.node(2).await);
    let cable = Cable::to(&two.address).await;
    town.book.set(two.id, cable.address.clone(), "pi-2");
    cable.pull(true);
    assert_eq!(failed(one.call(&two, "hello", empty()).await), Code::MemberAway, "one call finds out");
    two.hears();
    let wanted = Undecided { function: "hello", bytes: 0, here: None, nodes: &[two.id] };
    for _ in 0..3 {
        two.tested.reached.lock().clear();
        until(|| two.tested.reached.lock().contains(&one.id)).await;
        assert_eq!(one.link.choose(&wanted), Way::Nowhere);
        let begun = Instant::now();
        assert_eq!(failed(one.call(&two, "hello", empty()).await), Code::MemberAway);
        assert!(begun.elapsed() < CONNECT_TIMEOUT, "it waited for {:?}", begun.elapsed());
    }
    assert!(!one.tested.reached.lock().contains(&two.id));
    // The way is open, and found without a call.
    cable.pull(false);
    until(|| one.link.choose(&wanted) != Way::Nowhere).await;
    assert_eq!(replied(one.call(&two, "hello", empty()).await).await.1, "hello");
    assert!(one.tested.reached.lock().contains(&two.id));
}

/// Both ends of each connection asked each other every five seconds. Half of what a fleet sent in which nothing
/// happened were these questions. That nothing is sent cannot be waited for: so this test sleeps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_a_call_costs_no_byte() {
    let town = Town::new(1);
    let (one, two, cable) = two_with_a_cable(&town).await;
    sleep(Duration::from_secs(1)).await;
    let before = cable.carried();
    sleep(PING_INTERVAL + Duration::from_secs(1)).await;
    assert_eq!(cable.carried(), before);
    // While a call is under way they ask.
    let gate = begin(&one, &two, "gate");
    until(|| two.tested.running.load(Relaxed) == 1).await;
    let sent = cable.carried();
    until(|| cable.carried() > sent).await;
    two.tested.gate.add_permits(1);
    assert!(matches!(timeout(LONG, gate).await.expect("it ends").unwrap(), Sent::Ran(_)));
}
