//! What the state needs from the disk besides reading and writing: durability and free space.
//!
//! It is a parameter so that a test can make the disk fail, fill up or answer late without having such a disk.

use std::fs::File;
use std::io;
use std::path::Path;

/// The disk below the data folder.
pub trait Disk: Send + Sync + 'static {
    /// Makes everything written to `journal` so far durable. Called by one thread, once for each group of commits.
    ///
    /// # Errors
    /// After any error nothing is known about what reached the disk; it is not asked again for the life of the state.
    fn sync(&self, journal: &File) -> io::Result<()>;

    /// Bytes an ordinary user may still write below `folder`. Called before each group of commits, and at every
    /// commit while there is too little.
    ///
    /// # Errors
    /// An error counts as "enough": the write that follows finds out.
    fn bytes_free(&self, folder: &Path) -> io::Result<u64>;
}

/// The disk that is really there.
#[derive(Debug, Clone, Copy)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn sync(&self, journal: &File) -> io::Result<()> {
        journal.sync_data()
    }

    fn bytes_free(&self, folder: &Path) -> io::Result<u64> {
        let space = rustix::fs::statvfs(folder)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}
