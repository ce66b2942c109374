//! A disk that can lose its power: knows what was synced, and makes images of what a power cut may leave.
//!
//! ```text
//!  the real folder      what is written, in memory as far as the drive is concerned
//!  the shadow           content of each file at its last sync; names in each folder at its last sync
//!       │ cut
//!       ▼
//!  an image             synced sectors as they were; each other sector of 512 bytes old, new or, where nothing was, garbage;
//!                       files that were made, renamed or removed since: so or not
//! ```
//! All syncs of the process come by here, those of the database as well: `fsync` and `fdatasync` of the C library are
//! replaced in this test by functions that note what is synced, and do nothing else.

use random::Random;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString, c_int};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

const SECTOR: usize = 512;

/// The folders that are watched.
static DISKS: Mutex<Vec<Arc<Disk>>> = Mutex::new(Vec::new());

// SAFETY: nothing else in the test defines this name, and it has the type the C library gives it.
#[allow(unsafe_code, reason = "the only way to learn what the database syncs")]
#[unsafe(no_mangle)]
extern "C" fn fsync(file: c_int) -> c_int {
    synced(file);
    0
}

// SAFETY: as above.
#[allow(unsafe_code, reason = "the only way to learn what the database syncs")]
#[unsafe(no_mangle)]
extern "C" fn fdatasync(file: c_int) -> c_int {
    synced(file);
    0
}

fn synced(file: c_int) {
    let Ok(path) = fs::read_link(format!("/proc/self/fd/{file}")) else { return };
    let disk = DISKS.lock().unwrap().iter().find(|disk| path.starts_with(&disk.root)).cloned();
    if let Some(disk) = disk {
        disk.sync(&path);
    }
}

/// One folder on the disk, watched until it is dropped by [`Disk::forget`].
pub struct Disk {
    root: PathBuf,
    shadow: Mutex<Shadow>,
    /// From this sync on nothing is written though the disk says so.
    lies_from: AtomicU64,
    /// Called in the middle of each sync, when what it syncs may or may not be on the disk.
    on_sync: Box<dyn Fn(u64) -> Option<Cut> + Send + Sync>,
}

/// A power cut that is to happen: where the image goes, and the seed of what is lost.
pub struct Cut {
    pub image: PathBuf,
    pub seed: u64,
}

#[derive(Default)]
struct Shadow {
    files: HashMap<u64, Kept>,
    folders: HashMap<PathBuf, BTreeMap<OsString, Name>>,
    syncs: u64,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name {
    inode: u64,
    is_folder: bool,
}

/// A file as of its last sync. It is kept open, so that its number is not given to another one.
struct Kept {
    _open: File,
    content: Content,
}

/// Bytes, followed by zeros up to a length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Content {
    bytes: Vec<u8>,
    length: u64,
}

impl Disk {
    /// Watches `root`. All that is in it already counts as synced.
    pub fn watch(root: &Path, on_sync: impl Fn(u64) -> Option<Cut> + Send + Sync + 'static) -> Arc<Self> {
        let mut shadow = Shadow::default();
        shadow.add(root);
        let (shadow, lies_from) = (Mutex::new(shadow), AtomicU64::new(u64::MAX));
        let disk = Arc::new(Self { root: root.to_owned(), shadow, lies_from, on_sync: Box::new(on_sync) });
        DISKS.lock().unwrap().push(Arc::clone(&disk));
        disk
    }

    /// From sync number `sync` on the disk says that it has what it has not: tests of the tests.
    pub fn lie_from(&self, sync: u64) {
        self.lies_from.store(sync, Ordering::SeqCst);
    }

    pub fn forget(self: &Arc<Self>) {
        DISKS.lock().unwrap().retain(|disk| !Arc::ptr_eq(disk, self));
    }

    /// Cuts the power now.
    pub fn cut(&self, cut: &Cut) {
        self.shadow().image(&self.root, &cut.image, &mut Style::new(cut.seed));
    }

    fn shadow(&self) -> MutexGuard<'_, Shadow> {
        self.shadow.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn sync(&self, path: &Path) {
        let mut shadow = self.shadow();
        shadow.syncs += 1;
        if let Some(cut) = (self.on_sync)(shadow.syncs) {
            shadow.image(&self.root, &cut.image, &mut Style::new(cut.seed));
        }
        if shadow.syncs < self.lies_from.load(Ordering::SeqCst) {
            shadow.note(path);
        }
    }
}

impl Shadow {
    fn add(&mut self, path: &Path) {
        self.note(path);
        for (name, entry) in self.folders.get(path).cloned().unwrap_or_default() {
            if entry.is_folder { self.add(&path.join(name)) } else { self.note(&path.join(name)) }
        }
    }

    /// `path` is on the disk now as it is.
    fn note(&mut self, path: &Path) {
        if path.is_dir() {
            self.folders.insert(path.to_owned(), names(path));
        } else if let Some((inode, open)) = open(path) {
            let content = Content::of(&open);
            self.files.insert(inode, Kept { _open: open, content });
        }
    }

    /// Makes `to` what `from` may be after a power cut.
    fn image(&self, from: &Path, to: &Path, style: &mut Style) {
        fs::create_dir_all(to).unwrap();
        let (durable, now) = (self.folders.get(from).cloned().unwrap_or_default(), names(from));
        let all: BTreeSet<&OsStr> = durable.keys().chain(now.keys()).map(OsString::as_os_str).collect();
        for name in all {
            let Some(entry) = style.choose_name(durable.get(name).copied(), now.get(name).copied()) else { continue };
            let (source, target) = (from.join(name), to.join(name));
            if entry.is_folder {
                self.image(&source, &target, style);
                continue;
            }
            let durable = self.files.get(&entry.inode).map(|kept| &kept.content);
            // Renamed meanwhile, it is found by its number alone, as it was synced.
            let now = open(&source).filter(|(inode, _)| *inode == entry.inode).map(|(_, file)| Content::of(&file));
            let old = durable.cloned().unwrap_or_default();
            style.tear(&old, &now.unwrap_or_else(|| old.clone())).write(&target);
        }
    }
}

impl Content {
    fn of(file: &File) -> Self {
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        // Journals are made long ahead of their content.
        let written = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(0)).unwrap_or(length).min(length);
        let mut bytes = vec![0; written as usize];
        let mut read = 0;
        while read < bytes.len() {
            match file.read_at(&mut bytes[read..], read as u64) {
                Ok(0) | Err(_) => break,
                Ok(more) => read += more,
            }
        }
        bytes.truncate(read);
        Self { bytes, length }
    }

    fn write(&self, path: &Path) {
        let file = File::create(path).unwrap();
        file.write_all_at(&self.bytes, 0).unwrap();
        file.set_len(self.length).unwrap();
    }

    fn sector(&self, index: usize) -> [u8; SECTOR] {
        let mut sector = [0; SECTOR];
        let start = (index * SECTOR).min(self.bytes.len());
        let end = (start + SECTOR).min(self.bytes.len());
        sector[..end - start].copy_from_slice(&self.bytes[start..end]);
        sector
    }
}

/// How one power cut treats what was not synced: so that pure cases come as often as mixed ones.
struct Style {
    rng: Random,
    /// Of 4 things that were not synced, how many are on the disk.
    kept: u64,
    /// Whether what is on the disk is a beginning, as when the drive writes in order.
    in_order: bool,
    garbage: bool,
}

impl Style {
    fn new(seed: u64) -> Self {
        let mut rng = Random(seed);
        let (kept, in_order, garbage) = (rng.below(5), rng.below(3) == 0, rng.below(4) == 0);
        Self { rng, kept, in_order, garbage }
    }

    fn keeps(&mut self) -> bool {
        self.rng.below(4) < self.kept
    }

    fn choose_name(&mut self, durable: Option<Name>, now: Option<Name>) -> Option<Name> {
        if durable == now || self.keeps() { now } else { durable }
    }

    fn tear(&mut self, old: &Content, new: &Content) -> Content {
        if old == new {
            return old.clone();
        }
        let sectors = old.bytes.len().max(new.bytes.len()).div_ceil(SECTOR);
        let end = if self.in_order { self.rng.below(sectors as u64 + 1) as usize } else { usize::MAX };
        let mut bytes = Vec::with_capacity(sectors * SECTOR);
        for index in 0..sectors {
            let (before, after) = (old.sector(index), new.sector(index));
            let is_new = if self.in_order { index < end } else { self.keeps() };
            // A sector is written as a whole or not at all; one that was never written may hold anything.
            let is_fresh = before == [0; SECTOR] && before != after;
            if is_fresh && !is_new && self.garbage && self.rng.below(4) == 0 {
                bytes.extend((0..SECTOR).map(|_| self.rng.next() as u8));
            } else {
                bytes.extend(if is_new { after } else { before });
            }
        }
        let length = match self.rng.below(4) {
            _ if old.length == new.length => new.length,
            0 => old.length,
            1 => (old.length.min(new.length) + self.rng.below(old.length.abs_diff(new.length) + 1)) / 512 * 512,
            _ => new.length,
        };
        // A file is never shorter than what of it was synced, unless it was cut on purpose.
        let length = length.max(old.length.min(new.length));
        bytes.truncate(length as usize);
        Content { bytes, length }
    }
}

fn names(folder: &Path) -> BTreeMap<OsString, Name> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let name = |entry: fs::DirEntry| {
        let metadata = entry.metadata().ok()?;
        Some((entry.file_name(), Name { inode: metadata.ino(), is_folder: metadata.is_dir() }))
    };
    entries.flatten().filter_map(name).collect()
}

fn open(path: &Path) -> Option<(u64, File)> {
    let file = File::open(path).ok()?;
    Some((file.metadata().ok()?.ino(), file))
}
