//! A limit on everything, and what happens there.

use super::support::*;
use gate_mqtt::codec::encode::{self, Ack};
use gate_mqtt::codec::{Connect, Qos, Reason, SubscriptionOptions, Version};
use gate_mqtt::{Limits, WhenFull};
use std::io::Read;
use std::time::Duration;

#[test]
fn who_says_nothing_is_closed_after_the_connect_timeout() {
    let server = Server::with(Limits { connect_timeout: Duration::from_millis(200), ..Limits::default() });
    let mut silent = server.raw(Version::V311);
    let mut slow = server.raw(Version::V311);
    slow.write(|out| out.extend_from_slice(&[0x10, 0x20, 0]));
    let mut rest = [0; 1];
    assert_eq!(silent.socket.read(&mut rest).unwrap(), 0);
    assert_eq!(slow.socket.read(&mut rest).unwrap(), 0);
}

#[test]
fn connections_beyond_the_limit_wait_for_a_place() {
    let server = Server::with(Limits { connections_max: 1, ..Limits::default() });
    let first = server.connect(Version::V311, "first");
    let mut second = server.raw(Version::V311);
    second.write(|out| encode::connect(out, &Connect { client_id: "second", ..plain(Version::V311) }));
    second.socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(second.socket.read(&mut [0; 1]).is_err());
    second.socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    first.disconnect();
    assert!(second.next().starts_with("Connack"));
}

#[test]
fn an_address_has_no_more_connections_than_its_own() {
    let server = Server::with(Limits { connections_per_address_max: 2, ..Limits::default() });
    let hello = |from| {
        let mut raw = server.raw_from(from, Version::V311);
        raw.write(|out| encode::connect(out, &Connect { client_id: "", ..plain(Version::V311) }));
        raw
    };
    let (mine, other) = ([127, 0, 0, 1], [127, 0, 0, 2]);
    let mut first = [hello(mine), hello(mine)];
    first.iter_mut().for_each(|raw| assert!(raw.next().starts_with("Connack")));
    let mut third = server.raw_from(mine, Version::V311);
    assert!(matches!(third.socket.read(&mut [0; 1]), Ok(0) | Err(_)), "the third is closed without a word");
    assert!(hello(other).next().starts_with("Connack"));
    // One that ends makes room for the next.
    let [first, _second] = first;
    first.disconnect();
    let come_in = || hello(mine).try_take(|_| ()).is_some();
    assert!((0..50).any(|_| come_in() || {
        std::thread::sleep(Duration::from_millis(20));
        false
    }));
}

#[test]
fn packets_topics_and_levels_are_bounded() {
    let limits = Limits { packet_bytes_max: 500, topic_levels_max: 4, ..Limits::default() };
    let server = Server::with(limits);
    for version in [Version::V311, Version::V5] {
        let mut client = server.connect(version, "c");
        client.publish("t", &"x".repeat(600), 1, 1);
        client.expect_closed(Reason::PACKET_TOO_LARGE);
        let mut client = server.connect(version, "c");
        let too_deep = "a/b/c/d/e";
        assert!(client.subscribe(too_deep, 1) >= 0x80);
        client.publish(too_deep, "x", 1, 1);
        if version == Version::V5 {
            client.expect_ack(Ack::Puback, 1, Reason::TOPIC_INVALID);
        } else {
            client.expect_closed(Reason::TOPIC_INVALID);
        }
    }
    let (_, connack) = server.connect_as(plain(Version::V5));
    assert_eq!(connack.packet_bytes_max, Some(500));
    let long = "c".repeat(300);
    let reply = server.try_connect(Connect { client_id: &long, ..plain(Version::V5) }).1;
    assert_eq!(reply.code, Reason::CLIENT_ID.0);
}

#[test]
fn packets_that_are_not_whole_are_of_the_nodes_budget() {
    let server = Server::start();
    let all = server.budget.part_bytes(budget::Purpose::Connections);
    let held = server.budget.take(budget::Purpose::Connections, all - 20_000).unwrap();
    // What is small needs no room.
    let mut client = server.connect(Version::V5, "c");
    client.publish_confirmed("t", "small", 1, 1);
    // The head of a message of 100,000 bytes, and half of it.
    let half = [&[0x30, 0xa0, 0x8d, 0x06][..], &[b'x'; 50_000]].concat();
    let mut wide = server.connect(Version::V5, "wide");
    wide.write(|out| out.extend_from_slice(&half));
    assert_eq!(wide.next(), "closed");
    // So it is with a CONNECT, whose sender is nobody yet.
    let mut stranger = server.raw(Version::V5);
    stranger.write(|out| out.extend_from_slice(&[&[0x10][..], &half[1..]].concat()));
    assert!(stranger.try_take(|_| ()).is_none());
    client.ping();
    drop(held);
    let mut wide = server.connect(Version::V5, "wide");
    wide.publish_confirmed("t", &"x".repeat(100_000), 1, 1);
    drop((wide, client));
}

#[test]
fn subscriptions_and_kept_sessions_are_counted() {
    let server = Server::with(Limits { subscriptions_max: 2, sessions_max: 1, ..Limits::default() });
    let (mut client, _) = server.connect_kept(Version::V5, "first");
    assert_eq!([client.subscribe("a", 1), client.subscribe("b", 1), client.subscribe("c", 1)], [1, 1, 0x97]);
    assert_eq!(client.subscribe("b", 0), 0);
    let connect = Connect { client_id: "second", clean_start: false, session_expiry_s: 10, ..plain(Version::V5) };
    assert_eq!(server.try_connect(connect).1.code, Reason::QUOTA_EXCEEDED.0);
    server.connect(Version::V5, "third");
    assert!(server.connect_kept(Version::V5, "first").1);
}

#[test]
fn more_messages_at_once_than_agreed_on_end_the_connection() {
    let server = Server::with(Limits { receive_maximum: 2, ..Limits::default() });
    server.node.want("#");
    server.node.hold();
    let mut client = server.connect(Version::V5, "c");
    for id in 1..=3 {
        client.publish("t", "m", 1, id);
    }
    client.expect_closed(Reason::RECEIVE_MAXIMUM);
    // In 3.1.1 there is no such agreement: the gate reads no further.
    let mut client = server.connect(Version::V311, "d");
    for id in 1..=9 {
        client.publish("t", "m", 1, id);
    }
    server.node.release();
    for id in 1..=9 {
        client.expect_ack(Ack::Puback, id, Reason::SUCCESS);
    }
}

#[test]
fn retained_messages_are_counted_by_number_and_bytes() {
    let server = Server::with(Limits { retained_max: 2, retained_bytes_max: 1_000, ..Limits::default() });
    let mut client = server.connect(Version::V5, "c");
    client.retain("a", "1");
    client.retain("b", "2");
    let mut refused = |topic: &str, payload: &str| {
        client.publish_with(topic, payload, 1, 2, |outgoing| outgoing.retain = true);
        client.expect_ack(Ack::Puback, 2, Reason::QUOTA_EXCEEDED);
    };
    refused("c", "3");
    refused("a", &"x".repeat(2_000));
    client.retain("a", "");
    client.retain("c", "3");
}

#[test]
fn a_full_session_misses_messages_or_refuses_them_as_configured() {
    for when_session_full in [WhenFull::Drop, WhenFull::Refuse] {
        let limits = Limits { queued_messages_max: 2, when_session_full, ..Limits::default() };
        let server = Server::with(limits);
        let (mut away, _) = server.connect_kept(Version::V5, "away");
        away.subscribe("t", 1);
        away.disconnect();
        let mut writer = server.connect(Version::V5, "writer");
        for id in 1..=2 {
            writer.publish_confirmed("t", &id.to_string(), 1, id);
        }
        let reason = if when_session_full == WhenFull::Drop { Reason::SUCCESS } else { Reason::QUOTA_EXCEEDED };
        writer.publish("t", "3", 1, 3);
        writer.expect_ack(Ack::Puback, 3, reason);
        let (mut back, _) = server.connect_kept(Version::V5, "away");
        assert_eq!([back.receive().payload, back.receive().payload], ["1", "2"]);
        back.ping();
        assert_eq!(server.gate().counts().dropped, u64::from(when_session_full == WhenFull::Drop));
    }
}

#[test]
fn all_sessions_together_hold_no_more_than_the_total() {
    let server = Server::with(Limits { queued_bytes_total_max: 10_000, ..Limits::default() });
    for name in ["a", "b", "c"] {
        server.connect_kept(Version::V5, name).0.subscribe("t", 1);
    }
    let mut writer = server.connect(Version::V5, "writer");
    for id in 1..=10 {
        writer.publish_confirmed("t", &"x".repeat(1_000), 1, id);
    }
    let counts = server.gate().counts();
    assert!(counts.queued_bytes <= 10_000 && counts.dropped > 0, "{counts:?}");
}

#[test]
fn a_subscriber_that_does_not_read_holds_nobody_up_for_long_and_little_memory() {
    let limits = Limits { queued_messages_max: 50, send_bytes_max: 20_000, ..Limits::default() };
    let server = Server::with(limits);
    let mut deaf = server.connect(Version::V5, "deaf");
    let options = SubscriptionOptions { qos: Qos::AtMostOnce, ..Default::default() };
    deaf.subscribe_with("#", options, None);
    let mut deaf_too = server.connect(Version::V311, "deaf-too");
    deaf_too.subscribe("#", 1);
    let mut reader = server.connect(Version::V5, "reader");
    reader.subscribe("t", 1);
    let mut writer = server.connect(Version::V5, "writer");
    let payload = "x".repeat(10_000);
    for id in 1..=1_000 {
        writer.publish("t", &payload, 1, id);
        assert_eq!(reader.receive().payload.len(), 10_000);
        writer.expect_ack(Ack::Puback, id, Reason::SUCCESS);
    }
    let counts = server.gate().counts();
    assert!(counts.dropped > 0 && counts.queued_bytes < 1_000_000, "{counts:?}");
}
