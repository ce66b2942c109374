//! What a receipt changes: letters are deleted, sent again or held back, or a new history begins.

use super::stream::Stream;
use super::{Counts, Fact, Outbox};
use crate::commits::Commit;
use crate::records::{Point, letter_key, read_letter};
use crate::{Doubt, Home, Household, Receipt, Records, Verdict, Write};
use std::time::Duration;

/// What is to be done after a receipt.
#[derive(Debug, Default)]
pub struct Received {
    /// For one transaction, if there are any. It need not wait for the disk.
    pub writes: Vec<Write>,
    /// Names that transaction to [`Outbox::durable`], if something waits until it is durable.
    pub commit: Option<Commit>,
    pub notice: Option<Notice>,
}

/// What somebody should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The receiver has letters of another history under these numbers, so this outbox was restored from a backup. All
    /// that waits is sent again under a new incarnation: what had arrived after the backup arrives twice.
    RolledBack { to: Household, incarnation: u64, waiting: u64 },
    /// The receiver knows a later home of this household.
    Over { to: Household },
    /// The record of a letter that waits cannot be read.
    Missing { to: Household, number: u64 },
}

impl Outbox {
    /// Takes a receipt that the node `by` brought; `home` is what is known of the household that wrote it.
    ///
    /// # Errors
    /// It is not believed, and nothing changes.
    pub fn receive(
        &mut self,
        receipt: &Receipt,
        by: &str,
        home: Option<Home<'_>>,
        now: Duration,
        records: &impl Records,
    ) -> Result<Received, Doubt> {
        Home::check(home, by, receipt.epoch)?;
        let is_ours = receipt.to == self.config.household;
        let Some(stream) = self.streams.get_mut(&receipt.from).filter(|_| is_ours) else {
            return Ok(Received::default());
        };
        self.version += 1;
        let to = &receipt.from;
        let random = self.random.next();
        let before = stream.waiting();
        let found = stream.find(receipt, records);
        let mut received = Received::default();
        match found {
            MarkAt::Old => return Ok(received),
            MarkAt::Missing(number) => {
                received.notice = Some(Notice::Missing { to: to.clone(), number });
                return Ok(received);
            }
            MarkAt::Forked => {
                let incarnation = stream.incarnation.max(receipt.incarnation).saturating_add(1);
                stream.renew(incarnation);
                received.writes.push(stream.record().write(to));
                received.commit = Some(self.unsynced.add([Fact::Renewed { to: to.clone(), incarnation }]));
                received.notice = Some(Notice::RolledBack { to: to.clone(), incarnation, waiting: before.letters });
                return Ok(received);
            }
            MarkAt::At(point) if point.mark.number > stream.confirmed.mark.number => {
                let gone = stream.confirmed.mark.number + 1..=point.mark.number;
                received.writes.extend(gone.map(|number| Write { key: letter_key(to, number), value: None }));
                stream.confirm(point);
                received.writes.push(stream.record().write(to));
            }
            MarkAt::At(_) => {}
        }
        stream.judge(receipt, self.config.epoch, self.serial + 1, now, random, records);
        if receipt.verdict == Verdict::Over && receipt.epoch_answered == self.config.epoch {
            received.notice = Some(Notice::Over { to: to.clone() });
        }
        let after = stream.waiting();
        self.counts.subtract(Counts { letters: before.letters - after.letters, bytes: before.bytes - after.bytes });
        if after.letters == 0 {
            self.busy.remove(to);
        }
        Ok(received)
    }
}

/// Where the durable mark of a receipt stands in the stream.
enum MarkAt {
    At(Point),
    /// It speaks of what is confirmed long since.
    Old,
    /// It is not of this history.
    Forked,
    Missing(u64),
}

impl Stream {
    fn find(&self, receipt: &Receipt, records: &impl Records) -> MarkAt {
        let mark = receipt.durable;
        let confirmed = self.confirmed.mark.number;
        if receipt.incarnation < self.incarnation
            || (receipt.incarnation == self.incarnation && mark.number < confirmed)
        {
            return MarkAt::Old;
        }
        if receipt.incarnation > self.incarnation || mark.number > self.last.mark.number {
            return MarkAt::Forked;
        }
        match self.point(mark.number, &receipt.from, records) {
            None => MarkAt::Missing(mark.number),
            Some(point) if point.mark == mark => MarkAt::At(point),
            Some(_) => MarkAt::Forked,
        }
    }

    /// The place of a letter that waits, or of the last one that is confirmed.
    fn point(&self, number: u64, to: &Household, records: &impl Records) -> Option<Point> {
        if number == self.confirmed.mark.number {
            return Some(self.confirmed);
        }
        let value = records.get(&letter_key(to, number))?;
        read_letter(&value).map(|(point, _)| point).filter(|point| self.holds(number, point))
    }

    fn judge(
        &mut self,
        receipt: &Receipt,
        epoch: u64,
        serial_next: u64,
        now: Duration,
        random: u64,
        records: &impl Records,
    ) {
        let is_late = receipt.answers < self.serial_min;
        let is_of_others = receipt.epoch_answered != epoch;
        self.heard(now, random);
        if receipt.verdict == Verdict::Taken || is_late || is_of_others {
            return;
        }
        let wanted = receipt.expects.saturating_sub(1).max(self.confirmed.mark.number);
        if wanted < self.cursor.mark.number
            && let Some(point) = self.point(wanted, &receipt.from, records)
        {
            self.set_back(point, serial_next);
            self.heard(now, random);
        }
        if receipt.verdict != Verdict::Gap {
            self.rest(now, random);
        }
    }
}
