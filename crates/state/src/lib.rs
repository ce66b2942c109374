//! Durable key-value buckets with transactions and group commit, and the node's own records beside them.
//!
//! ```text
//!  begin ─▶ Transaction ── get/set/list … ──▶ commit ─▶ oracle: did anyone write what it read?
//!                                                │no
//!                                                ▼
//!                                   journal + memory, visible ── Ticket ──▶ one sync for many ─▶ durable
//! ```
//! The database below is fjall: a log-structured tree, few large writes in sequence, as SD cards want. Buckets and
//! records are two of its keyspaces with one journal, so whatever is added later (queues) commits together with them.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let state = state::State::open(folder.path(), state::Options::default())?;
//! let mut transaction = state.begin();
//! assert_eq!(transaction.increment("visits", "front", 1)?, 1);
//! state.durable(transaction.commit()?).await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//! # When the disk is in trouble
//! - Too little space (below [`Options::reserve_bytes`]): commits that write are refused with L5003, before the database
//!   notices anything, and are taken again as soon as there is space. Reads go on.
//! - Space gone all the same in the middle of a write, or a failed write or sync: writes are refused with L5003 or
//!   L5004 until the node is started again, for what reached the disk is not known. Reads go on; they may show commits
//!   that were never acknowledged and are gone after the restart.
//! - Too slow: acknowledgements wait a little longer, and beyond that commits are refused with L5008.
//!
//! A transaction that only reads never waits, so it may show what another has committed but not yet made durable.
#![forbid(unsafe_code)]

mod books;
mod clock;
mod disk;
mod envelope;
mod error;
mod group;
mod keys;
mod ledger;
mod lock;
mod memory;
mod oracle;
mod page;
mod queue;
mod records;
mod statistics;
mod transaction;

pub use books::Swept;
pub use clock::{Clock, RealClock};
pub use disk::{Disk, RealDisk};
pub use error::{CommitError, StoreError};
pub use group::Ticket;
pub use keys::{BUCKET_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use ledger::{Bound, BucketConfig, BucketCounts, Full};
pub use page::{Entry, LIMIT_MAX, PAGE_BYTES_MAX, Page};
pub use queue::{Failed, LeaseId, Leased, Listed, Part, Push, Pushed, Queue, QueueConfig, QueueCounts};
pub use records::{Batch, Records};
pub use statistics::Statistics;
pub use transaction::{Transaction, WRITE_BYTES_MAX, WRITES_MAX};

use books::Books;
use clock::OwnTime;
use fjall::compaction::Leveled;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use group::{Group, Syncer, World};
use ledger::Ledger;
use lock::DataLock;
use memory::Memory;
use oracle::Oracle;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use transaction::Writes;

/// A commit larger than this looks at the free space itself, instead of relying on the last look.
const LARGE_COMMIT_BYTES: u64 = 1 << 20;
/// Open files of the database that are kept for the next read.
const FILES_KEPT: usize = 128;
/// Newest records of the node kept in memory.
const NODE_MEMTABLE_BYTES: u64 = 1 << 20;
/// Largest journal before the memory behind it is written out: the least the database allows.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// How much the state may use.
#[derive(Clone)]
pub struct Options {
    /// Memory for blocks read from disk. Default 4 MiB.
    pub cache_bytes: u64,
    /// Newest writes to buckets kept in memory before they are written out as a table. With about twice as much
    /// waiting, acknowledgements wait too; some 32 MiB more, and commits are refused. Default 4 MiB.
    pub memtable_bytes: u64,
    /// Threads that write tables and merge them. Default 1: of more, one spins while another merges.
    pub worker_threads: usize,
    /// Free disk space below which writes are refused; tables are written and merged within it. Default 64 MiB.
    pub reserve_bytes: u64,
    pub disk: Arc<dyn Disk>,
    /// What time it is, for keys that expire.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 4 << 20,
            memtable_bytes: 4 << 20,
            worker_threads: 1,
            reserve_bytes: 64 << 20,
            disk: Arc::new(RealDisk),
            clock: Arc::new(RealClock),
        }
    }
}

/// The node's durable state. Cheap to clone; the data folder is free again when the last clone, transaction and
/// [`Records`] is dropped.
#[derive(Clone)]
pub struct State {
    pub(crate) inner: Arc<Inner>,
}

impl State {
    /// Opens the state in `path`, making the folder if need be, and locks the whole folder.
    ///
    /// # Errors
    /// `DataLocked` names the process that uses the folder; `DataUnusable`, `DiskFull`, `DiskFailed`; `StateCorrupt`
    /// when what is stored cannot be read.
    pub fn open(path: &Path, options: Options) -> Result<Self, Problem> {
        let changed = make_folder(path).map_err(|error| error::from_io(&format!("make {}", path.display()), &error))?;
        let lock = DataLock::take(path)?;
        let folder = path.join("state");
        let what = format!("open the state in {}", folder.display());
        // The database asserts what damaged files can break; damage is an error, not a reason to fall over.
        let opened = std::panic::catch_unwind(AssertUnwindSafe(|| open_database(&folder, &options)));
        let (database, buckets, node) = opened
            .map_err(|_| Problem::new(Code::StateCorrupt, format!("cannot {what}: the database gave up on its files")))?
            .map_err(|error| error::from_database(&what, &error))?;
        let (ledger, time) = books::open(&database, &buckets, Arc::clone(&options.clock), &folder)?;
        sync_folders(path, &changed).map_err(|error| error::from_io(&what, &error))?;

        let group = Arc::new(Group::new());
        let limited = vec![(buckets.clone(), options.memtable_bytes), (node.clone(), NODE_MEMTABLE_BYTES)];
        let memory = Arc::new(Memory::new(database.clone(), limited));
        let world = World {
            folder: folder.clone(),
            disk: Arc::clone(&options.disk),
            reserve_bytes: options.reserve_bytes,
            memory: Arc::clone(&memory),
        };
        let syncer = Syncer::start(Arc::clone(&group), world)?;
        let inner = Inner {
            group,
            syncer: Some(syncer),
            oracle: Mutex::new(Oracle::default()),
            commits: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            ledger,
            time,
            sweep_from: AtomicU64::new(0),
            memory,
            buckets,
            node,
            database,
            folder,
            options,
            _lock: lock,
        };
        inner.look_at_space(0).ok();
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Begins a transaction. Costs about a microsecond and no disk.
    pub fn begin(&self) -> Transaction {
        Transaction::new(Arc::clone(&self.inner))
    }

    /// Waits until the commit survives a power cut. Dropping the future changes nothing about the commit.
    ///
    /// # Errors
    /// `DiskFailed` or `DiskFull`: the disk did not confirm; whether the commit survives is not known.
    pub async fn durable(&self, ticket: Ticket) -> Result<(), Problem> {
        self.inner.group.durable(ticket).await
    }

    /// The node's records in `table`, which is named as a bucket is.
    pub fn records(&self, table: &str) -> Records {
        Records::new(self.clone(), table)
    }

    /// Makes all changes of `batch` together. Durable once it has returned; a future dropped earlier may or may not
    /// have written.
    pub async fn write_records(&self, batch: Batch) -> Result<(), Problem> {
        batch.apply(&self.inner).await
    }

    /// Why writes are refused until the node is started again, if they are.
    pub fn stopped(&self) -> Option<Problem> {
        self.inner.group.stopped().cloned()
    }

    /// Numbers for the metrics. Looks through the folder for the bytes on disk.
    pub fn statistics(&self) -> Statistics {
        statistics::of(&self.inner)
    }
}

/// What all clones share. Fields are dropped in this order: the database closes before the folder is unlocked.
pub(crate) struct Inner {
    group: Arc<Group>,
    syncer: Option<Syncer>,
    /// Held while a commit is judged and applied, and while a snapshot is taken.
    oracle: Mutex<Oracle>,
    commits: AtomicU64,
    conflicts: AtomicU64,
    ledger: Ledger,
    time: OwnTime,
    /// No key expires earlier than this, in the state's own time, except what the sweep is removing.
    sweep_from: AtomicU64,
    memory: Arc<Memory>,
    buckets: Keyspace,
    node: Keyspace,
    database: Database,
    folder: PathBuf,
    options: Options,
    _lock: DataLock,
}

impl Inner {
    /// Applies `writes` to `keyspace` if `judge` agrees. It says what to note in the same batch.
    fn write(
        &self,
        keyspace: &Keyspace,
        writes: &Writes,
        bytes: usize,
        judge: impl FnOnce(&Oracle) -> Result<Books, CommitError>,
    ) -> Result<Ticket, CommitError> {
        self.admit(bytes as u64).map_err(CommitError::Unavailable)?;
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
        for (key, write) in writes {
            match &write.value {
                Some(value) => batch.insert(keyspace, key.as_slice(), value.as_slice()),
                None => batch.remove(keyspace, key.as_slice()),
            }
        }
        {
            let mut oracle = self.oracle.lock();
            // Looked at once more: many may have been admitted at the same moment.
            self.memory.check_room().map_err(CommitError::Unavailable)?;
            let books = judge(&oracle).inspect_err(|error| {
                if matches!(error, CommitError::Conflict) {
                    self.conflicts.fetch_add(1, Ordering::Relaxed);
                }
            })?;
            for (key, value) in books.notes {
                match value {
                    Some(value) => batch.insert(&self.buckets, key, value),
                    None => batch.remove(&self.buckets, key),
                }
            }
            batch.commit().map_err(|error| CommitError::Unavailable(self.write_failed(&error)))?;
            oracle.record(writes.iter().map(|(key, write)| (key.as_slice(), write.after)));
            for (bucket, counts) in books.counts {
                self.ledger.set(&bucket, counts);
            }
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(self.group.issue(self.syncer.as_ref().expect("it runs until the last clone is dropped")))
    }

    /// Refuses what could not be written well while nothing has happened yet: after a write that failed the database
    /// takes no other until it is opened again.
    fn admit(&self, bytes: u64) -> Result<(), Problem> {
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

    fn look_at_space(&self, bytes: u64) -> Result<(), Problem> {
        let Ok(free) = self.options.disk.bytes_free(&self.folder) else {
            return Ok(());
        };
        let needed = self.options.reserve_bytes.saturating_add(bytes);
        self.group.set_disk_full(free < self.options.reserve_bytes);
        if free >= needed {
            return Ok(());
        }
        let detail = format!("{free} bytes are free below {}, a write needs {needed}", self.folder.display());
        Err(Problem::new(Code::DiskFull, detail))
    }

    fn write_failed(&self, error: &fjall::Error) -> Problem {
        let problem = error::from_database("write the state", error);
        let code = if problem.code == Code::DiskFull { Code::DiskFull } else { Code::DiskFailed };
        let problem =
            Problem::new(code, format!("{}; writes are refused until the node is started again", problem.detail));
        self.group.stop(problem.clone());
        problem
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(syncer) = self.syncer.take() {
            syncer.finish();
        }
    }
}

fn open_database(folder: &Path, options: &Options) -> fjall::Result<(Database, Keyspace, Keyspace)> {
    let database = Database::builder(folder)
        .cache_size(options.cache_bytes)
        .max_cached_files(Some(FILES_KEPT))
        .max_journaling_size(JOURNAL_BYTES_MAX)
        .worker_threads(options.worker_threads)
        .open()?;
    let settings = || {
        KeyspaceCreateOptions::default()
            // Out of reach: `memory` decides.
            .max_memtable_size(u64::MAX)
            .compaction_strategy(Arc::new(Leveled::default().with_table_target_size(options.memtable_bytes)))
    };
    let buckets = database.keyspace("buckets", settings)?;
    let node = database.keyspace("node", settings)?;
    Ok((database, buckets, node))
}

/// Makes the folder and whatever above it is missing. Says whose list of names has changed.
fn make_folder(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let path = std::path::absolute(path)?;
    let missing = |folder: &&Path| !folder.exists();
    let changed = path.ancestors().take_while(missing).filter_map(Path::parent).map(Path::to_owned).collect();
    std::fs::create_dir_all(path)?;
    Ok(changed)
}

/// Makes the names of new folders durable; the database does so only for what is inside its own.
fn sync_folders(path: &Path, changed: &[PathBuf]) -> std::io::Result<()> {
    File::open(path)?.sync_all()?;
    changed.iter().try_for_each(|folder| File::open(folder)?.sync_all())
}
