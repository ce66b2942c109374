//! How the kernel leaves to its tender: an `out` to one of these ports; on aarch64, which has none, a store of its number
//! to an address without memory ([`EXIT`](crate::layout::EXIT)). What it wants stands in the call page.
//!
//! ```text
//!   kernel ── call page: number, request, room for the answer ── out ──▶ tender
//!                                                                          │ copies, checks, works
//!   kernel ◀─ call page: status, bytes of the answer, the time ◀───────────┘
//! ```
//! The tender copies a page before it looks at it, and takes every word of it for a lie until it is checked.
//!
//! Leaving takes long where the machine is itself a guest. So what is asked most, [`Exit::Call`] and [`Exit::Receive`],
//! is first said through a [`hatch`]: while somebody listens, the kernel looks for its answer for a while before it leaves.
//!
//! ```text
//!   kernel ── call page; PORT; ASKED + 1 ──▶ a node that listens: copies, checks, works
//!   kernel ◀─ call page; ANSWERED = ASKED ──┘            nobody listens, or not for so long: `out`
//! ```

/// First port; the others follow.
pub const PORT: u16 = 0x500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Exit {
    /// Booted, and waits for code. The first snapshot is taken here.
    Ready = PORT,
    /// Pages of code are to become executable: `request` to `request + request_bytes`. While linking only.
    Publish,
    /// A verb: `number` is its number, `request` its frame.
    Call,
    /// The answer did not fit: here is room for it.
    Fetch,
    /// Waits for an event; before the first one, code is linked and the second snapshot is taken here. After an event
    /// `request` is its reply, a frame, and `number` the linear memory the unit has.
    Receive,
    /// The log ring is full.
    Log,
    /// The kernel is at its end: `request` is text that says why.
    Panic,
}

impl Exit {
    pub const ALL: [Self; 7] =
        [Self::Ready, Self::Publish, Self::Call, Self::Fetch, Self::Receive, Self::Log, Self::Panic];

    pub const fn port(self) -> u16 {
        self as u16
    }

    pub fn of(port: u16) -> Option<Self> {
        Self::ALL.get(usize::from(port.checked_sub(PORT)?)).copied()
    }
}

/// The call page, as words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallPage {
    /// Which verb.
    pub number: u64,
    pub request: u64,
    pub request_bytes: u64,
    /// Room for the answer.
    pub answer: u64,
    pub answer_bytes_max: u64,
    /// From the tender: [`DONE`], [`REFUSED`].
    pub status: u64,
    /// From the tender: what the answer has. More than there is room for: nothing was written, fetch it.
    pub answer_bytes: u64,
    /// From the tender: nanoseconds since 1970-01-01 UTC when the kernel was entered last.
    pub unix_ns: u64,
    /// From the tender: nanoseconds of a clock that never goes back, at the same time.
    pub monotonic_ns: u64,
}

impl CallPage {
    pub const WORDS: usize = 9;

    pub const fn words(&self) -> [u64; Self::WORDS] {
        [
            self.number,
            self.request,
            self.request_bytes,
            self.answer,
            self.answer_bytes_max,
            self.status,
            self.answer_bytes,
            self.unix_ns,
            self.monotonic_ns,
        ]
    }

    pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [number, request, request_bytes, answer, answer_bytes_max, status, answer_bytes, unix_ns, monotonic_ns] =
            words;
        Self { number, request, request_bytes, answer, answer_bytes_max, status, answer_bytes, unix_ns, monotonic_ns }
    }
}

/// Where the words stand by which a question is asked and answered without leaving, each side's on lines of its own.
pub mod hatch {
    use crate::layout::CALL;

    /// From the kernel: how many questions it has asked.
    pub const ASKED: u64 = CALL + 0x100;
    /// From the kernel: to which port it would write.
    pub const PORT: u64 = CALL + 0x108;
    /// From the node: the number of the question that is answered in the call page.
    pub const ANSWERED: u64 = CALL + 0x140;
    /// From the node: not 0 while somebody looks for questions. Whoever stops looking says so, and looks once more.
    pub const LISTENS: u64 = CALL + 0x180;
    /// From the node: for how many turns of the time-stamp counter to look for the answer to a call before leaving.
    pub const CALL_TURNS: u64 = CALL + 0x188;
    /// From the node: the same for the event after a reply.
    pub const REST_TURNS: u64 = CALL + 0x190;
}

pub const DONE: u64 = 0;
/// No such verb, or not this unit's.
pub const REFUSED: u64 = 1;
/// In the place of an event: the kernel reads a byte of each page from `request` to `request + request_bytes`, and waits
/// on. A page that a guest has read once does not make it leave its processor again.
pub const READ_AHEAD: u64 = 2;
