//! Packets become bytes, appended to a buffer.

use super::properties::Property;
use super::{Connack, Connect, PublishProperties, Qos, Reason, SubscribeEntry, Version};

/// Appends the bytes of a length or another variable byte integer.
///
/// # Panics
/// `value` is 2^28 or more; lengths are bounded long before.
pub fn variable(into: &mut Vec<u8>, value: usize) {
    assert!(value < 1 << 28, "a variable byte integer has 28 bits");
    let mut rest = value;
    while rest > 0x7f {
        into.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    into.push(rest as u8);
}

/// Bytes that [`variable`] takes.
pub const fn variable_bytes(value: usize) -> usize {
    match value {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        _ => 4,
    }
}

/// # Panics
/// The text has more than 65,535 bytes; what is sent came in a packet or is bounded by the configuration.
fn text(into: &mut Vec<u8>, text: &str) {
    binary(into, text.as_bytes());
}

fn binary(into: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).expect("texts and binary data have at most 65,535 bytes");
    into.extend_from_slice(&length.to_be_bytes());
    into.extend_from_slice(bytes);
}

fn text_property(into: &mut Vec<u8>, property: Property, value: Option<&str>) {
    if let Some(value) = value {
        into.push(property as u8);
        text(into, value);
    }
}

fn two_property(into: &mut Vec<u8>, property: Property, value: Option<u16>) {
    if let Some(value) = value {
        into.push(property as u8);
        into.extend_from_slice(&value.to_be_bytes());
    }
}

fn four_property(into: &mut Vec<u8>, property: Property, value: Option<u32>) {
    if let Some(value) = value {
        into.push(property as u8);
        into.extend_from_slice(&value.to_be_bytes());
    }
}

fn byte_property(into: &mut Vec<u8>, property: Property, value: Option<u8>) {
    if let Some(value) = value {
        into.extend_from_slice(&[property as u8, value]);
    }
}

/// Appends one packet whose body `write` makes.
fn packet(into: &mut Vec<u8>, first: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::with_capacity(64);
    write(&mut body);
    into.push(first);
    variable(into, body.len());
    into.extend_from_slice(&body);
}

/// Appends properties after their length.
fn properties(into: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut list = Vec::new();
    write(&mut list);
    variable(into, list.len());
    into.extend_from_slice(&list);
}

/// The properties of a message that a broker passes on unchanged.
pub fn lasting_properties(into: &mut Vec<u8>, of: &PublishProperties<'_>) {
    byte_property(into, Property::PayloadFormat, of.is_text.map(u8::from));
    text_property(into, Property::ContentType, of.content_type);
    text_property(into, Property::ResponseTopic, of.response_topic);
    if let Some(correlation) = of.correlation {
        into.push(Property::CorrelationData as u8);
        binary(into, correlation);
    }
    for (name, value) in &of.user {
        into.push(Property::User as u8);
        text(into, name);
        text(into, value);
    }
}

/// What a PUBLISH is made of, its lasting properties as bytes already.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    pub version: Version,
    pub qos: Qos,
    pub retain: bool,
    pub dup: bool,
    /// Ignored with QoS 0.
    pub id: u16,
    pub topic: &'a str,
    pub payload: &'a [u8],
    /// See [`lasting_properties`].
    pub lasting: &'a [u8],
    pub expiry_s: Option<u32>,
    pub subscription_ids: &'a [u32],
}

impl Outgoing<'_> {
    fn property_bytes(&self) -> usize {
        let ids: usize = self.subscription_ids.iter().map(|id| 1 + variable_bytes(*id as usize)).sum();
        self.lasting.len() + if self.expiry_s.is_some() { 5 } else { 0 } + ids
    }

    fn body_bytes(&self) -> usize {
        let id = if self.qos.is_confirmed() { 2 } else { 0 };
        let properties = match self.version {
            Version::V311 => 0,
            Version::V5 => variable_bytes(self.property_bytes()) + self.property_bytes(),
        };
        2 + self.topic.len() + id + properties + self.payload.len()
    }

    /// Bytes of the whole packet.
    pub fn bytes(&self) -> usize {
        let body = self.body_bytes();
        1 + variable_bytes(body) + body
    }

    /// Appends the packet, and says where in `into` its identifier stands (with QoS 1 and 2).
    pub fn write(&self, into: &mut Vec<u8>) -> usize {
        let body = self.body_bytes();
        into.reserve(5 + body);
        into.push(0x30 | u8::from(self.dup) << 3 | self.qos.number() << 1 | u8::from(self.retain));
        variable(into, body);
        text(into, self.topic);
        let id_at = into.len();
        if self.qos.is_confirmed() {
            into.extend_from_slice(&self.id.to_be_bytes());
        }
        if self.version == Version::V5 {
            variable(into, self.property_bytes());
            into.extend_from_slice(self.lasting);
            four_property(into, Property::MessageExpiry, self.expiry_s);
            for id in self.subscription_ids {
                into.push(Property::SubscriptionId as u8);
                variable(into, *id as usize);
            }
        }
        into.extend_from_slice(self.payload);
        id_at
    }
}

/// Kinds of packets that hold an identifier and a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ack {
    Puback = 0x40,
    Pubrec = 0x50,
    Pubrel = 0x62,
    Pubcomp = 0x70,
}

/// Appends an acknowledgement. Version 3.1.1 has no reasons.
pub fn ack(into: &mut Vec<u8>, kind: Ack, id: u16, reason: Reason, version: Version) {
    let [high, low] = id.to_be_bytes();
    if version == Version::V5 && reason != Reason::SUCCESS {
        into.extend_from_slice(&[kind as u8, 3, high, low, reason.0]);
    } else {
        into.extend_from_slice(&[kind as u8, 2, high, low]);
    }
}

pub fn connect(into: &mut Vec<u8>, connect: &Connect<'_>) {
    packet(into, 0x10, |body| {
        text(body, "MQTT");
        let is_5 = connect.version == Version::V5;
        body.push(if is_5 { 5 } else { 4 });
        body.push(connect.flags());
        body.extend_from_slice(&connect.keep_alive_s.to_be_bytes());
        if is_5 {
            properties(body, |list| {
                four_property(
                    list,
                    Property::SessionExpiry,
                    Some(connect.session_expiry_s).filter(|seconds| *seconds > 0),
                );
                let receive_maximum = Some(connect.receive_maximum).filter(|maximum| *maximum < u16::MAX);
                two_property(list, Property::ReceiveMaximum, receive_maximum);
                four_property(list, Property::MaximumPacketSize, connect.packet_bytes_max);
                let aliases = Some(connect.topic_alias_maximum).filter(|maximum| *maximum > 0);
                two_property(list, Property::TopicAliasMaximum, aliases);
                byte_property(list, Property::RequestProblem, (!connect.wants_problems).then_some(0));
                text_property(list, Property::AuthMethod, connect.auth_method);
            });
        }
        text(body, connect.client_id);
        if let Some(will) = &connect.will {
            if is_5 {
                properties(body, |list| {
                    four_property(list, Property::WillDelay, Some(will.delay_s).filter(|seconds| *seconds > 0));
                    four_property(list, Property::MessageExpiry, will.properties.expiry_s);
                    lasting_properties(list, &will.properties);
                });
            }
            text(body, will.topic);
            binary(body, will.payload);
        }
        if let Some(user) = connect.user {
            text(body, user);
        }
        if let Some(password) = connect.password {
            binary(body, password);
        }
    });
}

pub fn connack(into: &mut Vec<u8>, connack: &Connack, version: Version) {
    packet(into, 0x20, |body| {
        body.extend_from_slice(&[u8::from(connack.session_present), connack.code]);
        if version == Version::V5 {
            properties(body, |list| {
                four_property(list, Property::SessionExpiry, connack.session_expiry_s);
                two_property(list, Property::ReceiveMaximum, connack.receive_maximum);
                byte_property(list, Property::MaximumQos, connack.maximum_qos);
                byte_property(list, Property::RetainAvailable, connack.retain_available.map(u8::from));
                four_property(list, Property::MaximumPacketSize, connack.packet_bytes_max);
                text_property(list, Property::AssignedClientId, connack.assigned_client_id.as_deref());
                two_property(list, Property::TopicAliasMaximum, connack.topic_alias_maximum);
                text_property(list, Property::ReasonText, connack.reason_text.as_deref());
                two_property(list, Property::ServerKeepAlive, connack.keep_alive_s);
            });
        }
    });
}

pub fn subscribe(
    into: &mut Vec<u8>,
    id: u16,
    entries: &[SubscribeEntry<'_>],
    subscription: Option<u32>,
    version: Version,
) {
    packet(into, 0x82, |body| {
        body.extend_from_slice(&id.to_be_bytes());
        if version == Version::V5 {
            properties(body, |list| {
                if let Some(subscription) = subscription {
                    list.push(Property::SubscriptionId as u8);
                    variable(list, subscription as usize);
                }
            });
        }
        for entry in entries {
            text(body, entry.filter);
            body.push(if version == Version::V5 { entry.options.bits() } else { entry.options.qos.number() });
        }
    });
}

/// Appends a SUBACK, or with `first` 0xb0 an UNSUBACK, which in 3.1.1 has no codes.
fn answer(into: &mut Vec<u8>, first: u8, id: u16, codes: &[u8], version: Version) {
    packet(into, first, |body| {
        body.extend_from_slice(&id.to_be_bytes());
        if version == Version::V5 {
            body.push(0);
        }
        body.extend_from_slice(codes);
    });
}

pub fn suback(into: &mut Vec<u8>, id: u16, codes: &[u8], version: Version) {
    answer(into, 0x90, id, codes, version);
}

pub fn unsuback(into: &mut Vec<u8>, id: u16, codes: &[u8], version: Version) {
    answer(into, 0xb0, id, if version == Version::V5 { codes } else { &[] }, version);
}

pub fn unsubscribe(into: &mut Vec<u8>, id: u16, filters: &[&str], version: Version) {
    packet(into, 0xa2, |body| {
        body.extend_from_slice(&id.to_be_bytes());
        if version == Version::V5 {
            body.push(0);
        }
        for filter in filters {
            text(body, filter);
        }
    });
}

pub fn pingreq(into: &mut Vec<u8>) {
    into.extend_from_slice(&[0xc0, 0]);
}

pub fn pingresp(into: &mut Vec<u8>) {
    into.extend_from_slice(&[0xd0, 0]);
}

/// Appends a DISCONNECT; only version 5 can say why.
pub fn disconnect(into: &mut Vec<u8>, reason: Reason, version: Version) {
    if version == Version::V5 && reason != Reason::SUCCESS {
        into.extend_from_slice(&[0xe0, 1, reason.0]);
    } else {
        into.extend_from_slice(&[0xe0, 0]);
    }
}
