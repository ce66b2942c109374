//! Joining by digits that a person compares.

use crate::world::{Fleet, Full, channel, fleet, fleet_on, key, meet, raw, reply, until};
use fleet_trust::Trust;
use fleet_trust::digits::commitment;
use fleet_trust::door::{KNOCKS, KNOCKS_MAX};
use fleet_trust::link::{self, JOIN, Knock};
use fleet_trust::message::{Reply, Request};
use problem::Code;
use rustls::version::TLS13;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::io::AsyncWriteExt;

async fn knock(fleet: &Fleet, seed: u8) -> Knock {
    let before = fleet.anchor.knocking().len();
    let knock = link::knock(fleet.address(), &key(seed), &format!("pi-{seed}")).await.unwrap();
    until(|| fleet.anchor.knocking().len() > before).await;
    knock
}

#[tokio::test]
async fn both_sides_show_the_same_digits_and_a_person_lets_the_node_in() {
    let fleet = fleet(1).await;
    let waiting = knock(&fleet, 7).await;
    assert_eq!(fleet.anchor.knocking()[0].digits, waiting.digits());
    assert_eq!(fleet.anchor.admit(waiting.digits()).unwrap().name, "pi-7");
    let joined = waiting.confirmed().await.unwrap();
    let trust = Trust::new(key(7), joined.membership, None, fleet.hand.clock()).unwrap();
    meet(&trust, &fleet.listening).await.unwrap();
}

#[tokio::test]
async fn other_digits_let_nobody_in() {
    let fleet = fleet(1).await;
    let waiting = knock(&fleet, 7).await;
    let gone = knock(&fleet, 8).await;
    let digits = gone.digits();
    drop(gone);
    until(|| fleet.anchor.knocking().len() == 1).await;
    assert_eq!(fleet.anchor.admit(digits).unwrap_err().code, Code::NotAdmitted);
    fleet.anchor.admit(waiting.digits()).unwrap();
    assert_eq!(fleet.anchor.ledger().members().count(), 2);
}

#[tokio::test]
async fn somebody_in_the_middle_makes_the_digits_differ() {
    // The node reaches a fleet of somebody between, who knocks at the real anchor under the node's name.
    let (real, middle) = (fleet(1).await, fleet(2).await);
    let victim = knock(&middle, 7).await;
    let relayed = link::knock(real.address(), &key(66), "pi-7").await.unwrap();
    until(|| !real.anchor.knocking().is_empty()).await;
    assert_ne!(victim.digits(), relayed.digits());
    // A person types what the node shows.
    assert_eq!(real.anchor.admit(victim.digits()).unwrap_err().code, Code::NotAdmitted);
    assert_eq!(real.anchor.ledger().members().count(), 1);
}

#[tokio::test]
async fn who_has_committed_cannot_choose_again() {
    let fleet = fleet(1).await;
    let mut stream = raw(fleet.address(), 1, JOIN, &[&TLS13]).await.unwrap();
    assert_eq!(channel(&stream).len(), 32);
    let committed = commitment(&key(7).public(), &[1; 32]);
    let knock = Request::Knock { key: key(7).public(), name: "pi-7".into(), commitment: committed };
    stream.write_all(&knock.write()).await.unwrap();
    assert!(matches!(reply(&mut stream).await.unwrap(), Reply::Nonce(_)));
    stream.write_all(&Request::Reveal { nonce: [2; 32], signature: [0; 64] }.write()).await.unwrap();
    let Reply::Refused { code, .. } = reply(&mut stream).await.unwrap() else { panic!("it is refused") };
    assert_eq!(code, Code::NotAdmitted as u16);
    assert_eq!(fleet.anchor.knocking(), []);
}

/// The machines of a class are all called `raspberrypi`: it is said before anybody has compared digits.
#[tokio::test]
async fn a_name_that_another_node_has_is_refused_at_once() {
    let fleet = fleet(1).await;
    let waiting = knock(&fleet, 7).await;
    fleet.anchor.admit(waiting.digits()).unwrap();
    let refused = link::knock(fleet.address(), &key(8), "pi-7").await.map(|knock| knock.digits());
    assert_eq!(refused.unwrap_err().code, Code::NotAdmitted);
    assert_eq!(fleet.anchor.knocking(), []);
    // The node itself may ask again: its answer was lost.
    link::knock(fleet.address(), &key(7), "pi-7").await.unwrap();
}

/// Somebody in the middle knows the victim's digits, and asks for others until they are the same.
#[tokio::test]
async fn who_asks_for_digits_again_and_again_is_stopped() {
    let fleet = fleet(1).await;
    let mut tries = 0;
    let stopped = loop {
        match link::knock(fleet.address(), &key(66), "pi-7").await {
            Ok(_) => tries += 1,
            Err(problem) => break problem,
        }
    };
    assert_eq!(stopped.code, Code::AnchorBusy);
    assert!((KNOCKS.burst as usize..KNOCKS.burst as usize + 5).contains(&tries), "{tries}");
    // Who has an invitation joins all the same.
    let token = fleet.anchor.invite(1, 60).unwrap();
    link::join(&token, &key(9), "pi-9").await.unwrap();
}

/// A second joiner under the same name, and digits that are typed twice.
#[tokio::test]
async fn digits_let_one_node_in_and_once() {
    let fleet = fleet(1).await;
    let (one, other) = (knock(&fleet, 7).await, link::knock(fleet.address(), &key(8), "pi-7").await.unwrap());
    until(|| fleet.anchor.knocking().len() == 2).await;
    let digits = one.digits();
    fleet.anchor.admit(digits).unwrap();
    assert_eq!(fleet.anchor.admit(digits).unwrap_err().code, Code::NotAdmitted, "they are used up");
    assert_eq!(fleet.anchor.admit(other.digits()).unwrap_err().code, Code::NotAdmitted, "the name is taken now");
    one.confirmed().await.unwrap();
    assert_eq!(other.confirmed().await.unwrap_err().code, Code::NotAdmitted);
    assert_eq!(fleet.anchor.ledger().members().count(), 2);
}

/// The node was forgotten before its admission could be written down: the second try said that somebody may stand
/// between, and the node waited in vain.
#[tokio::test]
async fn digits_may_be_typed_again_where_the_anchor_could_not_write_them_down() {
    let is_full = Arc::new(AtomicBool::new(false));
    let fleet = fleet_on(1, Full(is_full.clone())).await;
    let waiting = knock(&fleet, 7).await;
    is_full.store(true, Relaxed);
    assert_eq!(fleet.anchor.admit(waiting.digits()).unwrap_err().code, Code::DataUnusable);
    is_full.store(false, Relaxed);
    assert_eq!(fleet.anchor.admit(waiting.digits()).unwrap().name, "pi-7");
    waiting.confirmed().await.unwrap();
    assert_eq!(fleet.anchor.knocking(), []);
}

#[tokio::test]
async fn few_wait_at_once() {
    let fleet = fleet(1).await;
    let mut all = Vec::new();
    for seed in 0..KNOCKS_MAX as u8 {
        all.push(knock(&fleet, seed).await);
    }
    all.push(link::knock(fleet.address(), &key(200), "pi-200").await.unwrap());
    until(|| fleet.anchor.knocking().iter().any(|one| one.name == "pi-200")).await;
    until(|| fleet.anchor.knocking().len() == KNOCKS_MAX).await;
    assert!(fleet.anchor.knocking().iter().all(|one| one.name != "pi-0"), "the oldest gave way");
}
