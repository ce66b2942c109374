//! A message: what was published, in one piece of memory, however many sessions hold it.

use crate::codec::{PublishProperties, Qos};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A message as it is passed around, borrowed from a packet or from a [`Message`].
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub topic: &'a str,
    pub payload: &'a [u8],
    /// Properties that travel with it, encoded as in a PUBLISH.
    pub lasting: &'a [u8],
    /// As published.
    pub qos: Qos,
    /// Milliseconds since 1970 after which nobody wants it any more.
    pub expires_ms: Option<u64>,
}

/// A message of its own.
#[derive(Debug)]
pub struct Message {
    /// Topic, lasting properties, payload.
    bytes: Box<[u8]>,
    topic_bytes: u32,
    lasting_bytes: u32,
    qos: Qos,
    expires_ms: Option<u64>,
    /// Number of the record that several sessions' copies share on disk; 0: none.
    body: AtomicU64,
    /// Copies on disk that refer to it.
    copies: AtomicU32,
}

impl View<'_> {
    pub fn to_message(self) -> Message {
        let bytes = [self.topic.as_bytes(), self.lasting, self.payload].concat().into_boxed_slice();
        Message {
            bytes,
            topic_bytes: self.topic.len() as u32,
            lasting_bytes: self.lasting.len() as u32,
            qos: self.qos,
            expires_ms: self.expires_ms,
            body: AtomicU64::new(0),
            copies: AtomicU32::new(0),
        }
    }

    pub fn is_expired(&self, unix_ms: u64) -> bool {
        self.expires_ms.is_some_and(|at_ms| at_ms <= unix_ms)
    }

    /// Seconds it still lives, rounded up.
    pub fn expiry_s(&self, unix_ms: u64) -> Option<u32> {
        self.expires_ms.map(|at_ms| u32::try_from(at_ms.saturating_sub(unix_ms).div_ceil(1_000)).unwrap_or(u32::MAX))
    }
}

impl Message {
    pub fn view(&self) -> View<'_> {
        let (head, payload) = self.bytes.split_at((self.topic_bytes + self.lasting_bytes) as usize);
        let (topic, lasting) = head.split_at(self.topic_bytes as usize);
        let topic = std::str::from_utf8(topic).expect("it was a text when it was put there");
        View { topic, payload, lasting, qos: self.qos, expires_ms: self.expires_ms }
    }

    pub fn is_expired(&self, unix_ms: u64) -> bool {
        self.expires_ms.is_some_and(|at_ms| at_ms <= unix_ms)
    }

    pub fn topic(&self) -> &str {
        self.view().topic
    }

    pub fn payload(&self) -> &[u8] {
        self.view().payload
    }

    pub fn qos(&self) -> Qos {
        self.qos
    }

    /// Properties of MQTT 5 that travel with it.
    pub fn properties(&self) -> PublishProperties<'_> {
        PublishProperties::from_lasting(self.view().lasting).expect("they were read when they were put there")
    }

    /// Bytes it takes in memory, about.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + size_of::<Self>()
    }

    /// The record several copies share.
    pub fn body(&self) -> Option<u64> {
        Some(self.body.load(Ordering::Relaxed)).filter(|number| *number > 0)
    }

    /// `count` copies on disk refer to the record `number`, and no others.
    pub fn share(&self, number: u64, count: u32) {
        self.body.store(number, Ordering::Relaxed);
        self.copies.store(count, Ordering::Relaxed);
    }

    /// One copy is gone. Says whether it was the last, so that the record can go too.
    pub fn drop_copy(&self) -> bool {
        self.copies.fetch_sub(1, Ordering::Relaxed) == 1
    }

    #[cfg(test)]
    pub fn for_test(topic: &str, payload: &[u8]) -> Self {
        View { topic, payload, lasting: &[], qos: Qos::AtLeastOnce, expires_ms: None }.to_message()
    }
}
