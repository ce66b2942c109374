//! Newest writes live in memory until they are written out as tables: when that happens, and how much may wait.
//!
//! ```text
//!  0 ······ resting ············ slow ············ full      bytes in memory, of all keyspaces
//!  │ each keyspace up │ acknowledgements │ commits are │
//!  │ to its own limit │ wait for tables  │ refused     │
//! ```
//! The database would do this by itself, but each commit then sends its one worker a message until that has found
//! the time, the mailbox fills up, and the worker waits for ever to put a message of its own into it
//! (<https://github.com/fjall-rs/fjall/pull/323>). Its answer to four tables' worth waiting is to sleep inside the
//! commit. So its own limit is set out of reach, and each table is asked for once, when the one before it is written.

use crate::damage::lacks_files;
use crate::transaction::WRITE_BYTES_MAX;
use fjall::{AbstractTree, Database, Keyspace};
use problem::{Code, Problem};
use std::fs::File;

/// Files the database opens at once to write a table: the table, its folder, the list of tables, a journal, and as
/// many that are being merged.
const FILES_NEEDED: usize = 24;

/// A keyspace, and the bytes it may hold in memory before they become a table.
pub type Limited = (Keyspace, u64);

pub struct Memory {
    database: Database,
    keyspaces: Vec<Limited>,
    slow_above_bytes: u64,
    full_above_bytes: u64,
}

impl Memory {
    pub fn new(database: Database, keyspaces: Vec<Limited>) -> Self {
        let resting: u64 = keyspaces.iter().map(|(_, limit)| limit).sum();
        let largest = keyspaces.iter().map(|(_, limit)| *limit).max().unwrap_or(0);
        // Two of the largest transactions still find room, so that one alone does not shut others out.
        let full_above_bytes = resting + 2 * WRITE_BYTES_MAX as u64;
        Self { database, keyspaces, slow_above_bytes: resting + largest, full_above_bytes }
    }

    /// Has the database write out what has reached its limit. Returns before it is written.
    pub fn tend(&self) -> fjall::Result<()> {
        for (keyspace, limit) in &self.keyspaces {
            // One at a time: the database syncs its journal, and then writes all that has been asked for by then.
            // What was asked for in between would be in tables before it is in the journal for sure.
            let is_free = keyspace.sealed_memtable_count() == 0;
            if is_free && keyspace.tree.active_memtable().size() > *limit {
                if !files_left() {
                    return Ok(());
                }
                keyspace.rotate_memtable()?;
            }
        }
        Ok(())
    }

    pub fn is_slow(&self) -> bool {
        self.database.write_buffer_size() > self.slow_above_bytes
    }

    /// # Errors
    /// `StateBusy` when there is no room for another commit.
    pub fn check_room(&self) -> Result<(), Problem> {
        let waiting = self.database.write_buffer_size();
        if waiting <= self.full_above_bytes {
            return Ok(());
        }
        if !files_left() {
            let detail = "what was written waits in memory, because no file can be opened to write it to";
            return Err(Problem::new(Code::FilesExhausted, detail));
        }
        let limit = self.full_above_bytes;
        let detail = format!("{waiting} bytes wait in memory to be written to disk, the limit is {limit}");
        Err(Problem::new(Code::StateBusy, detail))
    }
}

/// Whether the database can open the files of a table, and of a journal if that is full. A table it cannot open stops
/// all its writing for good, while memory can wait.
fn files_left() -> bool {
    let opened: Result<Vec<File>, _> = (0..FILES_NEEDED).map(|_| File::open("/dev/null")).collect();
    !opened.is_err_and(|error| lacks_files(&error))
}
