//! One session between a node and a board, as bytes in and bytes out: handshake, evidence, then messages in records.
//!
//! ```text
//!  node                                                  board
//!  open ── record: e, es, s, ss, challenge ────────────▶ accept: is this node allowed?  no: closed without a word
//!       ◀─ record: e, ee, se, evidence ────────────────  signed over the challenge and what the channel is so far
//!  judge: is this the board, is its kernel trusted?      open
//!  write ─ records: more? + a piece of a message ──────▶ read
//! ```
//! A record is two bytes of length and as many bytes of Noise. A message is cut into records; the first byte of the
//! first says its kind, and with it how long it may become.

use crate::evidence::{Claim, Evidence, EvidenceFault, Policy, Root};
use crate::keys::{BoardId, KEY_BYTES, Keys, PublicKey};
use crate::message::{Message, MessageFault};
use crate::noise::{self, RECORD_BYTES_MAX, RECORD_TEXT_BYTES_MAX};
use crate::{Boot, Hash, hash};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::mem;
use snow::{HandshakeState, TransportState};

/// TCP port boards listen on.
pub const LINK_PORT: u16 = 7312;
/// From the first byte of a connection to the end of its handshake.
pub const HANDSHAKE_MS_MAX: u64 = 5_000;
/// Without a whole record, outside of a run.
pub const IDLE_MS_MAX: u64 = 30_000;

const HANDSHAKE_BYTES_MAX: usize = 8 << 10;
const LENGTH_BYTES: usize = 2;
const LAST: u8 = 0;
const MORE: u8 = 1;

/// What a board needs to accept sessions.
#[derive(Debug)]
pub struct BoardSide {
    pub keys: Keys,
    /// Channel keys of the nodes it talks to.
    pub nodes: Vec<PublicKey>,
    pub boot: Boot,
    pub kernel: Hash,
    /// The longest message it has room for, whatever its kind allows.
    pub message_bytes_max: u32,
}

/// Whom a node wants to talk to, and what it accepts as proof.
#[derive(Debug, Clone)]
pub struct Goal {
    pub board: BoardId,
    pub channel_key: PublicKey,
    pub boot: Boot,
    pub policy: Policy,
}

/// Why a session has ended. It never goes on after one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkFault {
    /// A record is longer than the limit, or empty.
    Record {
        bytes: usize,
    },
    /// The other end does not have the key it should, was started anew, or the bytes are not what it sent.
    Handshake,
    /// The node's key is not among those that may open sessions.
    NodeUnknown,
    Evidence(EvidenceFault),
    /// A record was changed, left out, repeated or made up.
    Forged,
    Message(MessageFault),
    /// A message of a kind that the other end does not send.
    Direction {
        kind: u8,
    },
    /// What is asked makes no sense before the handshake has ended.
    NotOpen,
    /// It has ended before.
    Ended,
}

enum Stage {
    /// The board waits for a node's first record.
    Accepting {
        handshake: Box<HandshakeState>,
        side: Arc<BoardSide>,
    },
    /// The node waits for evidence.
    Opening {
        handshake: Box<HandshakeState>,
        goal: Box<Goal>,
        challenge: Hash,
    },
    Open(Box<TransportState>),
    Ended,
}

/// One end of a session.
pub struct Link {
    stage: Stage,
    /// Of the record that is arriving: at most one, and its length.
    incoming: Vec<u8>,
    /// The message that is arriving, as far as its records have come.
    partial: Vec<u8>,
    /// Not sent yet.
    outgoing: Vec<u8>,
    peer: Option<PublicKey>,
    evidence: Option<Evidence>,
    is_node: bool,
    message_bytes_max: u32,
    begun_ms: u64,
    heard_ms: u64,
}

impl Link {
    /// The board's end. `seed` is random and used for nothing else.
    pub fn accept(side: Arc<BoardSide>, seed: [u8; KEY_BYTES], now_ms: u64) -> Self {
        let prologue = noise::prologue(&side.keys.id(), &side.boot);
        let handshake = noise::builder(seed, &prologue, side.keys.channel_secret()).and_then(|b| b.build_responder());
        // All that could be wrong here is in this crate.
        let handshake = Box::new(handshake.expect("a responder of known parts"));
        let message_bytes_max = side.message_bytes_max;
        Self { message_bytes_max, ..Self::new(Stage::Accepting { handshake, side }, false, now_ms) }
    }

    /// The node's end; its first record is waiting in [`Link::outgoing`]. `seed` is random and used for nothing else.
    ///
    /// # Errors
    /// [`LinkFault::Handshake`]: the board's key is none.
    pub fn open(keys: &Keys, goal: Goal, seed: [u8; KEY_BYTES], now_ms: u64) -> Result<Self, LinkFault> {
        let prologue = noise::prologue(&goal.board, &goal.boot);
        let builder = noise::builder(seed, &prologue, keys.channel_secret());
        let handshake = builder.and_then(|b| b.remote_public_key(&goal.channel_key)?.build_initiator());
        let mut handshake = Box::new(handshake.map_err(|_| LinkFault::Handshake)?);
        let challenge = hash(&[&b"lighterage challenge"[..], &seed].concat());
        let mut record = alloc::vec![0; HANDSHAKE_BYTES_MAX];
        let bytes = handshake.write_message(&challenge, &mut record).map_err(|_| LinkFault::Handshake)?;
        let peer = goal.channel_key;
        let mut link = Self::new(Stage::Opening { handshake, goal: Box::new(goal), challenge }, true, now_ms);
        link.peer = Some(peer);
        link.send_record(&record[..bytes]);
        Ok(link)
    }

    fn new(stage: Stage, is_node: bool, now_ms: u64) -> Self {
        Self {
            stage,
            incoming: Vec::new(),
            partial: Vec::new(),
            outgoing: Vec::new(),
            peer: None,
            evidence: None,
            is_node,
            message_bytes_max: u32::MAX,
            begun_ms: now_ms,
            heard_ms: now_ms,
        }
    }

    /// Takes bytes that arrived, at most to the end of a record; says how many. Then call [`Link::read`], until it has
    /// nothing, and come back with the rest.
    ///
    /// # Errors
    /// The session has ended.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<usize, LinkFault> {
        if matches!(self.stage, Stage::Ended) {
            return Err(LinkFault::Ended);
        }
        let mut taken = 0;
        if self.incoming.len() < LENGTH_BYTES {
            taken = bytes.len().min(LENGTH_BYTES - self.incoming.len());
            self.incoming.extend_from_slice(&bytes[..taken]);
        }
        let Some(record_bytes) = self.record_bytes() else { return Ok(taken) };
        let max = if matches!(self.stage, Stage::Open(_)) { RECORD_BYTES_MAX } else { HANDSHAKE_BYTES_MAX };
        if record_bytes == 0 || record_bytes > max {
            return Err(self.end(LinkFault::Record { bytes: record_bytes }));
        }
        let missing = LENGTH_BYTES + record_bytes - self.incoming.len();
        let more = missing.min(bytes.len() - taken);
        self.incoming.extend_from_slice(&bytes[taken..taken + more]);
        Ok(taken + more)
    }

    /// The message that is whole, if one is. `now_ms` is remembered as the time of the last record.
    ///
    /// # Errors
    /// The session has ended, and nothing that was not returned before is to be believed.
    pub fn read(&mut self, now_ms: u64) -> Result<Option<Message>, LinkFault> {
        let Some(record_bytes) = self.record_bytes() else { return Ok(None) };
        if self.incoming.len() < LENGTH_BYTES + record_bytes {
            return Ok(None);
        }
        let record = mem::take(&mut self.incoming);
        self.heard_ms = now_ms;
        self.record(&record[LENGTH_BYTES..]).map_err(|fault| self.end(fault))
    }

    /// Cuts a message into records and puts them behind what is to be sent.
    ///
    /// # Errors
    /// [`LinkFault::NotOpen`], [`LinkFault::Ended`]; a message over its limit: [`LinkFault::Message`], after which the
    /// session goes on.
    pub fn write(&mut self, message: &Message) -> Result<(), LinkFault> {
        let bytes = message.write();
        let bytes_max = Message::bytes_max(bytes[0]).map_err(LinkFault::Message)?;
        let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if count > bytes_max {
            let fault = MessageFault::TooLarge { kind: bytes[0], bytes: count, bytes_max };
            return Err(LinkFault::Message(fault));
        }
        let mut pieces = bytes.chunks(RECORD_TEXT_BYTES_MAX - 1).peekable();
        let mut text = Vec::with_capacity(RECORD_TEXT_BYTES_MAX.min(bytes.len() + 1));
        while let Some(piece) = pieces.next() {
            text.clear();
            text.push(if pieces.peek().is_some() { MORE } else { LAST });
            text.extend_from_slice(piece);
            self.seal(&text)?;
        }
        Ok(())
    }

    /// Sends what no sound peer would.
    #[cfg(fuzzing)]
    pub fn write_text(&mut self, text: &[u8]) -> Result<(), LinkFault> {
        self.seal(text)
    }

    /// What is to be sent.
    pub fn outgoing(&self) -> &[u8] {
        &self.outgoing
    }

    /// The first `bytes` of [`Link::outgoing`] have been sent.
    pub fn sent(&mut self, bytes: usize) {
        self.outgoing.drain(..bytes);
        if self.outgoing.is_empty() {
            self.outgoing = Vec::new();
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
    }

    /// Whether the other end has been silent for too long: in its handshake, or between messages.
    pub fn is_overdue(&self, now_ms: u64) -> bool {
        match self.stage {
            Stage::Open(_) => now_ms.saturating_sub(self.heard_ms) > IDLE_MS_MAX,
            _ => now_ms.saturating_sub(self.begun_ms) > HANDSHAKE_MS_MAX,
        }
    }

    /// This end has been at work, and the other one had to wait: it has been silent only from now on.
    pub fn stays(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
    }

    /// The channel key of the other end, once it is known.
    pub fn peer(&self) -> Option<&PublicKey> {
        self.peer.as_ref()
    }

    /// What the board proved. The board's own end has none.
    pub fn evidence(&self) -> Option<&Evidence> {
        self.evidence.as_ref()
    }

    fn record_bytes(&self) -> Option<usize> {
        let length = self.incoming.first_chunk::<LENGTH_BYTES>()?;
        Some(usize::from(u16::from_le_bytes(*length)))
    }

    fn record(&mut self, record: &[u8]) -> Result<Option<Message>, LinkFault> {
        match mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Accepting { handshake, side } => self.accepted(*handshake, &side, record).map(|()| None),
            Stage::Opening { handshake, goal, challenge } => {
                self.opened(*handshake, &goal, &challenge, record).map(|()| None)
            }
            Stage::Open(mut transport) => {
                let mut text = alloc::vec![0; RECORD_TEXT_BYTES_MAX];
                let bytes = transport.read_message(record, &mut text).map_err(|_| LinkFault::Forged)?;
                self.stage = Stage::Open(transport);
                self.piece(&text[..bytes])
            }
            Stage::Ended => Err(LinkFault::Ended),
        }
    }

    fn accepted(&mut self, mut handshake: HandshakeState, side: &BoardSide, record: &[u8]) -> Result<(), LinkFault> {
        let mut challenge = [0; HANDSHAKE_BYTES_MAX];
        let bytes = handshake.read_message(record, &mut challenge).map_err(|_| LinkFault::Handshake)?;
        let challenge: Hash = challenge[..bytes].try_into().map_err(|_| LinkFault::Handshake)?;
        let node = handshake.get_remote_static().and_then(|key| PublicKey::try_from(key).ok());
        let node = node.filter(|node| side.nodes.contains(node)).ok_or(LinkFault::NodeUnknown)?;
        let claim = Claim {
            board: side.keys.id(),
            channel_key: side.keys.channel_public(),
            boot: side.boot,
            kernel: side.kernel,
        };
        let evidence = Evidence { claim, root: Root::Software };
        let evidence = evidence.sign(&side.keys, &challenge, &channel_so_far(&handshake));
        let mut answer = alloc::vec![0; HANDSHAKE_BYTES_MAX];
        let bytes = handshake.write_message(&evidence, &mut answer).map_err(|_| LinkFault::Handshake)?;
        self.send_record(&answer[..bytes]);
        self.peer = Some(node);
        self.open_up(handshake)
    }

    fn opened(
        &mut self,
        mut handshake: HandshakeState,
        goal: &Goal,
        challenge: &Hash,
        record: &[u8],
    ) -> Result<(), LinkFault> {
        let channel = channel_so_far(&handshake);
        let mut evidence = alloc::vec![0; HANDSHAKE_BYTES_MAX];
        let bytes = handshake.read_message(record, &mut evidence).map_err(|_| LinkFault::Handshake)?;
        let claimed = (goal.board, goal.channel_key, goal.boot);
        let judged = goal.policy.judge(&evidence[..bytes], challenge, &channel, claimed);
        self.evidence = Some(judged.map_err(LinkFault::Evidence)?);
        self.open_up(handshake)
    }

    fn open_up(&mut self, handshake: HandshakeState) -> Result<(), LinkFault> {
        self.stage = Stage::Open(Box::new(handshake.into_transport_mode().map_err(|_| LinkFault::Handshake)?));
        Ok(())
    }

    fn piece(&mut self, text: &[u8]) -> Result<Option<Message>, LinkFault> {
        let (more, piece) = match text.split_first() {
            Some((&LAST, piece)) => (false, piece),
            // An empty piece that announces more would cost a record and bring nothing, for ever.
            Some((&MORE, piece)) if !piece.is_empty() => (true, piece),
            _ => return Err(LinkFault::Message(MessageFault::Garbled { kind: 0 })),
        };
        let first = self.partial.first().or(piece.first()).copied();
        let kind = first.ok_or(LinkFault::Message(MessageFault::Garbled { kind: 0 }))?;
        if Message::is_nodes(kind) == self.is_node {
            return Err(LinkFault::Direction { kind });
        }
        let bytes_max = Message::bytes_max(kind).map_err(LinkFault::Message)?.min(self.message_bytes_max);
        let bytes = u32::try_from(self.partial.len() + piece.len()).unwrap_or(u32::MAX);
        if bytes > bytes_max {
            return Err(LinkFault::Message(MessageFault::TooLarge { kind, bytes, bytes_max }));
        }
        self.partial.extend_from_slice(piece);
        if more {
            return Ok(None);
        }
        let whole = mem::take(&mut self.partial);
        Message::read(&whole).map(Some).map_err(LinkFault::Message)
    }

    fn seal(&mut self, text: &[u8]) -> Result<(), LinkFault> {
        let transport = match &mut self.stage {
            Stage::Open(transport) => transport,
            Stage::Ended => return Err(LinkFault::Ended),
            _ => return Err(LinkFault::NotOpen),
        };
        let mut record = [0; RECORD_BYTES_MAX];
        let bytes = transport.write_message(text, &mut record).map_err(|_| LinkFault::Ended)?;
        self.send_record(&record[..bytes]);
        Ok(())
    }

    fn send_record(&mut self, record: &[u8]) {
        // A record has at most 16,400 bytes.
        self.outgoing.extend_from_slice(&(record.len() as u16).to_le_bytes());
        self.outgoing.extend_from_slice(record);
    }

    fn end(&mut self, fault: LinkFault) -> LinkFault {
        self.stage = Stage::Ended;
        self.incoming = Vec::new();
        self.partial = Vec::new();
        self.outgoing = Vec::new();
        fault
    }
}

/// The hash of the handshake after its first record: the same at both ends, and of no other session.
fn channel_so_far(handshake: &HandshakeState) -> Hash {
    hash(handshake.get_handshake_hash())
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::Accepting { .. } => "accepting",
            Stage::Opening { .. } => "opening",
            Stage::Open(_) => "open",
            Stage::Ended => "ended",
        };
        f.debug_struct("Link").field("stage", &stage).finish_non_exhaustive()
    }
}

impl fmt::Display for LinkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record { bytes } => write!(f, "a record has {bytes} bytes, which is no length of one"),
            Self::Handshake => write!(f, "the other end has another key than it should, or was started anew"),
            Self::NodeUnknown => write!(f, "the node is not among those that may open sessions"),
            Self::Evidence(fault) => fault.fmt(f),
            Self::Forged => write!(f, "a record is not what the other end sent"),
            Self::Message(fault) => fault.fmt(f),
            Self::Direction { kind } => write!(f, "a message of kind {kind} came from the wrong end"),
            Self::NotOpen => write!(f, "the session is not open yet"),
            Self::Ended => write!(f, "the session has ended"),
        }
    }
}

impl core::error::Error for LinkFault {}
