//! What each user has of the broker, so that no user can take everything; all clients without a name are one user.

use super::Broker;
use super::connection::ConnectionKey;
use super::session::{Session, SubscriptionIds};
use super::{message::Message, session::Queued, trie::SessionKey};
use crate::limits::{Limits, SEND_BYTES_FREE};
use crate::node::Node;
use budget::Share;
use std::sync::Arc;

/// Names an account while something is counted there.
pub(super) type AccountKey = u32;

/// Bytes of the budget that are taken at a time, so that a message costs no atomic.
const PIECE_BYTES: u64 = 256 * 1_024;

/// Bytes that a level of a topic tree takes, about: a map of its own with one entry.
pub(super) const LEVEL_BYTES: usize = 256;

/// Bytes of a session with nothing in it, about, with its place in the maps.
const SESSION_BYTES: usize = 1_024;

/// Identifiers of QoS 2 that are counted at a time; fewer than so many are part of the session.
const IDS_STEP: usize = 64;

/// What so many take, about, in the set they are in.
const IDS_STEP_BYTES: usize = IDS_STEP * 8;

/// Who pays for a message that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payer {
    /// A sink or the bridge: the limits of the whole broker alone hold.
    Node,
    User(Option<Arc<str>>),
}

/// What is counted for one user.
#[derive(Debug, Default)]
pub(super) struct Account {
    user: Option<Arc<str>>,
    /// Sessions and retained messages; without any the account goes.
    uses: usize,
    pub kept_sessions: usize,
    pub queued_bytes: usize,
    /// Of sessions themselves, their subscriptions and wills.
    pub session_bytes: usize,
    pub retained: usize,
    pub retained_bytes: usize,
}

/// What the broker has of the node's memory, and uses of it.
#[derive(Debug)]
pub(super) struct Room {
    share: Share,
    used_bytes: u64,
}

impl Room {
    pub fn new(share: Share) -> Self {
        Self { share, used_bytes: 0 }
    }

    /// Whether so many bytes more may be used.
    pub fn fits(&mut self, bytes: usize) -> bool {
        let missing = (self.used_bytes + bytes as u64).saturating_sub(self.share.bytes());
        missing == 0 || self.share.grow(missing.max(PIECE_BYTES)).is_ok() || self.share.grow(missing).is_ok()
    }

    /// What is kept is counted whether it fits or not: what is restored after a restart was promised before.
    pub fn add(&mut self, bytes: usize) {
        self.fits(bytes);
        self.used_bytes += bytes as u64;
    }

    pub fn give_back(&mut self, bytes: usize) {
        self.used_bytes -= bytes as u64;
        let idle = self.share.bytes().saturating_sub(self.used_bytes);
        if idle > 2 * PIECE_BYTES {
            self.share.shrink(idle - PIECE_BYTES);
        }
    }
}

/// What a message takes that waits in a session or is on its way from it.
pub(super) fn held_bytes(message: &Message, ids: &SubscriptionIds) -> usize {
    message.bytes() + size_of::<Queued>() + ids.as_ref().map_or(0, |ids| size_of_val(&**ids))
}

/// What a subscription takes, about.
pub(super) fn subscription_bytes(filter: &str) -> usize {
    2 * filter.len() + crate::topic::levels(filter) * LEVEL_BYTES
}

impl<N: Node> Broker<N> {
    /// The account of a user, with one use more.
    pub(super) fn open_account(&mut self, user: &Option<Arc<str>>) -> AccountKey {
        let key = match self.by_user.get(user) {
            Some(key) => *key,
            None => {
                let key = self.accounts.insert(Account { user: user.clone(), ..Account::default() });
                self.by_user.insert(user.clone(), key);
                key
            }
        };
        self.account(key).uses += 1;
        key
    }

    /// One use less.
    pub(super) fn close_account(&mut self, key: AccountKey) {
        let account = self.account(key);
        account.uses -= 1;
        if account.uses == 0 {
            let user = account.user.clone();
            self.by_user.remove(&user);
            self.accounts.remove(key);
        }
    }

    pub(super) fn account(&mut self, key: AccountKey) -> &mut Account {
        self.accounts.get_mut(key).expect("it is in use")
    }

    /// What a user has now, if anything.
    pub(super) fn account_of(&self, user: &Option<Arc<str>>) -> Option<&Account> {
        self.by_user.get(user).and_then(|key| self.accounts.get(*key))
    }

    /// Counts a session among those that outlive their connections, or no longer.
    pub(super) fn count_kept(&mut self, account: AccountKey, was_kept: bool, is_kept: bool) {
        let change = |count: usize| count + usize::from(is_kept) - usize::from(was_kept);
        self.totals.kept_sessions = change(self.totals.kept_sessions);
        let account = self.account(account);
        account.kept_sessions = change(account.kept_sessions);
    }

    /// A session holds a message from now on.
    pub(super) fn hold_bytes(&mut self, key: SessionKey, bytes: usize) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.bytes += bytes;
        let account = session.account;
        self.totals.queued_bytes += bytes;
        self.room.add(bytes);
        self.account(account).queued_bytes += bytes;
    }

    pub(super) fn release_bytes(&mut self, key: SessionKey, bytes: usize) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.bytes -= bytes;
        let account = session.account;
        self.totals.queued_bytes -= bytes;
        self.room.give_back(bytes);
        self.account(account).queued_bytes -= bytes;
    }

    /// Whether a user's sessions may hold so many bytes more of subscriptions, wills and themselves.
    pub(super) fn fits_session(&mut self, user: &Option<Arc<str>>, bytes: usize) -> bool {
        let limits = &self.limits;
        let own = self.account_of(user).map_or(0, |account| account.session_bytes);
        self.totals.session_bytes + bytes <= limits.session_bytes_max
            && own + bytes <= limits.of_user(limits.session_bytes_max)
            && self.room.fits(bytes)
    }

    /// A session takes so many bytes for itself from now on, more or fewer.
    pub(super) fn set_own_bytes(&mut self, key: SessionKey, bytes: usize) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let (before, account) = (std::mem::replace(&mut session.own_bytes, bytes), session.account);
        self.totals.session_bytes = self.totals.session_bytes + bytes - before;
        self.room.add(bytes);
        self.room.give_back(before);
        let account = self.account(account);
        account.session_bytes = account.session_bytes + bytes - before;
    }
}

impl<N: Node> Broker<N> {
    /// Counts what waits to be sent to a client, after it has changed.
    pub(super) fn count_out(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let bytes = send_bytes(connection.out.capacity());
        let before = std::mem::replace(&mut connection.out_bytes, bytes);
        self.room.add(bytes);
        self.room.give_back(before);
    }

    /// What waited is with who sends it, in a buffer of this capacity, until more is taken.
    pub(super) fn count_taken(&mut self, key: ConnectionKey, capacity: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let bytes = send_bytes(capacity);
        let before = std::mem::replace(&mut connection.taken_bytes, bytes);
        self.room.add(bytes);
        self.room.give_back(before);
    }

    /// Keeps the identifier of a message of QoS 2 until the client releases it; not if there is no room for more of
    /// them.
    pub(super) fn keep_id(&mut self, key: SessionKey, id: u16) -> bool {
        let Some(session) = self.sessions.get(key) else { return false };
        if (session.received.len() + 1).is_multiple_of(IDS_STEP) {
            let (user, own_bytes) = (session.user().clone(), session.own_bytes);
            if !self.fits_session(&user, IDS_STEP_BYTES) {
                return false;
            }
            self.set_own_bytes(key, own_bytes + IDS_STEP_BYTES);
        }
        self.sessions.get_mut(key).is_some_and(|session| session.received.insert(id))
    }

    /// Says whether it was kept.
    pub(super) fn forget_id(&mut self, key: SessionKey, id: u16) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let was_kept = session.received.remove(&id);
        if was_kept && (session.received.len() + 1).is_multiple_of(IDS_STEP) {
            let own_bytes = session.own_bytes.saturating_sub(IDS_STEP_BYTES);
            self.set_own_bytes(key, own_bytes);
        }
        was_kept
    }
}

/// What is counted of a buffer of this capacity.
pub(super) fn send_bytes(capacity: usize) -> usize {
    if capacity > SEND_BYTES_FREE { capacity } else { 0 }
}

/// What a session takes for itself, without its subscriptions.
pub(super) fn bare_bytes(client: &str, will_bytes: usize) -> usize {
    SESSION_BYTES + client.len() + will_bytes
}

impl Session {
    /// What the session takes beside messages.
    pub(super) fn count_own_bytes(&self) -> usize {
        let will_bytes = self.will.as_ref().map_or(0, |will| will.message.bytes());
        let subscriptions = self.subscriptions.filters().map(subscription_bytes);
        let ids = self.received.len() / IDS_STEP * IDS_STEP_BYTES;
        bare_bytes(&self.client, will_bytes) + subscriptions.sum::<usize>() + ids
    }
}

impl Limits {
    /// The most one user may have of `total`.
    pub(super) fn of_user(&self, total: usize) -> usize {
        (total as u128 * u128::from(self.user_share_percent) / 100) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use budget::{Budget, Purpose};

    #[test]
    fn room_is_taken_in_pieces_and_given_back() {
        let budget = Budget::new(8 << 20);
        let part = budget.part_bytes(Purpose::Mqtt) as usize;
        let mut room = Room::new(budget.share(Purpose::Mqtt));
        for _ in 0..part / 1_000 {
            assert!(room.fits(1_000));
            room.add(1_000);
        }
        assert!(!room.fits(1_000));
        // What was promised before is kept all the same, and nothing else until it is gone.
        room.add(1_000_000);
        assert_eq!(budget.used_bytes(Purpose::Mqtt), part as u64);
        room.give_back(1_000_000);
        assert!(!room.fits(1_000));
        room.give_back(part / 1_000 * 1_000);
        assert!(budget.used_bytes(Purpose::Mqtt) <= 2 * PIECE_BYTES && room.fits(part));
    }
}
