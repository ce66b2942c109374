//! Images and compiled artefacts on disk: stored by hash, checked when they are read, evicted by size.
//!
//! ```text
//! upload ─▶ ImageWriter ─▶ images/ab/<sha-256>.wasm ──read_image──▶ compile ─▶ Shelf::put
//!            hash, bound                                                          │
//! first request ◀── Artefact (an open file, checked) ◀── Shelf::open ◀── artefacts/<class>-<fingerprint>/…
//! ```
//! An image or artefact is written beside its place, made durable, renamed into place, and the name made durable: a
//! crash anywhere leaves the old state or the new one. A [`Shelf`] holds the artefacts of one class under one
//! fingerprint of engine and CPU; when either changes, the class opens another shelf and finds it empty.
//!
//! All calls block on the disk. One process uses a folder at a time; the caller that opens the warehouse must ensure
//! that.
//!
//! ```
//! use warehouse::{Config, ImageHash, Warehouse};
//!
//! let folder = tempfile::tempdir()?;
//! let warehouse = Warehouse::open(&folder.path().join("warehouse"), Config::default())?;
//! let mut writer = warehouse.receive_image(Some(ImageHash::of(b"image")), None)?;
//! writer.write(b"ima")?;
//! writer.write(b"ge")?;
//! let image = writer.finish()?;
//!
//! let shelf = warehouse.shelf("wasm", "engine48-x86_64")?;
//! assert!(shelf.open(&image)?.is_none());
//! shelf.put(&image, b"compiled")?;
//! assert_eq!(shelf.open(&image)?.unwrap().bytes, 8);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod disk;
mod error;
mod hash;
mod image;
mod ledger;
mod scan;
mod shelf;
mod stamp;

pub use disk::{Disk, RealDisk};
pub use hash::{ImageHash, NotAHash};
pub use image::ImageWriter;
pub use shelf::{Artefact, Shelf};

use crate::ledger::{Ledger, LedgerEntry, Turn};
use parking_lot::Mutex;
use problem::Problem;
use std::collections::HashSet;
use std::fs::{File, FileTimes};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// How often the time of last use is written to disk. SD cards wear out.
const USED_WRITTEN_EVERY: Duration = Duration::from_secs(3_600);

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// One image; a larger one is refused (L2005).
    pub image_bytes_max: u64,
    /// All images. Over it the least recently used go; what is in use never does, and then a new one is refused
    /// (L5003).
    pub images_bytes_max: u64,
    /// All artefacts, in the same way. Those of other fingerprints go first.
    pub artefacts_bytes_max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { image_bytes_max: 256 << 20, images_bytes_max: 4 << 30, artefacts_bytes_max: 2 << 30 }
    }
}

/// The warehouse of a node. Clones share it.
#[derive(Clone)]
pub struct Warehouse {
    inner: Arc<Inner>,
}

/// How much is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub images: usize,
    pub images_bytes: u64,
    pub artefacts: usize,
    pub artefacts_bytes: u64,
}

/// An image that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredImage {
    pub hash: ImageHash,
    pub bytes: u64,
    pub used: SystemTime,
}

pub(crate) struct Inner {
    root: PathBuf,
    config: Config,
    disk: Box<dyn Disk>,
    clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    incoming: AtomicU64,
    stock: Mutex<Stock>,
}

/// Everything that changes. Files are put in place and removed under its lock, so that it says what is on disk.
pub(crate) struct Stock {
    images: Ledger<ImageHash, ()>,
    artefacts: Ledger<ArtefactKey, shelf::Detail>,
    in_use: HashSet<ImageHash>,
    shelves: HashSet<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ArtefactKey {
    shelf: Arc<str>,
    image: ImageHash,
}

impl Warehouse {
    /// Opens the warehouse in the folder `root`, makes it if need be, and sweeps out what a crash left behind.
    ///
    /// # Errors
    /// [`problem::Code::DataUnusable`], [`problem::Code::DiskFull`], [`problem::Code::DiskFailed`].
    pub fn open(root: &Path, config: Config) -> Result<Self, Problem> {
        Self::open_with(root, config, RealDisk, SystemTime::now)
    }

    /// The same with another disk and clock.
    ///
    /// # Errors
    /// As [`Warehouse::open`].
    pub fn open_with(
        root: &Path,
        config: Config,
        disk: impl Disk,
        clock: impl Fn() -> SystemTime + Send + Sync + 'static,
    ) -> Result<Self, Problem> {
        let found = scan::open(root)?;
        let mut images = Ledger::new(config.images_bytes_max);
        for file in found.images {
            images.insert(file.name, LedgerEntry { bytes: file.bytes, used: file.used, detail: () });
        }
        let mut artefacts = Ledger::new(config.artefacts_bytes_max);
        for file in found.artefacts {
            let key = ArtefactKey { shelf: file.name.shelf, image: file.name.image };
            let detail = shelf::Detail { hash: file.name.hash, checked: None, used_written: file.used };
            artefacts.insert(key, LedgerEntry { bytes: file.bytes, used: file.used, detail });
        }
        let stock = Stock { images, artefacts, in_use: HashSet::new(), shelves: HashSet::new() };
        Ok(Self {
            inner: Arc::new(Inner {
                root: root.to_owned(),
                config,
                disk: Box::new(disk),
                clock: Box::new(clock),
                incoming: AtomicU64::new(0),
                stock: Mutex::new(stock),
            }),
        })
    }

    /// Says which images are in use: they and their artefacts on open shelves are never evicted. Replaces what was
    /// said before, then evicts what is over the bounds. Until the first call nothing is in use; open the shelves
    /// before.
    ///
    /// # Errors
    /// The disk refused to remove a file. What is over the bounds but in use is no error.
    pub fn set_in_use(&self, images: HashSet<ImageHash>) -> Result<(), Problem> {
        let mut stock = self.inner.stock.lock();
        stock.in_use = images;
        let _held_bytes = self.inner.evict_images(&mut stock, 0)?;
        let _held_bytes = self.inner.evict_artefacts(&mut stock, 0)?;
        Ok(())
    }

    /// Every stored image, in the order of their hashes.
    pub fn images(&self) -> Vec<StoredImage> {
        let stock = self.inner.stock.lock();
        let images = stock.images.iter();
        let mut images: Vec<_> =
            images.map(|(hash, entry)| StoredImage { hash: *hash, bytes: entry.bytes, used: entry.used }).collect();
        images.sort_unstable_by_key(|image| image.hash);
        images
    }

    pub fn usage(&self) -> Usage {
        let stock = self.inner.stock.lock();
        Usage {
            images: stock.images.iter().count(),
            images_bytes: stock.images.bytes(),
            artefacts: stock.artefacts.iter().count(),
            artefacts_bytes: stock.artefacts.bytes(),
        }
    }
}

impl Inner {
    /// A new file beside its place.
    fn create_incoming(&self) -> Result<(PathBuf, File), Problem> {
        let path = scan::incoming_path(&self.root, self.incoming.fetch_add(1, Ordering::Relaxed));
        let file = self.disk.create(&path).map_err(|error| error::from_io("make", &path, &error))?;
        Ok((path, file))
    }

    /// Makes a folder durably.
    fn create_folder(&self, folder: &Path, parent: &Path) -> Result<(), Problem> {
        let created =
            self.disk.create_folder(folder).map_err(|error| error::from_io("make the folder", folder, &error))?;
        if created { self.sync_folder(parent) } else { Ok(()) }
    }

    fn sync_folder(&self, folder: &Path) -> Result<(), Problem> {
        self.disk.sync_folder(folder).map_err(|error| error::from_io("make durable", folder, &error))
    }

    /// A file that is already gone is as good as removed.
    fn remove_file(&self, path: &Path) -> Result<(), Problem> {
        match self.disk.remove(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error::from_io("remove", path, &error)),
            _ => Ok(()),
        }
    }

    fn reserve_for_image(&self, bytes: u64) -> Result<(), Problem> {
        let mut stock = self.stock.lock();
        if let Some(held_bytes) = self.evict_images(&mut stock, bytes)? {
            return Err(error::no_room("images", bytes, held_bytes, self.config.images_bytes_max));
        }
        stock.images.reserve(bytes);
        Ok(())
    }

    fn reserve_for_artefact(&self, bytes: u64) -> Result<(), Problem> {
        let mut stock = self.stock.lock();
        if let Some(held_bytes) = self.evict_artefacts(&mut stock, bytes)? {
            return Err(error::no_room("artefacts", bytes, held_bytes, self.config.artefacts_bytes_max));
        }
        stock.artefacts.reserve(bytes);
        Ok(())
    }

    /// Makes room for `bytes`. When there cannot be enough, says how much is held by what is in use.
    fn evict_images(&self, stock: &mut Stock, bytes: u64) -> Result<Option<u64>, Problem> {
        let room = stock.images.room_for(bytes, |hash| match stock.in_use.contains(hash) {
            true => Turn::Never,
            false => Turn::Later,
        });
        for hash in room.victims {
            self.remove_file(&scan::image_path(&self.root, &hash))?;
            stock.images.remove(&hash);
            tracing::info!(%hash, "evicted an image");
        }
        Ok(room.held_bytes)
    }

    fn evict_artefacts(&self, stock: &mut Stock, bytes: u64) -> Result<Option<u64>, Problem> {
        let room = stock.artefacts.room_for(bytes, |key| {
            match (stock.shelves.contains(&key.shelf), stock.in_use.contains(&key.image)) {
                (false, _) => Turn::First,
                (true, false) => Turn::Later,
                (true, true) => Turn::Never,
            }
        });
        for key in room.victims {
            let Some(entry) = stock.artefacts.get(&key) else { continue };
            self.remove_file(&scan::artefact_path(&self.root, &key.shelf, &key.image, &entry.detail.hash))?;
            stock.artefacts.remove(&key);
            tracing::info!(image = %key.image, shelf = %key.shelf, "evicted an artefact");
        }
        Ok(room.held_bytes)
    }

    /// Writes the time of last use to the file itself. Only for the order of eviction after a restart: a failure costs
    /// nothing but that.
    fn write_used(&self, file: &File, path: &Path, used: SystemTime) {
        if let Err(error) = file.set_times(FileTimes::new().set_accessed(used)) {
            tracing::debug!(path = %path.display(), %error, "cannot note the time of last use");
        }
    }
}
