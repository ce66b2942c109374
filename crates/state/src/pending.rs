//! Commits that are decided and visible, on their way into the database as one batch.
//!
//! Putting many commits into one batch costs one write to the journal for all of them; a key that several of them
//! change is written once; and what one adds and another removes (an event pushed and acked in the same moment) never
//! reaches the disk at all.

use crate::queue::QueueInner;
use fjall::{Keyspace, OwnedWriteBatch, Slice};
use std::collections::HashMap;
use std::sync::Arc;

/// A part of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    Buckets,
    /// The node's own records.
    Node,
    Queues,
}

impl Space {
    pub const ALL: [Self; 3] = [Self::Buckets, Self::Node, Self::Queues];

    /// The number it has in a backup, from 1.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The part that has this number in a backup.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.number() == number)
    }
}

/// What becomes of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    /// `new`: nothing was ever stored under this key before.
    Put {
        value: Slice,
        new: bool,
    },
    Delete,
    /// Of a key that was stored exactly once. Costs nothing in the tables once both have met.
    DeleteOnce,
}

#[derive(Debug)]
struct Item {
    space: Space,
    key: Slice,
    /// None: added and removed within this batch.
    change: Option<Change>,
}

/// Changes of the commits since the last batch.
#[derive(Default)]
pub struct Pending {
    items: Vec<Item>,
    index: HashMap<(Space, Slice), usize>,
    bytes: usize,
    /// The number that the batch will have.
    pub batch: u64,
    /// Queues whose numbers have changed.
    pub queues: Vec<Arc<QueueInner>>,
}

impl Pending {
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.queues.is_empty()
    }

    /// Keys and values, roughly.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn put(&mut self, space: Space, key: Slice, value: Slice) {
        self.change(space, key, Change::Put { value, new: false });
    }

    /// Of a key that was never used before.
    pub fn put_new(&mut self, space: Space, key: Slice, value: Slice) {
        self.change(space, key, Change::Put { value, new: true });
    }

    pub fn delete(&mut self, space: Space, key: Slice) {
        self.change(space, key, Change::Delete);
    }

    /// Of a key that was put exactly once, ever.
    pub fn delete_once(&mut self, space: Space, key: Slice) {
        self.change(space, key, Change::DeleteOnce);
    }

    fn change(&mut self, space: Space, key: Slice, change: Change) {
        self.bytes += key.len();
        if let Change::Put { value, .. } = &change {
            self.bytes += value.len();
        }
        match self.index.entry((space, key.clone())) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(self.items.len());
                self.items.push(Item { space, key, change: Some(change) });
            }
            std::collections::hash_map::Entry::Occupied(entry) => {
                let item = &mut self.items[*entry.get()];
                let was_new = matches!(&item.change, Some(Change::Put { new: true, .. }) | None);
                item.change = match change {
                    Change::Put { value, new } => Some(Change::Put { value, new: new || was_new }),
                    _ if was_new => None,
                    // Stored once before and rewritten in this batch is stored twice.
                    _ if matches!(item.change, Some(Change::Put { .. })) => Some(Change::Delete),
                    delete => Some(delete),
                };
            }
        }
    }

    /// Puts everything into `batch` and is empty again, ready to be used once more.
    pub fn drain_into(&mut self, batch: &mut OwnedWriteBatch, keyspace: impl Fn(Space) -> Keyspace) {
        let spaces = Space::ALL.map(keyspace);
        for Item { space, key, change } in self.items.drain(..) {
            let keyspace = &spaces[space as usize];
            match change {
                Some(Change::Put { value, .. }) => batch.insert(keyspace, key, value),
                Some(Change::Delete) => batch.remove(keyspace, key),
                Some(Change::DeleteOnce) => batch.remove_weak(keyspace, key),
                None => {}
            }
        }
        self.index.clear();
        self.queues.clear();
        self.bytes = 0;
    }
}
