//! Any sequence of connections, packets, syncs and power cuts leaves the broker sound: what it sends can be read, what
//! it confirms is durable, its limits hold, and it starts again from what it wrote.
//!
//! An input is steps of two bytes (what, and with which choices); some take more. Two clients send packets that are
//! sound, two whatever the input holds.
#![no_main]

use budget::Budget;
use gate_mqtt::broker::{Broker, ConnectionKey, Now};
use gate_mqtt::codec::encode::{self, Ack, Outgoing};
use gate_mqtt::codec::{
    Connect, Packet, PublishProperties, Reason, SubscribeEntry, SubscriptionOptions, Will, decode, split,
};
use gate_mqtt::{Changes, Identity, Limits, Node, Qos, Refused, Users, Version};
use lighter_fuzz::fuzz_target;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

const CLIENTS: [&str; 4] = ["sound-a", "sound-b", "any-a", "any-b"];
const SOUND: usize = 2;
const TOPICS: [&str; 4] = ["wanted/a", "wanted/b", "c", "wanted/a/d"];
const FILTERS: [&str; 6] = ["wanted/#", "+/a", "#", "c", "$share/g/wanted/+", "wanted/a"];
const STEPS_MAX: usize = 400;

/// Commits in order, of which the first ones are durable.
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
            return Err(Refused::QueueFull(Problem::new(Code::QueueFull, "the input says so")));
        }
        disk.commits.push(changes.clone());
        Ok(disk.commits.len() as u64)
    }

    async fn durable(&self, _: u64) -> Result<u64, Problem> {
        unreachable!("the input says what is durable")
    }

    fn restore(&self, take: &mut dyn FnMut(&str, &[u8])) -> Result<(), Problem> {
        let mut records = BTreeMap::new();
        let disk = self.0.lock();
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

struct Link {
    key: ConnectionKey,
    version: Version,
    /// What the broker has not taken yet.
    to_broker: Vec<u8>,
    /// Payloads of QoS 1 by identifier, in the order they were sent; none of those that make no event.
    unconfirmed: HashMap<u16, VecDeque<Option<u64>>>,
}

struct World {
    broker: Broker<Store>,
    store: Arc<Store>,
    now: Now,
    links: [Option<Link>; CLIENTS.len()],
    identity: Arc<Identity>,
    /// Payloads of events that are durable.
    durable: BTreeSet<u64>,
    next_payload: u64,
}

fuzz_target!(|data: &[u8]| {
    let mut world = World::new();
    let mut rest = data;
    for _ in 0..STEPS_MAX {
        let [what, how, more @ ..] = rest else { break };
        rest = more;
        let used = world.step(*what, *how, rest);
        rest = &rest[used..];
        world.collect();
        world.check();
    }
    world.sync(u8::MAX);
    world.collect();
    world.cut(u8::MAX);
});

fn limits() -> Limits {
    Limits {
        inflight_max: 3,
        receive_maximum: 4,
        queued_messages_max: 8,
        queued_bytes_max: 512,
        retained_max: 3,
        sessions_max: 3,
        subscriptions_max: 4,
        packet_bytes_max: 1_024,
        ..Limits::default()
    }
}

/// Small enough to be used up now and then.
fn budget() -> Arc<Budget> {
    Budget::new(200_000)
}

impl World {
    fn new() -> Self {
        let (store, now) = (Arc::new(Store::default()), Now { steady_ms: 1_000, unix_ms: 1_000_000 });
        let broker =
            Broker::new(limits(), store.clone(), &Users::open(), &budget(), now).expect("an empty disk can be read");
        let identity = Arc::new(Users::open().unasked(None, "").expect("everybody may"));
        let links = [const { None }; CLIENTS.len()];
        Self { broker, store, now, links, identity, durable: BTreeSet::new(), next_payload: 0 }
    }

    /// Says how many bytes of `rest` it took.
    fn step(&mut self, what: u8, how: u8, rest: &[u8]) -> usize {
        let client = usize::from(what >> 4) % CLIENTS.len();
        match what & 0x0f {
            0 => self.connect(client, how),
            1 => self.lose(client),
            2 => self.sync(how),
            3 => {
                let passed_ms = 50 << (how % 16);
                // The wall clock may jump, the other one never does.
                self.now.steady_ms += passed_ms;
                self.now.unix_ms = if how & 0x80 != 0 { self.now.unix_ms / 2 } else { self.now.unix_ms + passed_ms };
                self.broker.do_due(self.now);
            }
            4 => self.cut(how),
            5 => self.store.0.lock().is_full = how & 1 != 0,
            6 if client >= SOUND => {
                let bytes = &rest[..rest.len().min(usize::from(how))];
                self.feed(client, |_, out| out.extend_from_slice(bytes));
                return bytes.len();
            }
            7 => self.feed(client, |version, out| subscribe(version, how, out)),
            8 => self.feed(client, |version, out| {
                encode::unsubscribe(out, 3, &[FILTERS[usize::from(how) % FILTERS.len()]], version);
            }),
            9 => self.feed(client, |version, out| {
                let kind = [Ack::Puback, Ack::Pubrec, Ack::Pubrel, Ack::Pubcomp][usize::from(how >> 6)];
                let reason = if how & 0x20 == 0 { Reason::SUCCESS } else { Reason::UNSPECIFIED };
                encode::ack(out, kind, u16::from(how & 0x1f) + 1, reason, version);
            }),
            10 => self.feed(client, |_, out| encode::pingreq(out)),
            11 => self.feed(client, |version, out| encode::disconnect(out, Reason::SUCCESS, version)),
            _ => self.publish(client, how),
        }
        0
    }

    fn connect(&mut self, client: usize, how: u8) {
        self.lose(client);
        let version = if how & 1 == 0 { Version::V311 } else { Version::V5 };
        let will = Will {
            topic: TOPICS[0],
            payload: &u64::MAX.to_be_bytes(),
            qos: Qos::AtLeastOnce,
            retain: how & 2 != 0,
            delay_s: u32::from(how >> 6),
            properties: PublishProperties::default(),
        };
        let is_clean = how & 4 != 0;
        let connect = Connect {
            version,
            clean_start: is_clean,
            keep_alive_s: u16::from(how & 8),
            client_id: CLIENTS[client],
            will: (how & 16 != 0).then_some(will),
            user: None,
            password: None,
            session_expiry_s: if is_clean { 0 } else { u32::MAX },
            receive_maximum: 2,
            packet_bytes_max: (how & 32 != 0 && version == Version::V5).then_some(64),
            topic_alias_maximum: 0,
            wants_problems: true,
            auth_method: None,
        };
        if let Ok(key) = self.broker.connect(self.now, &connect, self.identity.clone(), "") {
            self.links[client] = Some(Link { key, version, to_broker: Vec::new(), unconfirmed: HashMap::new() });
        }
    }

    fn lose(&mut self, client: usize) {
        if let Some(link) = self.links[client].take() {
            self.broker.lost(self.now, link.key);
        }
    }

    fn sync(&mut self, how: u8) {
        let durable = {
            let mut disk = self.store.0.lock();
            let uncertain = disk.commits.len() - disk.durable;
            disk.durable += uncertain.min(usize::from(how));
            disk.durable
        };
        self.note_durable();
        self.broker.durable(self.now, durable as u64);
    }

    fn note_durable(&mut self) {
        let disk = self.store.0.lock();
        let events = disk.commits[..disk.durable].iter().flat_map(|changes| &changes.events);
        self.durable
            .extend(events.filter_map(|event| Some(u64::from_be_bytes(event.message.payload().try_into().ok()?))));
    }

    /// The power fails: of what was not durable some first part survives.
    fn cut(&mut self, how: u8) {
        {
            let mut disk = self.store.0.lock();
            let survive = (disk.durable + usize::from(how)).min(disk.commits.len());
            disk.commits.truncate(survive);
            disk.durable = survive;
        }
        self.note_durable();
        self.links = [const { None }; CLIENTS.len()];
        self.broker = Broker::new(limits(), self.store.clone(), &Users::open(), &budget(), self.now)
            .expect("what was written can be read");
    }

    fn publish(&mut self, client: usize, how: u8) {
        let (qos, id) = (Qos::new(how % 3).expect("it is one"), u16::from(how >> 5) + 1);
        self.next_payload += 1;
        let payload = self.next_payload;
        let topic = TOPICS[usize::from(how >> 2) % TOPICS.len()];
        if let Some(link) = self.links[client].as_mut().filter(|_| qos == Qos::AtLeastOnce) {
            let expected = self.store.wants(topic).then_some(payload);
            link.unconfirmed.entry(id).or_default().push_back(expected);
        }
        self.feed(client, |version, out| {
            let outgoing = Outgoing {
                version,
                qos,
                retain: how & 0x10 != 0,
                dup: false,
                id,
                topic,
                payload: &payload.to_be_bytes(),
                lasting: &[],
                expiry_s: (how & 0x08 != 0 && version == Version::V5).then_some(1),
                subscription_ids: &[],
            };
            outgoing.write(out);
        });
    }

    fn feed(&mut self, client: usize, write: impl FnOnce(Version, &mut Vec<u8>)) {
        let Some(link) = &mut self.links[client] else { return };
        if link.to_broker.len() < 8_192 {
            write(link.version, &mut link.to_broker);
        }
        let fed = self.broker.feed(self.now, link.key, &link.to_broker);
        assert!(fed.consumed <= link.to_broker.len());
        link.to_broker.drain(..fed.consumed);
    }

    /// Reads what the broker has to say.
    fn collect(&mut self) {
        let mut dirty = Vec::new();
        self.broker.dirty(&mut dirty);
        while let Some(key) = dirty.pop() {
            let mut bytes = Vec::new();
            let is_closing = self.broker.take(key, &mut bytes);
            let client = self.links.iter().position(|link| link.as_ref().is_some_and(|link| link.key == key));
            if let Some(client) = client {
                self.read(client, &bytes);
                if is_closing {
                    self.lose(client);
                }
            } else if is_closing {
                self.broker.lost(self.now, key);
            }
            self.broker.dirty(&mut dirty);
        }
    }

    fn read(&mut self, client: usize, mut bytes: &[u8]) {
        let link = self.links[client].as_mut().expect("it is spoken to");
        while let Some(frame) = split(bytes, Some(link.version), 4_096).expect("the broker speaks well") {
            bytes = &bytes[frame.bytes..];
            let packet = decode(frame, link.version).expect("the broker speaks well");
            if let Packet::Puback { id, reason } = packet
                && client < SOUND
            {
                let payload = link.unconfirmed.get_mut(&id).and_then(VecDeque::pop_front).expect("it was published");
                let is_durable = payload.is_none_or(|payload| self.durable.contains(&payload));
                assert!(reason.is_failure() || is_durable, "message {payload:?} is confirmed and not durable");
            }
        }
        assert!(bytes.is_empty(), "the broker sends whole packets");
    }

    fn check(&self) {
        let (counts, limits) = (self.broker.counts(), limits());
        assert!(counts.retained <= limits.retained_max as u64);
        assert_eq!(counts.sessions, self.broker.sessions().len() as u64);
        assert!(counts.connections <= CLIENTS.len() as u64);
        assert!(counts.queued_bytes <= limits.queued_bytes_total_max as u64);
    }
}

fn subscribe(version: Version, how: u8, out: &mut Vec<u8>) {
    let options = SubscriptionOptions {
        qos: Qos::new(how % 3).expect("it is one"),
        retain_handling: how >> 6 & 1,
        retain_as_published: how & 0x20 != 0,
        no_local: false,
    };
    let filter = FILTERS[usize::from(how >> 2) % FILTERS.len()];
    let subscription = (how & 0x10 != 0 && version == Version::V5).then_some(7);
    encode::subscribe(out, 2, &[SubscribeEntry { filter, options }], subscription, version);
}
