//! How commits reach the database: decided one after the other, written many at once.
//!
//! ```text
//! commit ─▶ [ order ] decide: conflict? lease lost? full? ─▶ pending ─┐ commits go on meanwhile
//!                                                                     ▼
//!                   snapshot or sync ──▶ [ applying ] pending ─▶ one batch ─▶ journal + memory
//! ```
//! Locks are taken in this order: a queue's `disk`, `applying`, `order`, a queue's `core`. `order` and `core` are held
//! for microseconds and never while the disk is touched.

use crate::books::Books;
use crate::damage::Damage;
use crate::disk::Disk;
use crate::error::{self, CommitError};
use crate::group::Group;
use crate::memory::Memory;
use crate::oracle::{CommitNumber, Oracle};
use crate::pending::{Pending, Space};
use crate::queue::{self, Op, QueueInner};
use crate::recent::Recent;
use crate::transaction::Writes;
use fjall::{AbstractTree, Database, Keyspace, PersistMode, Slice, Snapshot};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A commit larger than this looks at the free space itself, instead of relying on the last look.
const LARGE_COMMIT_BYTES: u64 = 1 << 20;
/// Bytes that may be pending; whoever commits more writes them himself.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// Bytes that are written together. A commit beyond them is refused while those before it wait for the disk.
pub const BATCH_BYTES_MAX: usize = 64 << 20;

/// Free bytes below which a table that could not be written is taken for one that found no room.
const LEAST_ROOM_BYTES: u64 = 16 << 20;

/// What one commit does.
pub struct Commit {
    pub space: Space,
    pub writes: Writes,
    pub bytes: usize,
    pub ops: Vec<(Arc<QueueInner>, Op)>,
    /// Of the node, beside what it does in `space`.
    pub records: Records,
}

/// Changes to records of the node, by encoded key; none deletes.
pub type Records = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Decided under one lock: commits have one order, and it is the order of the queues.
#[derive(Default)]
pub struct CommitOrder {
    pub oracle: Oracle,
    pending: Pending,
}

/// Shared by all who commit and the thread that syncs.
pub struct Engine {
    pub order: Mutex<CommitOrder>,
    /// Held while a batch is written. Number of the last one, and the buffer of the next.
    applying: Mutex<(u64, Pending)>,
    /// Number of the batch that commits go into now.
    collecting: AtomicU64,
    /// Who wrote what last.
    pub recent: Recent,
    pub commits: AtomicU64,
    pub conflicts: AtomicU64,
    pub group: Group,
    pub damage: Damage,
    pub memory: Memory,
    pub database: Database,
    pub buckets: Keyspace,
    pub node: Keyspace,
    pub queues: Keyspace,
    pub folder: PathBuf,
    pub disk: Arc<dyn Disk>,
    /// Free bytes below which the disk counts as full.
    pub reserve_bytes: u64,
}

/// The parts of the database.
pub struct Opened {
    pub database: Database,
    pub buckets: Keyspace,
    pub node: Keyspace,
    pub queues: Keyspace,
}

impl Opened {
    /// The greatest sequence number of a batch that is in tables, if any is.
    pub fn in_tables(&self) -> Option<u64> {
        let parts = [&self.buckets, &self.node, &self.queues];
        parts.into_iter().filter_map(|part| part.tree.get_highest_persisted_seqno()).max()
    }
}

impl Engine {
    pub fn new(opened: Opened, memory: Memory, folder: PathBuf, disk: Arc<dyn Disk>, reserve_bytes: u64) -> Self {
        let Opened { database, buckets, node, queues } = opened;
        Self {
            order: Mutex::default(),
            applying: Mutex::default(),
            collecting: AtomicU64::new(1),
            recent: Recent::new(),
            commits: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            group: Group::new(),
            damage: Damage::default(),
            memory,
            database,
            buckets,
            node,
            queues,
            folder,
            disk,
            reserve_bytes,
        }
    }

    /// Decides about a commit; others see it from now on. Says the number of its batch, and which queues have more dead
    /// letters than they may. `close` is called, under the lock, when it has happened.
    pub fn commit(
        &self,
        commit: Commit,
        judge: impl FnOnce(&Oracle, &Writes) -> Result<Books, CommitError>,
        close: impl FnOnce(&Books),
    ) -> Result<(u64, Vec<Arc<QueueInner>>), CommitError> {
        self.admit(commit.bytes as u64).map_err(CommitError::Unavailable)?;
        let mut order = self.order.lock();
        // Looked at once more: many may have been admitted at the same moment.
        self.memory.check_room().map_err(CommitError::Unavailable)?;
        let CommitOrder { oracle, pending } = &mut *order;
        check_pending(pending.bytes(), commit.bytes).map_err(CommitError::Unavailable)?;
        let Commit { space, writes, ops, records, .. } = commit;
        let mut books = judge(oracle, &writes).inspect_err(|error| {
            if matches!(error, CommitError::Conflict) {
                self.conflicts.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        let batch = self.collecting.load(Ordering::Relaxed);
        pending.batch = batch;
        let mut applied = queue::apply(&ops, pending)?;
        applied.noted.append(&mut books.names);
        let of_buckets = writes.keys().map(Vec::as_slice).filter(|_| space == Space::Buckets);
        self.recent.note(batch, of_buckets, &applied.noted);
        if space == Space::Buckets {
            let written = writes.iter().map(|(key, write)| (key.as_slice(), write.after));
            oracle.record(written.chain(applied.noted.iter().map(|name| (name.as_slice(), None))));
        }
        close(&books);
        let writes = writes.into_iter().map(|(key, write)| (key, write.value));
        for (key, value) in writes.chain(books.notes) {
            match value {
                Some(value) => pending.put(space, key.into(), value.into()),
                None => pending.delete(space, key.into()),
            }
        }
        for (key, value) in records {
            match value {
                Some(value) => pending.put(Space::Node, key.into(), value.into()),
                None => pending.delete(Space::Node, key.into()),
            }
        }
        let is_much = pending.bytes() > PENDING_BYTES_MAX;
        drop(order);
        applied.news.iter().for_each(|queue| queue.tell());
        self.commits.fetch_add(1, Ordering::Relaxed);
        if is_much {
            self.apply().map_err(CommitError::Unavailable)?;
        }
        Ok((batch, applied.over))
    }

    /// Writes what is pending into the database. Says the number of the last batch written.
    pub fn apply(&self) -> Result<u64, Problem> {
        let mut applying = self.applying.lock();
        self.take(&mut applying, false);
        self.write(&mut applying)
    }

    /// In relaxed mode: writes what is pending, unless somebody has written this batch already, and tells those who
    /// wait for it. While memory is behind it is the thread that tells them, when they have waited.
    pub fn write_for(&self, batch: u64) {
        if self.group.newest_durable() >= batch {
            return;
        }
        // A write that failed has told everybody already.
        let Ok(written) = self.apply() else { return };
        match self.memory.tend() {
            Err(error) => drop(self.write_failed(&error)),
            Ok(()) if self.memory.is_slow() || !self.group.is_relaxed() => {}
            Ok(()) => drop(self.group.set_durable(written)),
        }
    }

    /// A view of all commits until now; the number of the last of them, noted as open in the oracle; and its batch.
    pub fn begin(&self) -> (Snapshot, CommitNumber, u64) {
        let mut applying = self.applying.lock();
        let (number, newest) = self.take(&mut applying, true);
        // What cannot be written has stopped all writing; reading goes on with what is there.
        self.write(&mut applying).ok();
        (self.database.snapshot(), number, newest)
    }

    /// The batch of the newest commit that can be seen anywhere.
    pub fn newest(&self) -> u64 {
        // Queues show a commit a moment before it is noted, both under this lock.
        let _order = self.order.lock();
        self.recent.newest()
    }

    /// The batch of the last commit that noted this name; as [`Engine::newest`] for what a queue has shown.
    pub fn noted(&self, name: &[u8]) -> u64 {
        let _order = self.order.lock();
        self.recent.wrote(name)
    }

    /// A view of all commits until now.
    pub fn snapshot(&self) -> Snapshot {
        let mut applying = self.applying.lock();
        self.take(&mut applying, false);
        self.write(&mut applying).ok();
        self.database.snapshot()
    }

    fn take(&self, locked: &mut (u64, Pending), begin: bool) -> (CommitNumber, u64) {
        let mut order = self.order.lock();
        let number = if begin { order.oracle.begin() } else { 0 };
        self.swap(&mut order, locked);
        (number, self.recent.newest())
    }

    fn swap(&self, order: &mut CommitOrder, (_, buffer): &mut (u64, Pending)) {
        if !order.pending.is_empty() {
            queue::write_numbers(&mut order.pending);
            std::mem::swap(&mut order.pending, buffer);
            self.collecting.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn write(&self, (written, buffer): &mut (u64, Pending)) -> Result<u64, Problem> {
        if let Some(problem) = self.group.stopped() {
            return Err(problem.clone());
        }
        if !buffer.is_empty() {
            let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
            buffer.drain_into(&mut batch, |space| match space {
                Space::Buckets => self.buckets.clone(),
                Space::Node => self.node.clone(),
                Space::Queues => self.queues.clone(),
            });
            batch.commit().map_err(|error| self.write_failed(&error))?;
            *written += 1;
        }
        Ok(*written)
    }

    /// The value of a key in the queues' part, as of the last batch.
    pub fn queue_value(&self, key: &[u8]) -> Result<Option<Slice>, Problem> {
        self.queues.get(key).map_err(|error| {
            self.damage.note(&error);
            error::from_database("read a queue", &error)
        })
    }

    pub fn damaged_files(&self) -> BTreeSet<PathBuf> {
        self.damage.files([&self.buckets, &self.node, &self.queues])
    }

    /// Refuses what could not be written well while nothing has happened yet: after a write that failed the database
    /// takes no other until it is opened again.
    pub fn admit(&self, bytes: u64) -> Result<(), Problem> {
        if let Some(problem) = self.group.stopped() {
            return Err(problem.clone());
        }
        if self.group.disk_full() || bytes > LARGE_COMMIT_BYTES {
            self.look_at_space(bytes)?;
        }
        let Err(busy) = self.memory.check_room() else {
            return Ok(());
        };
        // Only behind, or has the thread that writes tables given up? It is asked again, for no commit may follow.
        let asked = self.memory.tend().and_then(|()| self.database.persist(PersistMode::Buffer));
        asked.map_err(|error| self.write_failed(&error))?;
        Err(busy)
    }

    pub fn look_at_space(&self, bytes: u64) -> Result<(), Problem> {
        let Ok(free) = self.disk.bytes_free(&self.folder) else {
            return Ok(());
        };
        let needed = self.reserve_bytes.saturating_add(bytes);
        self.group.set_disk_full(free < self.reserve_bytes);
        if free >= needed {
            return Ok(());
        }
        let detail = format!("{free} bytes are free below {}, a write needs {needed}", self.folder.display());
        Err(Problem::new(Code::DiskFull, detail))
    }

    /// Whether there is hardly room for another table.
    fn is_nearly_full(&self) -> bool {
        let needed = self.reserve_bytes.max(LEAST_ROOM_BYTES);
        self.disk.bytes_free(&self.folder).is_ok_and(|free| free < needed)
    }

    /// Stops all writing.
    pub fn write_failed(&self, error: &fjall::Error) -> Problem {
        let problem = error::from_database("write the state", error);
        // Of a table that could not be written the database says no more than that.
        let is_full = match error {
            fjall::Error::Poisoned => self.is_nearly_full(),
            _ => problem.code == Code::DiskFull,
        };
        let code = if is_full { Code::DiskFull } else { Code::DiskFailed };
        let problem =
            Problem::new(code, format!("{}; writes are refused until the node is started again", problem.detail));
        self.group.fail(problem.clone());
        problem
    }
}

fn check_pending(pending: usize, more: usize) -> Result<(), Problem> {
    if pending == 0 || pending.saturating_add(more) <= BATCH_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("{pending} bytes wait to be written together, the limit is {BATCH_BYTES_MAX}");
    Err(Problem::new(Code::StateBusy, detail))
}
