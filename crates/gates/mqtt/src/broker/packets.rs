//! Takes the bytes of a connection apart and does what its packets ask for.

use super::connection::{Connection, ConnectionKey, Reply};
use super::message::View;
use super::publishing::Publisher;
use super::records;
use super::trie::SessionKey;
use super::{Broker, Now};
use crate::codec::encode::{self, Ack};
use crate::codec::{Fault, Packet, Publish, Qos, Reason, Version, decode, split};
use crate::limits::TOPIC_BYTES_MAX;
use crate::node::Node;
use crate::topic;
use std::borrow::Cow;

/// Messages of one feed that share a commit: a transaction has room for 10,000 changes.
pub(super) const BATCH_MAX: usize = 500;

/// What became of the bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fed {
    /// Bytes that are done with. The rest is the beginning of a packet, or waits until reading goes on.
    pub consumed: usize,
    /// Bytes of the packet that begins there, if that is known and it is not whole.
    pub wants: usize,
}

impl<N: Node> Broker<N> {
    /// Does what the packets in `bytes` ask for, up to the last whole one or until the connection is held up.
    pub fn feed(&mut self, now: Now, key: ConnectionKey, bytes: &[u8]) -> Fed {
        self.now = now;
        let (mut consumed, mut wants) = (0, 0);
        self.passing.looked_at = 0;
        while self.may_read(key) {
            let Some(connection) = self.connections.get_mut(key) else { break };
            let version = connection.version;
            let frame = match split(&bytes[consumed..], Some(version), self.limits.packet_bytes_max) {
                Ok(Some(frame)) => frame,
                Ok(None) => {
                    wants = bytes.len() - consumed;
                    break;
                }
                Err(fault) => {
                    self.fault(key, fault);
                    break;
                }
            };
            consumed += frame.bytes;
            connection.last_ms = now.steady_ms;
            if let Err(fault) = decode(frame, version).and_then(|packet| self.packet(key, packet)) {
                self.fault(key, fault);
                break;
            }
            if self.pending.batch.len() >= BATCH_MAX || self.pending.loose.records.len() >= BATCH_MAX {
                self.finish();
            }
        }
        self.finish();
        if let Some(session) = self.passing.slow.take() {
            self.hold(key, session);
        }
        Fed { consumed, wants }
    }

    fn fault(&mut self, key: ConnectionKey, fault: Fault) {
        if let Some(session) = self.connections.get(key).and_then(|connection| self.sessions.get(connection.session?)) {
            tracing::debug!(client = %session.client, %fault, "an MQTT connection is closed");
        }
        // What came before it counts.
        self.finish();
        self.close(key, fault.reason);
    }

    fn packet(&mut self, key: ConnectionKey, packet: Packet<'_>) -> Result<(), Fault> {
        match packet {
            Packet::Publish(publish) => self.take_publish(key, &publish),
            Packet::Puback { id, .. } => self.take_puback(key, id),
            Packet::Pubrec { id, reason } => self.take_pubrec(key, id, reason),
            Packet::Pubrel { id, .. } => self.take_pubrel(key, id),
            Packet::Pubcomp { id, .. } => self.take_pubcomp(key, id),
            Packet::Subscribe(subscribe) => self.take_subscribe(key, &subscribe),
            Packet::Unsubscribe(unsubscribe) => self.take_unsubscribe(key, &unsubscribe),
            Packet::Pingreq => {
                let connection = self.connection(key);
                encode::pingresp(&mut connection.out);
                self.set_dirty(key);
                Ok(())
            }
            Packet::Disconnect { reason, session_expiry_s } => self.take_disconnect(key, reason, session_expiry_s),
            Packet::Connect(_) => Err(Fault::protocol("a second CONNECT")),
            Packet::Auth => Err(Fault::protocol("an AUTH without an authentication method")),
            _ => Err(Fault::protocol("a packet that only a broker sends")),
        }
    }

    fn connection(&mut self, key: ConnectionKey) -> &mut Connection {
        self.connections.get_mut(key).expect("its packet is being handled")
    }

    fn take_publish(&mut self, key: ConnectionKey, publish: &Publish<'_>) -> Result<(), Fault> {
        let (receive_maximum, aliases_max) = (self.limits.receive_maximum, self.limits.topic_alias_maximum);
        let connection = self.connection(key);
        let session_key = connection.session.expect("packets are handled while there is a session");
        let topic = resolve_alias(connection, publish, aliases_max)?;
        if publish.properties.subscription_ids.is_empty() {
            check_payload(publish)?;
        } else {
            return Err(Fault::protocol("a client sends a subscription identifier"));
        }
        let is_allowed = connection.identity.may_publish(&topic);
        if publish.qos.is_confirmed() && connection.version == Version::V5 {
            connection.unconfirmed += 1;
            if connection.unconfirmed > u32::from(receive_maximum) {
                return Err(Fault {
                    reason: Reason::RECEIVE_MAXIMUM,
                    why: "more messages at once than were agreed on",
                });
            }
        }
        let session = self.sessions.get(session_key).expect("a connection's session exists");
        if publish.qos == Qos::ExactlyOnce && session.received.contains(&publish.id) {
            return self.take_again(key, session_key, publish.id);
        }
        if topic.len() > TOPIC_BYTES_MAX || topic::levels(&topic) > self.limits.topic_levels_max {
            return self.deny(key, publish, Reason::TOPIC_INVALID);
        }
        if !is_allowed {
            return self.deny(key, publish, Reason::NOT_AUTHORIZED);
        }
        if publish.qos == Qos::ExactlyOnce && !self.keep_id(session_key, publish.id) {
            return self.deny(key, publish, Reason::QUOTA_EXCEEDED);
        }
        let mut lasting = Vec::new();
        encode::lasting_properties(&mut lasting, &publish.properties);
        let expires_ms = publish.properties.expiry_s.map(|seconds| self.now.unix_ms + u64::from(seconds) * 1_000);
        let view = View { topic: &topic, payload: publish.payload, lasting: &lasting, qos: publish.qos, expires_ms };
        self.publish(view, publish.retain, Publisher::Client { connection: key, session: session_key, id: publish.id });
        Ok(())
    }

    /// A message of QoS 2 that is here already: only the answer was lost. It may still be on its way to the disk.
    fn take_again(&mut self, key: ConnectionKey, session_key: SessionKey, id: u16) -> Result<(), Fault> {
        let connection = self.connection(key);
        connection.unconfirmed = connection.unconfirmed.saturating_sub(1);
        // Answers come in the order of what they answer.
        self.finish();
        let connection = self.connection(key);
        let is_held_up = connection.stalled.as_ref().is_some_and(|stalled| stalled.holds(id));
        if !is_held_up
            && let Some(session) = self.sessions.get(session_key).filter(|session| session.received.contains(&id))
        {
            let ticket = session.ticket;
            self.reply(key, ticket, Reply::Ack(Ack::Pubrec, id, Reason::SUCCESS));
        }
        Ok(())
    }

    /// A message that this client must not publish. In 3.1.1 there is no way to say so: it is confirmed, and goes
    /// nowhere.
    fn deny(&mut self, key: ConnectionKey, publish: &Publish<'_>, reason: Reason) -> Result<(), Fault> {
        self.counts.refused += 1;
        let connection = self.connection(key);
        if connection.version == Version::V311 && reason == Reason::TOPIC_INVALID {
            return Err(Fault { reason, why: "a topic is longer or has more levels than this broker takes" });
        }
        if connection.version == Version::V311 && reason == Reason::QUOTA_EXCEEDED {
            return Err(Fault { reason, why: "more messages of QoS 2 that are not released than there is room for" });
        }
        let reason = if connection.version == Version::V311 { Reason::SUCCESS } else { reason };
        match publish.qos {
            Qos::AtMostOnce => {}
            Qos::AtLeastOnce => self.reply(key, 0, Reply::Ack(Ack::Puback, publish.id, reason)),
            Qos::ExactlyOnce => self.reply(key, 0, Reply::Ack(Ack::Pubrec, publish.id, reason)),
        }
        Ok(())
    }

    fn take_puback(&mut self, key: ConnectionKey, id: u16) -> Result<(), Fault> {
        let session_key = self.connection(key).session.expect("packets are handled while there is a session");
        let session = self.sessions.get(session_key).expect("a connection's session exists");
        let of_qos_2 = Err(Fault::protocol("a PUBACK for a message of QoS 2"));
        let Some(place) = session.find(id) else {
            return if session.find_released(id).is_some() { of_qos_2 } else { Ok(()) };
        };
        if session.flights[place].qos != Qos::AtLeastOnce {
            return of_qos_2;
        }
        self.flight_ended(session_key, place);
        Ok(())
    }

    fn take_pubrec(&mut self, key: ConnectionKey, id: u16, reason: Reason) -> Result<(), Fault> {
        let session_key = self.connection(key).session.expect("packets are handled while there is a session");
        let session = self.sessions.get(session_key).expect("a connection's session exists");
        let ticket = session.ticket;
        let Some(place) = session.find(id) else {
            let is_known = session.find_released(id).is_some();
            if !reason.is_failure() {
                let reason = if is_known { Reason::SUCCESS } else { Reason::ID_UNKNOWN };
                self.reply(key, ticket, Reply::Ack(Ack::Pubrel, id, reason));
            }
            return Ok(());
        };
        if session.flights[place].qos != Qos::ExactlyOnce {
            return Err(Fault::protocol("a PUBREC for a message of QoS 1"));
        }
        if reason.is_failure() {
            self.flight_ended(session_key, place);
        } else if self.flight_released(session_key, place) {
            // Once it is released it must never be sent again, not even after a restart.
            self.pending.loose_replies.push((key, Reply::Ack(Ack::Pubrel, id, Reason::SUCCESS)));
        } else {
            self.reply(key, 0, Reply::Ack(Ack::Pubrel, id, Reason::SUCCESS));
        }
        Ok(())
    }

    fn take_pubcomp(&mut self, key: ConnectionKey, id: u16) -> Result<(), Fault> {
        let session_key = self.connection(key).session.expect("packets are handled while there is a session");
        let session = self.sessions.get(session_key).expect("a connection's session exists");
        match session.find_released(id) {
            Some(sequence) => self.released_ended(session_key, sequence),
            None if session.find(id).is_some() => {
                return Err(Fault::protocol("a PUBCOMP for a message that was not released"));
            }
            None => {}
        }
        Ok(())
    }

    fn take_pubrel(&mut self, key: ConnectionKey, id: u16) -> Result<(), Fault> {
        // What is to be released has to be here: messages of this feed come first.
        if !self.pending.batch.is_empty() {
            self.finish();
        }
        let Some(session_key) = self.connection(key).session else { return Ok(()) };
        if !self.forget_id(session_key, id) {
            self.reply(key, 0, Reply::Ack(Ack::Pubcomp, id, Reason::ID_UNKNOWN));
            return Ok(());
        }
        let session = self.sessions.get(session_key).expect("a connection's session exists");
        let (number, is_stored) = (session.number, session.is_stored);
        if is_stored {
            // Confirmed only once it is forgotten for good: the identifier may come back for another message.
            self.pending.loose.delete(records::received_key(number, id));
            self.pending.loose_replies.push((key, Reply::Ack(Ack::Pubcomp, id, Reason::SUCCESS)));
        } else {
            self.reply(key, 0, Reply::Ack(Ack::Pubcomp, id, Reason::SUCCESS));
        }
        Ok(())
    }

    fn take_disconnect(&mut self, key: ConnectionKey, reason: Reason, expiry_s: Option<u32>) -> Result<(), Fault> {
        self.finish();
        if let Some(expiry_s) = expiry_s {
            self.change_expiry(key, expiry_s)?;
        }
        self.detach(key, reason == Reason::SUCCESS);
        Ok(())
    }
}

/// The topic of a message, by name or by the number the client gave it.
fn resolve_alias<'a>(
    connection: &mut Connection,
    publish: &Publish<'a>,
    aliases_max: u16,
) -> Result<Cow<'a, str>, Fault> {
    let invalid = |why| Fault { reason: Reason::TOPIC_ALIAS, why };
    let Some(alias) = publish.properties.topic_alias else { return Ok(Cow::Borrowed(publish.topic)) };
    if alias == 0 || alias > aliases_max {
        return Err(invalid("a topic alias is 0 or more than was agreed on"));
    }
    let place = usize::from(alias) - 1;
    if publish.topic.is_empty() {
        let known = connection.aliases.get(place).and_then(Option::as_ref);
        let unknown = Fault::protocol("a topic alias stands for no topic");
        return known.map(|topic| Cow::Owned(String::from(&**topic))).ok_or(unknown);
    }
    if publish.topic.len() <= TOPIC_BYTES_MAX {
        if connection.aliases.len() <= place {
            connection.aliases.resize(place + 1, None);
        }
        connection.aliases[place] = Some(publish.topic.into());
    }
    Ok(Cow::Borrowed(publish.topic))
}

fn check_payload(publish: &Publish<'_>) -> Result<(), Fault> {
    if publish.properties.is_text == Some(true) && std::str::from_utf8(publish.payload).is_err() {
        return Err(Fault { reason: Reason::FORMAT_INVALID, why: "a payload that is said to be UTF-8 is not" });
    }
    Ok(())
}
