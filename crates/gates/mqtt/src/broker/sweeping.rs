//! What has expired is dropped where room is needed: what waits for somebody who is away is not looked at otherwise.

use super::Broker;
use super::records;
use super::trie::SessionKey;
use crate::node::Node;

/// Looking through everything takes long, so it is done seldom, however often somebody finds no room.
const SWEEP_EVERY_MS: u64 = 10_000;

impl<N: Node> Broker<N> {
    /// Drops what has expired in all sessions, and of what is retained. Says whether it has looked.
    pub(super) fn drop_expired(&mut self) -> bool {
        let now_ms = self.now.steady_ms;
        if self.due.swept_ms.is_some_and(|swept_ms| now_ms.saturating_sub(swept_ms) < SWEEP_EVERY_MS) {
            return false;
        }
        self.due.swept_ms = Some(now_ms);
        for key in self.sessions.keys().collect::<Vec<_>>() {
            self.drop_expired_of(key);
        }
        for message in self.retained.expired(self.now.unix_ms) {
            self.counts.expired += 1;
            self.forget_retained(message.topic());
            self.pending.loose.delete(records::retained_key(message.topic()));
        }
        true
    }

    fn drop_expired_of(&mut self, key: SessionKey) {
        let unix_ms = self.now.unix_ms;
        let Some(session) = self.sessions.get_mut(key) else { return };
        if !session.queue.iter().any(|queued| queued.message.is_expired(unix_ms)) {
            return;
        }
        let (expired, queue) =
            std::mem::take(&mut session.queue).into_iter().partition(|queued| queued.message.is_expired(unix_ms));
        session.queue = queue;
        self.counts.expired += expired.len() as u64;
        for queued in expired {
            self.drop_queued(key, &queued);
        }
    }
}
