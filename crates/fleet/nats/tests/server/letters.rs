//! The protocol of `crates/fleet/mail` over real servers: letters go both ways between two households while servers are
//! killed and lose everything. Each arrives once, in its order.

use crate::name;
use crate::process::kill;
use crate::town::{Stage, Town, until};
use event::Event;
use facts::{Heard, NodeName, Post as _};
use fleet_nats::{EngineState, NatsNode};
use mail::{Config, Home, Household, Inbox, Letter, Message, Outbox, Parcel, Receipt, Records, Write};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Letters of each of the two.
const LETTERS: u32 = 300;
/// The epoch of both homes.
const EPOCH: u64 = 1;

/// A household at home, on a disk that keeps everything at once.
struct Life {
    own: Household,
    other: Household,
    outbox: Outbox,
    inbox: Inbox,
    disk: Disk,
    arrived: Vec<String>,
    pushed: u32,
    began: Instant,
}

#[derive(Default)]
struct Disk(BTreeMap<Vec<u8>, Vec<u8>>);

impl Disk {
    fn commit(&mut self, writes: Vec<Write>) {
        for Write { key, value } in writes {
            match value {
                Some(value) => _ = self.0.insert(key, value),
                None => _ = self.0.remove(&key),
            }
        }
    }
}

impl Records for Disk {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(key).cloned()
    }
}

impl Life {
    fn begin(own: &str, other: &str) -> Self {
        let [own, other] = [own, other].map(|name| Household::new(name).unwrap());
        let outbox = Outbox::open(Config::new(own.clone(), EPOCH), [7; 16], []).unwrap();
        let inbox = Inbox::open(own.clone(), EPOCH, []).unwrap();
        let (disk, arrived) = Default::default();
        Self { own, other, outbox, inbox, disk, arrived, pushed: 0, began: Instant::now() }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn push(&mut self) {
        let event = Event { id: self.pushed.to_string(), kind: "t".into(), attempt: 1, ..Event::default() };
        let letter = Letter { queue: "q".into(), delay: Duration::ZERO, life: None, event };
        let mut staged = self.outbox.stage(&[(self.other.clone(), letter.write().unwrap())]).unwrap();
        self.disk.commit(std::mem::take(&mut staged.writes));
        let commit = self.outbox.committed(staged);
        self.outbox.durable(commit);
        self.pushed += 1;
    }

    fn hear(&mut self, bytes: &[u8], by: &NodeName) -> Vec<Receipt> {
        match Message::read(bytes).expect("the engine changes nothing") {
            Message::Parcel(parcel) => self.take(&parcel, by),
            Message::Receipt(receipt) => {
                let (now, home) = (self.now(), Home { node: self.other.as_str(), epoch: EPOCH });
                let received = self.outbox.receive(&receipt, by.as_str(), Some(home), now, &self.disk).unwrap();
                assert!(received.notice.is_none(), "{:?}", received.notice);
                self.disk.commit(received.writes);
                if let Some(commit) = received.commit {
                    self.outbox.durable(commit);
                }
                Vec::new()
            }
        }
    }

    fn take(&mut self, parcel: &Parcel<'_>, by: &NodeName) -> Vec<Receipt> {
        let home = Home { node: self.other.as_str(), epoch: EPOCH };
        let arrival = self.inbox.arrive(parcel, by.as_str(), Some(home)).unwrap();
        assert!(arrival.lost.is_none(), "{:?}", arrival.lost);
        let letters = arrival.steps.iter().map(|(letter, _)| Letter::read(letter, self.other.as_str()).unwrap());
        self.arrived.extend(letters.map(|letter| letter.event.id.to_string()));
        let count = arrival.steps.len();
        self.disk.commit(self.inbox.record(&arrival, count).into_iter().collect());
        let (commit, answer) = self.inbox.committed(&arrival, count);
        let durable = commit.map(|commit| self.inbox.durable(commit)).unwrap_or_default();
        durable.into_iter().chain(arrival.answer.clone()).chain(answer).collect()
    }
}

/// Sends and takes mail until it is stopped.
async fn live(life: Arc<Mutex<Life>>, node: NatsNode) {
    let other = name(life.lock().unwrap().other.as_str());
    loop {
        let (polled, rest) = {
            let mut life = life.lock().unwrap();
            if life.pushed < LETTERS && life.outbox.counts().letters < 20 {
                life.push();
            }
            let now = life.now();
            let Life { outbox, disk, .. } = &mut *life;
            let polled = outbox.poll(now, disk);
            (polled, outbox.next_poll(now).map_or(Duration::from_millis(5), |next| next.saturating_sub(now)))
        };
        if let Some(sent) = &polled {
            // What is not sent is asked for.
            let _ = node.send(&other, &sent.bytes).await;
        }
        let wait = if polled.is_some() { Duration::ZERO } else { rest.min(Duration::from_millis(50)) };
        let answers = match timeout(wait, node.receive()).await {
            Ok(Heard::Message { from, bytes }) => life.lock().unwrap().hear(&bytes, &from),
            Ok(Heard::Back) => {
                let mut life = life.lock().unwrap();
                let (now, other) = (life.now(), life.other.clone());
                life.outbox.wake(&other, now);
                Vec::new()
            }
            Err(_) => Vec::new(),
        };
        for answer in answers {
            let _ = node.send(&other, &answer.write()).await;
        }
    }
}

fn begin(town: &Town, own: &str, other: &str) -> (Arc<Mutex<Life>>, JoinHandle<()>) {
    let life = Arc::new(Mutex::new(Life::begin(own, other)));
    let task = tokio::spawn(live(Arc::clone(&life), town.way(&name(own), false)));
    (life, task)
}

pub async fn arrive_once(stage: &Stage) {
    let mut town = stage.town(1).await;
    let (a, a_task) = begin(&town, "meters", "orders");
    let (b, b_task) = begin(&town, "orders", "meters");
    let arrived = || [&a, &b].map(|life| life.lock().unwrap().arrived.len() as u32);
    let has = |count: u32| arrived().iter().all(|arrived| *arrived >= count);

    until("a third has arrived", async || has(LETTERS / 3)).await;
    let EngineState::Up { process, .. } = town.engines[0].as_ref().unwrap().state() else { panic!("it runs") };
    kill(process, Signal::KILL);
    until("two thirds have arrived", async || has(LETTERS * 2 / 3)).await;
    town.wipe(0);
    town.start(0);
    town.make_streams().await;
    let is_done = |life: &Arc<Mutex<Life>>| {
        let life = life.lock().unwrap();
        life.arrived.len() as u32 >= LETTERS && life.outbox.counts().letters == 0
    };
    until("all has arrived and is confirmed", async || is_done(&a) && is_done(&b)).await;
    for (life, task) in [(a, a_task), (b, b_task)] {
        assert!(!task.is_finished(), "a household has failed");
        task.abort();
        let life = life.lock().unwrap();
        let expected: Vec<String> = (0..LETTERS).map(|number| number.to_string()).collect();
        assert_eq!(life.arrived, expected, "{} has each letter once, in its order", life.own);
    }
}
