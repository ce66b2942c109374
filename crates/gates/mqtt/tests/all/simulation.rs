//! The broker between clients that vanish and a disk that loses what it has not confirmed, in virtual time.
//!
//! One seed decides everything: which bytes arrive when, who disconnects, when the broker dies and how much of what was
//! not yet durable survives. Afterwards everybody comes back, and then: what was confirmed has arrived; with QoS 2
//! exactly once, at functions and at subscribers. `SEEDS=100000 cargo test --release -p gate-mqtt --test all
//! simulation` runs more seeds, `SEED=7` one of them.

use crate::client::{Client, Link, message_of, qos_of};
use budget::Budget;
use gate_mqtt::broker::{Broker, Now};
use gate_mqtt::codec::Qos;
use gate_mqtt::{Changes, Identity, Limits, Node, Refused, Users};
use parking_lot::Mutex;
use problem::{Code, Problem};
use random::Random;
use std::collections::BTreeMap;
use std::sync::Arc;

const SEEDS: u64 = 400;
const STEPS: u64 = 400;
const MESSAGES: u64 = 12;

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

impl World {
    fn new(seed: u64) -> Self {
        let store = Arc::new(Store::default());
        let now = Now { steady_ms: 1_000, unix_ms: 1_000_000 };
        let broker = Broker::new(limits(), store.clone(), &Users::open(), &Budget::new(1 << 30), now)
            .expect("an empty disk can be read");
        let mut random = Random(seed);
        let clients = (0..4).map(|number| Client::new(number, &mut random)).collect();
        let identity = Arc::new(Users::open().unasked(None, "").expect("everybody may"));
        Self { random, broker, store, clients, now, identity }
    }

    fn step(&mut self) {
        let client = self.random.below(self.clients.len() as u64) as usize;
        self.now.steady_ms += 10;
        self.now.unix_ms += 10;
        match self.random.below(100) {
            0..=1 => self.crash(),
            2..=5 => self.disconnect(client),
            6..=9 => self.broker.do_due(self.now),
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
        self.broker = Broker::new(limits(), self.store.clone(), &Users::open(), &Budget::new(1 << 30), self.now)
            .expect("what was written can be read");
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
        let Some(link) = &client.connection else { return };
        let sent = link.to_client.len();
        client.read(if all { sent } else { self.random.below(sent as u64 + 1) as usize });
    }

    /// The client connects, subscribes or publishes.
    fn act(&mut self, place: usize) {
        let client = &mut self.clients[place];
        if client.connection.is_some() {
            return client.publish();
        }
        let connect = client.hello();
        let key = self.broker.connect(self.now, &connect, self.identity.clone(), "").expect("clients are let in");
        client.connection = Some(Link::new(key));
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
            self.broker.do_due(self.now);
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
