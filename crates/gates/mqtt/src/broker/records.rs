//! What the broker keeps on disk: names and bytes of its records.
//!
//! | key | what |
//! |---|---|
//! | `b/NUMBER` | a message that several sessions' copies share |
//! | `i/SESSION/ID` | a message of QoS 2 is here and not released |
//! | `m/SESSION/SEQUENCE` | a session's copy of a message |
//! | `r/TOPIC` | a retained message |
//! | `n/SESSION` | a session |
//! | `s/CLIENT` | a session, as it was written when a name had one user; the next start writes it anew |
//! | `t/SESSION/FILTER` | a subscription |
//! | `x/ID` | not the broker's: a message of QoS 2 is here that the bridge has not seen released |
//!
//! Numbers are 16 hexadecimal digits, so that they are ordered. Every record begins with the version of its form.

use super::accounts::Payer;
use super::message::{Message, View};
use super::session::{Session, Subscription, SubscriptionIds};
use super::will::StoredWill;
use crate::codec::{Qos, SubscriptionOptions};
use std::sync::Arc;

const FORM: u8 = 1;

/// A retained message with the user it belongs to; the first form has none.
const RETAINED_FORM: u8 = 2;

pub fn body_key(number: u64) -> String {
    format!("b/{number:016x}")
}

pub fn received_key(session: u64, id: u16) -> String {
    format!("i/{session:016x}/{id:04x}")
}

pub fn copy_key(session: u64, sequence: u64) -> String {
    format!("m/{session:016x}/{sequence:016x}")
}

pub fn retained_key(topic: &str) -> String {
    format!("r/{topic}")
}

pub fn session_key(number: u64) -> String {
    format!("n/{number:016x}")
}

/// Of a session as it was written before several users could have a client of one name.
pub fn old_session_key(client: &str) -> String {
    format!("s/{client}")
}

pub fn subscription_key(session: u64, filter: &str) -> String {
    format!("t/{session:016x}/{filter}")
}

/// A key taken apart.
#[derive(Debug, PartialEq, Eq)]
pub enum Key<'a> {
    Body(u64),
    Received {
        session: u64,
        id: u16,
    },
    Copy {
        session: u64,
        sequence: u64,
    },
    Retained(&'a str),
    Session(u64),
    OldSession(&'a str),
    Subscription {
        session: u64,
        filter: &'a str,
    },
    /// Not the broker's.
    Foreign,
}

impl<'a> Key<'a> {
    pub fn parse(key: &'a str) -> Option<Self> {
        let (kind, rest) = key.split_once('/')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let two = || rest.split_once('/').and_then(|(first, second)| Some((number(first)?, second)));
        match kind {
            "b" => Some(Self::Body(number(rest)?)),
            "i" => {
                two().and_then(|(session, id)| Some(Self::Received { session, id: u16::from_str_radix(id, 16).ok()? }))
            }
            "m" => two().and_then(|(session, sequence)| Some(Self::Copy { session, sequence: number(sequence)? })),
            "r" => Some(Self::Retained(rest)),
            "n" => Some(Self::Session(number(rest)?)),
            "s" => Some(Self::OldSession(rest)),
            // Of a bridge.
            "x" => Some(Self::Foreign),
            "t" => two().map(|(session, filter)| Self::Subscription { session, filter }),
            _ => None,
        }
    }
}

/// A session's copy, as it is read.
#[derive(Debug)]
pub struct Copy {
    pub qos: Qos,
    pub retain: bool,
    pub ids: SubscriptionIds,
    pub content: Content,
}

#[derive(Debug)]
pub enum Content {
    /// The copy is the only one.
    Whole(Message),
    /// See the record of this number.
    Shared(u64),
    /// The client has it; its identifier is not released.
    Released,
}

/// A session's record, as it is read.
#[derive(Debug)]
pub struct Stored {
    pub client: Arc<str>,
    pub number: u64,
    pub user: Option<Arc<str>>,
    pub expiry_s: u32,
    pub expires_ms: Option<u64>,
    pub will: Option<StoredWill>,
}

const IS_RETAIN: u8 = 4;
const IS_RELEASED: u8 = 8;
const IS_SHARED: u8 = 16;

struct Writer(Vec<u8>);

impl Writer {
    fn new() -> Self {
        Self(vec![FORM])
    }

    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    fn optional(&mut self, number: Option<u64>) {
        self.number(number.map_or(0, |number| number.saturating_add(1)));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        self.0.extend_from_slice(bytes);
    }

    fn user(&mut self, user: Option<&str>) {
        self.byte(u8::from(user.is_some()));
        self.bytes(user.unwrap_or_default().as_bytes());
    }

    fn message(&mut self, view: View<'_>) {
        self.byte(view.qos.number());
        self.optional(view.expires_ms);
        self.bytes(view.topic.as_bytes());
        self.bytes(view.lasting);
        self.bytes(view.payload);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        bytes.strip_prefix(&[FORM]).map(Self)
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    fn optional(&mut self) -> Option<Option<u64>> {
        Some(self.number()?.checked_sub(1))
    }

    fn small(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let bytes = self.small()? as usize;
        self.take(bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn user(&mut self) -> Option<Option<Arc<str>>> {
        let has_user = self.byte()? != 0;
        let name = self.text()?;
        Some(has_user.then(|| name.into()))
    }

    fn message(&mut self) -> Option<Message> {
        let (qos, expires_ms) = (Qos::new(self.byte()?)?, self.optional()?);
        let (topic, lasting, payload) = (self.text()?, self.bytes()?, self.bytes()?);
        crate::codec::PublishProperties::from_lasting(lasting).ok()?;
        Some(View { topic, payload, lasting, qos, expires_ms }.to_message())
    }

    fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

pub fn write_message(message: &Message) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.message(message.view());
    writer.0
}

pub fn read_message(bytes: &[u8]) -> Option<Message> {
    let mut reader = Reader::new(bytes)?;
    let message = reader.message()?;
    reader.end(message)
}

/// A retained message, and whose it is.
pub fn write_retained(message: &Message, payer: &Payer) -> Vec<u8> {
    let Payer::User(user) = payer else { return write_message(message) };
    let mut writer = Writer(vec![RETAINED_FORM]);
    writer.user(user.as_deref());
    writer.message(message.view());
    writer.0
}

pub fn read_retained(bytes: &[u8]) -> Option<(Message, Payer)> {
    let Some(rest) = bytes.strip_prefix(&[RETAINED_FORM]) else {
        return read_message(bytes).map(|message| (message, Payer::Node));
    };
    let mut reader = Reader(rest);
    let user = reader.user()?;
    let message = reader.message()?;
    reader.end((message, Payer::User(user)))
}

/// The copy is of a message that is whole in this record, or has a record of its own.
pub fn write_copy(message: &Message, qos: Qos, retain: bool, ids: &SubscriptionIds) -> Vec<u8> {
    let mut writer = Writer::new();
    let shared = if message.body().is_some() { IS_SHARED } else { 0 };
    writer.byte(qos.number() | if retain { IS_RETAIN } else { 0 } | shared);
    let ids = ids.as_deref().unwrap_or_default();
    writer.byte(ids.len().min(255) as u8);
    for id in &ids[..ids.len().min(255)] {
        writer.0.extend_from_slice(&id.to_be_bytes());
    }
    match message.body() {
        Some(number) => writer.number(number),
        None => writer.message(message.view()),
    }
    writer.0
}

pub fn write_released() -> Vec<u8> {
    vec![FORM, Qos::ExactlyOnce.number() | IS_RELEASED]
}

pub fn read_copy(bytes: &[u8]) -> Option<Copy> {
    let mut reader = Reader::new(bytes)?;
    let flags = reader.byte()?;
    let (qos, retain) = (Qos::new(flags & 3)?, flags & IS_RETAIN != 0);
    if flags & IS_RELEASED != 0 {
        return reader.end(Copy { qos, retain, ids: None, content: Content::Released });
    }
    let count = reader.byte()?;
    let ids: Option<Vec<u32>> = (0..count).map(|_| reader.small()).collect();
    let ids = Some(ids?).filter(|ids| !ids.is_empty()).map(Vec::into_boxed_slice);
    let content = match flags & IS_SHARED {
        0 => Content::Whole(reader.message()?),
        _ => Content::Shared(reader.number()?),
    };
    reader.end(Copy { qos, retain, ids, content })
}

pub fn write_session(session: &Session) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.number(session.number);
    writer.number(session.expiry_s.into());
    writer.optional(session.expires_ms);
    writer.user(session.user().as_deref());
    writer.byte(session.will.as_ref().map_or(0, |will| 1 | if will.retain { IS_RETAIN } else { 0 }));
    if let Some(will) = &session.will {
        writer.number(will.delay_s.into());
        writer.optional(will.expiry_s.map(u64::from));
        writer.message(will.message.view());
    }
    writer.bytes(session.client.as_bytes());
    writer.0
}

/// `client` is the name that an old record has in its key.
pub fn read_session(client: Option<&str>, bytes: &[u8]) -> Option<Stored> {
    let mut reader = Reader::new(bytes)?;
    let (number, expiry_s, expires_ms) = (reader.number()?, reader.number()?, reader.optional()?);
    let user = reader.user()?;
    let flags = reader.byte()?;
    let will = if flags & 1 == 0 {
        None
    } else {
        let delay_s = u32::try_from(reader.number()?).ok()?;
        let expiry_s = reader.optional()?.map(u32::try_from).transpose().ok()?;
        let message = Arc::new(reader.message()?);
        Some(StoredWill { message, retain: flags & IS_RETAIN != 0, delay_s, expiry_s })
    };
    let expiry_s = u32::try_from(expiry_s).ok()?;
    let client = match client {
        Some(client) => client.into(),
        None => reader.text()?.into(),
    };
    reader.end(Stored { client, number, user, expiry_s, expires_ms, will })
}

pub fn write_subscription(subscription: Subscription) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.byte(subscription.options.bits());
    writer.0.extend_from_slice(&subscription.id.unwrap_or(0).to_be_bytes());
    writer.0
}

pub fn read_subscription(bytes: &[u8]) -> Option<Subscription> {
    let mut reader = Reader::new(bytes)?;
    let options = SubscriptionOptions::from_bits(reader.byte()?)?;
    let id = Some(reader.small()?).filter(|id| *id > 0);
    reader.end(Subscription { options, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let message = Message::for_test("a/b", b"data");
        let read = read_message(&write_message(&message)).unwrap();
        assert_eq!((read.topic(), read.payload(), read.qos()), ("a/b", &b"data"[..], Qos::AtLeastOnce));

        for payer in [Payer::Node, Payer::User(None), Payer::User(Some("u".into()))] {
            let (read, read_payer) = read_retained(&write_retained(&message, &payer)).unwrap();
            assert_eq!((read.payload(), read_payer), (&b"data"[..], payer));
        }

        let copy = read_copy(&write_copy(&message, Qos::ExactlyOnce, true, &Some([7, 8].into()))).unwrap();
        assert_eq!((copy.qos, copy.retain, copy.ids.as_deref()), (Qos::ExactlyOnce, true, Some(&[7, 8][..])));
        assert!(matches!(copy.content, Content::Whole(message) if message.payload() == b"data"));
        message.share(9, 2);
        let copy = read_copy(&write_copy(&message, Qos::AtLeastOnce, false, &None)).unwrap();
        assert!(matches!(copy.content, Content::Shared(9)) && copy.ids.is_none());
        assert!(matches!(read_copy(&write_released()).unwrap().content, Content::Released));

        let identity = Arc::new(crate::Identity::without_rights(Some("u".into())));
        let mut session = Session::new("c".into(), identity, 0, 5, u32::MAX);
        session.expires_ms = Some(0);
        let will = StoredWill { message: Arc::new(message), retain: true, delay_s: 3, expiry_s: Some(0) };
        session.will = Some(Box::new(will));
        let read = read_session(None, &write_session(&session)).unwrap();
        assert_eq!(&*read.client, "c");
        assert_eq!(
            (read.number, read.expiry_s, read.expires_ms, read.user.as_deref()),
            (5, u32::MAX, Some(0), Some("u"))
        );
        let will = read.will.unwrap();
        assert_eq!((will.retain, will.delay_s, will.expiry_s, will.message.topic()), (true, 3, Some(0), "a/b"));

        let options = SubscriptionOptions {
            qos: Qos::ExactlyOnce,
            no_local: true,
            retain_as_published: true,
            retain_handling: 2,
        };
        let subscription = Subscription { options, id: Some(4) };
        assert_eq!(read_subscription(&write_subscription(subscription)), Some(subscription));
    }

    #[test]
    fn keys_are_read_as_they_were_written() {
        assert_eq!(Key::parse(&body_key(7)), Some(Key::Body(7)));
        assert_eq!(Key::parse(&received_key(1, 0xffff)), Some(Key::Received { session: 1, id: 0xffff }));
        assert_eq!(Key::parse(&copy_key(1, u64::MAX)), Some(Key::Copy { session: 1, sequence: u64::MAX }));
        assert_eq!(Key::parse(&retained_key("a/b")), Some(Key::Retained("a/b")));
        assert_eq!(Key::parse(&session_key(7)), Some(Key::Session(7)));
        assert_eq!(Key::parse(&old_session_key("a/b")), Some(Key::OldSession("a/b")));
        assert_eq!(
            Key::parse(&subscription_key(1, "$share/g/#")),
            Some(Key::Subscription { session: 1, filter: "$share/g/#" })
        );
        assert_eq!(Key::parse("z/1"), None);
    }

    #[test]
    fn damaged_records_are_not_read() {
        let whole = write_copy(&Message::for_test("a", b"d"), Qos::AtLeastOnce, false, &None);
        for end in 0..whole.len() {
            assert!(read_copy(&whole[..end]).is_none(), "{end}");
        }
        assert!(read_copy(&[&whole[..], b"x"].concat()).is_none());
    }
}
