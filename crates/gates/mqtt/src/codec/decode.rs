//! Bytes become packets.

use super::connect::{Connack, Connect};
use super::properties::{Properties, Property, PublishProperties, skim, subscription_id, topic};
use super::read::Reader;
use super::{Fault, Frame, Qos, Reason, SubscriptionOptions, Version};

/// Any packet, as far as possible borrowed from the bytes it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet<'a> {
    Connect(Box<Connect<'a>>),
    Connack(Box<Connack>),
    Publish(Publish<'a>),
    Puback { id: u16, reason: Reason },
    Pubrec { id: u16, reason: Reason },
    Pubrel { id: u16, reason: Reason },
    Pubcomp { id: u16, reason: Reason },
    Subscribe(Subscribe<'a>),
    Suback { id: u16, codes: &'a [u8] },
    Unsubscribe(Unsubscribe<'a>),
    Unsuback { id: u16, codes: &'a [u8] },
    Pingreq,
    Pingresp,
    Disconnect { reason: Reason, session_expiry_s: Option<u32> },
    Auth,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish<'a> {
    pub dup: bool,
    pub qos: Qos,
    pub retain: bool,
    /// Empty only if there is a topic alias.
    pub topic: &'a str,
    /// 0 with QoS 0.
    pub id: u16,
    pub properties: PublishProperties<'a>,
    pub payload: &'a [u8],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe<'a> {
    pub id: u16,
    pub subscription_id: Option<u32>,
    pub entries: Vec<SubscribeEntry<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscribeEntry<'a> {
    pub filter: &'a str,
    pub options: SubscriptionOptions,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    pub id: u16,
    pub filters: Vec<&'a str>,
}

/// Reads one packet of a connection that speaks `version`; a CONNECT says its version itself.
///
/// # Errors
/// Whatever the standard forbids, with the reason it names for it.
pub fn decode(frame: Frame<'_>, version: Version) -> Result<Packet<'_>, Fault> {
    let (kind, flags) = (frame.first >> 4, frame.first & 0x0f);
    if kind != 3 && flags != if matches!(kind, 6 | 8 | 10) { 2 } else { 0 } {
        return Err(Fault::malformed("the flags of the packet are not those of its kind"));
    }
    let mut reader = Reader::new(frame.body);
    let is_5 = version == Version::V5;
    match kind {
        1 => Connect::read(frame.body).map(|connect| Packet::Connect(Box::new(connect))),
        2 => Connack::read(frame.body, version).map(|connack| Packet::Connack(Box::new(connack))),
        3 => Publish::read(flags, reader, version).map(Packet::Publish),
        4 => ack(reader, is_5).map(|(id, reason)| Packet::Puback { id, reason }),
        5 => ack(reader, is_5).map(|(id, reason)| Packet::Pubrec { id, reason }),
        6 => ack(reader, is_5).map(|(id, reason)| Packet::Pubrel { id, reason }),
        7 => ack(reader, is_5).map(|(id, reason)| Packet::Pubcomp { id, reason }),
        8 => subscribe(reader, is_5).map(Packet::Subscribe),
        9 => codes(reader, is_5).map(|(id, codes)| Packet::Suback { id, codes }),
        10 => unsubscribe(reader, is_5).map(Packet::Unsubscribe),
        11 if !is_5 => {
            let id = reader.id()?;
            reader.end().map(|()| Packet::Unsuback { id, codes: &[] })
        }
        11 => codes(reader, is_5).map(|(id, codes)| Packet::Unsuback { id, codes }),
        12 => reader.end().map(|()| Packet::Pingreq),
        13 => reader.end().map(|()| Packet::Pingresp),
        14 => disconnect(reader, is_5),
        15 if is_5 => auth(reader),
        _ => Err(Fault::malformed("there is no such kind of packet")),
    }
}

impl<'a> Publish<'a> {
    fn read(flags: u8, mut reader: Reader<'a>, version: Version) -> Result<Self, Fault> {
        let qos = Qos::new(flags >> 1 & 3).ok_or(Fault::malformed("the QoS of a message is 3"))?;
        let dup = flags & 8 != 0;
        if dup && qos == Qos::AtMostOnce {
            return Err(Fault::malformed("a message of QoS 0 claims to be sent again"));
        }
        let name = reader.text()?;
        let id = if qos.is_confirmed() { reader.id()? } else { 0 };
        let properties = match version {
            Version::V5 => PublishProperties::read(&mut reader)?,
            Version::V311 => PublishProperties::default(),
        };
        if !name.is_empty() || properties.topic_alias.is_none() {
            topic(name)?;
        }
        Ok(Self { dup, qos, retain: flags & 1 != 0, topic: name, id, properties, payload: reader.rest() })
    }
}

/// What has to be known of a PUBLISH to answer it, where the rest cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishHead {
    pub qos: Qos,
    /// 0 with QoS 0.
    pub id: u16,
    /// Bytes of the whole packet.
    pub bytes: usize,
}

impl PublishHead {
    /// Reads as far as the identifier. None if the bytes end before, or are no PUBLISH.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let first = reader.byte().ok()?;
        let body_bytes = reader.variable().ok()? as usize;
        let header_bytes = bytes.len() - reader.rest().len();
        let qos = Qos::new(first >> 1 & 3).filter(|_| first >> 4 == 3)?;
        reader.binary().ok()?;
        let id = if qos.is_confirmed() { reader.id().ok()? } else { 0 };
        Some(Self { qos, id, bytes: header_bytes + body_bytes })
    }
}

fn ack(mut reader: Reader<'_>, is_5: bool) -> Result<(u16, Reason), Fault> {
    let id = reader.id()?;
    if !is_5 || reader.is_empty() {
        return reader.end().map(|()| (id, Reason::SUCCESS));
    }
    let reason = Reason(reader.byte()?);
    if !reader.is_empty() {
        skim(&mut reader, &[Property::ReasonText, Property::User])?;
    }
    reader.end().map(|()| (id, reason))
}

fn subscribe(mut reader: Reader<'_>, is_5: bool) -> Result<Subscribe<'_>, Fault> {
    let (id, mut subscription) = (reader.id()?, None);
    if is_5 {
        let mut properties = Properties::read(&mut reader)?;
        let mut user = Vec::new();
        while let Some(property) = properties.next()? {
            match property {
                Property::SubscriptionId if subscription.is_some() => {
                    return Err(Fault::protocol("a subscription has two identifiers"));
                }
                Property::SubscriptionId => subscription = Some(subscription_id(&mut properties)?),
                Property::User => properties.user(&mut user)?,
                _ => return Properties::misplaced(),
            }
        }
    }
    let mut entries = Vec::new();
    while !reader.is_empty() {
        let (filter, bits) = (reader.text()?, reader.byte()?);
        if !is_5 && bits > 2 {
            return Err(Fault::malformed("the QoS of a subscription is neither 0 nor 1 nor 2"));
        }
        let options = SubscriptionOptions::from_bits(bits)
            .ok_or(Fault::malformed("the options of a subscription have a bit that must be 0"))?;
        if options.no_local && filter.starts_with("$share/") {
            return Err(Fault::protocol("a shared subscription cannot leave out a client's own messages"));
        }
        entries.push(SubscribeEntry { filter, options });
    }
    if entries.is_empty() {
        return Err(Fault::protocol("a SUBSCRIBE names no topic filter"));
    }
    Ok(Subscribe { id, subscription_id: subscription, entries })
}

fn unsubscribe(mut reader: Reader<'_>, is_5: bool) -> Result<Unsubscribe<'_>, Fault> {
    let id = reader.id()?;
    if is_5 {
        skim(&mut reader, &[Property::User])?;
    }
    let mut filters = Vec::new();
    while !reader.is_empty() {
        filters.push(reader.text()?);
    }
    if filters.is_empty() {
        return Err(Fault::protocol("an UNSUBSCRIBE names no topic filter"));
    }
    Ok(Unsubscribe { id, filters })
}

fn codes(mut reader: Reader<'_>, is_5: bool) -> Result<(u16, &[u8]), Fault> {
    let id = reader.id()?;
    if is_5 {
        skim(&mut reader, &[Property::ReasonText, Property::User])?;
    }
    if reader.is_empty() {
        return Err(Fault::protocol("an answer holds no reason code"));
    }
    Ok((id, reader.rest()))
}

fn disconnect<'a>(mut reader: Reader<'a>, is_5: bool) -> Result<Packet<'a>, Fault> {
    if !is_5 || reader.is_empty() {
        return reader.end().map(|()| Packet::Disconnect { reason: Reason::SUCCESS, session_expiry_s: None });
    }
    let (reason, mut session_expiry_s) = (Reason(reader.byte()?), None);
    if !reader.is_empty() {
        let mut properties = Properties::read(&mut reader)?;
        let mut user = Vec::new();
        while let Some(property) = properties.next()? {
            match property {
                Property::SessionExpiry => session_expiry_s = Some(properties.four()?),
                Property::ReasonText | Property::ServerReference => {
                    properties.text()?;
                }
                Property::User => properties.user(&mut user)?,
                _ => return Properties::misplaced(),
            }
        }
    }
    reader.end().map(|()| Packet::Disconnect { reason, session_expiry_s })
}

fn auth<'a>(mut reader: Reader<'a>) -> Result<Packet<'a>, Fault> {
    if !reader.is_empty() {
        let reason = reader.byte()?;
        if !matches!(reason, 0x00 | 0x18 | 0x19) {
            return Err(Fault::malformed("the reason of an AUTH is none of its own"));
        }
        skim(&mut reader, &[Property::AuthMethod, Property::AuthData, Property::ReasonText, Property::User])?;
    }
    reader.end().map(|()| Packet::Auth)
}
