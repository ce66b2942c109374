//! The beginning and the end of connections, and of the sessions behind them.

use super::accounts::bare_bytes;
use super::connection::{Connection, ConnectionKey, Reply};
use super::message::View;
use super::publishing::Publishing;
use super::records;
use super::session::Session;
use super::trie::SessionKey;
use super::will::StoredWill;
use super::{Broker, Now, Owner};
use crate::codec::{Connack, Connect, Fault, Reason, Version, Will, encode};
use crate::limits::TOPIC_BYTES_MAX;
use crate::node::Node;
use crate::topic;
use crate::users::Identity;
use std::collections::VecDeque;
use std::sync::Arc;

/// Why a client is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectRefusal {
    pub version: Version,
    pub reason: Reason,
}

impl ConnectRefusal {
    /// The CONNACK that says so; empty where 3.1.1 has no word for it, and for a client that takes no packet of its
    /// size.
    pub fn packet(self) -> Vec<u8> {
        let code = match self.version {
            // It would not be taken either.
            Version::V5 if self.reason == Reason::PACKET_TOO_LARGE => None,
            Version::V5 => Some(self.reason.0),
            Version::V311 => self.reason.connack_311(),
        };
        let mut bytes = Vec::new();
        if let Some(code) = code {
            encode::connack(&mut bytes, &Connack { code, ..Connack::default() }, self.version);
        }
        bytes
    }
}

impl<N: Node> Broker<N> {
    /// Lets a client in that has shown who it is. `assigned` names it if it has no name of its own.
    ///
    /// # Errors
    /// It is not let in; nothing has changed, unless the disk failed.
    pub fn connect(
        &mut self,
        now: Now,
        connect: &Connect<'_>,
        identity: Arc<Identity>,
        assigned: &str,
    ) -> Result<ConnectionKey, ConnectRefusal> {
        self.now = now;
        let refuse = |reason| ConnectRefusal { version: connect.version, reason };
        let expiry_max_s = u32::try_from(self.limits.session_expiry_max.as_secs()).unwrap_or(u32::MAX - 1);
        let expiry_s = connect.session_expiry_s.min(expiry_max_s);
        self.check_connect(connect, &identity, expiry_s).map_err(refuse)?;
        let keep_alive_s = self.keep_alive_s(connect);
        let mut connack = self.connack(connect, assigned, expiry_s, keep_alive_s);
        let mut frame = Vec::new();
        encode::connack(&mut frame, &connack, connect.version);
        if connect.packet_bytes_max.is_some_and(|bytes| frame.len() > bytes as usize) {
            return Err(refuse(Reason::PACKET_TOO_LARGE));
        }
        self.finish();

        let client: Arc<str> = if connect.client_id.is_empty() { assigned.into() } else { connect.client_id.into() };
        let owner = Owner { user: identity.user.clone(), client: client.clone() };
        let (old, ended_stored) = self.take_over(&owner, connect.clean_start);
        if self.broken {
            return Err(refuse(Reason::UNAVAILABLE));
        }
        let key = match old {
            Some(key) => {
                self.set_rights(key, &identity);
                key
            }
            None => self.new_session(client, &identity, expiry_s),
        };
        let connection = Connection {
            version: connect.version,
            identity,
            session: Some(key),
            out: Vec::new(),
            out_bytes: 0,
            taken_bytes: 0,
            is_dirty: false,
            is_open: false,
            replies: VecDeque::new(),
            last_ms: now.steady_ms,
            silence_max_ms: u64::from(keep_alive_s) * 1_500,
            unconfirmed: 0,
            window: usize::from(connect.receive_maximum.min(self.limits.inflight_max)),
            packet_bytes_max: connect.packet_bytes_max.map_or(usize::MAX, |bytes| bytes as usize),
            aliases: Vec::new(),
            stalled: None,
            held_since_ms: None,
            wanted: VecDeque::new(),
        };
        let connection_key = self.connections.insert(connection);
        self.attach(key, connection_key, connect, expiry_s);
        connack.session_present = old.is_some();
        frame.clear();
        encode::connack(&mut frame, &connack, connect.version);
        let waits = ended_stored || self.is_stored(key);
        self.reply_once_stored(connection_key, waits, Reply::Open(frame.into()));
        self.finish();
        Ok(connection_key)
    }

    /// Ends what a new connection of this owner ends. Returns the session that it goes on with, and whether the disk
    /// has to forget one.
    fn take_over(&mut self, owner: &Owner, clean_start: bool) -> (Option<SessionKey>, bool) {
        let Some(key) = self.by_owner.get(owner).copied() else { return (None, false) };
        let was_stored = self.is_stored(key);
        if let Some(connection) = self.sessions.get(key).and_then(|session| session.connection) {
            self.close(connection, Reason::TAKEN_OVER);
        }
        // Taking over ended the session if it was to end with its connection.
        let Some(key) = self.by_owner.get(owner).copied() else { return (None, was_stored) };
        let expires_ms = self.sessions.get(key).and_then(|session| session.expires_ms);
        let is_over = expires_ms.is_some_and(|at_ms| at_ms <= self.now.unix_ms);
        if !clean_start && !is_over {
            return (Some(key), false);
        }
        self.end_session(key);
        (None, was_stored)
    }

    /// Whether there are records of the session.
    pub(super) fn is_stored(&self, key: SessionKey) -> bool {
        self.sessions.get(key).is_some_and(|session| session.is_stored)
    }

    fn check_connect(&mut self, connect: &Connect<'_>, identity: &Identity, expiry_s: u32) -> Result<(), Reason> {
        if self.broken {
            return Err(Reason::UNAVAILABLE);
        }
        if connect.auth_method.is_some() {
            return Err(Reason::BAD_METHOD);
        }
        let has_no_name = connect.client_id.is_empty() && connect.version == Version::V311 && !connect.clean_start;
        // What begins with `$` is for the node's own.
        if has_no_name
            || connect.client_id.len() > self.limits.client_id_bytes_max
            || connect.client_id.starts_with('$')
        {
            return Err(Reason::CLIENT_ID);
        }
        if let Some(will) = &connect.will {
            if will.topic.len() > TOPIC_BYTES_MAX || topic::levels(will.topic) > self.limits.topic_levels_max {
                return Err(Reason::TOPIC_INVALID);
            }
            if !identity.may_publish(will.topic) {
                return Err(Reason::NOT_AUTHORIZED);
            }
        }
        let owner = Owner { user: identity.user.clone(), client: connect.client_id.into() };
        let old = self.by_owner.get(&owner).and_then(|key| self.sessions.get(*key));
        let is_one_more = expiry_s > 0 && !old.is_some_and(Session::is_kept);
        let own_kept = self.account_of(&owner.user).map_or(0, |account| account.kept_sessions);
        let is_full = self.totals.kept_sessions >= self.limits.sessions_max
            || own_kept >= self.limits.of_user(self.limits.sessions_max);
        if is_one_more && is_full {
            return Err(Reason::QUOTA_EXCEEDED);
        }
        let will_bytes = connect.will.as_ref().map_or(0, will_bytes);
        let more_bytes = bare_bytes(connect.client_id, will_bytes).saturating_sub(old.map_or(0, |old| old.own_bytes));
        if !self.fits_session(&owner.user, more_bytes) {
            return Err(Reason::QUOTA_EXCEEDED);
        }
        Ok(())
    }

    /// Seconds between packets that the client is held to; 0: none.
    fn keep_alive_s(&self, connect: &Connect<'_>) -> u16 {
        let max_s = u16::try_from(self.limits.keep_alive_max.as_secs()).unwrap_or(u16::MAX);
        match (connect.keep_alive_s, connect.version) {
            // A client of 3.1.1 cannot be told, so it is believed.
            (0, Version::V311) => 0,
            (0, Version::V5) => max_s,
            (seconds, Version::V5) => seconds.min(max_s),
            (seconds, Version::V311) => seconds,
        }
    }

    /// What a client is told that begins a session.
    fn connack(&self, connect: &Connect<'_>, assigned: &str, expiry_s: u32, keep_alive_s: u16) -> Connack {
        if connect.version == Version::V311 {
            return Connack::default();
        }
        Connack {
            session_expiry_s: (expiry_s != connect.session_expiry_s).then_some(expiry_s),
            receive_maximum: Some(self.limits.receive_maximum),
            packet_bytes_max: Some(u32::try_from(self.limits.packet_bytes_max).unwrap_or(u32::MAX)),
            assigned_client_id: connect.client_id.is_empty().then(|| assigned.to_owned()),
            topic_alias_maximum: Some(self.limits.topic_alias_maximum).filter(|maximum| *maximum > 0),
            keep_alive_s: (keep_alive_s != connect.keep_alive_s).then_some(keep_alive_s),
            ..Connack::default()
        }
    }

    fn new_session(&mut self, client: Arc<str>, identity: &Arc<Identity>, expiry_s: u32) -> SessionKey {
        let number = self.take_number();
        let account = self.open_account(&identity.user);
        let session = Session::new(client.clone(), identity.clone(), account, number, expiry_s);
        self.count_kept(account, false, session.is_kept());
        let key = self.sessions.insert(session);
        self.by_owner.insert(Owner { user: identity.user.clone(), client }, key);
        key
    }

    /// Joins a session with its new connection.
    fn attach(&mut self, key: SessionKey, connection: ConnectionKey, connect: &Connect<'_>, expiry_s: u32) {
        self.cancel_expiry(key);
        self.cancel_will(key);
        let session = self.sessions.get_mut(key).expect("it was just found or made");
        let was_kept = session.is_kept();
        session.connection = Some(connection);
        session.expiry_s = expiry_s;
        session.will = connect.will.as_ref().map(store_will).map(Box::new);
        let (is_kept, account, own_bytes) = (session.is_kept(), session.account, session.count_own_bytes());
        self.count_kept(account, was_kept, is_kept);
        self.set_own_bytes(key, own_bytes);
        // What was kept until now ends with this connection, but not before: it is still sent. After a restart it is
        // over.
        self.write_session(key);
    }

    /// The client says in its DISCONNECT how long the session is to live.
    pub(super) fn change_expiry(&mut self, key: ConnectionKey, expiry_s: u32) -> Result<(), Fault> {
        let Some(session_key) = self.connections.get(key).and_then(|connection| connection.session) else {
            return Ok(());
        };
        let session = self.sessions.get_mut(session_key).expect("a connection's session exists");
        if session.expiry_s == 0 && expiry_s > 0 {
            return Err(Fault::protocol("a session that ends with its connection is to live on"));
        }
        let was_kept = session.is_kept();
        let expiry_max_s = u32::try_from(self.limits.session_expiry_max.as_secs()).unwrap_or(u32::MAX - 1);
        session.expiry_s = expiry_s.min(expiry_max_s);
        let (is_kept, account) = (session.is_kept(), session.account);
        self.count_kept(account, was_kept, is_kept);
        Ok(())
    }

    /// The socket is gone: forgets the connection.
    pub fn lost(&mut self, now: Now, key: ConnectionKey) {
        self.now = now;
        self.finish();
        self.detach(key, false);
        if let Some(connection) = self.connections.remove(key) {
            self.room.give_back(connection.out_bytes + connection.taken_bytes);
        }
        self.finish();
    }

    /// Takes the session from its connection, which is closed as soon as what it is to be sent is sent.
    pub(super) fn detach(&mut self, key: ConnectionKey, is_clean: bool) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(session_key) = connection.session.take() else { return };
        connection.replies.clear();
        connection.wanted = VecDeque::new();
        let stalled = connection.stalled.take();
        self.set_dirty(key);
        let session = self.sessions.get_mut(session_key).expect("a connection's session exists");
        session.connection = None;
        session.land();
        self.let_read(session_key);
        if let Some(stalled) = stalled {
            // They were not accepted: the client sends them again.
            for id in stalled.messages.iter().filter_map(Publishing::received_id) {
                self.forget_id(session_key, id);
            }
        }
        let session = self.sessions.get_mut(session_key).expect("it was just there");
        if is_clean {
            session.will = None;
        }
        if !session.is_kept() {
            return self.end_session(session_key);
        }
        let expires_ms = self.now.unix_ms.saturating_add(u64::from(session.expiry_s) * 1_000);
        session.expires_ms = Some(expires_ms);
        self.due.expiring.insert((expires_ms, session_key));
        let delay_s = session.will.as_ref().map(|will| will.delay_s.min(session.expiry_s));
        match delay_s {
            Some(0) => self.publish_will(session_key),
            Some(delay_s) => {
                let due_ms = self.now.steady_ms + u64::from(delay_s) * 1_000;
                session.will_due_ms = Some(due_ms);
                self.due.wills.insert((due_ms, session_key));
            }
            None => {}
        }
        self.write_session(session_key);
        self.finish();
    }

    /// Ends a session and all it holds. Its will is due now, if it has one.
    pub(super) fn end_session(&mut self, key: SessionKey) {
        if let Some(connection) = self.sessions.get(key).and_then(|session| session.connection) {
            self.close(connection, Reason::TAKEN_OVER);
        }
        if self.sessions.get(key).is_none() {
            return;
        }
        self.finish();
        self.publish_will(key);
        self.finish();
        self.cancel_expiry(key);
        self.forget_on_disk(key);
        let Some(session) = self.sessions.get(key) else { return };
        let (account, bytes, is_kept) = (session.account, session.bytes, session.is_kept());
        self.count_kept(account, is_kept, false);
        self.release_bytes(key, bytes);
        self.set_own_bytes(key, 0);
        let Some(session) = self.sessions.remove(key) else { return };
        self.by_owner.remove(&Owner { user: session.user().clone(), client: session.client.clone() });
        self.close_account(account);
        for filter in session.subscriptions.filters() {
            self.remove_from_trie(key, filter);
        }
        self.finish();
    }

    /// Deletes all records of a session.
    fn forget_on_disk(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get(key) else { return };
        if !session.is_stored {
            return;
        }
        let number = session.number;
        let queued = session.queue.iter().filter(|queued| queued.is_kept);
        let copies = queued.map(|queued| (queued.sequence, Some(queued.message.clone())));
        let flights = session.flights.iter().map(|flight| (flight.sequence, flight.message.clone()));
        let released = session.released.iter().map(|sequence| (*sequence, None));
        let copies: Vec<_> = copies.chain(flights).chain(released).collect();
        self.pending.loose.delete(records::session_key(session.number));
        for filter in session.subscriptions.filters() {
            self.pending.loose.delete(records::subscription_key(number, filter));
        }
        for id in &session.received {
            self.pending.loose.delete(records::received_key(number, *id));
        }
        for (sequence, message) in copies {
            self.pending.loose.delete(records::copy_key(number, sequence));
            if let Some(message) = message {
                self.forget_copy(&message);
            }
        }
        self.sessions.get_mut(key).expect("it was just there").is_stored = false;
    }

    pub(super) fn write_session(&mut self, key: SessionKey) {
        let is_written = |session: &&mut Session| session.is_kept() || session.is_stored;
        let Some(session) = self.sessions.get_mut(key).filter(is_written) else { return };
        session.is_stored = true;
        self.pending.loose.put(records::session_key(session.number), records::write_session(session));
    }

    pub(super) fn cancel_expiry(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(key)
            && let Some(expires_ms) = session.expires_ms.take()
        {
            self.due.expiring.remove(&(expires_ms, key));
        }
    }

    pub(super) fn cancel_will(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.will = None;
            if let Some(due_ms) = session.will_due_ms.take() {
                self.due.wills.remove(&(due_ms, key));
            }
        }
    }

    /// Publishes the will of a session, if it has one.
    pub(super) fn publish_will(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if let Some(due_ms) = session.will_due_ms.take() {
            self.due.wills.remove(&(due_ms, key));
        }
        let Some(will) = session.will.take() else { return };
        let (client, user) = (session.client.clone(), session.user().clone());
        let expires_ms = will.expiry_s.map(|seconds| self.now.unix_ms + u64::from(seconds) * 1_000);
        let message = Arc::new(View { expires_ms, ..will.message.view() }.to_message());
        self.publish_of_will(Publishing::of_will(message, will.retain, client, user));
        // In the same commit, so that it is neither lost nor published twice.
        self.write_session(key);
    }
}

/// What a will takes, about.
fn will_bytes(will: &Will<'_>) -> usize {
    let user = will.properties.user.iter().map(|(name, value)| name.len() + value.len() + 5);
    let texts = [will.properties.content_type, will.properties.response_topic];
    let texts = texts.into_iter().flatten().map(str::len).sum::<usize>();
    let correlation = will.properties.correlation.map_or(0, <[u8]>::len);
    size_of::<StoredWill>() + will.topic.len() + will.payload.len() + user.sum::<usize>() + texts + correlation + 64
}

fn store_will(will: &Will<'_>) -> StoredWill {
    let mut lasting = Vec::new();
    encode::lasting_properties(&mut lasting, &will.properties);
    let view = View { topic: will.topic, payload: will.payload, lasting: &lasting, qos: will.qos, expires_ms: None };
    let message = Arc::new(view.to_message());
    StoredWill { message, retain: will.retain, delay_s: will.delay_s, expiry_s: will.properties.expiry_s }
}
