//! The broker itself: who subscribed to what, and what has to be sent to whom. No I/O and no clock.
//!
//! ```text
//!  bytes ─▶ feed ─▶ packets ─▶ publish ─▶ commit ─────────▶ fan out to those connected now
//!                                           │ durable
//!                                           └──▶ answers · copies of sessions that outlive their connections
//! ```
//! Whoever drives it hands in bytes, times and what became durable, and takes out what each connection is to be sent.
//! All packets of one [`Broker::feed`] share one commit.
//!
//! **The order of things.** A message is committed (visible, all or nothing: events for functions, the retained
//! message, copies for sessions that outlive their connections, the identifier of QoS 2), then passed on to clients
//! whose sessions end with their connections, and confirmed once the commit is durable. Sessions that outlive their
//! connections get it once it is durable, for what was sent must be known after a restart.

mod accounts;
mod connecting;
mod connection;
mod fan_out;
mod keeping;
mod looking;
mod message;
mod packets;
mod parts;
mod publishing;
mod records;
mod restore;
mod retained;
mod rights;
mod session;
mod slab;
mod subscribing;
mod subscriptions;
mod sweeping;
mod trie;
mod will;

pub use accounts::Payer;
pub use connecting::ConnectRefusal;
pub use connection::ConnectionKey;
pub use message::{Message, View};
pub use packets::Fed;
pub use rights::SessionInfo;
pub use trie::Filters;

use crate::codec::{Reason, encode};
use crate::limits::Limits;
use crate::node::{Changes, Node, Refused};
use crate::users::Users;
use accounts::{Account, AccountKey, Room};
use budget::{Budget, Purpose};
use connection::{Connection, Reply};
use parts::{Due, Passing, Pending, ToDo, Totals};
use problem::Problem;
use publishing::Publishing;
use retained::Retained;
use session::Session;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use trie::{SessionKey, Trie};

/// Records that may wait for a disk that takes none; then the broker gives up until it is started again.
const LOOSE_RECORDS_MAX: usize = 200_000;

/// Records that one commit changes at most; a transaction has room for 10,000 changes.
const COMMIT_RECORDS_MAX: usize = 5_000;

/// What time it is, twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a clock that never jumps.
    pub steady_ms: u64,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
}

/// Numbers for the metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub connections: u64,
    pub sessions: u64,
    pub subscriptions: u64,
    pub retained: u64,
    pub retained_bytes: u64,
    /// Messages that wait in sessions or are on their way from them, by bytes.
    pub queued_bytes: u64,
    /// Since the start.
    pub received: u64,
    pub sent: u64,
    /// Messages that a session did not get because it was full.
    pub dropped: u64,
    /// Messages that were not accepted.
    pub refused: u64,
    pub expired: u64,
}

/// Who waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiter {
    Connection(ConnectionKey),
    Session(SessionKey),
}

/// Whose session it is: the names of two users' clients have nothing to do with each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Owner {
    user: Option<Arc<str>>,
    client: Arc<str>,
}

/// See the top of this file.
pub struct Broker<N> {
    limits: Limits,
    node: Arc<N>,
    now: Now,
    sessions: Slab<Session>,
    by_owner: HashMap<Owner, SessionKey>,
    accounts: Slab<Account>,
    by_user: HashMap<Option<Arc<str>>, AccountKey>,
    room: Room,
    connections: Slab<Connection>,
    trie: Trie,
    retained: Retained,
    /// Commits up to this one are durable.
    durable: u64,
    /// Who waits for which commit, the oldest first.
    waiting: VecDeque<(u64, Waiter)>,
    pending: Pending,
    to_do: ToDo,
    due: Due,
    /// For sessions and shared messages.
    next_number: u64,
    totals: Totals,
    counts: Counts,
    /// The disk failed.
    broken: bool,
    passing: Passing,
}

impl<N: Node> Broker<N> {
    /// A broker with what was kept, as far as `users` may still have it. What it holds is a share of `budget`.
    ///
    /// # Errors
    /// The records cannot be read.
    pub fn new(limits: Limits, node: Arc<N>, users: &Users, budget: &Arc<Budget>, now: Now) -> Result<Self, Problem> {
        let mut broker = Self {
            limits,
            node,
            now,
            sessions: Slab::default(),
            by_owner: HashMap::new(),
            accounts: Slab::default(),
            by_user: HashMap::new(),
            room: Room::new(budget.share(Purpose::Mqtt)),
            connections: Slab::default(),
            trie: Trie::default(),
            retained: Retained::default(),
            durable: 0,
            waiting: VecDeque::new(),
            pending: Pending::default(),
            to_do: ToDo::default(),
            due: Due::default(),
            next_number: 1,
            totals: Totals::default(),
            counts: Counts::default(),
            broken: false,
            passing: Passing::default(),
        };
        broker.restore(users)?;
        Ok(broker)
    }

    /// Takes what the connection is to be sent now; `into` is empty. Says whether it is closed afterwards.
    pub fn take(&mut self, key: ConnectionKey, into: &mut Vec<u8>) -> bool {
        let limit = self.limits.send_bytes_max;
        let Some(connection) = self.connections.get_mut(key) else { return true };
        let held_itself_up = connection.out.len() >= limit;
        std::mem::swap(&mut connection.out, into);
        self.count_taken(key, into.capacity());
        self.count_out(key);
        if held_itself_up {
            // Reading goes on.
            self.set_dirty(key);
        }
        let Some(connection) = self.connections.get_mut(key) else { return true };
        let (session, closing) = (connection.session, connection.session.is_none());
        if let Some(session) = session {
            self.pump(session);
            let connection = self.connections.get_mut(key).expect("sending closes no connection");
            if !connection.out.is_empty() && into.is_empty() {
                std::mem::swap(&mut connection.out, into);
                self.count_taken(key, into.capacity());
                self.count_out(key);
            }
        }
        closing
    }

    /// Whether the connection still has its session; if not, it is closed once all is sent.
    pub fn is_connected(&self, key: ConnectionKey) -> bool {
        self.connections.get(key).is_some_and(|connection| connection.session.is_some())
    }

    /// Connections that have something to send, or are to be closed, since the last call.
    pub fn dirty(&mut self, into: &mut Vec<ConnectionKey>) {
        into.append(&mut self.to_do.dirty);
        for key in into.iter() {
            if let Some(connection) = self.connections.get_mut(*key) {
                connection.is_dirty = false;
            }
        }
    }

    /// Whether the connection may be read from: not while its messages wait for room or for the disk.
    pub fn may_read(&self, key: ConnectionKey) -> bool {
        self.connections.get(key).is_some_and(|connection| {
            connection.stalled.is_none()
                && connection.held_since_ms.is_none()
                && connection.wanted.is_empty()
                && connection.session.is_some()
                // Who does not read its answers is asked nothing more.
                && connection.out.len() < self.limits.send_bytes_max
                // One more is read, so that a client of MQTT 5 that breaks the agreement is told.
                && connection.replies.len() <= usize::from(self.limits.receive_maximum)
        })
    }

    /// The commit that somebody waits for, the oldest one.
    pub fn waits_for(&self) -> Option<u64> {
        self.waiting.front().map(|(ticket, _)| *ticket)
    }

    /// All commits up to `ticket` are durable.
    pub fn durable(&mut self, now: Now, ticket: u64) {
        self.now = now;
        self.durable = self.durable.max(ticket);
        while let Some((_, waiter)) = self.waiting.front().copied().filter(|(ticket, _)| *ticket <= self.durable) {
            self.waiting.pop_front();
            match waiter {
                Waiter::Connection(key) => self.answer(key),
                Waiter::Session(key) => self.pump(key),
            }
        }
        self.finish();
    }

    /// The disk failed: nothing is confirmed any more, and everyone is told so.
    pub fn fail(&mut self, now: Now, problem: &Problem) {
        self.now = now;
        if std::mem::replace(&mut self.broken, true) {
            return;
        }
        tracing::error!(code = %problem.code, "the MQTT gate closes its connections: {}", problem.detail);
        self.waiting.clear();
        for key in self.connections.keys().collect::<Vec<_>>() {
            self.close(key, Reason::UNAVAILABLE);
        }
    }

    /// Closes everything, as when the node stops. Sessions stay.
    pub fn shut_down(&mut self, now: Now) {
        self.now = now;
        for key in self.connections.keys().collect::<Vec<_>>() {
            self.close(key, Reason::SHUTTING_DOWN);
        }
        self.finish();
    }

    pub fn counts(&self) -> Counts {
        Counts {
            connections: self.connections.len() as u64,
            sessions: self.sessions.len() as u64,
            subscriptions: self.totals.subscriptions as u64,
            retained: self.retained.count() as u64,
            retained_bytes: self.retained.bytes() as u64,
            queued_bytes: self.totals.queued_bytes as u64,
            ..self.counts
        }
    }

    /// Does what is due by now: ends sessions, publishes wills, closes silent connections, tries again what was
    /// refused. Called every second or so.
    pub fn do_due(&mut self, now: Now) {
        self.now = now;
        self.retry_stalled();
        std::mem::take(&mut self.to_do.starved).into_iter().for_each(|key| self.pump(key));
        self.retry_wills();
        self.end_holds();
        self.send_more_retained();
        while let Some((_, key)) = self.due.wills.first().copied().filter(|(at_ms, _)| *at_ms <= now.steady_ms) {
            self.publish_will(key);
        }
        while let Some((_, key)) = self.due.expiring.first().copied().filter(|(at_ms, _)| *at_ms <= now.unix_ms) {
            self.end_session(key);
        }
        let is_silent = |connection: &Connection| {
            connection.session.is_some()
                && connection.silence_max_ms > 0
                && now.steady_ms.saturating_sub(connection.last_ms) > connection.silence_max_ms
        };
        let silent: Vec<_> =
            self.connections.iter().filter(|(_, connection)| is_silent(connection)).map(|(key, _)| key).collect();
        for key in silent {
            self.close(key, Reason::KEEP_ALIVE);
        }
        self.finish();
    }

    fn set_dirty(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if !std::mem::replace(&mut connection.is_dirty, true) {
            self.to_do.dirty.push(key);
        }
        if connection.out_bytes != accounts::send_bytes(connection.out.capacity()) {
            self.count_out(key);
        }
    }

    /// Answers once `ticket` is durable, in the order of the calls.
    fn reply(&mut self, key: ConnectionKey, ticket: u64, reply: Reply) {
        let Some(connection) = self.connections.get_mut(key).filter(|connection| connection.session.is_some()) else {
            return;
        };
        if ticket <= self.durable && connection.replies.is_empty() {
            connection.write(reply);
            return self.set_dirty(key);
        }
        // Later answers never wait for less than earlier ones.
        let ticket = connection.replies.back().map_or(ticket, |(last, _)| ticket.max(*last));
        connection.replies.push_back((ticket, reply));
        self.wait(ticket, Waiter::Connection(key));
    }

    fn wait(&mut self, ticket: u64, waiter: Waiter) {
        if self.waiting.back() != Some(&(ticket, waiter)) {
            // Tickets are issued in order, so this one belongs at the end, or is as new as the last.
            let place = self.waiting.partition_point(|(other, _)| *other <= ticket);
            self.waiting.insert(place, (ticket, waiter));
        }
    }

    /// Sends the answers that wait no longer.
    fn answer(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let was_open = connection.is_open;
        while connection.replies.front().is_some_and(|(ticket, _)| *ticket <= self.durable) {
            let (_, reply) = connection.replies.pop_front().expect("it was just seen");
            connection.write(reply);
        }
        if connection.replies.is_empty() {
            connection.replies.shrink_to(16);
        }
        let (has_opened, session) = (connection.is_open && !was_open, connection.session);
        self.set_dirty(key);
        if has_opened && let Some(session) = session {
            self.resume(session);
        }
    }

    /// Commits what has gathered: all of it at once, or, if that is refused, each message alone.
    fn finish(&mut self) {
        if self.broken {
            // Nothing is written any more, and nothing answered that waits for it.
            self.pending.loose = Changes::default();
            self.pending.loose_replies.clear();
        }
        if self.pending.batch.is_empty() && self.pending.loose.is_empty() {
            return self.send_loose_replies(0);
        }
        self.commit_most_loose();
        let mut batch = std::mem::take(&mut self.pending.batch);
        self.pending.batch_targets = 0;
        let mut changes = std::mem::take(&mut self.pending.loose);
        let loose_records = changes.records.len();
        for publishing in &mut batch {
            self.prepare(publishing, &mut changes);
        }
        match self.commit(&changes) {
            Ok(ticket) => {
                self.send_loose_replies(ticket);
                for publishing in batch {
                    self.accept(publishing, ticket);
                }
            }
            Err(refused) => {
                changes.records.truncate(loose_records);
                changes.events.clear();
                self.pending.loose = changes;
                let is_alone = batch.len() == 1 && loose_records == 0;
                self.finish_one_by_one(batch, refused, is_alone);
            }
        }
    }

    /// Commits loose changes until what is left fits into one commit with a batch: a session may end that holds more
    /// records than a transaction has room for. What they belong to is deleted first, so that a restart in between
    /// deletes the rest.
    fn commit_most_loose(&mut self) {
        while self.pending.loose.records.len() > COMMIT_RECORDS_MAX {
            let rest = self.pending.loose.records.split_off(COMMIT_RECORDS_MAX);
            if self.commit(&self.pending.loose).is_err() {
                // They are tried again with the rest.
                return self.pending.loose.records.extend(rest);
            }
            self.pending.loose.records = rest;
        }
    }

    fn finish_one_by_one(&mut self, batch: Vec<Publishing>, refused: Refused, is_alone: bool) {
        if is_alone {
            return batch.into_iter().for_each(|publishing| self.refuse(publishing, &refused));
        }
        self.commit_most_loose();
        if !self.pending.loose.is_empty() {
            match self.commit(&self.pending.loose) {
                Ok(ticket) => {
                    self.pending.loose = Changes::default();
                    self.send_loose_replies(ticket);
                }
                Err(refused) if self.pending.loose.records.len() > LOOSE_RECORDS_MAX => {
                    return self.fail(self.now, &refused.problem().clone());
                }
                // They are tried again, and nothing is answered before.
                Err(_) => {}
            }
        }
        for publishing in batch {
            // A message must not overtake the one before it from the same client.
            let Some(publishing) = self.queue_behind_stalled(publishing) else { continue };
            if let Err(late) = self.attempt(publishing) {
                let (publishing, refused) = *late;
                self.refuse(publishing, &refused);
            }
        }
    }

    /// Commits one message alone.
    fn attempt(&mut self, mut publishing: Publishing) -> Result<(), Box<(Publishing, Refused)>> {
        let mut changes = Changes::default();
        self.prepare(&mut publishing, &mut changes);
        match self.commit(&changes) {
            Ok(ticket) => {
                self.accept(publishing, ticket);
                Ok(())
            }
            Err(refused) => Err(Box::new((publishing, refused))),
        }
    }

    fn commit(&self, changes: &Changes) -> Result<u64, Refused> {
        if changes.is_empty() {
            return Ok(0);
        }
        if self.broken {
            let problem = Problem::new(
                problem::Code::DiskFailed,
                "the disk failed; nothing is written until the node is started again",
            );
            return Err(Refused::Unavailable(problem));
        }
        self.node.commit(changes)
    }

    /// Answers a change of a session: where there are records of it, together with them. Where there are none the disk
    /// may be full.
    fn reply_once_stored(&mut self, key: ConnectionKey, is_stored: bool, reply: Reply) {
        match is_stored {
            true => self.pending.loose_replies.push((key, reply)),
            false => self.reply_and_open(key, 0, reply),
        }
    }

    fn send_loose_replies(&mut self, ticket: u64) {
        for (key, reply) in std::mem::take(&mut self.pending.loose_replies) {
            self.reply_and_open(key, ticket, reply);
        }
    }

    fn reply_and_open(&mut self, key: ConnectionKey, ticket: u64, reply: Reply) {
        let opens = matches!(reply, Reply::Open(_));
        self.reply(key, ticket, reply);
        let opened = self.connections.get(key).filter(|connection| opens && connection.is_open);
        if let Some(session) = opened.and_then(|connection| connection.session) {
            self.resume(session);
        }
    }

    /// Ends a connection from this side.
    fn close(&mut self, key: ConnectionKey, reason: Reason) {
        let Some(connection) = self.connections.get_mut(key).filter(|connection| connection.session.is_some()) else {
            return;
        };
        if connection.version == crate::codec::Version::V5 && connection.is_open {
            encode::disconnect(&mut connection.out, reason, connection.version);
        }
        let is_clean = reason == Reason::SUCCESS;
        self.detach(key, is_clean);
    }
}
