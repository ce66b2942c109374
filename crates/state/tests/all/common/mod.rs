//! What the tests share: a way to wait, and disks that misbehave on demand.
#![allow(dead_code, reason = "each test binary uses its own part")]

use problem::Problem;
use state::{Disk, Options, RealDisk, State, Ticket};
use std::fs::File;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

/// A folder for tests that are not about the disk: in memory, where there is such a place.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

pub fn open(path: &Path) -> State {
    State::open(path, Options::default()).unwrap()
}

pub fn durable(state: &State, ticket: Ticket) -> Result<(), Problem> {
    wait(state.durable(ticket))
}

/// A folder with all that is in it, without starting a process: that would hold locks of other tests for a moment.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Commits one value and waits until it is durable.
pub fn set(state: &State, key: &str, value: &str) {
    let mut transaction = state.begin();
    transaction.set("b", key, value.into()).unwrap();
    durable(state, transaction.commit().unwrap()).unwrap();
}

pub fn get(state: &State, key: &str) -> Option<String> {
    state.begin().get("b", key).unwrap().map(|value| String::from_utf8(value).unwrap())
}

/// A disk whose space is set by the test, and whose syncs fail from the moment the test says so.
pub struct FaultyDisk {
    pub bytes_free: AtomicU64,
    pub fails: AtomicBool,
    pub syncs: AtomicU64,
}

impl FaultyDisk {
    pub fn new() -> Self {
        Self { bytes_free: AtomicU64::new(u64::MAX), fails: AtomicBool::new(false), syncs: AtomicU64::new(0) }
    }
}

impl Disk for FaultyDisk {
    fn sync(&self, journal: &File) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk is on fire"));
        }
        RealDisk.sync(journal)
    }

    fn bytes_free(&self, _: &Path) -> io::Result<u64> {
        Ok(self.bytes_free.load(Ordering::SeqCst))
    }
}

/// A disk that does not answer while its gate is shut.
#[derive(Default)]
pub struct GatedDisk {
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Default)]
struct Gate {
    shut: bool,
    syncs: u64,
}

impl GatedDisk {
    pub fn set_shut(&self, shut: bool) {
        self.gate.lock().unwrap().shut = shut;
        self.changed.notify_all();
    }

    pub fn syncs(&self) -> u64 {
        self.gate.lock().unwrap().syncs
    }

    pub fn wait_for_syncs(&self, count: u64) {
        drop(self.changed.wait_while(self.gate.lock().unwrap(), |gate| gate.syncs < count).unwrap());
    }
}

impl Disk for GatedDisk {
    fn sync(&self, journal: &File) -> io::Result<()> {
        let mut gate = self.gate.lock().unwrap();
        gate.syncs += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(gate, |gate| gate.shut).unwrap());
        RealDisk.sync(journal)
    }

    fn bytes_free(&self, _: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}
