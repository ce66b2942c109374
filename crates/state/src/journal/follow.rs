//! The thread that syncs follows the newest journal: to sync it, and to write down now and then how far that went.
//!
//! What it writes down is what it has read back before the sync, batch by batch, from memory the kernel still holds. A
//! mark costs a sync of its own, of one sector; so there is one every ten seconds at most, and at the end.

use super::mark::{MarkFile, Synced};
use super::scan::{Scan, Sound};
use super::{numbers, path_of};
use crate::disk::Disk;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Least time between two marks. What became durable since the last one cannot be told from what never was, should it
/// be damaged when the power fails.
const MARK_EVERY: Duration = Duration::from_secs(10);
/// What is read back at first after each sync; more only if there is more.
const READ_BYTES: usize = 4 << 10;
/// Largest buffer that is kept.
const BUFFER_BYTES_MAX: usize = 256 << 10;

/// The newest journal of the database, open.
pub struct Follower {
    folder: PathBuf,
    number: u64,
    file: File,
    /// What is written in it, as far as it has been read back.
    sound: Sound,
    buffer: Vec<u8>,
    /// All journals, as far as they are synced.
    synced: Vec<Synced>,
    mark: MarkFile,
    /// What the mark says, and since when.
    marked: Vec<Synced>,
    marked_at: Option<Instant>,
}

impl Follower {
    /// Follows the newest journal in `folder`. All in `synced` is on disk; `mark` says so already.
    pub fn new(folder: &Path, mark: MarkFile, synced: Vec<Synced>) -> io::Result<Self> {
        let number = newest(folder)?;
        let known = synced.iter().find(|journal| journal.number == number);
        let sound = known.map_or(Sound::default(), |journal| Sound {
            end: journal.bytes,
            first: journal.first_sequence,
            last: journal.last_sequence,
        });
        let file = open(folder, number)?;
        let marked = synced.clone();
        Ok(Self {
            folder: folder.to_owned(),
            number,
            file,
            sound,
            buffer: Vec::new(),
            synced,
            mark,
            marked,
            marked_at: None,
        })
    }

    /// Makes all that was written before the call durable.
    pub fn sync(&mut self, disk: &dyn Disk) -> io::Result<()> {
        self.turn_to_newest()?;
        self.read_back()?;
        disk.sync(&self.file)?;
        self.note();
        Ok(())
    }

    /// Writes a mark if it is due. Called after those who wait for the sync have been told. Says how long until it will
    /// be due; none while the mark says all.
    pub fn mark_if_due(&mut self, now: Instant) -> Option<Duration> {
        if self.synced == self.marked {
            return None;
        }
        let wait = self.marked_at.map_or(Duration::ZERO, |at| MARK_EVERY.saturating_sub(now.duration_since(at)));
        if wait > Duration::ZERO {
            return Some(wait);
        }
        self.write_mark();
        self.marked_at = Some(now);
        None
    }

    fn write_mark(&mut self) {
        if let Err(error) = self.mark.write(&self.synced) {
            // Nothing is wrong with what is stored: it is only known for less of it.
            tracing::warn!("how far the journal is synced could not be written down: {error}");
        }
        self.marked.clone_from(&self.synced);
    }

    /// Journals are numbered without a gap. Looking for a name opens no file, of which there may be none left.
    fn turn_to_newest(&mut self) -> io::Result<()> {
        loop {
            if path_of(&self.folder, self.number + 1).try_exists()? {
                self.turn_to(self.number + 1)?;
            } else if self.file.metadata()?.nlink() == 0 {
                // The oldest go, and with this one those after it may have gone: the database had synced them.
                self.turn_to(newest(&self.folder)?)?;
            } else {
                return Ok(());
            }
        }
    }

    /// The database has begun another journal; it synced the one before first.
    fn turn_to(&mut self, number: u64) -> io::Result<()> {
        self.read_back()?;
        self.note();
        let file = open(&self.folder, number)?;
        // The new file's name has to be durable as well.
        File::open(&self.folder)?.sync_all()?;
        self.file = file;
        (self.number, self.sound) = (number, Sound::default());
        let there = numbers(&self.folder)?;
        self.synced.retain(|journal| there.contains(&journal.number));
        self.marked_at = None;
        Ok(())
    }

    fn read_back(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let mut scan = Scan::new(&self.file, self.sound.end, buffer, READ_BYTES);
        // Where it stops, somebody is still writing.
        scan.run(&mut self.sound, |_| {})?;
        let buffer = scan.into_buffer();
        if buffer.len() <= BUFFER_BYTES_MAX {
            self.buffer = buffer;
        }
        Ok(())
    }

    /// What has been read back is on disk.
    fn note(&mut self) {
        let synced = Synced {
            number: self.number,
            bytes: self.sound.end,
            first_sequence: self.sound.first,
            last_sequence: self.sound.last,
        };
        match self.synced.last_mut() {
            Some(last) if last.number == self.number => *last = synced,
            _ => self.synced.push(synced),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.synced != self.marked {
            self.write_mark();
        }
    }
}

/// Opens a journal to read what was just written to it. Without reading ahead: what lies there is still empty, and
/// would come into memory in large pieces, each of which counts as written as a whole once its first bytes are.
fn open(folder: &Path, number: u64) -> io::Result<File> {
    let file = File::open(path_of(folder, number))?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
    Ok(file)
}

fn newest(folder: &Path) -> io::Result<u64> {
    let none = || io::Error::new(io::ErrorKind::NotFound, format!("no journal in {}", folder.display()));
    numbers(folder)?.pop().ok_or_else(none)
}
