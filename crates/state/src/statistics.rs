//! Numbers about the state, for the metrics.

use crate::engine::Engine;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Folders below the database's own that are looked into.
const DEPTH_MAX: usize = 4;

/// Counted since the state was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// Commits that wrote something.
    pub commits: u64,
    /// Commits refused because another wrote what they read.
    pub conflicts: u64,
    /// Calls that made commits durable; `commits / syncs` shared each.
    pub syncs: u64,
    pub sync_time: Duration,
    pub sync_time_last: Duration,
    /// Space really taken on disk, by journals and tables.
    pub disk_bytes: u64,
    pub transactions_open: u64,
    /// Tables with a damaged place that was met since the state was opened.
    pub tables_damaged: u64,
    /// Whether writes are refused until there is more free space.
    pub disk_full: bool,
    /// Whether writes are refused until the node is started again.
    pub stopped: bool,
}

pub fn of(engine: &Engine) -> Statistics {
    let (syncs, sync_time, sync_time_last) = engine.group.sync_times();
    Statistics {
        commits: engine.commits.load(Ordering::Relaxed),
        conflicts: engine.conflicts.load(Ordering::Relaxed),
        syncs,
        sync_time,
        sync_time_last,
        disk_bytes: bytes_below(&engine.folder, DEPTH_MAX),
        transactions_open: engine.order.lock().oracle.open_count() as u64,
        tables_damaged: engine.damaged_files().len() as u64,
        disk_full: engine.group.disk_full(),
        stopped: engine.group.stopped().is_some(),
    }
}

/// What cannot be looked at counts as nothing: files come and go while tables are merged.
fn bytes_below(folder: &Path, depth: usize) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() && depth > 0 => bytes_below(&entry.path(), depth - 1),
        // A journal's length is set ahead; what it takes is counted in blocks of 512 bytes.
        Ok(metadata) if metadata.is_file() => metadata.blocks() * 512,
        _ => 0,
    };
    entries.flatten().map(size).sum()
}
