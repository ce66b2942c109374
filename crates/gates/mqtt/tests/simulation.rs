//! The broker between clients that vanish and a disk that loses what it has not confirmed, in virtual time.
//!
//! One seed decides everything: which bytes arrive when, who disconnects, when the broker dies and how much of what was not
//! yet durable survives. Afterwards everybody comes back, and then: what was confirmed has arrived; with QoS 2 exactly once,
//! at functions and at subscribers. `SEEDS=100000 cargo test --release -p gate-mqtt --test simulation` runs more seeds,
//! `SEED=7` one of them.

use gate_mqtt::broker::{Broker, ConnectionKey, Now};
use gate_mqtt::codec::encode::{self, Ack, Outgoing};
use gate_mqtt::codec::{Connect, Packet, Qos, Reason, SubscribeEntry, SubscriptionOptions, Version, decode, split};
use gate_mqtt::{Changes, Identity, Limits, Node, Refused, Users};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

const SEEDS: u64 = 400;
const STEPS: u64 = 400;
const MESSAGES: u64 = 12;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// A disk: commits in order, of which some first ones are durable.
#[derive(Default)]
struct Disk {
    commits: Vec<Changes>,
    durable: usize,
    is_full: bool,
}

#[derive(Default)]
struct Store(Mutex<Disk>);

impl Node for Store {
    fn wants(&self, topic: &str) -> bool {
        topic.starts_with("wanted/")
    }

    fn commit(&self, changes: &Changes) -> Result<u64, Refused> {
        let mut disk = self.0.lock();
        if disk.is_full && !changes.events.is_empty() {
            return Err(Refused::QueueFull(Problem::new(Code::QueueFull, "the seed says so")));
        }
        disk.commits.push(changes.clone());
        Ok(disk.commits.len() as u64)
    }

    async fn durable(&self, _number: u64) -> Result<u64, Problem> {
        unreachable!("the simulation says what is durable")
    }

    fn restore(&self, take: &mut dyn FnMut(&str, &[u8])) -> Result<(), Problem> {
        let disk = self.0.lock();
        let mut records = BTreeMap::new();
        for (key, value) in disk.commits.iter().flat_map(|changes| &changes.records) {
            match value {
                Some(value) => drop(records.insert(key, value)),
                None => drop(records.remove(key)),
            }
        }
        records.into_iter().for_each(|(key, value)| take(key, value));
        Ok(())
    }
}

/// What a client knows; it outlives its connections, and the broker.
#[derive(Debug)]
struct Client {
    name: String,
    version: Version,
    connection: Option<Link>,
    is_subscribed: bool,
    /// Messages to publish, then on their way by identifier.
    to_send: VecDeque<(u64, Qos)>,
    sending: BTreeMap<u16, Sending>,
    next_id: u16,
    confirmed: BTreeSet<u64>,
    /// Identifiers of messages of QoS 2 that are here.
    received: BTreeSet<u16>,
    got: Vec<(u64, Qos)>,
    wanted_qos: Qos,
}

#[derive(Debug)]
struct Sending {
    message: u64,
    qos: Qos,
    is_released: bool,
}

#[derive(Debug)]
struct Link {
    key: ConnectionKey,
    /// On their way.
    to_broker: Vec<u8>,
    to_client: Vec<u8>,
    is_open: bool,
}

struct World {
    random: Random,
    broker: Broker<Store>,
    store: Arc<Store>,
    clients: Vec<Client>,
    now: Now,
    identity: Arc<Identity>,
}

fn limits() -> Limits {
    Limits { inflight_max: 3, receive_maximum: 4, ..Limits::default() }
}

fn message_of(payload: &[u8]) -> u64 {
    u64::from_be_bytes(payload.try_into().expect("payloads are numbers"))
}

impl World {
    fn new(seed: u64) -> Self {
        let store = Arc::new(Store::default());
        let now = Now { steady_ms: 1_000, unix_ms: 1_000_000 };
        let broker = Broker::new(limits(), store.clone(), now).expect("an empty disk can be read");
        let mut random = Random(seed);
        let clients = (0..4).map(|number| Client::new(number, &mut random)).collect();
        let identity = Arc::new(Users::open().check(None, None, "").expect("everybody may"));
        Self { random, broker, store, clients, now, identity }
    }

    fn step(&mut self) {
        let client = self.random.below(self.clients.len() as u64) as usize;
        self.now.steady_ms += 10;
        self.now.unix_ms += 10;
        match self.random.below(100) {
            0..=1 => self.crash(),
            2..=5 => self.disconnect(client),
            6..=9 => self.broker.tick(self.now),
            10..=12 => self.store.0.lock().is_full ^= true,
            13..=30 => self.sync(),
            31..=60 => self.deliver_to_broker(client, false),
            61..=85 => self.deliver_to_client(client, false),
            _ => self.act(client),
        }
        self.collect();
    }

    /// The power fails: connections are gone, and of what was not durable some first part survives.
    fn crash(&mut self) {
        {
            let mut disk = self.store.0.lock();
            let uncertain = (disk.commits.len() - disk.durable) as u64;
            let survives = disk.durable + self.random.below(uncertain + 1) as usize;
            disk.commits.truncate(survives);
            disk.durable = survives;
        }
        self.clients.iter_mut().for_each(|client| client.connection = None);
        self.broker = Broker::new(limits(), self.store.clone(), self.now).expect("what was written can be read");
    }

    fn disconnect(&mut self, client: usize) {
        if let Some(link) = self.clients[client].connection.take() {
            self.broker.lost(self.now, link.key);
        }
    }

    /// The disk confirms some of what it has, or all.
    fn sync(&mut self) {
        let durable = {
            let mut disk = self.store.0.lock();
            let uncertain = (disk.commits.len() - disk.durable) as u64;
            disk.durable +=
                if self.random.below(2) == 0 { uncertain } else { self.random.below(uncertain + 1) } as usize;
            disk.durable as u64
        };
        self.broker.durable(self.now, durable);
    }

    fn deliver_to_broker(&mut self, client: usize, all: bool) {
        let Some(link) = &mut self.clients[client].connection else { return };
        let arrived =
            if all { link.to_broker.len() } else { self.random.below(link.to_broker.len() as u64 + 1) as usize };
        let fed = self.broker.feed(self.now, link.key, &link.to_broker[..arrived]);
        link.to_broker.drain(..fed.consumed);
    }

    fn deliver_to_client(&mut self, client: usize, all: bool) {
        let client = &mut self.clients[client];
        let Some(link) = &mut client.connection else { return };
        let arrived =
            if all { link.to_client.len() } else { self.random.below(link.to_client.len() as u64 + 1) as usize };
        let mut bytes: Vec<u8> = link.to_client[..arrived].to_vec();
        let mut used = 0;
        while let Some(frame) = split(&bytes[used..], None, 1 << 20).expect("the broker speaks well") {
            used += frame.bytes;
            client.take(decode(frame, client.version).expect("the broker speaks well"));
        }
        bytes.clear();
        if let Some(link) = &mut client.connection {
            link.to_client.drain(..used);
        }
    }

    /// The client connects, subscribes or publishes.
    fn act(&mut self, place: usize) {
        let client = &mut self.clients[place];
        if client.connection.is_some() {
            return client.publish();
        }
        let connect = Connect {
            version: client.version,
            clean_start: false,
            keep_alive_s: 0,
            client_id: &client.name,
            will: None,
            user: None,
            password: None,
            session_expiry_s: u32::MAX,
            receive_maximum: u16::MAX,
            packet_bytes_max: None,
            topic_alias_maximum: 0,
            wants_problems: true,
            auth_method: None,
        };
        let key = self.broker.connect(self.now, &connect, self.identity.clone(), "").expect("clients are let in");
        client.connection = Some(Link { key, to_broker: Vec::new(), to_client: Vec::new(), is_open: false });
    }

    /// Moves what the broker has for its clients onto their links.
    fn collect(&mut self) {
        let mut dirty = Vec::new();
        self.broker.dirty(&mut dirty);
        while !dirty.is_empty() {
            for key in dirty.drain(..) {
                let mut bytes = Vec::new();
                let is_closing = self.broker.take(key, &mut bytes);
                let Some(client) = self
                    .clients
                    .iter_mut()
                    .find(|client| client.connection.as_ref().is_some_and(|link| link.key == key))
                else {
                    continue;
                };
                client.connection.as_mut().expect("it was just found").to_client.extend(bytes);
                if is_closing {
                    client.connection = None;
                    self.broker.lost(self.now, key);
                }
            }
            self.broker.dirty(&mut dirty);
        }
    }

    /// Everybody is there, the disk works, and nothing happens but what has to.
    fn settle(&mut self) {
        self.store.0.lock().is_full = false;
        for _ in 0..400 {
            for client in 0..self.clients.len() {
                self.act(client);
                self.collect();
                self.deliver_to_broker(client, true);
                self.collect();
                self.deliver_to_client(client, true);
            }
            let durable = {
                let mut disk = self.store.0.lock();
                disk.durable = disk.commits.len();
                disk.durable as u64
            };
            self.now.steady_ms += 250;
            self.now.unix_ms += 250;
            self.broker.durable(self.now, durable);
            self.collect();
            self.broker.tick(self.now);
            self.collect();
        }
    }

    fn check(&self, seed: u64) {
        let mut events: BTreeMap<u64, usize> = BTreeMap::new();
        for event in self.store.0.lock().commits.iter().flat_map(|changes| &changes.events) {
            *events.entry(message_of(event.message.payload())).or_default() += 1;
        }
        for client in &self.clients {
            let is_done = client.to_send.is_empty() && client.sending.is_empty();
            assert!(is_done, "seed {seed}: {} is not done: {client:?}", client.name);
        }
        let all: Vec<(u64, Qos)> = self.clients.iter().flat_map(|client| client.messages()).collect();
        for (message, qos) in &all {
            let count = events.get(message).copied().unwrap_or_default();
            let fits = if *qos == Qos::ExactlyOnce { count == 1 } else { count >= 1 };
            assert!(fits, "seed {seed}: message {message} of {qos:?} made {count} events");
            for reader in &self.clients {
                let count = reader.got.iter().filter(|(got, _)| got == message).count();
                let is_once = *qos == Qos::ExactlyOnce && reader.wanted_qos == Qos::ExactlyOnce;
                let fits = if is_once { count == 1 } else { count >= 1 };
                // A subscription counts from its SUBACK; messages begin after all have theirs.
                assert!(fits, "seed {seed}: {} got message {message} of {qos:?} {count} times", reader.name);
            }
        }
        let counts = self.broker.counts();
        assert_eq!(counts.queued_bytes, 0, "seed {seed}: something is left");
        let mut kept = Vec::new();
        self.store.restore(&mut |key, _| kept.push(key.to_owned())).expect("the disk can be read");
        let left: Vec<_> =
            kept.iter().filter(|key| ["b/", "i/", "m/"].iter().any(|kind| key.starts_with(kind))).collect();
        assert!(left.is_empty(), "seed {seed}: records are left: {left:?}");
    }
}

impl Client {
    fn new(number: u64, random: &mut Random) -> Self {
        Self {
            name: format!("client-{number}"),
            version: if random.below(2) == 0 { Version::V311 } else { Version::V5 },
            connection: None,
            is_subscribed: false,
            to_send: VecDeque::new(),
            sending: BTreeMap::new(),
            next_id: 0,
            confirmed: BTreeSet::new(),
            received: BTreeSet::new(),
            got: Vec::new(),
            wanted_qos: if random.below(2) == 0 { Qos::AtLeastOnce } else { Qos::ExactlyOnce },
        }
    }

    fn messages(&self) -> impl Iterator<Item = (u64, Qos)> {
        self.confirmed.iter().map(|message| (*message, qos_of(*message)))
    }

    fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(link) = &mut self.connection {
            write(&mut link.to_broker);
        }
    }

    fn publish(&mut self) {
        if !self.connection.as_ref().is_some_and(|link| link.is_open) || !self.is_subscribed || self.sending.len() >= 3
        {
            return;
        }
        let Some((message, qos)) = self.to_send.pop_front() else { return };
        self.next_id = self.next_id % 7 + 1;
        while self.sending.contains_key(&self.next_id) {
            self.next_id = self.next_id % 7 + 1;
        }
        let id = self.next_id;
        self.sending.insert(id, Sending { message, qos, is_released: false });
        self.send(id, false);
    }

    fn send(&mut self, id: u16, dup: bool) {
        let Sending { message, qos, is_released } = self.sending[&id];
        let version = self.version;
        if is_released {
            return self.write(|out| encode::ack(out, Ack::Pubrel, id, Reason::SUCCESS, version));
        }
        let payload = message.to_be_bytes();
        let (topic, lasting, subscription_ids, expiry_s, retain) = ("wanted/t", &[][..], &[][..], None, false);
        let outgoing =
            Outgoing { version, qos, retain, dup, id, topic, payload: &payload, lasting, expiry_s, subscription_ids };
        self.write(|out| {
            outgoing.write(out);
        });
    }

    fn take(&mut self, packet: Packet<'_>) {
        let version = self.version;
        match packet {
            Packet::Connack(connack) => {
                assert_eq!(connack.code, 0);
                self.connection.as_mut().expect("it just spoke").is_open = true;
                if !self.is_subscribed {
                    let options = SubscriptionOptions { qos: self.wanted_qos, ..Default::default() };
                    self.write(|out| {
                        encode::subscribe(out, 99, &[SubscribeEntry { filter: "wanted/#", options }], None, version)
                    });
                } else {
                    assert!(connack.session_present, "{} lost its session", self.name);
                }
                for id in self.sending.keys().copied().collect::<Vec<_>>() {
                    self.send(id, true);
                }
            }
            Packet::Suback { codes, .. } => {
                assert!(codes[0] <= 2);
                self.is_subscribed = true;
            }
            Packet::Puback { id, reason } => self.ended(id, reason),
            Packet::Pubrec { id, reason } if reason.is_failure() => self.ended(id, reason),
            Packet::Pubrec { id, .. } => {
                if let Some(sending) = self.sending.get_mut(&id) {
                    sending.is_released = true;
                }
                self.write(|out| encode::ack(out, Ack::Pubrel, id, Reason::SUCCESS, version));
            }
            Packet::Pubcomp { id, .. } => self.ended(id, Reason::SUCCESS),
            Packet::Publish(publish) => {
                let message = message_of(publish.payload);
                match publish.qos {
                    Qos::AtMostOnce => unreachable!("nobody asks for it"),
                    Qos::AtLeastOnce => {
                        self.got.push((message, publish.qos));
                        self.write(|out| encode::ack(out, Ack::Puback, publish.id, Reason::SUCCESS, version));
                    }
                    Qos::ExactlyOnce => {
                        if self.received.insert(publish.id) {
                            self.got.push((message, publish.qos));
                        }
                        self.write(|out| encode::ack(out, Ack::Pubrec, publish.id, Reason::SUCCESS, version));
                    }
                }
            }
            Packet::Pubrel { id, .. } => {
                self.received.remove(&id);
                self.write(|out| encode::ack(out, Ack::Pubcomp, id, Reason::SUCCESS, version));
            }
            Packet::Disconnect { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn ended(&mut self, id: u16, reason: Reason) {
        let Some(sending) = self.sending.remove(&id) else { return };
        if reason.is_failure() {
            // It was not accepted: another attempt is another message to the broker.
            self.to_send.push_back((sending.message, sending.qos));
        } else {
            assert!(self.confirmed.insert(sending.message), "confirmed twice");
        }
    }
}

fn qos_of(message: u64) -> Qos {
    if message.is_multiple_of(2) { Qos::AtLeastOnce } else { Qos::ExactlyOnce }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    // Everyone has subscribed before the first message.
    world.settle();
    for (number, client) in world.clients.iter_mut().enumerate() {
        assert!(client.is_subscribed);
        client.to_send = (0..MESSAGES)
            .map(|count| number as u64 * 1_000 + count)
            .map(|message| (message, qos_of(message)))
            .collect();
    }
    for _ in 0..STEPS {
        world.step();
    }
    world.settle();
    world.check(seed);
}

#[test]
fn nothing_confirmed_is_lost_and_qos_2_is_exactly_once() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("SEED") {
        return run(seed);
    }
    (0..number("SEEDS").unwrap_or(SEEDS)).for_each(run);
}
