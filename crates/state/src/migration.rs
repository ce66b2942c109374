//! Carries a data folder of format 1 over to the present one, at the first start of a version that writes it.
//!
//! ```text
//!  format 1                                format 2
//!  name · 00 · key                         ID · key
//!  02 · own time · name · 00 · key         02 · own time · ID · key
//!  01 · name: what it holds                01 · name: ID, what it holds
//! ```
//! First everything is read once: what is damaged or too large for the disk is refused before anything has changed.
//! Then one batch gives every bucket its id and sets the format to [`UNDER_WAY`], which no version takes for its own.
//! Then each batch takes some entries out from under their old keys and puts them under the new ones, and what notes
//! their expiry with them; old and new keys are apart, so what is left to do is what still has an old key. The last
//! batch sets the new format. A batch is whole or not there, and they reach the disk in their order: a start that ends
//! anywhere is gone on with by the next one.
//!
//! Queues and the node's records are as they were. Space is needed for all entries once more: the old ones go when
//! tables are merged. Memory is needed for a batch, and for what waits to be written out as tables.

use crate::Options;
use crate::engine::Opened;
use crate::envelope;
use crate::error::from_database;
use crate::keys::{self, BucketId};
use crate::ledger::BucketCounts;
use crate::memory::Memory;
use crate::names::Holding;
use fjall::{OwnedWriteBatch, PersistMode, Slice};
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The format that is carried over, and what stands in its place until all of it is.
const OLD: &[u8] = b"1";
const UNDER_WAY: &[u8] = b"1 to 2";
/// The least key of an entry in format 1: a name begins with one of `-.0-9_a-z`.
const FIRST: &[u8] = b"-";

/// What one batch carries over at most, except that one entry may be larger.
const BATCH_ENTRIES_MAX: u64 = 1_000;
const BATCH_BYTES_MAX: u64 = 1 << 20;
/// How often it is said how far it has come.
const SAY_EVERY: Duration = Duration::from_secs(5);
/// How long writing waits for tables, each time it looks.
const PACE_STEP: Duration = Duration::from_millis(1);

/// What helps where the folder is of another format.
const OTHER_VERSION: &str = "use the version of lighter that wrote it, or choose another folder with --data-folder";
/// What helps where it cannot be read and nothing has changed.
const SALVAGE: &str = "start the version of lighter that wrote it, or copy what can be read with `lighter salvage`";
/// And once no other version takes it.
const SALVAGE_ONLY: &str = "restore the data folder from a backup, or copy what can be read with `lighter salvage`";

/// Whether what is stored has to be carried over.
///
/// # Errors
/// `DataNewer` when a later version wrote it; `DataUnusable` when it is of a format that is not known.
pub fn is_needed(opened: &Opened, folder: &Path) -> Result<bool, Problem> {
    let what = format!("read the format of {}", folder.display());
    let failed = |error: fjall::Error| from_database(&what, &error);
    let unusable = |detail: String| Problem::new(Code::DataUnusable, detail).with_hint(OTHER_VERSION);
    match opened.buckets.get(keys::FORMAT).map_err(failed)? {
        Some(format) if *format == *keys::FORMAT_VALUE => Ok(false),
        Some(format) if [OLD, UNDER_WAY].contains(&&*format) => Ok(true),
        Some(format) => {
            let [found, ours] = [&format, keys::FORMAT_VALUE].map(String::from_utf8_lossy);
            let detail = format!("{} is written in format {found:?}", folder.display());
            let detail = format!("{detail}, this version reads formats 1 and {ours}");
            Err(if is_newer(&format) { Problem::new(Code::DataNewer, detail) } else { unusable(detail) })
        }
        None if opened.buckets.is_empty().map_err(failed)? => Ok(false),
        None => Err(unusable(format!("{} was written by an older version of lighter", folder.display()))),
    }
}

/// Whether a later version wrote this: a greater number is in it, as in `2 to 3` of one that is carried over.
fn is_newer(format: &[u8]) -> bool {
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<u64>().ok();
    format.split(|byte| *byte == b' ').filter_map(number).max() > number(keys::FORMAT_VALUE)
}

/// Carries everything over, and makes it durable.
///
/// # Errors
/// `StateCorrupt` names what cannot be read, and `DiskFull` says how much space is needed: nothing has changed, or the
/// next start goes on.
pub fn run(opened: &Opened, memory: &Memory, folder: &Path, options: &Options) -> Result<(), Problem> {
    let mut migration = Migration { opened, memory, folder, options, ids: BTreeMap::new(), last: BucketId::NONE };
    let began = Instant::now();
    let all = migration.look()?;
    let needed = all.bytes.saturating_add(all.bytes.min(crate::JOURNAL_BYTES_MAX));
    migration.check_space(needed)?;
    let (entries, folder_name) = (all.entries, folder.display());
    tracing::info!("{folder_name} is carried over to a new format: {entries} entries, {needed} bytes of space needed");
    migration.name_buckets()?;
    let (mut next, mut carried, mut said) = (FIRST.to_vec(), 0, Instant::now());
    while let Some(Batch { last, entries }) = migration.carry_some(&next)? {
        (next, carried) = (keys::just_after(&last), carried + entries);
        if said.elapsed() >= SAY_EVERY {
            said = Instant::now();
            tracing::info!("{carried} of {} entries are carried over", all.entries);
        }
        migration.pace()?;
    }
    migration.end()?;
    tracing::info!("{folder_name} is carried over, {carried} entries in {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// What there is to do.
#[derive(Default)]
struct All {
    entries: u64,
    bytes: u64,
}

/// What one batch has done.
struct Batch {
    /// The last of the old keys.
    last: Slice,
    entries: u64,
}

struct Migration<'a> {
    opened: &'a Opened,
    memory: &'a Memory,
    folder: &'a Path,
    options: &'a Options,
    ids: BTreeMap<String, BucketId>,
    last: BucketId,
}

impl Migration<'_> {
    /// Reads all entries that have an old key.
    fn look(&self) -> Result<All, Problem> {
        let mut all = All::default();
        for entry in self.opened.buckets.range(FIRST..) {
            let (key, value) = entry.into_inner().map_err(|error| self.unreadable(&error))?;
            self.parts(&key)?;
            all.entries += 1;
            all.bytes += (key.len() + value.len()) as u64;
        }
        Ok(all)
    }

    fn check_space(&self, needed: u64) -> Result<(), Problem> {
        let Ok(free) = self.options.disk.bytes_free(self.folder) else { return Ok(()) };
        let needed = needed.saturating_add(self.options.reserve_bytes);
        if free >= needed {
            return Ok(());
        }
        let detail = format!("{free} bytes are free below {}, a new format needs {needed}", self.folder.display());
        Err(Problem::new(Code::DiskFull, detail))
    }

    /// Gives each bucket its id, unless that has happened.
    fn name_buckets(&mut self) -> Result<(), Problem> {
        let mut batch = self.batch();
        let (start, end) = keys::all_names();
        for entry in self.opened.buckets.range(start..end) {
            let (key, value) = entry.into_inner().map_err(|error| self.unreadable(&error))?;
            let damaged = || self.corrupt("what a bucket holds cannot be read");
            let name = keys::named(&key).ok_or_else(damaged)?;
            if let Some(Holding { id, .. }) = Holding::decode(&value) {
                self.last = self.last.max(id);
                self.ids.insert(name.to_owned(), id);
            } else {
                let counts = BucketCounts::decode(&value).ok_or_else(damaged)?;
                let name = name.to_owned();
                self.name_bucket(name, counts, &mut batch);
            }
        }
        batch.insert(&self.opened.buckets, keys::FORMAT, UNDER_WAY);
        self.commit(batch)
    }

    fn name_bucket(&mut self, name: String, counts: BucketCounts, batch: &mut OwnedWriteBatch) -> BucketId {
        let id = self.last.next().expect("there are fewer buckets than ids");
        batch.insert(&self.opened.buckets, keys::name(&name), Holding { id, counts }.encode());
        batch.insert(&self.opened.buckets, keys::LAST_ID, id.encode());
        self.last = id;
        self.ids.insert(name, id);
        id
    }

    /// Carries over the first entries from the old key `next` on. None when there are no more.
    fn carry_some(&mut self, next: &[u8]) -> Result<Option<Batch>, Problem> {
        let (mut batch, mut done, mut bytes) = (self.batch(), None, 0);
        for entry in self.opened.buckets.range(next..) {
            let (old, value) = entry.into_inner().map_err(|error| self.unreadable(&error))?;
            let (name, key) = self.parts(&old)?;
            // A bucket that is not counted: never seen, and better named than lost.
            let id = match self.ids.get(name) {
                Some(id) => *id,
                None => self.name_bucket(name.to_owned(), BucketCounts::default(), &mut batch),
            };
            let new = [&id.encode()[..], key].concat();
            let buckets = &self.opened.buckets;
            if let Ok((envelope::Header { expires_ms: Some(at), .. }, _)) = envelope::open(&value) {
                batch.remove(buckets, keys::expiry(at, &old));
                batch.insert(buckets, keys::expiry(at, &new), []);
            }
            bytes += (old.len() + value.len()) as u64;
            batch.remove(buckets, old.clone());
            batch.insert(buckets, new, value);
            let entries = done.map_or(0, |Batch { entries, .. }| entries) + 1;
            done = Some(Batch { last: old, entries });
            if entries == BATCH_ENTRIES_MAX || bytes >= BATCH_BYTES_MAX {
                break;
            }
        }
        if done.is_some() {
            self.check_space(bytes)?;
            self.commit(batch)?;
        }
        Ok(done)
    }

    fn end(&self) -> Result<(), Problem> {
        let mut batch = self.batch();
        batch.insert(&self.opened.buckets, keys::FORMAT, keys::FORMAT_VALUE);
        self.commit(batch)?;
        self.opened.database.persist(PersistMode::SyncAll).map_err(|error| self.failed(&error))
    }

    /// Waits while much is in memory that has to be written out as tables.
    fn pace(&self) -> Result<(), Problem> {
        loop {
            self.memory.tend().map_err(|error| self.failed(&error))?;
            if !self.memory.is_slow() {
                return Ok(());
            }
            thread::sleep(PACE_STEP);
            // A thread that writes tables and has given up says so here.
            self.opened.database.persist(PersistMode::Buffer).map_err(|error| self.failed(&error))?;
        }
    }

    fn batch(&self) -> OwnedWriteBatch {
        self.opened.database.batch().durability(Some(PersistMode::Buffer))
    }

    fn commit(&self, batch: OwnedWriteBatch) -> Result<(), Problem> {
        batch.commit().map_err(|error| self.failed(&error))
    }

    /// Name and key of an entry's old key.
    fn parts<'a>(&self, old: &'a [u8]) -> Result<(&'a str, &'a [u8]), Problem> {
        let end = old.iter().position(|byte| *byte == 0);
        let parts = end.and_then(|end| Some((std::str::from_utf8(&old[..end]).ok()?, &old[end + 1..])));
        parts.ok_or_else(|| self.corrupt("there is a key of no bucket"))
    }

    fn unreadable(&self, error: &fjall::Error) -> Problem {
        self.failed(error).with_hint(self.salvage())
    }

    fn failed(&self, error: &fjall::Error) -> Problem {
        from_database(&format!("carry {} over to a new format", self.folder.display()), error)
    }

    fn corrupt(&self, detail: &str) -> Problem {
        let detail = format!("cannot carry {} over to a new format: {detail}", self.folder.display());
        Problem::new(Code::StateCorrupt, detail).with_hint(self.salvage())
    }

    fn salvage(&self) -> &'static str {
        let format = self.opened.buckets.get(keys::FORMAT).ok().flatten();
        if format.is_some_and(|format| *format == *OLD) { SALVAGE } else { SALVAGE_ONLY }
    }
}
