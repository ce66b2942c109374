//! Who gets what.

use super::support::*;
use gate_mqtt::codec::encode::{self, Ack, lasting_properties};
use gate_mqtt::codec::{Connect, Packet, PublishProperties, Qos, Reason, SubscribeEntry, SubscriptionOptions, Version};

#[test]
fn a_message_comes_once_with_the_best_qos_and_all_identifiers_of_overlapping_subscriptions() {
    let server = Server::start();
    let mut reader = server.connect(Version::V5, "reader");
    let options = |qos| SubscriptionOptions { qos: Qos::new(qos).unwrap(), ..Default::default() };
    reader.subscribe_with("a/#", options(0), Some(1));
    reader.subscribe_with("a/+", options(2), Some(2));
    reader.subscribe_with("a/b", options(1), None);
    server.connect(Version::V5, "writer").publish_confirmed("a/b", "m", 2, 1);
    let got = reader.receive();
    assert_eq!((got.qos, got.subscription_ids), (2, vec![1, 2]));
    reader.ping();
}

#[test]
fn retained_messages_come_first_and_are_marked() {
    for version in [Version::V311, Version::V5] {
        let mut server = Server::start();
        let mut writer = server.connect(version, "writer");
        writer.retain("a/b", "old");
        writer.retain("a/b", "new");
        writer.retain("a/c", "gone");
        writer.retain("a/c", "");
        writer.retain("$hidden", "x");
        server.restart();
        for filter in ["a/b", "a/+", "#"] {
            let mut reader = server.connect(version, "reader");
            reader.subscribe(filter, 1);
            let got = reader.receive();
            assert_eq!((got.topic.as_str(), got.payload.as_str(), got.retain), ("a/b", "new", true));
            reader.ping();
            server.connect(version, "other").retain("a/b", "new");
            assert!(!reader.receive().retain);
        }
    }
}

/// Each of 65,000 times `#` in one packet had its walk through all that is retained, and all others waited meanwhile.
#[test]
fn a_filter_that_is_repeated_in_one_packet_gets_what_is_retained_once() {
    for version in [Version::V311, Version::V5] {
        let server = Server::start();
        server.connect(version, "writer").retain("t", "kept");
        let mut reader = server.connect(version, "reader");
        let entry = |filter, qos| SubscribeEntry { filter, options: SubscriptionOptions { qos, ..Default::default() } };
        let mut entries = vec![entry("#", Qos::AtLeastOnce); 1_000];
        entries.push(entry("#", Qos::AtMostOnce));
        reader.write(|out| encode::subscribe(out, 5, &entries, None, version));
        reader.take(|packet| assert!(matches!(packet, Packet::Suback { id: 5, codes } if codes.len() == 1_001)));
        let got = reader.receive();
        assert_eq!((got.payload.as_str(), got.qos, got.retain), ("kept", 0, true));
        reader.ping();
    }
}

#[test]
fn retain_handling_and_retain_as_published_do_what_they_say() {
    let server = Server::start();
    let mut writer = server.connect(Version::V5, "writer");
    writer.retain("t", "kept");
    let mut reader = server.connect(Version::V5, "reader");
    let options =
        |retain_handling| SubscriptionOptions { retain_handling, retain_as_published: true, ..Default::default() };
    reader.subscribe_with("t", options(2), None);
    reader.ping();
    reader.subscribe_with("t", options(1), None);
    reader.ping();
    reader.subscribe_with("t", options(0), None);
    assert_eq!(reader.receive().payload, "kept");
    writer.retain("t", "again");
    assert!(reader.receive().retain);
}

#[test]
fn no_local_leaves_out_what_the_client_published_itself() {
    let server = Server::start();
    let mut client = server.connect(Version::V5, "c");
    client.subscribe_with("t", SubscriptionOptions { no_local: true, ..Default::default() }, None);
    client.publish_confirmed("t", "own", 1, 1);
    server.connect(Version::V5, "d").publish_confirmed("t", "other", 1, 1);
    assert_eq!(client.receive().payload, "other");
}

#[test]
fn each_message_of_a_shared_subscription_goes_to_one_of_the_group() {
    for version in [Version::V311, Version::V5] {
        let server = Server::start();
        let mut readers: Vec<Raw> = (0..3).map(|number| server.connect(version, &format!("r{number}"))).collect();
        readers.iter_mut().for_each(|reader| assert_eq!(reader.subscribe("$share/g/t/#", 1), 1));
        let mut writer = server.connect(version, "writer");
        writer.retain("t/0", "not for groups");
        // To those who are there it is a message like any other: one of the group gets it.
        assert_eq!(readers[0].receive().payload, "not for groups");
        for number in 1..=6 {
            writer.publish_confirmed("t/1", &number.to_string(), 1, number);
        }
        let mut all: Vec<String> = Vec::new();
        for reader in &mut readers {
            all.extend([reader.receive().payload, reader.receive().payload]);
            reader.ping();
        }
        all.sort();
        assert_eq!(all, ["1", "2", "3", "4", "5", "6"]);
        // Who left gets none.
        readers.truncate(1);
        while server.gate().counts().connections > 2 {
            std::thread::yield_now();
        }
        writer.publish_confirmed("t/1", "7", 1, 7);
        writer.publish_confirmed("t/1", "8", 1, 8);
        assert_eq!([readers[0].receive().payload, readers[0].receive().payload], ["7", "8"]);
    }
}

#[test]
fn properties_travel_with_the_message_and_aliases_stand_for_topics() {
    let server = Server::start();
    let mut reader = server.connect(Version::V5, "reader");
    reader.subscribe("t", 0);
    let mut old = server.connect(Version::V311, "old");
    old.subscribe("t", 0);
    let mut writer = server.connect(Version::V5, "writer");
    let properties = PublishProperties {
        is_text: Some(true),
        content_type: Some("text/plain"),
        response_topic: Some("r"),
        correlation: Some(b"7"),
        user: vec![("a", "1"), ("a", "2")],
        ..Default::default()
    };
    let mut lasting = Vec::new();
    lasting_properties(&mut lasting, &properties);
    let with_alias = [&lasting[..], &[0x23, 0, 5]].concat();
    writer.publish_with("t", "named", 0, 0, |outgoing| outgoing.lasting = &with_alias);
    writer.publish_with("", "numbered", 0, 0, |outgoing| outgoing.lasting = &with_alias);
    for payload in ["named", "numbered"] {
        reader.take(|packet| match packet {
            gate_mqtt::codec::Packet::Publish(publish) => {
                assert_eq!((publish.topic, publish.payload), ("t", payload.as_bytes()));
                assert_eq!(publish.properties, properties);
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(old.receive().payload, payload);
    }
    writer.publish_with("", "unknown", 0, 0, |outgoing| outgoing.lasting = &[0x23, 0, 6]);
    writer.expect_closed(Reason::PROTOCOL_ERROR);
    for alias in [0, 33] {
        let mut writer = server.connect(Version::V5, "writer");
        let properties = [0x23, 0, alias];
        writer.publish_with("t", "x", 0, 0, |outgoing| outgoing.lasting = &properties);
        writer.expect_closed(Reason::TOPIC_ALIAS);
    }
}

#[test]
fn messages_expire_and_say_how_long_they_live() {
    let server = Server::start();
    let (mut reader, _) = server.connect_kept(Version::V5, "reader");
    reader.subscribe("t", 1);
    drop(reader);
    let mut writer = server.connect(Version::V5, "writer");
    for (id, expiry_s) in [(1, Some(0)), (2, Some(100)), (3, None)] {
        writer.publish_with("t", "m", 1, id, |outgoing| outgoing.expiry_s = expiry_s);
        writer.expect_ack(Ack::Puback, id, Reason::SUCCESS);
    }
    let (mut reader, _) = server.connect_kept(Version::V5, "reader");
    assert!(matches!(reader.receive().expiry_s, Some(98..=100)));
    assert_eq!(reader.receive().expiry_s, None);
    reader.ping();
    assert_eq!(server.gate().counts().expired, 1);
}

#[test]
fn a_client_gets_no_more_at_once_and_nothing_larger_than_it_said() {
    let server = Server::start();
    let connect = Connect { client_id: "reader", receive_maximum: 2, packet_bytes_max: Some(60), ..plain(Version::V5) };
    let (mut reader, _) = server.connect_as(connect);
    reader.subscribe("t", 2);
    let mut writer = server.connect(Version::V5, "writer");
    for id in 1..=4 {
        writer.publish_confirmed("t", &id.to_string(), 1 + (id % 2) as u8, id);
    }
    writer.publish_confirmed("t", &"x".repeat(100), 1, 9);
    let (first, second) = (reader.message(), reader.message());
    reader.ping();
    reader.ack(Ack::Pubrec, first.id);
    reader.expect_ack(Ack::Pubrel, first.id, Reason::SUCCESS);
    reader.ping();
    reader.ack(Ack::Pubcomp, first.id);
    assert_eq!(reader.message().payload, "3");
    reader.ack(Ack::Puback, second.id);
    assert_eq!(reader.message().payload, "4");
    reader.ping();
}

#[test]
fn many_filters_come_in_one_subscribe_and_go_in_one_unsubscribe() {
    for version in [Version::V311, Version::V5] {
        let server = Server::start();
        let mut client = server.connect(version, "c");
        let entry = |filter| SubscribeEntry {
            filter,
            options: SubscriptionOptions { qos: Qos::AtLeastOnce, ..Default::default() },
        };
        client.write(|out| encode::subscribe(out, 5, &[entry("a"), entry("b/#/c"), entry("d")], None, version));
        let bad = if version == Version::V5 { 0x8f } else { 0x80 };
        assert_eq!(client.next(), format!("Suback {{ id: 5, codes: [1, {bad}, 1] }}"));
        client.write(|out| encode::unsubscribe(out, 6, &["a", "d"], version));
        assert!(client.next().starts_with("Unsuback { id: 6"));
        let mut writer = server.connect(version, "writer");
        for topic in ["a", "d"] {
            writer.publish_confirmed(topic, "m", 1, 1);
        }
        client.ping();
        assert_eq!(server.gate().counts().subscriptions, 0);
    }
}
