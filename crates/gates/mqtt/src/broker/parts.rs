//! What the broker keeps beside its sessions and connections, by what it is for.

use super::connection::{ConnectionKey, Reply};
use super::fan_out::Frames;
use super::publishing::{Publishing, Target};
use super::trie::{SessionKey, Subscriber};
use crate::node::Changes;
use std::collections::{BTreeSet, VecDeque};

/// What the next commit makes durable, and whom it answers.
#[derive(Default)]
pub(super) struct Pending {
    /// Messages of the present feed that need the disk, or come after one that does.
    pub batch: Vec<Publishing>,
    /// Sessions that get one of them, at most so many.
    pub batch_targets: usize,
    /// Changes that belong to no message, and answers that wait for them.
    pub loose: Changes,
    pub loose_replies: Vec<(ConnectionKey, Reply)>,
}

/// Who has to be looked at again.
#[derive(Default)]
pub(super) struct ToDo {
    /// Connections that have something to send, or are to be closed.
    pub dirty: Vec<ConnectionKey>,
    /// Connections whose message was refused for now.
    pub stalled: Vec<ConnectionKey>,
    /// Sessions whose messages wait for memory to send them from.
    pub starved: Vec<SessionKey>,
    /// Connections that are to be sent what is retained under more of their filters.
    pub wanting: VecDeque<ConnectionKey>,
}

/// What happens at its time.
#[derive(Default)]
pub(super) struct Due {
    /// When sessions end, by Unix time.
    pub expiring: BTreeSet<(u64, SessionKey)>,
    /// When wills are due, by steady time.
    pub wills: BTreeSet<(u64, SessionKey)>,
    /// When all was last searched for what has expired, by steady time.
    pub swept_ms: Option<u64>,
    /// Wills that could not be published yet, with the steady time of the first attempt.
    pub late_wills: VecDeque<(u64, Publishing)>,
}

/// What all sessions have together; each has a limit.
#[derive(Default)]
pub(super) struct Totals {
    pub queued_bytes: usize,
    /// Of sessions themselves.
    pub session_bytes: usize,
    pub kept_sessions: usize,
    pub subscriptions: usize,
    /// Counts the changes of what is subscribed to.
    pub changes: u64,
}

/// What passing one message on needs. It is used again for the next one.
#[derive(Default)]
pub(super) struct Passing {
    pub frames: Frames,
    pub found: Vec<Subscriber>,
    /// A subscriber that cannot keep up with the present message's publisher.
    pub slow: Option<SessionKey>,
    /// Nodes of the tree of retained messages that the present feed, or round, has looked at.
    pub looked_at: usize,
    pub spare_targets: Vec<Target>,
}
