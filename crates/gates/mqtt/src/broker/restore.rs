//! After a restart: sessions, what waits in them, and what is retained, as they were made durable.

use super::accounts::{Payer, held_bytes};
use super::message::Message;
use super::records::{self, Content, Copy, Key, Stored};
use super::session::{Queued, Session, Subscription};
use super::trie::Subscriber;
use super::{Broker, Owner};
use crate::node::Node;
use crate::topic::Filter;
use crate::users::{Identity, Users};
use problem::{Code, Problem};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// All records, before they are joined.
#[derive(Default)]
struct AllRecords {
    bodies: HashMap<u64, Arc<Message>>,
    copies: HashMap<u64, BTreeMap<u64, Copy>>,
    received: HashMap<u64, BTreeSet<u16>>,
    /// Whether the record is an old one.
    sessions: Vec<(bool, Stored)>,
    subscriptions: HashMap<u64, Vec<(Box<str>, Subscription)>>,
    retained: Vec<(Message, Payer)>,
}

impl<N: Node> Broker<N> {
    pub(super) fn restore(&mut self, users: &Users) -> Result<(), Problem> {
        let mut found = AllRecords::default();
        let mut wrong = None;
        self.node.clone().restore(&mut |key, bytes| {
            if found.take(key, bytes).is_none() {
                wrong.get_or_insert_with(|| key.to_owned());
            }
        })?;
        if let Some(key) = wrong {
            return Err(Problem::new(Code::StateCorrupt, format!("the MQTT record {key:?} cannot be read")));
        }
        for (message, payer) in std::mem::take(&mut found.retained) {
            self.keep_retained(Arc::new(message), &payer);
        }
        let mut uses: HashMap<u64, u32> = HashMap::new();
        let mut restored = BTreeSet::new();
        for (is_old, stored) in std::mem::take(&mut found.sessions) {
            let (number, client) = (stored.number, stored.client.clone());
            // Written anew already, if the node ended between that and deleting the old record.
            if restored.insert(number) {
                self.restore_session(is_old, stored, &mut found, &mut uses);
            }
            if is_old {
                self.pending.loose.delete(records::old_session_key(&client));
            }
        }
        for (number, message) in &found.bodies {
            self.next_number = self.next_number.max(number + 1);
            match uses.get(number) {
                Some(count) => message.share(*number, *count),
                None => self.pending.loose.delete(records::body_key(*number)),
            }
        }
        self.forget_strays(&found);
        self.finish();
        self.check_rights(users);
        Ok(())
    }

    fn restore_session(&mut self, is_old: bool, stored: Stored, found: &mut AllRecords, uses: &mut HashMap<u64, u32>) {
        let (number, client) = (stored.number, stored.client);
        self.next_number = self.next_number.max(number + 1);
        let owner = Owner { user: stored.user.clone(), client: client.clone() };
        let account = self.open_account(&owner.user);
        // What its user may do is looked up once all is there.
        let identity = Arc::new(Identity::without_rights(stored.user));
        let mut session = Session::new(client, identity, account, number, stored.expiry_s);
        let mut bytes = 0;
        session.is_stored = true;
        session.received = found.received.remove(&number).unwrap_or_default();
        session.will = stored.will.map(Box::new);
        // Who was connected when the node ended is lost as of now.
        let expires_ms =
            stored.expires_ms.unwrap_or(self.now.unix_ms.saturating_add(u64::from(stored.expiry_s) * 1_000));
        session.expires_ms = Some(expires_ms);
        for (sequence, copy) in found.copies.remove(&number).unwrap_or_default() {
            session.next_sequence = session.next_sequence.max(sequence + 1);
            let Copy { qos, retain, ids, content } = copy;
            let message = match content {
                Content::Released => {
                    session.released.insert(sequence);
                    continue;
                }
                Content::Whole(message) => Arc::new(message),
                Content::Shared(body) => match found.bodies.get(&body) {
                    Some(message) => {
                        *uses.entry(body).or_default() += 1;
                        message.clone()
                    }
                    None => continue,
                },
            };
            bytes += held_bytes(&message, &ids);
            // Whether it was sent is not written down. If it was, its receiver knows it by its identifier.
            let dup = session.queue.len() < usize::from(self.limits.inflight_max);
            session.queue.push_back(Queued { sequence, message, qos, retain, ids, ticket: 0, dup, is_kept: true });
        }
        let subscriptions = found.subscriptions.remove(&number).unwrap_or_default();
        let due_ms = session.will.as_ref().map(|will| self.now.steady_ms + u64::from(will.delay_s) * 1_000);
        session.will_due_ms = due_ms;
        let is_kept = session.is_kept();
        let key = self.sessions.insert(session);
        self.by_owner.insert(owner, key);
        self.count_kept(account, false, is_kept);
        self.hold_bytes(key, bytes);
        self.due.expiring.insert((expires_ms, key));
        if let Some(due_ms) = due_ms {
            self.due.wills.insert((due_ms, key));
        }
        for (text, subscription) in subscriptions {
            let Some(filter) = Filter::new(&text, usize::MAX) else { continue };
            let Subscription { options, id } = subscription;
            let subscriber = Subscriber { session: key, options, id, is_checked: false };
            self.trie.insert(filter.topics, filter.group, subscriber);
            self.totals.subscriptions += 1;
            self.totals.changes += 1;
            if let Some(session) = self.sessions.get_mut(key) {
                session.subscriptions.insert(text, subscription);
            }
        }
        let own_bytes = self.sessions.get(key).map_or(0, Session::count_own_bytes);
        self.set_own_bytes(key, own_bytes);
        if is_old {
            self.write_session(key);
        }
    }

    /// Deletes what belongs to no session.
    fn forget_strays(&mut self, found: &AllRecords) {
        for (session, copies) in &found.copies {
            copies.keys().for_each(|sequence| self.pending.loose.delete(records::copy_key(*session, *sequence)));
        }
        for (session, ids) in &found.received {
            ids.iter().for_each(|id| self.pending.loose.delete(records::received_key(*session, *id)));
        }
        for (session, subscriptions) in &found.subscriptions {
            subscriptions
                .iter()
                .for_each(|(filter, _)| self.pending.loose.delete(records::subscription_key(*session, filter)));
        }
        if !self.pending.loose.is_empty() {
            tracing::info!(
                records = self.pending.loose.records.len(),
                "MQTT records that belong to no session are deleted"
            );
        }
    }
}

impl AllRecords {
    fn take(&mut self, key: &str, bytes: &[u8]) -> Option<()> {
        match Key::parse(key)? {
            Key::Body(number) => drop(self.bodies.insert(number, Arc::new(records::read_message(bytes)?))),
            Key::Copy { session, sequence } => {
                self.copies.entry(session).or_default().insert(sequence, records::read_copy(bytes)?);
            }
            Key::Received { session, id } => drop(self.received.entry(session).or_default().insert(id)),
            Key::Session(_) => self.sessions.push((false, records::read_session(None, bytes)?)),
            Key::OldSession(client) => self.sessions.push((true, records::read_session(Some(client), bytes)?)),
            Key::Subscription { session, filter } => {
                let subscription = records::read_subscription(bytes)?;
                self.subscriptions.entry(session).or_default().push((filter.into(), subscription));
            }
            Key::Foreign => {}
            Key::Retained(_) => self.retained.push(records::read_retained(bytes)?),
        }
        Some(())
    }
}
