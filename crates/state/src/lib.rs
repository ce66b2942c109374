//! Durable buckets and queues with transactions and group commit, and the node's own records beside them.
//!
//! ```text
//!  begin ─▶ Transaction ── get/set/list, push/ack/fail ──▶ commit ─▶ did anyone write what it read? lease lost? full?
//!                                                             │no
//!                                                             ▼
//!                    pending, visible ── Ticket ──▶ one batch and one sync for many ─▶ durable
//! ```
//! The database below is fjall: a log-structured tree with few large sequential writes, which suit SD cards. Buckets,
//! queues and records are its keyspaces with one journal, so that all of them commit together. In memory a [`Queue`]
//! has a window of its oldest events, however long it is, and its leases; `docs/queues.md` has its promises.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let state = state::State::open(folder.path(), state::Options::default())?;
//! let mut transaction = state.begin();
//! assert_eq!(transaction.increment("visits", "front", 1)?, 1);
//! state.durable(transaction.commit()?).await?;
//!
//! let event = event::Event { id: "1".into(), source: "/door".into(), ..Default::default() };
//! let mut transaction = state.begin();
//! transaction.push("doors", &state::Push { event, delay: Default::default(), ttl: None }, 1_700_000_000_000)?;
//! state.durable(transaction.commit()?).await?;
//!
//! let queue = state.queue("doors")?;
//! for leased in queue.lease(1_700_000_000_000, 1_700_000_030_000, 8)? {
//!     let mut handling = state.begin();
//!     handling.increment("doors", &leased.event.source, 1)?;
//!     handling.ack(&leased);
//!     state.durable(handling.commit()?).await?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//! # When the disk is in trouble
//! - Too little space (below [`Options::reserve_bytes`]): commits that write are refused with L5003, before the
//!   database notices anything, and are taken again as soon as there is space. Reads go on.
//! - Space gone all the same in the middle of a write, or a failed write or sync: writes are refused with L5003 or
//!   L5004 until the node is started again, for what reached the disk is not known. Reads go on; they may show commits
//!   that were never acknowledged and are gone after the restart.
//! - Too slow: acknowledgements wait a little longer, and beyond that commits are refused with L5008.
//!
//! What is visible may not be durable yet; [`Ticket`] says which answers wait for it.
#![forbid(unsafe_code)]

mod backup;
mod books;
mod clock;
mod damage;
mod disk;
mod engine;
mod envelope;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod journal;
mod keys;
mod ledger;
mod lock;
mod memory;
mod migration;
mod names;
mod oracle;
mod page;
mod part;
mod pending;
mod queue;
mod recent;
mod records;
mod rename;
pub mod salvage;
mod statistics;
mod transaction;
mod transfer;
mod whole;

pub use backup::{Backup, Restoring, STATE_FORMAT, STATE_FORMATS_READ, StoredEntry, name_of_record, table_of};
pub use books::Swept;
pub use clock::{Clock, RealClock};
pub use disk::{Disk, RealDisk};
pub use error::{CommitError, FullQueue, StoreError};
pub use group::Ticket;
pub use keys::{BUCKET_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use ledger::{Bound, BucketConfig, BucketCounts, Full};
pub use page::{Entry, LIMIT_MAX, PAGE_BYTES_MAX, Page};
pub use pending::Space;
pub use queue::{
    Discard, EVENT_BYTES_MAX, Failed, LeaseId, Leased, Listed, Part, Position, Push, Pushed, Queue, QueueConfig,
    QueueCounts, QueueTotals, REPLAYS, Replay, Replayed,
};
pub use records::{Batch, Records};
pub use rename::RenameError;
pub use statistics::Statistics;
pub use transaction::{Transaction, WRITE_BYTES_MAX, WRITES_MAX};
pub use transfer::{Export, Import, ImportError, Imported};

use books::Books;
use clock::OwnTime;
use engine::{Commit, Engine, Opened};
use fjall::compaction::Leveled;
use fjall::{Database, KeyspaceCreateOptions};
use group::Syncer;
use journal::{Follower, MarkFile};
use ledger::Ledger;
use lock::DataLock;
use memory::Memory;
use names::Names;
use oracle::Oracle;
use problem::{Code, Problem};
use std::fs::File;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Poll;
use transaction::Writes;

/// Tables whose files are kept open for the next read, by default.
pub const FILES_KEPT: usize = 128;
/// The least the database takes.
const FILES_KEPT_MIN: usize = 10;
/// Newest records of the node kept in memory.
const NODE_MEMTABLE_BYTES: u64 = 1 << 20;
/// Largest journal before the memory behind it is written out: the least the database allows.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// How often a transaction runs whose commit others disturb each time, before its caller is told to try again later.
const TRIES_MAX: u32 = 20;

/// How much the state may use.
#[derive(Clone)]
pub struct Options {
    /// Memory for blocks read from disk. Default 4 MiB.
    pub cache_bytes: u64,
    /// Newest writes to buckets kept in memory before they are written out as a table. With about twice as much
    /// waiting, acknowledgements wait too; some 32 MiB more, and commits are refused. Default 4 MiB.
    pub memtable_bytes: u64,
    /// The same for queues. An event that is pushed and acked before it is written out never becomes part of a table.
    /// Default 4 MiB.
    pub queue_memtable_bytes: u64,
    /// Threads that write tables and merge them. Default 1: of more, one spins while another merges.
    pub worker_threads: usize,
    /// Tables whose files are kept open for the next read. Default 128; at least 10.
    pub files_kept: usize,
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
            queue_memtable_bytes: 4 << 20,
            worker_threads: 1,
            files_kept: FILES_KEPT,
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
    /// Opens the state in `path`, making the folder if need be, and locks the whole folder. What was written in format
    /// 1 is carried over to the present one, which takes longer the more it is; versions that write format 1 do not
    /// open it afterwards.
    ///
    /// # Errors
    /// `DataLocked` names the process that uses the folder; `DataNewer` when a newer version wrote it;
    /// `RestoreUnfinished`, `DataUnusable`, `DiskFull`, `DiskFailed`; `StateCorrupt` when what is stored cannot be
    /// read.
    pub fn open(path: &Path, options: Options) -> Result<Self, Problem> {
        let mut changed =
            make_folder(path).map_err(|error| error::from_io(&format!("make {}", path.display()), &error))?;
        let lock = DataLock::take(path)?;
        backup::check_not_restoring(path)?;
        changed.push(path.to_owned());
        let folder = path.join("state");
        let what = format!("open the state in {}", folder.display());
        let (mut opened, mut checked) = open_checked(&folder, &options)?;
        sync_folders(&folder, &changed).map_err(|error| error::from_io(&what, &error))?;
        if migration::is_needed(&opened, &folder)? {
            migration::run(&opened, &memory_of(&opened, &options), &folder, &options)?;
            // Opened anew, it is as if it had never been otherwise.
            drop(opened);
            (opened, checked) = open_checked(&folder, &options)?;
        }
        let follower = follow(&folder, checked.as_ref()).map_err(|error| error::from_io(&what, &error))?;
        let (ledger, names, time) = books::open(&opened, Arc::clone(&options.clock), &folder)?;
        let memory = memory_of(&opened, &options);
        let engine = Arc::new(Engine::new(opened, memory, folder, options.disk, options.reserve_bytes));
        let queues = queue::Registry::read(&engine)?;
        let syncer = Syncer::start(&engine, follower)?;
        engine.look_at_space(0).ok();
        let sweep_from = AtomicU64::new(0);
        let inner = Inner { syncer: Some(syncer), queues, ledger, names, time, sweep_from, engine, _lock: lock };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Begins a transaction. Costs nothing until it reads: what it reads is the state of the moment it first did.
    pub fn begin(&self) -> Transaction {
        Transaction::new(Arc::clone(&self.inner))
    }

    /// Runs `work` in a transaction of its own and commits it. When another commit changed meanwhile what it has read,
    /// it runs again, up to [`TRIES_MAX`] times. What it returns is durable once [`State::durable`] has returned for
    /// the ticket.
    ///
    /// # Errors
    /// Those of `work`, at once; those of the commit. Nothing was written.
    pub fn transact<T, E: From<CommitError>>(
        &self,
        mut work: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<(T, Ticket), E> {
        let mut tries = 1;
        loop {
            let mut transaction = self.begin();
            let done = work(&mut transaction)?;
            match transaction.commit() {
                Ok(ticket) => return Ok((done, ticket)),
                Err(CommitError::Conflict) if tries < TRIES_MAX => tries += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until the commit, and what it has read, survive a power cut. Dropping the future changes nothing about the
    /// commit. Costs next to nothing where all of it is durable already.
    ///
    /// # Errors
    /// `DiskFailed` or `DiskFull`: the disk did not confirm; whether the commit survives is not known.
    pub async fn durable(&self, ticket: Ticket) -> Result<(), Problem> {
        self.inner.durable(ticket).await
    }

    /// Waits as [`State::durable`] does for all that anybody can see by now: for an answer that rests on what was not
    /// read in a transaction, as that something is gone already.
    pub async fn durable_all(&self) -> Result<(), Problem> {
        self.durable(Ticket(self.inner.engine.newest())).await
    }

    /// Whether a commit that writes would be taken now, as far as that can be known.
    ///
    /// # Errors
    /// `DiskFull`, `DiskFailed`, `StateBusy`: why not.
    pub fn takes_writes(&self) -> Result<(), Problem> {
        self.inner.engine.admit(0)
    }

    /// Waits as [`State::durable`] does, for who keeps only the number of a ticket. Says up to which number all commits
    /// are durable by now.
    pub async fn durable_number(&self, number: u64) -> Result<u64, Problem> {
        self.inner.durable(Ticket(number)).await?;
        Ok(self.inner.engine.group.newest_durable())
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
        self.inner.engine.group.stopped().cloned()
    }

    /// Numbers for the metrics. Looks through the folder for the bytes on disk.
    pub fn statistics(&self) -> Statistics {
        statistics::of(&self.inner.engine)
    }
}

/// What all clones share. Fields are dropped in this order: the database closes before the folder is unlocked.
pub(crate) struct Inner {
    syncer: Option<Syncer>,
    queues: queue::Registry,
    ledger: Ledger,
    names: Names,
    time: OwnTime,
    /// No key expires earlier than this, in the state's own time, except what the sweep is removing.
    sweep_from: AtomicU64,
    engine: Arc<Engine>,
    _lock: DataLock,
}

impl Inner {
    /// Decides about a commit with the help of `judge`, which is asked under the lock of the oracle and says what is to
    /// be noted about it. Says also which queues have more dead letters than they may.
    pub(crate) fn commit(
        &self,
        commit: Commit,
        judge: impl FnOnce(&Oracle, &Writes) -> Result<Books, CommitError>,
    ) -> Result<(Ticket, Vec<Arc<queue::QueueInner>>), CommitError> {
        let (batch, over) = self.engine.commit(commit, judge, |books| self.close(books))?;
        self.syncer.as_ref().expect("it runs until the last clone is dropped").wake();
        Ok((Ticket(batch), over))
    }

    /// As [`State::durable`].
    pub(crate) async fn durable(&self, ticket: Ticket) -> Result<(), Problem> {
        let group = &self.engine.group;
        if group.is_relaxed() && group.newest_durable() < ticket.number() {
            // Whoever can commit now does so before one of them writes for all.
            let mut others_had_a_turn = false;
            poll_fn(|cx| {
                if std::mem::replace(&mut others_had_a_turn, true) {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            self.engine.write_for(ticket.number());
        }
        group.durable(ticket).await
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(syncer) = self.syncer.take() {
            syncer.finish();
        }
    }
}

/// Checks the folder and opens what is in it.
fn open_checked(folder: &Path, options: &Options) -> Result<(Opened, Option<journal::Checked>), Problem> {
    let what = format!("open the state in {}", folder.display());
    let checked = whole::check(folder)?;
    // The database asserts what damaged files can break; damage is an error, not a reason to fall over.
    let opened = std::panic::catch_unwind(AssertUnwindSafe(|| open_database(folder, options)));
    let opened = opened
        .map_err(|_| Problem::new(Code::StateCorrupt, format!("cannot {what}: the database gave up on its files")))?
        .map_err(|error| error::from_database(&what, &error))?;
    match checked.as_ref().and_then(|checked| checked.denied_by(folder, opened.in_tables())) {
        Some(problem) => Err(problem),
        None => Ok((opened, checked)),
    }
}

fn memory_of(opened: &Opened, options: &Options) -> Memory {
    let limited = vec![
        (opened.buckets.clone(), options.memtable_bytes),
        (opened.queues.clone(), options.queue_memtable_bytes),
        (opened.node.clone(), NODE_MEMTABLE_BYTES),
    ];
    Memory::new(opened.database.clone(), limited)
}

fn open_database(folder: &Path, options: &Options) -> fjall::Result<Opened> {
    let database = Database::builder(folder)
        .cache_size(options.cache_bytes)
        .max_cached_files(Some(options.files_kept.max(FILES_KEPT_MIN)))
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
    let queues = database.keyspace("queues", settings)?;
    Ok(Opened { database, buckets, node, queues })
}

/// Follows the journals from where they were checked to; a new state gets its first mark.
fn follow(folder: &Path, checked: Option<&journal::Checked>) -> std::io::Result<Follower> {
    match checked {
        Some(checked) => Follower::new(folder, checked.mark(folder)?, checked.journals.clone()),
        None => Follower::new(folder, MarkFile::create(folder, &[])?, Vec::new()),
    }
}

/// Makes the folder and whatever above it is missing. Says whose list of names has changed.
fn make_folder(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let path = std::path::absolute(path)?;
    let missing = |folder: &&Path| !folder.exists();
    let changed = path.ancestors().take_while(missing).filter_map(Path::parent).map(Path::to_owned).collect();
    std::fs::create_dir_all(path)?;
    Ok(changed)
}

/// Makes the names of new folders durable: those above the database's, and those of its parts, which it does not see
/// to.
fn sync_folders(database: &Path, changed: &[PathBuf]) -> std::io::Result<()> {
    let parts = database.join(whole::PARTS);
    let all = changed.iter().map(PathBuf::as_path).chain([database, &parts]);
    all.into_iter().try_for_each(|folder| File::open(folder)?.sync_all())
}
