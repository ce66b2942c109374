//! Sending messages to clients: now, or as soon as there is room.

use super::accounts::{Room, held_bytes};
use super::connection::{ConnectionKey, Reply};
use super::message::{Message, View};
use super::publishing::Target;
use super::records;
use super::session::{Flight, Queued, SubscriptionIds, packet_id};
use super::trie::SessionKey;
use super::{Broker, Waiter};
use crate::codec::encode::{self, Ack, Outgoing};
use crate::codec::{Qos, Reason, Version};
use crate::limits::SEND_BYTES_FREE;
use crate::node::Node;
use std::sync::Arc;

/// Larger packets are not kept for the next receiver of the same form.
const FRAME_BYTES_MAX: usize = 4_096;

/// The message that is being sent, as bytes, for each form in which somebody gets it.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// Version, QoS and retain flag; the bytes; where the packet identifier stands.
    known: Vec<(Form, Vec<u8>, usize)>,
    used: usize,
}

type Form = (Version, Qos, bool);

impl Frames {
    /// Another message is being sent.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Appends the packet, encoded once for all receivers of one form.
    fn write(&mut self, outgoing: &Outgoing<'_>, into: &mut Vec<u8>) {
        let form = (outgoing.version, outgoing.qos, outgoing.retain);
        let is_common = outgoing.subscription_ids.is_empty() && !outgoing.dup && outgoing.bytes() <= FRAME_BYTES_MAX;
        if !is_common {
            outgoing.write(into);
            return;
        }
        let place = self.known[..self.used].iter().position(|(known, ..)| *known == form).unwrap_or_else(|| {
            if self.used == self.known.len() {
                self.known.push((form, Vec::new(), 0));
            }
            let (known, bytes, id_at) = &mut self.known[self.used];
            *known = form;
            bytes.clear();
            *id_at = outgoing.write(bytes);
            self.used += 1;
            self.used - 1
        });
        let (_, bytes, id_at) = &self.known[place];
        let start = into.len();
        into.extend_from_slice(bytes);
        if outgoing.qos.is_confirmed() {
            into[start + id_at..start + id_at + 2].copy_from_slice(&outgoing.id.to_be_bytes());
        }
    }
}

/// What a PUBLISH takes beside its topic, its payload and what goes along with them, about.
const PACKET_BYTES: usize = 64;

/// A subscriber that confirmed nothing for so long holds nobody up: it misses messages once its session is full.
const PROGRESS_MS: u64 = 500;

/// The longest a subscriber that does confirm holds a publisher up at a time.
const HOLD_MS: u64 = 1_000;

/// Whether there is memory to send a message from, beside what waits already.
fn can_hold(room: &mut Room, out: &Vec<u8>, view: View<'_>) -> bool {
    let bytes = out.len() + view.topic.len() + view.lasting.len() + view.payload.len() + PACKET_BYTES;
    bytes <= out.capacity().max(SEND_BYTES_FREE) || room.fits(bytes)
}

/// What becomes of a packet for one client.
enum Sent {
    Yes,
    /// The client takes none so large: as if it had been delivered (MQTT 5.0, 3.1.2.11.4).
    TooLarge,
}

impl<N: Node> Broker<N> {
    /// Sends to all targets what may be sent now; the rest waits in their sessions.
    pub(super) fn fan_out(
        &mut self,
        view: View<'_>,
        owned: &mut Option<Arc<Message>>,
        targets: &mut [Target],
        ticket: u64,
    ) {
        self.passing.frames.clear();
        for target in targets {
            if target.qos == Qos::AtMostOnce {
                self.send_unconfirmed(view, target);
            } else {
                self.send_or_queue(view, owned, target, ticket);
            }
        }
    }

    fn send_unconfirmed(&mut self, view: View<'_>, target: &mut Target) {
        let Some(key) = self.sessions.get(target.session).and_then(|session| session.connection) else { return };
        let Some(connection) = self.connections.get(key) else { return };
        let is_full = connection.out.len() >= self.limits.send_bytes_max;
        if !connection.is_open || is_full || !can_hold(&mut self.room, &connection.out, view) {
            self.counts.dropped += 1;
            return;
        }
        self.write_publish(key, view, Qos::AtMostOnce, target.retain, target.ids.as_deref(), 0, false);
    }

    fn send_or_queue(&mut self, view: View<'_>, owned: &mut Option<Arc<Message>>, target: &mut Target, ticket: u64) {
        let Some(session) = self.sessions.get_mut(target.session) else { return };
        let is_kept = session.is_kept();
        let ticket = if is_kept { ticket } else { 0 };
        // Sessions that end with their connections get it at once, without a copy being made.
        let goes_now = session.queue.is_empty() && ticket <= self.durable && {
            let connection = session.connection.and_then(|key| self.connections.get(key));
            connection.is_some_and(|connection| {
                connection.is_open
                    && connection.out.len() < self.limits.send_bytes_max
                    && can_hold(&mut self.room, &connection.out, view)
                    && session.has_window(connection.window, target.sequence.unwrap_or(session.next_sequence))
            })
        };
        if goes_now && !is_kept {
            let sequence = session.take_sequence();
            let flight = Flight { sequence, qos: target.qos, retain: target.retain, ids: None, message: None };
            let key = session.connection.expect("it is connected");
            session.flights.push_back(flight);
            let id = packet_id(sequence);
            if let Sent::TooLarge =
                self.write_publish(key, view, target.qos, target.retain, target.ids.as_deref(), id, false)
            {
                self.sessions.get_mut(target.session).expect("it was just there").flights.pop_back();
            }
            return;
        }
        if target.sequence.is_none() && self.is_full(target.session, view) {
            return self.count_dropped(target.session);
        }
        let message = owned.get_or_insert_with(|| Arc::new(view.to_message())).clone();
        self.hold_bytes(target.session, held_bytes(&message, &target.ids));
        let session = self.sessions.get_mut(target.session).expect("it was just there");
        let sequence = target.sequence.unwrap_or_else(|| session.take_sequence());
        let (qos, retain, ids, is_kept) = (target.qos, target.retain, target.ids.take(), target.sequence.is_some());
        session.queue.push_back(Queued { sequence, message, qos, retain, ids, ticket, dup: false, is_kept });
        // Half of the room is for what comes while publishers are told to wait.
        let is_behind = session.queue.len() > self.limits.queued_messages_max / 2
            || session.bytes > self.limits.queued_bytes_max / 2;
        if is_behind && session.connection.is_some() && self.now.steady_ms - session.progress_ms < PROGRESS_MS {
            self.passing.slow = Some(target.session);
        }
        if ticket > self.durable {
            self.wait(ticket, Waiter::Session(target.session));
        } else {
            self.pump(target.session);
        }
    }

    /// Whether the session has no room for another message, not even after what has expired is dropped.
    pub(super) fn is_full(&mut self, key: SessionKey, view: View<'_>) -> bool {
        self.lacks_room(key, view) && (!self.drop_expired() || self.lacks_room(key, view))
    }

    fn lacks_room(&mut self, key: SessionKey, view: View<'_>) -> bool {
        let Some(session) = self.sessions.get(key) else { return false };
        let bytes =
            view.topic.len() + view.lasting.len() + view.payload.len() + size_of::<Message>() + size_of::<Queued>();
        let total_max = self.limits.queued_bytes_total_max;
        let of_user = self.accounts.get(session.account).map_or(0, |account| account.queued_bytes);
        session.queue.len() >= self.limits.queued_messages_max
            || session.bytes + bytes > self.limits.queued_bytes_max
            || self.totals.queued_bytes + bytes > total_max
            || of_user + bytes > self.limits.of_user(total_max)
            || !self.room.fits(bytes)
    }

    pub(super) fn count_dropped(&mut self, key: SessionKey) {
        self.counts.dropped += 1;
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.dropped += 1;
        // Said at 1, 2, 4, 8 …: often enough to be seen, too seldom to fill the log.
        if session.dropped.is_power_of_two() {
            tracing::warn!(client = %session.client, dropped = session.dropped, "an MQTT session is full and misses messages");
        }
    }

    /// Sends what waits in a session, as far as there is room.
    pub(super) fn pump(&mut self, key: SessionKey) {
        loop {
            let Some(session) = self.sessions.get_mut(key) else { return };
            let Some(connection_key) = session.connection else { return };
            let Some(connection) = self.connections.get(connection_key) else { return };
            let has_room = session.queue.len() <= self.limits.queued_messages_max / 4
                && session.bytes <= self.limits.queued_bytes_max / 4;
            if has_room && !session.holds.is_empty() {
                self.let_read(key);
                continue;
            }
            let Some(next) = session.queue.front() else {
                // What grew for a burst is given back.
                session.queue.shrink_to(16);
                return;
            };
            let may_go = connection.is_open
                && next.ticket <= self.durable
                && connection.out.len() < self.limits.send_bytes_max
                && session.has_window(connection.window, next.sequence);
            if !may_go {
                return;
            }
            if !can_hold(&mut self.room, &connection.out, next.message.view()) {
                return if !self.to_do.starved.contains(&key) {
                    self.to_do.starved.push(key)
                };
            }
            let next = session.queue.pop_front().expect("it was just seen");
            self.send_queued(key, connection_key, next);
        }
    }

    fn send_queued(&mut self, key: SessionKey, connection: ConnectionKey, queued: Queued) {
        let view = queued.message.view();
        if view.is_expired(self.now.unix_ms) {
            self.counts.expired += 1;
            return self.drop_queued(key, &queued);
        }
        let id = packet_id(queued.sequence);
        let ids = queued.ids.as_deref();
        // A fan-out may be going on, of another message.
        self.passing.frames.clear();
        let sent = self.write_publish(connection, view, queued.qos, queued.retain, ids, id, queued.dup);
        self.passing.frames.clear();
        if let Sent::TooLarge = sent {
            return self.drop_queued(key, &queued);
        }
        if !queued.is_kept {
            self.release_bytes(key, held_bytes(&queued.message, &queued.ids));
        }
        let Queued { sequence, message, qos, retain, ids, is_kept, .. } = queued;
        let flight = Flight { sequence, qos, retain, ids, message: is_kept.then_some(message) };
        self.sessions.get_mut(key).expect("it was just there").flights.push_back(flight);
    }

    /// Goes on where the last connection of the session was lost.
    pub(super) fn resume(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get(key) else { return };
        let Some(connection) = session.connection else { return };
        for id in session.released.iter().map(|sequence| packet_id(*sequence)).collect::<Vec<_>>() {
            self.reply(connection, 0, Reply::Ack(Ack::Pubrel, id, Reason::SUCCESS));
        }
        self.pump(key);
    }

    #[expect(clippy::too_many_arguments, reason = "what a PUBLISH is made of; it would be taken apart again at once")]
    fn write_publish(
        &mut self,
        key: ConnectionKey,
        view: View<'_>,
        qos: Qos,
        retain: bool,
        ids: Option<&[u32]>,
        id: u16,
        dup: bool,
    ) -> Sent {
        let Some(connection) = self.connections.get_mut(key) else { return Sent::Yes };
        let outgoing = Outgoing {
            version: connection.version,
            qos,
            retain,
            dup,
            id,
            topic: view.topic,
            payload: view.payload,
            lasting: view.lasting,
            expiry_s: view.expiry_s(self.now.unix_ms),
            subscription_ids: if connection.version == Version::V5 { ids.unwrap_or_default() } else { &[] },
        };
        if connection.packet_bytes_max < encode::variable_bytes(1 << 21) + 1 + outgoing.bytes()
            && outgoing.bytes() > connection.packet_bytes_max
        {
            self.counts.dropped += 1;
            return Sent::TooLarge;
        }
        self.passing.frames.write(&outgoing, &mut connection.out);
        self.counts.sent += 1;
        self.set_dirty(key);
        Sent::Yes
    }

    /// A message that waited goes, and its copy on disk if there is one.
    pub(super) fn drop_queued(&mut self, key: SessionKey, queued: &Queued) {
        match queued.is_kept {
            true => self.let_go(key, queued.sequence, &queued.message, &queued.ids),
            false => self.release_bytes(key, held_bytes(&queued.message, &queued.ids)),
        }
    }

    /// The session is done with a message: its copy goes, in memory and on disk.
    fn let_go(&mut self, key: SessionKey, sequence: u64, message: &Message, ids: &SubscriptionIds) {
        self.release_bytes(key, held_bytes(message, ids));
        let Some(session) = self.sessions.get(key).filter(|session| session.is_stored) else { return };
        self.pending.loose.delete(records::copy_key(session.number, sequence));
        self.forget_copy(message);
    }

    /// One copy on disk is gone; with the last goes what they shared.
    pub(super) fn forget_copy(&mut self, message: &Message) {
        if let Some(number) = message.body()
            && message.drop_copy()
        {
            self.pending.loose.delete(records::body_key(number));
        }
    }

    /// The client has a message (PUBACK), or wants none of it (PUBREC with a failure).
    pub(super) fn flight_ended(&mut self, key: SessionKey, place: usize) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(flight) = session.flights.remove(place) else { return };
        session.progress_ms = self.now.steady_ms;
        if session.flights.is_empty() {
            session.flights.shrink_to(16);
        }
        if let Some(message) = &flight.message {
            self.let_go(key, flight.sequence, message, &flight.ids);
        }
        self.pump(key);
    }

    /// The client has a message of QoS 2: what is left is its identifier. Says whether the disk has to know before the
    /// client does.
    pub(super) fn flight_released(&mut self, key: SessionKey, place: usize) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let Some(flight) = session.flights.remove(place) else { return false };
        session.released.insert(flight.sequence);
        let (is_stored, number) = (session.is_stored, session.number);
        let Some(message) = flight.message else { return false };
        self.release_bytes(key, held_bytes(&message, &flight.ids));
        if is_stored {
            self.pending.loose.put(records::copy_key(number, flight.sequence), records::write_released());
            self.forget_copy(&message);
        }
        is_stored
    }

    /// The identifier is free again (PUBCOMP).
    pub(super) fn released_ended(&mut self, key: SessionKey, sequence: u64) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.released.remove(&sequence);
        session.progress_ms = self.now.steady_ms;
        if session.is_stored {
            let record = records::copy_key(session.number, sequence);
            self.pending.loose.delete(record);
        }
        self.pump(key);
    }

    /// Reads no further from a publisher until a subscriber that cannot keep up has room.
    pub(super) fn hold(&mut self, key: ConnectionKey, by: SessionKey) {
        let Some(session) = self.sessions.get_mut(by) else { return };
        let Some(connection) = self.connections.get_mut(key).filter(|connection| connection.session.is_some()) else {
            return;
        };
        if session.connection.is_some_and(|own| own != key) && connection.held_since_ms.is_none() {
            connection.held_since_ms = Some(self.now.steady_ms);
            session.holds.push(key);
        }
    }

    /// Reads no further from a connection until the next look at what is due.
    pub(super) fn rest(&mut self, key: ConnectionKey) {
        let since_ms = self.now.steady_ms.saturating_sub(HOLD_MS);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.held_since_ms.get_or_insert(since_ms);
        }
    }

    /// Lets those read on who waited for this session.
    pub(super) fn let_read(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        for held in std::mem::take(&mut session.holds) {
            if let Some(connection) = self.connections.get_mut(held) {
                connection.held_since_ms = None;
                self.set_dirty(held);
            }
        }
    }

    /// Lets those read on who waited long enough.
    pub(super) fn end_holds(&mut self) {
        let now_ms = self.now.steady_ms;
        let is_over = |since_ms: u64| now_ms.saturating_sub(since_ms) > HOLD_MS;
        let over: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.held_since_ms.is_some_and(is_over))
            .map(|(key, _)| key)
            .collect();
        for key in over {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.held_since_ms = None;
                self.set_dirty(key);
            }
        }
    }
}
