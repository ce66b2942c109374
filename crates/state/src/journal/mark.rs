//! What is known to be durable, on disk beside the journals: how far each was synced.
//!
//! ```text
//! state/synced   [ slot 0: 512 bytes ]…[ slot 1: 512 bytes ]      written in turn; the newer sound one counts
//!
//! slot           "LTSY" · 1 · journals 1 · 0 0 · generation 8 · for each journal 32 · zeros · checksum 8
//! journal        number 8 · synced bytes 8 · first and last sequence number in them 8 · 8
//! ```
//! It may be behind, never ahead: a mark is written after the sync it tells of. A slot is one sector, so a power cut
//! while it is written leaves the other one as it was.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Name of the file in the folder of the database.
pub const NAME: &str = "synced";
const NAME_WHILE_MADE: &str = "synced.new";
const MAGIC: &[u8] = b"LTSY\x01";
const SLOT_BYTES: usize = 512;
/// Far enough apart to be on two blocks of any disk.
const SLOT_OFFSETS: [u64; 2] = [0, 16_384];
const HEAD_BYTES: usize = 16;
const JOURNAL_BYTES: usize = 32;
/// Journals a mark tells of; of more, the newest.
pub const JOURNALS_MAX: usize = (SLOT_BYTES - HEAD_BYTES - 8) / JOURNAL_BYTES;

/// How far one journal was synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synced {
    pub number: u64,
    /// The end of a batch, or 0.
    pub bytes: u64,
    /// Of the batches in these bytes; 0 if there is none.
    pub first_sequence: u64,
    pub last_sequence: u64,
}

/// One state of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    pub generation: u64,
    /// In the order of their numbers.
    pub journals: Vec<Synced>,
}

/// The file, open for writing.
#[derive(Debug)]
pub struct MarkFile {
    file: File,
    generation: u64,
}

impl MarkFile {
    /// Makes a new file with both slots sound, durable before it has its name.
    pub fn create(folder: &Path, journals: &[Synced]) -> io::Result<Self> {
        let made = folder.join(NAME_WHILE_MADE);
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&made)?;
        for (generation, offset) in SLOT_OFFSETS.into_iter().enumerate() {
            file.write_all_at(&encode(generation as u64, journals), offset)?;
        }
        file.sync_all()?;
        std::fs::rename(&made, folder.join(NAME))?;
        File::open(folder)?.sync_all()?;
        Ok(Self { file, generation: 1 })
    }

    /// Goes on after `mark`, which was read from the same file.
    pub fn open(folder: &Path, mark: &Mark) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).open(folder.join(NAME))?;
        Ok(Self { file, generation: mark.generation })
    }

    /// Writes how far `journals` are synced now, durable when it returns. After an error the older mark counts.
    pub fn write(&mut self, journals: &[Synced]) -> io::Result<()> {
        self.generation += 1;
        let offset = SLOT_OFFSETS[(self.generation % 2) as usize];
        self.file.write_all_at(&encode(self.generation, journals), offset)?;
        self.file.sync_data()
    }
}

/// Reads the mark in `folder`; none if there is no such file.
///
/// # Errors
/// `InvalidData` when neither slot is sound.
pub fn read(folder: &Path) -> io::Result<Option<Mark>> {
    let file = match File::open(folder.join(NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut newest = None::<Mark>;
    for offset in SLOT_OFFSETS {
        let mut slot = [0; SLOT_BYTES];
        match file.read_exact_at(&mut slot, offset) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => continue,
            Err(error) => return Err(error),
        }
        newest = newest.into_iter().chain(decode(&slot)).max_by_key(|mark| mark.generation);
    }
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "both marks of what is synced are damaged");
    newest.ok_or_else(damaged).map(Some)
}

fn encode(generation: u64, journals: &[Synced]) -> [u8; SLOT_BYTES] {
    let journals = &journals[journals.len().saturating_sub(JOURNALS_MAX)..];
    let mut slot = [0; SLOT_BYTES];
    slot[..MAGIC.len()].copy_from_slice(MAGIC);
    slot[MAGIC.len()] = journals.len() as u8;
    slot[8..16].copy_from_slice(&generation.to_le_bytes());
    for (journal, place) in journals.iter().zip(slot[HEAD_BYTES..].chunks_exact_mut(JOURNAL_BYTES)) {
        let numbers = [journal.number, journal.bytes, journal.first_sequence, journal.last_sequence];
        place.copy_from_slice(&numbers.map(u64::to_le_bytes).concat());
    }
    seal(&mut slot);
    slot
}

/// Writes the checksum of a slot into it.
pub fn seal(slot: &mut [u8; SLOT_BYTES]) {
    let checksum = xxh3_64(&slot[..SLOT_BYTES - 8]);
    slot[SLOT_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
}

/// None unless the slot is sound.
pub fn decode(slot: &[u8; SLOT_BYTES]) -> Option<Mark> {
    let number = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().expect("eight bytes"));
    let count = usize::from(slot[MAGIC.len()]);
    if number(SLOT_BYTES - 8) != xxh3_64(&slot[..SLOT_BYTES - 8]) || !slot.starts_with(MAGIC) || count > JOURNALS_MAX {
        return None;
    }
    let journal = |index: usize| {
        let at = |field: usize| number(HEAD_BYTES + index * JOURNAL_BYTES + field * 8);
        Synced { number: at(0), bytes: at(1), first_sequence: at(2), last_sequence: at(3) }
    };
    Some(Mark { generation: number(8), journals: (0..count).map(journal).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synced(number: u64) -> Synced {
        Synced { number, bytes: number * 100, first_sequence: number * 10, last_sequence: number * 10 + 9 }
    }

    #[test]
    fn the_newest_sound_mark_counts() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), None);
        let mut file = MarkFile::create(folder.path(), &[]).unwrap();
        for number in 1..5 {
            file.write(&[synced(number)]).unwrap();
            let mark = read(folder.path()).unwrap().unwrap();
            assert_eq!(mark.journals, [synced(number)]);
            file = MarkFile::open(folder.path(), &mark).unwrap();
        }
        let path = folder.path().join(NAME);
        let on_disk = File::options().read(true).write(true).open(&path).unwrap();
        let newest = SLOT_OFFSETS[(file.generation % 2) as usize];
        on_disk.write_all_at(&[0xff], newest + 20).unwrap();
        assert_eq!(read(folder.path()).unwrap().unwrap().journals, [synced(3)]);
        on_disk.write_all_at(&[0xff], SLOT_OFFSETS[0] + 30).unwrap();
        on_disk.write_all_at(&[0xff], SLOT_OFFSETS[1] + 30).unwrap();
        assert_eq!(read(folder.path()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn of_too_many_journals_the_newest_are_told_of() {
        let many: Vec<_> = (0..JOURNALS_MAX as u64 + 3).map(synced).collect();
        let mark = decode(&encode(9, &many)).unwrap();
        assert_eq!((mark.generation, &mark.journals[..]), (9, &many[3..]));
    }

    #[test]
    fn no_changed_bit_is_taken_for_a_mark() {
        let slot = encode(3, &[synced(1), synced(2)]);
        for bit in 0..SLOT_BYTES * 8 {
            let mut changed = slot;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&changed), None, "bit {bit}");
        }
    }
}
