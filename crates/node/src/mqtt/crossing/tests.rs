//! Two nodes of a fleet with brokers, and clients at each.

use crate::link::tests::town::TownNode;
use crate::mail::tests::{Pair, ready};
use crate::mqtt::{Config, Mqtt, MqttArgs};
use gate_mqtt::codec::encode::{self, Ack, Outgoing};
use gate_mqtt::codec::{Connect, Packet, Qos, Reason, SubscribeEntry, SubscriptionOptions, Version, decode, split};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Its queue is paused: what the trigger hears stays there.
const TRIGGER: &str = "[function.listen]\nimage = \"listen\"\nmqtt = \"sensors/#\"\n";

struct Client {
    socket: TcpStream,
    bytes: Vec<u8>,
    id: u16,
}

impl Client {
    /// With a session that outlives the connection.
    fn connect(node: &TownNode, name: &str) -> Self {
        let (address, _) = node.node.mqtt.get().unwrap().addresses[0];
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut client = Self { socket, bytes: Vec::new(), id: 0 };
        let connect = Connect {
            version: Version::V5,
            clean_start: false,
            keep_alive_s: 0,
            client_id: name,
            will: None,
            user: None,
            password: None,
            session_expiry_s: 1_000,
            receive_maximum: 100,
            packet_bytes_max: None,
            topic_alias_maximum: 0,
            wants_problems: true,
            auth_method: None,
        };
        client.send(|out| encode::connect(out, &connect));
        client.take(|packet| assert!(matches!(packet, Packet::Connack(connack) if connack.code == 0)));
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
            let read = self.socket.read(&mut chunk).expect("a packet comes");
            assert!(read > 0, "the node closed the connection");
            self.bytes.extend_from_slice(&chunk[..read]);
        }
    }

    fn subscribe(&mut self, filter: &str) {
        let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
        self.send(|out| encode::subscribe(out, 9, &[SubscribeEntry { filter, options }], None, Version::V5));
        self.take(|packet| assert!(matches!(packet, Packet::Suback { codes: &[1], .. }), "{packet:?}"));
    }

    /// With QoS 1; waits for the confirmation, and says it.
    fn publish(&mut self, topic: &str, payload: &str, retain: bool) -> Reason {
        self.id += 1;
        let (id, version, lasting, payload) = (self.id, Version::V5, &[][..], payload.as_bytes());
        let (qos, dup, expiry_s, subscription_ids) = (Qos::AtLeastOnce, false, None, &[][..]);
        let outgoing = Outgoing { version, qos, retain, dup, id, topic, payload, lasting, expiry_s, subscription_ids };
        self.send(|out| {
            outgoing.write(out);
        });
        self.take(|packet| match packet {
            Packet::Puback { id: acked, reason } if acked == id => reason,
            other => panic!("{other:?}"),
        })
    }

    /// The next message: topic and payload.
    fn next(&mut self) -> (String, String) {
        let (id, message) = self.take(|packet| match packet {
            Packet::Publish(publish) => {
                let payload = String::from_utf8(publish.payload.to_vec()).unwrap();
                (publish.id, (publish.topic.to_owned(), payload))
            }
            other => panic!("{other:?}"),
        });
        self.send(|out| encode::ack(out, Ack::Puback, id, Reason::SUCCESS, Version::V5));
        message
    }

    /// Publishes what it has subscribed to itself; the two answers come in any order.
    fn publish_to_itself(&mut self, topic: &str, number: usize) {
        let mut other = Self { socket: self.socket.try_clone().unwrap(), bytes: Vec::new(), id: 100 };
        let (id, version, lasting) = (other.id, Version::V5, &[][..]);
        let (qos, retain, dup, expiry_s, subscription_ids) = (Qos::AtLeastOnce, false, false, None, &[][..]);
        let payload = number.to_string();
        let payload = payload.as_bytes();
        let outgoing = Outgoing { version, qos, retain, dup, id, topic, payload, lasting, expiry_s, subscription_ids };
        other.send(|out| {
            outgoing.write(out);
        });
        for _ in 0..2 {
            let received = self.take(|packet| match packet {
                Packet::Publish(publish) => {
                    assert_eq!((publish.topic, publish.payload), (topic, payload));
                    Some(publish.id)
                }
                Packet::Puback { reason, .. } => {
                    assert_eq!(reason, Reason::SUCCESS);
                    None
                }
                unexpected => panic!("{unexpected:?}"),
            });
            if let Some(id) = received {
                self.send(|out| encode::ack(out, Ack::Puback, id, Reason::SUCCESS, Version::V5));
            }
        }
    }

    fn expect(&mut self, topic: &str, payloads: impl IntoIterator<Item = usize>) {
        for payload in payloads {
            assert_eq!(self.next(), (topic.to_owned(), payload.to_string()));
        }
    }
}

async fn pair() -> Pair {
    let pair = Pair::new().await;
    for node in [&pair.one, &pair.two] {
        let args: MqttArgs = "127.0.0.1:0".parse().unwrap();
        let config = Config::new(args, false, false).unwrap().unwrap();
        let mqtt = Mqtt::start(&config, None, &node.node.gate_node, &node.node.budget).unwrap();
        node.node.mqtt.set(mqtt).ok().unwrap();
        // Handlers are not what this is about.
        node.node.events.pause(true, &[]).await.unwrap();
    }
    pair
}

/// Waits until a node knows so many filters of others.
async fn until_wanted(node: &TownNode, filters: usize) {
    node.until(|| node.node.gate_node.far.filters() == filters).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_crosses_once_to_subscribers_and_triggers() {
    let pair = pair().await;
    pair.two.deploy(TRIGGER).await;
    let (mut here, mut there) = (Client::connect(&pair.one, "here"), Client::connect(&pair.two, "there"));
    assert_eq!(here.publish("else", "", false), Reason::NO_SUBSCRIBERS);
    there.subscribe("sensors/+");
    here.subscribe("back/#");
    until_wanted(&pair.one, 2).await;
    until_wanted(&pair.two, 1).await;
    for number in 0..50 {
        assert_eq!(here.publish("sensors/1", &number.to_string(), false), Reason::SUCCESS);
    }
    there.expect("sensors/1", 0..50);
    // At the node of the trigger: it hears it once, and nothing comes back.
    there.publish_to_itself("sensors/1", 50);
    pair.two.until(|| ready(&pair.two, "listen") == 51).await;
    there.publish("back/1", "end", false);
    assert_eq!(here.next(), ("back/1".to_owned(), "end".to_owned()));
    assert_eq!(here.publish("$private/1", "stays", false), Reason::NO_SUBSCRIBERS);
    pair.until_sent().await;
    assert_eq!(ready(&pair.two, super::QUEUE), 0);

    // The same function here too: then it is the one here that hears it.
    pair.one.deploy(TRIGGER).await;
    here.publish("sensors/1", "51", false);
    there.expect("sensors/1", 51..52);
    assert_eq!((ready(&pair.one, "listen"), ready(&pair.two, "listen")), (1, 51));
}

/// One full queue of a trigger refused the letter as a whole, and nothing of other nodes came any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_whose_queue_is_full_gets_its_messages_later_and_holds_nothing_up() {
    let pair = pair().await;
    pair.two.deploy(&format!("{TRIGGER}[queue.listen]\nevents_max = 1\n")).await;
    let (mut here, mut there) = (Client::connect(&pair.one, "here"), Client::connect(&pair.two, "there"));
    there.subscribe("#");
    until_wanted(&pair.one, 2).await;
    for number in 0..3 {
        assert_eq!(here.publish("sensors/1", &number.to_string(), false), Reason::SUCCESS);
    }
    there.expect("sensors/1", 0..3);
    here.publish("other", "3", false);
    there.expect("other", 3..4);
    let state = pair.two.node.events.state();
    let listen = state.queue("listen").unwrap();
    for _ in 0..3 {
        pair.two.until(|| ready(&pair.two, "listen") == 1).await;
        let now_ms = crate::clock::now_ms();
        let leased = listen.lease(now_ms, now_ms + 60_000, 1).unwrap();
        let mut transaction = state.begin();
        transaction.ack(&leased[0]);
        let _ticket = transaction.commit().unwrap();
    }
    pair.two.until(|| state.queue(super::QUEUE).unwrap().counts().delayed == 0).await;
    // What was put back did not go to clients again.
    here.publish("last", "4", false);
    there.expect("last", 4..5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_retained_crosses_when_it_is_wanted_and_is_forgotten_after_that() {
    let pair = pair().await;
    let mut here = Client::connect(&pair.one, "here");
    here.publish("lamp/1", "on", true);
    let mut there = Client::connect(&pair.two, "there");
    there.subscribe("lamp/+");
    assert_eq!(there.next(), ("lamp/1".to_owned(), "on".to_owned()));
    here.publish("lamp/1", "off", true);
    assert_eq!(there.next(), ("lamp/1".to_owned(), "off".to_owned()));
    let mut second = Client::connect(&pair.two, "second");
    second.subscribe("lamp/1");
    assert_eq!(second.next(), ("lamp/1".to_owned(), "off".to_owned()));
    let retained = || pair.two.node.mqtt.get().unwrap().counts().0.unwrap().retained;
    assert_eq!(retained(), 1);
    for name in ["there", "second"] {
        assert!(pair.two.node.mqtt.get().unwrap().end_session(None, name));
    }
    pair.two.until(|| retained() == 0).await;
    until_wanted(&pair.one, 0).await;
    here.publish("lamp/1", "dim", true);
    let mut there = Client::connect(&pair.two, "there");
    there.subscribe("lamp/#");
    assert_eq!(there.next(), ("lamp/1".to_owned(), "dim".to_owned()));
    here.publish("lamp/1", "", true);
    assert_eq!(there.next(), ("lamp/1".to_owned(), String::new()));
    pair.two.until(|| retained() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_confirmed_waits_for_a_node_that_is_away() {
    let pair = pair().await;
    let (mut here, mut there) = (Client::connect(&pair.one, "here"), Client::connect(&pair.two, "there"));
    there.subscribe("sensors/#");
    until_wanted(&pair.one, 1).await;
    let mail = pair.two.node.events.mail();
    pair.two.node.events.set_mail(None);
    for number in 0..30 {
        here.publish("sensors/1", &number.to_string(), false);
    }
    pair.one.until(|| pair.one.node.events.mail().unwrap().waiting_in_all().letters >= 30).await;
    pair.two.node.events.set_mail(mail);
    there.expect("sensors/1", 0..30);
    pair.until_sent().await;
}
