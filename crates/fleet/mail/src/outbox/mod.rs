//! The sending side: letters in their streams, what is sent next, and what a receipt changes.
//!
//! ```text
//!  stage ─▶ the shell's transaction ─▶ committed ─▶ durable ─▶ poll: parcels, live streams first
//!                                                                │
//!                         deleted ◀─ receive ◀──── receipts ◀════╧════▶ the receiver
//! ```
//! There is one stream for each receiving household. In memory is where each stands; its letters are read from the
//! records when they are sent. A letter is sent only when it is durable here: a number that was seen elsewhere can then
//! never be given to another letter by a crash.

mod back;
mod receive;
mod send;
mod stream;

use crate::commits::{Commit, Commits};
use crate::pacing::TokenBucket;
use crate::patience::dice;
use crate::records::{StreamRecord, write_letter};
use crate::{Household, LETTER_BYTES_MAX, Rate, Unreadable, Write};
use random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use stream::Stream;

pub use back::TakenBack;
pub use receive::{Notice, Received};
pub use send::Sent;

/// Households that one household has sent mail to. A push to one more is refused.
pub const RECEIVERS_MAX: usize = 4_096;

/// What an outbox holds. One receiver may take half of either, so that one who is away leaves room for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub letters_max: u64,
    pub bytes_max: u64,
}

/// How an outbox behaves.
#[derive(Debug, Clone)]
pub struct Config {
    pub household: Household,
    /// The epoch of this home.
    pub epoch: u64,
    pub bounds: Bounds,
    /// Bytes of one stream that are sent and not confirmed. The parcel that crosses it is still sent.
    pub window_bytes: u64,
    /// Bytes of letters in one parcel. A larger letter travels alone. A parcel is one piece of work at both ends, and
    /// one message on a connection that calls share: what it takes, a call may have to wait.
    pub parcel_bytes: u64,
    /// A stream with more letters than this to send is behind.
    pub live_letters: u64,
    /// For all streams that are behind.
    pub catch_up: Rate,
}

impl Config {
    /// 200,000 letters, 128 MiB; windows of 256 KiB, parcels of 16 KiB; behind with more than 256 letters.
    pub fn new(household: Household, epoch: u64) -> Self {
        Self {
            household,
            epoch,
            bounds: Bounds { letters_max: 200_000, bytes_max: 128 << 20 },
            window_bytes: 256 << 10,
            parcel_bytes: 16 << 10,
            live_letters: 256,
            catch_up: Rate::default(),
        }
    }
}

/// The outbox of one household.
#[derive(Debug)]
pub struct Outbox {
    config: Config,
    nonce: [u8; 16],
    random: Random,
    streams: BTreeMap<Household, Stream>,
    /// Those with letters.
    busy: BTreeSet<Household>,
    counts: Counts,
    unsynced: Commits<Fact>,
    bucket: TokenBucket,
    /// Whose turn it was last.
    turn: Option<Household>,
    /// The last message's number in this life.
    serial: u64,
    /// Counts the changes of what a staged push depends on.
    version: u64,
}

/// What is in an outbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub letters: u64,
    pub bytes: u64,
}

/// What becomes true when a commit is durable.
#[derive(Debug)]
enum Fact {
    Pushed { to: Household, number: u64 },
    Renewed { to: Household, incarnation: u64 },
}

/// A push that is ready to be committed.
#[derive(Debug)]
#[must_use]
pub struct Staged {
    /// For the transaction of the push.
    pub writes: Vec<Write>,
    streams: BTreeMap<Household, Stream>,
    added: Counts,
    version: u64,
}

/// Why nothing is pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushError {
    /// The outbox, or this receiver's half of it, has no room until mail has arrived.
    Full(Household),
    /// A letter has more than [`LETTER_BYTES_MAX`].
    TooLarge(usize),
    /// What stays in its household is no mail.
    ToItself,
    /// There are [`RECEIVERS_MAX`] receivers.
    TooManyReceivers,
}

impl Outbox {
    /// `records` are those whose keys are [`crate::is_outbox`]; all that is read now and later is durable. The nonce is
    /// random and new for each start.
    ///
    /// # Errors
    /// The first record that cannot be read.
    pub fn open(
        config: Config,
        nonce: [u8; 16],
        records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<Self, Unreadable> {
        let (mut streams, mut busy, mut counts) = (BTreeMap::new(), BTreeSet::new(), Counts::default());
        for (key, value) in records {
            let (to, record) = StreamRecord::read(&key, &value)?;
            let stream = Stream::opened(record);
            counts.add(stream.waiting());
            if stream.waiting().letters > 0 {
                busy.insert(to.clone());
            }
            streams.insert(to, stream);
        }
        let bucket = TokenBucket::new(config.catch_up);
        let (unsynced, random) = (Commits::default(), dice(&nonce));
        Ok(Self { config, nonce, random, streams, busy, counts, unsynced, bucket, turn: None, serial: 0, version: 0 })
    }

    /// Gives numbers to letters (see [`crate::Letter::write`]), all of them or none. Nothing is changed here before
    /// [`Outbox::committed`]; nothing else may be asked of the outbox in between.
    ///
    /// # Errors
    /// Nothing is pushed.
    pub fn stage(&self, mail: &[(Household, Vec<u8>)]) -> Result<Staged, PushError> {
        let mut staged =
            Staged { writes: Vec::new(), streams: BTreeMap::new(), added: Counts::default(), version: self.version };
        for (to, letter) in mail {
            if letter.len() > LETTER_BYTES_MAX {
                return Err(PushError::TooLarge(letter.len()));
            }
            if *to == self.config.household {
                return Err(PushError::ToItself);
            }
            let known = staged.streams.get(to).or_else(|| self.streams.get(to));
            if known.is_none() && self.streams.len() + staged.streams.len() >= RECEIVERS_MAX {
                return Err(PushError::TooManyReceivers);
            }
            let mut stream = known.cloned().unwrap_or_else(|| Stream::new(&self.nonce, to));
            staged.added.add(Counts { letters: 1, bytes: letter.len() as u64 });
            let point = stream.append(letter).filter(|_| self.has_room(&stream, staged.added));
            let point = point.ok_or_else(|| PushError::Full(to.clone()))?;
            staged.writes.push(write_letter(to, &point, letter));
            staged.streams.insert(to.clone(), stream);
        }
        staged.writes.extend(staged.streams.iter().map(|(to, stream)| stream.record().write(to)));
        Ok(staged)
    }

    /// The transaction with the writes of `staged` is committed.
    pub fn committed(&mut self, staged: Staged) -> Commit {
        assert_eq!(staged.version, self.version, "nothing happens between stage and commit");
        self.version += 1;
        self.counts.add(staged.added);
        let mut facts = Vec::with_capacity(staged.streams.len());
        for (to, stream) in staged.streams {
            facts.push(Fact::Pushed { to: to.clone(), number: stream.last.mark.number });
            self.busy.insert(to.clone());
            self.streams.insert(to, stream);
        }
        self.unsynced.add(facts)
    }

    /// All commits up to `commit` are durable: their letters may be sent.
    pub fn durable(&mut self, commit: Commit) {
        while let Some(fact) = self.unsynced.next(commit) {
            match fact {
                Fact::Pushed { to, number } => {
                    if let Some(stream) = self.streams.get_mut(&to) {
                        stream.durable = stream.durable.max(number);
                    }
                }
                Fact::Renewed { to, incarnation } => {
                    if let Some(stream) = self.streams.get_mut(&to).filter(|one| one.incarnation == incarnation) {
                        stream.is_held = false;
                    }
                }
            }
        }
        self.version += 1;
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What waits for one household: its disk is not known to have it.
    pub fn waiting(&self, to: &Household) -> Counts {
        self.streams.get(to).map_or_else(Counts::default, Stream::waiting)
    }

    fn has_room(&self, stream: &Stream, added: Counts) -> bool {
        let Bounds { letters_max, bytes_max } = self.config.bounds;
        let mut all = self.counts;
        all.add(added);
        let own = stream.waiting();
        all.letters <= letters_max
            && all.bytes <= bytes_max
            && own.letters <= letters_max.div_ceil(2)
            && own.bytes <= bytes_max.div_ceil(2)
    }
}

impl Counts {
    fn add(&mut self, more: Self) {
        self.letters += more.letters;
        self.bytes += more.bytes;
    }

    fn subtract(&mut self, fewer: Self) {
        self.letters -= fewer.letters;
        self.bytes -= fewer.bytes;
    }
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(to) => write!(f, "the outbox has no room for mail to {to} until some of it has arrived"),
            Self::TooLarge(bytes) => write!(f, "the letter has {bytes} bytes, {LETTER_BYTES_MAX} are possible"),
            Self::ToItself => f.write_str("what stays in its household is no mail"),
            Self::TooManyReceivers => write!(f, "the outbox has mail for {RECEIVERS_MAX} households already"),
        }
    }
}

impl std::error::Error for PushError {}
