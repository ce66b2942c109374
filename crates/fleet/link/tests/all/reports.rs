//! How nodes hear of each other, and choose by it.

use crate::world::{Town, empty, until};
use bytes::Bytes;
use choice::Truth;
use fleet_link::limits::CONNECT_TIMEOUT;
use fleet_link::{Offers, Undecided, Way};
use fleet_trust::Address;
use std::time::Instant;
use tokio::net::TcpListener;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_hears_how_others_are_and_what_they_have() {
    let town = Town::new(1);
    let (mut one, two, mut three) = (town.node(1).await, town.node(2).await, town.node(3).await);
    *two.tested.backlog.lock() = 3.0;
    *two.tested.offers.lock() = Offers { revision: 7, bytes: Bytes::from("hello, plate") };
    *three.tested.offers.lock() = Offers { revision: 1, bytes: Bytes::from(vec![7; 300 << 10]) };
    one.hears();
    one.knows(&[&two, &three]).await;
    let learned = |node| one.tested.learned.lock().get(&node).cloned();
    until(|| learned(two.id).is_some() && learned(three.id).is_some()).await;
    assert_eq!(learned(two.id).unwrap(), *two.tested.offers.lock());
    assert!(learned(three.id).unwrap().bytes.is_empty(), "more than may be said is not said");
    // The asker was heard with its question.
    two.knows(&[&one]).await;
    assert!(one.tested.reached.lock().contains(&two.id), "it has answered");
    assert!(two.tested.reached.lock().contains(&one.id), "it has asked");
    let nodes = [two.id, three.id];
    let wanted = Undecided { function: "x", bytes: 0, here: None, nodes: &nodes };
    assert!(matches!(one.link.choose(&wanted), Way::There { node, .. } if node == three.id));
    let here = Some(Truth { backlog: 0.0 });
    assert_eq!(one.link.choose(&Undecided { here, ..wanted }), Way::Here);
    let here = Some(Truth { backlog: 60.0 });
    assert!(matches!(one.link.choose(&Undecided { here, ..wanted }), Way::There { .. }));
    // What changes is learned; who has gone is chosen no more.
    *two.tested.offers.lock() = Offers { revision: 8, bytes: Bytes::from("hello") };
    until(|| learned(two.id).is_some_and(|offers| offers.revision == 8)).await;
    three.kill();
    until(|| !matches!(one.link.choose(&wanted), Way::There { node, .. } if node == three.id)).await;
    town.book.remove(&two.id);
    until(|| one.link.choose(&wanted) == Way::Nowhere).await;
    until(|| learned(two.id).is_none()).await;
}

/// One that did not answer kept this node for six seconds from learning what all the others have, in each round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_has_is_learned_while_another_one_does_not_answer() {
    let town = Town::new(1);
    let (mut one, two) = (town.node(1).await, town.node(2).await);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    town.book.set(town.trust(9).node(), Address::Ip(silent.local_addr().unwrap()), "pi-9");
    let begun = Instant::now();
    one.hears();
    until(|| one.tested.learned.lock().contains_key(&two.id)).await;
    assert!(begun.elapsed() < CONNECT_TIMEOUT, "it waited for {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_learns_from_each_answer() {
    let town = Town::new(1);
    let (one, two) = (town.node(1).await, town.node(2).await);
    let wanted = Undecided { function: "hello", bytes: 0, here: None, nodes: &[two.id] };
    assert_eq!(one.link.choose(&wanted), Way::Nowhere, "nobody has heard of it");
    *two.tested.backlog.lock() = 0.004;
    drop(one.call(&two, "hello", empty()).await);
    let forecast = one.link.weigh(&wanted).forecasts[0];
    assert!((0.0..=0.005).contains(&forecast.wait), "the answer said how busy it is: {forecast:?}");
    let Way::There { bears, .. } = one.link.choose(&wanted) else { panic!("it is known") };
    assert!(bears > forecast.wait && bears <= forecast.wait + 2.0 * forecast.hop, "a refusal costs the way: {bears}");
}
