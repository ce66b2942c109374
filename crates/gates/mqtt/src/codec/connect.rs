//! CONNECT and CONNACK: what the two sides agree on.

use super::properties::{Properties, Property, topic};
use super::read::Reader;
use super::{Fault, PublishProperties, Qos, Reason, Version};

/// What a client says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect<'a> {
    pub version: Version,
    /// A session before this one is forgotten.
    pub clean_start: bool,
    /// Seconds without a packet after half as many more the connection counts as lost; 0: never.
    pub keep_alive_s: u16,
    /// Empty: the broker chooses.
    pub client_id: &'a str,
    pub will: Option<Will<'a>>,
    pub user: Option<&'a str>,
    pub password: Option<&'a [u8]>,
    /// Seconds the session lives on after the connection. In 3.1.1 none or without end, as `clean_start` says.
    pub session_expiry_s: u32,
    /// Messages of QoS 1 and 2 the client takes at once.
    pub receive_maximum: u16,
    /// Bytes of the largest packet the client takes.
    pub packet_bytes_max: Option<u32>,
    pub topic_alias_maximum: u16,
    /// Reason texts and user properties may be sent with any packet.
    pub wants_problems: bool,
    /// Of an authentication beyond name and password.
    pub auth_method: Option<&'a str>,
}

/// What a broker publishes for a client that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Will<'a> {
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub qos: Qos,
    pub retain: bool,
    pub delay_s: u32,
    pub properties: PublishProperties<'a>,
}

const CLEAN_START: u8 = 0x02;
const WILL: u8 = 0x04;
const WILL_RETAIN: u8 = 0x20;
const PASSWORD: u8 = 0x40;
const USER: u8 = 0x80;

impl<'a> Connect<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Fault> {
        let mut reader = Reader::new(body);
        let name = reader.text()?;
        if name != "MQTT" && name != "MQIsdp" {
            return Err(Fault { reason: Reason::VERSION, why: "the protocol is not MQTT" });
        }
        let version = match (name, reader.byte()?) {
            // 3.1 is taken for 3.1.1, but for clients without a name.
            ("MQTT", 4) | ("MQIsdp", 3) => Version::V311,
            ("MQTT", 5) => Version::V5,
            _ => return Err(Fault { reason: Reason::VERSION, why: "the version of MQTT is neither 3.1.1 nor 5.0" }),
        };
        let is_5 = version == Version::V5;
        let flags = reader.byte()?;
        check_flags(flags, version)?;
        let mut connect = Self {
            version,
            clean_start: flags & CLEAN_START != 0,
            keep_alive_s: reader.two()?,
            client_id: "",
            will: None,
            user: None,
            password: None,
            session_expiry_s: if is_5 || flags & CLEAN_START != 0 { 0 } else { u32::MAX },
            receive_maximum: u16::MAX,
            packet_bytes_max: None,
            topic_alias_maximum: 0,
            wants_problems: true,
            auth_method: None,
        };
        if is_5 {
            connect.take_properties(&mut reader)?;
        }
        connect.client_id = reader.text()?;
        if connect.client_id.is_empty() && name == "MQIsdp" {
            return Err(Fault { reason: Reason::CLIENT_ID, why: "a client of MQTT 3.1 needs a name" });
        }
        if flags & WILL != 0 {
            connect.will = Some(Will::read(&mut reader, flags, is_5)?);
        }
        if flags & USER != 0 {
            connect.user = Some(reader.text()?);
        }
        if flags & PASSWORD != 0 {
            connect.password = Some(reader.binary()?);
        }
        reader.end()?;
        Ok(connect)
    }

    fn take_properties(&mut self, reader: &mut Reader<'a>) -> Result<(), Fault> {
        let mut properties = Properties::read(reader)?;
        let (mut user, mut has_auth_data) = (Vec::new(), false);
        while let Some(property) = properties.next()? {
            match property {
                Property::SessionExpiry => self.session_expiry_s = properties.four()?,
                Property::ReceiveMaximum => self.receive_maximum = properties.two_not_zero()?,
                Property::MaximumPacketSize => match properties.four()? {
                    0 => return Err(Fault::protocol("the maximum packet size is 0")),
                    bytes => self.packet_bytes_max = Some(bytes),
                },
                Property::TopicAliasMaximum => self.topic_alias_maximum = properties.two()?,
                Property::RequestResponse => {
                    properties.flag()?;
                }
                Property::RequestProblem => self.wants_problems = properties.flag()?,
                Property::User => properties.user(&mut user)?,
                Property::AuthMethod => self.auth_method = Some(properties.text()?),
                Property::AuthData => {
                    properties.binary()?;
                    has_auth_data = true;
                }
                _ => return Properties::misplaced(),
            }
        }
        if has_auth_data && self.auth_method.is_none() {
            return Err(Fault::protocol("there is authentication data without a method"));
        }
        Ok(())
    }
}

fn check_flags(flags: u8, version: Version) -> Result<(), Fault> {
    if flags & 1 != 0 {
        return Err(Fault::malformed("the reserved flag of CONNECT is set"));
    }
    if flags & WILL == 0 && flags & (WILL_RETAIN | 0x18) != 0 {
        return Err(Fault::malformed("CONNECT has flags of a will and no will"));
    }
    if version == Version::V311 && flags & PASSWORD != 0 && flags & USER == 0 {
        return Err(Fault::malformed("CONNECT has a password and no user name"));
    }
    Ok(())
}

impl<'a> Will<'a> {
    fn read(reader: &mut Reader<'a>, flags: u8, is_5: bool) -> Result<Self, Fault> {
        let qos = Qos::new(flags >> 3 & 3).ok_or(Fault::malformed("the QoS of the will is 3"))?;
        let (mut taken, mut delay_s) = (PublishProperties::default(), 0);
        if is_5 {
            let mut properties = Properties::read(reader)?;
            while let Some(property) = properties.next()? {
                match property {
                    Property::WillDelay => delay_s = properties.four()?,
                    other => taken.take(other, &mut properties)?,
                }
            }
        }
        let topic = topic(reader.text()?)?;
        let (payload, retain) = (reader.binary()?, flags & WILL_RETAIN != 0);
        Ok(Self { topic, payload, qos, retain, delay_s, properties: taken })
    }

    pub(super) const fn flags(&self) -> u8 {
        WILL | self.qos.number() << 3 | if self.retain { WILL_RETAIN } else { 0 }
    }
}

impl Connect<'_> {
    pub(super) fn flags(&self) -> u8 {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        flag(self.clean_start, CLEAN_START)
            | self.will.as_ref().map_or(0, Will::flags)
            | flag(self.user.is_some(), USER)
            | flag(self.password.is_some(), PASSWORD)
    }
}

/// What a broker answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connack {
    pub session_present: bool,
    /// Of version 5; in 3.1.1 the return code.
    pub code: u8,
    pub session_expiry_s: Option<u32>,
    pub receive_maximum: Option<u16>,
    pub maximum_qos: Option<u8>,
    pub retain_available: Option<bool>,
    pub packet_bytes_max: Option<u32>,
    pub assigned_client_id: Option<String>,
    pub topic_alias_maximum: Option<u16>,
    pub reason_text: Option<String>,
    pub keep_alive_s: Option<u16>,
}

impl Connack {
    pub(super) fn read(body: &[u8], version: Version) -> Result<Self, Fault> {
        let mut reader = Reader::new(body);
        let flags = reader.byte()?;
        if flags > 1 {
            return Err(Fault::malformed("a reserved flag of CONNACK is set"));
        }
        let mut connack = Self { session_present: flags == 1, code: reader.byte()?, ..Self::default() };
        if version == Version::V5 {
            connack.take_properties(&mut reader)?;
        }
        reader.end()?;
        Ok(connack)
    }

    fn take_properties(&mut self, reader: &mut Reader<'_>) -> Result<(), Fault> {
        let mut properties = Properties::read(reader)?;
        let mut user = Vec::new();
        while let Some(property) = properties.next()? {
            match property {
                Property::SessionExpiry => self.session_expiry_s = Some(properties.four()?),
                Property::ReceiveMaximum => self.receive_maximum = Some(properties.two_not_zero()?),
                Property::MaximumQos => self.maximum_qos = Some(u8::from(properties.flag()?)),
                Property::RetainAvailable => self.retain_available = Some(properties.flag()?),
                Property::MaximumPacketSize => self.packet_bytes_max = Some(properties.four()?),
                Property::AssignedClientId => self.assigned_client_id = Some(properties.text()?.to_owned()),
                Property::TopicAliasMaximum => self.topic_alias_maximum = Some(properties.two()?),
                Property::ReasonText => self.reason_text = Some(properties.text()?.to_owned()),
                Property::ServerKeepAlive => self.keep_alive_s = Some(properties.two()?),
                Property::WildcardAvailable | Property::SubscriptionIdAvailable | Property::SharedAvailable => {
                    properties.flag()?;
                }
                Property::User => properties.user(&mut user)?,
                Property::ResponseInformation | Property::ServerReference | Property::AuthMethod => {
                    properties.text()?;
                }
                Property::AuthData => {
                    properties.binary()?;
                }
                _ => return Properties::misplaced(),
            }
        }
        Ok(())
    }
}
