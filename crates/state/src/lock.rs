//! The lock on a data folder: one node at a time, for as long as it lives.
//!
//! The kernel holds the lock (`flock`) and lets go of it when the process ends, however it ends. The file's content,
//! the process id of the holder, is only there for the message.

use problem::{Code, Problem};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

/// Held by the node that uses the folder. Dropping it frees the folder.
#[derive(Debug)]
pub struct DataLock {
    _file: File,
}

impl DataLock {
    /// Takes the lock of `folder`, which must exist.
    ///
    /// # Errors
    /// [`Code::DataLocked`] when another process (or another part of this one) holds it; the codes of [`from_io`]
    /// otherwise.
    ///
    /// [`from_io`]: crate::error::from_io
    pub fn take(folder: &Path) -> Result<Self, Problem> {
        let path = folder.join("lock");
        let failed = |error: io::Error| crate::error::from_io(&format!("lock {}", path.display()), &error);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(folder, &mut file)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

impl DataLock {
    /// Holds the lock of `folder` without writing to it. None where there is no file to lock: nobody uses the folder.
    ///
    /// # Errors
    /// As those of [`DataLock::take`].
    pub fn hold(folder: &Path) -> Result<Option<Self>, Problem> {
        let path = folder.join("lock");
        let failed = |error: io::Error| crate::error::from_io(&format!("lock {}", path.display()), &error);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Err(locked(folder, &mut file)),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

fn locked(folder: &Path, file: &mut File) -> Problem {
    let mut holder = String::new();
    let holder = match file.rewind().and_then(|()| file.take(32).read_to_string(&mut holder)) {
        Ok(_) if !holder.trim().is_empty() => format!("process {}", holder.trim()),
        _ => "a process that has not said its id".to_owned(),
    };
    Problem::new(Code::DataLocked, format!("data folder {} is used by {holder}", folder.display()))
}
