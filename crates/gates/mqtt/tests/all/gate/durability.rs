//! Confirmed means durable.

use super::support::*;
use gate_mqtt::Limits;
use gate_mqtt::codec::encode::{self, Ack};
use gate_mqtt::codec::{Reason, Version};
use std::time::Duration;

#[test]
fn a_message_for_a_function_is_confirmed_once_its_event_is_durable() {
    for version in [Version::V311, Version::V5] {
        for (qos, kind) in [(1, Ack::Puback), (2, Ack::Pubrec)] {
            let server = Server::start();
            server.node.want("sensor/+");
            let mut client = server.connect(version, "c");
            server.node.hold();
            client.publish("sensor/1", "20", qos, 7);
            // The answer to what was asked later is here, the confirmation is not.
            client.ping();
            assert_eq!(server.node.events(), [("sensor/1".to_owned(), "20".to_owned())]);
            server.node.release();
            client.expect_ack(kind, 7, Reason::SUCCESS);
        }
    }
}

#[test]
fn retained_messages_and_copies_of_kept_sessions_are_durable_before_the_confirmation() {
    let server = Server::start();
    let (mut away, _) = server.connect_kept(Version::V5, "away");
    assert_eq!(away.subscribe("a/#", 1), 1);
    drop(away);
    let mut client = server.connect(Version::V311, "c");
    server.node.hold();
    client.publish("a/b", "copy", 1, 1);
    client.publish_with("r", "retained", 1, 2, |outgoing| outgoing.retain = true);
    client.publish("nobody", "passes through", 1, 3);
    client.ping();
    server.node.release();
    for id in [1, 2, 3] {
        client.expect_ack(Ack::Puback, id, Reason::SUCCESS);
    }
    assert!(
        server.node.records().iter().any(|key| key.starts_with("m/")) && server.node.records().contains(&"r/r".into())
    );
}

#[test]
fn what_nobody_keeps_needs_no_disk() {
    let server = Server::start();
    let mut subscriber = server.connect(Version::V311, "s");
    subscriber.subscribe("#", 2);
    let mut client = server.connect(Version::V311, "c");
    server.node.hold();
    for qos in [0, 1, 2] {
        client.publish_confirmed("t", "m", qos, 1);
        assert_eq!(subscriber.receive().qos, qos);
    }
}

#[test]
fn qos_2_is_exactly_once_across_restarts_of_the_broker() {
    for version in [Version::V311, Version::V5] {
        let mut server = Server::start();
        server.node.want("#");
        let (mut reader, _) = server.connect_kept(version, "reader");
        reader.subscribe("t", 2);
        let (mut writer, present) = server.connect_kept(version, "writer");
        assert!(!present);
        writer.publish("t", "once", 2, 5);
        writer.expect_ack(Ack::Pubrec, 5, Reason::SUCCESS);
        // The broker dies before the release; the client, not having heard the answer, sends it again.
        server.restart();
        let (mut writer, present) = server.connect_kept(version, "writer");
        assert!(present);
        writer.publish_with("t", "once", 2, 5, |outgoing| outgoing.dup = true);
        writer.expect_ack(Ack::Pubrec, 5, Reason::SUCCESS);
        writer.ack(Ack::Pubrel, 5);
        writer.expect_ack(Ack::Pubcomp, 5, Reason::SUCCESS);
        assert_eq!(server.node.events().len(), 1);

        // The reader takes it, and the broker dies after its PUBREC: it must not get it again.
        let (mut reader, _) = server.connect_kept(version, "reader");
        let got = reader.message();
        assert_eq!((got.payload.as_str(), got.dup), ("once", true));
        reader.ack(Ack::Pubrec, got.id);
        reader.expect_ack(Ack::Pubrel, got.id, Reason::SUCCESS);
        server.restart();
        let (mut reader, _) = server.connect_kept(version, "reader");
        reader.expect_ack(Ack::Pubrel, got.id, Reason::SUCCESS);
        reader.ack(Ack::Pubcomp, got.id);
        reader.ping();
        // The identifier is free for another message, which is not taken for the old one.
        let (mut writer, _) = server.connect_kept(version, "writer");
        writer.publish_confirmed("t", "another", 2, 5);
        assert_eq!(reader.receive().payload, "another");
        reader.ping();
        assert_eq!(server.node.events().len(), 2);
        drop((reader, writer));
        server.restart();
        assert!(
            !server
                .node
                .records()
                .iter()
                .any(|key| key.starts_with("m/") || key.starts_with("i/") || key.starts_with("b/"))
        );
    }
}

#[test]
fn a_message_for_many_kept_sessions_is_stored_once_and_goes_with_the_last() {
    let mut server = Server::start();
    let names = ["a", "b", "c"];
    for name in names {
        server.connect_kept(Version::V5, name).0.subscribe("t", 1);
    }
    server.connect(Version::V5, "w").publish_confirmed("t", "shared", 1, 1);
    let bodies = |server: &Server| server.node.records().iter().filter(|key| key.starts_with("b/")).count();
    assert_eq!(bodies(&server), 1);
    server.restart();
    for (place, name) in names.iter().enumerate() {
        assert_eq!(bodies(&server), 1, "{place}");
        let mut client = server.connect_kept(Version::V5, name).0;
        assert_eq!(client.receive().payload, "shared");
        client.ping();
    }
    assert_eq!(bodies(&server), 0);
}

#[test]
fn a_full_queue_refuses_with_0x97_in_mqtt_5() {
    let server = Server::start();
    server.node.want("t");
    server.node.set_full(true);
    let mut subscriber = server.connect(Version::V5, "s");
    subscriber.subscribe("t", 2);
    let mut client = server.connect(Version::V5, "c");
    client.publish("t", "1", 1, 1);
    client.expect_ack(Ack::Puback, 1, Reason::QUOTA_EXCEEDED);
    client.publish("t", "2", 2, 2);
    client.expect_ack(Ack::Pubrec, 2, Reason::QUOTA_EXCEEDED);
    client.publish("t", "3", 0, 0);
    client.ping();
    server.node.set_full(false);
    client.publish_confirmed("t", "4", 2, 2);
    // Nobody saw what was not accepted.
    assert_eq!(subscriber.receive().payload, "4");
    assert_eq!(server.node.events(), [("t".to_owned(), "4".to_owned())]);
}

#[test]
fn a_full_queue_holds_a_client_of_3_1_1_up_and_keeps_the_order() {
    let server = Server::start();
    server.node.want("t");
    server.node.set_full(true);
    let mut client = server.connect(Version::V311, "c");
    client.publish("t", "1", 1, 1);
    client.publish("t", "2", 2, 2);
    client.publish("other", "3", 1, 3);
    server.connect(Version::V311, "other").ping();
    assert!(server.node.events().is_empty());
    server.node.set_full(false);
    client.expect_ack(Ack::Puback, 1, Reason::SUCCESS);
    client.expect_ack(Ack::Pubrec, 2, Reason::SUCCESS);
    client.expect_ack(Ack::Puback, 3, Reason::SUCCESS);
    assert_eq!(server.node.events(), [("t".to_owned(), "1".to_owned()), ("t".to_owned(), "2".to_owned())]);
}

#[test]
fn a_client_of_3_1_1_that_is_held_up_too_long_is_closed_unconfirmed() {
    let limits = Limits { stall_timeout: Duration::from_millis(300), ..Limits::default() };
    let server = Server::with(limits);
    server.node.want("t");
    server.node.set_full(true);
    let mut client = server.connect_kept(Version::V311, "c").0;
    client.publish("t", "1", 2, 1);
    client.expect_closed(Reason::QUOTA_EXCEEDED);
    server.node.set_full(false);
    let mut client = server.connect_kept(Version::V311, "c").0;
    client.publish_with("t", "1", 2, 1, |outgoing| outgoing.dup = true);
    client.expect_ack(Ack::Pubrec, 1, Reason::SUCCESS);
    assert_eq!(server.node.events().len(), 1);
}

/// All clients waited for what the disk did not take of one: with a full disk nobody was let in.
#[test]
fn a_full_disk_keeps_nobody_out_of_whom_nothing_is_stored() {
    for version in [Version::V311, Version::V5] {
        let server = Server::start();
        let (mut kept, _) = server.connect_kept(version, "kept");
        kept.subscribe("t", 1);
        server.node.set_disk_full(true);
        kept.write(|out| encode::unsubscribe(out, 6, &["t"], version));
        kept.ping();
        let mut other = server.connect(version, "other");
        assert_eq!(other.subscribe("t", 1), 1);
        other.publish("t", "m", 0, 0);
        assert_eq!(other.receive().payload, "m");
        other.write(|out| encode::unsubscribe(out, 7, &["t"], version));
        assert!(other.next().starts_with("Unsuback { id: 7"));
        server.node.set_disk_full(false);
        assert!(kept.next().starts_with("Unsuback { id: 6"));
    }
}
