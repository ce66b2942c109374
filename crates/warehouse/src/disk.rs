//! What the warehouse asks of the disk: a parameter, so that a test can make it fail, fill up or stop half-way.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The disk below the warehouse. Called from many threads; after an error nothing is known about what was done,
/// and the warehouse never relies on it.
pub trait Disk: Send + Sync + 'static {
    /// Makes a file that is not there yet. Only this handle can write it.
    fn create(&self, path: &Path) -> io::Result<File>;
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()>;
    /// Makes the file's bytes durable.
    fn sync(&self, file: &File) -> io::Result<()>;
    /// Puts a file in the place of whatever has the name `to`, at once.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
    /// Makes a folder for the node's user alone. Says whether it was not there.
    fn create_folder(&self, path: &Path) -> io::Result<bool>;
    fn open(&self, path: &Path) -> io::Result<File>;
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The disk that is really there.
#[derive(Debug, Clone, Copy)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o400).open(path)
    }

    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn create_folder(&self, path: &Path) -> io::Result<bool> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}
