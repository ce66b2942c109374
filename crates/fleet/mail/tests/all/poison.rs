//! What is wrong with mail is noticed, and nothing is dropped or taken in silence.

use crate::support::{HOME, Memory, NODE, Receiver, Sender, household, id_of, letter, parcel, settle};
use mail::{Bounds, Config, Doubt, Home, Message, NotTaken, Notice, PushError, Verdict};
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1);

fn config() -> Config {
    Config::new(household("a"), 1)
}

fn pair() -> (Sender, Receiver) {
    (Sender::open(config(), 1, Memory::default()), Receiver::open("b", Memory::default()))
}

#[test]
fn letters_arrive_once_in_order_and_are_gone_when_confirmed() {
    let (mut sender, mut receiver) = pair();
    sender.push("b", &["1", "2"]);
    let first = sender.poll(NOW).expect("something is sent");
    sender.push("b", &["3"]);
    assert_eq!(settle(&mut sender, &mut receiver, NOW), []);
    // It had been lost on the way, and the rest came before it.
    assert_eq!(receiver.ids(), ["1", "2", "3"]);
    let again = receiver.hear(&first).expect("what came before is answered");
    assert_eq!((again.verdict, again.expects, receiver.got.len()), (Verdict::Taken, 4, 3));
    assert_eq!((sender.outbox.counts().letters, sender.outbox.next_poll(NOW)), (0, None));
    assert_eq!(sender.memory.0.len(), 1, "only the stream is left");
}

#[test]
fn a_number_from_the_future_is_asked_for_and_not_taken() {
    let (mut sender, mut receiver) = pair();
    sender.push("b", &["1"]);
    sender.poll(NOW).expect("this one is lost");
    sender.push("b", &["2"]);
    let second = sender.poll(NOW).expect("something is sent");
    let answer = receiver.hear(&second).expect("it is answered");
    assert_eq!((answer.verdict, answer.expects, receiver.got.len()), (Verdict::Gap, 1, 0));
    assert_eq!(sender.hear(&answer, NOW), None);
    settle(&mut sender, &mut receiver, NOW);
    assert_eq!(receiver.ids(), ["1", "2"]);
}

#[test]
fn only_the_home_may_speak_and_only_under_its_epoch() {
    let (mut sender, mut receiver) = pair();
    sender.push("b", &["1"]);
    let bytes = sender.poll(NOW).expect("something is sent");
    let forged = receiver.refuses(&bytes, "another", Some(HOME));
    assert_eq!(forged, NotTaken::Doubted(Doubt::Forged, None), "a forger gets no answer");
    for (home, doubt, verdict) in [
        (Some(Home { node: NODE, epoch: 2 }), Doubt::Over, Verdict::Over),
        (None, Doubt::Unknown, Verdict::Unknown),
        (Some(Home { node: NODE, epoch: 0 }), Doubt::Unknown, Verdict::Unknown),
    ] {
        let NotTaken::Doubted(found, Some(receipt)) = receiver.refuses(&bytes, NODE, home) else { panic!("{doubt:?}") };
        assert_eq!((found, receipt.verdict), (doubt, verdict));
    }
    let mut other = parcel(&bytes);
    other.to = household("c");
    assert_eq!(receiver.refuses(&other.write(), NODE, Some(HOME)), NotTaken::Misdirected);
    assert_eq!(receiver.got.len(), 0);
    // Once a later epoch was seen, what is known of homes may be old: the earlier epoch stays over.
    let later = Home { node: NODE, epoch: 2 };
    let mut newer = parcel(&bytes);
    newer.epoch = 2;
    let arrival = receiver.inbox.arrive(&newer, NODE, Some(later)).expect("it is believed");
    receiver.inbox.committed(&arrival, 1);
    assert!(matches!(receiver.refuses(&bytes, NODE, Some(HOME)), NotTaken::Doubted(Doubt::Over, Some(_))));
}

#[test]
fn a_sender_learns_that_its_epoch_is_over() {
    let (mut sender, mut receiver) = pair();
    sender.push("b", &["1"]);
    let bytes = sender.poll(NOW).expect("something is sent");
    let over = receiver.refuses(&bytes, NODE, Some(Home { node: NODE, epoch: 2 }));
    let NotTaken::Doubted(_, Some(receipt)) = over else { panic!("{over:?}") };
    assert_eq!(sender.hear(&receipt, NOW), Some(Notice::Over { to: household("b") }));
    assert_eq!(sender.outbox.counts().letters, 1);
}

#[test]
fn a_number_used_again_for_another_letter_is_noticed_and_both_letters_arrive() {
    let (mut sender, mut receiver) = pair();
    sender.push("b", &["1"]);
    let backup = sender.memory.clone();
    sender.push("b", &["2", "3"]);
    settle(&mut sender, &mut receiver, NOW);
    // Restored from the backup, it gives the numbers 2 and 3 again; and to the receiver's disk all three are known.
    let mut sender = Sender::open(config(), 2, backup);
    sender.push("b", &["two", "three"]);
    let notices = settle(&mut sender, &mut receiver, NOW);
    assert_eq!(notices, [Notice::RolledBack { to: household("b"), incarnation: 2, waiting: 3 }]);
    // What waited in the backup comes twice.
    assert_eq!(receiver.ids(), ["1", "2", "3", "1", "two", "three"]);
    assert_eq!(sender.outbox.counts().letters, 0);
}

#[test]
fn a_restored_sender_with_more_letters_than_before_is_noticed_by_the_chain() {
    let (mut sender, mut receiver) = pair();
    let backup = sender.memory.clone();
    sender.push("b", &["1", "2"]);
    settle(&mut sender, &mut receiver, NOW);
    let mut sender = Sender::open(config(), 2, backup);
    sender.push("b", &["one", "two", "three"]);
    let notices = settle(&mut sender, &mut receiver, NOW);
    assert!(matches!(notices[..], [Notice::RolledBack { waiting: 3, .. }]), "{notices:?}");
    assert_eq!((receiver.ids().join(" "), receiver.forked), ("1 2 one two three".to_owned(), 1));
}

#[test]
fn a_sender_restored_to_a_time_before_it_began_another_incarnation_is_heard_again() {
    let (mut sender, mut receiver) = pair();
    let first = sender.memory.clone();
    sender.push("b", &["1"]);
    settle(&mut sender, &mut receiver, NOW);
    let mut sender = Sender::open(config(), 2, first);
    sender.push("b", &["one"]);
    let second = sender.memory.clone();
    assert!(matches!(settle(&mut sender, &mut receiver, NOW)[..], [Notice::RolledBack { incarnation: 2, .. }]));
    // The receiver knows incarnation 2 and the very letter that waits in this backup of incarnation 1.
    let mut sender = Sender::open(config(), 3, second);
    sender.push("b", &["two"]);
    assert!(matches!(settle(&mut sender, &mut receiver, NOW)[..], [Notice::RolledBack { incarnation: 3, .. }]));
    assert_eq!(receiver.ids(), ["1", "one", "one", "two"]);
    assert_eq!(sender.outbox.counts().letters, 0);
}

#[test]
fn a_restored_receiver_tells_what_it_has_lost_and_goes_on() {
    let (mut sender, mut receiver) = pair();
    sender.push("b", &["1"]);
    settle(&mut sender, &mut receiver, NOW);
    let backup = receiver.memory.clone();
    sender.push("b", &["2", "3"]);
    settle(&mut sender, &mut receiver, NOW);
    let mut receiver = Receiver::open("b", backup);
    sender.push("b", &["4"]);
    assert_eq!(settle(&mut sender, &mut receiver, NOW), []);
    assert_eq!((receiver.ids(), receiver.lost), (vec!["4".to_owned()], 2));
    // With nothing left of it, it tells the same.
    let mut receiver = Receiver::open("b", Memory::default());
    sender.push("b", &["5"]);
    settle(&mut sender, &mut receiver, NOW);
    assert_eq!((receiver.ids(), receiver.lost), (vec!["5".to_owned()], 4));
}

#[test]
fn a_full_queue_leaves_the_mail_waiting() {
    let (mut sender, mut receiver) = pair();
    sender.push("b", &["1", "2", "3"]);
    let bytes = sender.poll(NOW).expect("something is sent");
    let (commit, full) = receiver.take(&bytes, 1);
    let full = full.expect("it says that the queue is full");
    assert_eq!((full.verdict, full.expects), (Verdict::Full, 2));
    sender.hear(&full, NOW);
    for receipt in receiver.inbox.durable(commit.expect("one is taken")) {
        sender.hear(&receipt, NOW);
    }
    assert_eq!(sender.outbox.counts().letters, 2);
    assert_eq!(sender.poll(NOW), None, "it rests");
    let later = sender.outbox.next_poll(NOW).expect("it will try again");
    assert!(later > NOW && later <= NOW + Duration::from_secs(1));
    let offer = sender.poll(later).expect("it offers");
    assert_eq!(parcel(&offer).letters.len(), 1);
    let receipt = receiver.hear(&offer).expect("there is room now");
    sender.hear(&receipt, later);
    settle(&mut sender, &mut receiver, later);
    assert_eq!(receiver.ids(), ["1", "2", "3"]);
}

#[test]
fn an_outbox_has_bounds_and_one_receiver_takes_half_of_it() {
    let bounds = Bounds { letters_max: 4, bytes_max: 100_000 };
    let mut sender = Sender::open(Config { bounds, ..config() }, 1, Memory::default());
    sender.push("b", &["1", "2"]);
    let one = |to: &str| vec![(household(to), letter("x", 10))];
    assert_eq!(sender.outbox.stage(&one("b")).err(), Some(PushError::Full(household("b"))));
    sender.push("c", &["3", "4"]);
    assert_eq!(sender.outbox.stage(&one("d")).err(), Some(PushError::Full(household("d"))));
    assert_eq!(sender.outbox.stage(&one("a")).err(), Some(PushError::ToItself));
    let large = vec![(household("d"), vec![0; mail::LETTER_BYTES_MAX + 1])];
    assert!(matches!(sender.outbox.stage(&large), Err(PushError::TooLarge(_))));
    assert_eq!(sender.outbox.counts().letters, 4);
}

#[test]
fn what_is_in_flight_is_bounded_by_the_window() {
    let mut sender =
        Sender::open(Config { window_bytes: 4_000, parcel_bytes: 1_000, ..config() }, 1, Memory::default());
    for _ in 0..100 {
        sender.push("b", &["x"]);
    }
    let sent: usize = std::iter::from_fn(|| sender.poll(NOW)).map(|bytes| bytes.len()).sum();
    assert!((3_000..=6_000).contains(&sent), "{sent} bytes in flight");
    // Unanswered, it only asks, and more and more rarely.
    let (mut now, mut asked) = (NOW, 0);
    while now < NOW + Duration::from_secs(300) {
        now = sender.outbox.next_poll(now).expect("it waits for an answer");
        while let Some(bytes) = sender.poll(now) {
            assert_eq!(parcel(&bytes).letters.len(), 0);
            asked += 1;
        }
    }
    assert!((10..=20).contains(&asked), "asked {asked} times in 300 s");
}

#[test]
fn damaged_bytes_are_no_mail() {
    let (mut sender, mut receiver) = pair();
    sender.push("b", &["1", "2"]);
    let bytes = sender.poll(NOW).expect("something is sent");
    let receipt = receiver.hear(&bytes).expect("it is answered").write();
    for message in [bytes, receipt] {
        for bit in 0..message.len() * 8 {
            let mut damaged = message.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Message::read(&damaged).is_err(), "bit {bit} makes no difference");
        }
        for cut in 0..message.len() {
            assert!(Message::read(&message[..cut]).is_err(), "{cut} bytes are a message");
        }
        assert!(Message::read(&[&message[..], &[0]].concat()).is_err());
    }
}

#[test]
fn letters_for_a_receiver_that_is_gone_come_back_in_order_and_leave_nothing() {
    let (mut sender, mut receiver) = pair();
    let ids: Vec<String> = (0..10).map(|id| id.to_string()).collect();
    sender.push("b", &ids.iter().map(String::as_str).collect::<Vec<_>>());
    let sent = sender.poll(NOW).expect("something is sent");
    let (mut back, to) = (Vec::new(), household("b"));
    assert_eq!(sender.outbox.receivers().collect::<Vec<_>>(), [&to]);
    while let Some(mut some) = sender.outbox.take_back(&to, 4, &sender.memory) {
        assert!(some.letters.len() <= 4);
        back.append(&mut some.letters);
        sender.memory.write(std::mem::take(&mut some.writes));
        sender.outbox.taken_back(some);
    }
    assert_eq!(back.iter().map(|letter| id_of(letter)).collect::<Vec<_>>(), ids);
    assert_eq!((sender.outbox.counts().letters, sender.outbox.next_poll(NOW)), (0, None));
    assert_eq!((sender.memory.0.len(), sender.outbox.receivers().count()), (1, 0), "only the stream is left");
    // A receipt that was on its way, and a new life, find all in order.
    let (commit, receipt) = receiver.take(&sent, 10);
    let late = receipt.into_iter().chain(commit.into_iter().flat_map(|commit| receiver.inbox.durable(commit)));
    late.collect::<Vec<_>>().iter().for_each(|receipt| drop(sender.hear(receipt, NOW)));
    let mut sender = Sender::open(config(), 2, sender.memory);
    sender.push("b", &["10"]);
    assert_eq!(settle(&mut sender, &mut receiver, NOW), []);
    assert_eq!(receiver.ids().last().map(String::as_str), Some("10"));
}
