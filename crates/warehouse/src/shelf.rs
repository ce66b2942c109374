//! Artefacts: what an isolation class made of images, under one fingerprint of engine and CPU.
//!
//! An artefact is opened on the way to a first request, so that a check is not done twice: the file that was checked is
//! known by device, inode, length and time of change, and no one but this crate writes here.

use crate::error::from_io;
use crate::ledger::LedgerEntry;
use crate::stamp::Stamp;
use crate::{ArtefactKey, ImageHash, Inner, USED_WRITTEN_EVERY, Warehouse, scan};
use problem::{Code, Problem};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Bytes hashed at once: many lanes wide, and still in the nearest caches.
const HASH_CHUNK_BYTES: usize = 64 * 1_024;

/// The artefacts of one isolation class under one fingerprint.
#[derive(Clone)]
pub struct Shelf {
    inner: Arc<Inner>,
    name: Arc<str>,
}

/// An artefact that was checked. The file is open at its start and is nothing but the artefact: map all of it.
#[derive(Debug)]
pub struct Artefact {
    pub file: File,
    /// Where it lies, for messages and for loaders that want a path. It may be evicted; the open file stays good.
    pub path: PathBuf,
    pub bytes: u64,
    /// Whether it was hashed now, or was known to be good.
    pub hashed_now: bool,
}

/// What is known about an artefact beside its size and last use.
#[derive(Debug, Clone)]
pub(crate) struct Detail {
    pub hash: [u8; 32],
    /// The file as it was when its hash was found to be right.
    pub checked: Option<Stamp>,
    pub used_written: SystemTime,
}

impl Warehouse {
    /// The shelf of a class. `fingerprint` must differ whenever an artefact made before would not run: it covers the
    /// engine's version and settings and the CPU's features. An open shelf counts as current until the warehouse is
    /// closed.
    ///
    /// # Errors
    /// The disk's.
    ///
    /// # Panics
    /// `class` or `fingerprint` is not 1 to 64 letters, digits, `.`, `_` or `-`.
    pub fn shelf(&self, class: &str, fingerprint: &str) -> Result<Shelf, Problem> {
        let is_word = |word: &str| {
            (1..=64).contains(&word.len())
                && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
        };
        assert!(is_word(class) && is_word(fingerprint), "not a name for a shelf: {class:?} {fingerprint:?}");
        let name: Arc<str> = format!("{class}-{fingerprint}").into();
        let inner = &self.inner;
        inner.create_folder(&scan::shelf_path(&inner.root, &name), &scan::artefacts_path(&inner.root))?;
        inner.stock.lock().shelves.insert(name.clone());
        Ok(Shelf { inner: inner.clone(), name })
    }
}

impl Shelf {
    /// Is there an artefact for this image? A corrupt one counts until it is opened.
    pub fn has(&self, image: &ImageHash) -> bool {
        self.inner.stock.lock().artefacts.get(&self.key(image)).is_some()
    }

    /// Opens the artefact of `image` and makes sure that it is what was stored. `None`: there is none, make one.
    ///
    /// # Errors
    /// - [`Code::ArtefactCorrupt`]: its bytes are not what was stored. It is removed; make it again from the image.
    /// - [`Code::DiskFailed`]: it cannot be read; it stays.
    pub fn open(&self, image: &ImageHash) -> Result<Option<Artefact>, Problem> {
        let key = self.key(image);
        let Some(known) = self.inner.stock.lock().artefacts.get(&key).map(|entry| entry.detail.clone()) else {
            return Ok(None);
        };
        let path = self.path(image, &known.hash);
        let file = match self.inner.disk.open(&path) {
            Ok(file) => file,
            // Evicted or replaced since, or removed by someone else.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.forget(&key, &known.hash, &path, None)?;
                return Ok(None);
            }
            Err(error) => return Err(from_io("open", &path, &error)),
        };
        let stamp = Stamp::of(&file, &path)?;
        let hashed_now = known.checked != Some(stamp);
        if hashed_now && hash_of(&file, &path)? != known.hash {
            self.forget(&key, &known.hash, &path, Some(stamp))?;
            let detail = format!("the artefact {} is corrupt on disk and was removed", path.display());
            return Err(Problem::new(Code::ArtefactCorrupt, detail).with_hint("it is made again from the image"));
        }
        self.note_use(&key, &known, stamp, &file, &path);
        Ok(Some(Artefact { file, path, bytes: stamp.bytes, hashed_now }))
    }

    /// Stores the artefact of `image` in the place of any earlier one. Durable once `Ok`.
    ///
    /// # Errors
    /// [`Code::DiskFull`] when the disk is, or all artefacts in use fill the bound; [`Code::DiskFailed`]. There may or
    /// may not be an artefact after an error; [`Shelf::open`] never gives a wrong one.
    pub fn put(&self, image: &ImageHash, artefact: &[u8]) -> Result<(), Problem> {
        let inner = &*self.inner;
        let reserved = Reserved::new(inner, artefact.len() as u64)?;
        let (incoming, file) = inner.create_incoming()?;
        let now = (inner.clock)();
        let written = self.write(file, &incoming, artefact, now).and_then(|detail| {
            let entry = LedgerEntry { bytes: artefact.len() as u64, used: now, detail };
            self.put_in_place(image, entry, &incoming, reserved)
        });
        if written.is_err()
            && let Err(problem) = inner.remove_file(&incoming)
        {
            tracing::warn!(%problem, "a leftover stays until the next start");
        }
        written?;
        inner.sync_folder(&scan::shelf_path(&inner.root, &self.name))
    }

    /// Makes the bytes durable. What was written is known to be right: it need not be hashed to be opened.
    fn write(&self, mut file: File, incoming: &Path, artefact: &[u8], now: SystemTime) -> Result<Detail, Problem> {
        let failed = |error| from_io("write", incoming, &error);
        self.inner.disk.write(&mut file, artefact).map_err(failed)?;
        self.inner.write_used(&file, incoming, now);
        self.inner.disk.sync(&file).map_err(failed)?;
        let checked = Some(Stamp::of(&file, incoming)?);
        Ok(Detail { hash: *blake3::hash(artefact).as_bytes(), checked, used_written: now })
    }

    fn put_in_place(
        &self,
        image: &ImageHash,
        entry: LedgerEntry<Detail>,
        incoming: &Path,
        mut reserved: Reserved<'_>,
    ) -> Result<(), Problem> {
        let inner = &*self.inner;
        let hash = entry.detail.hash;
        let mut stock = inner.stock.lock();
        inner.disk.rename(incoming, &self.path(image, &hash)).map_err(|error| from_io("rename", incoming, &error))?;
        stock.artefacts.release(std::mem::take(&mut reserved.bytes));
        let replaced = stock.artefacts.insert(self.key(image), entry);
        // Only after the new one is in place: a crash in between leaves two, and the newer one stays.
        match replaced.filter(|old| old.detail.hash != hash) {
            Some(old) => inner.remove_file(&self.path(image, &old.detail.hash)),
            None => Ok(()),
        }
    }

    fn note_use(&self, key: &ArtefactKey, known: &Detail, stamp: Stamp, file: &File, path: &Path) {
        let now = (self.inner.clock)();
        let write = now.duration_since(known.used_written).is_ok_and(|age| age >= USED_WRITTEN_EVERY);
        if let Some(entry) = self.inner.stock.lock().artefacts.get_mut(key)
            && entry.detail.hash == known.hash
        {
            entry.used = now;
            entry.detail.checked = Some(stamp);
            if write {
                entry.detail.used_written = now;
            }
        }
        if write {
            self.inner.write_used(file, path, now);
        }
    }

    /// Takes an artefact out of the stock and off the disk, unless another one has been put in its place since.
    fn forget(&self, key: &ArtefactKey, hash: &[u8; 32], path: &Path, seen: Option<Stamp>) -> Result<(), Problem> {
        let mut stock = self.inner.stock.lock();
        if Stamp::at(path) == seen && stock.artefacts.get(key).is_some_and(|entry| entry.detail.hash == *hash) {
            stock.artefacts.remove(key);
            self.inner.remove_file(path)?;
        }
        Ok(())
    }

    fn key(&self, image: &ImageHash) -> ArtefactKey {
        ArtefactKey { shelf: self.name.clone(), image: *image }
    }

    fn path(&self, image: &ImageHash, hash: &[u8; 32]) -> PathBuf {
        scan::artefact_path(&self.inner.root, &self.name, image, hash)
    }
}

/// Room in the bound for an artefact that is being written.
struct Reserved<'w> {
    inner: &'w Inner,
    bytes: u64,
}

impl<'w> Reserved<'w> {
    fn new(inner: &'w Inner, bytes: u64) -> Result<Self, Problem> {
        inner.reserve_for_artefact(bytes)?;
        Ok(Self { inner, bytes })
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.inner.stock.lock().artefacts.release(self.bytes);
    }
}

fn hash_of(file: &File, path: &Path) -> Result<[u8; 32], Problem> {
    let mut reader = file;
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; HASH_CHUNK_BYTES];
    let mut hash = || {
        loop {
            match reader.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => hasher.update(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
        }
        reader.rewind()
    };
    hash().map_err(|error| from_io("read", path, &error))?;
    Ok(*hasher.finalize().as_bytes())
}
