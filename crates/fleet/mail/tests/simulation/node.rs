//! The shell around an outbox and an inbox: what a node would do, on a simulated disk.
//!
//! Some shells are broken on purpose, each in one way: see [`Plant`].

use crate::disk::Disk;
use event::Event;
use mail::{
    Arrival, Bounds, Commit, Config, Home, Household, Inbox, Letter, Message, NotTaken, Notice, Outbox, Parcel,
    PushError, Rate, Receipt, Records, Sent, Verdict, Write, is_inbox, is_outbox,
};
use random::Random;
use std::collections::VecDeque;
use std::time::Duration;

/// A fault of the shell that the checker has to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    None,
    /// Messages are believed whatever epoch they are of.
    NoEpochCheck,
    /// Messages are believed whichever node sent them.
    NoSenderCheck,
    /// The receipt goes out before the letters are on the disk.
    ReceiptBeforeSync,
    /// Letters are sent before they are on the disk, so that a crash gives their numbers to others.
    NumberReused,
    /// Letters are deleted once they are sent.
    DeletedAtSend,
    /// Nobody hears that letters are missing.
    GapNotAskedFor,
    /// What came before is taken again.
    DuplicateTaken,
    /// The record of the inbox is not in the transaction of the events.
    RecordLeftOut,
    /// A letter whose queue is full counts as taken.
    FullDropped,
}

pub const PLANTS: [Plant; 9] = [
    Plant::NoEpochCheck,
    Plant::NoSenderCheck,
    Plant::ReceiptBeforeSync,
    Plant::NumberReused,
    Plant::DeletedAtSend,
    Plant::GapNotAskedFor,
    Plant::DuplicateTaken,
    Plant::RecordLeftOut,
    Plant::FullDropped,
];

/// A node that is the home of nobody, and sends as if it were.
pub const STRANGER: &str = "stranger";

const HANDLED: u8 = 8;
const ARRIVED: u8 = 9;
const ARRIVED_COUNT: u8 = 10;

/// A home of a household, up or down.
pub struct Node {
    pub number: usize,
    pub id: String,
    pub epoch: u64,
    pub disk: Disk,
    pub life: Option<Life>,
    /// Where this node believes that households live.
    pub homes: Vec<(String, u64)>,
    pub queue_max: u64,
    pub is_stale: bool,
    pub plant: Plant,
    pub bounds: Bounds,
    pub parcel_bytes: u64,
}

pub struct Life {
    pub outbox: Outbox,
    pub inbox: Inbox,
    waiting: VecDeque<(u64, Side)>,
}

enum Side {
    Outbox(Commit),
    Inbox(Commit),
}

/// What a node did that others see.
#[derive(Default)]
pub struct Done {
    /// To the home of a household, as the node believes.
    pub sent: Vec<(usize, Vec<u8>)>,
    /// Back to the node that a message came from.
    pub answers: Vec<Vec<u8>>,
    pub notice: Option<(usize, Notice)>,
    pub lost: Option<(usize, u64)>,
}

pub fn name(number: usize) -> Household {
    Household::new(["a", "b", "c"][number]).expect("it is a name")
}

pub fn number(name: &Household) -> usize {
    usize::from(name.as_str().as_bytes()[0] - b'a')
}

/// The letter of a push: the same bytes for the same push, so that its content is checked where it arrives.
pub fn letter(push: usize) -> Letter {
    let mut rng = Random(push as u64);
    let data: Vec<u8> = (0..rng.below(60)).map(|_| rng.next() as u8).collect();
    let event = Event { id: push.to_string(), kind: "t".into(), attempt: 1, data, ..Event::default() };
    Letter { queue: "q".into(), delay: Duration::ZERO, life: None, event }
}

/// Sender and push of all that has ever arrived on this disk, in order.
pub fn arrivals(disk: &Disk) -> Result<Vec<(usize, usize)>, String> {
    let read = |(_, value): (&Vec<u8>, &Vec<u8>)| {
        let (from, bytes) = (usize::from(value[0]), &value[1..]);
        let letter_read = Letter::read(bytes, name(from).as_str()).map_err(|error| error.to_string())?;
        let push = letter_read.event.id.parse::<usize>().map_err(|error| error.to_string())?;
        match letter(push).write().is_ok_and(|whole| whole == bytes) {
            true => Ok((from, push)),
            false => Err(format!("{push} is not as it was pushed")),
        }
    };
    disk.all().filter(|(key, _)| key[0] == ARRIVED).map(read).collect()
}

fn count(disk: &Disk, key: &[u8]) -> u64 {
    disk.get(key).and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Node {
    pub fn start(&mut self, nonce: [u8; 16]) {
        // What is read is durable: a process that was killed leaves writes that the disk does not have yet.
        self.disk.sync();
        let config = Config {
            bounds: self.bounds,
            window_bytes: 4 * self.parcel_bytes,
            parcel_bytes: self.parcel_bytes,
            live_letters: 8,
            catch_up: Rate { bytes_a_second: 64 << 10, burst_bytes: 2_048 },
            ..Config::new(name(self.number), self.epoch)
        };
        let outbox = Outbox::open(config, nonce, self.disk.with(is_outbox)).expect("records are sound");
        let inbox = Inbox::open(name(self.number), self.epoch, self.disk.with(is_inbox)).expect("records are sound");
        self.life = Some(Life { outbox, inbox, waiting: VecDeque::new() });
    }

    fn life(&mut self) -> &mut Life {
        self.life.as_mut().expect("the node is up")
    }

    /// One transaction with letters. The commit, if there was room.
    pub fn push(&mut self, to: &[usize], first: usize) -> Result<Option<u64>, String> {
        let letters =
            to.iter().enumerate().map(|(at, to)| (name(*to), letter(first + at).write().expect("it is small")));
        let mail: Vec<_> = letters.collect();
        let mut staged = match self.life().outbox.stage(&mail) {
            Ok(staged) => staged,
            Err(PushError::Full(_)) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let writes = std::mem::take(&mut staged.writes);
        let commit = self.life().outbox.committed(staged);
        let number = self.disk.commit(writes);
        self.life().waiting.push_back((number, Side::Outbox(commit)));
        if self.plant == Plant::NumberReused {
            self.life().outbox.durable(commit);
        }
        let counts = self.life().outbox.counts();
        if counts.letters > self.bounds.letters_max || counts.bytes > self.bounds.bytes_max {
            return Err(format!("the outbox holds {counts:?}"));
        }
        Ok(Some(number))
    }

    /// The disk has all that was written to it.
    pub fn sync(&mut self) -> Done {
        let mut done = Done::default();
        let last = self.disk.sync();
        let life = self.life();
        while let Some((_, side)) = life.waiting.pop_front_if(|(number, _)| *number <= last) {
            match side {
                Side::Outbox(commit) => life.outbox.durable(commit),
                Side::Inbox(commit) => {
                    done.sent.extend(life.inbox.durable(commit).iter().map(|one| (number(&one.to), one.write())));
                }
            }
        }
        done
    }

    pub fn poll(&mut self, now: Duration) -> Result<Option<(usize, Vec<u8>)>, String> {
        let Self { disk, life, .. } = self;
        let life = life.as_mut().expect("the node is up");
        let Some(Sent { to, bytes }) = life.outbox.poll(now, disk) else { return Ok(None) };
        let parcel = match Message::read(&bytes) {
            Ok(Message::Parcel(parcel)) => parcel,
            other => return Err(format!("{other:?} was sent")),
        };
        let letters: usize = parcel.letters.iter().map(|(letter, _)| letter.len()).sum();
        if letters as u64 > self.parcel_bytes && parcel.letters.len() > 1 {
            return Err(format!("a parcel of {letters} bytes"));
        }
        if self.plant == Plant::DeletedAtSend && !parcel.letters.is_empty() {
            self.forget_sent(&parcel, now);
        }
        Ok(Some((number(&to), bytes)))
    }

    fn forget_sent(&mut self, parcel: &Parcel<'_>, now: Duration) {
        let receipt = Receipt {
            from: parcel.to.clone(),
            to: parcel.from.clone(),
            epoch: 1,
            epoch_answered: parcel.epoch,
            incarnation: parcel.incarnation,
            answers: parcel.serial,
            durable: parcel.after(),
            expects: parcel.after().number + 1,
            verdict: Verdict::Taken,
        };
        let Self { disk, life, .. } = self;
        let life = life.as_mut().expect("the node is up");
        let home = Some(Home { node: "it", epoch: 1 });
        let received = life.outbox.receive(&receipt, "it", home, now, disk).expect("it is believed");
        disk.commit(received.writes);
    }

    /// Takes bytes that the node `by` sent, as the transport says.
    pub fn hear(&mut self, bytes: &[u8], by: &str, now: Duration) -> Result<Done, String> {
        match Message::read(bytes) {
            Ok(Message::Parcel(parcel)) => self.take(parcel, by),
            Ok(Message::Receipt(receipt)) => self.settle(&receipt, by, now),
            // Damaged on the way.
            Err(_) => Ok(Done::default()),
        }
    }

    fn take(&mut self, parcel: Parcel<'_>, by: &str) -> Result<Done, String> {
        let mut done = Done::default();
        let from = number(&parcel.from);
        let (node, epoch) = self.home_of(from, by, parcel.epoch);
        let home = Home { node: &node, epoch };
        let (plant, queue_max) = (self.plant, self.queue_max);
        let Self { disk, life, .. } = self;
        let life = life.as_mut().expect("the node is up");
        let arrival = match life.inbox.arrive(&parcel, by, Some(home)) {
            Ok(arrival) => arrival,
            Err(NotTaken::Doubted(_, Some(receipt)) | NotTaken::Crowded(receipt)) => {
                done.answers.push(receipt.write());
                return Ok(done);
            }
            Err(NotTaken::Doubted(_, None) | NotTaken::Misdirected) => return Ok(done),
        };
        let (mut writes, count) = queued(disk, from, &arrival, queue_max, plant);
        if plant == Plant::DuplicateTaken && arrival.steps.is_empty() {
            let again = Arrived { disk, from, queue_max: u64::MAX };
            writes = again.writes(parcel.letters.iter().map(|(letter, _)| *letter)).0;
        }
        done.lost = arrival.lost.map(|lost| (from, lost.last - lost.first + 1));
        writes.extend(life.inbox.record(&arrival, count).filter(|_| plant != Plant::RecordLeftOut));
        let (commit, full) = life.inbox.committed(&arrival, count);
        let answer = arrival.answer.clone().or(full);
        let is_silent = |receipt: &Receipt| plant == Plant::GapNotAskedFor && receipt.verdict == Verdict::Gap;
        done.sent.extend(answer.filter(|one| !is_silent(one)).map(|receipt| (from, receipt.write())));
        if !writes.is_empty() {
            let number = disk.commit(writes);
            life.waiting.extend(commit.map(|commit| (number, Side::Inbox(commit))));
        }
        if let Some(commit) = commit.filter(|_| plant == Plant::ReceiptBeforeSync) {
            done.sent.extend(life.inbox.durable(commit).iter().map(|receipt| (from, receipt.write())));
        }
        Ok(done)
    }

    /// What this node believes of the home of a household, when a message says so.
    fn home_of(&self, household: usize, by: &str, epoch: u64) -> (String, u64) {
        match self.plant {
            Plant::NoEpochCheck if by != STRANGER => (by.to_owned(), epoch),
            Plant::NoSenderCheck => (by.to_owned(), self.homes[household].1),
            _ => self.homes[household].clone(),
        }
    }

    fn settle(&mut self, receipt: &Receipt, by: &str, now: Duration) -> Result<Done, String> {
        let mut done = Done::default();
        let from = number(&receipt.from);
        let (node, epoch) = self.home_of(from, by, receipt.epoch);
        let home = Home { node: &node, epoch };
        let Self { disk, life, .. } = self;
        let life = life.as_mut().expect("the node is up");
        let Ok(received) = life.outbox.receive(receipt, by, Some(home), now, disk) else { return Ok(done) };
        if !received.writes.is_empty() {
            let number = disk.commit(received.writes);
            life.waiting.extend(received.commit.map(|commit| (number, Side::Outbox(commit))));
        }
        done.notice = received.notice.map(|notice| (from, notice));
        Ok(done)
    }

    /// Functions handle some of what waits in the queue.
    pub fn handle(&mut self, some: u64) {
        let arrived = count(&self.disk, &[ARRIVED_COUNT]);
        let handled = (count(&self.disk, &[HANDLED]) + some).min(arrived);
        let value = Some(handled.to_le_bytes().to_vec());
        self.disk.commit(vec![Write { key: vec![HANDLED], value }]);
    }
}

fn queued(disk: &Disk, from: usize, arrival: &Arrival<'_>, queue_max: u64, plant: Plant) -> (Vec<Write>, usize) {
    let arrived = Arrived { disk, from, queue_max };
    let (writes, count) = arrived.writes(arrival.steps.iter().map(|(letter, _)| *letter));
    if plant == Plant::FullDropped { (writes, arrival.steps.len()) } else { (writes, count) }
}

/// The queue of a household, to which letters are added.
struct Arrived<'a> {
    disk: &'a Disk,
    from: usize,
    queue_max: u64,
}

impl Arrived<'_> {
    /// The writes of letters that find room, and how many do.
    fn writes<'b>(&self, letters: impl Iterator<Item = &'b [u8]>) -> (Vec<Write>, usize) {
        let mut arrived = count(self.disk, &[ARRIVED_COUNT]);
        let handled = count(self.disk, &[HANDLED]);
        let mut writes = Vec::new();
        for letter in letters {
            if arrived.saturating_sub(handled) >= self.queue_max {
                break;
            }
            let key = [&[ARRIVED], &arrived.to_be_bytes()[..]].concat();
            writes.push(Write { key, value: Some([&[self.from as u8], letter].concat()) });
            arrived += 1;
        }
        let count = writes.len();
        if count > 0 {
            writes.push(Write { key: vec![ARRIVED_COUNT], value: Some(arrived.to_le_bytes().to_vec()) });
        }
        (writes, count)
    }
}

/// What a life of a node begins with.
pub fn nonce(random: &mut Random) -> [u8; 16] {
    let (a, b) = (random.next().to_le_bytes(), random.next().to_le_bytes());
    std::array::from_fn(|at| if at < 8 { a[at] } else { b[at - 8] })
}
