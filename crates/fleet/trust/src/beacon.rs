//! The beacon: how a new node finds the anchors of its own network, over UDP. Pure: bytes, and who is answered.
//!
//! ```text
//!   new node                                                       anchor, UDP at the port of its fleet
//!   Ask: 16 random bytes, filled up to 96 ── broadcast ──────────▶ near? not too often?
//!       ◀── Here: the same 16 bytes, the fleet's id and name, its TCP port, 66 bytes at most ──┘
//! ```
//! Nothing is sent that nobody has asked for, and no answer is longer than its question: who asks under another's
//! address has nothing multiplied. Nobody beyond the machine's own networks is answered. The answer is not signed,
//! because nothing depends on it: it says where to knock, and whether that is the right anchor the digits say.

use crate::bytes::{Reader, Writer};
use crate::door::DoorRate;
use crate::id::{FleetId, NAME_BYTES_MAX, is_name};
use std::net::IpAddr;

/// Random bytes by which an answer is known to be one to this question.
pub type Echo = [u8; 16];

/// Bytes of a question. A datagram of another length is none.
pub const ASK_BYTES: usize = 96;
/// Bytes of an answer, at most.
pub const HERE_BYTES_MAX: usize = HEAD_BYTES + 8 + 2 + 2 + NAME_BYTES_MAX;

/// Questions that are answered. Others are dropped unread.
pub const ASKS: DoorRate = DoorRate { burst: 32.0, a_second: 16.0, source_burst: 12.0, source_a_second: 2.0 };

const MAGIC: [u8; 4] = *b"LFLT";
const VERSION: u8 = 1;
const ASK: u8 = 1;
const HERE: u8 = 2;
const HEAD_BYTES: usize = 4 + 1 + 1 + 16;

/// What an anchor answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    pub fleet: FleetId,
    /// What people call the fleet.
    pub name: String,
    /// Where it listens, at the address from which the answer came.
    pub port: u16,
}

pub fn ask(echo: &Echo) -> [u8; ASK_BYTES] {
    let mut bytes = [0; ASK_BYTES];
    bytes[..HEAD_BYTES].copy_from_slice(&head(ASK, echo));
    bytes
}

/// What a question wants back. None: it is no question.
pub fn read_ask(bytes: &[u8]) -> Option<Echo> {
    let (head, _) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let is_ask = bytes.len() == ASK_BYTES && head[..6] == [&MAGIC[..], &[VERSION, ASK]].concat()[..];
    is_ask.then(|| std::array::from_fn(|at| head[6 + at]))
}

impl Here {
    /// The answer to the question with this echo.
    pub fn write(&self, echo: &Echo) -> Vec<u8> {
        let mut writer = Writer(head(HERE, echo).to_vec());
        writer.array(&self.fleet.0).array(&self.port.to_le_bytes()).bytes(self.name.as_bytes());
        writer.0
    }

    /// None: it is no answer to the question with this echo.
    pub fn read(bytes: &[u8], echo: &Echo) -> Option<Self> {
        let body = bytes.strip_prefix(&head(HERE, echo)[..])?;
        let mut reader = Reader(body);
        let fleet = FleetId(reader.array()?);
        let port = reader.u16().filter(|port| *port != 0)?;
        let name = reader.text(NAME_BYTES_MAX).filter(|name| is_name(name))?;
        reader.end()?;
        Some(Self { fleet, name, port })
    }
}

/// Whether an address is of a network around this machine: only those are answered.
pub fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_loopback() || address.is_private() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local(),
    }
}

fn head(kind: u8, echo: &Echo) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&MAGIC);
    (head[4], head[5]) = (VERSION, kind);
    head[6..].copy_from_slice(echo);
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    const ECHO: Echo = [7; 16];

    fn here(name: &str) -> Here {
        Here { fleet: FleetId([3; 8]), name: name.to_owned(), port: 8_702 }
    }

    #[test]
    fn a_question_and_its_answer_read_back_and_the_answer_is_the_shorter_one() {
        assert_eq!(read_ask(&ask(&ECHO)), Some(ECHO));
        let longest = here(&"x".repeat(32));
        let bytes = longest.write(&ECHO);
        assert!(bytes.len() == HERE_BYTES_MAX && HERE_BYTES_MAX < ASK_BYTES);
        assert_eq!(Here::read(&bytes, &ECHO), Some(longest));
    }

    #[test]
    fn what_nobody_asked_for_is_no_answer_and_what_makes_no_sense_is_nothing() {
        let bytes = here("campus").write(&ECHO);
        assert_eq!(Here::read(&bytes, &[8; 16]), None, "an answer to another question, or one played again");
        assert_eq!(Here::read(&bytes[..bytes.len() - 1], &ECHO), None);
        assert_eq!(Here::read(&[&bytes[..], &[0]].concat(), &ECHO), None);
        assert_eq!(Here::read(&Here { port: 0, ..here("campus") }.write(&ECHO), &ECHO), None);
        for name in ["", "Campus", "\u{1b}[2J", &"x".repeat(33)] {
            assert_eq!(Here::read(&here(name).write(&ECHO), &ECHO), None, "{name:?}");
        }
        let question = ask(&ECHO);
        for wrong in [&question[..95], &[&question[..], &[0]].concat(), &bytes, b""] {
            assert_eq!(read_ask(wrong), None);
        }
        for at in 0..6 {
            let mut other = question;
            other[at] ^= 1;
            assert_eq!(read_ask(&other), None, "byte {at}");
        }
    }

    #[test]
    fn only_those_around_are_answered() {
        for near in ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.17", "169.254.3.4", "::1", "fe80::1", "fd00::1"]
        {
            assert!(is_near(near.parse().unwrap()), "{near}");
        }
        assert!(is_near("::ffff:192.168.1.17".parse().unwrap()));
        for far in ["192.0.2.1", "8.8.8.8", "2001:db8::1", "::ffff:8.8.8.8", "0.0.0.0", "255.255.255.255"] {
            assert!(!is_near(far.parse().unwrap()), "{far}");
        }
    }
}
