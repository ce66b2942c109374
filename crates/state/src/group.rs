//! Group commit: one thread makes many commits durable with one call to the disk.
//!
//! ```text
//! commit 1 ──┐                         ┌─ commit 1 is durable
//!            ├─▶ written ─▶ [ sync ] ──┘
//! commit 2 ──┐                  commits 2, 3 and 4 are written while the disk is busy,
//! commit 3 ──┼─▶ written ─▶ [ sync ] ──▶ and one call serves them all
//! commit 4 ──┘
//! ```
//! The thread syncs the journal through a file handle of its own: the database's own call holds its write lock for
//! as long as the disk takes (tens of milliseconds on an SD card), and nobody could even begin a transaction.
//! Journals are numbered, only the newest is written to, and the database syncs one before it begins the next: so
//! with the newest synced, everything before it is durable too.
//!
//! A disk that failed once is not asked again: the kernel may have dropped what it could not write, and a second
//! call would succeed without it. From then on writes are refused and reads go on.

use crate::disk::Disk;
use crate::error::{from_database, from_io};
use crate::memory::Memory;
use problem::{Code, Problem};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long the acknowledgement of durable commits is held back while memory waits to be written out as tables.
const PACE_MAX: Duration = Duration::from_secs(1);
/// How often the thread looks whether it may go on meanwhile.
const PACE_STEP: Duration = Duration::from_millis(1);

/// Names a commit; [`State::durable`](crate::State::durable) waits for it.
#[must_use = "a commit is durable only once `State::durable` says so"]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// Of a transaction that wrote nothing: there is nothing to wait for.
    pub const NOTHING_WRITTEN: Self = Self(0);
}

/// Shared by those who commit and the thread that syncs.
#[derive(Debug)]
pub struct Group {
    /// Commits handed to the operating system.
    written: AtomicU64,
    progress: watch::Sender<Progress>,
    /// Why no more writes are taken until the node is started again.
    stopped: OnceLock<Problem>,
    /// Whether the disk had too little space when it was last looked at.
    disk_full: AtomicBool,
    closing: AtomicBool,
    syncs: AtomicU64,
    sync_nanoseconds: AtomicU64,
    sync_nanoseconds_last: AtomicU64,
}

#[derive(Debug, Clone, Default)]
struct Progress {
    durable: u64,
    failure: Option<Problem>,
}

/// What the thread needs of the world.
pub struct World {
    /// The folder of the database.
    pub folder: PathBuf,
    pub disk: Arc<dyn Disk>,
    /// Free bytes below which the disk counts as full.
    pub reserve_bytes: u64,
    pub memory: Arc<Memory>,
}

impl Group {
    pub fn new() -> Self {
        Self {
            written: AtomicU64::new(0),
            progress: watch::Sender::default(),
            stopped: OnceLock::new(),
            disk_full: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            syncs: AtomicU64::new(0),
            sync_nanoseconds: AtomicU64::new(0),
            sync_nanoseconds_last: AtomicU64::new(0),
        }
    }

    /// Gives the ticket of a commit that has just been handed to the operating system.
    pub fn issue(&self, syncer: &Syncer) -> Ticket {
        let ticket = Ticket(self.written.fetch_add(1, Ordering::AcqRel) + 1);
        syncer.thread.thread().unpark();
        ticket
    }

    /// Waits until the commit is durable. Dropping the future changes nothing about the commit.
    pub async fn durable(&self, ticket: Ticket) -> Result<(), Problem> {
        let mut progress = self.progress.subscribe();
        let reached = progress
            .wait_for(|now| now.durable >= ticket.0 || now.failure.is_some())
            .await
            .expect("the sender lives as long as the group");
        match &reached.failure {
            Some(failure) if reached.durable < ticket.0 => Err(failure.clone()),
            _ => Ok(()),
        }
    }

    /// Why writes are refused, if they are.
    pub fn stopped(&self) -> Option<&Problem> {
        self.stopped.get()
    }

    /// Refuses all later writes. The first reason stays.
    pub fn stop(&self, problem: Problem) {
        if self.stopped.set(problem.clone()).is_ok() {
            tracing::error!(code = %problem.code, "writes are refused until the node is started again: {}", problem.detail);
        }
    }

    pub fn disk_full(&self) -> bool {
        self.disk_full.load(Ordering::Relaxed)
    }

    pub fn set_disk_full(&self, full: bool) {
        if self.disk_full.swap(full, Ordering::Relaxed) != full {
            tracing::warn!(full, "the disk ran low on space, or has enough again");
        }
    }

    /// Number of syncs, the time of all and of the last.
    pub fn sync_times(&self) -> (u64, Duration, Duration) {
        (
            self.syncs.load(Ordering::Relaxed),
            Duration::from_nanos(self.sync_nanoseconds.load(Ordering::Relaxed)),
            Duration::from_nanos(self.sync_nanoseconds_last.load(Ordering::Relaxed)),
        )
    }
}

/// The thread. Dropping it makes all that was committed durable, then ends it.
pub struct Syncer {
    group: Arc<Group>,
    thread: JoinHandle<()>,
}

impl Syncer {
    pub fn start(group: Arc<Group>, world: World) -> Result<Self, Problem> {
        let start = || {
            let journal = Journal::newest(&world.folder)?;
            let shared = Arc::clone(&group);
            thread::Builder::new().name("state-sync".to_owned()).spawn(move || run(&shared, &world, journal))
        };
        let thread = start().map_err(|error| from_io("start the thread that syncs the state", &error))?;
        Ok(Self { group, thread })
    }

    /// Ends the thread once all that was committed is durable.
    pub fn finish(self) {
        self.group.closing.store(true, Ordering::Release);
        self.thread.thread().unpark();
        if self.thread.join().is_err() {
            tracing::error!("the thread that syncs the state panicked");
        }
    }
}

fn run(group: &Group, world: &World, mut journal: Journal) {
    let mut durable = 0;
    loop {
        let closing = group.closing.load(Ordering::Acquire);
        let written = group.written.load(Ordering::Acquire);
        if written == durable {
            if closing {
                return;
            }
            thread::park();
            continue;
        }
        if let Ok(free) = world.disk.bytes_free(&world.folder) {
            group.set_disk_full(free < world.reserve_bytes);
        }
        let started = Instant::now();
        if let Err(error) = journal.sync(&world.folder, &*world.disk) {
            fail(group, &error);
            return;
        }
        group.count_sync(started.elapsed());
        if !closing {
            pace(group, &world.memory);
        }
        durable = written;
        group.progress.send_modify(|progress| progress.durable = durable);
    }
}

fn fail(group: &Group, error: &io::Error) {
    let problem = from_io("make the state durable", error);
    let code = if problem.code == Code::DiskFull { Code::DiskFull } else { Code::DiskFailed };
    let problem = Problem::new(code, format!("{}; writes are refused until the node is started again", problem.detail));
    group.stop(problem.clone());
    group.progress.send_modify(|progress| progress.failure = Some(problem));
}

/// Slows writers down to what the disk takes, by letting them wait here instead of filling the memory.
fn pace(group: &Group, memory: &Memory) {
    let mut waited = Duration::ZERO;
    loop {
        if let Err(error) = memory.tend() {
            return group.stop(from_database("write the state out as a table", &error));
        }
        if waited >= PACE_MAX || !memory.is_slow() {
            return;
        }
        thread::sleep(PACE_STEP);
        waited += PACE_STEP;
    }
}

impl Group {
    fn count_sync(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync_nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        self.sync_nanoseconds_last.store(nanoseconds, Ordering::Relaxed);
    }
}

/// The newest journal of the database, open.
struct Journal {
    number: u64,
    file: File,
}

impl Journal {
    fn newest(folder: &Path) -> io::Result<Self> {
        let number = newest_number(folder)?;
        Ok(Self { number, file: File::open(path_of(folder, number))? })
    }

    fn sync(&mut self, folder: &Path, disk: &dyn Disk) -> io::Result<()> {
        let number = newest_number(folder)?;
        if number != self.number {
            *self = Self { number, file: File::open(path_of(folder, number))? };
            // The new file's name has to be durable as well.
            File::open(folder)?.sync_all()?;
        }
        disk.sync(&self.file)
    }
}

fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.jnl"))
}

fn newest_number(folder: &Path) -> io::Result<u64> {
    let mut newest = None;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".jnl")).and_then(|number| number.parse().ok());
        newest = newest.max(number);
    }
    newest.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no journal in {}", folder.display())))
}
