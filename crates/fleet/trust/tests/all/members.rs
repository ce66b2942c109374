//! Between members: mutual TLS 1.3, revocation, dates and renewal.

use crate::world::{BUILT, DAY, Hand, NOW, fleet, key, listen, meet, raw};
use fleet_trust::link::{self, CALLS, FLEET, HELLO};
use fleet_trust::{LinkEnd, Trust};
use problem::Code;
use rustls::HandshakeKind;
use rustls::version::{TLS12, TLS13};
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

#[tokio::test]
async fn members_know_each_other_by_their_certificates() {
    let fleet = fleet(1).await;
    let (mut one, other) = (fleet.member(7).await, fleet.member(8).await);
    meet(&other.trust, &one).await.unwrap();
    meet(&one.trust, &other).await.unwrap();
    assert_eq!(one.arrived.recv().await, Some(key(8).id()));
}

#[tokio::test]
async fn a_node_that_serves_no_calls_closes_connections_for_them() {
    let fleet = fleet(1).await;
    let (mut one, other) = (fleet.member(7).await, fleet.member(8).await);
    let (_peer, mut stream) = link::connect_for_calls(&other.trust, &one.address, &one.trust.node()).await.unwrap();
    assert!(!matches!(stream.read(&mut [0]).await, Ok(1..)));
    assert!(one.arrived.try_recv().is_err());
}

#[tokio::test]
async fn another_node_at_the_address_is_not_mistaken() {
    let fleet = fleet(1).await;
    let (one, other) = (fleet.member(7).await, fleet.member(8).await);
    let met = link::connect(&one.trust, &other.address, &fleet.listening.trust.node()).await;
    assert_eq!(met.unwrap_err().code, Code::FleetUnknown);
}

#[tokio::test]
async fn a_certificate_of_another_fleet_is_refused_by_both_sides() {
    let (ours, theirs) = (fleet(1).await, fleet(2).await);
    let stranger = theirs.member(7).await;
    let mut member = ours.member(8).await;
    assert_eq!(meet(&member.trust, &stranger).await.err().unwrap().code, Code::FleetUnknown);
    // A client that does not look at the server's certificate learns from the server.
    for protocol in [FLEET, HELLO, CALLS] {
        let mut stream = raw(&member.address, 1, protocol, &[&TLS13]).await.unwrap();
        assert!(stream.read(&mut [0]).await.is_err(), "no certificate is no member");
    }
    assert!(member.arrived.try_recv().is_err());
}

#[tokio::test]
async fn tls_1_2_is_refused() {
    let fleet = fleet(1).await;
    let error = raw(fleet.address(), 1, FLEET, &[&TLS12]).await.unwrap_err();
    assert!(error.to_string().contains("ProtocolVersion"), "{error}");
}

#[tokio::test]
async fn every_connection_is_checked_whole() {
    let fleet = fleet(1).await;
    let (_, trust) = fleet.joined(7).await;
    for _ in 0..3 {
        let open = meet(&trust, &fleet.listening).await.unwrap();
        assert_eq!(open.stream.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
    }
}

#[tokio::test]
async fn a_revoked_node_loses_its_connections_and_gets_no_new_ones() {
    let fleet = fleet(1).await;
    let (stolen, other) = (fleet.member(7).await, fleet.member(8).await);
    let mut inward = meet(&stolen.trust, &other).await.unwrap();
    let mut outward = meet(&other.trust, &stolen).await.unwrap();
    let mut bystander = meet(&fleet.listening.trust, &other).await.unwrap();

    let list = fleet.anchor.revoke(&stolen.trust.node()).unwrap();
    assert!(fleet.listening.trust.learn_revoked(list.bytes()).unwrap());
    // The other member learns it when it says hello.
    link::hello(&other.trust, fleet.address(), |_| Ok(())).await.unwrap();
    assert_eq!(outward.peer.ended().await, LinkEnd::Revoked);
    assert_eq!(inward.stream.read(&mut [0]).await.unwrap_or(0), 0);
    bystander.echo().await.unwrap();

    assert_eq!(meet(&stolen.trust, &other).await.err().unwrap().code, Code::NodeRevoked);
    assert_eq!(meet(&other.trust, &stolen).await.err().unwrap().code, Code::NodeRevoked);
    let hello = link::hello(&stolen.trust, fleet.address(), |_| Ok(())).await;
    assert_eq!(hello.unwrap_err().code, Code::NodeRevoked);
    let renewed = link::renew(&stolen.trust.membership(), &key(7)).await;
    assert_eq!(renewed.unwrap_err().code, Code::NodeRevoked);
    let token = fleet.anchor.invite(1, 60).unwrap();
    assert_eq!(link::join(&token, &key(7), "pi-7").await.unwrap_err().code, Code::NodeRevoked);
}

#[tokio::test]
async fn an_older_list_takes_nothing_back() {
    let fleet = fleet(1).await;
    let (one, other) = (fleet.member(7).await, fleet.member(8).await);
    let first = fleet.anchor.revoke(&one.trust.node()).unwrap();
    let second = fleet.anchor.revoke(&other.trust.node()).unwrap();
    let trust = &fleet.listening.trust;
    assert!(trust.learn_revoked(second.bytes()).unwrap());
    assert!(!trust.learn_revoked(first.bytes()).unwrap());
    assert!(trust.revoked().unwrap().contains(&other.trust.node()));
    let others = crate::world::fleet(2).await;
    let victim = others.member(9).await;
    let of_another = others.anchor.revoke(&victim.trust.node()).unwrap();
    assert_eq!(trust.learn_revoked(of_another.bytes()).unwrap_err().code, Code::FleetMessage);
}

#[tokio::test]
async fn a_certificate_is_renewed_at_half_and_new_connections_show_it() {
    let fleet = fleet(1).await;
    let (joined, trust) = fleet.joined(7).await;
    assert!(!trust.wants_renewal());
    fleet.hand.set(NOW + 15 * DAY);
    assert!(trust.wants_renewal());
    let renewed = link::renew(&joined.membership, &key(7)).await.unwrap();
    trust.become_again(renewed.membership.clone()).unwrap();
    assert!(!trust.wants_renewal());
    // The anchor renews its own without a socket.
    fleet.listening.trust.become_again(fleet.anchor.own(&key(101), "server-1").unwrap()).unwrap();
    fleet.hand.set(NOW + 44 * DAY);
    meet(&trust, &fleet.listening).await.unwrap();
}

#[tokio::test]
async fn a_certificate_that_ended_while_its_node_was_away_is_renewed_by_the_nodes_key() {
    let fleet = fleet(1).await;
    let (joined, trust) = fleet.joined(7).await;
    fleet.hand.set(NOW + 31 * DAY);
    meet(&trust, &fleet.listening).await.expect("a day of grace");
    fleet.hand.set(NOW + 31 * DAY + 1);
    // The anchor has looked after itself.
    fleet.listening.trust.become_again(fleet.anchor.own(&key(101), "server-1").unwrap()).unwrap();
    assert_eq!(meet(&trust, &fleet.listening).await.err().unwrap().code, Code::CertificateEnded);
    fleet.hand.set(NOW + 400 * DAY);
    fleet.listening.trust.become_again(fleet.anchor.own(&key(101), "server-1").unwrap()).unwrap();
    let renewed = link::renew(&joined.membership, &key(7)).await.unwrap();
    trust.become_again(renewed.membership).unwrap();
    meet(&trust, &fleet.listening).await.unwrap();
    // A key that the fleet does not know is renewed nothing.
    assert_eq!(link::renew(&joined.membership, &key(9)).await.unwrap_err().code, Code::NotAdmitted);
}

#[tokio::test]
async fn a_node_whose_clock_stands_in_1970_joins_talks_and_refuses_the_revoked() {
    let fleet = fleet(1).await;
    let other = fleet.member(8).await;
    let (joined, _) = fleet.joined(7).await;
    let pi = Arc::new(Trust::new(key(7), joined.membership.clone(), None, Hand::at(60).clock()).unwrap());
    let pi = listen(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap(), pi, None).await;
    meet(&pi.trust, &other).await.unwrap();
    meet(&other.trust, &pi).await.unwrap();
    // Its dates tell it nothing, so it renews when it starts. What is made long after its own is of its future, and
    // good.
    fleet.hand.set(NOW + 25 * DAY);
    let (_, later) = fleet.joined(9).await;
    meet(&later, &pi).await.unwrap();
    assert!(pi.trust.wants_renewal());
    fleet.hand.set(NOW + 300 * DAY);
    pi.trust.become_again(link::renew(&joined.membership, &key(7)).await.unwrap().membership).unwrap();
    assert!(!pi.trust.wants_renewal());
    other.trust.become_again(link::renew(&other.trust.membership(), &key(8)).await.unwrap().membership).unwrap();
    meet(&pi.trust, &other).await.unwrap();
    fleet.anchor.revoke(&other.trust.node()).unwrap();
    pi.trust.learn_revoked(fleet.anchor.revoked().unwrap().bytes()).unwrap();
    assert_eq!(meet(&pi.trust, &other).await.err().unwrap().code, Code::NodeRevoked);
    // The list is of NOW + 300 days. What ended before that has ended, even for a clock in 1970.
    fleet.hand.set(NOW);
    let (_, old) = fleet.joined(10).await;
    assert_eq!(meet(&old, &pi).await.err().unwrap().code, Code::CertificateEnded);
}

/// Somebody was taken out while the anchor's clock was years ahead, and then it was set right.
#[tokio::test]
async fn what_a_clock_that_was_ahead_has_ended_holds_again_within_an_hour() {
    let fleet = fleet(1).await;
    let [one, other] = [fleet.member(8).await, fleet.member(9).await];
    let (_, stolen) = fleet.joined(7).await;
    fleet.hand.set(NOW + 2_000 * DAY);
    fleet.anchor.revoke(&stolen.node()).unwrap();
    let hear = || {
        let list = fleet.anchor.revoked().unwrap();
        for node in [&one, &other] {
            node.trust.learn_revoked(list.bytes()).unwrap();
        }
    };
    hear();
    fleet.hand.set(NOW);
    assert_eq!(meet(&one.trust, &other).await.err().unwrap().code, Code::CertificateEnded);
    for (node, seed) in [(&one, 8), (&other, 9)] {
        assert!(node.trust.wants_renewal(), "it has just started");
        node.trust.become_again(link::renew(&node.trust.membership(), &key(seed)).await.unwrap().membership).unwrap();
        assert!(!node.trust.wants_renewal());
    }
    let list = fleet.anchor.revise().unwrap().expect("it is of a time to come");
    assert!(list.contains(&stolen.node()) && fleet.anchor.revise().unwrap().is_none());
    fleet.hand.set(NOW + 3_600);
    assert!(one.trust.wants_renewal());
    let renewed = link::renew(&one.trust.membership(), &key(8)).await.unwrap();
    assert_eq!(renewed.revoked.unwrap().revision(), list.revision());
    hear();
    meet(&one.trust, &other).await.unwrap();
    assert_eq!(meet(&stolen, &one).await.err().unwrap().code, Code::NodeRevoked);
}

#[tokio::test]
async fn a_certificate_of_a_clock_that_is_far_ahead_is_refused_where_clocks_are_right() {
    let fleet = fleet(1).await;
    let member = fleet.member(8).await;
    let (_, early) = {
        let ahead = fleet.hand.clone();
        ahead.set(NOW + 20 * DAY);
        let joined = fleet.joined(7).await;
        ahead.set(NOW);
        joined
    };
    assert!(NOW > BUILT);
    assert_eq!(meet(&early, &member).await.err().unwrap().code, Code::CertificateEnded);
}
