//! Recognises a file: what was found out about it holds as long as this stamp does not change.

use crate::error::from_io;
use problem::Problem;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    pub bytes: u64,
    /// The time of the last write. Not of the last change: noting the last use would count as one.
    written: (i64, i64),
}

impl Stamp {
    pub fn of(file: &File, path: &Path) -> Result<Self, Problem> {
        file.metadata().map(|data| Self::from(&data)).map_err(|error| from_io("look at", path, &error))
    }

    /// Of whatever lies at `path` now.
    pub fn at(path: &Path) -> Option<Self> {
        fs::symlink_metadata(path).ok().map(|data| Self::from(&data))
    }
}

impl From<&Metadata> for Stamp {
    fn from(data: &Metadata) -> Self {
        Self { device: data.dev(), inode: data.ino(), bytes: data.len(), written: (data.mtime(), data.mtime_nsec()) }
    }
}
