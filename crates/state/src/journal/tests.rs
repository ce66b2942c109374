//! Folders of made-up journals: what is found sound, what is cut, and what is named.

use super::batch::tests::written;
use super::*;
use crate::disk::Disk;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering::Relaxed;

/// A folder with journals of batches with these sequence numbers.
fn folder(journals: &[(u64, &[u64])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (number, sequences) in journals {
        let file = File::create(path_of(folder.path(), *number)).unwrap();
        let batches: Vec<u8> =
            sequences.iter().flat_map(|sequence| written(*sequence, &[(b"key", b"value")])).collect();
        file.write_all_at(&batches, 0).unwrap();
        file.set_len(100_000).unwrap();
    }
    folder
}

fn batch_bytes() -> u64 {
    written(1, &[(b"key", b"value")]).len() as u64
}

fn synced(number: u64, sequences: &[u64]) -> Synced {
    let at = |sequence: Option<&u64>| sequence.copied().unwrap_or(0);
    Synced {
        number,
        bytes: sequences.len() as u64 * batch_bytes(),
        first_sequence: at(sequences.first()),
        last_sequence: at(sequences.last()),
    }
}

/// What [`check`] finds with this mark: batches in the newest journal, or what is wrong.
fn found(folder: &Path, marked: &[Synced]) -> Result<u64, String> {
    MarkFile::create(folder, marked).unwrap();
    match check(folder) {
        Ok(checked) => Ok(checked.unwrap().journals.last().map_or(0, |journal| journal.bytes / batch_bytes())),
        Err(problem) => {
            assert_eq!(problem.code, Code::StateCorrupt, "{problem}");
            Err(problem.detail.replace(&format!("{}/", folder.display()), ""))
        }
    }
}

fn write(folder: &Path, number: u64, offset: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path_of(folder, number)).unwrap().write_all_at(bytes, offset).unwrap();
}

#[test]
fn what_is_sound_is_found_with_and_without_a_mark() {
    let folder = folder(&[(3, &[5, 6, 9]), (4, &[10, 12])]);
    assert_eq!(check(folder.path()).unwrap().map(|_| ()), None);
    let marks: [&[Synced]; 4] = [
        &[],
        &[synced(3, &[5, 6])],
        &[synced(3, &[5, 6, 9]), synced(4, &[10])],
        &[synced(3, &[5, 6, 9]), synced(4, &[10, 12])],
    ];
    for marked in marks {
        assert_eq!(found(folder.path(), marked), Ok(2), "{marked:?}");
    }
}

#[test]
fn an_older_journal_is_never_torn() {
    let sequences: (&[u64], &[u64]) = (&[5, 6, 9], &[10]);
    let batch = batch_bytes();
    for (offset, what) in [
        (batch * 2 + 36, "a wrong checksum"),
        (batch * 2, "a part that begins with 0xee"),
        (batch * 3 + 7, "something"),
    ] {
        let folder = folder(&[(0, sequences.0), (1, sequences.1)]);
        write(folder.path(), 0, offset, &[0xee]);
        let said = found(folder.path(), &[synced(0, &[5])]).unwrap_err();
        assert!(
            said.starts_with(&format!("0.jnl is damaged at byte {}", offset / batch * batch)) && said.contains(what),
            "{said}"
        );
    }
    // Its end lost: sound as far as it goes, and known to be longer.
    let folder = folder(&[(0, sequences.0), (1, sequences.1)]);
    write(folder.path(), 0, batch, &vec![0; 2 * batch as usize]);
    assert_eq!(found(folder.path(), &[]), Ok(1));
    assert!(found(folder.path(), &[synced(0, sequences.0)]).unwrap_err().contains("synced up to byte"));
}

#[test]
fn the_newest_journal_is_cut_beyond_its_mark_and_named_before() {
    let sequences = [5, 6, 7, 8];
    let batch = batch_bytes();
    for marked in 0..=sequences.len() {
        for broken in 0..sequences.len() {
            let folder = folder(&[(0, &sequences)]);
            write(folder.path(), 0, broken as u64 * batch + 20, &[0xee; 9]);
            let found = found(folder.path(), &[synced(0, &sequences[..marked])]);
            match broken < marked {
                true => assert!(
                    found.unwrap_err().starts_with(&format!("0.jnl is damaged at byte {}", broken as u64 * batch))
                ),
                false => assert_eq!(found, Ok(broken as u64)),
            }
        }
    }
}

#[test]
fn sequence_numbers_grow_and_begin_and_end_as_marked() {
    let torn = |sequences: &[u64], marked: &[u64]| found(folder(&[(2, sequences)]).path(), &[synced(2, marked)]);
    assert_eq!(torn(&[5, 6, 6, 8], &[]), Ok(2));
    assert_eq!(torn(&[5, 6, 3, 8], &[5, 6]), Ok(2));
    assert!(torn(&[5, 6, 3, 8], &[5, 6, 7]).unwrap_err().contains("sequence number 3 after 6"));
    assert!(torn(&[4, 6, 7], &[5, 6, 7]).unwrap_err().contains("sequence numbers (4, 7)"));
    assert!(torn(&[5, 6, 99], &[5, 6, 7]).unwrap_err().contains("sequence numbers (5, 99)"));
    let backwards = folder(&[(2, &[5, 6]), (3, &[6, 7])]);
    assert_eq!(found(backwards.path(), &[]), Ok(0));
    assert!(found(backwards.path(), &[synced(3, &[6])]).unwrap_err().contains("3.jnl is damaged at byte 0"));
}

#[test]
fn a_missing_journal_is_named_and_one_that_is_not_needed_any_more_is_not() {
    let marked = [synced(2, &[1]), synced(3, &[2]), synced(4, &[3])];
    assert_eq!(found(folder(&[(4, &[3])]).path(), &marked), Ok(1));
    assert_eq!(found(folder(&[(6, &[9])]).path(), &marked), Ok(1));
    assert!(
        found(folder(&[(2, &[1]), (3, &[2])]).path(), &marked)
            .unwrap_err()
            .contains("4.jnl is damaged at byte 0: the file is missing")
    );
    assert!(found(folder(&[(2, &[1]), (4, &[3])]).path(), &marked).unwrap_err().contains("3.jnl"));
    assert!(found(folder(&[]).path(), &marked).unwrap_err().contains("4.jnl"));
    assert_eq!(found(folder(&[]).path(), &[]), Ok(0));
}

#[test]
fn a_batch_larger_than_what_is_read_at_once_is_one_batch() {
    let folder = tempfile::tempdir().unwrap();
    let large = vec![7; 900_000];
    let batches =
        [written(1, &[(b"a", b"")]), written(2, &[(b"b", &large), (b"c", &large)]), written(3, &[(b"d", b"")])]
            .concat();
    let file = File::create(path_of(folder.path(), 0)).unwrap();
    file.write_all_at(&batches, 0).unwrap();
    MarkFile::create(folder.path(), &[]).unwrap();
    let whole = Synced { number: 0, bytes: batches.len() as u64, first_sequence: 1, last_sequence: 3 };
    assert_eq!(check(folder.path()).unwrap().unwrap().journals, [whole]);
    file.set_len(1_000_000).unwrap();
    let first = Synced { bytes: written(1, &[(b"a", b"")]).len() as u64, last_sequence: 1, ..whole };
    assert_eq!(check(folder.path()).unwrap().unwrap().journals, [first]);
    assert_eq!(file.metadata().unwrap().len(), first.bytes);
}

#[test]
fn a_full_journal_is_checked_in_a_moment() {
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(path_of(folder.path(), 0)).unwrap();
    let mut batches = Vec::with_capacity(64 << 20);
    for sequence in 1.. {
        batches.extend(written(sequence, &[(b"bucket\0some key", &[9; 100]), (b"\x01bucket", &[1; 16])]));
        if batches.len() > 63 << 20 {
            break;
        }
    }
    file.write_all_at(&batches, 0).unwrap();
    MarkFile::create(folder.path(), &[]).unwrap();
    let started = std::time::Instant::now();
    let bytes = check(folder.path()).unwrap().unwrap().journals[0].bytes;
    let took = started.elapsed();
    println!("{} MiB checked in {took:?}", bytes >> 20);
    assert_eq!(bytes, batches.len() as u64);
}

/// A disk that says which file was synced.
#[derive(Default)]
struct Told(std::sync::atomic::AtomicU64);

impl Disk for Told {
    fn sync(&self, journal: &File) -> io::Result<()> {
        self.0.store(journal.metadata()?.ino(), Relaxed);
        Ok(())
    }

    fn bytes_free(&self, _: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

/// The database begins two journals between two syncs, and needs neither the one that is followed nor the first of
/// them.
#[test]
fn the_newest_journal_is_synced_though_those_before_it_are_gone() {
    let folder = folder(&[(0, &[5])]);
    let mark = MarkFile::create(folder.path(), &[]).unwrap();
    let mut follower = Follower::new(folder.path(), mark, Vec::new()).unwrap();
    let disk = Told::default();
    follower.sync(&disk).unwrap();
    let file = File::create(path_of(folder.path(), 2)).unwrap();
    file.write_all_at(&written(7, &[(b"key", b"value")]), 0).unwrap();
    fs::remove_file(path_of(folder.path(), 0)).unwrap();
    follower.sync(&disk).unwrap();
    assert_eq!(disk.0.load(Relaxed), file.metadata().unwrap().ino());
    drop(follower);
    let checked = check(folder.path()).unwrap().unwrap();
    assert_eq!(
        checked.journals.iter().map(|journal| (journal.number, journal.last_sequence)).collect::<Vec<_>>(),
        [(2, 7)]
    );
}
