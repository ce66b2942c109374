//! One end of a stream: its records in memory, and the calls that a node makes.

use event::Event;
use mail::{
    Arrival, Commit, Config, Home, Household, Inbox, Letter, Message, NotTaken, Notice, Outbox, Parcel, Receipt,
    Records, Write, is_inbox, is_outbox,
};
use std::collections::BTreeMap;
use std::time::Duration;

pub const NODE: &str = "node";
pub const HOME: Home<'static> = Home { node: NODE, epoch: 1 };

#[derive(Clone, Default)]
pub struct Memory(pub BTreeMap<Vec<u8>, Vec<u8>>);

impl Records for Memory {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(key).cloned()
    }
}

impl Memory {
    pub fn write(&mut self, writes: impl IntoIterator<Item = Write>) {
        for Write { key, value } in writes {
            match value {
                Some(value) => drop(self.0.insert(key, value)),
                None => drop(self.0.remove(&key)),
            }
        }
    }

    fn with(&self, is_wanted: fn(&[u8]) -> bool) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.0.iter().filter(|(key, _)| is_wanted(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

pub fn household(name: &str) -> Household {
    Household::new(name).expect("it is a name")
}

pub fn letter(id: &str, data_bytes: usize) -> Vec<u8> {
    let event =
        Event { id: id.to_owned(), kind: "t".into(), attempt: 1, data: vec![0; data_bytes], ..Event::default() };
    let letter = Letter { queue: "q".into(), delay: Duration::ZERO, life: None, event };
    letter.write().expect("it is small")
}

pub fn id_of(letter: &[u8]) -> String {
    Letter::read(letter, "a").expect("it is a letter").event.id
}

/// A sender whose disk is as fast as memory.
pub struct Sender {
    pub outbox: Outbox,
    pub memory: Memory,
}

impl Sender {
    pub fn open(config: Config, nonce: u8, memory: Memory) -> Self {
        let outbox = Outbox::open(config, [nonce; 16], memory.with(is_outbox)).expect("records are sound");
        Self { outbox, memory }
    }

    pub fn push(&mut self, to: &str, ids: &[&str]) {
        let mail: Vec<_> = ids.iter().map(|id| (household(to), letter(id, 10))).collect();
        self.push_letters(&mail);
    }

    pub fn push_letters(&mut self, mail: &[(Household, Vec<u8>)]) {
        let mut staged = self.outbox.stage(mail).expect("there is room");
        self.memory.write(std::mem::take(&mut staged.writes));
        let commit = self.outbox.committed(staged);
        self.outbox.durable(commit);
    }

    pub fn poll(&mut self, now: Duration) -> Option<Vec<u8>> {
        self.outbox.poll(now, &self.memory).map(|sent| sent.bytes)
    }

    pub fn hear(&mut self, receipt: &Receipt, now: Duration) -> Option<Notice> {
        let received = self.outbox.receive(receipt, NODE, Some(HOME), now, &self.memory).expect("it is believed");
        self.memory.write(received.writes);
        if let Some(commit) = received.commit {
            self.outbox.durable(commit);
        }
        received.notice
    }
}

/// A receiver, and the letters it has got.
pub struct Receiver {
    pub inbox: Inbox,
    pub memory: Memory,
    pub got: Vec<Vec<u8>>,
    pub lost: u64,
    pub forked: u64,
}

impl Receiver {
    pub fn open(name: &str, memory: Memory) -> Self {
        let inbox = Inbox::open(household(name), 1, memory.with(is_inbox)).expect("records are sound");
        Self { inbox, memory, got: Vec::new(), lost: 0, forked: 0 }
    }

    /// Takes what there is room for. The commit, and the receipt that goes out at once.
    pub fn take(&mut self, bytes: &[u8], room: usize) -> (Option<Commit>, Option<Receipt>) {
        let parcel = parcel(bytes);
        let arrival: Arrival<'_> = self.inbox.arrive(&parcel, NODE, Some(HOME)).expect("it is believed");
        let count = arrival.steps.len().min(room);
        self.got.extend(arrival.steps[..count].iter().map(|(letter, _)| letter.to_vec()));
        self.lost += arrival.lost.map_or(0, |lost| lost.last - lost.first + 1);
        self.forked += u64::from(arrival.is_forked);
        self.memory.write(self.inbox.record(&arrival, count));
        let (commit, full) = self.inbox.committed(&arrival, count);
        (commit, arrival.answer.or(full))
    }

    /// Takes all, on a disk as fast as memory: the last receipt.
    pub fn hear(&mut self, bytes: &[u8]) -> Option<Receipt> {
        let (commit, answer) = self.take(bytes, usize::MAX);
        commit.and_then(|commit| self.inbox.durable(commit).pop()).or(answer)
    }

    pub fn refuses(&mut self, bytes: &[u8], by: &str, home: Option<Home<'_>>) -> NotTaken {
        self.inbox.arrive(&parcel(bytes), by, home).expect_err("it is refused")
    }

    pub fn ids(&self) -> Vec<String> {
        self.got.iter().map(|letter| id_of(letter)).collect()
    }
}

pub fn parcel(bytes: &[u8]) -> Parcel<'_> {
    match Message::read(bytes).expect("it is a message") {
        Message::Parcel(parcel) => parcel,
        Message::Receipt(receipt) => panic!("{receipt:?} is no parcel"),
    }
}

/// Everything that waits goes over, one message after the other.
pub fn settle(sender: &mut Sender, receiver: &mut Receiver, now: Duration) -> Vec<Notice> {
    let mut notices = Vec::new();
    while let Some(bytes) = sender.poll(now) {
        if let Some(receipt) = receiver.hear(&bytes) {
            notices.extend(sender.hear(&receipt, now));
        }
    }
    notices
}
