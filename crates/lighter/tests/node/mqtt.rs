//! The MQTT gate of the real node: messages become events, events become messages, and `kill -9` loses and doubles
//! nothing.

use crate::support::Node;
use gate_mqtt::codec::encode::{self, Ack, Outgoing};
use gate_mqtt::codec::{Connect, Packet, Qos, Reason, SubscribeEntry, SubscriptionOptions, Version, decode, split};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const BROKER: &[&str] = &["--mqtt", "127.0.0.1:0"];

struct Client {
    socket: TcpStream,
    bytes: Vec<u8>,
}

impl Client {
    /// With a session that outlives the connection.
    fn connect(node: &Node, name: &str) -> Self {
        let mut client = Self::hello(node, name, None);
        client.take(|packet| assert!(matches!(packet, Packet::Connack(connack) if connack.code == 0)));
        client
    }

    fn hello(node: &Node, name: &str, password: Option<&str>) -> Self {
        Self::hello_as(node, name, password.map(|password| ("meter", password)))
    }

    fn hello_as(node: &Node, name: &str, login: Option<(&str, &str)>) -> Self {
        let socket = TcpStream::connect(&node.mqtt).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut client = Self { socket, bytes: Vec::new() };
        let connect = Connect {
            version: Version::V5,
            clean_start: false,
            keep_alive_s: 60,
            client_id: name,
            will: None,
            user: login.map(|(user, _)| user),
            password: login.map(|(_, password)| password.as_bytes()),
            session_expiry_s: 1_000,
            receive_maximum: 100,
            packet_bytes_max: None,
            topic_alias_maximum: 0,
            wants_problems: true,
            auth_method: None,
        };
        client.send(|out| encode::connect(out, &connect));
        client
    }

    fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        encode(&mut out);
        self.socket.write_all(&out).unwrap();
    }

    fn take<T>(&mut self, take: impl FnOnce(Packet<'_>) -> T) -> T {
        loop {
            if let Some(frame) = split(&self.bytes, None, 1 << 20).unwrap() {
                let bytes = frame.bytes;
                let taken = take(decode(frame, Version::V5).unwrap());
                self.bytes.drain(..bytes);
                return taken;
            }
            let mut chunk = [0; 4_096];
            let read = self.socket.read(&mut chunk).unwrap();
            assert!(read > 0, "the node closed the connection");
            self.bytes.extend_from_slice(&chunk[..read]);
        }
    }

    fn publish(&mut self, topic: &str, payload: &str, qos: Qos, id: u16, dup: bool) {
        let (version, payload, lasting, subscription_ids) = (Version::V5, payload.as_bytes(), &[][..], &[][..]);
        let outgoing = Outgoing {
            version,
            qos,
            retain: false,
            dup,
            id,
            topic,
            payload,
            lasting,
            expiry_s: None,
            subscription_ids,
        };
        self.send(|out| {
            outgoing.write(out);
        });
    }

    fn ack(&mut self, kind: Ack, id: u16) {
        self.send(|out| encode::ack(out, kind, id, Reason::SUCCESS, Version::V5));
    }

    #[track_caller]
    fn expect(&mut self, expected: &Packet<'_>) {
        self.take(|packet| assert_eq!(packet, *expected));
    }

    fn subscribe(&mut self, filter: &str) {
        let options = SubscriptionOptions { qos: Qos::ExactlyOnce, ..SubscriptionOptions::default() };
        self.send(|out| encode::subscribe(out, 9, &[SubscribeEntry { filter, options }], None, Version::V5));
        self.expect(&Packet::Suback { id: 9, codes: &[2] });
    }
}

fn counter(node: &Node, more: Value) {
    let mut counter = json!({ "grants": { "stores": ["counters"] }, "mqtt": ["count/+", "count/one"] });
    for (key, value) in more.as_object().unwrap() {
        counter[key] = value.clone();
    }
    node.deploy_one("counter", "counter", counter);
}

/// What the function has counted under the key, this look among it.
fn count(node: &Node, key: &str) -> u64 {
    node.drained("counter");
    node.call("counter", key).text().trim().parse().unwrap()
}

#[test]
fn messages_of_every_qos_become_events_of_the_functions_whose_triggers_match() {
    let node = Node::start_with(BROKER);
    counter(&node, json!({}));
    let mut client = Client::connect(&node, "meter");
    client.publish("count/one", "k", Qos::AtMostOnce, 0, false);
    client.publish("count/one", "k", Qos::AtLeastOnce, 1, false);
    client.expect(&Packet::Puback { id: 1, reason: Reason::SUCCESS });
    client.publish("count/two", "k", Qos::ExactlyOnce, 2, false);
    client.expect(&Packet::Pubrec { id: 2, reason: Reason::SUCCESS });
    client.ack(Ack::Pubrel, 2);
    client.expect(&Packet::Pubcomp { id: 2, reason: Reason::SUCCESS });
    client.publish("other", "k", Qos::AtLeastOnce, 3, false);
    client.expect(&Packet::Puback { id: 3, reason: Reason::NO_SUBSCRIBERS });
    // Two triggers of one function that both match make one event.
    assert_eq!(count(&node, "k"), 4);
    let metrics = node.api("GET", "/metrics", &[]).text();
    assert!(metrics.contains("lighter_mqtt_connections 1"), "{metrics}");
}

#[test]
fn a_trigger_holds_from_the_moment_its_deployment_is_done() {
    let node = Node::start_with(BROKER);
    let mut client = Client::connect(&node, "meter");
    for id in 1..=20 {
        counter(&node, json!({ "mqtt": format!("at/{id}") }));
        client.publish(&format!("at/{id}"), "k", Qos::AtLeastOnce, id, false);
        client.expect(&Packet::Puback { id, reason: Reason::SUCCESS });
        client.publish(&format!("at/{}", id - 1), "k", Qos::AtLeastOnce, id, false);
        client.expect(&Packet::Puback { id, reason: Reason::NO_SUBSCRIBERS });
    }
    assert_eq!(count(&node, "k"), 21);
}

#[test]
fn what_was_confirmed_is_handled_once_though_the_node_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let node = Node::start_in(&data, BROKER);
    counter(&node, json!({}));
    let mut reader = Client::connect(&node, "reader");
    reader.subscribe("count/#");
    let mut client = Client::connect(&node, "meter");
    client.publish("count/one", "k", Qos::ExactlyOnce, 7, false);
    client.expect(&Packet::Pubrec { id: 7, reason: Reason::SUCCESS });
    client.publish("count/one", "k", Qos::AtLeastOnce, 8, false);
    client.expect(&Packet::Puback { id: 8, reason: Reason::SUCCESS });
    node.kill();

    let node = Node::start_in(&data, BROKER);
    let mut client = Client::connect(&node, "meter");
    // Not having heard of its release, the client sends the message again.
    client.publish("count/one", "k", Qos::ExactlyOnce, 7, true);
    client.expect(&Packet::Pubrec { id: 7, reason: Reason::SUCCESS });
    client.ack(Ack::Pubrel, 7);
    client.expect(&Packet::Pubcomp { id: 7, reason: Reason::SUCCESS });
    assert_eq!(count(&node, "k"), 3);
    let mut reader = Client::connect(&node, "reader");
    for qos in [Qos::ExactlyOnce, Qos::AtLeastOnce] {
        reader.take(|packet| assert!(matches!(packet, Packet::Publish(publish) if publish.qos == qos)));
    }
}

#[test]
fn a_full_queue_refuses_the_message() {
    let node = Node::start_with(BROKER);
    let image = node.upload("counter");
    let last = node.deploy_manifest(json!({
        "function": { "counter": {
            "image": image, "grants": { "stores": ["counters"] }, "queue": "small", "mqtt": "count/+", "units": { "maximum": 0 },
        } },
        "queue": { "small": { "events_max": 2 } },
    }));
    assert_eq!(last["step"], "done", "{last}");
    let mut client = Client::connect(&node, "meter");
    for (id, reason) in [(1, Reason::SUCCESS), (2, Reason::SUCCESS), (3, Reason::QUOTA_EXCEEDED)] {
        client.publish("count/one", "k", Qos::AtLeastOnce, id, false);
        client.expect(&Packet::Puback { id, reason });
    }
}

#[test]
fn a_sink_publishes_the_events_of_its_queue() {
    let node = Node::start_with(BROKER);
    let sink = json!({ "queue": "out", "mqtt": { "topic": "home/{subject}/set", "qos": 2, "retain": true } });
    let last = node.deploy_manifest(json!({ "sink": { "lamp": sink } }));
    assert_eq!(last["step"], "done", "{last}");
    let mut client = Client::connect(&node, "lamp");
    client.subscribe("home/#");
    assert_eq!(node.push("out", "id=e1&subject=lamp", "on").status, 201);
    client.take(|packet| {
        let Packet::Publish(publish) = packet else { panic!("{packet:?}") };
        assert_eq!((publish.topic, publish.payload), ("home/lamp/set", &b"on"[..]));
        assert!(publish.properties.user.contains(&("id", "e1")));
    });
    node.drained("out");
}

#[test]
fn a_sink_by_mqtt_needs_a_node_with_the_gate() {
    let node = Node::start();
    let last = node.deploy_manifest(json!({ "sink": { "lamp": { "queue": "out", "mqtt": { "topic": "t" } } } }));
    assert!(last.to_string().contains("--mqtt"), "{last}");
}

/// What the command makes of a password.
fn hash(password: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lighter"))
        .arg("mqtt-password")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(command.stdin.take().unwrap(), "{password}").unwrap();
    let output = command.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A node with a broker, and more of `[mqtt]`.
fn with_config(more: &str) -> Node {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("node.toml");
    std::fs::write(&config, format!("[mqtt]\nlisten = \"127.0.0.1:0\"\n{more}")).unwrap();
    Node::start_with(&["--config", config.to_str().unwrap()])
}

/// Once a burst of 700 wrong passwords and a connect timeout left hundreds of hashes of 19 MiB behind, and the node
/// hashed on for minutes.
#[test]
fn a_burst_of_wrong_passwords_leaves_the_node_small_and_the_right_one_quick() {
    let user = format!("[mqtt.users.meter]\npassword = {:?}\npublish = [\"#\"]\n", hash("right"));
    let node = with_config(&format!("limits.connect_seconds = 1\n{user}"));
    let before = node.rss_bytes();
    let mut burst: Vec<_> =
        (0..700).map(|number| Client::hello(&node, &number.to_string(), Some(&number.to_string()))).collect();
    let (mut most, until) = (0, Instant::now() + Duration::from_secs(4));
    while Instant::now() < until {
        most = most.max(node.rss_bytes());
        std::thread::sleep(Duration::from_millis(20));
    }
    let grown = most.saturating_sub(before) >> 20;
    assert!(grown <= 64, "the node grew by {grown} MiB");
    for client in &mut burst {
        client.take(|packet| {
            assert!(matches!(packet, Packet::Connack(connack) if [0x86, 0x88].contains(&connack.code)));
        });
    }
    let mut waits: Vec<Duration> = (0..100)
        .map(|number| {
            let _wrong = Client::hello(&node, "wrong", Some(&format!("again {number}")));
            let began = Instant::now();
            let mut client = Client::hello(&node, "right", Some("right"));
            client.take(|packet| assert!(matches!(packet, Packet::Connack(connack) if connack.code == 0)));
            began.elapsed()
        })
        .collect();
    waits.sort();
    assert!(waits[98] <= Duration::from_secs(2), "{waits:?}");
}

/// Failed logins of MQTT stood nowhere: who tried passwords for a week was not seen.
#[test]
fn failed_logins_are_in_the_audit_once_for_each_user_and_address() {
    let user = format!("[mqtt.users.meter]\npassword = {:?}\npublish = [\"#\"]\n", hash("right"));
    let node = with_config(&user);
    let mut tried: Vec<_> =
        (0..50).map(|number| Client::hello(&node, &format!("a {number}"), Some(&format!("wrong {number}")))).collect();
    tried.extend((0..7).map(|number| Client::hello_as(&node, &number.to_string(), Some(("invented\u{7}", "x")))));
    let mut answers = [0, 0];
    for client in &mut tried {
        client.take(|packet| match packet {
            Packet::Connack(connack) => answers[usize::from(connack.code == 0x86)] += 1,
            other => panic!("{other:?}"),
        });
    }
    let reply = node.api("GET", "/v1/audit", &[]);
    assert!(!reply.text().contains("invented"), "{}", reply.text());
    let entries = reply.json();
    let logins: Vec<_> = entries.as_array().unwrap().iter().filter(|entry| entry["action"] == "login").collect();
    // A minute may have ended meanwhile.
    assert!((2..=4).contains(&logins.len()), "{logins:?}");
    let count = |target: &str| {
        let of = logins.iter().filter(|entry| entry["target"] == target && entry["peer"] == "127.0.0.1");
        of.map(|entry| entry["count"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(count("mqtt"), 7);
    // The others were turned away before they were looked at.
    assert_eq!(count("mqtt: meter"), answers[1] - 7, "{logins:?}");
    assert!(answers[1] >= 7 + 16, "{answers:?}");
}

#[test]
fn a_user_whose_password_was_hashed_by_the_command_is_let_in_with_it_alone() {
    let hash = hash("correct horse");
    assert!(hash.starts_with("$argon2id$") && !hash.contains("horse"), "{hash}");

    let user = format!("[mqtt.users.meter]\npassword = {hash:?}\npublish = [\"#\"]\n");
    let node = with_config(&user);
    for (password, code) in [("correct horse", 0), ("correct horse\n", 0x86), ("", 0x86)] {
        let mut client = Client::hello(&node, "meter", Some(password));
        client
            .take(|packet| assert!(matches!(packet, Packet::Connack(connack) if connack.code == code), "{password:?}"));
    }
}

#[test]
fn sessions_are_listed_and_ended_by_who_administers() {
    let node = with_config("[mqtt.anonymous]\npublish = [\"#\"]\nsubscribe = [\"#\"]\n");
    let mut client = Client::connect(&node, "meter 7");
    client.subscribe("t");
    let listed = node.api("GET", "/v1/mqtt/sessions", &[]).json();
    let (session, count) = (&listed[0], listed.as_array().unwrap().len());
    assert_eq!(
        (count, &session["client"], &session["user"], &session["connected"], &session["subscriptions"]),
        (1, &json!("meter 7"), &Value::Null, &json!(true), &json!(1))
    );
    assert_eq!(node.api("DELETE", "/v1/mqtt/sessions?client=other", &[]).code(), "L4015");
    assert_eq!(node.api("DELETE", "/v1/mqtt/sessions?client=meter%207&user=meter", &[]).code(), "L4015");
    assert_eq!(node.api("DELETE", "/v1/mqtt/sessions?client=meter%207", &[]).status, 204);
    client.expect(&Packet::Disconnect { reason: Reason::ADMINISTRATIVE, session_expiry_s: None });
    assert_eq!(node.api("GET", "/v1/mqtt/sessions", &[]).json(), json!([]));
}
