//! Strangers who find the port: silence, garbage and floods cost the anchor little and its members nothing.

use crate::world::{fleet, key, meet, plain, raw, raw_as, reply, until};
use fleet_trust::door::{JOINS, LIVES, SEATS_MAX};
use fleet_trust::link::{self, FLEET, HELLO, JOIN};
use fleet_trust::members::Presence;
use fleet_trust::message::{REQUEST_BYTES_MAX, Reply, Request, VERSION};
use problem::Code;
use rustls::version::TLS13;
use std::io::ErrorKind;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Random numbers that are the same in each run.
struct Chance(u64);

impl Chance {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut next = || {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 as u8
        };
        (0..count).map(|_| next()).collect()
    }
}

/// Reads until the other side has closed.
async fn is_closed(stream: &mut TcpStream) {
    let mut bytes = [0; 1_024];
    let reading = async { while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {} };
    timeout(Duration::from_secs(60), reading).await.expect("it ends in time");
}

/// Whether the other side, which says nothing, still holds the connection.
fn is_open(stream: &TcpStream) -> bool {
    stream.try_read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[tokio::test]
async fn bytes_that_are_no_tls_end_a_connection_and_nothing_else() {
    let fleet = fleet(1).await;
    let mut chance = Chance(1);
    for (from, count) in (1..40).zip([1, 5, 100, 5_000].into_iter().cycle()) {
        let mut stream = plain(fleet.address(), from).await.unwrap();
        let _ = stream.write_all(&chance.bytes(count)).await;
        stream.shutdown().await.unwrap();
        is_closed(&mut stream).await;
    }
    fleet.joined(7).await;
}

#[tokio::test]
async fn any_bytes_at_each_step_are_refused_with_a_code() {
    let fleet = fleet(1).await;
    let mut chance = Chance(7);
    let mut wrong = vec![
        vec![2, 1, 0, 0],
        vec![VERSION, 1, 0xff, 0xff],
        vec![VERSION, 99, 0, 0],
        Request::Hello(Presence { incarnation: 1, run: [1; 16] }).write(),
        Request::Reveal { nonce: [1; 32], signature: [2; 64] }.write(),
        Reply::Nonce([1; 32]).write(),
        [&[VERSION, 2, 4, 0][..], &[0xff; 4]].concat(),
    ];
    for kind in 1..6 {
        for length in [0, 80, 300, REQUEST_BYTES_MAX] {
            let [low, high] = (length as u16).to_le_bytes();
            wrong.push([&[VERSION, kind, low, high][..], &chance.bytes(length)].concat());
        }
    }
    for (from, bytes) in (1..).zip(wrong) {
        let mut stream = raw(fleet.address(), from, JOIN, &[&TLS13]).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let answer = reply(&mut stream).await.unwrap();
        assert!(matches!(answer, Reply::Refused { .. }), "{bytes:?}: {answer:?}");
    }
    // A second step that is another one.
    let mut stream = raw(fleet.address(), 200, JOIN, &[&TLS13]).await.unwrap();
    let knock = Request::Knock { key: key(7).public(), name: "pi-7".into(), commitment: [1; 32] };
    stream.write_all(&[knock.write(), knock.write()].concat()).await.unwrap();
    assert!(matches!(reply(&mut stream).await.unwrap(), Reply::Nonce(_)));
    assert!(matches!(reply(&mut stream).await.unwrap(), Reply::Refused { .. }));
    fleet.joined(7).await;
}

#[tokio::test]
async fn a_member_that_says_garbage_instead_of_hello_is_refused() {
    let fleet = fleet(1).await;
    let (joined, trust) = fleet.joined(7).await;
    for bytes in [vec![VERSION, 5, 0, 0], vec![9; 24], Request::Reveal { nonce: [1; 32], signature: [2; 64] }.write()] {
        let mut stream = raw_as(fleet.address(), HELLO, &joined.membership, 7).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let answer = reply(&mut stream).await;
        assert!(!matches!(answer, Ok(Reply::Welcome { .. })), "{bytes:?}: {answer:?}");
    }
    let welcome = link::hello(&trust, fleet.address(), |_| Ok(())).await.unwrap();
    assert_eq!(welcome.incarnation, 2);
}

/// Each hello with another run was written down, and who wanted to take the node out waited behind all of them.
#[tokio::test]
async fn a_member_that_begins_life_after_life_is_written_down_a_few_times() {
    let fleet = fleet(1).await;
    let ((joined, thief), (_, other)) = (fleet.joined(7).await, fleet.joined(8).await);
    link::hello(&other, fleet.address(), |_| Ok(())).await.unwrap();
    let written = || *fleet.anchor.changes().borrow();
    let (before, begun, mut refused) = (written(), Instant::now(), 0);
    for run in 0..60 {
        let mut stream = raw_as(fleet.address(), HELLO, &joined.membership, 7).await.unwrap();
        stream.write_all(&Request::Hello(Presence { incarnation: 1, run: [run; 16] }).write()).await.unwrap();
        match reply(&mut stream).await.unwrap() {
            Reply::Refused { code, .. } if code == Code::AnchorBusy as u16 => refused += 1,
            answer => assert!(matches!(answer, Reply::Welcome { .. }), "{answer:?}"),
        }
    }
    let most = LIVES.source_burst + begun.elapsed().as_secs_f64() * LIVES.source_a_second;
    let written_since = written() - before;
    assert!((1.0..=most + 1.0).contains(&(written_since as f64)), "{written_since} were written, {most} expected");
    assert_eq!(written_since + refused, 60);
    // Whose life goes on is heard each time, and who lives anew waits for nobody.
    for _ in 0..30 {
        link::hello(&other, fleet.address(), |_| Ok(())).await.unwrap();
    }
    let (_, third) = fleet.joined(9).await;
    link::hello(&third, fleet.address(), |_| Ok(())).await.unwrap();
    assert!(fleet.anchor.revoke(&thief.node()).unwrap().contains(&thief.node()));
}

#[tokio::test]
async fn a_node_that_is_no_anchor_lets_nobody_join_and_knows_no_other_protocol() {
    let fleet = fleet(1).await;
    let member = fleet.member(7).await;
    assert!(raw(&member.address, 1, JOIN, &[&TLS13]).await.is_err());
    assert!(raw(&member.address, 1, b"h2", &[&TLS13]).await.is_err());
    for protocol in [HELLO, FLEET] {
        let mut stream = raw(&member.address, 1, protocol, &[&TLS13]).await.unwrap();
        assert!(stream.read(&mut [0]).await.is_err());
    }
}

#[tokio::test]
async fn a_thousand_who_connect_and_say_nothing_keep_nobody_out() {
    let fleet = fleet(1).await;
    let member = fleet.member(7).await;
    let mut silent = Vec::new();
    for number in 0..1_000_u32 {
        // From ten addresses, as fast as it goes.
        silent.push(plain(fleet.address(), 1 + (number % 10) as u8).await.unwrap());
    }
    meet(&member.trust, &fleet.listening).await.unwrap();
    fleet.joined(8).await;
    // The last ones lose their seats when they are accepted, which may be later than this.
    let deadline = Instant::now() + Duration::from_secs(60);
    while silent.iter().filter(|stream| is_open(stream)).count() > SEATS_MAX {
        assert!(Instant::now() < deadline, "more than {SEATS_MAX} are still held");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_node_joins_through_a_flood_by_asking_again() {
    let fleet = fleet(1).await;
    let mut silent = Vec::new();
    for number in 0..1_000_u32 {
        silent.push(plain(fleet.address(), 1 + (number % 10) as u8).await.unwrap());
    }
    // Nobody has come from its address before.
    fleet.joined(7).await;
}

#[tokio::test]
async fn a_flood_of_joiners_leaves_the_members_alone() {
    let fleet = fleet(1).await;
    let member = fleet.member(7).await;
    let token = fleet.anchor.invite(1, 60).unwrap();
    let guess = fleet_trust::Token { secret: [0; 16], ..token };
    let (mut refused, begun) = (0, Instant::now());
    for seed in 0..200 {
        // One question each, without a second try.
        let Ok(mut stream) = raw(fleet.address(), 5, JOIN, &[&TLS13]).await else { continue };
        let key = key(seed);
        let request = Request::Join {
            invitation: fleet_trust::invitations::InvitationId::of(&guess.proof_key().public()),
            key: key.public(),
            name: "guess".into(),
            proof: [0; 64],
            signature: [0; 64],
        };
        let _ = stream.write_all(&request.write()).await;
        if let Ok(Reply::Refused { code, .. }) = reply(&mut stream).await {
            assert_eq!(code, Code::InvitationUnknown as u16);
            refused += 1;
        }
    }
    // One address gets its burst, and its pace for as long as this took.
    let most = JOINS.source_burst + begun.elapsed().as_secs_f64() * JOINS.source_a_second;
    assert!((1.0..=most + 1.0).contains(&f64::from(refused)), "{refused} guesses were looked at, {most} were expected");
    meet(&member.trust, &fleet.listening).await.unwrap();
    until(|| fleet.anchor.ledger().members().count() == 2).await;
}
