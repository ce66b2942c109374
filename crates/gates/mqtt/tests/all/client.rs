//! A client that keeps its word: what it was told it may forget it forgets, all else it sends again when it is back.

use gate_mqtt::broker::ConnectionKey;
use gate_mqtt::codec::encode::{self, Ack, Outgoing};
use gate_mqtt::codec::{
    Connect, Packet, PublishProperties, Qos, Reason, SubscribeEntry, SubscriptionOptions, Version, decode, split,
};
use random::Random;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a client knows; it outlives its connections, and the broker.
#[derive(Debug)]
pub struct Client {
    pub name: String,
    pub version: Version,
    pub connection: Option<Link>,
    pub is_subscribed: bool,
    /// Messages to publish, then on their way by identifier.
    pub to_send: VecDeque<(u64, Qos)>,
    pub sending: BTreeMap<u16, Sending>,
    pub next_id: u16,
    pub confirmed: BTreeSet<u64>,
    /// Identifiers of messages of QoS 2 that are here.
    pub received: BTreeSet<u16>,
    pub got: Vec<(u64, Qos)>,
    pub wanted_qos: Qos,
    /// Each message tells its event's id, so that one sent again can be known.
    pub names_events: bool,
}

#[derive(Debug)]
pub struct Sending {
    pub message: u64,
    pub qos: Qos,
    pub is_released: bool,
}

#[derive(Debug)]
pub struct Link {
    pub key: ConnectionKey,
    /// On their way.
    pub to_broker: Vec<u8>,
    pub to_client: Vec<u8>,
    pub is_open: bool,
}

pub fn message_of(payload: &[u8]) -> u64 {
    u64::from_be_bytes(payload.try_into().expect("payloads are numbers"))
}

impl Link {
    pub fn new(key: ConnectionKey) -> Self {
        Self { key, to_broker: Vec::new(), to_client: Vec::new(), is_open: false }
    }
}

impl Client {
    pub fn new(number: u64, random: &mut Random) -> Self {
        Self {
            name: format!("client-{number}"),
            version: if random.below(2) == 0 { Version::V311 } else { Version::V5 },
            connection: None,
            is_subscribed: false,
            to_send: VecDeque::new(),
            sending: BTreeMap::new(),
            next_id: 0,
            confirmed: BTreeSet::new(),
            received: BTreeSet::new(),
            got: Vec::new(),
            wanted_qos: if random.below(2) == 0 { Qos::AtLeastOnce } else { Qos::ExactlyOnce },
            names_events: false,
        }
    }

    pub fn messages(&self) -> impl Iterator<Item = (u64, Qos)> {
        self.confirmed.iter().map(|message| (*message, qos_of(*message)))
    }

    fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(link) = &mut self.connection {
            write(&mut link.to_broker);
        }
    }

    pub fn publish(&mut self) {
        if !self.connection.as_ref().is_some_and(|link| link.is_open) || !self.is_subscribed || self.sending.len() >= 3
        {
            return;
        }
        let Some((message, qos)) = self.to_send.pop_front() else { return };
        self.next_id = self.next_id % 7 + 1;
        while self.sending.contains_key(&self.next_id) {
            self.next_id = self.next_id % 7 + 1;
        }
        let id = self.next_id;
        self.sending.insert(id, Sending { message, qos, is_released: false });
        self.send(id, false);
    }

    fn send(&mut self, id: u16, dup: bool) {
        let Sending { message, qos, is_released } = self.sending[&id];
        let version = self.version;
        if is_released {
            return self.write(|out| encode::ack(out, Ack::Pubrel, id, Reason::SUCCESS, version));
        }
        let (payload, mut lasting) = (message.to_be_bytes(), Vec::new());
        if self.names_events {
            let name = message.to_string();
            let properties = PublishProperties { user: vec![("id", &name)], ..PublishProperties::default() };
            encode::lasting_properties(&mut lasting, &properties);
        }
        let (topic, subscription_ids, expiry_s, retain) = ("wanted/t", &[][..], None, false);
        let (payload, lasting) = (&payload, &lasting);
        let outgoing = Outgoing { version, qos, retain, dup, id, topic, payload, lasting, expiry_s, subscription_ids };
        self.write(|out| {
            outgoing.write(out);
        });
    }

    /// What it says first.
    pub fn hello(&self) -> Connect<'_> {
        Connect {
            version: self.version,
            clean_start: false,
            keep_alive_s: 0,
            client_id: &self.name,
            will: None,
            user: None,
            password: None,
            session_expiry_s: u32::MAX,
            receive_maximum: u16::MAX,
            packet_bytes_max: None,
            topic_alias_maximum: 0,
            wants_problems: true,
            auth_method: None,
        }
    }

    /// Reads the whole packets in the first `arrived` bytes that were sent to it.
    pub fn read(&mut self, arrived: usize) {
        let Some(link) = &self.connection else { return };
        let bytes = link.to_client[..arrived].to_vec();
        let mut used = 0;
        while let Some(frame) = split(&bytes[used..], None, 1 << 20).expect("the broker speaks well") {
            used += frame.bytes;
            self.take(decode(frame, self.version).expect("the broker speaks well"));
        }
        if let Some(link) = &mut self.connection {
            link.to_client.drain(..used);
        }
    }

    fn take(&mut self, packet: Packet<'_>) {
        let version = self.version;
        match packet {
            Packet::Connack(connack) => {
                assert_eq!(connack.code, 0);
                self.connection.as_mut().expect("it just spoke").is_open = true;
                if !self.is_subscribed {
                    let options = SubscriptionOptions { qos: self.wanted_qos, ..Default::default() };
                    self.write(|out| {
                        encode::subscribe(out, 99, &[SubscribeEntry { filter: "wanted/#", options }], None, version)
                    });
                } else {
                    assert!(connack.session_present, "{} lost its session", self.name);
                }
                for id in self.sending.keys().copied().collect::<Vec<_>>() {
                    self.send(id, true);
                }
            }
            Packet::Suback { codes, .. } => {
                assert!(codes[0] <= 2);
                self.is_subscribed = true;
            }
            Packet::Puback { id, reason } => self.ended(id, reason),
            Packet::Pubrec { id, reason } if reason.is_failure() => self.ended(id, reason),
            Packet::Pubrec { id, .. } => {
                if let Some(sending) = self.sending.get_mut(&id) {
                    sending.is_released = true;
                }
                self.write(|out| encode::ack(out, Ack::Pubrel, id, Reason::SUCCESS, version));
            }
            Packet::Pubcomp { id, .. } => self.ended(id, Reason::SUCCESS),
            Packet::Publish(publish) => {
                let message = message_of(publish.payload);
                match publish.qos {
                    Qos::AtMostOnce => unreachable!("nobody asks for it"),
                    Qos::AtLeastOnce => {
                        self.got.push((message, publish.qos));
                        self.write(|out| encode::ack(out, Ack::Puback, publish.id, Reason::SUCCESS, version));
                    }
                    Qos::ExactlyOnce => {
                        if self.received.insert(publish.id) {
                            self.got.push((message, publish.qos));
                        }
                        self.write(|out| encode::ack(out, Ack::Pubrec, publish.id, Reason::SUCCESS, version));
                    }
                }
            }
            Packet::Pubrel { id, .. } => {
                self.received.remove(&id);
                self.write(|out| encode::ack(out, Ack::Pubcomp, id, Reason::SUCCESS, version));
            }
            Packet::Disconnect { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn ended(&mut self, id: u16, reason: Reason) {
        let Some(sending) = self.sending.remove(&id) else { return };
        if reason.is_failure() {
            // It was not accepted: another attempt is another message to the broker.
            self.to_send.push_back((sending.message, sending.qos));
        } else {
            assert!(self.confirmed.insert(sending.message), "confirmed twice");
        }
    }
}

pub fn qos_of(message: u64) -> Qos {
    if message.is_multiple_of(2) { Qos::AtLeastOnce } else { Qos::ExactlyOnce }
}
