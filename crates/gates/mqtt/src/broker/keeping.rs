//! What is retained: whether there is room for one more, and in whose account it is.

use super::Broker;
use super::accounts::{LEVEL_BYTES, Payer};
use super::message::{Message, View};
use super::retained::KeptMessage;
use crate::node::Node;
use crate::topic;
use std::sync::Arc;

impl<N: Node> Broker<N> {
    /// Commits what has gathered where that may fill what is left for retained messages: only then is it counted.
    pub(super) fn settle_retained(&mut self, view: View<'_>, retain: bool, payer: &Payer) {
        if !retain {
            return;
        }
        let gathered = self.pending.batch.iter().filter(|publishing| publishing.retain);
        let (count, bytes) = gathered.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.message.bytes()));
        let limits = &self.limits;
        let (own, own_bytes) = self.retained_of(payer);
        let bytes = bytes + retained_bytes(view);
        let is_close = self.retained.count() + count >= limits.retained_max
            || own + count >= limits.of_user(limits.retained_max)
            || self.retained.bytes() + bytes > limits.retained_bytes_max
            || own_bytes + bytes > limits.of_user(limits.retained_bytes_max);
        if count > 0 && is_close {
            self.finish();
        }
    }

    /// Whether the message may be retained, perhaps after what has expired is dropped.
    pub(super) fn check_retained_room(&mut self, view: View<'_>, payer: &Payer) -> Result<(), String> {
        match self.retained_room(view, payer) {
            Err(_) if self.drop_expired() => self.retained_room(view, payer),
            checked => checked,
        }
    }

    /// Whether there is room for it: all together, and in what its user may have.
    fn retained_room(&mut self, view: View<'_>, payer: &Payer) -> Result<(), String> {
        let before = self.retained.get(view.topic);
        let (before_count, before_bytes) = before.map_or((0, 0), |kept| (1, kept.message.bytes()));
        // What the node retains is in nobody's account.
        let own_key = self.account_key_of(payer);
        let is_own = own_key.is_some() && before.is_some_and(|kept| kept.account == own_key);
        let (own_before, own_before_bytes) = if is_own { (before_count, before_bytes) } else { (0, 0) };
        let bytes = retained_bytes(view);
        let limits = &self.limits;
        if self.retained.count() + 1 - before_count > limits.retained_max {
            return Err(format!("{} messages are retained already", self.retained.count()));
        }
        if self.retained.bytes() + bytes - before_bytes > limits.retained_bytes_max {
            return Err(format!("{} bytes are retained already", self.retained.bytes()));
        }
        let (own, own_bytes) = self.retained_of(payer);
        let is_over = own + 1 - own_before > limits.of_user(limits.retained_max)
            || own_bytes + bytes - own_before_bytes > limits.of_user(limits.retained_bytes_max);
        if is_over && matches!(payer, Payer::User(_)) {
            return Err(format!("{own} messages and {own_bytes} bytes of this user are retained already"));
        }
        if !self.room.fits(bytes + topic::levels(view.topic) * LEVEL_BYTES) {
            return Err("the memory of the MQTT gate is used up".to_owned());
        }
        Ok(())
    }

    fn account_key_of(&self, payer: &Payer) -> Option<u32> {
        match payer {
            Payer::Node => None,
            Payer::User(user) => self.by_user.get(user).copied(),
        }
    }

    /// How many messages, and bytes, are retained for this user.
    fn retained_of(&self, payer: &Payer) -> (usize, usize) {
        let Payer::User(user) = payer else { return (0, 0) };
        self.account_of(user).map_or((0, 0), |account| (account.retained, account.retained_bytes))
    }

    /// Keeps a message for those who come later, in place of the one before.
    pub(super) fn keep_retained(&mut self, message: Arc<Message>, payer: &Payer) {
        let account = match payer {
            Payer::Node => None,
            Payer::User(user) => Some(self.open_account(user)),
        };
        if let Some(key) = account {
            let bytes = message.bytes();
            let account = self.account(key);
            account.retained += 1;
            account.retained_bytes += bytes;
        }
        let memory_bytes = self.retained.memory_bytes();
        let replaced = self.retained.set(KeptMessage { message, account });
        self.settle_memory(memory_bytes, replaced);
    }

    /// Says whether there was one.
    pub(super) fn forget_retained(&mut self, topic: &str) -> bool {
        let memory_bytes = self.retained.memory_bytes();
        let removed = self.retained.remove(topic);
        let was_there = removed.is_some();
        self.settle_memory(memory_bytes, removed);
        was_there
    }

    fn settle_memory(&mut self, before_bytes: usize, gone: Option<KeptMessage>) {
        self.room.add(self.retained.memory_bytes());
        self.room.give_back(before_bytes);
        let Some((key, bytes)) = gone.and_then(|kept| Some((kept.account?, kept.message.bytes()))) else { return };
        let account = self.account(key);
        account.retained -= 1;
        account.retained_bytes -= bytes;
        self.close_account(key);
    }
}

fn retained_bytes(view: View<'_>) -> usize {
    view.topic.len() + view.payload.len() + view.lasting.len() + size_of::<Message>()
}
