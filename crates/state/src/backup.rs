//! All that the state stores at one instant, on its way out of a running node and into a new data folder.
//!
//! ```text
//!  snapshot of all parts ─▶ Backup: entries as they are stored ─▶ … ─▶ Restoring ─▶ DATA/restoring/state ─▶ DATA/state
//! ```
//! Entries travel as the database has them, ids, counts and places in queues among them. So what is restored is the
//! state as a power cut at that instant would have left it: nothing that was acknowledged before is missing, and what
//! was being handled is handled again.
//!
//! A restore builds a whole state beside its place and opens it once to see that it is sound. Renaming it into its
//! place is the one step that counts: whatever ends before leaves a folder that no node opens, and the next restore
//! begins anew.

use crate::lock::DataLock;
use crate::memory::Memory;
use crate::page::read_failed;
use crate::pending::Space;
use crate::{Inner, Opened, Options, State, error, follow, keys, make_folder, memory_of, open_checked, sync_folders};
use fjall::{OwnedWriteBatch, PersistMode, Readable, Snapshot};
use problem::{Code, Problem};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Format of what the state stores, which a backup names: the one that this version writes.
pub const STATE_FORMAT: &str = "2";
/// Formats that this version opens; older ones than its own it carries over.
pub const STATE_FORMATS_READ: [&str; 2] = ["1", STATE_FORMAT];

/// Where a restore is built, in the data folder.
const RESTORING: &str = "restoring";
/// A piece of a backup ends with the entry that goes beyond this.
const PIECE_BYTES: usize = 256 << 10;
/// What one batch of a restore writes, except that one entry may be larger.
const BATCH_BYTES: usize = 1 << 20;
/// Of a key; the database panics where one is longer, or empty.
const KEY_BYTES_MAX: usize = 65_535;
/// How long writing waits for tables, each time it looks.
const PACE_STEP: Duration = Duration::from_millis(1);

/// Key and value as the database has them.
pub type StoredEntry = (Vec<u8>, Vec<u8>);

/// The state of one instant. It keeps that instant alive on disk, not in memory, until it is dropped.
pub struct Backup {
    inner: Arc<Inner>,
    snapshot: Snapshot,
    parts: std::vec::IntoIter<Space>,
    /// The part that is read, and its first key that has not been.
    at: Option<(Space, Vec<u8>)>,
}

impl State {
    /// Begins a backup of this instant. Durable when it returns: all that is in it.
    ///
    /// # Errors
    /// `DiskFailed`, `DiskFull`: what can be seen cannot be made durable.
    pub async fn backup(&self) -> Result<Backup, Problem> {
        let snapshot = self.inner.engine.snapshot();
        self.durable_all().await?;
        let mut parts = Space::ALL.to_vec().into_iter();
        let at = parts.next().map(|part| (part, Vec::new()));
        Ok(Backup { inner: Arc::clone(&self.inner), snapshot, parts, at })
    }
}

impl Backup {
    /// The next entries of one part, in the order of keys: about 256 KiB, or one entry that is larger. None at the end.
    /// Reads the disk.
    ///
    /// # Errors
    /// `StateCorrupt` names the file that cannot be read.
    pub fn next_entries(&mut self) -> Result<Option<(Space, Vec<StoredEntry>)>, Problem> {
        while let Some((part, next)) = self.at.take() {
            let engine = &self.inner.engine;
            let keyspace = match part {
                Space::Buckets => &engine.buckets,
                Space::Node => &engine.node,
                Space::Queues => &engine.queues,
            };
            let (mut entries, mut bytes) = (Vec::new(), 0);
            for entry in self.snapshot.range(keyspace, next..) {
                let (key, value) = entry.into_inner().map_err(|error| read_failed(&error))?;
                if bytes >= PIECE_BYTES {
                    self.at = Some((part, key.to_vec()));
                    break;
                }
                bytes += key.len() + value.len();
                entries.push((key.to_vec(), value.to_vec()));
            }
            if self.at.is_none() {
                self.at = self.parts.next().map(|part| (part, Vec::new()));
            }
            if !entries.is_empty() {
                return Ok(Some((part, entries)));
            }
        }
        Ok(None)
    }
}

/// The table of the node's record that is stored under this key of [`Space::Node`].
pub fn table_of(key: &[u8]) -> Option<&str> {
    keys::of_record(key).map(|(table, _)| table)
}

/// The name of that record.
pub fn name_of_record(key: &[u8]) -> Option<&str> {
    keys::of_record(key).map(|(_, name)| name)
}

/// A state that is being restored. Dropped before [`Restoring::finish`], it leaves a folder that no node opens.
pub struct Restoring {
    data: PathBuf,
    opened: Opened,
    memory: Memory,
    batch: OwnedWriteBatch,
    batch_bytes: usize,
    options: Options,
    entries: u64,
    lock: DataLock,
}

impl Restoring {
    /// Begins in the data folder `data`, which is made if need be, and locks it. What an earlier restore left
    /// unfinished is removed.
    ///
    /// # Errors
    /// `DataLocked` while a node uses the folder; `FolderNotEmpty` where there is a state in it; those of the disk.
    pub fn begin(data: &Path) -> Result<Self, Problem> {
        let failed = |error: io::Error| error::from_io(&format!("restore into {}", data.display()), &error);
        make_folder(data).map_err(failed)?;
        let lock = DataLock::take(data)?;
        if data.join("state").exists() {
            let problem = Problem::new(Code::FolderNotEmpty, format!("{} holds the data of a node", data.display()));
            return Err(problem.with_hint("name another folder with --data-folder, or move this one out of the way"));
        }
        let beside = data.join(RESTORING);
        if beside.exists() {
            fs::remove_dir_all(&beside).map_err(failed)?;
        }
        let folder = beside.join("state");
        let mut changed = make_folder(&beside).map_err(failed)?;
        changed.push(beside);
        let options = Options::default();
        let (opened, _) = open_checked(&folder, &options)?;
        sync_folders(&folder, &changed).map_err(failed)?;
        // From here on the folder counts as one that was begun.
        drop(follow(&folder, None).map_err(failed)?);
        let (memory, batch) = (memory_of(&opened, &options), batch_of(&opened));
        Ok(Self { data: data.to_owned(), opened, memory, batch, batch_bytes: 0, options, entries: 0, lock })
    }

    /// Takes the next entry of a part.
    ///
    /// # Errors
    /// `BackupBroken`: no state has such a key. `DiskFull`, `DiskFailed`: the restore is over.
    pub fn put(&mut self, part: Space, key: &[u8], value: &[u8]) -> Result<(), Problem> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let detail = format!("an entry has a key of {} bytes", key.len());
            return Err(Problem::new(Code::BackupBroken, detail));
        }
        let keyspace = match part {
            Space::Buckets => &self.opened.buckets,
            Space::Node => &self.opened.node,
            Space::Queues => &self.opened.queues,
        };
        self.batch.insert(keyspace, key, value);
        (self.batch_bytes, self.entries) = (self.batch_bytes + key.len() + value.len(), self.entries + 1);
        if self.batch_bytes >= BATCH_BYTES { self.write() } else { Ok(()) }
    }

    /// Entries taken so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Makes all of it durable, opens it as a node would, and puts it in its place. The folder is free afterwards.
    ///
    /// # Errors
    /// `DataNewer`, `StateCorrupt`: what was restored is no sound state; those of the disk. Nothing is in its place.
    pub fn finish(mut self) -> Result<(), Problem> {
        self.write()?;
        self.opened.database.persist(PersistMode::SyncAll).map_err(|error| failed(&error))?;
        let Self { data, opened, memory, batch, options, lock, .. } = self;
        drop((batch, memory, opened));
        let beside = data.join(RESTORING);
        drop(State::open(&beside, options)?);
        let place = || -> io::Result<()> {
            fs::rename(beside.join("state"), data.join("state"))?;
            File::open(&beside)?.sync_all()?;
            File::open(&data)?.sync_all()?;
            fs::remove_dir_all(&beside)
        };
        place().map_err(|error| error::from_io(&format!("restore into {}", data.display()), &error))?;
        drop(lock);
        Ok(())
    }

    fn write(&mut self) -> Result<(), Problem> {
        let free = self.options.disk.bytes_free(&self.data).unwrap_or(u64::MAX);
        let needed = self.options.reserve_bytes.saturating_add(self.batch_bytes as u64);
        if free < needed {
            let detail = format!("{free} bytes are free below {}, a restore needs {needed}", self.data.display());
            return Err(Problem::new(Code::DiskFull, detail));
        }
        let batch = std::mem::replace(&mut self.batch, batch_of(&self.opened));
        self.batch_bytes = 0;
        batch.commit().map_err(|error| failed(&error))?;
        loop {
            self.memory.tend().map_err(|error| failed(&error))?;
            if !self.memory.is_slow() {
                return Ok(());
            }
            thread::sleep(PACE_STEP);
            // A thread that writes tables and has given up says so here.
            self.opened.database.persist(PersistMode::Buffer).map_err(|error| failed(&error))?;
        }
    }
}

/// # Errors
/// `RestoreUnfinished`: a restore into this data folder has begun, and has not put a state in its place.
pub fn check_not_restoring(data: &Path) -> Result<(), Problem> {
    match data.join(RESTORING).exists() && !data.join("state").exists() {
        true => {
            let detail = format!("a restore into {} has begun and has not ended", data.display());
            Err(Problem::new(Code::RestoreUnfinished, detail))
        }
        false => Ok(()),
    }
}

fn batch_of(opened: &Opened) -> OwnedWriteBatch {
    opened.database.batch().durability(Some(PersistMode::Buffer))
}

fn failed(error: &fjall::Error) -> Problem {
    error::from_database("write what is restored", error)
}
