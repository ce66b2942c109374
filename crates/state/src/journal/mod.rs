//! Journals are checked before the database opens them: durable data must be there, complete and unchanged.
//!
//! ```text
//!  0.jnl  ████████████████████████████          an older journal: was synced before the next was begun
//!  1.jnl  ██████████████████▒▒▒▒▒▒▒▒░▓░░·····   the newest one
//!         └ synced, as marked ┘       └ torn by a power cut: nobody was told that it is durable
//! ```
//! The database opens with everything before the first damage it meets, drops the rest silently, and accepts a changed
//! sequence number. So each batch is checked here first.
//!
//! - **In an older journal, and in the newest as far as a [mark](mark) says it was synced:** anything that is not as
//!   the database wrote it is damage, is named with file and byte, and the node does not start.
//! - **Beyond the mark:** a power cut leaves any mix of sectors written and not written, sound batches after torn ones
//!   among them. The journal is cut at the first batch that is not sound. That may be damage to something durable that
//!   no mark told of yet, in the last ten seconds before the power failed; the two look the same. One thing tells them
//!   apart: the database syncs its journal before it writes tables, so if they hold a later batch than the journal, it
//!   was damaged.
//!
//! Sequence numbers are not covered by a checksum. They must grow; the first one and the last one a mark tells of must
//! be those. A number changed within these bounds changes neither which of two writes is newer nor whether one is in
//! the tables already, since all that is compared with it are numbers of other batches.

pub mod batch;
mod follow;
pub mod mark;
mod scan;
#[cfg(test)]
mod tests;

pub use batch::items;
pub use follow::Follower;
pub use mark::{MarkFile, NAME as MARK_NAME, Synced};

use crate::error::from_io;
use mark::Mark;
use problem::{Code, Problem};
use scan::{Scan, Sound, Stop};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Journals as they are on disk, all of them sound.
#[derive(Debug)]
pub struct Checked {
    pub journals: Vec<Synced>,
    mark: Mark,
}

impl Checked {
    /// What is wrong if tables hold a batch with this sequence number: where the newest journal ends, it was damaged.
    pub fn denied_by(&self, folder: &Path, in_tables: Option<u64>) -> Option<Problem> {
        let newest = self.journals.iter().rfind(|journal| journal.bytes > 0)?;
        let in_tables = in_tables.filter(|in_tables| *in_tables > newest.last_sequence)?;
        let what = format!("it ends with sequence number {}, and tables hold {in_tables}", newest.last_sequence);
        Some(damaged(&path_of(folder, newest.number), newest.bytes, &what))
    }

    /// The file of marks, saying that all journals are synced as far as they were found sound. The database must have
    /// synced them.
    pub fn mark(&self, folder: &Path) -> io::Result<MarkFile> {
        let mut file = MarkFile::open(folder, &self.mark)?;
        if self.mark.journals != self.journals {
            file.write(&self.journals)?;
        }
        Ok(file)
    }
}

/// Checks all journals in `folder`, and cuts off what a power cut has torn. None when nothing was ever marked there.
///
/// # Errors
/// `StateCorrupt` names file and byte; and those of the disk.
pub fn check(folder: &Path) -> Result<Option<Checked>, Problem> {
    let failed = |path: &Path| {
        let what = format!("check {}", path.display());
        move |error: io::Error| from_io(&what, &error)
    };
    let mark_path = folder.join(MARK_NAME);
    let Some(mark) = mark::read(folder).map_err(failed(&mark_path))? else { return Ok(None) };
    let numbers = numbers(folder).map_err(failed(folder))?;
    if let Some(missing) = missing(&numbers, &mark) {
        return Err(damaged(&path_of(folder, missing), 0, "the file is missing"));
    }
    let mut journals: Vec<Synced> = Vec::with_capacity(numbers.len());
    for &number in &numbers {
        let path = path_of(folder, number);
        let before = mark.journals.iter().chain(&journals).filter(|journal| journal.number < number);
        let floor = before.map(|journal| journal.last_sequence).max().unwrap_or(0);
        let synced = mark.journals.iter().find(|journal| journal.number == number);
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed(&path))?;
        let found = look(&file, floor, synced, Some(&number) == numbers.last()).map_err(failed(&path))?;
        let sound = found.map_err(|(offset, what)| damaged(&path, offset, &what))?;
        if let Some(why) = sound.cut {
            cut(&file, &path, sound.sound.end, why).map_err(failed(&path))?;
        }
        let Sound { end, first, last } = sound.sound;
        let last_sequence = if first == 0 { 0 } else { last };
        journals.push(Synced { number, bytes: end, first_sequence: first, last_sequence });
    }
    Ok(Some(Checked { journals, mark }))
}

/// What was found in one journal.
struct Examined {
    sound: Sound,
    /// Why it has to be cut after the last sound batch, if it has to be.
    cut: Option<Stop>,
}

/// An offset, and what is wrong there.
type Damage = (u64, String);

/// Looks through one journal, whose sequence numbers are greater than `floor`. Only the newest may be torn.
fn look(file: &File, floor: u64, synced: Option<&Synced>, is_newest: bool) -> io::Result<Result<Examined, Damage>> {
    let mut scan = Scan::whole(file);
    let mut sound = Sound { last: floor, ..Sound::default() };
    let mut marked = None;
    let marked_end = synced.map_or(0, |synced| synced.bytes);
    let stop = scan.run(&mut sound, |sound| {
        if sound.end == marked_end {
            marked = Some(*sound);
        }
    })?;
    if sound.end < marked_end {
        return Ok(Err((sound.end, format!("{stop}, and it was synced up to byte {marked_end}"))));
    }
    if let Some(synced) = synced.filter(|synced| synced.bytes > 0) {
        let Some(marked) = marked else {
            return Ok(Err((marked_end, "no batch ends where it was synced to".to_owned())));
        };
        if marked.first != synced.first_sequence || marked.last != synced.last_sequence {
            let (found, right) = ((marked.first, marked.last), (synced.first_sequence, synced.last_sequence));
            return Ok(Err((0, format!("sequence numbers {found:?} at both ends, they were {right:?}"))));
        }
    }
    if is_newest {
        let cut = (stop != Stop::Nothing).then_some(stop);
        return Ok(Ok(Examined { sound, cut }));
    }
    match stop {
        Stop::Nothing if scan.rest_is_zero()? => Ok(Ok(Examined { sound, cut: None })),
        Stop::Nothing => Ok(Err((sound.end, "something after its end".to_owned()))),
        stop => Ok(Err((sound.end, stop.to_string()))),
    }
}

/// Cuts off what was never confirmed, so that the database does not stumble over it.
fn cut(file: &File, path: &Path, end: u64, why: Stop) -> io::Result<()> {
    tracing::warn!("{} ends at byte {end}: there follows {why}. It was never confirmed as durable", path.display());
    file.set_len(end)?;
    file.sync_all()
}

/// The journal that should be there and is not. Journals go oldest first, and the newest never.
fn missing(numbers: &[u64], mark: &Mark) -> Option<u64> {
    let newest_marked = mark.journals.last().map(|journal| journal.number);
    if newest_marked > numbers.last().copied() {
        return newest_marked;
    }
    numbers.windows(2).find(|pair| pair[1] != pair[0] + 1).map(|pair| pair[0] + 1)
}

fn damaged(path: &Path, offset: u64, what: &str) -> Problem {
    Problem::new(Code::StateCorrupt, format!("{} is damaged at byte {offset}: {what}", path.display()))
}

/// Numbers of the journals in `folder`, in order.
pub fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_suffix(".jnl")?.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

pub fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.jnl"))
}
