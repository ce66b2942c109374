//! Damaged places of tables: where to read on behind one, and which files have any.
//!
//! ```text
//! table   [ block ][ block ][ damaged ][ block ]      a walk stops at the third block, and may go on behind its last
//!          a … f    g … k    l ……… p    q … z         key (p): that key the index knows
//! ```
//! The contents of a damaged block are unknown: it may replace or delete what older tables have under its keys. So
//! nothing from `l` to `p` is read from anywhere, and everything else is.

use crate::keys;
use fjall::{AnyTree, Keyspace, LsmError};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The damaged files that were met.
#[derive(Debug, Default)]
pub struct Damage(Mutex<BTreeSet<PathBuf>>);

impl Damage {
    /// Notes the file that `error` names, if it tells of damage; the first time it is said in the log.
    pub fn note(&self, error: &fjall::Error) {
        let fjall::Error::Storage(LsmError::Damaged { path, offset, .. }) = error else { return };
        if self.0.lock().insert(path.clone()) {
            let path = path.display();
            tracing::error!("{path} is damaged at byte {offset}: what stood there cannot be read, all else can");
        }
    }

    /// All damaged files that are known, with those of tables that could not be merged.
    pub fn files(&self, keyspaces: [&Keyspace; 3]) -> BTreeSet<PathBuf> {
        let mut files = self.0.lock().clone();
        for keyspace in keyspaces {
            if let AnyTree::Standard(tree) = &keyspace.tree {
                files.extend(tree.aside.files());
            }
        }
        files
    }
}

/// Where a walk that began at `start` and met `error` can go on; none when that is not known.
pub fn behind(error: &fjall::Error, start: &[u8]) -> Option<Vec<u8>> {
    let fjall::Error::Storage(LsmError::Damaged { last_key: Some(last), .. }) = error else { return None };
    Some(keys::just_after(last)).filter(|next| next.as_slice() > start)
}

/// Whether the process, or the machine, has as many files open as it may. That passes.
pub fn lacks_files(error: &std::io::Error) -> bool {
    let lacks = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].map(rustix::io::Errno::raw_os_error);
    error.raw_os_error().is_some_and(|number| lacks.contains(&number))
}
