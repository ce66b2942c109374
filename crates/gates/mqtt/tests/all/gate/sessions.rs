//! Sessions: what outlives a connection and what does not, who takes over whom.

use super::support::*;
use gate_mqtt::codec::encode::{self, Ack};
use gate_mqtt::codec::{Connect, Reason, Version};

#[test]
fn a_kept_session_gets_what_was_published_meanwhile_also_after_a_restart() {
    for version in [Version::V311, Version::V5] {
        let mut server = Server::start();
        let (mut reader, present) = server.connect_kept(version, "reader");
        assert!(!present);
        reader.subscribe("a/+", 2);
        reader.disconnect();
        let mut writer = server.connect(version, "writer");
        for (number, qos) in [(1, 1), (2, 2), (3, 0)] {
            writer.publish_confirmed("a/b", &number.to_string(), qos, number);
        }
        server.restart();
        let (mut reader, present) = server.connect_kept(version, "reader");
        assert!(present);
        assert_eq!([reader.receive().payload, reader.receive().payload], ["1", "2"]);
        reader.ping();
        // Its subscription is there too.
        server.connect(version, "writer").publish_confirmed("a/c", "4", 1, 1);
        assert_eq!(reader.receive().payload, "4");
        reader.disconnect();
        let (mut reader, present) = server.connect_kept(version, "reader");
        assert!(present);
        reader.ping();
    }
}

#[test]
fn a_clean_start_forgets_the_session() {
    for version in [Version::V311, Version::V5] {
        let server = Server::start();
        let (mut reader, _) = server.connect_kept(version, "reader");
        reader.subscribe("t", 1);
        drop(reader);
        server.connect(version, "writer").publish_confirmed("t", "m", 1, 1);
        let connect = Connect { client_id: "reader", session_expiry_s: 0, ..plain(version) };
        let (mut reader, connack) = server.connect_as(connect);
        assert!(!connack.session_present);
        reader.ping();
        reader.disconnect();
        let (mut reader, present) = server.connect_kept(version, "reader");
        assert!(!present);
        reader.ping();
    }
}

#[test]
fn what_was_not_acknowledged_is_sent_again_in_order_with_the_same_identifiers() {
    for version in [Version::V311, Version::V5] {
        let server = Server::start();
        let (mut reader, _) = server.connect_kept(version, "reader");
        reader.subscribe("t", 2);
        let mut writer = server.connect(version, "writer");
        for (id, qos) in [(1, 1), (2, 2), (3, 1)] {
            writer.publish_confirmed("t", &id.to_string(), qos, id);
        }
        let first: Vec<Got> = (0..3).map(|_| reader.message()).collect();
        assert!(first.iter().all(|got| !got.dup));
        drop(reader);
        let (mut reader, present) = server.connect_kept(version, "reader");
        assert!(present);
        for got in &first {
            assert_eq!(reader.message(), Got { dup: true, ..got.clone() });
        }
        reader.ack(Ack::Puback, first[2].id);
        reader.ack(Ack::Pubrec, first[1].id);
        reader.expect_ack(Ack::Pubrel, first[1].id, Reason::SUCCESS);
        reader.ack(Ack::Puback, first[0].id);
        reader.ack(Ack::Pubcomp, first[1].id);
        reader.ping();
        assert_eq!(server.gate().counts().queued_bytes, 0);
    }
}

#[test]
fn a_second_connection_of_the_same_name_takes_over() {
    for version in [Version::V311, Version::V5] {
        let server = Server::start();
        let (mut first, _) = server.connect_kept(version, "same");
        first.subscribe("t", 1);
        let (mut second, present) = server.connect_kept(version, "same");
        assert!(present);
        first.expect_closed(Reason::TAKEN_OVER);
        server.connect(version, "writer").publish_confirmed("t", "m", 1, 1);
        assert_eq!(second.receive().payload, "m");
        second.ping();
    }
}

#[test]
fn sessions_end_when_their_time_is_over() {
    let server = Server::start();
    let connect = || Connect { client_id: "c", clean_start: false, session_expiry_s: 1, ..plain(Version::V5) };
    server.connect_as(connect()).0.subscribe("t", 1);
    assert!(server.connect_as(connect()).1.session_present);
    while server.gate().counts().sessions > 0 {
        std::thread::yield_now();
    }
    assert!(!server.connect_as(connect()).1.session_present);
    assert!(!server.node.records().iter().any(|key| key.starts_with("t/")));
}

#[test]
fn a_client_may_change_how_long_its_session_lives_when_it_leaves() {
    let server = Server::start();
    let (mut client, _) = server.connect_kept(Version::V5, "c");
    client.write(|out| out.extend_from_slice(&[0xe0, 7, 0, 5, 0x11, 0, 0, 0, 0]));
    assert_eq!(client.next(), "closed");
    assert!(!server.connect_kept(Version::V5, "c").1);
    // A session that was to end with its connection cannot be made to live.
    let mut client = server.connect(Version::V5, "d");
    client.write(|out| out.extend_from_slice(&[0xe0, 7, 0, 5, 0x11, 0, 0, 0, 9]));
    client.expect_closed(Reason::PROTOCOL_ERROR);
}

/// Nothing was written of such a session any more: after a crash it was there again, with what had been acknowledged.
#[test]
fn a_session_that_is_to_end_with_its_connection_now_ends_with_a_crash_too() {
    let mut server = Server::start();
    let (mut reader, _) = server.connect_kept(Version::V5, "reader");
    reader.subscribe("t", 1);
    drop(reader);
    let mut writer = server.connect(Version::V5, "writer");
    writer.publish_confirmed("t", "1", 1, 1);
    writer.publish_confirmed("t", "2", 1, 2);
    let connect = Connect { client_id: "reader", clean_start: false, ..plain(Version::V5) };
    let (mut reader, connack) = server.connect_as(connect);
    assert!(connack.session_present);
    assert_eq!([reader.receive().payload, reader.receive().payload], ["1", "2"]);
    reader.ping();
    let is_copy = |key: &String| ["m/", "b/"].iter().any(|kind| key.starts_with(kind));
    assert!(!server.node.records().iter().any(is_copy));
    writer.publish_confirmed("t", "3", 1, 3);
    assert_eq!(reader.receive().payload, "3");
    server.restart();
    let (mut reader, present) = server.connect_kept(Version::V5, "reader");
    assert!(!present);
    reader.ping();
}

/// A message that waited there without a copy on disk took one of the copies of others with it.
#[test]
fn a_session_that_ends_with_its_connection_leaves_others_their_copies() {
    let mut server = Server::start();
    for name in ["a", "b", "reader"] {
        server.connect_kept(Version::V5, name).0.subscribe("t", 1);
    }
    let one = Connect { client_id: "reader", clean_start: false, receive_maximum: 1, ..plain(Version::V5) };
    let (mut reader, _) = server.connect_as(one);
    let mut writer = server.connect(Version::V5, "writer");
    writer.publish_confirmed("t", "1", 1, 1);
    writer.publish_confirmed("t", "2", 1, 2);
    assert_eq!(reader.message().payload, "1");
    reader.disconnect();
    let (mut a, _) = server.connect_kept(Version::V5, "a");
    assert_eq!([a.receive().payload, a.receive().payload], ["1", "2"]);
    a.ping();
    server.restart();
    let (mut b, _) = server.connect_kept(Version::V5, "b");
    assert_eq!([b.receive().payload, b.receive().payload], ["1", "2"]);
}

#[test]
fn clients_without_a_name_get_one() {
    let server = Server::start();
    let (_client, connack) = server.connect_as(Connect { client_id: "", ..plain(Version::V5) });
    assert!(connack.assigned_client_id.is_some_and(|name| name.starts_with("auto-")));
    server.connect_as(Connect { client_id: "", ..plain(Version::V311) });
    let connect = Connect { client_id: "", clean_start: false, session_expiry_s: u32::MAX, ..plain(Version::V311) };
    assert_eq!(server.try_connect(connect).1.code, 2);
}

#[test]
fn unknown_identifiers_are_named_in_mqtt_5() {
    let server = Server::start();
    let mut client = server.connect(Version::V5, "c");
    client.ack(Ack::Pubrel, 5);
    client.expect_ack(Ack::Pubcomp, 5, Reason::ID_UNKNOWN);
    client.ack(Ack::Pubrec, 6);
    client.expect_ack(Ack::Pubrel, 6, Reason::ID_UNKNOWN);
    client.ack(Ack::Puback, 7);
    client.ack(Ack::Pubcomp, 8);
    client.ping();
    client.write(|out| encode::unsubscribe(out, 3, &["never"], Version::V5));
    assert!(client.next().contains("Unsuback { id: 3, codes: [17] }"));
}
