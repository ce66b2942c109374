//! What a session may still have of what it once subscribed to; and sessions as an administrator sees and ends them.

use super::trie::{SessionKey, Subscriber};
use super::{Broker, Now, Owner};
use crate::codec::Reason;
use crate::node::Node;
use crate::topic::Filter;
use crate::users::{Identity, Users};
use std::sync::Arc;

/// A session, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    pub client: Arc<str>,
    pub user: Option<Arc<str>>,
    pub is_connected: bool,
    /// Whether it outlives its connection.
    pub is_kept: bool,
    /// Milliseconds since 1970 when it ends, while there is no connection.
    pub expires_ms: Option<u64>,
    pub subscriptions: usize,
    /// Messages that wait, or are on their way.
    pub messages: usize,
    pub bytes: usize,
}

impl<N: Node> Broker<N> {
    /// After a restart: users may have gone, and their rights may have been cut.
    pub(super) fn check_rights(&mut self, users: &Users) {
        let (mut gone, mut cut) = (0, 0);
        for key in self.sessions.keys().collect::<Vec<_>>() {
            let Some(session) = self.sessions.get(key) else { continue };
            let Some(identity) = users.identity(session.user().as_deref(), &session.client) else {
                // Its will, too, is one that nobody may publish any more.
                self.cancel_will(key);
                self.end_session(key);
                gone += 1;
                continue;
            };
            let is_will_allowed = session.will.as_ref().is_none_or(|will| identity.may_publish(will.message.topic()));
            if let Some(session) = self.sessions.get_mut(key) {
                session.identity = Arc::new(identity);
            }
            let was_cut = self.drop_uncovered(key);
            if !is_will_allowed {
                self.cancel_will(key);
                self.write_session(key);
            }
            cut += usize::from(was_cut || !is_will_allowed);
            self.finish();
        }
        if gone + cut > 0 {
            tracing::warn!(gone, cut, "MQTT sessions lost what their users may not have any more");
        }
    }

    /// The session's user may from now on what `identity` says.
    pub(super) fn set_rights(&mut self, key: SessionKey, identity: &Arc<Identity>) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let before = std::mem::replace(&mut session.identity, identity.clone());
        if before != *identity {
            self.drop_uncovered(key);
        }
    }

    /// Drops subscriptions that the session's user may not have, and messages that wait and it may not get. Says
    /// whether there were any.
    fn drop_uncovered(&mut self, key: SessionKey) -> bool {
        let Some(session) = self.sessions.get(key) else { return false };
        let identity = session.identity.clone();
        let subscriptions: Vec<_> = session.subscriptions.iter().map(|(text, one)| (text.to_owned(), one)).collect();
        let mut was_cut = false;
        for (text, subscription) in subscriptions {
            let Some(filter) = Filter::new(&text, usize::MAX) else { continue };
            let is_checked = identity.is_denied_some(filter.topics);
            if !identity.may_subscribe(filter.topics) || is_checked && filter.group.is_some() {
                was_cut |= self.unsubscribe(key, &text);
                continue;
            }
            let subscriber =
                Subscriber { session: key, options: subscription.options, id: subscription.id, is_checked };
            self.trie.insert(filter.topics, filter.group, subscriber);
        }
        let Some(session) = self.sessions.get_mut(key) else { return was_cut };
        let (kept, lost) = std::mem::take(&mut session.queue)
            .into_iter()
            .partition(|queued| identity.may_receive(queued.message.topic()));
        session.queue = kept;
        was_cut |= !lost.is_empty();
        for queued in lost {
            self.drop_queued(key, &queued);
        }
        was_cut
    }

    /// All sessions, in no order.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let describe = |session: &super::session::Session| SessionInfo {
            client: session.client.clone(),
            user: session.user().clone(),
            is_connected: session.connection.is_some(),
            is_kept: session.is_kept(),
            expires_ms: session.expires_ms,
            subscriptions: session.subscriptions.len(),
            messages: session.queue.len() + session.flights.len(),
            bytes: session.bytes + session.own_bytes,
        };
        self.sessions.iter().map(|(_, session)| describe(session)).collect()
    }

    /// Ends a session with all it holds, and its connection if it has one. Its will is published. Says whether there is
    /// one.
    pub fn end(&mut self, now: Now, user: Option<&str>, client: &str) -> bool {
        self.now = now;
        let owner = Owner { user: user.map(Into::into), client: client.into() };
        let Some(key) = self.by_owner.get(&owner).copied() else { return false };
        if let Some(connection) = self.sessions.get(key).and_then(|session| session.connection) {
            self.close(connection, Reason::ADMINISTRATIVE);
        }
        self.end_session(key);
        true
    }
}
