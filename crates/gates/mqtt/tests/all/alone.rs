//! The broker alone: without sockets, with a clock and a budget that the test sets.

use crate::gate::support::{Memory, plain};
use budget::{Budget, Purpose};
use gate_mqtt::broker::{Broker, ConnectionKey, Now};
use gate_mqtt::codec::encode::{self, Outgoing};
use gate_mqtt::codec::{Connect, Packet, Qos, Reason, SubscribeEntry, SubscriptionOptions, Version, decode, split};
use gate_mqtt::{Identity, Limits, Users};
use std::sync::Arc;

struct Alone {
    broker: Broker<Memory>,
    node: Arc<Memory>,
    identity: Arc<Identity>,
    now: Now,
}

impl Alone {
    /// A broker whose commits are durable at once.
    fn new(limits: Limits, budget: &Arc<Budget>) -> Self {
        let now = Now { steady_ms: 1_000, unix_ms: 1_000_000 };
        let node = Memory::new();
        let mut broker = Broker::new(limits, node.clone(), &Users::open(), budget, now).unwrap();
        broker.durable(now, u64::MAX);
        let identity = Arc::new(Users::open().unasked(None, "").unwrap());
        Self { broker, node, identity, now }
    }

    fn connect(&mut self, connect: Connect<'_>) -> ConnectionKey {
        let key = self.broker.connect(self.now, &connect, self.identity.clone(), "").unwrap();
        assert_eq!(self.sent(key, |packet| matches!(packet, Packet::Connack(_)).then_some(())).len(), 1);
        key
    }

    fn feed(&mut self, key: ConnectionKey, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        assert_eq!(self.broker.feed(self.now, key, &bytes).consumed, bytes.len());
    }

    fn subscribe(&mut self, key: ConnectionKey, filters: &[&str], qos: Qos) {
        let options = SubscriptionOptions { qos, ..Default::default() };
        let entries: Vec<_> = filters.iter().map(|filter| SubscribeEntry { filter, options }).collect();
        self.feed(key, |out| encode::subscribe(out, 1, &entries, None, Version::V5));
    }

    fn publish(&mut self, key: ConnectionKey, topic: &str, payload: &str, change: impl FnOnce(&mut Outgoing<'_>)) {
        let mut outgoing = Outgoing {
            version: Version::V5,
            qos: Qos::AtLeastOnce,
            retain: false,
            dup: false,
            id: 1,
            topic,
            payload: payload.as_bytes(),
            lasting: &[],
            expiry_s: None,
            subscription_ids: &[],
        };
        change(&mut outgoing);
        self.feed(key, |out| _ = outgoing.write(out));
        self.sent(key, |_| Some(()));
    }

    /// What `pick` finds in all packets that wait for the connection.
    fn sent<T>(&mut self, key: ConnectionKey, mut pick: impl FnMut(Packet<'_>) -> Option<T>) -> Vec<T> {
        let mut found = Vec::new();
        loop {
            let mut bytes = Vec::new();
            self.broker.take(key, &mut bytes);
            if bytes.is_empty() {
                return found;
            }
            let mut rest = &bytes[..];
            while let Some(frame) = split(rest, None, 1 << 24).unwrap() {
                rest = &rest[frame.bytes..];
                found.extend(pick(decode(frame, Version::V5).unwrap()));
            }
        }
    }

    /// The payloads of all messages that wait for the connection.
    fn messages(&mut self, key: ConnectionKey) -> Vec<String> {
        self.sent(key, |packet| match packet {
            Packet::Publish(publish) => Some(String::from_utf8(publish.payload.to_vec()).unwrap()),
            _ => None,
        })
    }
}

fn client(client_id: &str) -> Connect<'_> {
    Connect { client_id, ..plain(Version::V5) }
}

fn kept_client(client_id: &str) -> Connect<'_> {
    Connect { clean_start: false, session_expiry_s: 100, ..client(client_id) }
}

/// While a message was passed on, a subscriber that had waited for memory was sent an older one first. If the memory
/// was used up again before the present message, those after it got the older one's bytes in its place.
#[test]
fn a_subscriber_that_waits_for_memory_leaves_others_their_messages() {
    let budget = Budget::new(1 << 30);
    let mut held = budget.take(Purpose::Mqtt, budget.part_bytes(Purpose::Mqtt) - 14_000).unwrap();
    let mut alone = Alone::new(Limits { inflight_max: 10_000, ..Limits::default() }, &budget);
    let [deaf, reader, writer] = ["deaf", "reader", "writer"].map(|name| alone.connect(client(name)));
    for key in [deaf, reader] {
        alone.subscribe(key, &["t"], Qos::AtLeastOnce);
    }
    alone.messages(reader);
    let mut waited = false;
    for number in 0..300 {
        let payload = format!("{number:01000}");
        alone.publish(writer, "t", &payload, |_| {});
        assert_eq!(alone.messages(reader), [payload]);
        waited |= alone.broker.counts().queued_bytes > 0;
        held.shrink(1_500);
    }
    assert!(waited);
    let got = alone.messages(deaf);
    assert!(got.is_sorted() && got.len() > 50, "{}", got.len());
}

#[test]
fn who_subscribes_to_all_that_is_retained_again_and_again_gets_it_turn_by_turn() {
    let mut alone = Alone::new(Limits::default(), &Budget::new(1 << 30));
    let [writer, reader] = ["writer", "reader"].map(|name| alone.connect(client(name)));
    for number in 0..5_000 {
        alone.publish(writer, &format!("t/{number}"), "", |outgoing| {
            (outgoing.retain, outgoing.payload) = (true, b"x");
        });
    }
    alone.subscribe(reader, &["#", "t/#", "t/+", "+/7"], Qos::AtMostOnce);
    let mut turns = vec![alone.messages(reader).len()];
    while !alone.broker.may_read(reader) {
        alone.now.steady_ms += 250;
        alone.broker.do_due(alone.now);
        turns.push(alone.messages(reader).len());
    }
    // In order of the filters; the third took what the short one left of its turn.
    assert_eq!(turns, [5_000, 5_001, 5_000]);
}

/// The broker gave up anew for each connection that it closed, one within the other, until the stack was full.
#[test]
fn a_broker_that_gives_up_on_its_disk_does_so_once() {
    const RECORDS: usize = 210_000;
    let limits = Limits { subscriptions_max: RECORDS, ..Limits::default() };
    let mut alone = Alone::new(limits, &Budget::new(1 << 30));
    let names: Vec<String> = (0..2_000).map(|number| format!("c{number}")).collect();
    let mut all: Vec<_> = names.iter().map(|name| alone.connect(kept_client(name))).collect();
    let many = alone.connect(kept_client("many"));
    all.push(many);
    let options = SubscriptionOptions { retain_handling: 2, ..Default::default() };
    for first in (0..RECORDS).step_by(10_000) {
        let filters: Vec<String> = (first..first + 10_000).map(|number| format!("{number:06}")).collect();
        let entries: Vec<_> = filters.iter().map(|filter| SubscribeEntry { filter, options }).collect();
        alone.feed(many, |out| encode::subscribe(out, 1, &entries, None, Version::V5));
        alone.messages(many);
    }
    assert_eq!(alone.broker.counts().subscriptions, RECORDS as u64);
    alone.node.set_disk_full(true);
    let refused = alone.broker.connect(alone.now, &client("many"), alone.identity.clone(), "").unwrap_err();
    assert_eq!(refused.reason, Reason::UNAVAILABLE);
    assert!(all.into_iter().all(|key| !alone.broker.is_connected(key)));
}

#[test]
fn what_has_expired_makes_room_in_the_session_of_who_is_away() {
    let limits = Limits { queued_messages_max: 2, ..Limits::default() };
    let mut alone = Alone::new(limits, &Budget::new(1 << 30));
    let away = alone.connect(kept_client("away"));
    alone.subscribe(away, &["t"], Qos::AtLeastOnce);
    alone.broker.lost(alone.now, away);
    let writer = alone.connect(client("writer"));
    let copies = |alone: &Alone| alone.node.records().iter().filter(|key| key.starts_with("m/")).count();
    for expiry_s in [Some(1), Some(100), Some(1)] {
        alone.publish(writer, "t", "m", |outgoing| outgoing.expiry_s = expiry_s);
    }
    assert_eq!((alone.broker.counts().dropped, copies(&alone)), (1, 2));
    alone.now.steady_ms += 20_000;
    alone.now.unix_ms += 20_000;
    alone.publish(writer, "t", "m", |_| {});
    let counts = alone.broker.counts();
    assert_eq!((counts.dropped, counts.expired, copies(&alone)), (1, 1, 2));
}

#[test]
fn what_is_retained_and_has_expired_makes_room() {
    let mut alone = Alone::new(Limits { retained_max: 2, ..Limits::default() }, &Budget::new(1 << 30));
    let writer = alone.connect(client("writer"));
    for (topic, expiry_s) in [("$a", 1), ("b/c", 1), ("refused", 1)] {
        alone.publish(writer, topic, "m", |outgoing| (outgoing.retain, outgoing.expiry_s) = (true, Some(expiry_s)));
    }
    assert_eq!((alone.broker.counts().retained, alone.broker.counts().refused), (2, 1));
    alone.now.steady_ms += 20_000;
    alone.now.unix_ms += 20_000;
    alone.publish(writer, "d", "m", |outgoing| outgoing.retain = true);
    assert_eq!((alone.broker.counts().retained, alone.broker.counts().refused), (1, 1));
    assert_eq!(alone.node.records(), ["r/d"]);
}
