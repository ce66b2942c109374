//! From a PUBLISH to everything it causes.

use super::accounts::Payer;
use super::connection::{ConnectionKey, Reply, Stalled};
use super::message::{Message, View};
use super::records;
use super::session::SubscriptionIds;
use super::trie::{SessionKey, Subscriber};
use super::{Broker, COMMIT_RECORDS_MAX, Counts};
use crate::codec::encode::Ack;
use crate::codec::{Qos, Reason, Version};
use crate::limits::WhenFull;
use crate::node::{Changes, Delivery, Node, Refused};
use problem::{Code, Problem};
use std::collections::VecDeque;
use std::sync::Arc;

/// Wills that wait for room. One more is dropped, and counted as refused.
const LATE_WILLS_MAX: usize = 1_000;

/// Bytes of one user's wills that wait for room; of it a user has its share. One more is dropped, and counted as
/// refused.
const LATE_WILLS_BYTES_MAX: usize = 4 << 20;

/// A message that waits for its commit.
#[derive(Debug)]
pub struct Publishing {
    pub(super) message: Arc<Message>,
    pub(super) retain: bool,
    /// If it is retained.
    payer: Payer,
    origin: Publisher,
    targets: Vec<Target>,
    is_wanted: bool,
}

/// Who published it.
#[derive(Debug, Clone)]
pub enum Publisher {
    Client {
        connection: ConnectionKey,
        session: SessionKey,
        id: u16,
    },
    /// For a client that is lost.
    Will {
        client: Arc<str>,
        user: Option<Arc<str>>,
    },
}

/// A session that gets it.
#[derive(Debug)]
pub struct Target {
    pub session: SessionKey,
    pub qos: Qos,
    pub retain: bool,
    pub ids: SubscriptionIds,
    /// Of a copy on disk.
    pub sequence: Option<u64>,
    /// Whether it gets a copy on disk.
    is_kept: bool,
}

impl Target {
    /// For who just subscribed.
    pub fn retained(session: SessionKey, qos: Qos, id: Option<u32>, is_kept: bool) -> Self {
        Self { session, qos, retain: true, ids: id.map(|id| [id].into()), sequence: None, is_kept }
    }
}

impl Publisher {
    fn session(&self) -> Option<SessionKey> {
        match self {
            Self::Client { session, .. } => Some(*session),
            Self::Will { .. } => None,
        }
    }
}

impl Publishing {
    /// The identifier of a message of QoS 2.
    pub fn received_id(&self) -> Option<u16> {
        match self.origin {
            Publisher::Client { id, .. } if self.message.qos() == Qos::ExactlyOnce => Some(id),
            _ => None,
        }
    }

    pub fn of_will(message: Arc<Message>, retain: bool, client: Arc<str>, user: Option<Arc<str>>) -> Self {
        let payer = Payer::User(user.clone());
        Self { message, retain, payer, origin: Publisher::Will { client, user }, targets: Vec::new(), is_wanted: false }
    }
}

impl<N: Node> Broker<N> {
    /// Takes a message from a client that may publish it.
    pub(super) fn publish(&mut self, view: View<'_>, retain: bool, origin: Publisher) {
        self.counts.received += 1;
        let payer = if retain { self.payer(&origin) } else { Payer::Node };
        self.settle_retained(view, retain, &payer);
        let mut targets = self.targets(view.topic, view.qos, retain, origin.session());
        if let Err(refused) = self.check_room(view, retain, &payer, &mut targets) {
            let message = Arc::new(view.to_message());
            return self.refuse(Publishing { message, retain, payer, origin, targets, is_wanted: false }, &refused);
        }
        if self.pending.batch_targets + targets.len() > COMMIT_RECORDS_MAX {
            self.finish();
        }
        let is_wanted = self.node.wants(view.topic);
        let keeps_id = view.qos == Qos::ExactlyOnce && self.is_kept(origin.session());
        let needs_disk = is_wanted || retain || keeps_id || targets.iter().any(|target| target.is_kept);
        if needs_disk || !self.pending.batch.is_empty() {
            let message = Arc::new(view.to_message());
            self.pending.batch_targets += targets.len();
            self.pending.batch.push(Publishing { message, retain, payer, origin, targets, is_wanted });
        } else {
            let reason = if targets.is_empty() { Reason::NO_SUBSCRIBERS } else { Reason::SUCCESS };
            self.confirm(&origin, view.qos, 0, reason);
            self.fan_out(view, &mut None, &mut targets, 0);
            self.recycle(targets);
        }
    }

    /// Who pays for what a client retains.
    fn payer(&self, origin: &Publisher) -> Payer {
        let session = origin.session().and_then(|key| self.sessions.get(key));
        Payer::User(session.and_then(|session| session.user().clone()))
    }

    /// Everyone the message goes to, each session once.
    fn targets(&mut self, topic: &str, qos: Qos, retain: bool, from: Option<SessionKey>) -> Vec<Target> {
        let mut found = std::mem::take(&mut self.passing.found);
        found.clear();
        let (sessions, connections, limit) = (&self.sessions, &self.connections, self.limits.send_bytes_max);
        let is_ready = |session: SessionKey| {
            let connection = sessions.get(session).and_then(|session| session.connection);
            connection.and_then(|key| connections.get(key)).is_some_and(|connection| connection.out.len() < limit)
        };
        self.trie.matches(topic, &is_ready, &mut found);
        if found.len() > 1 {
            found.sort_unstable_by_key(|subscriber| subscriber.session);
        }
        let mut targets = std::mem::take(&mut self.passing.spare_targets);
        for subscriber in &found {
            if subscriber.options.no_local && from == Some(subscriber.session) {
                continue;
            }
            if subscriber.is_checked && !self.may_receive(subscriber.session, topic) {
                continue;
            }
            self.add_target(&mut targets, subscriber, qos, retain);
        }
        self.passing.found = found;
        targets
    }

    fn add_target(&self, targets: &mut Vec<Target>, subscriber: &Subscriber, qos: Qos, retain: bool) {
        let qos = subscriber.options.qos.min(qos);
        let retain = retain && subscriber.options.retain_as_published;
        let is_kept = qos.is_confirmed() && self.is_kept(Some(subscriber.session));
        if let Some(last) = targets.last_mut().filter(|last| last.session == subscriber.session) {
            last.qos = last.qos.max(qos);
            last.retain |= retain;
            last.is_kept |= is_kept;
            if let Some(id) = subscriber.id {
                let mut ids = last.ids.take().map(Vec::from).unwrap_or_default();
                ids.push(id);
                last.ids = Some(ids.into());
            }
            return;
        }
        let ids = subscriber.id.map(|id| [id].into());
        targets.push(Target { session: subscriber.session, qos, retain, ids, sequence: None, is_kept });
    }

    fn may_receive(&self, session: SessionKey, topic: &str) -> bool {
        self.sessions.get(session).is_some_and(|session| session.identity.may_receive(topic))
    }

    fn is_kept(&self, session: Option<SessionKey>) -> bool {
        session.and_then(|key| self.sessions.get(key)).is_some_and(super::session::Session::is_kept)
    }

    /// Refuses what there is no room for, or leaves out sessions that are full, as configured.
    fn check_room(
        &mut self,
        view: View<'_>,
        retain: bool,
        payer: &Payer,
        targets: &mut Vec<Target>,
    ) -> Result<(), Refused> {
        let full = |what: String| Refused::QueueFull(Problem::new(Code::QueueFull, what));
        if retain && !view.payload.is_empty() {
            self.check_retained_room(view, payer).map_err(full)?;
        }
        for place in (0..targets.len()).rev() {
            let session = targets[place].session;
            if !targets[place].is_kept || !self.is_full(session, view) {
                continue;
            }
            if self.limits.when_session_full == WhenFull::Refuse {
                let client = self.sessions.get(session).map(|session| session.client.clone()).unwrap_or_default();
                return Err(full(format!("the session of MQTT client {client:?} is full")));
            }
            self.count_dropped(session);
            targets.remove(place);
        }
        Ok(())
    }

    pub(super) fn recycle(&mut self, mut targets: Vec<Target>) {
        targets.clear();
        self.passing.spare_targets = targets;
    }

    /// Adds what the message changes on disk.
    pub(super) fn prepare(&mut self, publishing: &mut Publishing, changes: &mut Changes) {
        let Publishing { message, retain, payer, origin, targets, is_wanted } = publishing;
        let kept = targets.iter().filter(|target| target.is_kept).count();
        // Several copies share one record; of a single one it would be a second write.
        if kept > 1 || kept == 1 && message.body().is_some() {
            let number = message.body().unwrap_or_else(|| self.take_number());
            message.share(number, kept as u32);
            changes.put(records::body_key(number), records::write_message(message));
        }
        for target in targets.iter_mut().filter(|target| target.is_kept) {
            let Some(session) = self.sessions.get_mut(target.session) else { continue };
            let sequence = session.take_sequence();
            target.sequence = Some(sequence);
            let record = records::write_copy(message, target.qos, target.retain, &target.ids);
            changes.put(records::copy_key(session.number, sequence), record);
        }
        if *retain {
            let key = records::retained_key(message.topic());
            match message.payload().is_empty() {
                true => changes.delete(key),
                false => changes.put(key, records::write_retained(message, payer)),
            }
        }
        if let Publisher::Client { session, id, .. } = origin
            && message.qos() == Qos::ExactlyOnce
            && let Some(session) = self.sessions.get(*session).filter(|session| session.is_kept())
        {
            changes.put(records::received_key(session.number, *id), vec![1]);
        }
        if *is_wanted {
            let (client, user) = match origin {
                Publisher::Client { session, .. } => {
                    let session = self.sessions.get(*session);
                    session.map_or_else(Default::default, |session| (session.client.clone(), session.user().clone()))
                }
                Publisher::Will { client, user } => (client.clone(), user.clone()),
            };
            changes.events.push(Delivery { message: message.clone(), client, user, retain: *retain });
        }
    }

    /// The commit holds: passes the message on, and confirms it once `ticket` is durable.
    pub(super) fn accept(&mut self, publishing: Publishing, ticket: u64) {
        let Publishing { message, retain, payer, origin, mut targets, is_wanted } = publishing;
        if retain {
            match message.payload().is_empty() {
                true => drop(self.forget_retained(message.topic())),
                // A message of its own: what sessions' copies share ends with the last of them.
                false => self.keep_retained(Arc::new(message.view().to_message()), &payer),
            }
        }
        if let Some(session) = origin.session().and_then(|key| self.sessions.get_mut(key)) {
            session.ticket = session.ticket.max(ticket);
        }
        let is_for_nobody = targets.is_empty() && !is_wanted;
        let reason = if is_for_nobody { Reason::NO_SUBSCRIBERS } else { Reason::SUCCESS };
        self.confirm(&origin, message.qos(), ticket, reason);
        let mut owned = Some(message.clone());
        self.fan_out(message.view(), &mut owned, &mut targets, ticket);
        self.recycle(targets);
    }

    fn confirm(&mut self, origin: &Publisher, qos: Qos, ticket: u64, reason: Reason) {
        let Publisher::Client { connection, id, .. } = origin else { return };
        match qos {
            Qos::AtMostOnce => {}
            Qos::AtLeastOnce => self.reply(*connection, ticket, Reply::Ack(Ack::Puback, *id, reason)),
            Qos::ExactlyOnce => self.reply(*connection, ticket, Reply::Ack(Ack::Pubrec, *id, reason)),
        }
    }

    /// The message was not accepted. Its publisher learns so (MQTT 5), or is held up (3.1.1).
    pub(super) fn refuse(&mut self, publishing: Publishing, refused: &Refused) {
        match &publishing.origin {
            Publisher::Will { .. } => self.put_off_will(publishing),
            Publisher::Client { connection, session, id } => {
                let (key, session, id) = (*connection, *session, *id);
                let Some(connection) = self.connections.get_mut(key).filter(|connection| connection.session.is_some())
                else {
                    return;
                };
                if publishing.message.qos() != Qos::AtMostOnce && connection.version == Version::V311 {
                    let stalled = Stalled { messages: VecDeque::new(), since_ms: self.now.steady_ms };
                    connection.stalled.get_or_insert_with(|| Box::new(stalled)).messages.push_back(publishing);
                    if !self.to_do.stalled.contains(&key) {
                        self.to_do.stalled.push(key);
                    }
                    return;
                }
                self.counts.refused += 1;
                if publishing.message.qos() == Qos::ExactlyOnce {
                    self.forget_id(session, id);
                }
                let reason = match refused {
                    Refused::QueueFull(_) => Reason::QUOTA_EXCEEDED,
                    Refused::Unavailable(_) => Reason::NOT_ACCEPTED,
                };
                self.confirm(&publishing.origin, publishing.message.qos(), 0, reason);
            }
        }
    }

    /// Keeps the order of messages of a client that is held up.
    pub(super) fn queue_behind_stalled(&mut self, publishing: Publishing) -> Option<Publishing> {
        if let Publisher::Client { connection, .. } = publishing.origin
            && let Some(stalled) =
                self.connections.get_mut(connection).and_then(|connection| connection.stalled.as_mut())
        {
            stalled.messages.push_back(publishing);
            return None;
        }
        Some(publishing)
    }

    /// Tries again what holds up connections; gives up on those that waited too long.
    pub(super) fn retry_stalled(&mut self) {
        for key in std::mem::take(&mut self.to_do.stalled) {
            let Some(mut stalled) = self.connections.get_mut(key).and_then(|connection| connection.stalled.take())
            else {
                continue;
            };
            let mut is_held_up = false;
            while let Some(publishing) = stalled.messages.pop_front() {
                if let Err(publishing) = self.publish_again(publishing) {
                    stalled.messages.push_front(publishing);
                    is_held_up = true;
                    break;
                }
                stalled.since_ms = self.now.steady_ms;
            }
            let waited_ms = self.now.steady_ms.saturating_sub(stalled.since_ms);
            if !is_held_up {
                // Reading goes on.
                self.set_dirty(key);
            } else if u128::from(waited_ms) >= self.limits.stall_timeout.as_millis() {
                self.counts.refused += stalled.messages.len() as u64;
                self.close_stalled(key, &stalled);
            } else if let Some(connection) = self.connections.get_mut(key) {
                connection.stalled = Some(stalled);
                self.to_do.stalled.push(key);
            }
        }
    }

    /// Whoever subscribed may have changed meanwhile.
    fn publish_again(&mut self, mut publishing: Publishing) -> Result<(), Publishing> {
        let message = publishing.message.clone();
        let view = message.view();
        publishing.targets = self.targets(view.topic, view.qos, publishing.retain, publishing.origin.session());
        publishing.is_wanted = self.node.wants(view.topic);
        if self.check_room(view, publishing.retain, &publishing.payer, &mut publishing.targets).is_err() {
            return Err(publishing);
        }
        self.attempt(publishing).map_err(|late| late.0)
    }

    fn close_stalled(&mut self, key: ConnectionKey, stalled: &Stalled) {
        let session = self.connections.get(key).and_then(|connection| connection.session);
        if let Some(session) = session {
            for id in stalled.messages.iter().filter_map(Publishing::received_id) {
                self.forget_id(session, id);
            }
        }
        self.close(key, Reason::QUOTA_EXCEEDED);
    }

    /// Publishes a will, at once or as soon as it is accepted.
    pub(super) fn publish_of_will(&mut self, mut publishing: Publishing) {
        self.counts.received += 1;
        let message = publishing.message.clone();
        let view = message.view();
        self.settle_retained(view, publishing.retain, &publishing.payer);
        publishing.targets = self.targets(view.topic, view.qos, publishing.retain, None);
        publishing.is_wanted = self.node.wants(view.topic);
        match self.check_room(view, publishing.retain, &publishing.payer, &mut publishing.targets) {
            Ok(()) => self.pending.batch.push(publishing),
            Err(refused) => self.refuse(publishing, &refused),
        }
    }

    /// A will that finds no room waits for some. Few do: a client that comes and is lost again and again leaves one
    /// each time.
    fn put_off_will(&mut self, publishing: Publishing) {
        let of_user = self.due.late_wills.iter().filter(|(_, other)| other.payer == publishing.payer);
        let own_bytes: usize = of_user.map(|(_, other)| other.message.bytes()).sum();
        let bytes = publishing.message.bytes();
        let is_full = self.due.late_wills.len() >= LATE_WILLS_MAX
            || own_bytes + bytes > self.limits.of_user(LATE_WILLS_BYTES_MAX).max(self.limits.packet_bytes_max);
        if is_full {
            self.counts.refused += 1;
            return;
        }
        self.due.late_wills.push_back((self.now.steady_ms, publishing));
    }

    pub(super) fn retry_wills(&mut self) {
        for (since_ms, publishing) in std::mem::take(&mut self.due.late_wills) {
            let waited_ms = self.now.steady_ms.saturating_sub(since_ms);
            match self.publish_again(publishing) {
                Ok(()) => {}
                Err(publishing) if u128::from(waited_ms) < self.limits.stall_timeout.as_millis() * 6 => {
                    self.due.late_wills.push_back((since_ms, publishing));
                }
                Err(publishing) => {
                    self.counts.refused += 1;
                    let Publisher::Will { client, .. } = &publishing.origin else { continue };
                    tracing::warn!(%client, topic = publishing.message.topic(), "a will found no room and is dropped");
                }
            }
        }
    }

    /// Publishes for the node itself: a sink, or the bridge. Returns the commit to wait for.
    ///
    /// # Errors
    /// Nothing was published.
    pub fn publish_from_node(
        &mut self,
        now: super::Now,
        view: View<'_>,
        retain: bool,
        client: &Arc<str>,
    ) -> Result<u64, Refused> {
        self.now = now;
        self.counts.received += 1;
        let message = Arc::new(view.to_message());
        let mut publishing = Publishing::of_will(message.clone(), retain, client.clone(), None);
        publishing.payer = Payer::Node;
        publishing.targets = self.targets(view.topic, view.qos, retain, None);
        publishing.is_wanted = self.node.wants(view.topic);
        self.check_room(view, retain, &Payer::Node, &mut publishing.targets)?;
        let mut changes = Changes::default();
        self.prepare(&mut publishing, &mut changes);
        let ticket = self.commit(&changes).inspect_err(|_| self.counts.refused += 1)?;
        self.accept(publishing, ticket);
        self.finish();
        Ok(ticket)
    }

    pub(super) fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }
}

impl Counts {
    /// Names for the metrics, with what they count since the start.
    pub fn since_start(&self) -> [(&'static str, u64); 5] {
        [
            ("received", self.received),
            ("sent", self.sent),
            ("dropped", self.dropped),
            ("refused", self.refused),
            ("expired", self.expired),
        ]
    }
}
