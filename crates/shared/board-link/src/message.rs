//! What node and board say to each other once they trust the channel: a byte for the kind, its fields, its data.

use crate::Hash;
use crate::bytes::{Reader, Writer};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A payload, as it is offered. A board may have room for less.
pub const CODE_BYTES_MAX: u32 = 32 << 20;
/// An event, a reply, a host call or its answer, as a frame.
pub const DATA_BYTES_MAX: u32 = 9 << 20;
/// What a message is larger than its data by, at most.
pub const MESSAGE_OVERHEAD_BYTES: u32 = 128;

const REASON_BYTES_MAX: usize = 1_024;
const LINE_BYTES_MAX: usize = 16 << 10;
const LEVEL_MAX: u8 = 4;

/// A message. Frames and code are taken from, and given to, whoever knows what they mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    // From the node.
    /// There is a payload of this hash and length. Answered with `Wanted` or `Held`.
    Offer {
        code: Hash,
        bytes: u32,
    },
    /// The payload last offered and wanted.
    Code {
        bytes: Vec<u8>,
    },
    /// Runs the payload on an event.
    Call {
        id: u64,
        code: Hash,
        /// The host calls it may make: bit n for number n.
        may: u64,
        /// Wall time it may take, host calls included.
        run_ms_max: u32,
        /// Linear memory it may have.
        memory_bytes_max: u64,
        /// The node's time, milliseconds since 1970: a board has no clock of its own that knows.
        now_ms: u64,
        /// The event, as a frame.
        event: Vec<u8>,
    },
    /// Answers the host call that the board waits for.
    Answer {
        frame: Vec<u8>,
    },
    /// The end of the session.
    Drop,
    // From the board.
    Wanted {
        code: Hash,
    },
    Held {
        code: Hash,
    },
    /// Asks the node for what the function asks its host for.
    HostCall {
        number: u32,
        frame: Vec<u8>,
    },
    /// A line for the function's log; `level` counts from 0, trace, to 4, error.
    Log {
        level: u8,
        line: String,
    },
    /// What the function returned.
    Reply {
        id: u64,
        stages: Stages,
        frame: Vec<u8>,
    },
    /// Offer, code or call came to nothing. The session goes on.
    Failed(Failed),
}

/// Where the time of a call went, on the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stages {
    /// Checking the payload and linking it in.
    pub link_us: u32,
    pub run_us: u32,
    /// Unlinking it and scrubbing what it had.
    pub unlink_us: u32,
    /// The most linear memory it had.
    pub memory_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    pub kind: FailedKind,
    pub reason: String,
}

macro_rules! failed_kinds {
    ($($(#[$doc:meta])* $number:literal $name:ident $word:literal,)*) => {
        /// Why something came to nothing.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum FailedKind { $($(#[$doc])* $name = $number,)* }

        impl FailedKind {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub const fn word(self) -> &'static str { match self { $(Self::$name => $word,)* } }
        }
    };
}

failed_kinds! {
    /// Another session's call runs.
    1 Busy "busy",
    /// The payload's hash, signature, target or format is wrong. Nothing of it was run.
    2 Payload "payload",
    /// The board has no room for it.
    3 TooLarge "too-large",
    /// The payload is not, or no longer, on the board.
    4 CodeUnknown "code-unknown",
    /// It imports what the policy does not allow, or does not link.
    5 Link "link",
    /// The message made no sense here.
    6 Order "order",
}

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFault {
    Kind(u8),
    TooLarge { kind: u8, bytes: u32, bytes_max: u32 },
    Garbled { kind: u8 },
}

const OFFER: u8 = 1;
const CODE: u8 = 2;
const CALL: u8 = 3;
const ANSWER: u8 = 4;
const DROP: u8 = 5;
const WANTED: u8 = 32;
const HELD: u8 = 33;
const HOST_CALL: u8 = 34;
const REPLY: u8 = 35;
const FAILED: u8 = 36;
const LOG: u8 = 37;

impl Message {
    /// The most bytes a message of this kind has, known from its first byte: checked as it arrives.
    pub(crate) fn bytes_max(kind: u8) -> Result<u32, MessageFault> {
        match kind {
            OFFER | DROP | WANTED | HELD => Ok(MESSAGE_OVERHEAD_BYTES),
            CODE => Ok(CODE_BYTES_MAX + MESSAGE_OVERHEAD_BYTES),
            CALL | ANSWER | HOST_CALL | REPLY => Ok(DATA_BYTES_MAX + MESSAGE_OVERHEAD_BYTES),
            // A byte of kind, one of why, and the reason.
            FAILED => Ok(2 + REASON_BYTES_MAX as u32),
            LOG => Ok(2 + LINE_BYTES_MAX as u32),
            kind => Err(MessageFault::Kind(kind)),
        }
    }

    pub(crate) fn is_nodes(kind: u8) -> bool {
        kind < WANTED
    }

    pub fn write(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Self::Offer { code, bytes } => to.u8(OFFER).bytes(code).u32(*bytes),
            Self::Code { bytes } => to.u8(CODE).bytes(bytes),
            Self::Call { id, code, may, run_ms_max, memory_bytes_max, now_ms, event } => {
                to.u8(CALL).u64(*id).bytes(code).u64(*may).u32(*run_ms_max).u64(*memory_bytes_max).u64(*now_ms);
                to.bytes(event)
            }
            Self::Answer { frame } => to.u8(ANSWER).bytes(frame),
            Self::Drop => to.u8(DROP),
            Self::Wanted { code } => to.u8(WANTED).bytes(code),
            Self::Held { code } => to.u8(HELD).bytes(code),
            Self::HostCall { number, frame } => to.u8(HOST_CALL).u32(*number).bytes(frame),
            Self::Log { level, line } => to.u8(LOG).u8(*level).bytes(cut(line, LINE_BYTES_MAX).as_bytes()),
            Self::Reply { id, stages, frame } => {
                to.u8(REPLY).u64(*id).u32(stages.link_us).u32(stages.run_us).u32(stages.unlink_us);
                to.u64(stages.memory_bytes).bytes(frame)
            }
            Self::Failed(Failed { kind, reason }) => {
                to.u8(FAILED).u8(*kind as u8).bytes(cut(reason, REASON_BYTES_MAX).as_bytes())
            }
        };
        to.0
    }

    /// Reads what [`Message::write`] made.
    ///
    /// # Errors
    /// It ends the session: two sound ends never get there.
    pub fn read(bytes: &[u8]) -> Result<Self, MessageFault> {
        let mut from = Reader::new(bytes);
        let kind = from.u8().unwrap_or(0);
        let bytes_max = Self::bytes_max(kind)?;
        let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if count > bytes_max {
            return Err(MessageFault::TooLarge { kind, bytes: count, bytes_max });
        }
        Self::fields(kind, from).ok_or(MessageFault::Garbled { kind })
    }

    fn fields(kind: u8, mut from: Reader<'_>) -> Option<Self> {
        let message = match kind {
            OFFER => Self::Offer { code: from.array()?, bytes: from.u32()? },
            CODE => return Some(Self::Code { bytes: from.rest().to_vec() }),
            CALL => {
                let (id, code, may) = (from.u64()?, from.array()?, from.u64()?);
                let (run_ms_max, memory_bytes_max, now_ms) = (from.u32()?, from.u64()?, from.u64()?);
                let event = from.rest().to_vec();
                return Some(Self::Call { id, code, may, run_ms_max, memory_bytes_max, now_ms, event });
            }
            ANSWER => return Some(Self::Answer { frame: from.rest().to_vec() }),
            DROP => Self::Drop,
            WANTED => Self::Wanted { code: from.array()? },
            HELD => Self::Held { code: from.array()? },
            HOST_CALL => {
                let number = from.u32()?;
                return Some(Self::HostCall { number, frame: from.rest().to_vec() });
            }
            LOG => {
                let level = from.u8().filter(|level| *level <= LEVEL_MAX)?;
                return Some(Self::Log { level, line: core::str::from_utf8(from.rest()).ok()?.into() });
            }
            REPLY => {
                let id = from.u64()?;
                let stages = Stages {
                    link_us: from.u32()?,
                    run_us: from.u32()?,
                    unlink_us: from.u32()?,
                    memory_bytes: from.u64()?,
                };
                return Some(Self::Reply { id, stages, frame: from.rest().to_vec() });
            }
            FAILED => {
                let number = from.u8()?;
                let kind = FailedKind::ALL.iter().copied().find(|kind| *kind as u8 == number)?;
                let reason = core::str::from_utf8(from.rest()).ok()?.into();
                return Some(Self::Failed(Failed { kind, reason }));
            }
            _ => return None,
        };
        from.end().map(|()| message)
    }
}

/// As much of it as fits, and whole characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

impl fmt::Display for MessageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "there is no message of kind {kind}"),
            Self::TooLarge { kind, bytes, bytes_max } => {
                write!(f, "a message of kind {kind} has {bytes} bytes, the limit is {bytes_max}")
            }
            Self::Garbled { kind } => write!(f, "a message of kind {kind} cannot be read"),
        }
    }
}

impl core::error::Error for MessageFault {}
