//! What new nodes and anchors say to each other: small messages, with a version and a bound, read without trust.
//!
//! ```text
//!   version 1 | kind 1 | length 2 | body      numbers little-endian; bytes and texts behind two bytes of length
//! ```
//! A field that is missing, too long or out of its range, or a byte too many, refuses the whole message.

use crate::bytes::{Reader, Writer};
use crate::certificate::CERTIFICATE_BYTES_MAX;
use crate::digits::Nonce;
use crate::id::{NAME_BYTES_MAX, is_name};
use crate::invitations::InvitationId;
use crate::keys::{PublicKey, Signature};
use crate::members::Presence;
use crate::revoked::LIST_BYTES_MAX;
use crate::token::{Address, HOST_BYTES_MAX};
use problem::{Code, Problem};

/// Version of all messages.
pub const VERSION: u8 = 1;
/// Bytes of a message's head.
pub const HEAD_BYTES: usize = 4;
/// Bytes of a request's body. A longer one is refused before it is read.
pub const REQUEST_BYTES_MAX: usize = 512;
/// Bytes of a reply's body. A longer one is refused before it is read.
pub const REPLY_BYTES_MAX: usize = 60_000;
/// Anchors that a node is told of. Others stay out of the message.
pub const ANCHORS_MAX: usize = 8;
/// Bytes of the reason in a refusal. What is longer is cut.
pub const REASON_BYTES_MAX: usize = 200;

/// Bytes of an address as text. A longer one refuses the message.
const ADDRESS_BYTES_MAX: usize = HOST_BYTES_MAX + 6;

/// What an anchor is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Let this node in by an invitation.
    Join { invitation: InvitationId, key: PublicKey, name: String, proof: Signature, signature: Signature },
    /// Let this node in once a person has compared digits.
    Knock { key: PublicKey, name: String, commitment: [u8; 32] },
    /// What the commitment was made of.
    Reveal { nonce: Nonce, signature: Signature },
    /// A new certificate for a member.
    Renew { key: PublicKey, signature: Signature },
    /// A member is here.
    Hello(Presence),
    /// A member is to be one no more.
    Leave,
}

/// What an anchor answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// To `Join`, `Reveal` and `Renew`.
    Admitted(Admission),
    /// To `Knock`.
    Nonce(Nonce),
    /// To `Hello`.
    Welcome { incarnation: u64, is_doubled: bool, revoked: Vec<u8> },
    /// To `Leave`: the node's key is revoked.
    Left,
    /// To all. The number is that of a [`Code`].
    Refused { code: u16, reason: String },
}

/// What a member is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    pub fleet_name: String,
    pub certificate: Vec<u8>,
    pub anchors: Vec<Address>,
    pub incarnation: u64,
    /// A signed list, or nothing if nobody was ever revoked.
    pub revoked: Vec<u8>,
}

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFault {
    Version(u8),
    /// This kind is none that the other side may send.
    Kind(u8),
    TooLarge(usize),
    Garbled,
}

/// The first four bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHead {
    kind: u8,
    length: usize,
}

impl MessageHead {
    /// Reads a head, of a message whose body has at most `bytes_max`.
    ///
    /// # Errors
    /// [`MessageFault::Version`], [`MessageFault::TooLarge`].
    pub fn read(bytes: [u8; HEAD_BYTES], bytes_max: usize) -> Result<Self, MessageFault> {
        let [version, kind, low, high] = bytes;
        let length = usize::from(u16::from_le_bytes([low, high]));
        match version {
            VERSION if length > bytes_max => Err(MessageFault::TooLarge(length)),
            VERSION => Ok(Self { kind, length }),
            _ => Err(MessageFault::Version(version)),
        }
    }

    /// Bytes of the body that follows.
    pub fn length(self) -> usize {
        self.length
    }
}

const JOIN: u8 = 1;
const KNOCK: u8 = 2;
const REVEAL: u8 = 3;
const RENEW: u8 = 4;
const HELLO: u8 = 5;
const LEAVE: u8 = 6;
const ADMITTED: u8 = 65;
const NONCE: u8 = 66;
const WELCOME: u8 = 67;
const REFUSED: u8 = 68;
const LEFT: u8 = 69;

impl Request {
    /// Reads the body behind a head.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn read(head: MessageHead, body: &[u8]) -> Result<Self, MessageFault> {
        let mut from = Reader(body);
        let read = match head.kind {
            JOIN => Self::join(&mut from),
            KNOCK => Self::knock(&mut from),
            REVEAL => (|| Some(Self::Reveal { nonce: from.array()?, signature: from.array()? }))(),
            RENEW => (|| Some(Self::Renew { key: from.array()?, signature: from.array()? }))(),
            HELLO => (|| Some(Self::Hello(Presence { incarnation: from.u64()?, run: from.array()? })))(),
            LEAVE => Some(Self::Leave),
            kind => return Err(MessageFault::Kind(kind)),
        };
        read.filter(|_| from.end().is_some()).ok_or(MessageFault::Garbled)
    }

    /// Head and body.
    pub fn write(&self) -> Vec<u8> {
        let mut to = Writer::default();
        let kind = match self {
            Self::Join { invitation, key, name, proof, signature } => {
                to.array(&invitation.0).array(key).bytes(name.as_bytes()).array(proof).array(signature);
                JOIN
            }
            Self::Knock { key, name, commitment } => {
                to.array(key).bytes(name.as_bytes()).array(commitment);
                KNOCK
            }
            Self::Reveal { nonce, signature } => {
                to.array(nonce).array(signature);
                REVEAL
            }
            Self::Renew { key, signature } => {
                to.array(key).array(signature);
                RENEW
            }
            Self::Hello(presence) => {
                to.array(&presence.incarnation.to_le_bytes()).array(&presence.run);
                HELLO
            }
            Self::Leave => LEAVE,
        };
        framed(kind, &to.0)
    }

    fn join(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self::Join {
            invitation: InvitationId(from.array()?),
            key: from.array()?,
            name: name(from)?,
            proof: from.array()?,
            signature: from.array()?,
        })
    }

    fn knock(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self::Knock { key: from.array()?, name: name(from)?, commitment: from.array()? })
    }
}

impl Reply {
    /// Reads the body behind a head.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn read(head: MessageHead, body: &[u8]) -> Result<Self, MessageFault> {
        let mut from = Reader(body);
        let read = match head.kind {
            ADMITTED => Admission::read(&mut from).map(Self::Admitted),
            NONCE => from.array().map(Self::Nonce),
            WELCOME => Self::welcome(&mut from),
            LEFT => Some(Self::Left),
            REFUSED => (|| Some(Self::Refused { code: from.u16()?, reason: from.text(REASON_BYTES_MAX)? }))(),
            kind => return Err(MessageFault::Kind(kind)),
        };
        read.filter(|_| from.end().is_some()).ok_or(MessageFault::Garbled)
    }

    /// Head and body.
    pub fn write(&self) -> Vec<u8> {
        let mut to = Writer::default();
        let kind = match self {
            Self::Admitted(admission) => {
                admission.write(&mut to);
                ADMITTED
            }
            Self::Nonce(nonce) => {
                to.array(nonce);
                NONCE
            }
            Self::Welcome { incarnation, is_doubled, revoked } => {
                to.array(&incarnation.to_le_bytes()).array(&[u8::from(*is_doubled)]).bytes(revoked);
                WELCOME
            }
            Self::Left => LEFT,
            Self::Refused { code, reason } => {
                let plain = reason.bytes().map(|byte| if (b' '..=b'~').contains(&byte) { byte } else { b'?' });
                let plain: Vec<u8> = plain.take(REASON_BYTES_MAX).collect();
                to.array(&code.to_le_bytes()).bytes(&plain);
                REFUSED
            }
        };
        framed(kind, &to.0)
    }

    fn welcome(from: &mut Reader<'_>) -> Option<Self> {
        let incarnation = from.u64()?;
        let is_doubled = match from.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Self::Welcome { incarnation, is_doubled, revoked: from.bytes(LIST_BYTES_MAX)?.to_vec() })
    }
}

impl Admission {
    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let fleet_name = name(from)?;
        let certificate = from.bytes(CERTIFICATE_BYTES_MAX)?.to_vec();
        let count = from.u8().filter(|count| usize::from(*count) <= ANCHORS_MAX)?;
        let address = |from: &mut Reader<'_>| Address::read(&from.text(ADDRESS_BYTES_MAX)?);
        let anchors = (0..count).map(|_| address(from)).collect::<Option<_>>()?;
        let incarnation = from.u64()?;
        Some(Self { fleet_name, certificate, anchors, incarnation, revoked: from.bytes(LIST_BYTES_MAX)?.to_vec() })
    }

    fn write(&self, to: &mut Writer) {
        let anchors = &self.anchors[..self.anchors.len().min(ANCHORS_MAX)];
        to.bytes(self.fleet_name.as_bytes()).bytes(&self.certificate).array(&[anchors.len() as u8]);
        for anchor in anchors {
            to.bytes(anchor.to_string().as_bytes());
        }
        to.array(&self.incarnation.to_le_bytes()).bytes(&self.revoked);
    }
}

impl From<&Problem> for Reply {
    fn from(problem: &Problem) -> Self {
        Self::Refused { code: problem.code as u16, reason: problem.detail.to_string() }
    }
}

/// What a refusal says, to the one who was refused.
pub(crate) fn refusal(code: u16, reason: String) -> Problem {
    match Code::from_name(&format!("L{code:04}")) {
        Some(code) => Problem::new(code, reason),
        None => Problem::new(Code::Unknown, format!("{reason} (L{code:04})")),
    }
}

impl From<MessageFault> for Problem {
    fn from(fault: MessageFault) -> Self {
        let detail = match fault {
            MessageFault::Version(version) => format!("the other side speaks version {version}, known is {VERSION}"),
            MessageFault::Kind(kind) => format!("a message of kind {kind} has no place here"),
            MessageFault::TooLarge(bytes) => format!("a message of {bytes} bytes is larger than it may be"),
            MessageFault::Garbled => "a field of the message is not as it should be".to_owned(),
        };
        Self::new(Code::FleetMessage, detail)
    }
}

fn name(from: &mut Reader<'_>) -> Option<String> {
    from.text(NAME_BYTES_MAX).filter(|name| is_name(name))
}

fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    // Below 64 KiB: every field has its bound.
    let [low, high] = (body.len() as u16).to_le_bytes();
    [&[VERSION, kind, low, high], body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::ADDRESSES_MAX;

    fn requests() -> [Request; 6] {
        let name = "x".repeat(NAME_BYTES_MAX);
        [
            Request::Join {
                invitation: InvitationId([1; 16]),
                key: [2; 32],
                name: name.clone(),
                proof: [3; 64],
                signature: [4; 64],
            },
            Request::Knock { key: [2; 32], name, commitment: [3; 32] },
            Request::Reveal { nonce: [1; 32], signature: [2; 64] },
            Request::Renew { key: [1; 32], signature: [2; 64] },
            Request::Hello(Presence { incarnation: 7, run: [8; 16] }),
            Request::Leave,
        ]
    }

    fn replies() -> [Reply; 5] {
        let anchors = vec![Address::read(&format!("{}:65535", "a".repeat(HOST_BYTES_MAX))).unwrap(); ANCHORS_MAX];
        let revoked = vec![7; LIST_BYTES_MAX];
        let certificate = vec![8; CERTIFICATE_BYTES_MAX];
        let fleet_name = "x".repeat(NAME_BYTES_MAX);
        [
            Reply::Admitted(Admission { fleet_name, certificate, anchors, incarnation: 3, revoked: revoked.clone() }),
            Reply::Nonce([1; 32]),
            Reply::Welcome { incarnation: 3, is_doubled: true, revoked },
            Reply::Refused { code: 9_102, reason: "x".repeat(REASON_BYTES_MAX) },
            Reply::Left,
        ]
    }

    fn split(bytes: &[u8], bytes_max: usize) -> (MessageHead, &[u8]) {
        let (head, body) = bytes.split_first_chunk().unwrap();
        let head = MessageHead::read(*head, bytes_max).unwrap();
        assert_eq!(head.length(), body.len());
        (head, body)
    }

    #[test]
    fn the_largest_messages_read_back_and_no_part_of_one_does() {
        for request in requests() {
            let bytes = request.write();
            let (head, body) = split(&bytes, REQUEST_BYTES_MAX);
            assert_eq!(Request::read(head, body), Ok(request));
            for cut in 0..body.len() {
                assert_eq!(Request::read(head, &body[..cut]), Err(MessageFault::Garbled));
            }
            assert_eq!(Request::read(head, &[body, &[0]].concat()), Err(MessageFault::Garbled));
        }
        for reply in replies() {
            let bytes = reply.write();
            let (head, body) = split(&bytes, REPLY_BYTES_MAX);
            assert_eq!(Reply::read(head, body), Ok(reply));
            if let Some((_, cut)) = body.split_last() {
                assert_eq!(Reply::read(head, cut), Err(MessageFault::Garbled));
            }
            assert_eq!(Reply::read(head, &[body, &[0]].concat()), Err(MessageFault::Garbled));
        }
        assert!(ANCHORS_MAX >= ADDRESSES_MAX);
    }

    #[test]
    fn a_head_is_refused_before_a_body_is_read() {
        assert_eq!(MessageHead::read([2, 1, 0, 0], 512), Err(MessageFault::Version(2)));
        assert_eq!(MessageHead::read([1, 1, 1, 2], 512), Err(MessageFault::TooLarge(513)));
        let head = MessageHead::read([1, ADMITTED, 0, 0], 512).unwrap();
        assert_eq!(Request::read(head, &[]), Err(MessageFault::Kind(ADMITTED)));
    }

    #[test]
    fn a_refusal_travels_as_its_code() {
        let problem = Problem::new(Code::NodeRevoked, "the node “7” was\nrevoked");
        let Reply::Refused { code, reason } = Reply::from(&problem) else { panic!("it is refused") };
        let bytes = Reply::Refused { code, reason }.write();
        let (head, body) = split(&bytes, REPLY_BYTES_MAX);
        let Ok(Reply::Refused { code, reason }) = Reply::read(head, body) else { panic!("it reads back") };
        let read = refusal(code, reason);
        assert_eq!((read.code, read.detail.contains('\n')), (Code::NodeRevoked, false));
        assert_eq!(refusal(9_999, String::new()).code, Code::Unknown);
    }
}
