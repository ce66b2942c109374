//! Joining without an invitation: the beacon, and digits that a person carries from one node to the other.

use crate::world::{Machine, names, until};
use fleet_agent::Agent;
use fleet_trust::beacon::{ASK_BYTES, ASKS, Here, ask, read_ask};
use fleet_trust::digits::Digits;
use fleet_trust::{Address, FleetId};
use problem::Code;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// A founded fleet, and where its anchor listens.
async fn anchor(machine: &Machine, fleet: &str) -> (Agent, SocketAddr) {
    let agent = machine.start().await;
    let own = agent.found(fleet).await.unwrap().rows.remove(0);
    let Some(Address::Ip(address)) = own.record.address else { panic!("it is an address") };
    (agent, address)
}

/// Waits until nodes with these digits, and no others, wait on the anchor.
async fn until_waiting(anchor: &Agent, digits: &[Digits]) {
    let waits = async {
        loop {
            let waiting: Vec<Digits> = anchor.knocking().unwrap().iter().map(|one| one.digits).collect();
            if waiting == digits {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), waits).await.expect("they wait there");
}

/// A node that asks these addresses for anchors.
fn seeker(name: &str, seek: &[SocketAddr]) -> Machine {
    Machine { seek: seek.to_vec(), ..Machine::new(name) }
}

#[tokio::test]
async fn a_node_finds_the_anchor_around_it_and_joins_by_digits() {
    let server = Machine::new("server-1");
    let (anchor, address) = anchor(&server, "campus").await;
    let machine = seeker("pi-7", &[address]);
    let node = Arc::new(machine.start().await);
    let shown = node.knock(None).await.unwrap();
    assert_eq!((shown.fleet.as_deref(), &shown.anchor), (Some("campus"), &Address::Ip(address)));
    until_waiting(&anchor, &[shown.digits]).await;
    assert_eq!(anchor.knocking().unwrap()[0].name, "pi-7");
    // The person types first, and says so on the node then.
    assert_eq!(anchor.admit(shown.digits).await.unwrap().name, "pi-7");
    let status = node.confirm(shown.digits).await.unwrap();
    assert_eq!((status.name.as_str(), status.is_anchor), ("campus", false));
    until(&anchor, |status| names(status) == ["pi-7", "server-1"]).await;
    until(&node, |status| names(status) == ["pi-7", "server-1"]).await;
    assert_eq!(node.knock(None).await.unwrap_err().code, Code::FleetAlready);
    // It is written down.
    drop(node);
    assert_eq!(machine.start().await.status().unwrap().name, "campus");
}

#[tokio::test]
async fn who_says_so_on_the_node_first_waits_for_the_anchor() {
    let server = Machine::new("server-1");
    let (anchor, address) = anchor(&server, "campus").await;
    let machine = Machine::new("pi-7");
    let node = Arc::new(machine.start().await);
    let shown = node.knock(Some(Address::Ip(address))).await.unwrap();
    assert_eq!(shown.fleet, None, "nobody has said it");
    let confirming = {
        let node = node.clone();
        tokio::spawn(async move { node.confirm(shown.digits).await })
    };
    until_waiting(&anchor, &[shown.digits]).await;
    anchor.admit(shown.digits).await.unwrap();
    assert_eq!(confirming.await.unwrap().unwrap().name, "campus");
}

#[tokio::test]
async fn wrong_digits_join_nothing_on_either_side() {
    let server = Machine::new("server-1");
    let (anchor, address) = anchor(&server, "campus").await;
    let machine = seeker("pi-7", &[address]);
    let node = machine.start().await;
    let other =
        |digits: Digits| Digits::read(if digits.to_string() == "000 000" { "000001" } else { "000000" }).unwrap();
    assert_eq!(node.confirm(Digits::read("123456").unwrap()).await.unwrap_err().code, Code::NotAdmitted);
    let first = node.knock(None).await.unwrap().digits;
    until_waiting(&anchor, &[first]).await;
    assert_eq!(anchor.admit(other(first)).await.unwrap_err().code, Code::NotAdmitted);
    assert_eq!(node.confirm(other(first)).await.unwrap_err().code, Code::NotAdmitted);
    // Who asks again shows others, and those before count no more.
    let second = node.knock(None).await.unwrap().digits;
    until_waiting(&anchor, &[second]).await;
    if first != second {
        assert_eq!(anchor.admit(first).await.unwrap_err().code, Code::NotAdmitted);
        assert_eq!(node.confirm(first).await.unwrap_err().code, Code::NotAdmitted);
    }
    assert_eq!(node.status().unwrap_err().code, Code::NoFleet);
    assert_eq!(anchor.status().unwrap().rows.len(), 1);
    assert_eq!(node.admit(second).await.unwrap_err().code, Code::NoFleet);
    assert_eq!(node.knocking().unwrap_err().code, Code::NoFleet);
}

#[tokio::test]
async fn no_fleet_or_several_are_said_and_then_a_person_names_the_anchor() {
    let servers = ["server-1", "server-2"].map(Machine::new);
    let (one, first) = anchor(&servers[0], "campus").await;
    let (_other, second) = anchor(&servers[1], "village").await;
    let nobody: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let machine = seeker("pi-7", &[nobody]);
    assert_eq!(machine.start().await.knock(None).await.unwrap_err().code, Code::AnchorsAway);
    let machine = seeker("pi-7", &[first, second]);
    let node = machine.start().await;
    let problem = node.knock(None).await.unwrap_err();
    assert_eq!(problem.code, Code::AnchorsSeveral);
    assert!(problem.detail.contains("campus at") && problem.detail.contains("village at"), "{}", problem.detail);
    let shown = node.knock(Some(Address::Ip(first))).await.unwrap();
    until_waiting(&one, &[shown.digits]).await;
    assert_eq!(node.knock(Some(Address::Ip(nobody))).await.unwrap_err().code, Code::AnchorsAway);
}

/// The machines of a class have one name; those that were given one keep it or do not join.
#[tokio::test]
async fn machines_of_one_name_join_under_two() {
    let server = Machine::new("pi-7");
    let (anchor, address) = anchor(&server, "campus").await;
    let named = seeker("pi-7", &[address]);
    assert_eq!(named.start().await.knock(None).await.unwrap_err().code, Code::NotAdmitted);
    let machines = [(); 2].map(|()| Machine { name: None, ..seeker("x", &[address]) });
    let mut joined = Vec::new();
    for machine in &machines {
        let node = machine.start().await;
        let shown = node.knock(None).await.unwrap();
        until_waiting(&anchor, &[shown.digits]).await;
        anchor.admit(shown.digits).await.unwrap();
        node.confirm(shown.digits).await.unwrap();
        joined.push((node, shown.name));
    }
    assert!(joined[1].1.starts_with(&format!("{}-", joined[0].1)), "{} and {}", joined[0].1, joined[1].1);
    until(&anchor, |status| status.rows.len() == 3).await;
}

/// Asks as often as is said, and counts what comes back.
async fn answers(socket: &UdpSocket, to: SocketAddr, questions: usize) -> usize {
    let (echo, mut bytes, mut count) = ([7; 16], [0; 512], 0);
    for _ in 0..questions {
        socket.send_to(&ask(&echo), to).await.unwrap();
        while let Ok((length, _)) = socket.try_recv_from(&mut bytes) {
            assert!(Here::read(&bytes[..length], &echo).is_some() && length < ASK_BYTES);
            count += 1;
        }
    }
    while let Ok(Ok((length, _))) = timeout(Duration::from_millis(500), socket.recv_from(&mut bytes)).await {
        assert!(Here::read(&bytes[..length], &echo).is_some());
        count += 1;
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_too_often_is_not_answered_and_others_are() {
    let server = Machine::new("server-1");
    let (_anchor, address) = anchor(&server, "campus").await;
    let flood = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for garbage in [vec![], vec![7; ASK_BYTES], vec![0; 60_000], ask(&[7; 16])[..95].to_vec()] {
        flood.send_to(&garbage, address).await.unwrap();
    }
    let began = std::time::Instant::now();
    let answered = answers(&flood, address, 5_000).await;
    let most = ASKS.source_burst + ASKS.source_a_second * (began.elapsed().as_secs_f64() + 1.0);
    assert!((1..=most as usize).contains(&answered), "{answered}");
    let other = UdpSocket::bind("127.0.0.3:0").await.unwrap();
    assert_eq!(answers(&other, address, 1).await, 1);
}

/// What an anchor has is told to nobody by those that are none.
#[tokio::test]
async fn only_an_anchor_has_a_beacon() {
    let server = Machine::new("server-1");
    let (anchor, address) = anchor(&server, "campus").await;
    assert!(std::net::UdpSocket::bind(address).is_err(), "the anchor has it");
    let machine = Machine::new("pi-7");
    let node = machine.start().await;
    node.join(&anchor.invite(1, 60).await.unwrap()).await.unwrap();
    let own = node.status().unwrap().rows.remove(0).record.address.unwrap();
    let Address::Ip(own) = own else { panic!("it is an address") };
    std::net::UdpSocket::bind(own).expect("nobody has it");
    anchor.end();
    let freed = async {
        while std::net::UdpSocket::bind(address).is_err() {
            tokio::task::yield_now().await
        }
    };
    timeout(Duration::from_secs(60), freed).await.expect("it ends with the anchor's part in the fleet");
}

/// An answer that nobody asked for, or one that was recorded before, names no anchor.
#[tokio::test]
async fn answers_to_other_questions_are_not_taken() {
    let liar = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let machine = seeker("pi-7", &[liar.local_addr().unwrap()]);
    let lies = tokio::spawn(async move {
        let here = Here { fleet: FleetId([6; 8]), name: "trap".to_owned(), port: 9 };
        let mut bytes = [0; 512];
        let mut asked = 0;
        loop {
            let (length, from) = liar.recv_from(&mut bytes).await.unwrap();
            let mut echo = read_ask(&bytes[..length]).expect("a new node asks");
            echo[0] ^= 1;
            liar.send_to(&here.write(&echo), from).await.unwrap();
            asked += 1;
            if asked == 3 {
                return;
            }
        }
    });
    assert_eq!(machine.start().await.knock(None).await.unwrap_err().code, Code::AnchorsAway);
    timeout(Duration::from_secs(60), lies).await.expect("it was asked three times").unwrap();
}
