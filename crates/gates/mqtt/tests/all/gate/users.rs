//! Users beside each other: what one may have of the broker, whose a session is, and what is left when rights are cut.

use super::support::*;
use gate_mqtt::codec::encode::{self, Ack};
use gate_mqtt::codec::{Connack, Connect, PublishProperties, Qos, Reason, Version, Will};
use gate_mqtt::{Limits, User, Users, hash_password};
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;
use std::time::Duration;

/// A user that may do everything, with the password `p`.
fn user() -> User {
    static HASH: OnceLock<String> = OnceLock::new();
    let password = HASH.get_or_init(|| hash_password(b"p").unwrap()).clone();
    User { password, publish: vec!["#".into()], subscribe: vec!["#".into()], ..User::default() }
}

/// Users `a` and `b`, and whoever has no name.
fn users(a: User) -> Users {
    let anonymous = User { password: String::new(), ..user() };
    Users::new([("a".to_owned(), a), ("b".to_owned(), user())].into(), Some(anonymous)).unwrap()
}

fn server(limits: Limits) -> Server {
    Server::with_users(Limits { user_share_percent: 25, ..limits }, users(user()), None)
}

/// A kept session.
fn kept<'a>(user: Option<&'a str>, client: &'a str) -> Connect<'a> {
    Connect {
        client_id: client,
        user,
        password: user.map(|_| &b"p"[..]),
        clean_start: false,
        session_expiry_s: 1_000,
        ..plain(Version::V5)
    }
}

fn come(server: &Server, user: Option<&str>, client: &str) -> (Raw, Connack) {
    server.connect_as(kept(user, client))
}

fn retain(raw: &mut Raw, topic: &str, payload: &str, reason: Reason) {
    raw.publish_with(topic, payload, 1, 1, |outgoing| outgoing.retain = true);
    raw.expect_ack(Ack::Puback, 1, reason);
}

#[test]
fn a_user_has_a_share_of_the_kept_sessions() {
    let server = server(Limits { sessions_max: 8, ..Limits::default() });
    for user in [Some("a"), None] {
        for client in ["1", "2"] {
            come(&server, user, client).0.disconnect();
        }
        assert_eq!(server.try_connect(kept(user, "3")).1.code, Reason::QUOTA_EXCEEDED.0);
        // One it has already is no one more, and one that ends with its connection is none.
        assert!(come(&server, user, "2").1.session_present);
        server.connect_as(Connect { session_expiry_s: 0, ..kept(user, "3") });
    }
    assert_eq!(come(&server, Some("b"), "1").1.code, 0);
}

#[test]
fn a_user_has_a_share_of_what_is_retained() {
    let server = server(Limits { retained_max: 8, ..Limits::default() });
    let (mut a, mut b) = (come(&server, Some("a"), "1").0, come(&server, Some("b"), "1").0);
    retain(&mut a, "x", "1", Reason::SUCCESS);
    retain(&mut a, "y", "1", Reason::SUCCESS);
    retain(&mut a, "z", "1", Reason::QUOTA_EXCEEDED);
    retain(&mut a, "y", "2", Reason::SUCCESS);
    // Who replaces a message has it from then on.
    retain(&mut b, "y", "3", Reason::SUCCESS);
    retain(&mut a, "z", "1", Reason::SUCCESS);
    retain(&mut a, "y", "4", Reason::QUOTA_EXCEEDED);
    retain(&mut b, "y", "", Reason::SUCCESS);
    retain(&mut b, "v", "1", Reason::SUCCESS);
    retain(&mut b, "w", "1", Reason::SUCCESS);
    assert_eq!(server.gate().counts().retained, 4);
}

#[test]
fn whose_a_retained_message_is_survives_a_restart() {
    let mut server = server(Limits { retained_max: 8, ..Limits::default() });
    let mut a = come(&server, Some("a"), "1").0;
    retain(&mut a, "x", "1", Reason::SUCCESS);
    retain(&mut a, "y", "1", Reason::SUCCESS);
    server.restart_with_users(users(user()));
    retain(&mut come(&server, Some("a"), "1").0, "z", "1", Reason::QUOTA_EXCEEDED);
    retain(&mut come(&server, Some("b"), "1").0, "z", "1", Reason::SUCCESS);
}

#[test]
fn a_user_has_a_share_of_what_waits() {
    let server = server(Limits { queued_bytes_total_max: 40_000, ..Limits::default() });
    for user in ["a", "b"] {
        let mut away = come(&server, Some(user), "away").0;
        away.subscribe(user, 1);
        away.disconnect();
    }
    let mut writer = come(&server, None, "writer").0;
    for id in 1..=20 {
        writer.publish_confirmed("a", &"x".repeat(1_000), 1, id);
    }
    let counts = server.gate().counts();
    assert!(counts.queued_bytes <= 10_000 && counts.dropped >= 10, "{counts:?}");
    writer.publish_confirmed("b", "for b", 1, 30);
    assert_eq!(come(&server, Some("b"), "away").0.receive().payload, "for b");
}

#[test]
fn a_user_has_a_share_of_what_subscriptions_take() {
    let server = server(Limits { session_bytes_max: 40_000, ..Limits::default() });
    let mut a = server.connect_as(Connect { session_expiry_s: 0, ..kept(Some("a"), "1") }).0;
    let deep = "a/".repeat(30);
    assert_eq!(a.subscribe(&deep, 1), 1);
    assert_eq!(a.subscribe(&format!("{deep}x"), 1), Reason::QUOTA_EXCEEDED.0);
    // Nor can it have sessions without end.
    let others: Vec<_> = (0..10)
        .map(|number| {
            let client = format!("other-{number}");
            server.try_connect(Connect { session_expiry_s: 0, ..kept(Some("a"), &client) })
        })
        .collect();
    assert_eq!(others.last().unwrap().1.code, Reason::QUOTA_EXCEEDED.0);
    assert_eq!(come(&server, Some("b"), "1").0.subscribe(&deep, 1), 1);
}

#[test]
fn what_the_broker_holds_is_of_the_nodes_budget() {
    let server = server(Limits::default());
    let mut a = come(&server, Some("a"), "1").0;
    let all = server.budget.part_bytes(budget::Purpose::Mqtt);
    let held =
        server.budget.take(budget::Purpose::Mqtt, all - server.budget.used_bytes(budget::Purpose::Mqtt)).unwrap();
    retain(&mut a, "x", &"x".repeat(200_000), Reason::SUCCESS);
    retain(&mut a, "y", &"x".repeat(200_000), Reason::QUOTA_EXCEEDED);
    let reasons: Vec<u8> = (0..20).map(|number| a.subscribe(&format!("{}{number}", "f/".repeat(31)), 1)).collect();
    assert_eq!((reasons[0], reasons[19]), (1, Reason::QUOTA_EXCEEDED.0));
    drop(held);
    retain(&mut a, "y", &"x".repeat(200_000), Reason::SUCCESS);
    assert!(server.budget.used_bytes(budget::Purpose::Mqtt) > 400_000);
}

#[test]
fn anonymous_cannot_occupy_the_client_id_of_a_device() {
    let server = server(Limits::default());
    let mut anonymous = come(&server, None, "meter-7").0;
    anonymous.subscribe("t", 1);
    let (mut device, connack) = come(&server, Some("a"), "meter-7");
    assert!(!connack.session_present);
    anonymous.ping();
    device.subscribe("t", 1);
    server.connect(Version::V5, "").publish_confirmed("t", "m", 1, 1);
    assert_eq!([device.receive().payload, anonymous.receive().payload], ["m", "m"]);
    anonymous.disconnect();
    device.disconnect();
    assert!(come(&server, Some("a"), "meter-7").1.session_present && come(&server, None, "meter-7").1.session_present);
}

#[test]
fn a_client_id_may_be_one_users_alone() {
    let device = User { client_ids: vec!["meter-*".into()], ..user() };
    let server = Server::with_users(Limits::default(), users(device), None);
    for (user, client, code) in [
        (Some("a"), "meter-7", 0),
        (Some("a"), "lamp", Reason::CLIENT_ID.0),
        (Some("b"), "meter-8", Reason::CLIENT_ID.0),
        (None, "meter-8", Reason::CLIENT_ID.0),
        (None, "lamp", 0),
    ] {
        assert_eq!(server.try_connect(kept(user, client)).1.code, code, "{user:?} {client}");
    }
}

#[test]
fn what_is_denied_is_left_out_of_a_wide_subscription() {
    let cut = User { deny_publish: vec!["door/open".into()], deny_subscribe: vec!["secret/#".into()], ..user() };
    let server = Server::with_users(Limits::default(), users(cut), None);
    let mut b = come(&server, Some("b"), "1").0;
    retain(&mut b, "secret/old", "1", Reason::SUCCESS);
    retain(&mut b, "plain/old", "1", Reason::SUCCESS);
    let mut a = come(&server, Some("a"), "1").0;
    assert_eq!(a.subscribe("secret/new", 1), Reason::NOT_AUTHORIZED.0);
    assert_eq!(a.subscribe("$share/g/#", 1), Reason::NOT_AUTHORIZED.0);
    assert_eq!(a.subscribe("#", 1), 1);
    assert_eq!(a.receive().topic, "plain/old");
    b.publish_confirmed("secret/new", "2", 1, 1);
    b.publish_confirmed("plain/new", "2", 1, 1);
    assert_eq!(a.receive().topic, "plain/new");
    a.publish("door/open", "x", 1, 7);
    a.expect_ack(Ack::Puback, 7, Reason::NOT_AUTHORIZED);
    a.ping();
}

#[test]
fn rights_that_are_cut_are_cut_from_kept_sessions_with_what_waits_there() {
    let mut server = server(Limits::default());
    server.node.want("will");
    let will = Will {
        topic: "will",
        payload: b"w",
        qos: Qos::AtLeastOnce,
        retain: false,
        delay_s: 1,
        properties: PublishProperties::default(),
    };
    let mut a = server.connect_as(Connect { will: Some(will), ..kept(Some("a"), "1") }).0;
    for filter in ["commands/#", "public/#", "+/both"] {
        a.subscribe(filter, 1);
    }
    // Whoever is connected as the node ends has a will that waits then.
    let mut away = come(&server, Some("a"), "away").0;
    away.subscribe("commands/#", 1);
    away.subscribe("public/#", 1);
    away.disconnect();
    let mut gone = come(&server, None, "gone").0;
    gone.subscribe("#", 1);
    let mut b = come(&server, Some("b"), "1").0;
    for topic in ["commands/1", "public/1"] {
        b.publish_confirmed(topic, "old", 1, 1);
    }
    let cut = || User { publish: vec![], subscribe: vec!["public/#".into()], ..user() };
    server.restart_with_users(Users::new([("a".to_owned(), cut()), ("b".to_owned(), user())].into(), None).unwrap());

    let (mut away, connack) = come(&server, Some("a"), "away");
    assert!(connack.session_present);
    assert_eq!(away.receive().topic, "public/1");
    let mut b = come(&server, Some("b"), "1").0;
    for topic in ["commands/2", "x/both", "public/2"] {
        b.publish_confirmed(topic, "new", 1, 1);
    }
    assert_eq!(away.receive().topic, "public/2");
    away.ping();
    // Of who may not connect any more nothing is left, and no will is published that nobody may.
    let deadline = std::time::Instant::now() + Duration::from_millis(1_700);
    while std::time::Instant::now() < deadline {
        assert!(server.node.events().is_empty(), "{:?}", server.node.events());
    }
    let sessions = server.gate().sessions();
    assert!(sessions.iter().all(|session| session.user.is_some()), "{sessions:?}");
    let left = server.node.records();
    assert!(!left.iter().any(|key| key.contains("commands") || key.contains("both")), "{left:?}");
}

#[test]
fn sessions_of_earlier_releases_are_taken_over() {
    let mut server = Server::start();
    let number = |number: u64| number.to_be_bytes().to_vec();
    let user = |name: &str| [&[1][..], &(name.len() as u32).to_be_bytes(), name.as_bytes()].concat();
    // Form, number, expiry, end, user, no will.
    let record = [vec![1], number(7), number(1_000), number(0), user("a"), vec![0]].concat();
    server.node.write("s/meter/7", &record);
    server.node.write("t/0000000000000007/t", &[1, 1, 0, 0, 0, 0]);
    for _ in 0..2 {
        server.restart_with_users(users(self::user()));
        let records = server.node.records();
        assert!(records.iter().any(|key| key == "n/0000000000000007"), "{records:?}");
        assert!(!records.iter().any(|key| key.starts_with("s/")), "{records:?}");
        let (mut device, connack) = come(&server, Some("a"), "meter/7");
        assert!(connack.session_present);
        server.connect(Version::V5, "").publish_confirmed("t", "m", 1, 1);
        assert_eq!(device.receive().payload, "m");
    }
}

/// Once a session that held more records than a transaction has room for could not be ended, and nobody was answered
/// any more.
#[test]
fn a_session_of_any_size_can_be_ended() {
    let server = Server::with(Limits { queued_messages_max: 12_000, ..Limits::default() });
    let (mut big, _) = server.connect_kept(Version::V311, "big");
    big.subscribe("t", 1);
    big.disconnect();
    let mut writer = server.connect(Version::V311, "writer");
    for id in 1..=11_000 {
        writer.publish("t", "m", 1, id);
        if id % 500 == 0 {
            (id - 499..=id).for_each(|id| writer.expect_ack(Ack::Puback, id, Reason::SUCCESS));
        }
    }
    assert!(server.gate().counts().queued_bytes > 0);
    assert!(server.gate().end_session(None, "big"));
    assert_eq!(server.connect(Version::V5, "next").subscribe("t", 1), 1);
    assert!(!server.connect_kept(Version::V311, "big").1);
    let left: Vec<_> = server.node.records().into_iter().filter(|key| key.starts_with("m/")).collect();
    assert!(left.is_empty(), "{} records are left", left.len());
}

/// Once the answers to a client that reads none gathered without a bound.
#[test]
fn who_does_not_read_its_answers_is_asked_nothing_more() {
    let server = Server::with(Limits { send_bytes_max: 4_096, ..Limits::default() });
    let mut deaf = server.connect(Version::V5, "deaf");
    deaf.socket.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut pings = Vec::new();
    (0..32 * 1_024).for_each(|_| encode::pingreq(&mut pings));
    let mut written = 0;
    let stopped = loop {
        // A packet has two bytes; where one was cut in its middle, the rest comes first.
        match deaf.socket.write(&pings[written % 2..]) {
            Ok(bytes) => written += bytes,
            Err(error) => break error,
        }
        assert!(written < 64 << 20, "the gate reads on and on");
    };
    assert!(matches!(stopped.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{stopped}");
    // Once it reads, all of it is answered.
    for _ in 0..written / 2 {
        deaf.take(|packet| assert_eq!(packet, gate_mqtt::codec::Packet::Pingresp));
    }
    server.connect(Version::V311, "other").ping();
}

#[test]
fn wills_that_find_no_room_are_few() {
    let server = Server::start();
    server.node.want("will");
    server.node.set_full(true);
    let will = Will {
        topic: "will",
        payload: b"w",
        qos: Qos::AtLeastOnce,
        retain: false,
        delay_s: 0,
        properties: PublishProperties::default(),
    };
    for number in 0..1_020 {
        let client = number.to_string();
        drop(server.connect_as(Connect { client_id: &client, will: Some(will.clone()), ..plain(Version::V5) }));
    }
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while server.gate().counts().refused < 20 {
        assert!(std::time::Instant::now() < deadline, "{:?}", server.gate().counts());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_administrator_ends_a_session() {
    let server = server(Limits::default());
    let (mut a, mut same) = (come(&server, Some("a"), "1").0, come(&server, Some("b"), "1").0);
    a.subscribe("t", 1);
    let listed = server.gate().sessions();
    let found = listed.iter().find(|session| session.user.as_deref() == Some("a")).unwrap();
    assert_eq!((&*found.client, found.is_connected, found.is_kept, found.subscriptions), ("1", true, true, 1));
    assert!(server.gate().end_session(Some("a"), "1") && !server.gate().end_session(Some("a"), "1"));
    a.expect_closed(Reason::ADMINISTRATIVE);
    same.ping();
    assert!(!come(&server, Some("a"), "1").1.session_present);
}
