//! The progress of a timer, and its answer to a clock that jumps.

/// How far a timer has come. Kept durable in the transaction that pushes its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// All times up to this one are dealt with.
    pub last_ms: u64,
    /// The furthest `last_ms` ever was: further than it now is after the clock was put back.
    pub furthest_ms: u64,
}

impl Progress {
    /// Of a timer that is new: nothing before now concerns it.
    pub const fn begun(now_ms: u64) -> Self {
        Self { last_ms: now_ms, furthest_ms: now_ms }
    }

    /// All times up to this one are dealt with.
    pub(crate) fn reached(self, ms: u64) -> Self {
        Self { last_ms: ms, furthest_ms: self.furthest_ms.max(ms) }
    }

    /// The progress by which to judge at this time.
    ///
    /// A clock that went back a little is waited for. One that went back far was or is wrong, and a timer must not be
    /// silent for years: it goes on from the time the clock shows now, and when the clock has again come to where it
    /// once was (a small machine without a battery begins in 1970, until the network tells it the time), what was dealt
    /// with then is not dealt with again.
    pub(crate) fn at(self, now_ms: u64, wait_ms: u64) -> Self {
        if now_ms.saturating_add(wait_ms) < self.last_ms {
            return Self { last_ms: now_ms, ..self };
        }
        if self.last_ms < self.furthest_ms && self.furthest_ms <= now_ms {
            return Self { last_ms: self.furthest_ms, ..self };
        }
        self
    }

    /// As it is stored: two decimal numbers.
    pub fn to_record(self) -> Vec<u8> {
        format!("{} {}", self.last_ms, self.furthest_ms).into_bytes()
    }

    /// None if this is no record of ours.
    pub fn from_record(record: &[u8]) -> Option<Self> {
        let (last, furthest) = std::str::from_utf8(record).ok()?.split_once(' ')?;
        Some(Self { last_ms: last.parse().ok()?, furthest_ms: furthest.parse().ok()? })
    }
}
