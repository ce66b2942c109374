//! Properties of MQTT 5: read one by one, each at most once unless the standard says otherwise.

use super::Fault;
use super::read::Reader;

/// User properties of one packet; more are refused.
pub const USER_PROPERTIES_MAX: usize = 64;

macro_rules! properties {
    ($($name:ident $number:literal;)*) => {
        /// Names of properties, by their numbers on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Property { $($name = $number,)* }

        impl Property {
            const fn new(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

properties! {
    PayloadFormat 1; MessageExpiry 2; ContentType 3; ResponseTopic 8; CorrelationData 9; SubscriptionId 11;
    SessionExpiry 17; AssignedClientId 18; ServerKeepAlive 19; AuthMethod 21; AuthData 22; RequestProblem 23;
    WillDelay 24; RequestResponse 25; ResponseInformation 26; ServerReference 28; ReasonText 31; ReceiveMaximum 33;
    TopicAliasMaximum 34; TopicAlias 35; MaximumQos 36; RetainAvailable 37; User 38; MaximumPacketSize 39;
    WildcardAvailable 40; SubscriptionIdAvailable 41; SharedAvailable 42;
}

/// Goes through the properties of a packet.
pub struct Properties<'a> {
    reader: Reader<'a>,
    seen: u64,
}

impl<'a> Properties<'a> {
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        Ok(Self { reader: reader.properties()?, seen: 0 })
    }

    /// The name of the next property, or none at the end; its value is to be read next.
    pub fn next(&mut self) -> Result<Option<Property>, Fault> {
        if self.reader.is_empty() {
            return Ok(None);
        }
        let property = Property::new(self.reader.variable()?).ok_or(Fault::malformed("there is no such property"))?;
        let may_repeat = matches!(property, Property::User | Property::SubscriptionId);
        let bit = 1 << property as u8;
        if self.seen & bit != 0 && !may_repeat {
            return Err(Fault::protocol("a property is given twice"));
        }
        self.seen |= bit;
        Ok(Some(property))
    }

    pub fn flag(&mut self) -> Result<bool, Fault> {
        match self.reader.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Fault::protocol("a property that is 0 or 1 has another value")),
        }
    }

    pub fn two(&mut self) -> Result<u16, Fault> {
        self.reader.two()
    }

    pub fn two_not_zero(&mut self) -> Result<u16, Fault> {
        match self.reader.two()? {
            0 => Err(Fault::protocol("a property that must not be 0 is 0")),
            number => Ok(number),
        }
    }

    pub fn four(&mut self) -> Result<u32, Fault> {
        self.reader.four()
    }

    pub fn variable(&mut self) -> Result<u32, Fault> {
        self.reader.variable()
    }

    pub fn text(&mut self) -> Result<&'a str, Fault> {
        self.reader.text()
    }

    pub fn binary(&mut self) -> Result<&'a [u8], Fault> {
        self.reader.binary()
    }

    /// Adds a user property.
    pub fn user(&mut self, into: &mut Vec<(&'a str, &'a str)>) -> Result<(), Fault> {
        let pair = (self.reader.text()?, self.reader.text()?);
        if into.len() == USER_PROPERTIES_MAX {
            let (reason, why) =
                (super::Reason::QUOTA_EXCEEDED, "a packet has more user properties than this broker takes");
            return Err(Fault { reason, why });
        }
        into.push(pair);
        Ok(())
    }

    /// The property does not belong in this packet.
    pub const fn misplaced<T>() -> Result<T, Fault> {
        Err(Fault::malformed("a property does not belong in its packet"))
    }
}

/// Properties of a message, borrowed from its packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishProperties<'a> {
    /// Whether the payload is said to be text.
    pub is_text: Option<bool>,
    /// Seconds after which nobody wants it any more.
    pub expiry_s: Option<u32>,
    pub topic_alias: Option<u16>,
    pub content_type: Option<&'a str>,
    pub response_topic: Option<&'a str>,
    pub correlation: Option<&'a [u8]>,
    pub user: Vec<(&'a str, &'a str)>,
    /// Only from a broker.
    pub subscription_ids: Vec<u32>,
}

impl<'a> PublishProperties<'a> {
    /// Takes a property that messages and wills share; says no to others.
    pub(super) fn take(&mut self, property: Property, from: &mut Properties<'a>) -> Result<(), Fault> {
        match property {
            Property::PayloadFormat => self.is_text = Some(from.flag()?),
            Property::MessageExpiry => self.expiry_s = Some(from.four()?),
            Property::ContentType => self.content_type = Some(from.text()?),
            Property::ResponseTopic => self.response_topic = Some(topic(from.text()?)?),
            Property::CorrelationData => self.correlation = Some(from.binary()?),
            Property::User => from.user(&mut self.user)?,
            _ => return Properties::misplaced(),
        }
        Ok(())
    }

    /// Reads what [`encode::lasting_properties`](super::encode::lasting_properties) wrote.
    pub fn from_lasting(bytes: &'a [u8]) -> Result<Self, Fault> {
        let mut properties = Properties { reader: Reader::new(bytes), seen: 0 };
        let mut taken = Self::default();
        while let Some(property) = properties.next()? {
            taken.take(property, &mut properties)?;
        }
        Ok(taken)
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, Fault> {
        let mut properties = Properties::read(reader)?;
        let mut taken = Self::default();
        while let Some(property) = properties.next()? {
            match property {
                Property::TopicAlias => taken.topic_alias = Some(properties.two()?),
                Property::SubscriptionId => taken.subscription_ids.push(subscription_id(&mut properties)?),
                other => taken.take(other, &mut properties)?,
            }
        }
        Ok(taken)
    }
}

pub fn subscription_id(from: &mut Properties<'_>) -> Result<u32, Fault> {
    match from.variable()? {
        0 => Err(Fault::protocol("a subscription identifier is 0")),
        id => Ok(id),
    }
}

/// A name messages are published under.
pub fn topic(text: &str) -> Result<&str, Fault> {
    if text.is_empty() || text.contains(['+', '#']) {
        return Err(Fault { reason: super::Reason::TOPIC_INVALID, why: "a topic name is empty or holds a wildcard" });
    }
    Ok(text)
}

/// Reads properties that nobody here needs, for their form alone.
pub fn skim(reader: &mut Reader<'_>, allowed: &[Property]) -> Result<(), Fault> {
    let mut properties = Properties::read(reader)?;
    let mut user = Vec::new();
    while let Some(property) = properties.next()? {
        match property {
            other if !allowed.contains(&other) => return Properties::misplaced(),
            Property::User => properties.user(&mut user)?,
            Property::ReasonText | Property::ServerReference | Property::AuthMethod => {
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
