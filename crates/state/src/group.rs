//! Group commit: one thread makes many commits durable with one call to the disk.
//!
//! ```text
//! commit 1 ──┐                         ┌─ commit 1 is durable
//!            ├─▶ written ─▶ [ sync ] ──┘
//! commit 2 ──┐                  commits 2, 3 and 4 come in while the disk is busy,
//! commit 3 ──┼─▶ written ─▶ [ sync ] ──▶ and one batch and one call serve them all
//! commit 4 ──┘
//! ```
//! The thread syncs the journal through a file handle of its own: the database's own call holds its write lock for as
//! long as the disk needs (tens of milliseconds on an SD card), and no transaction could even begin. Journals are
//! numbered, only the newest is written to, and the database syncs one before it begins the next: so with the newest
//! synced, everything before it is durable too.
//!
//! In relaxed mode, where the operating system's word is enough, there is no call to share. Whoever waits writes what
//! is pending, after all that could run has had its turn to commit; the thread writes what nobody waits for, syncs now
//! and then, and holds back those who wait while memory is behind.
//!
//! A disk that failed once is not asked again: the kernel may have dropped what it could not write, and a second
//! call would succeed without it. From then on writes are refused and reads go on.

use crate::damage::lacks_files;
use crate::engine::Engine;
use crate::error::from_io;
use crate::journal::Follower;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long the acknowledgement of durable commits is held back while memory waits to be written out as tables.
const PACE_MAX: Duration = Duration::from_secs(1);
/// How often the thread looks whether it may go on meanwhile.
const PACE_STEP: Duration = Duration::from_millis(1);

/// Which part of a sync's time the next one waits for those just served, at most.
const GATHER_SHARE: u32 = 4;
const GATHER_MAX: Duration = Duration::from_millis(2);
const GATHER_STEP: Duration = Duration::from_micros(50);
/// In relaxed mode: how long what nobody waits for is collected before the thread writes it.
const COLLECT_RELAXED: Duration = Duration::from_millis(1);

/// How long a sync waits for files to be closed before it tries again.
const FILES_WAIT: Duration = Duration::from_millis(20);

/// Names what has to be durable before anybody hears of it; [`State::durable`](crate::State::durable) waits for it.
///
/// **Whoever is told "done" is told what is durable.** An answer rests on what its transaction wrote and on what it
/// read. Commits become durable in their order, so the ticket of a commit covers both: one that wrote waits for itself,
/// and with it for all that it can have seen; one that only read waits for the newest commit that wrote any of what it
/// read, or would have to find there (a key, a bucket it listed, an event id the queue remembers, a queue that was
/// empty). One that neither wrote nor read waits for nothing. So a duplicate is confirmed when the first is, and a
/// function that finds its work done says so when it is. Where a write has failed, those that rest on it get an error.
///
/// What leaves the node waits in the same way: before a sink hands on an event, for [`Leased::ticket`](crate::Leased);
/// before a function's request goes out, for that and for [`Transaction::seen`](crate::Transaction::seen). Only what
/// nobody outside hears of, as the handling of an event, goes on without waiting: it is undone together with its cause.
#[must_use = "a commit is durable only once `State::durable` says so"]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// Of a transaction that wrote nothing and read nothing: there is nothing to wait for.
    pub const NOTHING_WRITTEN: Self = Self(0);

    /// Later commits have no lower number; those that share a write to the disk have the same.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Shared by those who commit and the thread that syncs.
#[derive(Debug)]
pub struct Group {
    /// Batches up to this one are durable.
    durable: AtomicU64,
    waiting: Mutex<Waiting>,
    /// Why no more writes are taken until the node is started again.
    stopped: OnceLock<Problem>,
    /// Whether the disk had too little space when it was last looked at.
    disk_full: AtomicBool,
    closing: AtomicBool,
    /// Milliseconds between syncs in relaxed mode; 0 when every commit waits for one.
    relaxed_ms: AtomicU64,
    syncs: AtomicU64,
    sync_nanoseconds: AtomicU64,
    sync_nanoseconds_last: AtomicU64,
}

/// Who waits for which batch. Each batch has a bell of its own: a sync wakes those it serves and nobody else.
#[derive(Debug, Default)]
struct Waiting {
    durable: u64,
    failure: Option<Problem>,
    /// In the order of their batches, few at any time.
    bells: VecDeque<Bell>,
}

#[derive(Debug)]
struct Bell {
    batch: u64,
    rings: Arc<Notify>,
    /// How many came to wait for it.
    waiters: u64,
}

impl Waiting {
    fn bell(&mut self, batch: u64) -> Arc<Notify> {
        let at = self.bells.partition_point(|bell| bell.batch < batch);
        if self.bells.get(at).is_none_or(|bell| bell.batch != batch) {
            self.bells.insert(at, Bell { batch, rings: Arc::default(), waiters: 0 });
        }
        let bell = &mut self.bells[at];
        bell.waiters += 1;
        Arc::clone(&bell.rings)
    }
}

impl Group {
    pub fn new() -> Self {
        Self {
            durable: AtomicU64::new(0),
            waiting: Mutex::default(),
            stopped: OnceLock::new(),
            disk_full: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            relaxed_ms: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            sync_nanoseconds: AtomicU64::new(0),
            sync_nanoseconds_last: AtomicU64::new(0),
        }
    }

    /// Waits until the commit is durable. Dropping the future changes nothing about the commit.
    pub async fn durable(&self, ticket: Ticket) -> Result<(), Problem> {
        if self.durable.load(Ordering::Acquire) >= ticket.0 {
            return Ok(());
        }
        let bell;
        let rings = {
            let mut waiting = self.waiting.lock();
            match &waiting.failure {
                _ if waiting.durable >= ticket.0 => return Ok(()),
                Some(failure) => return Err(failure.clone()),
                None => bell = waiting.bell(ticket.0),
            }
            // Made while nobody can ring: it cannot be missed.
            bell.notified()
        };
        rings.await;
        let waiting = self.waiting.lock();
        match &waiting.failure {
            Some(failure) if waiting.durable < ticket.0 => Err(failure.clone()),
            _ => Ok(()),
        }
    }

    /// Number of the newest commit that is durable, with all before it.
    pub fn newest_durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Tells those who wait for batches up to this one. Says how many there were.
    pub fn set_durable(&self, batch: u64) -> u64 {
        let mut waiting = self.waiting.lock();
        waiting.durable = waiting.durable.max(batch);
        self.durable.store(waiting.durable, Ordering::Release);
        let served = waiting.bells.partition_point(|bell| bell.batch <= batch);
        let bells: Vec<_> = waiting.bells.drain(..served).collect();
        drop(waiting);
        bells.iter().for_each(|bell| bell.rings.notify_waiters());
        bells.iter().map(|bell| bell.waiters).sum()
    }

    /// Why writes are refused, if they are.
    pub fn stopped(&self) -> Option<&Problem> {
        self.stopped.get()
    }

    /// Refuses all later writes, and tells those who wait that theirs may be lost. The first reason stays.
    pub fn fail(&self, problem: Problem) {
        if self.stopped.set(problem.clone()).is_ok() {
            tracing::error!(code = %problem.code, "writes are refused until the node is started again: {}", problem.detail);
        }
        if problem.code == Code::DiskFull {
            self.set_disk_full(true);
        }
        let mut waiting = self.waiting.lock();
        waiting.failure.get_or_insert(problem);
        let bells = std::mem::take(&mut waiting.bells);
        drop(waiting);
        bells.iter().for_each(|bell| bell.rings.notify_waiters());
    }

    pub fn disk_full(&self) -> bool {
        self.disk_full.load(Ordering::Relaxed)
    }

    pub fn set_disk_full(&self, full: bool) {
        if self.disk_full.swap(full, Ordering::Relaxed) != full {
            tracing::warn!(full, "the disk ran low on space, or has enough again");
        }
    }

    pub fn set_relaxed(&self, period: Option<Duration>) {
        let period_ms = period.map_or(0, |period| u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1));
        self.relaxed_ms.store(period_ms, Ordering::Relaxed);
    }

    pub fn is_relaxed(&self) -> bool {
        self.relaxed_ms.load(Ordering::Relaxed) > 0
    }

    fn relaxed(&self) -> Option<Duration> {
        let period_ms = self.relaxed_ms.load(Ordering::Relaxed);
        (period_ms > 0).then(|| Duration::from_millis(period_ms))
    }

    /// Number of syncs, the time of all and of the last.
    pub fn sync_times(&self) -> (u64, Duration, Duration) {
        (
            self.syncs.load(Ordering::Relaxed),
            Duration::from_nanos(self.sync_nanoseconds.load(Ordering::Relaxed)),
            Duration::from_nanos(self.sync_nanoseconds_last.load(Ordering::Relaxed)),
        )
    }

    fn count_sync(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync_nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        self.sync_nanoseconds_last.store(nanoseconds, Ordering::Relaxed);
    }
}

/// The thread.
pub struct Syncer {
    engine: Arc<Engine>,
    thread: JoinHandle<()>,
}

impl Syncer {
    pub fn start(engine: &Arc<Engine>, journal: Follower) -> Result<Self, Problem> {
        let shared = Arc::clone(engine);
        let thread = thread::Builder::new().name("state-sync".to_owned()).spawn(move || run(&shared, journal));
        let thread = thread.map_err(|error| from_io("start the thread that syncs the state", &error))?;
        Ok(Self { engine: Arc::clone(engine), thread })
    }

    /// Tells the thread that there is something to write.
    pub fn wake(&self) {
        self.thread.thread().unpark();
    }

    /// Ends the thread once all that was committed is durable.
    pub fn finish(self) {
        self.engine.group.closing.store(true, Ordering::Release);
        self.wake();
        if self.thread.join().is_err() {
            tracing::error!("the thread that syncs the state panicked");
        }
    }
}

fn run(engine: &Engine, mut journal: Follower) {
    let group = &engine.group;
    let (mut told, mut synced, mut synced_at) = (0, 0, Instant::now());
    loop {
        let closing = group.closing.load(Ordering::Acquire);
        if group.is_relaxed() && !closing {
            thread::sleep(COLLECT_RELAXED);
        }
        // A write that failed has told everybody already.
        let Ok(written) = engine.apply() else { return };
        let relaxed = group.relaxed().filter(|_| !closing);
        if relaxed.is_some() && told < written {
            pace(engine);
            told = written;
            group.set_durable(told);
            continue;
        }
        let wait = match relaxed {
            _ if written == synced => None,
            Some(period) => Some(period.saturating_sub(synced_at.elapsed())),
            None => Some(Duration::ZERO),
        };
        match wait {
            None if closing => return,
            None => match journal.mark_if_due(Instant::now()) {
                Some(due) => thread::park_timeout(due),
                None => thread::park(),
            },
            Some(Duration::ZERO) => {
                if let Err(error) = sync(engine, &mut journal) {
                    group.fail(error);
                    return;
                }
                (synced, synced_at) = (written, Instant::now());
                if !closing {
                    pace(engine);
                }
                if told < written {
                    told = written;
                    let commits = engine.commits.load(Ordering::Relaxed);
                    let served = group.set_durable(told);
                    if !closing && relaxed.is_none() {
                        let share = group.sync_times().2 / GATHER_SHARE;
                        gather(engine, commits, served, share.min(GATHER_MAX));
                    }
                }
                journal.mark_if_due(Instant::now());
            }
            Some(time) => thread::park_timeout(time),
        }
    }
}

fn sync(engine: &Engine, journal: &mut Follower) -> Result<(), Problem> {
    if let Ok(free) = engine.disk.bytes_free(&engine.folder) {
        engine.group.set_disk_full(free < engine.reserve_bytes);
    }
    let started = Instant::now();
    let mut outcome = journal.sync(&*engine.disk);
    while outcome.as_ref().is_err_and(lacks_files) {
        // Nothing was written or lost by that: the journal's next file could not be opened.
        thread::sleep(FILES_WAIT);
        outcome = journal.sync(&*engine.disk);
    }
    outcome.map_err(|error| {
        let problem = from_io("make the state durable", &error);
        let code = if problem.code == Code::DiskFull { Code::DiskFull } else { Code::DiskFailed };
        Problem::new(code, format!("{}; writes are refused until the node is started again", problem.detail))
    })?;
    engine.group.count_sync(started.elapsed());
    Ok(())
}

/// Those who were just served come back with their next commits in a moment, and others wait already: writing for these
/// at once would split all that is in flight into two halves, each of which waits for the other's turn. So the next
/// turn waits until as many have come as were served, for a fraction of what a sync takes.
fn gather(engine: &Engine, commits: u64, served: u64, limit: Duration) {
    let started = Instant::now();
    while served > 1 && engine.commits.load(Ordering::Relaxed) < commits + served {
        let left = limit.saturating_sub(started.elapsed());
        match left {
            Duration::ZERO => return,
            left if left > 2 * GATHER_STEP => thread::sleep(GATHER_STEP),
            _ => thread::yield_now(),
        }
    }
}

/// Slows writers down to what the disk takes, by letting them wait here instead of filling the memory.
fn pace(engine: &Engine) {
    let mut waited = Duration::ZERO;
    loop {
        if let Err(error) = engine.memory.tend() {
            engine.write_failed(&error);
            return;
        }
        if waited >= PACE_MAX || !engine.memory.is_slow() {
            return;
        }
        thread::sleep(PACE_STEP);
        waited += PACE_STEP;
    }
}
