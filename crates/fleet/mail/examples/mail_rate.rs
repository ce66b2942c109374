//! Measures mail alone: letters a second through outbox and inbox, with records in memory and no disk or socket.
//!
//! cargo run --release -p mail --example mail_rate

use event::Event;
use mail::{Config, Home, Household, Inbox, Letter, Message, Outbox, Records, Write};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const LETTERS: usize = 100_000;
/// Pushes of one letter each, as most functions make them.
const ROUND: usize = 200;

#[derive(Default)]
struct Memory(HashMap<Vec<u8>, Vec<u8>>);

impl Records for Memory {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(key).cloned()
    }
}

impl Memory {
    fn write(&mut self, writes: Vec<Write>) {
        for Write { key, value } in writes {
            match value {
                Some(value) => drop(self.0.insert(key, value)),
                None => drop(self.0.remove(&key)),
            }
        }
    }
}

fn main() {
    for data_bytes in [100, 1_000, 10_000] {
        run(data_bytes);
    }
}

fn run(data_bytes: usize) {
    let (a, b) = (Household::new("a").expect("a name"), Household::new("b").expect("a name"));
    let event =
        Event { id: "meter-7/123456".into(), kind: "reading".into(), data: vec![7; data_bytes], ..Event::default() };
    let letter = Letter { queue: "readings".into(), delay: Duration::ZERO, life: None, event };
    let home = Some(Home { node: "n", epoch: 1 });
    let mut outbox = Outbox::open(Config::new(a, 1), [1; 16], []).expect("there are no records");
    let mut inbox = Inbox::open(b.clone(), 1, []).expect("there are no records");
    let mut memory = Memory::default();
    let (mut pushing, mut sending, mut taking, mut confirming) = Default::default();
    let mut wire_bytes = 0;
    let mut taken = 0;
    while taken < LETTERS {
        timed(&mut pushing, || {
            for _ in 0..ROUND {
                let mail = [(b.clone(), letter.write().expect("it is small"))];
                let mut staged = outbox.stage(&mail).expect("there is room");
                memory.write(std::mem::take(&mut staged.writes));
                let commit = outbox.committed(staged);
                outbox.durable(commit);
            }
        });
        let now = Duration::from_secs(taken as u64);
        while let Some(sent) = timed(&mut sending, || outbox.poll(now, &memory)) {
            wire_bytes += sent.bytes.len();
            let receipts = timed(&mut taking, || {
                let Ok(Message::Parcel(parcel)) = Message::read(&sent.bytes) else { panic!("no parcel") };
                let arrival = inbox.arrive(&parcel, "n", home).expect("it is believed");
                let count = arrival.steps.len();
                for (letter, _) in &arrival.steps {
                    Letter::read(letter, "a").expect("it is a letter");
                }
                taken += count;
                assert!(inbox.record(&arrival, count).is_some());
                let (commit, _) = inbox.committed(&arrival, count);
                inbox.durable(commit.expect("letters were taken"))
            });
            timed(&mut confirming, || {
                for receipt in receipts {
                    let received = outbox.receive(&receipt, "n", home, now, &memory).expect("it is believed");
                    memory.write(received.writes);
                }
            });
        }
    }
    let rate = |time: Duration| taken as f64 / time.as_secs_f64() / 1e3;
    let all = rate(pushing + sending + taking + confirming);
    let each = wire_bytes / taken;
    println!(
        "{data_bytes:>6} B of data: push {:.0}k/s, send {:.0}k/s, take {:.0}k/s, confirm {:.0}k/s; all on one core \
         {all:.0}k/s; {each} B on the wire each",
        rate(pushing),
        rate(sending),
        rate(taking),
        rate(confirming),
    );
}

fn timed<T>(total: &mut Duration, what: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let made = what();
    *total += begun.elapsed();
    made
}
