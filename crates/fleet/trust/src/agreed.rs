//! How several anchors have one ledger: each change is the next one of a log, which is written by compare-and-set.
//!
//! ```text
//!   head of the log ─▶ what this ledger lacks ─▶ a changed copy ─▶ the head with one change more ─▶ kept ─▶ answer
//!        ▲                                                              │ somebody else was first
//!        └──────────────────────────────────────────────────────────────┘
//! ```
//! Where the log does not reach back to where a ledger stands, the ledger of another anchor is taken. Where the log is
//! gone, or older than a ledger, those who keep it have lost it: then a majority of anchors compares its ledgers.
//! All of this blocks, and ends.

use crate::anchor::Anchor;
use crate::changes::{Change, LogHead, Mark};
use crate::ledger::Ledger;
use problem::{Code, Problem};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a change is tried while no majority answers. A server that leads is replaced within ten seconds.
const PATIENCE: Duration = Duration::from_secs(7);
const PAUSE: Duration = Duration::from_millis(200);

/// Where several anchors write what they agree on. It blocks, and every wait of it ends.
pub trait Agree: Send + Sync {
    /// What is there, as it may have been a moment ago, and which change of it this is.
    ///
    /// # Errors
    /// [`Code::AnchorsAway`].
    fn head(&self) -> Result<Option<(Vec<u8>, u64)>, Problem>;

    /// Writes it if its last change was `expected`, or for none if there is none. On the disks of a majority once
    /// [`Put::Done`].
    ///
    /// # Errors
    /// [`Code::AnchorsAway`]: it may be written, or not.
    fn put(&self, head: &[u8], expected: Option<u64>) -> Result<Put, Problem>;

    /// The ledgers of the other anchors that answer.
    fn others(&self) -> Vec<Ledger>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    Done,
    /// Somebody else has written since.
    Late,
}

/// What was read of the log.
struct Read {
    head: Option<LogHead>,
    revision: Option<u64>,
}

impl Anchor {
    /// Changes the ledger of all anchors. Called by one at a time.
    pub(crate) fn change_agreed<T>(
        &self,
        agree: &Arc<dyn Agree>,
        change: impl Fn(&mut Ledger) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let until = Instant::now() + PATIENCE;
        loop {
            let away = match self.try_change(agree, &change) {
                Ok(Some(result)) => return Ok(result),
                Ok(None) if Instant::now() < until => continue,
                Ok(None) => Problem::new(Code::AnchorBusy, "other anchors change the ledger all the time"),
                Err(problem) if problem.code == Code::AnchorsAway => problem,
                Err(problem) => return Err(problem),
            };
            if Instant::now() >= until {
                return Err(away);
            }
            sleep(PAUSE);
        }
    }

    /// Takes what other anchors have changed. Where their log does not answer, because there is another set of them by
    /// now, whose log is another one, this takes the ledger of one of those.
    ///
    /// # Errors
    /// [`Code::AnchorsAway`]; the ledger cannot be kept.
    pub fn follow(&self) -> Result<(), Problem> {
        let Some(agree) = self.agree()? else { return Ok(()) };
        let changing = self.changing()?;
        let followed = read(&agree).and_then(|read| self.caught_up(&agree, &read).map(|_| ()));
        drop(changing);
        match followed {
            Err(problem) if problem.code == Code::AnchorsAway => {
                let newest = agree.others().into_iter().max_by_key(Ledger::set);
                let is_adopted = newest.map_or(Ok(false), |ledger| self.adopt(ledger))?;
                if is_adopted { Ok(()) } else { Err(problem) }
            }
            followed => followed,
        }
    }

    /// Takes the ledger that an anchor of a later set has. What an anchor has, a majority has agreed on. Says whether
    /// it is one.
    ///
    /// # Errors
    /// The ledger cannot be kept.
    pub fn adopt(&self, ledger: Ledger) -> Result<bool, Problem> {
        let _changing = self.changing()?;
        let is_later = ledger.set() > self.look(Ledger::set);
        if is_later {
            tracing::info!(set = ledger.set(), "the ledger is that of another set of anchors");
            self.hold(ledger)?;
        }
        Ok(is_later)
    }

    /// None: somebody else was first.
    fn try_change<T>(
        &self,
        agree: &Arc<dyn Agree>,
        change: &impl Fn(&mut Ledger) -> Result<T, Problem>,
    ) -> Result<Option<T>, Problem> {
        let read_now = read(agree)?;
        let Some(head) = self.caught_up(agree, &read_now)? else { return Ok(None) };
        let before = self.ledger();
        let mut after = before.clone();
        let result = change(&mut after)?;
        if after == before {
            return Ok(Some(result));
        }
        after.count_set(&before);
        let long = || Problem::new(Code::Usage, "a change of the ledger is too long for the other anchors");
        let (head, bytes) = head.with(Change::between(&before, &after)).ok_or_else(long)?;
        let mark = head.mark();
        match agree.put(&bytes, read_now.revision) {
            Ok(Put::Done) => {}
            Ok(Put::Late) => return Ok(None),
            // It may have been written: who reads it back knows.
            Err(problem) => match read(agree)?.head {
                Some(head) if head.after(&mark).is_some() => {}
                _ => return Err(problem),
            },
        }
        after.mark = Some(mark);
        self.hold(after)?;
        Ok(Some(result))
    }

    /// Makes the ledger what the log says, and gives the head. None: the log was written anew, or is about to be.
    fn caught_up(&self, agree: &Arc<dyn Agree>, read: &Read) -> Result<Option<LogHead>, Problem> {
        let own = self.ledger();
        let Some(head) = read.head.clone() else { return self.found_log(agree, own, read.revision).map(|()| None) };
        let mark = head.mark();
        if let Some(changes) = head.after(&own.mark()) {
            if !changes.is_empty() {
                self.hold(with(own, changes, mark))?;
            }
            return Ok(Some(head));
        }
        if own.mark().number > mark.number {
            return self.found_log(agree, own, read.revision).map(|()| None);
        }
        let others = agree.others();
        let usable = others.iter().find_map(|other| Some((other, head.after(&other.mark())?)));
        let Some((other, changes)) = usable else {
            let detail = "this anchor was away for long, and no other one gives it the ledger now";
            return Err(Problem::new(Code::AnchorsAway, detail));
        };
        tracing::info!(from = own.mark().number, to = mark.number, "the ledger is that of another anchor");
        self.hold(with(other.clone(), changes, mark))?;
        Ok(Some(head))
    }

    /// The log is gone, or has lost its end: it begins again with the newest ledger that a majority has.
    fn found_log(&self, agree: &Arc<dyn Agree>, own: Ledger, revision: Option<u64>) -> Result<(), Problem> {
        let others = agree.others();
        let anchors = own.anchors().count();
        if (others.len() + 1) * 2 <= anchors {
            let detail = format!("the log of the ledger is gone, and {} of {anchors} anchors answer", others.len() + 1);
            return Err(Problem::new(Code::AnchorsAway, detail));
        }
        let newest = others.into_iter().chain([own.clone()]).max_by_key(|ledger| ledger.mark().number).unwrap_or(own);
        let mark = newest.mark();
        if agree.put(&LogHead::at(mark).write(), revision)? == Put::Done {
            tracing::info!(number = mark.number, "the log of the ledger begins anew");
        }
        if newest.mark() != self.ledger().mark() {
            self.hold(newest)?;
        }
        Ok(())
    }
}

fn read(agree: &Arc<dyn Agree>) -> Result<Read, Problem> {
    let Some((bytes, revision)) = agree.head()? else { return Ok(Read { head: None, revision: None }) };
    let head = LogHead::read(&bytes);
    if head.is_none() {
        tracing::error!("what anchors agree on cannot be read, and is written anew");
    }
    Ok(Read { head, revision: Some(revision) })
}

fn with(mut ledger: Ledger, changes: &[Change], mark: Mark) -> Ledger {
    changes.iter().for_each(|change| change.apply(&mut ledger));
    ledger.mark = Some(mark);
    ledger
}
