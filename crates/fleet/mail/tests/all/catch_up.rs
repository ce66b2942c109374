//! After a long absence: much mail waits, and what is new to others does not wait behind it.

use crate::support::{Memory, Receiver, Sender, household, letter};
use mail::{Config, Message};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

const WAITING: u64 = 100_000;
/// One way.
const LINK: Duration = Duration::from_millis(10);
const SYNC: Duration = Duration::from_millis(5);
/// A letter for somebody else, so often.
const LIVE: Duration = Duration::from_millis(50);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    ToReceiver(Vec<u8>),
    ToSender(Vec<u8>),
    Live,
    Poll,
}

#[test]
fn a_hundred_thousand_letters_are_there_within_30_s_and_live_mail_goes_first() {
    let mut sender = Sender::open(Config::new(household("a"), 1), 1, Memory::default());
    let mut receiver = Receiver::open("b", Memory::default());
    let mut other = Receiver::open("c", Memory::default());
    let mail: Vec<_> = (0..1_000).map(|id| (household("b"), letter(&id.to_string(), 100))).collect();
    (0..WAITING / 1_000).for_each(|_| sender.push_letters(&mail));
    let mut agenda = BinaryHeap::new();
    let mut counter = 0;
    let mut at = |agenda: &mut BinaryHeap<_>, time: Duration, what: Happening| {
        counter += 1;
        agenda.push(Reverse((time, counter, what)));
    };
    at(&mut agenda, Duration::ZERO, Happening::Poll);
    at(&mut agenda, Duration::ZERO, Happening::Live);
    let (mut now, mut live_pushed, mut live_late) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    while (receiver.got.len() as u64) < WAITING {
        let Some(Reverse((time, _, what))) = agenda.pop() else { panic!("nothing happens any more") };
        now = time;
        match what {
            Happening::ToReceiver(bytes) => {
                // One sync for each parcel; the disk is as slow as a good SD card.
                let (commit, _) = receiver.take(&bytes, usize::MAX);
                for receipt in commit.into_iter().flat_map(|commit| receiver.inbox.durable(commit)) {
                    at(&mut agenda, now + SYNC + LINK, Happening::ToSender(receipt.write()));
                }
            }
            Happening::ToSender(bytes) => {
                let Ok(Message::Receipt(receipt)) = Message::read(&bytes) else { panic!("it is no receipt") };
                sender.hear(&receipt, now);
            }
            Happening::Live => {
                sender.push("c", &["live"]);
                live_pushed = now;
                at(&mut agenda, now + LIVE, Happening::Live);
            }
            Happening::Poll => {}
        }
        while let Some(sent) = sender.outbox.poll(now, &sender.memory) {
            if sent.to == household("b") {
                at(&mut agenda, now + LINK, Happening::ToReceiver(sent.bytes));
            } else {
                live_late = live_late.max(now - live_pushed);
                let receipt = other.hear(&sent.bytes).expect("it is answered");
                at(&mut agenda, now + SYNC + 2 * LINK, Happening::ToSender(receipt.write()));
            }
        }
        if let Some(next) = sender.outbox.next_poll(now).filter(|next| *next > now) {
            at(&mut agenda, next, Happening::Poll);
        }
    }
    println!("{WAITING} letters in {now:?}; live mail left at most {live_late:?} late");
    assert!(now <= Duration::from_secs(30), "{now:?}");
    assert!(now >= Duration::from_secs(3), "it is not paced: {now:?}");
    assert_eq!(live_late, Duration::ZERO);
    assert!(other.got.len() > 10, "live mail stood still");
}
