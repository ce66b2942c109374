//! A part of a transaction that can be undone by itself, as what one event of several did that are committed together.
//!
//! ```text
//!   begin ─▶ [ part 1 ] ─▶ [ part 2, undone ] ─▶ [ part 3 ] ─▶ commit: parts 1 and 3, or nothing
//! ```
//! A part sees what those before it did. It has the bounds of a transaction of its own. What it has read stays read
//! when it is undone: perhaps one conflict too many, never one missed.

use crate::keys::BucketId;
use crate::ledger::Growth;
use crate::queue::{IdHash, LeaseId, Op, QueueInner};
use crate::transaction::{Transaction, Write};
use std::sync::Arc;

/// What the present part has changed, the last change last, and what there was before it.
#[derive(Default)]
pub struct Part {
    changes: Vec<Undo>,
    /// Of the transaction, when the part began.
    pub count: usize,
    pub bytes: usize,
    ops: usize,
    popped: usize,
}

/// One change, as what to put back.
pub enum Undo {
    Write(Vec<u8>, Option<Write>),
    Record(Vec<u8>, Option<Option<Vec<u8>>>),
    Growth(BucketId, Growth),
    /// An id that was new.
    Id((u32, IdHash)),
    /// An op of an earlier part that was replaced.
    Op(usize, Op),
}

impl Part {
    pub fn note(&mut self, change: Undo) {
        self.changes.push(change);
    }

    /// Of an op that took this place from another.
    pub fn note_op(&mut self, at: usize, before: Op) {
        if at < self.ops {
            self.changes.push(Undo::Op(at, before));
        }
    }
}

impl Transaction {
    /// What is done from here on can be undone by itself, until the next part begins. What was done before cannot any
    /// more.
    pub fn begin_part(&mut self) {
        let (count, bytes) = (self.write_count(), self.write_bytes);
        let (ops, popped) = (self.ops.count(), self.popped.len());
        self.part = Some(Part { changes: Vec::new(), count, bytes, ops, popped });
        // Time goes on.
        self.now_ms = None;
    }

    /// Drops what the part would have changed; another one begins.
    pub fn undo_part(&mut self) {
        let Some(part) = &mut self.part else { return };
        let Part { bytes, ops, popped, .. } = *part;
        let changes = std::mem::take(&mut part.changes);
        self.ops.truncate(ops);
        for change in changes.into_iter().rev() {
            match change {
                Undo::Write(key, Some(before)) => drop(self.writes.insert(key, before)),
                Undo::Write(key, None) => drop(self.writes.remove(&key)),
                Undo::Record(key, Some(before)) => drop(self.records.insert(key, before)),
                Undo::Record(key, None) => drop(self.records.remove(&key)),
                Undo::Growth(bucket, before) => drop(self.used.growth.insert(bucket, before)),
                Undo::Id(id) => self.ops.forget_id(&id),
                Undo::Op(at, before) => self.ops.put_back(at, before),
            }
        }
        self.write_bytes = bytes;
        give_back(self.popped.drain(popped..));
    }
}

pub fn give_back(popped: impl Iterator<Item = (Arc<QueueInner>, LeaseId)>) {
    popped.for_each(|(queue, lease)| queue.release(lease));
}
