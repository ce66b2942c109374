//! Images: received in chunks, hashed on the way, and hashed again whenever they are read.

use crate::error::from_io;
use crate::ledger::LedgerEntry;
use crate::stamp::Stamp;
use crate::{ImageHash, Inner, Warehouse, scan};
use problem::{Code, Problem};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Takes in one image. Dropped before [`ImageWriter::finish`], it leaves nothing behind.
pub struct ImageWriter {
    inner: Arc<Inner>,
    path: PathBuf,
    file: File,
    hasher: Sha256,
    announced: Option<ImageHash>,
    bytes: u64,
    reserved_bytes: u64,
    in_place: bool,
}

impl Warehouse {
    /// Begins to take in an image that should have the hash `announced` and, if known, `bytes_announced` bytes.
    ///
    /// # Errors
    /// [`Code::ImageTooLarge`] when more is announced than one image may have; otherwise the disk's.
    pub fn receive_image(
        &self,
        announced: Option<ImageHash>,
        bytes_announced: Option<u64>,
    ) -> Result<ImageWriter, Problem> {
        if let Some(bytes) = bytes_announced {
            self.inner.check_image_bytes(bytes)?;
        }
        let (path, file) = self.inner.create_incoming()?;
        Ok(ImageWriter {
            inner: self.inner.clone(),
            path,
            file,
            hasher: Sha256::new(),
            announced,
            bytes: 0,
            reserved_bytes: 0,
            in_place: false,
        })
    }

    /// Is this image here? A corrupt one counts until it is read.
    pub fn has_image(&self, hash: &ImageHash) -> bool {
        self.inner.stock.lock().images.get(hash).is_some()
    }

    /// Opens an image to be passed on, with the number of its bytes. Its hash is not checked: whoever takes it does.
    ///
    /// # Errors
    /// [`Code::ImageUnknown`]: it is not here. Otherwise the disk's.
    pub fn open_image(&self, hash: &ImageHash) -> Result<(File, u64), Problem> {
        let inner = &self.inner;
        if !self.has_image(hash) {
            return Err(Problem::new(Code::ImageUnknown, format!("no image has the hash {hash}")));
        }
        let path = scan::image_path(&inner.root, hash);
        let file = inner.disk.open(&path).map_err(|error| from_io("open", &path, &error))?;
        let bytes = file.metadata().map_err(|error| from_io("read", &path, &error))?.len();
        Ok((file, bytes))
    }

    /// Whether an image of this size is read, as of any that is taken.
    ///
    /// # Errors
    /// [`Code::ImageTooLarge`].
    pub fn check_image_bytes(&self, bytes: u64) -> Result<(), Problem> {
        self.inner.check_image_bytes(bytes)
    }

    /// Reads an image and checks its hash.
    ///
    /// # Errors
    /// - [`Code::ImageUnknown`]: it is not here.
    /// - [`Code::ImageTooLarge`]: it was taken under a larger limit, here or on another node; it stays.
    /// - [`Code::ArtefactCorrupt`]: its bytes are no longer those of its name. It is removed, so that the next upload
    ///   puts it right.
    /// - [`Code::DiskFailed`]: it cannot be read; it stays.
    pub fn read_image(&self, hash: &ImageHash) -> Result<Vec<u8>, Problem> {
        let inner = &self.inner;
        let unknown = || Problem::new(Code::ImageUnknown, format!("no image has the hash {hash}"));
        let stored_bytes = inner.stock.lock().images.get(hash).map(|entry| entry.bytes);
        self.check_image_bytes(stored_bytes.ok_or_else(unknown)?)?;
        let path = scan::image_path(&inner.root, hash);
        let mut file = match inner.disk.open(&path) {
            Ok(file) => file,
            // Evicted since, or removed by someone else.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                inner.forget_image(hash, &path, None)?;
                return Err(unknown());
            }
            Err(error) => return Err(from_io("open", &path, &error)),
        };
        let failed = |error| from_io("read", &path, &error);
        let bytes_announced = file.metadata().map_err(failed)?.len().min(inner.config.image_bytes_max);
        let mut image = Vec::with_capacity(usize::try_from(bytes_announced).unwrap_or(0));
        // One byte over the bound is enough to know that it is not what was stored.
        file.by_ref().take(inner.config.image_bytes_max.saturating_add(1)).read_to_end(&mut image).map_err(failed)?;
        if ImageHash::of(&image) != *hash {
            inner.forget_image(hash, &path, Some(Stamp::of(&file, &path)?))?;
            let detail = format!("the image {hash} is corrupt on disk and was removed");
            return Err(Problem::new(Code::ArtefactCorrupt, detail));
        }
        let used = (inner.clock)();
        if let Some(entry) = inner.stock.lock().images.get_mut(hash) {
            entry.used = used;
        }
        // Reading whole images is rare: to compile them. No need to save on writing the time.
        inner.write_used(&file, &path, used);
        Ok(image)
    }
}

impl ImageWriter {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`Code::ImageTooLarge`]; [`Code::DiskFull`] when the disk is, or all images in use fill the bound; otherwise
    /// [`Code::DiskFailed`]. After an error the writer is of no more use.
    pub fn write(&mut self, chunk: &[u8]) -> Result<(), Problem> {
        let chunk_bytes = chunk.len() as u64;
        self.inner.check_image_bytes(self.bytes.saturating_add(chunk_bytes))?;
        self.inner.reserve_for_image(chunk_bytes)?;
        self.reserved_bytes += chunk_bytes;
        self.bytes += chunk_bytes;
        self.hasher.update(chunk);
        self.inner.disk.write(&mut self.file, chunk).map_err(|error| from_io("write", &self.path, &error))
    }

    /// Bytes taken so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Checks the hash and puts the image in its place. Durable once `Ok`; putting the same image again is no error.
    ///
    /// # Errors
    /// [`Code::ImageHash`] when it is not what was announced; otherwise the disk's. The image may or may not be
    /// stored after an error of the disk; sending it again is safe.
    pub fn finish(mut self) -> Result<ImageHash, Problem> {
        let hash = ImageHash(std::mem::take(&mut self.hasher).finalize().into());
        if let Some(announced) = self.announced.filter(|announced| *announced != hash) {
            let detail = format!("the image was announced as {announced}, what arrived is {hash}");
            return Err(Problem::new(Code::ImageHash, detail));
        }
        let inner = self.inner.clone();
        let now = (inner.clock)();
        inner.write_used(&self.file, &self.path, now);
        inner.disk.sync(&self.file).map_err(|error| from_io("make durable", &self.path, &error))?;
        let place = scan::image_path(&inner.root, &hash);
        let images = scan::images_path(&inner.root);
        let folder = place.parent().unwrap_or(&images);
        inner.create_folder(folder, &images)?;
        {
            // Even when it is here already: what is here may be corrupt, what came in is not.
            let mut stock = inner.stock.lock();
            inner.disk.rename(&self.path, &place).map_err(|error| from_io("rename", &self.path, &error))?;
            self.in_place = true;
            stock.images.release(std::mem::take(&mut self.reserved_bytes));
            stock.images.insert(hash, LedgerEntry { bytes: self.bytes, used: now, detail: () });
        }
        inner.sync_folder(folder)?;
        Ok(hash)
    }
}

impl Drop for ImageWriter {
    fn drop(&mut self) {
        self.inner.stock.lock().images.release(self.reserved_bytes);
        if !self.in_place
            && let Err(problem) = self.inner.remove_file(&self.path)
        {
            tracing::warn!(%problem, "a leftover stays until the next start");
        }
    }
}

impl Inner {
    /// Takes an image out of the stock and off the disk, unless what lies there is no longer what was `seen`: an upload
    /// may have put it right in the meantime.
    fn forget_image(&self, hash: &ImageHash, path: &Path, seen: Option<Stamp>) -> Result<(), Problem> {
        let mut stock = self.stock.lock();
        if Stamp::at(path) == seen {
            stock.images.remove(hash);
            self.remove_file(path)?;
        }
        Ok(())
    }

    fn check_image_bytes(&self, bytes: u64) -> Result<(), Problem> {
        let max = self.config.image_bytes_max;
        if bytes <= max {
            return Ok(());
        }
        Err(Problem::new(Code::ImageTooLarge, format!("the image has {bytes} bytes or more, the limit is {max}")))
    }
}
