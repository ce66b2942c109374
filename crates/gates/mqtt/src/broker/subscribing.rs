//! SUBSCRIBE and UNSUBSCRIBE.

use super::Broker;
use super::accounts::subscription_bytes;
use super::connection::{ConnectionKey, Reply, Wanted};
use super::message::Message;
use super::packets::BATCH_MAX;
use super::publishing::Target;
use super::records;
use super::session::Subscription;
use super::trie::{SessionKey, Subscriber};
use crate::codec::{Fault, Reason, Subscribe, SubscribeEntry, Unsubscribe, Version, encode};
use crate::limits::TOPIC_BYTES_MAX;
use crate::node::{Changes, Node};
use crate::topic::Filter;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Nodes of the tree of retained messages that are looked at before others have a turn: one packet may ask for all of
/// them a thousand times. A filter that was begun is finished; what is left waits for the next round.
const LOOKED_AT_ONCE: usize = 4_096;

impl<N: Node> Broker<N> {
    pub(super) fn take_subscribe(&mut self, key: ConnectionKey, subscribe: &Subscribe<'_>) -> Result<(), Fault> {
        // Messages before it were published to those who had subscribed then.
        self.finish();
        let Some(connection) = self.connections.get(key) else { return Ok(()) };
        let (version, Some(session)) = (connection.version, connection.session) else { return Ok(()) };
        let mut codes = Vec::with_capacity(subscribe.entries.len());
        // A filter may come more than once, and its messages go out once: as the last one that asks for them says.
        let mut wanted = BTreeMap::new();
        for entry in &subscribe.entries {
            match self.subscribe(key, session, entry, subscribe.subscription_id) {
                Ok(is_new) => {
                    codes.push(entry.options.qos.number());
                    let is_wanted = match entry.options.retain_handling {
                        0 => true,
                        1 => is_new,
                        _ => false,
                    };
                    if is_wanted && !entry.filter.starts_with("$share/") {
                        wanted.insert(entry.filter, entry.options.qos);
                    }
                }
                Err(reason) => codes.push(if version == Version::V5 { reason.0 } else { 0x80 }),
            }
        }
        let mut frame = Vec::new();
        encode::suback(&mut frame, subscribe.id, &codes, version);
        self.reply_once_stored(key, self.is_stored(session), Reply::Frame(frame.into()));
        self.finish();
        let Some(connection) = self.connections.get_mut(key) else { return Ok(()) };
        let id = subscribe.subscription_id;
        connection.wanted.extend(wanted.into_iter().map(|(filter, qos)| Wanted { filter: filter.into(), qos, id }));
        while self.passing.looked_at < LOOKED_AT_ONCE && self.send_next_retained(key) {}
        if self.passing.looked_at >= LOOKED_AT_ONCE {
            self.rest(key);
        }
        if self.connections.get(key).is_some_and(|connection| !connection.wanted.is_empty()) {
            self.to_do.wanting.push_back(key);
        }
        Ok(())
    }

    /// Says whether the subscription is new.
    fn subscribe(
        &mut self,
        key: ConnectionKey,
        session_key: SessionKey,
        entry: &SubscribeEntry<'_>,
        id: Option<u32>,
    ) -> Result<bool, Reason> {
        let filter = Filter::new(entry.filter, self.limits.topic_levels_max)
            .filter(|_| entry.filter.len() <= TOPIC_BYTES_MAX)
            .ok_or(Reason::FILTER_INVALID)?;
        let connection = self.connections.get(key).ok_or(Reason::UNSPECIFIED)?;
        let is_checked = connection.identity.is_denied_some(filter.topics);
        // A group's message that only this member may not have would be lost to the group.
        if !connection.identity.may_subscribe(filter.topics) || is_checked && filter.group.is_some() {
            return Err(Reason::NOT_AUTHORIZED);
        }
        let user = connection.identity.user.clone();
        let session = self.sessions.get(session_key).ok_or(Reason::UNSPECIFIED)?;
        let is_new = !session.subscriptions.contains(entry.filter);
        let bytes = subscription_bytes(entry.filter);
        let is_full = session.subscriptions.len() >= self.limits.subscriptions_max;
        if is_new && (is_full || !self.fits_session(&user, bytes)) {
            return Err(Reason::QUOTA_EXCEEDED);
        }
        let session = self.sessions.get_mut(session_key).ok_or(Reason::UNSPECIFIED)?;
        let own_bytes = session.own_bytes + if is_new { bytes } else { 0 };
        let subscription = Subscription { options: entry.options, id };
        session.subscriptions.insert(entry.filter.into(), subscription);
        if session.is_kept() {
            let record = records::write_subscription(subscription);
            self.pending.loose.put(records::subscription_key(session.number, entry.filter), record);
        }
        let subscriber = Subscriber { session: session_key, options: entry.options, id, is_checked };
        self.trie.insert(filter.topics, filter.group, subscriber);
        self.totals.subscriptions += usize::from(is_new);
        self.totals.changes += u64::from(is_new);
        self.set_own_bytes(session_key, own_bytes);
        Ok(is_new)
    }

    /// Goes on with those who are still to be sent what is retained, one filter each in turn.
    pub(super) fn send_more_retained(&mut self) {
        self.passing.looked_at = 0;
        while self.passing.looked_at < LOOKED_AT_ONCE {
            let Some(key) = self.to_do.wanting.pop_front() else { return };
            if !self.send_next_retained(key) {
                continue;
            }
            match self.connections.get(key) {
                Some(connection) if !connection.wanted.is_empty() => self.to_do.wanting.push_back(key),
                // Reading goes on.
                _ => self.set_dirty(key),
            }
        }
    }

    /// Sends what is retained under the next filter that the connection asked for. Says whether there was one.
    fn send_next_retained(&mut self, key: ConnectionKey) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        let Some(session) = connection.session else { return false };
        let Some(wanted) = connection.wanted.pop_front() else { return false };
        self.send_retained(session, &wanted);
        true
    }

    /// Sends what is retained under the filter, through the session as any other message.
    fn send_retained(&mut self, session_key: SessionKey, wanted: &Wanted) {
        let mut found = Vec::new();
        self.passing.looked_at += self.retained.matches(&wanted.filter, &mut found);
        if let Some(session) = self.sessions.get(session_key) {
            found.retain(|message| session.identity.may_receive(message.topic()));
        }
        for some in found.chunks(BATCH_MAX) {
            let mut changes = Changes::default();
            let mut targets = Vec::with_capacity(some.len());
            for message in some {
                targets.push(self.retained_target(session_key, message, wanted, &mut changes));
            }
            // Copies of a session that outlives its connection are sent once they are durable, as all others.
            let Ok(ticket) = self.commit(&changes) else {
                return tracing::warn!("retained messages are not sent: the disk takes none of their copies");
            };
            for (message, target) in some.iter().zip(targets) {
                let Some(mut target) = target else { continue };
                let mut owned = Some(Arc::clone(message));
                self.fan_out(message.view(), &mut owned, std::slice::from_mut(&mut target), ticket);
            }
        }
        self.finish();
    }

    fn retained_target(
        &mut self,
        session_key: SessionKey,
        message: &Arc<Message>,
        wanted: &Wanted,
        changes: &mut Changes,
    ) -> Option<Target> {
        let view = message.view();
        if view.is_expired(self.now.unix_ms) {
            self.counts.expired += 1;
            self.forget_retained(view.topic);
            self.pending.loose.delete(records::retained_key(view.topic));
            return None;
        }
        let qos = wanted.qos.min(view.qos);
        let session = self.sessions.get(session_key)?;
        let is_kept = session.is_kept() && qos.is_confirmed();
        if is_kept && self.is_full(session_key, view) {
            self.count_dropped(session_key);
            return None;
        }
        let mut target = Target::retained(session_key, qos, wanted.id, is_kept);
        if is_kept {
            let session = self.sessions.get_mut(session_key)?;
            let sequence = session.take_sequence();
            target.sequence = Some(sequence);
            let record = records::write_copy(message, qos, true, &target.ids);
            changes.put(records::copy_key(session.number, sequence), record);
        }
        Some(target)
    }

    pub(super) fn take_unsubscribe(&mut self, key: ConnectionKey, unsubscribe: &Unsubscribe<'_>) -> Result<(), Fault> {
        self.finish();
        let Some(connection) = self.connections.get(key) else { return Ok(()) };
        let (version, Some(session)) = (connection.version, connection.session) else { return Ok(()) };
        let codes: Vec<u8> = unsubscribe
            .filters
            .iter()
            .map(|filter| if self.unsubscribe(session, filter) { Reason::SUCCESS.0 } else { Reason::NO_SUBSCRIPTION.0 })
            .collect();
        let mut frame = Vec::new();
        encode::unsuback(&mut frame, unsubscribe.id, &codes, version);
        self.reply_once_stored(key, self.is_stored(session), Reply::Frame(frame.into()));
        Ok(())
    }

    pub(super) fn unsubscribe(&mut self, session_key: SessionKey, text: &str) -> bool {
        let Some(session) = self.sessions.get_mut(session_key) else { return false };
        if !session.subscriptions.remove(text) {
            return false;
        }
        let own_bytes = session.own_bytes.saturating_sub(subscription_bytes(text));
        if session.is_kept() {
            self.pending.loose.delete(records::subscription_key(session.number, text));
        }
        self.set_own_bytes(session_key, own_bytes);
        self.remove_from_trie(session_key, text);
        true
    }

    pub(super) fn remove_from_trie(&mut self, session_key: SessionKey, text: &str) {
        if let Some(filter) = Filter::new(text, usize::MAX) {
            self.trie.remove(filter.topics, filter.group, session_key);
            self.totals.subscriptions -= 1;
            self.totals.changes += 1;
        }
    }
}
