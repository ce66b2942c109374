//! A connection that has said CONNECT: what was agreed on, and what is about to be sent.

use super::publishing::Publishing;
use super::trie::SessionKey;
use crate::codec::encode::{self, Ack};
use crate::codec::{Qos, Reason, Version};
use crate::users::Identity;
use std::collections::VecDeque;
use std::sync::Arc;

/// Names a connection until it is taken away with [`lost`](super::Broker::lost).
pub type ConnectionKey = u32;

/// Answers wait for the disk in the order of what they answer.
#[derive(Debug)]
pub enum Reply {
    Ack(Ack, u16, Reason),
    /// A whole packet.
    Frame(Box<[u8]>),
    /// The CONNACK: afterwards messages may be sent.
    Open(Box<[u8]>),
}

/// Messages of 3.1.1 that could not be accepted: they are tried again, in order, and nothing is read meanwhile.
#[derive(Debug)]
pub struct Stalled {
    pub messages: VecDeque<Publishing>,
    /// Steady milliseconds.
    pub since_ms: u64,
}

impl Stalled {
    /// Whether a message of QoS 2 with this identifier is among them.
    pub fn holds(&self, id: u16) -> bool {
        self.messages.iter().any(|publishing| publishing.received_id() == Some(id))
    }
}

/// What is retained under a filter is to be sent.
#[derive(Debug)]
pub struct Wanted {
    pub filter: Box<str>,
    pub qos: Qos,
    /// The subscription's.
    pub id: Option<u32>,
}

#[derive(Debug)]
pub struct Connection {
    pub version: Version,
    pub identity: Arc<Identity>,
    /// None once it lost its session; it is closed as soon as `out` is sent.
    pub session: Option<SessionKey>,
    /// To be sent.
    pub out: Vec<u8>,
    /// What is counted of `out`, and of what was taken out of it and is being sent.
    pub out_bytes: usize,
    pub taken_bytes: usize,
    /// Whether it is in the broker's list of those that have something to send or are to be closed.
    pub is_dirty: bool,
    pub is_open: bool,
    pub replies: VecDeque<(u64, Reply)>,
    /// Steady milliseconds of the last packet.
    pub last_ms: u64,
    /// Milliseconds without a packet after which the client counts as lost; 0: never.
    pub silence_max_ms: u64,
    /// Messages of QoS 1 and 2 from the client that are not confirmed.
    pub unconfirmed: u32,
    /// Messages that may be on their way to the client.
    pub window: usize,
    /// Bytes of the largest packet the client takes.
    pub packet_bytes_max: usize,
    /// Topics the client gave numbers to.
    pub aliases: Vec<Option<Arc<str>>>,
    pub stalled: Option<Box<Stalled>>,
    /// Since when a slow subscriber, or much that it was sent of what is retained, holds it up; in steady milliseconds.
    pub held_since_ms: Option<u64>,
    /// Filters it has subscribed to and is not sent the retained messages of yet. Nothing is read meanwhile.
    pub wanted: VecDeque<Wanted>,
}

impl Connection {
    /// Appends the answer to what is sent.
    pub fn write(&mut self, reply: Reply) {
        match reply {
            Reply::Ack(kind, id, reason) => {
                let ends = match kind {
                    Ack::Puback | Ack::Pubcomp => true,
                    Ack::Pubrec => reason.is_failure(),
                    Ack::Pubrel => false,
                };
                self.unconfirmed = self.unconfirmed.saturating_sub(u32::from(ends));
                encode::ack(&mut self.out, kind, id, reason, self.version);
            }
            Reply::Frame(bytes) => self.out.extend_from_slice(&bytes),
            Reply::Open(bytes) => {
                self.out.extend_from_slice(&bytes);
                self.is_open = true;
            }
        }
    }
}
