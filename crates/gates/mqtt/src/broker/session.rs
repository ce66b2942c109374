//! A session: what a client subscribed to, what waits for it, and what is on its way.

use super::accounts::AccountKey;
use super::connection::ConnectionKey;
use super::message::Message;
use super::subscriptions::Subscriptions;
use super::will::StoredWill;
use crate::codec::{Qos, SubscriptionOptions};
use crate::users::Identity;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Packet identifiers that differ at one time.
const IDS: u64 = 65_535;

/// What the client asked for with one filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscription {
    pub options: SubscriptionOptions,
    pub id: Option<u32>,
}

/// Identifiers of the subscriptions that a message fits; mostly none.
pub type SubscriptionIds = Option<Box<[u32]>>;

/// A message that waits.
#[derive(Debug)]
pub struct Queued {
    pub sequence: u64,
    pub message: Arc<Message>,
    pub qos: Qos,
    pub retain: bool,
    pub ids: SubscriptionIds,
    /// It is sent once this commit is durable.
    pub ticket: u64,
    /// It may have been sent before, over a connection that was lost.
    pub dup: bool,
    /// Whether there is a copy of it on disk.
    pub is_kept: bool,
}

/// A message on its way.
#[derive(Debug)]
pub struct Flight {
    pub sequence: u64,
    pub qos: Qos,
    pub retain: bool,
    pub ids: SubscriptionIds,
    /// To send it again after the connection was lost, if there is a copy of it on disk.
    pub message: Option<Arc<Message>>,
}

#[derive(Debug)]
pub struct Session {
    pub client: Arc<str>,
    /// What its user may do, as of the last CONNECT or the start.
    pub identity: Arc<Identity>,
    pub(super) account: AccountKey,
    /// Names its records.
    pub number: u64,
    pub connection: Option<ConnectionKey>,
    /// Seconds it outlives its connection; 0: ends with it.
    pub expiry_s: u32,
    /// Milliseconds since 1970 when it ends, while there is no connection.
    pub expires_ms: Option<u64>,
    pub subscriptions: Subscriptions,
    pub queue: VecDeque<Queued>,
    /// Ordered by sequence.
    pub flights: VecDeque<Flight>,
    /// Messages of QoS 2 that the client has; what is left is to release their identifiers.
    pub released: BTreeSet<u64>,
    /// Bytes of messages in `queue` and `flights`.
    pub bytes: usize,
    /// What it takes beside them.
    pub own_bytes: usize,
    pub next_sequence: u64,
    /// Identifiers of messages of QoS 2 that are here already and not released.
    pub received: BTreeSet<u16>,
    /// The newest commit that changed it.
    pub ticket: u64,
    pub will: Option<Box<StoredWill>>,
    /// When the will is due although the session lives on; in steady milliseconds.
    pub will_due_ms: Option<u64>,
    /// Messages it did not get because it was full, since it was last said.
    pub dropped: u64,
    /// Whether there are records of it.
    pub is_stored: bool,
    /// Steady milliseconds when its client last confirmed something.
    pub progress_ms: u64,
    /// Connections that read no further until this session has room.
    pub holds: Vec<ConnectionKey>,
}

impl Session {
    pub(super) fn new(
        client: Arc<str>,
        identity: Arc<Identity>,
        account: AccountKey,
        number: u64,
        expiry_s: u32,
    ) -> Self {
        Self {
            client,
            identity,
            account,
            number,
            connection: None,
            expiry_s,
            expires_ms: None,
            subscriptions: Subscriptions::default(),
            queue: VecDeque::new(),
            flights: VecDeque::new(),
            released: BTreeSet::new(),
            bytes: 0,
            own_bytes: 0,
            next_sequence: 1,
            received: BTreeSet::new(),
            ticket: 0,
            will: None,
            will_due_ms: None,
            dropped: 0,
            is_stored: false,
            progress_ms: 0,
            holds: Vec::new(),
        }
    }

    pub fn user(&self) -> &Option<Arc<str>> {
        &self.identity.user
    }

    /// Whether it outlives its connection, so that what it holds is on disk.
    pub fn is_kept(&self) -> bool {
        self.expiry_s > 0
    }

    pub fn take_sequence(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        sequence
    }

    /// Whether one more message may be on its way. A number is not used again while one of the same identifier is.
    ///
    /// The message may be older than all that is on its way: it waits again after a lost connection, and a later one
    /// was received meanwhile.
    pub fn has_window(&self, window: usize, sequence: u64) -> bool {
        let oldest =
            self.flights.front().map(|flight| flight.sequence).into_iter().chain(self.released.first().copied()).min();
        let is_free = oldest.is_none_or(|oldest| sequence.saturating_sub(oldest) < IDS);
        self.flights.len() + self.released.len() < window && is_free
    }

    /// The place of the flight with this packet identifier.
    pub fn find(&self, id: u16) -> Option<usize> {
        let oldest = self.flights.front()?.sequence;
        let distance = (u64::from(id) + IDS - u64::from(packet_id(oldest))) % IDS;
        self.flights.binary_search_by_key(&(oldest + distance), |flight| flight.sequence).ok()
    }

    /// The released message with this packet identifier.
    pub fn find_released(&self, id: u16) -> Option<u64> {
        self.released.iter().copied().find(|sequence| packet_id(*sequence) == id)
    }

    /// The connection is lost: what was on its way waits again, before all else.
    pub fn land(&mut self) {
        for Flight { sequence, qos, retain, ids, message } in std::mem::take(&mut self.flights).into_iter().rev() {
            if let Some(message) = message {
                self.queue.push_front(Queued {
                    sequence,
                    message,
                    qos,
                    retain,
                    ids,
                    ticket: 0,
                    dup: true,
                    is_kept: true,
                });
            }
        }
    }
}

/// The packet identifier of a message: it follows from its number, so that a restart does not change it.
pub fn packet_id(sequence: u64) -> u16 {
    ((sequence - 1) % IDS) as u16 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flights_are_found_by_their_identifiers() {
        let mut session = Session::new("c".into(), Arc::default(), 0, 1, 0);
        for sequence in [65_530, 65_533, 65_534, 65_535, 65_536, 65_600] {
            let qos = Qos::AtLeastOnce;
            session.flights.push_back(Flight { sequence, qos, retain: false, ids: None, message: None });
        }
        for (place, sequence) in [65_530, 65_533, 65_534, 65_535, 65_536, 65_600].into_iter().enumerate() {
            assert_eq!(session.find(packet_id(sequence)), Some(place));
        }
        assert_eq!([packet_id(1), packet_id(65_535), packet_id(65_536)], [1, 65_535, 1]);
        assert_eq!(session.find(packet_id(65_531)), None);
        assert_eq!(session.find(77), None);
        assert!(session.has_window(7, 65_601) && !session.has_window(6, 65_601));
        assert!(!session.has_window(7, 65_530 + 65_535));
    }

    #[test]
    fn a_message_that_waits_again_may_be_older_than_what_was_received() {
        let mut session = Session::new("c".into(), Arc::default(), 0, 1, 0);
        session.released.insert(9);
        assert!(session.has_window(2, 8));
        assert!(!session.has_window(1, 8));
    }
}
