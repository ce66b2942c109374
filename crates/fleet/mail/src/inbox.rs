//! The receiving side: which letters of a parcel are new, and how far each sender's letters are durable.
//!
//! ```text
//!  parcel ─▶ arrive ─▶ new letters ─▶ the shell: events into queues + record, one transaction ─▶ committed
//!               │                                                                                    │ synced
//!               └─▶ nothing new: a receipt at once                     receipts "durable up to" ◀─ durable
//! ```
//! In memory there is one entry for each sender, and what waits for the disk.

use crate::commits::{Commit, Commits};
use crate::records::SenderRecord;
use crate::{Doubt, Home, Household, Mark, Parcel, Receipt, Unreadable, Verdict, Write};
use std::collections::BTreeMap;

/// Households that one household hears from. A parcel of one more is answered with [`Verdict::Full`].
pub const SENDERS_MAX: usize = 65_536;

/// The inbox of one household.
#[derive(Debug)]
pub struct Inbox {
    household: Household,
    epoch: u64,
    senders: BTreeMap<Household, Sender>,
    unsynced: Commits<(Household, u64, Mark)>,
}

#[derive(Debug, Clone, Copy)]
struct Sender {
    /// The highest that letters were taken under.
    epoch: u64,
    incarnation: u64,
    taken: Mark,
    /// At most `taken`; of the same incarnation.
    durable: Mark,
    /// The serial of the last parcel.
    serial: u64,
}

/// One new letter, and the place it stands at.
pub type Step<'a> = (&'a [u8], Mark);

/// Letters that are gone: their sender was told that they are durable, and they are not here. It happens when a
/// receiver was restored from a backup; the events they became went with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    pub first: u64,
    pub last: u64,
}

/// What is to be done with a parcel.
#[derive(Debug)]
pub struct Arrival<'a> {
    from: Household,
    epoch: u64,
    incarnation: u64,
    serial: u64,
    /// The place before the first new letter.
    start: Mark,
    is_adopted: bool,
    /// New letters in their order. The shell puts them into their queues and stops at the first that finds no room.
    pub steps: Vec<Step<'a>>,
    pub lost: Option<Lost>,
    /// The sender's history is another one than that of the letters taken before. The receipt lets the sender notice.
    pub is_forked: bool,
    /// Sent at once: there is nothing to take.
    pub answer: Option<Receipt>,
}

/// Why nothing of a parcel is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotTaken {
    /// It is for another household.
    Misdirected,
    Doubted(Doubt, Option<Box<Receipt>>),
    /// There are [`SENDERS_MAX`] senders.
    Crowded(Box<Receipt>),
}

impl Inbox {
    /// `epoch` is that of this home. `records` are those whose keys are [`crate::is_inbox`].
    ///
    /// # Errors
    /// The first record that cannot be read.
    pub fn open(
        household: Household,
        epoch: u64,
        records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<Self, Unreadable> {
        let mut senders = BTreeMap::new();
        for (key, value) in records {
            let (from, SenderRecord { epoch, incarnation, taken }) = SenderRecord::read(&key, &value)?;
            senders.insert(from, Sender { epoch, incarnation, taken, durable: taken, serial: 0 });
        }
        Ok(Self { household, epoch, senders, unsynced: Commits::default() })
    }

    /// What is new in `parcel`, which the node `by` brought; `home` is what is known of the sending household.
    ///
    /// # Errors
    /// Nothing of it is taken; the receipt goes back to the node that brought it.
    pub fn arrive<'a>(
        &mut self,
        parcel: &Parcel<'a>,
        by: &str,
        home: Option<Home<'_>>,
    ) -> Result<Arrival<'a>, NotTaken> {
        if parcel.to != self.household {
            return Err(NotTaken::Misdirected);
        }
        let known = self.senders.get(&parcel.from).copied();
        let is_over = known.is_some_and(|sender| parcel.epoch < sender.epoch);
        let believed = if is_over { Err(Doubt::Over) } else { Home::check(home, by, parcel.epoch) };
        if let Err(doubt) = believed {
            let verdict = match doubt {
                Doubt::Over => Some(Verdict::Over),
                Doubt::Unknown => Some(Verdict::Unknown),
                // A forger learns nothing.
                Doubt::Forged => None,
            };
            let receipt = verdict.map(|verdict| Box::new(self.receipt(parcel, known, verdict)));
            return Err(NotTaken::Doubted(doubt, receipt));
        }
        if known.is_none() && self.senders.len() >= SENDERS_MAX {
            return Err(NotTaken::Crowded(Box::new(self.receipt(parcel, None, Verdict::Full))));
        }
        if let Some(sender) = self.senders.get_mut(&parcel.from) {
            sender.serial = parcel.serial;
        }
        Ok(self.sorted(parcel, known))
    }

    fn sorted<'a>(&self, parcel: &Parcel<'a>, known: Option<Sender>) -> Arrival<'a> {
        let (standing, lost) = standing(parcel, known);
        let mut arrival = Arrival {
            from: parcel.from.clone(),
            epoch: parcel.epoch,
            incarnation: parcel.incarnation,
            serial: parcel.serial,
            start: standing.taken,
            is_adopted: known.is_none_or(|sender| sender.incarnation != standing.incarnation) || lost.is_some(),
            steps: Vec::new(),
            lost,
            is_forked: false,
            answer: None,
        };
        let at_hand = standing.taken.number.checked_sub(parcel.before.number);
        let verdict = match at_hand {
            _ if standing.incarnation > parcel.incarnation => Verdict::Taken,
            None => Verdict::Gap,
            Some(seen) => {
                let seen = usize::try_from(seen).unwrap_or(usize::MAX);
                let joint = seen.checked_sub(1).map_or(Some(parcel.before), |at| Some(parcel.letters.get(at)?.1));
                arrival.is_forked = joint.is_some_and(|joint| joint.chain != standing.taken.chain);
                if !arrival.is_forked {
                    arrival.steps = parcel.letters.get(seen..).unwrap_or_default().to_vec();
                }
                Verdict::Taken
            }
        };
        if arrival.steps.is_empty() {
            arrival.answer = Some(self.receipt(parcel, Some(standing), verdict));
        }
        arrival
    }

    /// The record that goes into the transaction with the first `count` of the arrival's letters. None: there is
    /// nothing to write.
    pub fn record(&self, arrival: &Arrival<'_>, count: usize) -> Option<Write> {
        if count == 0 && arrival.lost.is_none() {
            return None;
        }
        let taken = arrival.after(count);
        Some(SenderRecord { epoch: arrival.epoch, incarnation: arrival.incarnation, taken }.write(&arrival.from))
    }

    /// The transaction with the record is committed: the letters are taken. Without a record there was no transaction,
    /// and there is no need to call this but for the receipt: that the queue of the next letter is full.
    pub fn committed(&mut self, arrival: &Arrival<'_>, count: usize) -> (Option<Commit>, Option<Receipt>) {
        let commit = (count > 0 || arrival.lost.is_some()).then(|| self.take(arrival, count));
        let sender = self.senders.get(&arrival.from).copied();
        let is_full = count < arrival.steps.len();
        let full = is_full.then(|| {
            let standing = sender.filter(|_| !arrival.is_adopted || commit.is_some());
            self.receipt_of(arrival, standing.unwrap_or_else(|| arrival.standing()), Verdict::Full)
        });
        (commit, full)
    }

    fn take(&mut self, arrival: &Arrival<'_>, count: usize) -> Commit {
        let taken = arrival.after(count);
        let fresh = arrival.standing();
        let sender = self.senders.entry(arrival.from.clone()).or_insert(fresh);
        if arrival.is_adopted {
            *sender = fresh;
        }
        assert_eq!(sender.taken, arrival.start, "an arrival is committed before the next one is sorted");
        *sender = Sender { epoch: arrival.epoch, taken, ..*sender };
        self.unsynced.add([(arrival.from.clone(), arrival.incarnation, taken)])
    }

    /// All commits up to `commit` are durable. The receipts say so to their senders.
    pub fn durable(&mut self, commit: Commit) -> Vec<Receipt> {
        let mut progressed = BTreeMap::new();
        while let Some((from, incarnation, mark)) = self.unsynced.next(commit) {
            if let Some(sender) = self.senders.get_mut(&from).filter(|sender| sender.incarnation == incarnation)
                && mark.number >= sender.durable.number
            {
                sender.durable = mark;
                progressed.insert(from, *sender);
            }
        }
        progressed.into_iter().map(|(from, sender)| self.receipt_to(from, sender, Verdict::Taken)).collect()
    }

    fn receipt(&self, parcel: &Parcel<'_>, sender: Option<Sender>, verdict: Verdict) -> Receipt {
        let unknown = Sender {
            epoch: parcel.epoch,
            incarnation: parcel.incarnation,
            taken: parcel.base,
            durable: parcel.base,
            serial: parcel.serial,
        };
        let sender = Sender { epoch: parcel.epoch, serial: parcel.serial, ..sender.unwrap_or(unknown) };
        self.receipt_to(parcel.from.clone(), sender, verdict)
    }

    fn receipt_of(&self, arrival: &Arrival<'_>, sender: Sender, verdict: Verdict) -> Receipt {
        self.receipt_to(
            arrival.from.clone(),
            Sender { epoch: arrival.epoch, serial: arrival.serial, ..sender },
            verdict,
        )
    }

    fn receipt_to(&self, to: Household, sender: Sender, verdict: Verdict) -> Receipt {
        Receipt {
            from: self.household.clone(),
            to,
            epoch: self.epoch,
            epoch_answered: sender.epoch,
            incarnation: sender.incarnation,
            answers: sender.serial,
            durable: sender.durable,
            expects: sender.taken.number.saturating_add(1),
            verdict,
        }
    }
}

impl Arrival<'_> {
    /// Which household sent it.
    pub fn from(&self) -> &Household {
        &self.from
    }

    fn after(&self, count: usize) -> Mark {
        count.checked_sub(1).map_or(self.start, |last| self.steps[last].1)
    }

    /// Where the sender stands before the letters. What the sender had been told before is durable, or gone.
    fn standing(&self) -> Sender {
        let Self { epoch, incarnation, serial, start, .. } = *self;
        Sender { epoch, incarnation, taken: start, durable: start, serial }
    }
}

/// Where the receiver stands with the stream of this parcel, and what it must have lost before.
fn standing(parcel: &Parcel<'_>, known: Option<Sender>) -> (Sender, Option<Lost>) {
    let (epoch, incarnation, serial) = (parcel.epoch, parcel.incarnation, parcel.serial);
    let adopted = Sender { epoch, incarnation, taken: parcel.base, durable: parcel.base, serial };
    // Letters that were confirmed to the sender, and that are not here. Numbers go on from one incarnation to the next.
    let lost_after = |number: u64| {
        (parcel.base.number > number).then_some(Lost { first: number.saturating_add(1), last: parcel.base.number })
    };
    match known {
        Some(sender) if sender.incarnation > incarnation => (sender, None),
        Some(sender) if sender.incarnation == incarnation => match lost_after(sender.taken.number) {
            None => (sender, None),
            lost => (adopted, lost),
        },
        Some(sender) => (adopted, lost_after(sender.taken.number.min(parcel.begun))),
        None => (adopted, lost_after(0)),
    }
}
