//! How the kernel leaves to its tender: an `out` to one of these ports. What it wants stands in the call page.
//!
//! ```text
//!   kernel ── call page: number, request, room for the answer ── out ──▶ tender
//!                                                                          │ copies, checks, works
//!   kernel ◀─ call page: status, bytes of the answer, the time ◀───────────┘
//! ```
//! The tender copies a page before it looks at it, and takes every word of it for a lie until it is checked.

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

pub const DONE: u64 = 0;
/// No such verb, or not this unit's.
pub const REFUSED: u64 = 1;
