//! Outbox and inbox of this node with the state they are kept in: each step is one transaction.
//!
//! ```text
//!   post    ─▶ stage ─▶ ack + letter: one transaction ─▶ committed ┐
//!   arrive  ─▶ sort  ─▶ events + mark: one transaction ─▶ committed ┼─▶ keep_durable ─▶ receipts; letters may be sent
//!   receipt ─▶ letters are deleted: one transaction ─────▶ ─────────┘
//! ```
//! All of it is done under one lock, commits included: so the commits of outbox and inbox stand in the journal in the
//! order in which they count them.

use super::clerk::Clerk;
use super::kept::Kept;
use super::lanes::Lanes;
use super::names::{EPOCH, node_of};
use super::owed::Owed;
use super::{Totals, names};
use crate::calls::Calls;
use ::mail::{
    Commit, Config, Counts, Household, INBOX_KEYS, Inbox, Notice, OUTBOX_KEYS, Outbox, PushError, Receipt, Rests, Sent,
    Write,
};
use fleet_trust::NodeId;
use parking_lot::Mutex;
use problem::{Code, Problem};
use state::{CommitError, Leased, State, StoreError, Ticket, Transaction};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::sleep;

/// The shortest wait before the outbox is asked again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// How long it rests after a step that gave up.
const REST: Duration = Duration::from_secs(1);

/// First byte of the keys of homes.
const HOME: u8 = 0x40;

pub struct Desk {
    pub(super) state: State,
    pub(super) kept: Kept,
    pub(super) sides: Mutex<Sides>,
    /// There may be something to send.
    to_send: Notify,
    /// There is something that waits for the disk.
    to_sync: Notify,
    began: Instant,
}

pub(super) struct Sides {
    pub outbox: Outbox,
    pub inbox: Inbox,
    /// Commits that are not known to be durable, in the order of the journal.
    unsynced: VecDeque<(Ticket, Side)>,
    /// What a full disk refused. It goes before anything else is written.
    owed: Owed,
    pub totals: Totals,
}

/// What there is to send, and else when to look again.
struct Polled {
    sent: Option<Sent>,
    next: Option<Duration>,
    began: Duration,
    took: Duration,
}

#[derive(Clone, Copy)]
enum Side {
    Outbox(Commit),
    Inbox(Commit),
}

/// Why an event did not become a letter. Nothing has happened.
#[derive(Debug)]
pub enum NotPosted {
    /// There is no room before other letters have arrived.
    Full(PushError),
    /// It can never be one.
    Unfit(PushError),
    /// The event is another handling's now.
    LeaseLost,
    /// The state takes no writes now.
    Unavailable(Problem),
}

impl Desk {
    /// # Errors
    /// A record cannot be read.
    pub fn open(state: &State, own: Household) -> Result<Self, Problem> {
        let kept = Kept::new(state, &own);
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce)
            .map_err(|error| Problem::new(Code::Internal, format!("no random numbers: {error}")))?;
        let corrupt = |error: ::mail::Unreadable| Problem::new(Code::StateCorrupt, format!("mail: {error}"));
        let outbox = Outbox::open(Config::new(own.clone(), EPOCH), nonce, kept.all(OUTBOX_KEYS)?).map_err(corrupt)?;
        let inbox = Inbox::open(own, EPOCH, kept.all(INBOX_KEYS)?).map_err(corrupt)?;
        let (unsynced, owed, totals) = Default::default();
        let sides = Mutex::new(Sides { outbox, inbox, unsynced, owed, totals });
        let (to_send, to_sync) = Default::default();
        Ok(Self { state: state.clone(), kept, sides, to_send, to_sync, began: Instant::now() })
    }

    /// Makes a letter of a leased event: acks it and puts the letter into the outbox, both or neither.
    ///
    /// # Errors
    /// Nothing has happened; where the disk failed, nobody knows.
    pub fn post(&self, leased: &Leased, to: &Household, letter: Vec<u8>) -> Result<(), NotPosted> {
        let mut sides = self.sides.lock();
        // A record that is written later must not be older than one that is written now.
        self.write_owed(&mut sides).map_err(NotPosted::Unavailable)?;
        let staged = sides.outbox.stage(&[(to.clone(), letter)])?;
        let mut transaction = self.state.begin();
        self.kept.write(&mut transaction, &staged.writes)?;
        transaction.ack(leased);
        let ticket = transaction.commit()?;
        let commit = sides.outbox.committed(staged);
        self.wait_for(&mut sides, ticket, Side::Outbox(commit));
        Ok(())
    }

    /// As [`super::Mail::post_with`].
    pub fn post_with<E: From<Problem>>(
        &self,
        letters: &[(Household, Vec<u8>)],
        commit: impl FnOnce(&dyn Fn(&mut Transaction) -> Result<(), StoreError>) -> Result<Ticket, E>,
    ) -> Result<Result<Ticket, E>, PushError> {
        let sides = &mut *self.sides.lock();
        if let Err(problem) = self.write_owed(sides) {
            return Ok(Err(problem.into()));
        }
        let staged = sides.outbox.stage(letters)?;
        let committed = commit(&|transaction| self.kept.write(transaction, &staged.writes));
        Ok(committed.inspect(|ticket| {
            let commit = sides.outbox.committed(staged);
            self.wait_for(sides, *ticket, Side::Outbox(commit));
        }))
    }

    /// Letters of a parcel are committed.
    pub(super) fn took(&self, sides: &mut Sides, ticket: Ticket, commit: Commit) {
        self.wait_for(sides, ticket, Side::Inbox(commit));
    }

    /// What a receipt says is written down: letters that have arrived go.
    pub(super) fn settle(&self, receipt: &Receipt, by: &NodeId) {
        let by = by.to_string();
        let sides = &mut *self.sides.lock();
        let before = sides.outbox.counts().letters;
        let home = names::home_of(&receipt.from);
        let Ok(received) = sides.outbox.receive(receipt, &by, home, self.now(), &self.kept) else {
            return tracing::warn!(by, "a node confirmed letters in the name of another one");
        };
        sides.totals.sent += before - sides.outbox.counts().letters;
        received.notice.iter().for_each(say);
        sides.owed.add(received.writes, received.commit);
        if let Err(problem) = self.write_owed(sides) {
            tracing::warn!(%problem, "letters that have arrived are deleted later");
        }
        self.to_send.notify_one();
    }

    /// # Errors
    /// The state takes no writes now. What is left is kept.
    pub(super) fn write_owed(&self, sides: &mut Sides) -> Result<(), Problem> {
        while !sides.owed.is_empty() {
            let writes = sides.owed.next();
            let mut transaction = self.state.begin();
            self.kept.write(&mut transaction, &writes)?;
            let ticket = transaction.commit()?;
            if let Some(commit) = sides.owed.written(&writes) {
                self.wait_for(sides, ticket, Side::Outbox(commit));
            }
        }
        Ok(())
    }

    /// Whether somebody works here just now: who comes then has to wait.
    pub fn is_busy(&self) -> bool {
        self.sides.is_locked()
    }

    /// Sends what there is to send, until it is dropped. Rests between messages while calls come.
    pub async fn send(self: Arc<Self>, clerk: Arc<Clerk>, lanes: Arc<Lanes>, calls: Arc<Calls>) {
        let mut rests = Rests::default();
        loop {
            let desk = self.clone();
            let Some(Polled { sent, next, began, took }) = clerk.does(move || desk.poll()).await else {
                sleep(REST).await;
                continue;
            };
            if let Some(sent) = sent {
                if let Some(node) = node_of(&sent.to) {
                    lanes.send(node, sent.bytes);
                }
                let rest = rests.worked(took, self.now(), calls.are_coming());
                if rest.is_zero() {
                    tokio::task::consume_budget().await;
                } else {
                    sleep(rest).await;
                }
                continue;
            }
            let wait = next.map(|at| at.saturating_sub(began).max(LOOK_AGAIN));
            tokio::select! {
                () = self.to_send.notified() => {}
                () = sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
    }

    fn poll(&self) -> Polled {
        let mut sides = self.sides.lock();
        let began = self.now();
        let sent = sides.outbox.poll(began, &self.kept);
        let next = sides.outbox.next_poll(began);
        Polled { sent, next, began, took: self.now().saturating_sub(began) }
    }

    /// Waits for the disk, for all that was committed: then letters may be sent, and receipts go out. Ends where the
    /// disk fails: nothing is sent or confirmed any more before the node is started again.
    pub async fn keep_durable(self: Arc<Self>, clerk: Arc<Clerk>, lanes: Arc<Lanes>) {
        loop {
            let desk = self.clone();
            let last = clerk.does(move || desk.sides.lock().unsynced.back().map(|(ticket, _)| *ticket));
            let Some(last) = last.await else {
                sleep(REST).await;
                continue;
            };
            let Some(ticket) = last else {
                self.to_sync.notified().await;
                continue;
            };
            if let Err(problem) = self.state.durable(ticket).await {
                return tracing::error!(%problem, "mail rests: the disk has not confirmed it");
            }
            let desk = self.clone();
            for receipt in clerk.does(move || desk.durable(ticket)).await.unwrap_or_default() {
                if let Some(node) = node_of(&receipt.to) {
                    lanes.send(node, receipt.write());
                }
            }
            self.to_send.notify_one();
        }
    }

    fn durable(&self, upto: Ticket) -> Vec<Receipt> {
        let Sides { outbox, inbox, unsynced, .. } = &mut *self.sides.lock();
        let mut receipts = Vec::new();
        while let Some((_, side)) = unsynced.pop_front_if(|(ticket, _)| *ticket <= upto) {
            match side {
                Side::Outbox(commit) => outbox.durable(commit),
                // A later receipt to the same sender says all that an earlier one does.
                Side::Inbox(commit) => {
                    for receipt in inbox.durable(commit) {
                        receipts.retain(|earlier: &Receipt| earlier.to != receipt.to);
                        receipts.push(receipt);
                    }
                }
            }
        }
        receipts
    }

    pub fn wake(&self, to: &Household) {
        self.sides.lock().outbox.wake(to, self.now());
        self.to_send.notify_one();
    }

    /// All that letters wait for.
    pub fn receivers(&self) -> Vec<Household> {
        self.sides.lock().outbox.receivers().cloned().collect()
    }

    /// Which node had a home's name when it was last looked for; none before that.
    pub fn home_before(&self, home: &str) -> Option<NodeId> {
        let value = ::mail::Records::get(&self.kept, &home_key(home))?;
        Some(NodeId(value.try_into().ok()?))
    }

    /// From now on this node has the home's name. Where the disk takes no writes it is found again later.
    pub fn keep_home(&self, home: &str, node: NodeId) {
        if self.home_before(home) == Some(node) {
            return;
        }
        let mut transaction = self.state.begin();
        let write = Write { key: home_key(home), value: Some(node.0.to_vec()) };
        let written = self.kept.write(&mut transaction, &[write]).map_err(Problem::from);
        if let Err(problem) = written.and_then(|()| Ok(transaction.commit()?)) {
            tracing::debug!(home, %problem, "it is not written down which node is the home");
        }
    }

    pub fn waiting(&self, to: &Household) -> Counts {
        self.sides.lock().outbox.waiting(to)
    }

    pub fn waiting_in_all(&self) -> Counts {
        self.sides.lock().outbox.counts()
    }

    pub fn totals(&self) -> Totals {
        self.sides.lock().totals
    }

    fn wait_for(&self, sides: &mut Sides, ticket: Ticket, side: Side) {
        sides.unsynced.push_back((ticket, side));
        self.to_sync.notify_one();
    }

    /// Time, as outbox and inbox count it.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

/// Beside the keys of outbox and inbox.
fn home_key(home: &str) -> Vec<u8> {
    [&[HOME], home.as_bytes()].concat()
}

fn say(notice: &Notice) {
    match notice {
        Notice::RolledBack { to, waiting, .. } => tracing::warn!(
            "this node was restored from a backup: {waiting} events for {to} are sent again; those that had arrived \
             after the backup arrive twice"
        ),
        Notice::Over { to } => tracing::warn!("{to} takes no mail of this node any more"),
        Notice::Missing { to, number } => {
            tracing::error!("{} the letter {number} for {to} cannot be read", Code::StateCorrupt);
        }
    }
}

impl From<PushError> for NotPosted {
    fn from(error: PushError) -> Self {
        match error {
            PushError::Full(_) | PushError::TooManyReceivers => Self::Full(error),
            PushError::TooLarge(_) | PushError::ToItself => Self::Unfit(error),
        }
    }
}

impl From<StoreError> for NotPosted {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(error.into())
    }
}

impl From<CommitError> for NotPosted {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::LeaseLost => Self::LeaseLost,
            other => Self::Unavailable(other.into()),
        }
    }
}
