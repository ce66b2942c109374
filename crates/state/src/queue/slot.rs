//! An event in memory, and the state it is in.

use fjall::Slice;

/// One event in memory.
#[derive(Debug)]
pub struct Slot {
    /// None while it is out of the way of others with many more: then it is read again when its turn comes.
    pub value: Option<Slice>,
    /// Bytes of the value.
    pub length: u64,
    /// Since when it is ready, by the node's clock.
    pub since_ms: u64,
    pub expires: u64,
    /// Of order by key; 0 is none.
    pub key: u64,
    /// Leases that ended without a word.
    pub lease_ends: u32,
    /// Stored more than once under its key on disk.
    pub rewritten: bool,
    /// The event is durable once this batch is.
    pub batch: u64,
    pub state: SlotState,
}

impl Slot {
    pub fn held_bytes(&self) -> usize {
        self.value.as_ref().map_or(0, |value| value.len())
    }

    /// Whether it is out of the way of others.
    pub fn is_aside(&self) -> bool {
        matches!(self.state, SlotState::Waiting | SlotState::Held { .. } | SlotState::Damaged)
    }

    /// Whether its life may end before its turn comes.
    pub fn can_expire(&self) -> bool {
        matches!(self.state, SlotState::Ready | SlotState::Waiting) && self.value.is_some()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    Ready,
    /// Another event of its key comes first.
    Waiting,
    /// Failed, and keeps its place until then.
    Held {
        until: u64,
    },
    Leased {
        lease: u64,
        until: u64,
    },
    /// Its bytes cannot be read.
    Damaged,
}
