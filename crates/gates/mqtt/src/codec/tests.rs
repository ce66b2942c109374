//! The codec against packets written by hand, and against itself.

use super::*;
use encode::{Ack, Outgoing};

fn read(bytes: &[u8], version: Version) -> Result<Packet<'_>, Fault> {
    let frame = split(bytes, Some(version), 1 << 20)?.expect("a whole packet");
    assert_eq!(frame.bytes, bytes.len());
    decode(frame, version)
}

fn refused(bytes: &[u8], version: Version) -> Reason {
    match split(bytes, Some(version), 1 << 20).map(|frame| frame.expect("a whole packet")) {
        Ok(frame) => decode(frame, version).expect_err("malformed").reason,
        Err(fault) => fault.reason,
    }
}

/// A packet of `first` and `body`.
fn raw(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    encode::variable(&mut bytes, body.len());
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn packets_are_split_at_any_byte() {
    let mut bytes = Vec::new();
    encode::pingreq(&mut bytes);
    let two = bytes.len();
    bytes.extend(raw(0x30, &[[0, 1, b'a'].as_slice(), &[7; 300]].concat()));
    assert_eq!(split(&bytes, None, 1_000).unwrap().unwrap().bytes, two);
    for end in two..bytes.len() {
        assert_eq!(split(&bytes[two..end], None, 1_000).unwrap(), None, "{end}");
    }
    assert_eq!(split(&bytes[two..], None, 1_000).unwrap().unwrap().bytes, bytes.len() - two);
    assert_eq!(split(&bytes[two..two + 3], None, 300).unwrap_err().reason, Reason::PACKET_TOO_LARGE);
    assert_eq!(split(&[0x30, 0x80, 0x80, 0x80, 0x80], None, 300).unwrap_err().reason, Reason::MALFORMED);
    assert!(split(&[0xc0, 0x80, 0x00], Some(Version::V311), 300).is_ok());
    assert!(split(&[0xc0, 0x80, 0x00], Some(Version::V5), 300).is_err());
}

#[test]
fn what_is_written_is_read_back() {
    let properties = PublishProperties {
        is_text: Some(true),
        expiry_s: Some(60),
        content_type: Some("text/plain"),
        response_topic: Some("r"),
        correlation: Some(b"\x00\x01"),
        user: vec![("a", "1"), ("a", "2")],
        subscription_ids: vec![1, 200_000],
        topic_alias: None,
    };
    let will = Will {
        topic: "w",
        payload: b"gone",
        qos: Qos::ExactlyOnce,
        retain: true,
        delay_s: 3,
        properties: PublishProperties { subscription_ids: vec![], ..properties.clone() },
    };
    let mut lasting = Vec::new();
    encode::lasting_properties(&mut lasting, &properties);
    for version in [Version::V311, Version::V5] {
        let is_5 = version == Version::V5;
        let plain =
            |properties: PublishProperties<'static>| if is_5 { properties } else { PublishProperties::default() };
        let sent = Connect {
            version,
            clean_start: false,
            keep_alive_s: 9,
            client_id: "c",
            will: Some(Will {
                properties: plain(will.properties.clone()),
                delay_s: if is_5 { 3 } else { 0 },
                ..will.clone()
            }),
            user: Some("u"),
            password: Some(b"p"),
            session_expiry_s: u32::MAX,
            receive_maximum: if is_5 { 5 } else { u16::MAX },
            packet_bytes_max: is_5.then_some(500),
            topic_alias_maximum: if is_5 { 3 } else { 0 },
            wants_problems: !is_5,
            auth_method: None,
        };
        let mut bytes = Vec::new();
        encode::connect(&mut bytes, &sent);
        assert_eq!(read(&bytes, version).unwrap(), Packet::Connect(Box::new(sent)));

        for qos in [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce] {
            let dup = qos.is_confirmed();
            let outgoing = Outgoing {
                version,
                qos,
                retain: true,
                dup,
                id: 77,
                topic: "a/b",
                payload: b"data",
                lasting: &lasting,
                expiry_s: Some(60),
                subscription_ids: &[1, 200_000],
            };
            let mut bytes = Vec::new();
            outgoing.write(&mut bytes);
            assert_eq!(bytes.len(), outgoing.bytes());
            let id = if dup { 77 } else { 0 };
            let properties = plain(properties.clone());
            let expected = Publish { dup, qos, retain: true, topic: "a/b", id, properties, payload: b"data" };
            assert_eq!(read(&bytes, version).unwrap(), Packet::Publish(expected));
        }

        let connack = Connack { session_present: true, code: 0, ..Connack::default() };
        let full = Connack {
            session_expiry_s: Some(1),
            receive_maximum: Some(2),
            maximum_qos: Some(1),
            retain_available: Some(false),
            packet_bytes_max: Some(3),
            assigned_client_id: Some("id".into()),
            topic_alias_maximum: Some(4),
            reason_text: Some("why".into()),
            keep_alive_s: Some(5),
            ..connack.clone()
        };
        let connack = if is_5 { full } else { connack };
        let mut bytes = Vec::new();
        encode::connack(&mut bytes, &connack, version);
        assert_eq!(read(&bytes, version).unwrap(), Packet::Connack(Box::new(connack)));

        let reason = if is_5 { Reason::QUOTA_EXCEEDED } else { Reason::SUCCESS };
        for kind in [Ack::Puback, Ack::Pubrec, Ack::Pubrel, Ack::Pubcomp] {
            let mut bytes = Vec::new();
            encode::ack(&mut bytes, kind, 5, reason, version);
            let expected = match kind {
                Ack::Puback => Packet::Puback { id: 5, reason },
                Ack::Pubrec => Packet::Pubrec { id: 5, reason },
                Ack::Pubrel => Packet::Pubrel { id: 5, reason },
                Ack::Pubcomp => Packet::Pubcomp { id: 5, reason },
            };
            assert_eq!(read(&bytes, version).unwrap(), expected);
        }

        let options = SubscriptionOptions {
            qos: Qos::AtLeastOnce,
            no_local: is_5,
            retain_as_published: is_5,
            retain_handling: u8::from(is_5),
        };
        let entries = [SubscribeEntry { filter: "a/+", options }, SubscribeEntry { filter: "#", options }];
        let subscription_id = is_5.then_some(9);
        let mut bytes = Vec::new();
        encode::subscribe(&mut bytes, 3, &entries, subscription_id, version);
        assert_eq!(
            read(&bytes, version).unwrap(),
            Packet::Subscribe(Subscribe { id: 3, subscription_id, entries: entries.to_vec() })
        );
        let mut bytes = Vec::new();
        encode::suback(&mut bytes, 3, &[0, 0x80], version);
        assert_eq!(read(&bytes, version).unwrap(), Packet::Suback { id: 3, codes: &[0, 0x80] });
        let mut bytes = Vec::new();
        encode::unsubscribe(&mut bytes, 4, &["a", "b"], version);
        assert_eq!(read(&bytes, version).unwrap(), Packet::Unsubscribe(Unsubscribe { id: 4, filters: vec!["a", "b"] }));
        let mut bytes = Vec::new();
        encode::unsuback(&mut bytes, 4, &[0x11], version);
        assert_eq!(read(&bytes, version).unwrap(), Packet::Unsuback { id: 4, codes: if is_5 { &[0x11] } else { &[] } });
        let mut bytes = Vec::new();
        encode::disconnect(&mut bytes, Reason::TAKEN_OVER, version);
        let reason = if is_5 { Reason::TAKEN_OVER } else { Reason::SUCCESS };
        assert_eq!(read(&bytes, version).unwrap(), Packet::Disconnect { reason, session_expiry_s: None });
    }
}

#[test]
fn malformed_packets_are_refused_with_the_reason_the_standard_names() {
    use Version::{V5, V311};
    let malformed: [(&str, u8, &[u8], Version); 24] = [
        ("reserved kind", 0x00, &[], V5),
        ("AUTH in 3.1.1", 0xf0, &[], V311),
        ("flags of PINGREQ", 0xc1, &[], V311),
        ("flags of SUBSCRIBE", 0x80, &[0, 1, 0, 1, b'a', 0], V311),
        ("PINGREQ with a body", 0xc0, &[0], V5),
        ("QoS 3", 0x36, &[0, 1, b'a', 0, 1], V311),
        ("DUP with QoS 0", 0x38, &[0, 1, b'a'], V311),
        ("topic cut off", 0x30, &[0, 9, b'a'], V311),
        ("topic with U+0000", 0x30, &[0, 2, b'a', 0], V311),
        ("topic that is not UTF-8", 0x30, &[0, 2, 0xff, 0xfe], V311),
        ("topic with a surrogate", 0x30, &[0, 3, 0xed, 0xa0, 0x80], V311),
        ("PUBACK cut off", 0x40, &[0], V311),
        ("PUBACK too long in 3.1.1", 0x40, &[0, 1, 0], V311),
        ("reserved CONNECT flag", 0x10, b"\0\x04MQTT\x04\x03\0\0\0\0", V311),
        ("will flags without a will", 0x10, b"\0\x04MQTT\x04\x20\0\0\0\0", V311),
        ("will of QoS 3", 0x10, b"\0\x04MQTT\x04\x1c\0\0\0\0\0\x01w\0\0", V311),
        ("password without user", 0x10, b"\0\x04MQTT\x04\x42\0\0\0\0\0\x01p", V311),
        ("bytes after CONNECT", 0x10, b"\0\x04MQTT\x04\x02\0\0\0\0x", V311),
        ("options of a subscription", 0x82, &[0, 1, 0, 1, b'a', 4], V311),
        ("reserved bits of a subscription", 0x82, &[0, 1, 0, 0, 1, b'a', 0x40], V5),
        ("retain handling 3", 0x82, &[0, 1, 0, 0, 1, b'a', 0x30], V5),
        ("unknown property", 0x30, &[0, 1, b'a', 2, 0x7f, 0], V5),
        ("property of another packet", 0x30, &[0, 1, b'a', 5, 17, 0, 0, 0, 1], V5),
        ("properties longer than the packet", 0x30, &[0, 1, b'a', 9, 1], V5),
    ];
    for (what, first, body, version) in malformed {
        assert_eq!(refused(&raw(first, body), version), Reason::MALFORMED, "{what}");
    }
    let protocol: [(&str, u8, &[u8], Version); 12] = [
        ("identifier 0", 0x32, &[0, 1, b'a', 0, 0], V311),
        ("SUBSCRIBE without filters", 0x82, &[0, 1], V311),
        ("UNSUBSCRIBE without filters", 0xa2, &[0, 1, 0], V5),
        ("SUBSCRIBE with identifier 0", 0x82, &[0, 0, 0, 1, b'a', 0], V311),
        ("property twice", 0x30, &[0, 1, b'a', 4, 1, 0, 1, 0], V5),
        ("flag of 2", 0x30, &[0, 1, b'a', 2, 1, 2], V5),
        ("receive maximum 0", 0x10, b"\0\x04MQTT\x05\x02\0\0\x03\x21\0\0\0\0", V5),
        ("packet size 0", 0x10, b"\0\x04MQTT\x05\x02\0\0\x05\x27\0\0\0\0\0\0", V5),
        ("authentication data alone", 0x10, b"\0\x04MQTT\x05\x02\0\0\x03\x16\0\0\0\0", V5),
        ("subscription identifier 0", 0x82, &[0, 1, 2, 11, 0, 0, 1, b'a', 0], V5),
        ("shared and no local", 0x82, b"\0\x01\0\0\x0a$share/g/a\x04", V5),
        ("two subscription identifiers", 0x82, &[0, 1, 4, 11, 1, 11, 2, 0, 1, b'a', 0], V5),
    ];
    for (what, first, body, version) in protocol {
        assert_eq!(refused(&raw(first, body), version), Reason::PROTOCOL_ERROR, "{what}");
    }
    for topic in ["", "a/+", "#"] {
        let mut body = vec![0, topic.len() as u8];
        body.extend_from_slice(topic.as_bytes());
        assert_eq!(refused(&raw(0x30, &body), V311), Reason::TOPIC_INVALID, "{topic}");
    }
    for connect in [&b"\0\x06MQIsdp\x04\x02\0\0\0\0"[..], b"\0\x04MQTT\x06\x02\0\0\0\0", b"\0\x04HTTP\x04\x02\0\0\0\0"]
    {
        assert_eq!(refused(&raw(0x10, connect), V311), Reason::VERSION);
    }
    let many: Vec<u8> = [38, 0, 0, 0, 0].repeat(65);
    let mut body = vec![0, 1, b'a'];
    encode::variable(&mut body, many.len());
    body.extend(many);
    assert_eq!(refused(&raw(0x30, &body), V5), Reason::QUOTA_EXCEEDED);
}
