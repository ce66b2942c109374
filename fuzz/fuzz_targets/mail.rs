//! Any bytes are mail or a typed error; what is read is written as it was, and neither inbox nor outbox breaks over it.
#![no_main]

use lighter_fuzz::fuzz_target;
use mail::{Config, Home, Household, Inbox, Letter, Message, Outbox, Parcel, Receipt, Records};
use std::time::Duration;

const HOME: Home<'static> = Home { node: "node", epoch: 7 };

/// Whatever is asked for, the input is the record.
struct Same<'a>(&'a [u8]);

impl Records for Same<'_> {
    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        Some(self.0.to_vec())
    }
}

fuzz_target!(|data: &[u8]| {
    check(data);
    if let Some(sound) = mail::sealed_anew(data) {
        check(&sound);
    }
    // As a letter, and as records of both tables.
    if let Ok(letter) = Letter::read(data, "a") {
        let written = letter.write().expect("what was read can be written");
        assert_eq!(Letter::read(&written, "a"), Ok(letter));
    }
    let household = Household::new("b").expect("it is a name");
    let _ = Inbox::open(household.clone(), 1, [(b"\x03a".to_vec(), data.to_vec())]);
    if let Ok(mut outbox) = Outbox::open(Config::new(household, 1), [0; 16], [(b"\x01a".to_vec(), data.to_vec())]) {
        let _ = outbox.poll(Duration::ZERO, &Same(data));
    }
});

fn check(bytes: &[u8]) {
    match Message::read(bytes) {
        Ok(Message::Parcel(parcel)) => {
            assert_eq!(parcel.write(), bytes);
            take(&parcel);
        }
        Ok(Message::Receipt(receipt)) => {
            assert_eq!(receipt.write(), bytes);
            receive(&receipt);
        }
        Err(_) => {}
    }
}

/// Takes half of a parcel, and then all of it.
fn take(parcel: &Parcel<'_>) {
    let home = Some(Home { epoch: parcel.epoch, ..HOME });
    let mut inbox = Inbox::open(parcel.to.clone(), 1, []).expect("there are no records");
    let mut taken = 0;
    for part in [2, 1] {
        let arrival = inbox.arrive(parcel, HOME.node, home).expect("it is believed");
        let count = arrival.steps.len().div_ceil(part);
        for (letter, _) in &arrival.steps {
            let _ = Letter::read(letter, parcel.from.as_str());
        }
        let _ = inbox.record(&arrival, count);
        let (commit, _) = inbox.committed(&arrival, count);
        taken += count;
        for receipt in commit.into_iter().flat_map(|commit| inbox.durable(commit)) {
            let written = receipt.write();
            assert_eq!(Message::read(&written), Ok(Message::Receipt(receipt)));
        }
    }
    assert!(taken <= parcel.letters.len());
}

/// A receipt for an outbox that holds three letters, two of them sent.
fn receive(receipt: &Receipt) {
    let mut outbox = Outbox::open(Config::new(receipt.to.clone(), 1), [0; 16], []).expect("there are no records");
    let letters = [b"1", b"2", b"3"].map(|letter| (receipt.from.clone(), letter.to_vec()));
    let staged = outbox.stage(&letters).expect("there is room");
    let value = staged.writes[1].value.clone().expect("it is a letter");
    let commit = outbox.committed(staged);
    outbox.durable(commit);
    let home = Some(Home { epoch: receipt.epoch, ..HOME });
    let received = outbox.receive(receipt, HOME.node, home, Duration::ZERO, &Same(&value)).expect("it is believed");
    assert!(received.writes.len() <= 4);
    let _ = outbox.poll(Duration::from_secs(60), &Same(&value));
}
