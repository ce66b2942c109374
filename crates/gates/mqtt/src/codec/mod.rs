//! MQTT packets of versions 3.1.1 and 5.0 as bytes, both ways: strict, without copies, no I/O.
//!
//! ```text
//!  bytes ─▶ split ─▶ one frame ─▶ decode ─▶ Packet<'_> borrowed from the bytes
//!                                              encode::* ─▶ bytes
//! ```
//! Everything the standard forbids in the form of a packet is refused here, with the reason code it asks for. What
//! depends on the connection (order, limits, permission) is the broker's business.

mod connect;
mod decode;
pub mod encode;
mod properties;
mod read;
pub mod reason;

pub use connect::{Connack, Connect, Will};
pub use decode::{Packet, Publish, PublishHead, Subscribe, SubscribeEntry, Unsubscribe, decode};
pub use properties::{Property, PublishProperties};
pub use reason::Reason;

use std::fmt;

/// The largest frame the standard can express: header byte, four bytes of length, 256 MiB - 1.
pub const FRAME_BYTES_MAX: usize = 5 + 268_435_455;

/// Which standard a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    V311,
    V5,
}

/// How hard a message tries to arrive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Qos {
    #[default]
    AtMostOnce = 0,
    AtLeastOnce = 1,
    ExactlyOnce = 2,
}

impl Qos {
    /// None for anything but 0, 1 and 2.
    pub const fn new(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }

    pub const fn number(self) -> u8 {
        self as u8
    }

    pub fn is_confirmed(self) -> bool {
        self != Self::AtMostOnce
    }
}

/// What a subscription asks for, beside its filter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubscriptionOptions {
    pub qos: Qos,
    /// Messages this client published itself are left out.
    pub no_local: bool,
    /// The retain flag is passed on as it was published.
    pub retain_as_published: bool,
    /// 0: send what is retained; 1: only if the subscription is new; 2: never.
    pub retain_handling: u8,
}

impl SubscriptionOptions {
    /// As in a SUBSCRIBE of version 5; the lowest two bits alone in 3.1.1.
    pub const fn bits(self) -> u8 {
        self.qos.number()
            | (self.no_local as u8) << 2
            | (self.retain_as_published as u8) << 3
            | self.retain_handling << 4
    }

    /// None if a bit is set that must not be.
    pub fn from_bits(bits: u8) -> Option<Self> {
        let retain_handling = bits >> 4 & 3;
        if bits & 0xc0 != 0 || retain_handling == 3 {
            return None;
        }
        let (no_local, retain_as_published) = (bits & 4 != 0, bits & 8 != 0);
        Some(Self { qos: Qos::new(bits & 3)?, no_local, retain_as_published, retain_handling })
    }
}

/// Why bytes are no packet: the connection ends with this reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub reason: Reason,
    pub why: &'static str,
}

impl Fault {
    pub const fn malformed(why: &'static str) -> Self {
        Self { reason: Reason::MALFORMED, why }
    }

    pub const fn protocol(why: &'static str) -> Self {
        Self { reason: Reason::PROTOCOL_ERROR, why }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.why, self.reason)
    }
}

impl std::error::Error for Fault {}

/// One packet, still as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Kind and flags.
    pub first: u8,
    pub body: &'a [u8],
    /// Bytes of header and body.
    pub bytes: usize,
}

/// Finds the first packet in `bytes`; none if more bytes are needed.
///
/// # Errors
/// A length that is written in more than four bytes, or (version 5) in more than it needs; a packet of more than
/// `bytes_max`, as soon as its length is known.
pub fn split(bytes: &[u8], version: Option<Version>, bytes_max: usize) -> Result<Option<Frame<'_>>, Fault> {
    let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
    let mut length = 0;
    for place in 0..4 {
        let Some(&byte) = rest.get(place) else { return Ok(None) };
        length |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 != 0 {
            continue;
        }
        if byte == 0 && place > 0 && version == Some(Version::V5) {
            return Err(Fault::malformed("the remaining length takes more bytes than it needs"));
        }
        let (start, total) = (place + 1, place + 2 + length);
        if total > bytes_max {
            return Err(Fault { reason: Reason::PACKET_TOO_LARGE, why: "the packet is larger than this broker takes" });
        }
        return Ok(rest.get(start..start + length).map(|body| Frame { first, body, bytes: total }));
    }
    Err(Fault::malformed("the remaining length takes more than four bytes"))
}

#[cfg(test)]
mod tests;
