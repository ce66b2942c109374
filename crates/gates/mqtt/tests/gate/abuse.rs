//! Clients that send what they must not: each ends its own connection, and nobody else's.

use crate::support::*;
use gate_mqtt::codec::encode::{self, Ack};
use gate_mqtt::codec::{Connect, Reason, Version};
use std::io::{Read, Write};

/// A packet of `first` and `body`.
fn raw(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    encode::variable(&mut bytes, body.len());
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn malformed_packets_end_the_connection_they_came_by() {
    let server = Server::start();
    let mut witness = server.connect(Version::V5, "witness");
    witness.subscribe("t", 1);
    let bodies: [(u8, &[u8], Reason); 16] = [
        (0x00, &[], Reason::MALFORMED),
        (0x36, &[0, 1, b't', 0, 1], Reason::MALFORMED),
        (0x32, &[0, 1, b't', 0, 0], Reason::PROTOCOL_ERROR),
        (0x30, &[0, 5, b't'], Reason::MALFORMED),
        (0x30, &[0, 1, 0xff, 0], Reason::MALFORMED),
        (0x30, &[0, 1, b'#', 0], Reason::TOPIC_INVALID),
        (0x30, &[0, 1, b't', 2, 11, 1], Reason::PROTOCOL_ERROR),
        (0x30, &[0, 1, b't', 2, 1, 1, 0xff], Reason::FORMAT_INVALID),
        (0x40, &[0], Reason::MALFORMED),
        (0x60, &[0, 1], Reason::MALFORMED),
        (0x80, &[0, 1, 0, 0, 1, b'a', 0], Reason::MALFORMED),
        (0x82, &[0, 1, 0], Reason::PROTOCOL_ERROR),
        (0xa2, &[0, 1, 0], Reason::PROTOCOL_ERROR),
        (0xc0, &[0], Reason::MALFORMED),
        (0x20, &[0, 0, 0], Reason::PROTOCOL_ERROR),
        (0xf0, &[], Reason::PROTOCOL_ERROR),
    ];
    for (first, body, reason) in bodies {
        // In 3.1.1 there are no properties: these bodies are payloads.
        let is_sound_in_311 = first == 0x30 && matches!(body, [0, 1, b't', 2, ..]);
        for version in [Version::V5, Version::V311].into_iter().take(if is_sound_in_311 { 1 } else { 2 }) {
            let mut client = server.connect(version, "bad");
            // What came before counts.
            client.publish("t", "before", 0, 0);
            client.socket.write_all(&raw(first, body)).unwrap();
            assert_eq!(witness.receive().payload, "before", "{first:x} {body:?}");
            if version == Version::V5 {
                client.expect_closed(reason);
            }
        }
    }
    let mut client = server.connect(Version::V5, "bad");
    client.write(|out| encode::connect(out, &Connect { client_id: "bad", ..plain(Version::V5) }));
    client.expect_closed(Reason::PROTOCOL_ERROR);
    let mut client = server.connect(Version::V5, "bad");
    client.socket.write_all(&[0x30, 0xff, 0xff, 0xff, 0xff, 1]).unwrap();
    client.expect_closed(Reason::MALFORMED);
    witness.ping();
}

#[test]
fn what_is_no_connect_is_closed_without_a_word() {
    let server = Server::start();
    for bytes in
        [&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], &[0xc0, 0], &[0x10, 0xff, 0xff, 0xff, 0xff], &[0x16, 3, 1, 2, 0]]
    {
        let mut client = server.raw(Version::V311);
        client.socket.write_all(bytes).unwrap();
        assert_eq!(client.next(), "closed", "{bytes:?}");
    }
    for (level, code) in [(3, 1), (6, 0x84), (9, 0x84)] {
        let mut client = server.raw(if level > 4 { Version::V5 } else { Version::V311 });
        client.socket.write_all(&raw(0x10, &[0, 4, b'M', b'Q', b'T', b'T', level, 2, 0, 0, 0, 0])).unwrap();
        let said = client.next();
        assert!(said.contains(&format!("code: {code},")), "{level}: {said}");
    }
    let mut client = server.raw(Version::V5);
    client.socket.write_all(&raw(0x10, &[0, 4, b'M', b'Q', b'T', b'T', 5, 3, 0, 0, 0, 0, 0])).unwrap();
    assert!(client.next().contains("code: 129,"));
}

#[test]
fn acknowledgements_of_the_wrong_kind_end_the_connection() {
    for (qos, kind) in [(1, Ack::Pubrec), (2, Ack::Puback), (2, Ack::Pubcomp)] {
        let server = Server::start();
        let mut reader = server.connect(Version::V5, "reader");
        reader.subscribe("t", 2);
        server.connect(Version::V5, "writer").publish_confirmed("t", "m", qos, 1);
        let got = reader.message();
        reader.ack(kind, got.id);
        reader.expect_closed(Reason::PROTOCOL_ERROR);
    }
}

#[test]
fn a_flood_of_connections_packets_and_names_leaves_the_gate_working() {
    let server = Server::start();
    let mut witness = server.connect(Version::V5, "witness");
    witness.subscribe("witness", 1);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let server = &server;
            scope.spawn(move || {
                let mut state = thread;
                let mut random = move || {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) as u8
                };
                for round in 0..100 {
                    // All the same name, so that they throw each other out; all subscribed to everything.
                    let version = if round % 2 == 0 { Version::V5 } else { Version::V311 };
                    let mut client = server.raw(version);
                    client.write(|out| encode::connect(out, &Connect { client_id: "same", ..plain(version) }));
                    let junk: Vec<u8> = (0..200).map(|_| random()).collect();
                    let _ = client.socket.write_all(&[0x82, 8, 0, 1, 0, 3, b'#', b'/', b'#', 0]);
                    let _ = client
                        .socket
                        .write_all(&[0x82, 6, 0, 1, 0, 1, b'#', 1][..if version == Version::V5 { 2 } else { 8 }]);
                    let _ = client.socket.write_all(&junk);
                }
            });
        }
    });
    server.connect(Version::V311, "writer").publish_confirmed("witness", "m", 2, 1);
    assert_eq!(witness.receive().payload, "m");
}

#[test]
fn a_version_that_is_not_spoken_is_refused_in_words_its_sender_knows() {
    let server = Server::start();
    // The highest bit is how bridges of mosquitto show themselves.
    for (name, level, id, answer) in [
        ("MQTT", 6, "a", &[0x20, 3, 0, 0x84, 0][..]),
        ("MQTT", 3, "a", &[0x20, 2, 0, 1]),
        ("MQTT", 0x84, "a", &[0x20, 2, 0, 1]),
        ("MQIsdp", 0, "a", &[0x20, 2, 0, 1]),
        ("MQIsdp", 3, "", &[0x20, 2, 0, 2]),
        ("MQIsdp", 3, "a", &[0x20, 2, 0, 0]),
    ] {
        let mut body = vec![0, name.len() as u8];
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(&[level, 2, 0, 60, 0, id.len() as u8]);
        body.extend_from_slice(id.as_bytes());
        let mut client = server.raw(Version::V311);
        client.socket.write_all(&raw(0x10, &body)).unwrap();
        let mut said = vec![0; answer.len()];
        client.socket.read_exact(&mut said).unwrap();
        assert_eq!(said, answer, "{name} {level:x} {id}");
    }
}

#[test]
fn a_client_that_takes_no_packet_as_large_as_the_answer_gets_none() {
    let server = Server::start();
    let mut client = server.raw(Version::V5);
    client.write(|out| encode::connect(out, &Connect { packet_bytes_max: Some(4), ..plain(Version::V5) }));
    assert_eq!(client.next(), "closed");
}

#[test]
fn a_released_message_cannot_be_confirmed_as_one_of_qos_1() {
    let server = Server::start();
    let mut writer = server.connect(Version::V5, "writer");
    let mut reader = server.connect(Version::V5, "reader");
    reader.subscribe("t", 2);
    writer.publish_confirmed("t", "x", 2, 1);
    let id = reader.message().id;
    reader.ack(Ack::Pubrec, id);
    reader.expect_ack(Ack::Pubrel, id, Reason::SUCCESS);
    reader.ack(Ack::Puback, id);
    reader.expect_closed(Reason::PROTOCOL_ERROR);
}
