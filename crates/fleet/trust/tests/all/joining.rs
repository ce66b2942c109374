//! Joining by an invitation: who gets in, who does not, and what each of them is told.

use crate::world::{Fleet, Full, Hand, Kept, NOW, channel, fleet, fleet_on, key, listen, meet, pkcs8, raw, reply};
use fleet_trust::invitations::InvitationId;
use fleet_trust::ledger::Ledger;
use fleet_trust::link::{self, JOIN};
use fleet_trust::message::{Reply, Request};
use fleet_trust::{Address, Anchor, Authority, Token};
use problem::Code;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::version::TLS13;
use rustls_pki_types::PrivateKeyDer;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

async fn code(token: &Token, seed: u8) -> Code {
    link::join(token, &key(seed), &format!("pi-{seed}")).await.unwrap_err().code
}

fn names(fleet: &Fleet) -> Vec<String> {
    fleet.anchor.ledger().members().map(|(_, member)| member.name.clone()).collect()
}

#[tokio::test]
async fn a_node_joins_by_an_invitation_and_is_known_by_its_certificate() {
    let mut fleet = fleet(1).await;
    let (joined, trust) = fleet.joined(7).await;
    assert_eq!(joined.membership.fleet_name, "campus");
    assert_eq!(&joined.membership.anchors, std::slice::from_ref(fleet.address()));
    assert_eq!((joined.membership.incarnation, joined.revoked), (1, None));
    meet(&trust, &fleet.listening).await.unwrap();
    assert_eq!(fleet.listening.arrived.recv().await, Some(key(7).id()));
}

#[tokio::test]
async fn an_invitation_for_one_lets_one_in_who_may_ask_again() {
    let fleet = fleet(1).await;
    let token = fleet.anchor.invite(1, 60).unwrap();
    link::join(&token, &key(7), "pi-7").await.unwrap();
    // The answer was lost on the way.
    let again = link::join(&token, &key(7), "pi-7").await.unwrap();
    assert_eq!(again.membership.incarnation, 2);
    assert_eq!(code(&token, 8).await, Code::InvitationUsed);
    assert_eq!(fleet.anchor.ledger().members().count(), 2);
}

#[tokio::test]
async fn an_invitation_for_a_class_lets_a_class_in_at_once() {
    let fleet = fleet(1).await;
    let token = Arc::new(fleet.anchor.invite(50, 60).unwrap());
    let joins: Vec<_> = (0..50)
        .map(|seed| {
            let token = token.clone();
            tokio::spawn(async move { link::join(&token, &key(seed), &format!("pi-{seed}")).await.map(|_| ()) })
        })
        .collect();
    for join in joins {
        join.await.unwrap().unwrap();
    }
    assert_eq!(code(&token, 99).await, Code::InvitationUsed);
}

#[tokio::test]
async fn an_invitation_ends_by_the_anchors_clock() {
    let fleet = fleet(1).await;
    let token = fleet.anchor.invite(1, 60).unwrap();
    fleet.hand.set(NOW + 60);
    assert_eq!(code(&token, 7).await, Code::InvitationEnded);
}

#[tokio::test]
async fn a_guessed_secret_and_one_that_was_taken_back_are_unknown() {
    let fleet = fleet(1).await;
    let token = fleet.anchor.invite(1, 60).unwrap();
    assert_eq!(code(&Token { secret: [9; 16], ..token.clone() }, 7).await, Code::InvitationUnknown);
    let id = InvitationId::of(&token.proof_key().public());
    assert!(fleet.anchor.uninvite(&id).unwrap());
    assert_eq!(code(&token, 7).await, Code::InvitationUnknown);
    assert_eq!(names(&fleet), ["server-1"]);
}

#[tokio::test]
async fn a_name_that_another_node_has_is_refused_and_uses_nothing() {
    let fleet = fleet(1).await;
    let token = fleet.anchor.invite(1, 60).unwrap();
    assert_eq!(link::join(&token, &key(7), "server-1").await.unwrap_err().code, Code::NotAdmitted);
    assert_eq!(link::join(&token, &key(7), "Pi 7").await.unwrap_err().code, Code::Usage);
    link::join(&token, &key(7), "pi-7").await.unwrap();
}

#[tokio::test]
async fn a_proof_is_worth_nothing_on_another_connection() {
    let fleet = fleet(1).await;
    let token = fleet.anchor.invite(1, 60).unwrap();
    let invitation = InvitationId::of(&token.proof_key().public());
    let seen =
        Request::Join { invitation, key: key(7).public(), name: "pi-7".into(), proof: [1; 64], signature: [2; 64] };
    for bytes in [seen.write(), replayed(&token).await] {
        let mut stream = raw(fleet.address(), 1, JOIN, &[&TLS13]).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let Reply::Refused { code, .. } = reply(&mut stream).await.unwrap() else { panic!("it is refused") };
        assert_eq!(code, Code::InvitationUnknown as u16);
    }
}

/// What a node has said to somebody else, with the secret of this fleet's invitation and its own key.
async fn replayed(token: &Token) -> Vec<u8> {
    let (middle, recorded) = Middle::begin(1, vec![]).await;
    let bait = Token { ca_hash: middle.ca_hash, anchors: vec![middle.address], ..token.clone() };
    link::join(&bait, &key(7), "pi-7").await.unwrap_err();
    recorded.await.unwrap()
}

/// Somebody between: a TLS server with a CA of its own, who writes down what it is told.
struct Middle {
    address: Address,
    ca_hash: [u8; 32],
}

impl Middle {
    /// For so many connections; `also` is shown behind its certificate instead of its CA.
    async fn begin(connections: usize, also: Vec<u8>) -> (Self, tokio::task::JoinHandle<Vec<u8>>) {
        let authority = Authority::found("campus", &[66; 32]).unwrap();
        let ca = authority.certificate().to_vec();
        let ca_hash = authority.ca_hash();
        let anchor = Anchor::new(authority, Ledger::default(), vec![], Hand::at(NOW).clock(), Kept);
        let own = anchor.own(&key(67), "server-1").unwrap();
        let chain = vec![own.certificate.into(), if also.is_empty() { ca.into() } else { also.into() }];
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::Pkcs8(pkcs8(67).into()))
            .unwrap();
        config.alpn_protocols = vec![JOIN.to_vec()];
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = Address::Ip(listener.local_addr().unwrap());
        let recorded = tokio::spawn(async move {
            let mut told = Vec::new();
            for _ in 0..connections {
                let (socket, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = TlsAcceptor::from(Arc::new(config.clone())).accept(socket).await else { continue };
                let mut bytes = [0; 4_096];
                let count = stream.read(&mut bytes).await.unwrap_or(0);
                told.extend_from_slice(&bytes[..count]);
                let refused = Reply::Refused { code: Code::NotAdmitted as u16, reason: "go away".into() };
                let _ = stream.write_all(&refused.write()).await;
                let _ = stream.flush().await;
            }
            told
        });
        (Self { address, ca_hash }, recorded)
    }
}

#[tokio::test]
async fn somebody_in_the_middle_with_another_ca_is_told_nothing() {
    let fleet = fleet(1).await;
    let token = fleet.anchor.invite(1, 60).unwrap();
    let real_ca = fleet.listening.trust.membership().ca;
    for also in [vec![], real_ca] {
        let (middle, told) = Middle::begin(1, also).await;
        let caught = Token { anchors: vec![middle.address], ..token.clone() };
        assert_eq!(code(&caught, 7).await, Code::FleetUnknown);
        assert!(told.await.unwrap().is_empty());
    }
    // The invitation is not used, and works at the anchor.
    link::join(&token, &key(7), "pi-7").await.unwrap();
}

#[tokio::test]
async fn the_wrong_anchor_in_a_token_is_passed_over() {
    let (fleet, other) = (fleet(1).await, fleet(2).await);
    let token = fleet.anchor.invite(1, 60).unwrap();
    let anchors = vec![other.address().clone(), fleet.address().clone()];
    link::join(&Token { anchors, ..token }, &key(7), "pi-7").await.unwrap();
}

#[tokio::test]
async fn a_member_that_is_no_anchor_cannot_answer_to_an_invitation() {
    let fleet = fleet(1).await;
    let token = fleet.anchor.invite(2, 60).unwrap();
    let (_, trust) = fleet.joined(7).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let posing = listen(listener, Arc::new(trust), Some(fleet.anchor.clone())).await;
    let caught = Token { anchors: vec![posing.address.clone()], ..token.clone() };
    assert_eq!(code(&caught, 8).await, Code::FleetUnknown);
}

#[tokio::test]
async fn what_cannot_be_written_down_is_not_promised() {
    let is_full = Arc::new(AtomicBool::new(false));
    let fleet = fleet_on(1, Full(is_full.clone())).await;
    let token = fleet.anchor.invite(1, 60).unwrap();
    is_full.store(true, Relaxed);
    assert_eq!(code(&token, 7).await, Code::DataUnusable);
    assert_eq!(names(&fleet), ["server-1"]);
    is_full.store(false, Relaxed);
    link::join(&token, &key(7), "pi-7").await.unwrap();
}

#[tokio::test]
async fn without_an_anchor_there_is_a_clear_answer() {
    let fleet = fleet(1).await;
    let token = fleet.anchor.invite(1, 60).unwrap();
    drop(fleet);
    assert_eq!(code(&token, 7).await, Code::AnchorsAway);
}

#[tokio::test]
async fn the_same_connection_gives_both_ends_the_same_channel() {
    // What the proofs are bound to: another one for each connection.
    let fleet = fleet(1).await;
    let one = raw(fleet.address(), 1, JOIN, &[&TLS13]).await.unwrap();
    let other = raw(fleet.address(), 1, JOIN, &[&TLS13]).await.unwrap();
    assert_ne!(channel(&one), channel(&other));
}
