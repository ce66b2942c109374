//! A journal cut short or with bytes changed: what was durable before the damage is there and right, or the state
//! says that it is damaged. Never a wrong value, with one exception that is named below.
//!
//! What the database does, as found here:
//! - Cut anywhere: it opens with every whole transaction before the cut.
//! - A byte changed in a key or value: L5007 by the checksum, wherever in the journal it is. A hole in the last
//!   commit, which a power cut may leave, is the same to it.
//! - A byte changed in a tag or a length: sometimes L5007, but often it opens with everything before the damage and
//!   drops what comes after without a word, also what was acknowledged.
//! - A byte changed in a transaction's sequence number: not covered by the checksum, so it opens. The transaction may
//!   then count as older or newer than it is against others that wrote the same keys, and for good.

mod common;

use common::{Rng, durable, open};
use problem::Code;
use state::{Options, State};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const COMMITS: u64 = 60;
const DAMAGES: u64 = 120;

/// A data folder nobody uses any more, and where in its journal each commit ends.
struct Written {
    folder: tempfile::TempDir,
    ends: Vec<u64>,
}

fn write() -> Written {
    let folder = tempfile::tempdir().unwrap();
    let state = open(folder.path());
    let mut ends = vec![end_of_journal(folder.path(), 0)];
    for number in 0..COMMITS {
        let mut transaction = state.begin();
        for part in ["a", "z"] {
            transaction.set(part, &format!("{number:03}"), content(number)).unwrap();
        }
        durable(&state, transaction.commit().unwrap()).unwrap();
        ends.push(end_of_journal(folder.path(), *ends.last().unwrap()));
    }
    drop(state);
    // Some of the space ahead is enough, and quicker to copy.
    let journal = OpenOptions::new().write(true).open(journal(folder.path())).unwrap();
    journal.set_len(ends.last().unwrap() + 4_096).unwrap();
    Written { folder, ends }
}

/// Different for each record, and never a zero byte, so that the end of what is written can be seen.
fn content(number: u64) -> Vec<u8> {
    let mut rng = Rng(number);
    (0..20 + number).map(|_| 1 + (rng.next() % 255) as u8).collect()
}

/// The journal is made 64 MiB long ahead of its content; a transaction ends with bytes that are not zero.
fn end_of_journal(folder: &Path, from: u64) -> u64 {
    let mut next = vec![0; 64 << 10];
    let length = fs::File::open(journal(folder)).unwrap().read_at(&mut next, from).unwrap();
    from + next[..length].iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

fn journal(folder: &Path) -> PathBuf {
    let files = fs::read_dir(folder.join("state")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "jnl")).max().unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[derive(Debug, PartialEq)]
enum Outcome {
    /// Opened with the first so many commits.
    Opened(u64),
    Named(Code),
}

/// Opens a copy with `damage` done to its journal, and checks that each record in it is whole and right.
fn outcome(written: &Written, damage: impl FnOnce(&fs::File)) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    copy(written.folder.path(), folder.path());
    damage(&OpenOptions::new().read(true).write(true).open(journal(folder.path())).unwrap());
    let state = match State::open(folder.path(), Options::default()) {
        Ok(state) => state,
        Err(problem) => return Outcome::Named(problem.code),
    };
    let mut transaction = state.begin();
    let [first, second] = ["a", "z"].map(|part| transaction.list(part, "", None, 1_000).unwrap().entries);
    assert_eq!(first, second, "a transaction is torn");
    for (number, entry) in first.iter().enumerate() {
        assert_eq!(entry.key, format!("{number:03}"), "a record is missing before others");
        assert_eq!(entry.value, content(number as u64));
    }
    drop(transaction);
    common::set(&state, "after", "the damage");
    drop(state);
    assert_eq!(common::get(&open(folder.path()), "after").unwrap(), "the damage");
    Outcome::Opened(first.len() as u64)
}

/// How many commits were complete before `offset`.
fn commits_before(written: &Written, offset: u64) -> u64 {
    written.ends[1..].iter().filter(|end| **end <= offset).count() as u64
}

#[test]
fn a_journal_cut_anywhere_opens_with_every_commit_before_the_cut() {
    let written = write();
    let (start, end) = (written.ends[0], *written.ends.last().unwrap());
    for seed in 0..DAMAGES {
        let cut = start + Rng(seed).below(end - start + 1);
        let found = outcome(&written, |journal| journal.set_len(cut).unwrap());
        assert_eq!(found, Outcome::Opened(commits_before(&written, cut)), "seed {seed}, cut at {cut}");
    }
}

#[test]
fn a_last_page_that_was_never_written_costs_only_its_commits() {
    let written = write();
    let end = *written.ends.last().unwrap();
    for seed in 0..DAMAGES / 4 {
        let from = end - 1 - Rng(seed).below(1_000);
        let found = outcome(&written, |journal| journal.write_all_at(&vec![0; (end - from) as usize], from).unwrap());
        let whole = commits_before(&written, from);
        assert_eq!(found, Outcome::Opened(whole), "seed {seed}, zeros from {from}");
    }
}

#[test]
fn a_hole_in_the_last_commit_is_named() {
    // A power cut may leave the last page of a commit on disk and an earlier one not. Nobody was told that this commit
    // is durable, so it could be dropped; the database cannot tell it from damage and refuses to open. Known weakness.
    let written = write();
    let [.., before, end] = written.ends[..] else { panic!("there are many") };
    let hole = before + 70..end - 70;
    let zeros = vec![0; (hole.end - hole.start) as usize / 4];
    let found = outcome(&written, |journal| journal.write_all_at(&zeros, hole.start).unwrap());
    assert_eq!(found, Outcome::Named(Code::StateCorrupt));
}

#[test]
fn a_changed_byte_never_harms_what_is_before_it() {
    let written = write();
    let (start, end) = (written.ends[0], *written.ends.last().unwrap());
    let (mut named, mut shortened, mut whole) = (0, 0, 0);
    for seed in 0..DAMAGES {
        let mut rng = Rng(seed);
        let (offset, flip) = (start + rng.below(end - start), 1 << rng.below(8));
        let found = outcome(&written, |journal| {
            let mut byte = [0];
            journal.read_exact_at(&mut byte, offset).unwrap();
            journal.write_all_at(&[byte[0] ^ flip], offset).unwrap();
        });
        match found {
            Outcome::Named(code) => {
                assert_eq!(code, Code::StateCorrupt, "seed {seed}, changed at {offset}");
                named += 1;
            }
            Outcome::Opened(commits) => {
                assert!(commits >= commits_before(&written, offset), "seed {seed}, changed at {offset}: {commits}");
                if commits == COMMITS { whole += 1 } else { shortened += 1 }
            }
        }
    }
    // Known weakness of the database: some damage shortens the journal silently. See the head of this file.
    println!("{DAMAGES} changed bytes: {named} named, {shortened} shortened the journal, {whole} opened whole");
    assert!(named > DAMAGES / 2, "the checksums no longer find changed content");
}

#[test]
fn a_damaged_table_is_named_when_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let options = || Options { memtable_bytes: 64 << 10, ..Options::default() };
    let state = State::open(folder.path(), options()).unwrap();
    for number in 0..200 {
        common::set(&state, &format!("{number:03}"), &"v".repeat(4_000));
    }
    drop(state);
    let tables = folder.path().join("state/keyspaces/1/tables");
    for entry in fs::read_dir(tables).unwrap() {
        let file = OpenOptions::new().read(true).write(true).open(entry.unwrap().path()).unwrap();
        let mut byte = [0];
        // Further in than the books of the state, without which it does not open.
        file.read_exact_at(&mut byte, 20_000).unwrap();
        file.write_all_at(&[byte[0] ^ 1], 20_000).unwrap();
    }
    let state = State::open(folder.path(), options()).unwrap();
    let mut transaction = state.begin();
    let mut damaged = 0;
    for number in 0..200 {
        match transaction.get("b", &format!("{number:03}")) {
            Ok(value) => assert_eq!(value.unwrap(), "v".repeat(4_000).into_bytes()),
            Err(state::StoreError::Unavailable(problem)) => {
                assert_eq!(problem.code, Code::StateCorrupt);
                damaged += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(damaged > 0, "the change was not noticed");
}
