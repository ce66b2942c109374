//! What is refused, each with its code, and that nothing has changed then.

use crate::world::{Machine, campus};
use fleet_trust::Token;
use problem::Code;

async fn join(token: &Token) -> Code {
    let machine = Machine::new("pi-9");
    let agent = machine.start().await;
    let code = agent.join(token).await.unwrap_err().code;
    assert_eq!(agent.status().unwrap_err().code, Code::NoFleet);
    code
}

#[tokio::test]
async fn bad_invitations_have_their_codes() {
    let fleet = campus().await;
    let [(_, anchor), ..] = &fleet;
    let token = anchor.invite(1, 3_600).await.unwrap();
    let unknown = Token { secret: [9; 16], ..token.clone() };
    let other_fleet = Token { ca_hash: [9; 32], ..token.clone() };
    let nowhere = Token { anchors: vec![fleet_trust::Address::read("127.0.0.1:1").unwrap()], ..token.clone() };
    assert_eq!(join(&unknown).await, Code::InvitationUnknown);
    assert_eq!(join(&other_fleet).await, Code::FleetUnknown);
    assert_eq!(join(&nowhere).await, Code::AnchorsAway);
    let used = anchor.invite(1, 3_600).await.unwrap();
    let first = Machine::new("pi-10");
    first.start().await.join(&used).await.unwrap();
    assert_eq!(join(&used).await, Code::InvitationUsed);
    let short = anchor.invite(1, 1).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(2_100)).await;
    assert_eq!(join(&short).await, Code::InvitationEnded);
    assert_eq!(anchor.invite(0, 60).await.unwrap_err().code, Code::Usage);
}

#[tokio::test]
async fn a_node_belongs_to_one_fleet() {
    let fleet = campus().await;
    let [(_, anchor), (_, member), _] = &fleet;
    let other = Machine::new("server-1").start().await;
    other.found("village").await.unwrap();
    let token = other.invite(1, 60).await.unwrap();
    for agent in [anchor, member] {
        assert_eq!(agent.join(&token).await.unwrap_err().code, Code::FleetAlready);
        assert_eq!(agent.found("town").await.unwrap_err().code, Code::FleetAlready);
    }
    assert_eq!(Machine::new("pi").start().await.found("No Name").await.unwrap_err().code, Code::Usage);
}

#[tokio::test]
async fn only_an_anchor_lets_in_and_takes_out() {
    let fleet = campus().await;
    let [(_, anchor), (_, member), _] = &fleet;
    assert_eq!(member.invite(1, 60).await.unwrap_err().code, Code::NotAnchor);
    assert_eq!(member.remove("pi-8").await.unwrap_err().code, Code::NotAnchor);
    assert_eq!(anchor.remove("server-1").await.unwrap_err().code, Code::Usage);
    for which in ["pi-70", "", "00", "ffffffffffffffffffffffffffffffff0"] {
        assert_eq!(anchor.remove(which).await.unwrap_err().code, Code::MemberUnknown, "{which:?}");
    }
    let lone = Machine::new("pi").start().await;
    assert_eq!(lone.invite(1, 60).await.unwrap_err().code, Code::NoFleet);
    assert_eq!(lone.remove("pi-8").await.unwrap_err().code, Code::NoFleet);
}
