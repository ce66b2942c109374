//! One connection to the outside broker, from CONNECT to its loss.

use super::connect::Stream;
use super::outward::{Terms, Unconfirmed};
use super::{BridgeConfig, BridgeInner, Outward, Told};
use crate::broker::{Message, View};
use crate::codec::encode::{self, Ack};
use crate::codec::{
    self, Connect, Packet, Publish, PublishHead, Qos, Reason, SubscribeEntry, SubscriptionOptions, Version,
};
use crate::node::{Changes, Delivery, Node};
use problem::{Code, Problem};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Seconds without a packet after which the other side gives up; we send something four times as often.
const KEEP_ALIVE_S: u16 = 60;

/// How long an answer to CONNECT, or to a ping, may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// How long to wait before a message that was refused is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Bytes of one packet from the outside broker.
const PACKET_BYTES_MAX: usize = crate::limits::PACKET_BYTES_CEILING;

/// Messages that are on their way to us, and from us.
const INFLIGHT_MAX: u16 = 256;

/// How often the same reason for dropping messages is said.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// Bytes after which the identifier of a PUBLISH has come: header, topic, identifier.
const HEAD_BYTES: usize = 5 + 2 + u16::MAX as usize + 2;

/// Topic aliases are not asked for, and more than so many bytes are not kept.
const READ_BYTES: usize = 64 * 1_024;

/// Prefix of the records: identifiers of messages of QoS 2 that are here already.
pub const RECORDS: &str = "x/";

/// What outlives a connection.
#[derive(Default)]
pub struct BridgeMemory {
    /// Identifiers of messages of QoS 2 that are here and not released. On disk, too.
    received: BTreeSet<u16>,
    outward: Unconfirmed,
    /// When it was last said, of each reason why messages are dropped.
    said: BTreeMap<&'static str, Instant>,
}

impl BridgeMemory {
    pub fn restore<N: Node>(node: &N) -> Result<Self, Problem> {
        let mut memory = Self::default();
        node.restore(&mut |key, _| {
            memory.received.extend(key.strip_prefix(RECORDS).and_then(|id| u16::from_str_radix(id, 16).ok()));
        })?;
        Ok(memory)
    }
}

/// Why a connection ended.
pub enum Ended {
    Lost {
        why: String,
        was_connected: bool,
    },
    /// The bridge itself ends.
    NoMoreWork,
}

pub struct Link<'a, N: Node> {
    config: &'a BridgeConfig,
    node: &'a N,
    memory: &'a mut BridgeMemory,
    shared: &'a BridgeInner,
    client: Arc<str>,
    out: Vec<u8>,
    is_open: bool,
    /// Answers, in the order of what they answer.
    waiting: VecDeque<(u64, Ack, u16)>,
    subscribed: Vec<(String, Qos)>,
    receive_maximum: usize,
    terms: Terms,
    /// Bytes of a dropped message that are still to be left out.
    passed_by: usize,
}

impl<'a, N: Node> Link<'a, N> {
    pub fn new(config: &'a BridgeConfig, node: &'a N, memory: &'a mut BridgeMemory, shared: &'a BridgeInner) -> Self {
        let client = Arc::from(format!("$bridge/{}", config.host));
        let receive_maximum = usize::from(INFLIGHT_MAX);
        let (out, waiting, subscribed) = (Vec::new(), VecDeque::new(), Vec::new());
        let terms = Terms { version: config.version, qos_max: config.qos_max, packet_bytes_max: usize::MAX };
        Self {
            config,
            node,
            memory,
            shared,
            client,
            out,
            is_open: false,
            waiting,
            subscribed,
            receive_maximum,
            terms,
            passed_by: 0,
        }
    }

    pub async fn run(
        mut self,
        stream: Box<dyn Stream>,
        filters: &mut watch::Receiver<Vec<(String, Qos)>>,
        requests: &mut mpsc::Receiver<Outward>,
        mut told: Told<'_>,
    ) -> Ended {
        let (mut reader, mut writer) = tokio::io::split(stream);
        self.say_connect();
        match self.drive(&mut reader, &mut writer, filters, requests, &mut told).await {
            Ok(()) => Ended::NoMoreWork,
            Err(why) => Ended::Lost { why, was_connected: self.is_open },
        }
    }

    async fn drive(
        &mut self,
        reader: &mut ReadHalf<Box<dyn Stream>>,
        writer: &mut WriteHalf<Box<dyn Stream>>,
        filters: &mut watch::Receiver<Vec<(String, Qos)>>,
        requests: &mut mpsc::Receiver<Outward>,
        told: &mut Told<'_>,
    ) -> Result<(), String> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut ping_at = Instant::now() + Duration::from_secs(u64::from(KEEP_ALIVE_S) / 4);
        let mut heard = Instant::now();
        let mut is_refused = false;
        loop {
            // All that is there is handled before more is read.
            is_refused = is_refused || !self.take_all(&mut bytes, filters, told)?;
            if !self.out.is_empty() {
                let out = std::mem::take(&mut self.out);
                writer.write_all(&out).await.map_err(|error| error.to_string())?;
                writer.flush().await.map_err(|error| error.to_string())?;
            }
            let limit = if self.is_open {
                Duration::from_secs(u64::from(KEEP_ALIVE_S) / 4) + ANSWER_TIMEOUT
            } else {
                ANSWER_TIMEOUT
            };
            let ticket = self.waiting.front().map(|(ticket, ..)| *ticket);
            let may_read = !is_refused && self.may_take();
            if !may_read {
                // Whoever is not listened to is not silent.
                heard = Instant::now();
            }
            bytes.reserve(if may_read { 4_096 } else { 0 });
            tokio::select! {
                read = reader.read_buf(&mut bytes), if may_read && bytes.len() < PACKET_BYTES_MAX + READ_BYTES => match read {
                    Ok(0) => return Err("the outside broker closed it".to_owned()),
                    Ok(_) => heard = Instant::now(),
                    Err(error) => return Err(error.to_string()),
                },
                durable = self.node.durable(ticket.unwrap_or(0)), if ticket.is_some() => {
                    let durable = durable.map_err(|problem| problem.detail.into_owned())?;
                    self.answer(durable);
                }
                request = requests.recv(), if self.is_open && self.memory.outward.len() < self.receive_maximum => match request {
                    Some(outward) => {
                        let is_published = self.memory.outward.publish(outward, self.terms, &mut self.out);
                        self.count_published(is_published);
                    }
                    None => return Ok(()),
                },
                changed = filters.changed(), if self.is_open => match changed {
                    Ok(()) => self.subscribe(&filters.borrow_and_update().clone()),
                    Err(_) => return Ok(()),
                },
                () = tokio::time::sleep(RETRY), if is_refused => is_refused = false,
                () = tokio::time::sleep_until(ping_at) => {
                    encode::pingreq(&mut self.out);
                    ping_at = Instant::now() + Duration::from_secs(u64::from(KEEP_ALIVE_S) / 4);
                }
                () = tokio::time::sleep_until(heard + limit), if may_read => return Err("nothing is heard".to_owned()),
            }
        }
    }

    /// Takes all whole packets. False if one could not be accepted and is to be tried again.
    fn take_all(
        &mut self,
        bytes: &mut Vec<u8>,
        filters: &mut watch::Receiver<Vec<(String, Qos)>>,
        told: &mut Told<'_>,
    ) -> Result<bool, String> {
        while self.may_take() {
            let passed_by = self.passed_by.min(bytes.len());
            bytes.drain(..passed_by);
            self.passed_by -= passed_by;
            let frame = match codec::split(bytes, None, PACKET_BYTES_MAX) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(fault) if fault.reason == Reason::PACKET_TOO_LARGE && self.is_open => {
                    match PublishHead::read(bytes) {
                        Some(head) => {
                            self.passed_by = head.bytes;
                            self.drop_message(head.qos, head.id, fault.why);
                        }
                        None if bytes.len() < HEAD_BYTES => break,
                        None => return Err(fault.to_string()),
                    }
                    continue;
                }
                Err(fault) => return Err(fault.to_string()),
            };
            let done = frame.bytes;
            match codec::decode(frame, self.config.version) {
                Ok(packet) => {
                    if !self.take(packet, filters, told)? {
                        return Ok(false);
                    }
                }
                Err(fault) => match PublishHead::read(&bytes[..done]).filter(|_| self.is_open) {
                    Some(head) => self.drop_message(head.qos, head.id, fault.why),
                    None => return Err(fault.to_string()),
                },
            }
            bytes.drain(..done);
        }
        Ok(true)
    }

    /// Acknowledges a message that can never be taken: it would come again with each connection, and hold up all
    /// others.
    fn drop_message(&mut self, qos: Qos, id: u16, why: &'static str) {
        let now = Instant::now();
        let said = self.memory.said.get(why).copied();
        if said.is_none_or(|said| now.duration_since(said) >= SAY_AGAIN) {
            self.memory.said.insert(why, now);
            tracing::warn!(
                qos = qos.number(),
                id,
                "a message of the outside broker is acknowledged and dropped: {why}"
            );
        }
        match qos {
            Qos::AtMostOnce => {}
            Qos::AtLeastOnce => self.reply(0, Ack::Puback, id),
            Qos::ExactlyOnce => self.reply(0, Ack::Pubrec, id),
        }
    }

    /// Answers that wait for the disk are bounded.
    fn may_take(&self) -> bool {
        self.waiting.len() < usize::from(INFLIGHT_MAX) * 2
    }

    fn say_connect(&mut self) {
        let config = self.config;
        let is_5 = config.version == Version::V5;
        let connect = Connect {
            version: config.version,
            clean_start: false,
            keep_alive_s: KEEP_ALIVE_S,
            client_id: &config.client_id,
            will: None,
            user: config.user.as_deref(),
            password: config.password.as_deref().map(str::as_bytes),
            session_expiry_s: u32::MAX,
            receive_maximum: if is_5 { INFLIGHT_MAX } else { u16::MAX },
            packet_bytes_max: is_5.then_some(PACKET_BYTES_MAX as u32),
            topic_alias_maximum: 0,
            wants_problems: true,
            auth_method: None,
        };
        encode::connect(&mut self.out, &connect);
    }

    /// False if the packet could not be accepted and is to be tried again.
    fn take(
        &mut self,
        packet: Packet<'_>,
        filters: &mut watch::Receiver<Vec<(String, Qos)>>,
        told: &mut Told<'_>,
    ) -> Result<bool, String> {
        match packet {
            Packet::Connack(connack) if connack.code == 0 && !self.is_open => {
                self.is_open = true;
                told.connected();
                let theirs = connack.receive_maximum.map_or(usize::MAX, usize::from);
                self.receive_maximum = theirs.min(usize::from(INFLIGHT_MAX));
                self.terms.packet_bytes_max = connack.packet_bytes_max.map_or(usize::MAX, |bytes| bytes as usize);
                if !connack.session_present {
                    self.forget_received();
                    self.memory.outward.session_began();
                }
                self.memory.outward.send_again(self.terms, &mut self.out);
                self.subscribe(&filters.borrow_and_update().clone());
            }
            Packet::Connack(connack) => {
                let why = connack.reason_text.unwrap_or_else(|| Reason(connack.code).text().to_owned());
                return Err(format!("the outside broker does not let us in: {why} ({})", connack.code));
            }
            _ if !self.is_open => return Err("the outside broker speaks before its CONNACK".to_owned()),
            Packet::Publish(publish) => return self.take_publish(&publish),
            Packet::Pubrel { id, .. } => self.take_pubrel(id),
            Packet::Puback { id, reason } => {
                let is_published = self.memory.outward.take_puback(id, reason);
                self.count_published(is_published);
            }
            Packet::Pubrec { id, reason } => self.memory.outward.take_pubrec(id, reason, self.terms, &mut self.out),
            Packet::Pubcomp { id, .. } => {
                let is_published = self.memory.outward.take_pubcomp(id, self.terms, &mut self.out);
                self.count_published(is_published);
            }
            Packet::Suback { codes, .. } => {
                if codes.iter().any(|code| *code >= 0x80) {
                    tracing::error!("the outside broker refuses a filter of a function to the MQTT bridge");
                }
            }
            Packet::Unsuback { .. } | Packet::Pingresp => {}
            Packet::Disconnect { reason, .. } => return Err(format!("the outside broker disconnects: {reason}")),
            other => {
                return Err(format!("the outside broker sends what only clients send: {other:?}")
                    .chars()
                    .take(200)
                    .collect());
            }
        }
        Ok(true)
    }

    fn take_publish(&mut self, publish: &Publish<'_>) -> Result<bool, String> {
        if publish.topic.is_empty() {
            return Err("the outside broker uses a topic alias that was not offered".to_owned());
        }
        if publish.qos == Qos::ExactlyOnce && self.memory.received.contains(&publish.id) {
            let ticket = self.waiting.back().map_or(0, |(ticket, ..)| *ticket);
            self.reply(ticket, Ack::Pubrec, publish.id);
            return Ok(true);
        }
        let mut lasting = Vec::new();
        encode::lasting_properties(&mut lasting, &publish.properties);
        let view = View {
            topic: publish.topic,
            payload: publish.payload,
            lasting: &lasting,
            qos: publish.qos,
            expires_ms: None,
        };
        let message: Arc<Message> = Arc::new(view.to_message());
        let mut changes = Changes::default();
        changes.events.push(Delivery { message, client: self.client.clone(), user: None, retain: publish.retain });
        if publish.qos == Qos::ExactlyOnce {
            changes.put(record(publish.id), vec![1]);
        }
        match self.node.commit(&changes) {
            Ok(ticket) => {
                self.shared.received.fetch_add(1, Ordering::Relaxed);
                match publish.qos {
                    Qos::AtMostOnce => {}
                    Qos::AtLeastOnce => self.reply(ticket, Ack::Puback, publish.id),
                    Qos::ExactlyOnce => {
                        self.memory.received.insert(publish.id);
                        self.reply(ticket, Ack::Pubrec, publish.id);
                    }
                }
                Ok(true)
            }
            // Nobody waits for it, and holding up those behind it would help nobody.
            Err(_) if publish.qos == Qos::AtMostOnce => Ok(true),
            Err(refused) => match never(refused.problem().code) {
                Some(why) => {
                    tracing::debug!(topic = publish.topic, "dropped: {}", refused.problem().detail);
                    self.drop_message(publish.qos, publish.id, why);
                    Ok(true)
                }
                None => Ok(false),
            },
        }
    }

    fn take_pubrel(&mut self, id: u16) {
        self.memory.received.remove(&id);
        let mut changes = Changes::default();
        changes.delete(record(id));
        // Confirmed only once it is forgotten for good: the identifier may come back for another message.
        if let Ok(ticket) = self.node.commit(&changes) {
            self.reply(ticket, Ack::Pubcomp, id);
        }
    }

    /// The outside broker has lost the session: identifiers begin anew.
    fn forget_received(&mut self) {
        let mut changes = Changes::default();
        std::mem::take(&mut self.memory.received).into_iter().for_each(|id| changes.delete(record(id)));
        if let Err(refused) = self.node.commit(&changes) {
            tracing::warn!("old records of the MQTT bridge stay: {}", refused.problem().detail);
        }
    }

    fn reply(&mut self, ticket: u64, kind: Ack, id: u16) {
        let ticket = self.waiting.back().map_or(ticket, |(last, ..)| ticket.max(*last));
        self.waiting.push_back((ticket, kind, id));
        if ticket == 0 {
            self.answer(0);
        }
    }

    fn answer(&mut self, durable: u64) {
        while let Some((_, kind, id)) = self.waiting.pop_front_if(|(ticket, ..)| *ticket <= durable) {
            encode::ack(&mut self.out, kind, id, Reason::SUCCESS, self.config.version);
        }
    }

    fn subscribe(&mut self, wanted: &[(String, Qos)]) {
        let gone: Vec<String> = self
            .subscribed
            .iter()
            .filter(|(filter, _)| !wanted.iter().any(|(other, _)| other == filter))
            .map(|(filter, _)| filter.clone())
            .collect();
        for filter in gone {
            let id = self.memory.outward.take_id();
            encode::unsubscribe(&mut self.out, id, &[&filter], self.config.version);
        }
        for (filter, qos) in wanted {
            if self.subscribed.contains(&(filter.clone(), *qos)) {
                continue;
            }
            let options =
                SubscriptionOptions { qos: (*qos).min(self.config.qos_max), retain_handling: 1, ..Default::default() };
            let id = self.memory.outward.take_id();
            encode::subscribe(&mut self.out, id, &[SubscribeEntry { filter, options }], None, self.config.version);
        }
        self.subscribed = wanted.to_vec();
    }

    fn count_published(&self, is_published: bool) {
        self.shared.published.fetch_add(is_published.into(), Ordering::Relaxed);
    }
}

/// Why a message will not be taken later either, if that is so.
fn never(code: Code) -> Option<&'static str> {
    match code {
        Code::EventInvalid => Some("it makes no event that a queue takes"),
        Code::EventTooLarge => Some("its event is larger than a queue takes"),
        Code::WorkflowEnded => Some("the workflow of a function that wants it has ended"),
        _ => None,
    }
}

fn record(id: u16) -> String {
    format!("{RECORDS}{id:04x}")
}
