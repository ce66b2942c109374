//! What goes to the outside broker, from the request of a sink to the confirmation. No I/O.
//!
//! ```text
//!  QoS 1                          PUBLISH ─▶ PUBACK
//!  QoS 2    PUBREL ─▶ PUBCOMP ─▶  PUBLISH ─▶ PUBREC ─▶ PUBREL ─▶ PUBCOMP
//!           if the identifier may still be in use
//! ```
//! The outside broker's session outlives this process, which writes down nothing of what it sent. So that broker may
//! hold an identifier of QoS 2 that is free here, and would take the next message under it for the one it has. The
//! first use of an identifier therefore begins with its release: if it was free, that does no harm.

use super::{Outward, PublishError};
use crate::codec::encode::{self, Ack, Outgoing};
use crate::codec::{Qos, Reason, Version};
use problem::{Code, Problem};
use std::collections::BTreeMap;

/// What was agreed on with the outside broker.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    pub version: Version,
    pub qos_max: Qos,
    /// Bytes of the largest packet that it takes.
    pub packet_bytes_max: usize,
}

/// What the outside broker has not confirmed. It outlives a connection.
pub struct Unconfirmed {
    pending: BTreeMap<u16, Pending>,
    next_id: u16,
    /// Whether the outside broker may hold a message of QoS 2 under this identifier.
    may_be_held: Vec<bool>,
}

struct Pending {
    outward: Outward,
    step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Its identifier is released first.
    Clearing,
    Sent,
    /// The outside broker has it (QoS 2).
    Released,
}

impl Default for Unconfirmed {
    /// Of a process that begins: what was sent before is not known.
    fn default() -> Self {
        Self { pending: BTreeMap::new(), next_id: 0, may_be_held: vec![true; usize::from(u16::MAX) + 1] }
    }
}

impl Unconfirmed {
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// An identifier that no message of ours has.
    pub fn take_id(&mut self) -> u16 {
        loop {
            self.next_id = self.next_id.checked_add(1).unwrap_or(1);
            if !self.pending.contains_key(&self.next_id) {
                return self.next_id;
            }
        }
    }

    /// The outside broker has lost the session, and with it all identifiers.
    pub fn session_began(&mut self) {
        self.may_be_held.fill(false);
    }

    /// Sends what was on its way when the last connection was lost, unless nobody waits for it any more: who gave up
    /// asks again. Where the outside broker has it already, the release is completed.
    pub fn send_again(&mut self, terms: Terms, out: &mut Vec<u8>) {
        for (id, mut pending) in std::mem::take(&mut self.pending) {
            if pending.step == Step::Released {
                encode::ack(out, Ack::Pubrel, id, Reason::SUCCESS, terms.version);
                self.pending.insert(id, pending);
            } else if !pending.outward.done.is_closed() {
                let dup = pending.step == Step::Sent;
                pending.step = Step::Clearing;
                self.send(id, pending, dup, terms, out);
            }
        }
    }

    /// Sends a message. Says whether that is all there is to do, as with QoS 0.
    pub fn publish(&mut self, outward: Outward, terms: Terms, out: &mut Vec<u8>) -> bool {
        if outward.done.is_closed() {
            return false;
        }
        let outward = Outward { qos: outward.qos.min(terms.qos_max), ..outward };
        let id = if outward.qos.is_confirmed() { self.take_id() } else { 0 };
        self.send(id, Pending { outward, step: Step::Clearing }, false, terms, out)
    }

    fn send(&mut self, id: u16, mut pending: Pending, dup: bool, terms: Terms, out: &mut Vec<u8>) -> bool {
        let outgoing = outgoing(&pending.outward, id, dup, terms.version);
        let bytes = outgoing.bytes();
        if bytes > terms.packet_bytes_max {
            let max = terms.packet_bytes_max;
            pending.outward.refuse(format!("the message is a packet of {bytes} bytes, the outside broker takes {max}"));
            return false;
        }
        match pending.outward.qos {
            Qos::AtMostOnce => {
                outgoing.write(out);
                pending.outward.confirm();
                return true;
            }
            // What is sent again is here already, or comes for the first time: either way it is the same message.
            Qos::ExactlyOnce if !dup && self.may_be_held[usize::from(id)] => {
                encode::ack(out, Ack::Pubrel, id, Reason::SUCCESS, terms.version);
            }
            qos => {
                outgoing.write(out);
                pending.step = Step::Sent;
                self.may_be_held[usize::from(id)] |= qos == Qos::ExactlyOnce;
            }
        }
        self.pending.insert(id, pending);
        false
    }

    /// PUBACK. Says whether a message was confirmed by it.
    pub fn take_puback(&mut self, id: u16, reason: Reason) -> bool {
        let is_it = |pending: &Pending| pending.outward.qos == Qos::AtLeastOnce;
        self.pending.get(&id).is_some_and(is_it) && self.end(id, reason)
    }

    pub fn take_pubrec(&mut self, id: u16, reason: Reason, terms: Terms, out: &mut Vec<u8>) {
        let pending = self.pending.get_mut(&id).filter(|pending| pending.step != Step::Clearing);
        if reason.is_failure() {
            if pending.is_some_and(|pending| pending.step == Step::Sent && pending.outward.qos == Qos::ExactlyOnce) {
                self.may_be_held[usize::from(id)] = reason == Reason::ID_IN_USE;
                self.end(id, reason);
            }
            return;
        }
        if let Some(pending) = pending.filter(|pending| pending.outward.qos == Qos::ExactlyOnce) {
            pending.step = Step::Released;
        }
        encode::ack(out, Ack::Pubrel, id, Reason::SUCCESS, terms.version);
    }

    /// PUBCOMP. Says whether a message was confirmed by it.
    pub fn take_pubcomp(&mut self, id: u16, terms: Terms, out: &mut Vec<u8>) -> bool {
        match self.pending.get(&id).map(|pending| pending.step) {
            Some(Step::Released) => {
                self.may_be_held[usize::from(id)] = false;
                self.end(id, Reason::SUCCESS)
            }
            Some(Step::Clearing) => {
                self.may_be_held[usize::from(id)] = false;
                let pending = self.pending.remove(&id).expect("it was just seen");
                self.send(id, pending, false, terms, out);
                false
            }
            // It answers an earlier release of this identifier.
            Some(Step::Sent) | None => false,
        }
    }

    fn end(&mut self, id: u16, reason: Reason) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        if reason.is_failure() {
            pending.outward.refuse(format!("the outside broker refused the message: {reason}"));
            return false;
        }
        pending.outward.confirm();
        true
    }
}

// Nobody may be waiting for the answer any more.
impl Outward {
    fn confirm(self) {
        let _ = self.done.send(Ok(()));
    }

    fn refuse(self, why: String) {
        let _ = self.done.send(Err(PublishError::Refused(Problem::new(Code::SinkFailed, why))));
    }
}

fn outgoing(outward: &Outward, id: u16, dup: bool, version: Version) -> Outgoing<'_> {
    Outgoing {
        version,
        qos: outward.qos,
        retain: outward.retain,
        dup,
        id,
        topic: &outward.topic,
        payload: &outward.payload,
        lasting: if version == Version::V5 { &outward.lasting } else { &[] },
        expiry_s: None,
        subscription_ids: &[],
    }
}
