//! Clients that send what they must not: each ends its own connection, and nobody else's.

use super::support::*;
use budget::{Budget, Purpose};
use gate_mqtt::codec::encode::{self, Ack};
use gate_mqtt::codec::{Connect, Reason, Version};
use gate_mqtt::{Gate, Limits, Listener, Users};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

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

/// 3,000 connections that were closed at once kept a neighbour waiting for 42 ms: all of them had their turns before
/// it, and closing one takes long.
#[test]
fn a_crowd_that_comes_and_goes_leaves_others_their_turns() {
    const CROWD: u32 = 200;
    // One thread, so that a turn is a turn.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), None).unwrap();
        let address = listener.address();
        let budget = Budget::new(1 << 30);
        let gate = Gate::start(vec![listener], Limits::default(), Users::open(), Memory::new(), &budget).unwrap();
        let crowd: Vec<_> = (0..CROWD).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        let (since, mut open, mut most) = (Instant::now(), 0, 0);
        while open < CROWD && since.elapsed() < Duration::from_secs(20) {
            tokio::task::yield_now().await;
            most = most.max(gate.connections() - open);
            open = gate.connections();
        }
        assert!(open == CROWD && most <= 16, "{open} came, up to {most} at once");
        drop(crowd);
        most = 0;
        while open > 0 && since.elapsed() < Duration::from_secs(20) {
            tokio::task::yield_now().await;
            most = most.max(open - gate.connections());
            open = gate.connections();
        }
        assert!(open == 0 && most <= 8, "{open} are left, up to {most} went at once");
    });
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

/// Waits until what the broker holds of the budget is as it should be.
#[track_caller]
fn holds(server: &Server, fits: impl Fn(u64) -> bool) {
    let since = Instant::now();
    while !fits(server.budget.used_bytes(Purpose::Mqtt)) {
        let used = server.budget.used_bytes(Purpose::Mqtt);
        assert!(since.elapsed() < Duration::from_secs(20), "{used} bytes are held");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What waited for clients that do not read was counted nowhere: half a megabyte for each connection.
#[test]
fn what_waits_for_clients_that_do_not_read_is_of_the_nodes_budget() {
    let server = Server::start();
    let mut deaf: Vec<Raw> = (0..8).map(|number| server.connect(Version::V5, &format!("deaf {number}"))).collect();
    deaf.iter_mut().for_each(|client| assert_eq!(client.subscribe("t", 0), 0));
    let mut reads = server.connect(Version::V5, "reads");
    reads.subscribe("t", 0);
    let mut writer = server.connect(Version::V5, "writer");
    let payload = "x".repeat(200_000);
    // What the system's own buffers take comes first.
    for _ in 0..80 {
        writer.publish("t", &payload, 0, 0);
        assert_eq!(reads.message().payload.len(), payload.len());
    }
    holds(&server, |bytes| bytes >= 8 * 300_000);
    let all = server.budget.part_bytes(Purpose::Mqtt);
    let held = server.budget.take(Purpose::Mqtt, all - server.budget.used_bytes(Purpose::Mqtt)).unwrap();
    let dropped = server.gate().counts().dropped;
    writer.publish_confirmed("t", &"y".repeat(250_000), 0, 0);
    writer.publish_confirmed("t", "small", 0, 0);
    assert!(server.gate().counts().dropped > dropped);
    drop((held, deaf));
    holds(&server, |bytes| bytes < 1 << 20);
    // Who reads has what fitted, and what comes from now on.
    writer.publish("t", "last", 0, 0);
    while reads.message().payload != "last" {}
}

/// Up to 65,535 identifiers a session, which nothing counted: 5,000 sessions could hold a gigabyte of them.
#[test]
fn identifiers_of_qos_2_are_counted_until_they_are_released() {
    const IDS: u16 = 20_000;
    let server = Server::start();
    let (mut client, _) = server.connect_kept(Version::V311, "keeps");
    let before = server.budget.used_bytes(Purpose::Mqtt);
    let publish = |client: &mut Raw| {
        for id in 1..=IDS {
            client.publish("t", "", 2, id);
            client.expect_ack(Ack::Pubrec, id, Reason::SUCCESS);
        }
    };
    publish(&mut client);
    let grown = server.budget.used_bytes(Purpose::Mqtt).saturating_sub(before);
    assert!(grown >= u64::from(IDS) * 4, "{grown}");
    for id in 1..=IDS {
        client.ack(Ack::Pubrel, id);
        client.expect_ack(Ack::Pubcomp, id, Reason::SUCCESS);
    }
    publish(&mut client);
    drop(client);

    let small = Server::with(Limits { session_bytes_max: 20_000, ..Limits::default() });
    let mut client = small.connect(Version::V311, "greedy");
    let mut kept = 0;
    while kept < IDS {
        client.publish("t", "", 2, kept + 1);
        if client.try_take(|_| ()).is_none() {
            break;
        }
        kept += 1;
    }
    assert!((1_000..3_000).contains(&kept), "{kept} were kept of what there was room for");
    small.connect(Version::V311, "another").ping();
}
