//! Files cut short or with bits changed: all that was durable is there and right, or the state says what is damaged. Of
//! what a power cut has torn before it was durable, whole commits from the beginning are there, and no more.

use crate::common;
use crate::common::{durable, open};
use problem::Code;
use random::Random;
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
    /// What the mark of what is synced was when nothing had been committed yet.
    first_mark: Vec<u8>,
}

impl Written {
    /// As a power cut leaves it, if no mark was written since the beginning: all that follows may be torn.
    fn unmarked(self) -> Self {
        fs::write(self.folder.path().join("state/synced"), &self.first_mark).unwrap();
        self
    }
}

fn write() -> Written {
    let folder = common::folder();
    let state = open(folder.path());
    let mut ends = vec![end_of_journal(folder.path(), 0)];
    let first_mark = fs::read(folder.path().join("state/synced")).unwrap();
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
    Written { folder, ends, first_mark }
}

/// Different for each record, and never a zero byte, so that the end of what is written can be seen.
fn content(number: u64) -> Vec<u8> {
    let mut rng = Random(number);
    (0..20 + number).map(|_| 1 + (rng.next() % 255) as u8).collect()
}

/// The journal is made 64 MiB long ahead of its content; a transaction ends with bytes that are not zero.
fn end_of_journal(folder: &Path, from: u64) -> u64 {
    let (file, mut end, mut next) = (fs::File::open(journal(folder)).unwrap(), from, vec![0; 64 << 10]);
    loop {
        let length = file.read_at(&mut next, end).unwrap();
        match next[..length].iter().rposition(|byte| *byte != 0) {
            Some(last) => end += last as u64 + 1,
            None => return end,
        }
    }
}

fn journal(folder: &Path) -> PathBuf {
    let files = fs::read_dir(folder.join("state")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "jnl")).max().unwrap()
}

#[derive(Debug, PartialEq)]
enum Outcome {
    /// Opened with the first so many commits.
    Opened(u64),
    /// Refused, and the damage named.
    Named,
}

/// Opens a copy with `damage` done to its journal, and checks that each record in it is whole and right.
fn outcome(written: &Written, damage: impl FnOnce(&fs::File)) -> Outcome {
    let folder = common::folder();
    common::copy(written.folder.path(), folder.path());
    damage(&OpenOptions::new().read(true).write(true).open(journal(folder.path())).unwrap());
    let state = match State::open(folder.path(), Options::default()) {
        Ok(state) => state,
        Err(problem) => {
            assert_eq!(problem.code, Code::StateCorrupt, "{problem}");
            assert!(problem.detail.contains("0.jnl is damaged at byte "), "{problem}");
            return Outcome::Named;
        }
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

fn flip(file: &fs::File, offset: u64, bit: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], offset).unwrap();
}

#[test]
fn a_journal_cut_beyond_its_mark_opens_with_every_commit_before_the_cut() {
    let written = write().unmarked();
    let (start, end) = (written.ends[0], *written.ends.last().unwrap());
    for seed in 0..DAMAGES {
        let cut = start + Random(seed).below(end - start + 1);
        let found = outcome(&written, |journal| journal.set_len(cut).unwrap());
        assert_eq!(found, Outcome::Opened(commits_before(&written, cut)), "seed {seed}, cut at {cut}");
    }
}

#[test]
fn a_journal_cut_before_its_mark_is_named() {
    let written = write();
    let end = *written.ends.last().unwrap();
    for seed in 0..DAMAGES / 4 {
        let cut = Random(seed).below(end);
        assert_eq!(
            outcome(&written, |journal| journal.set_len(cut).unwrap()),
            Outcome::Named,
            "seed {seed}, cut at {cut}"
        );
    }
    assert_eq!(outcome(&written, |journal| journal.set_len(end).unwrap()), Outcome::Opened(COMMITS));
}

#[test]
fn sectors_that_never_reached_the_disk_cost_what_comes_after_them_and_no_more() {
    let written = write().unmarked();
    let (start, end) = (written.ends[0], *written.ends.last().unwrap());
    for seed in 0..DAMAGES {
        let mut rng = Random(seed);
        let first = (start + rng.below(end - start)) / 512 * 512;
        let (from, to) = (first.max(start), (first + 512 * (1 + rng.below(4))).min(end));
        let content: Vec<u8> = match rng.below(2) {
            0 => vec![0; (to - from) as usize],
            _ => (from..to).map(|_| rng.next() as u8).collect(),
        };
        let found = outcome(&written, |journal| journal.write_all_at(&content, from).unwrap());
        assert_eq!(found, Outcome::Opened(commits_before(&written, from)), "seed {seed}, {from} to {to}");
    }
}

#[test]
fn sectors_lost_of_what_was_synced_are_named() {
    let written = write();
    let end = *written.ends.last().unwrap();
    for seed in 0..DAMAGES / 4 {
        let from = Random(seed).below(end) / 512 * 512;
        let zeros = vec![0; 512.min((end - from) as usize)];
        let found = outcome(&written, |journal| journal.write_all_at(&zeros, from).unwrap());
        assert_eq!(found, Outcome::Named, "seed {seed}, zeros from {from}");
    }
}

#[test]
fn a_changed_bit_in_what_was_synced_is_harmless_or_named() {
    let written = write();
    let end = *written.ends.last().unwrap();
    let (mut named, mut harmless) = (0, 0);
    for seed in 0..DAMAGES {
        let mut rng = Random(seed);
        let (offset, bit) = (rng.below(end), rng.below(8));
        match outcome(&written, |journal| flip(journal, offset, bit)) {
            Outcome::Named => named += 1,
            Outcome::Opened(commits) => {
                assert_eq!(commits, COMMITS, "seed {seed}, changed at {offset}");
                harmless += 1;
            }
        }
    }
    println!("{DAMAGES} changed bits: {named} named, {harmless} harmless");
    assert!(named > DAMAGES * 9 / 10, "hardly any changed bit is noticed");
}

#[test]
fn a_changed_sequence_number_is_harmless_or_named() {
    let written = write();
    for seed in 0..DAMAGES {
        let mut rng = Random(seed);
        let start = written.ends[rng.below(COMMITS) as usize];
        let (offset, bit) = (start + 5 + rng.below(8), rng.below(8));
        if let Outcome::Opened(commits) = outcome(&written, |journal| flip(journal, offset, bit)) {
            assert_eq!(commits, COMMITS, "seed {seed}, changed at {offset}");
        }
    }
}

#[test]
fn a_changed_bit_beyond_the_mark_never_harms_what_is_before_it() {
    let written = write().unmarked();
    let (start, end) = (written.ends[0], *written.ends.last().unwrap());
    for seed in 0..DAMAGES {
        let mut rng = Random(seed);
        let (offset, bit) = (start + rng.below(end - start), rng.below(8));
        let Outcome::Opened(commits) = outcome(&written, |journal| flip(journal, offset, bit)) else {
            panic!("seed {seed}: taken for damage to what was synced");
        };
        assert!(commits >= commits_before(&written, offset), "seed {seed}, changed at {offset}: {commits}");
    }
}

#[test]
fn damage_beyond_the_mark_is_named_where_tables_show_that_it_was_synced() {
    let folder = common::folder();
    let options = || Options { memtable_bytes: 64 << 10, ..Options::default() };
    let state = State::open(folder.path(), options()).unwrap();
    let first_mark = fs::read(folder.path().join("state/synced")).unwrap();
    for number in 0..200 {
        common::set(&state, &format!("{number:03}"), &"v".repeat(2_000));
    }
    drop(state);
    fs::write(folder.path().join("state/synced"), first_mark).unwrap();
    flip(&OpenOptions::new().read(true).write(true).open(journal(folder.path())).unwrap(), 20_000, 0);
    for _ in 0..2 {
        let problem = State::open(folder.path(), options()).err().unwrap();
        assert_eq!(problem.code, Code::StateCorrupt);
        assert!(problem.detail.contains("and tables hold"), "{problem}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let written = write();
    let heads = ["keyspaces/0/current", "keyspaces/1/current", "keyspaces/2/current", "keyspaces/3/current"];
    for file in ["synced", "0.jnl", "version"].into_iter().chain(heads) {
        let folder = common::folder();
        common::copy(written.folder.path(), folder.path());
        let path = folder.path().join("state").join(file);
        fs::remove_file(&path).unwrap();
        let problem = State::open(folder.path(), Options::default()).err().unwrap();
        assert_eq!(problem.code, Code::StateCorrupt, "{file}: {problem}");
        assert!(problem.detail.contains(path.to_str().unwrap()), "{file}: {problem}");
    }
}

#[test]
fn a_first_start_that_did_not_get_far_is_begun_anew() {
    let folder = common::folder();
    drop(open(folder.path()));
    // Before the first mark nothing has been committed; whatever else is there or not does not matter.
    fs::remove_file(folder.path().join("state/synced")).unwrap();
    fs::remove_file(folder.path().join("state/version")).unwrap();
    let journal = OpenOptions::new().write(true).open(journal(folder.path())).unwrap();
    journal.set_len(0).unwrap();
    journal.set_len(64 << 20).unwrap();
    let state = open(folder.path());
    common::set(&state, "k", "v");
    assert_eq!(common::get(&state, "k").unwrap(), "v");
}

/// The story: a node whose part had no table yet and had lost its head started without that part, said nothing, and
/// removed what was left of it.
#[test]
fn a_part_that_is_gone_is_named_and_nothing_is_made_in_its_place() {
    let written = write();
    for part in ["1", "2", "3"] {
        let folder = common::folder();
        common::copy(written.folder.path(), folder.path());
        let path = folder.path().join("state/keyspaces").join(part);
        let away = folder.path().join("away");
        fs::rename(&path, &away).unwrap();
        for _ in 0..2 {
            let problem = State::open(folder.path(), Options::default()).err().unwrap();
            assert_eq!(problem.code, Code::StateCorrupt, "{problem}");
            assert!(problem.detail.contains(path.join("current").to_str().unwrap()), "{problem}");
            assert!(!path.exists());
        }
        // What was put back is as good as ever.
        fs::rename(&away, &path).unwrap();
        assert_eq!(open(folder.path()).begin().list("a", "", None, 1_000).unwrap().entries.len() as u64, COMMITS);
    }
}

/// The first start ends at any moment: the next one goes through, whatever is there by then.
#[test]
fn a_first_start_that_ends_anywhere_is_begun_anew() {
    let whole = common::folder();
    drop(open(whole.path()));
    fs::remove_file(whole.path().join("state/synced")).unwrap();
    for gone in ["keyspaces/1", "keyspaces/2/current", "keyspaces/3", "keyspaces/0/current", "keyspaces", "version"] {
        let folder = common::folder();
        common::copy(whole.path(), folder.path());
        let journal = OpenOptions::new().write(true).open(journal(folder.path())).unwrap();
        journal.set_len(0).unwrap();
        journal.set_len(1 << 20).unwrap();
        let path = folder.path().join("state").join(gone);
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap()
        } else {
            fs::remove_file(&path).unwrap()
        }
        let state = open(folder.path());
        common::set(&state, "k", "v");
        assert_eq!(common::get(&state, "k").unwrap(), "v", "{gone}");
    }
}

/// What is damaged is named by its file, and no other file with it.
#[test]
fn each_kind_of_damage_names_its_file() {
    let written = common::folder();
    let options = || Options { memtable_bytes: 64 << 10, ..Options::default() };
    let state = State::open(written.path(), options()).unwrap();
    for number in 0..200 {
        common::set(&state, &format!("{number:03}"), &"v".repeat(2_000));
    }
    drop(state);
    let part = Path::new("state/keyspaces/1");
    let table = fs::read_dir(written.path().join(part).join("tables")).unwrap().next().unwrap().unwrap().file_name();
    let table = part.join("tables").join(table);
    type Harm = fn(&Path);
    let harms: [(&str, &Path, Harm); 7] = [
        ("an empty table", &table, |path| fs::write(path, b"").unwrap()),
        ("a table with a tail", &table, |path| {
            fs::write(path, [fs::read(path).unwrap(), vec![7; 9]].concat()).unwrap()
        }),
        ("a table cut short", &table, |path| fs::write(path, &fs::read(path).unwrap()[..100]).unwrap()),
        ("a missing table", &table, |path| fs::remove_file(path).unwrap()),
        ("a damaged version", Path::new("state/version"), |path| fs::write(path, b"FJLC").unwrap()),
        ("another number in current", Path::new("state/keyspaces/1/current"), |path| flip_byte(path, 3)),
        ("another checksum in current", Path::new("state/keyspaces/1/current"), |path| flip_byte(path, 12)),
    ];
    for (what, file, harm) in harms {
        let folder = common::folder();
        common::copy(written.path(), folder.path());
        let path = folder.path().join(file);
        harm(&path);
        let problem = State::open(folder.path(), options()).err().unwrap_or_else(|| panic!("{what}: opened"));
        assert_eq!(problem.code, Code::StateCorrupt, "{what}: {problem}");
        assert!(problem.detail.contains(path.to_str().unwrap()), "{what}: {problem}");
    }
}

fn flip_byte(path: &Path, offset: u64) {
    flip(&OpenOptions::new().read(true).write(true).open(path).unwrap(), offset, 2);
}

/// All files below `folder`, with their lengths as far as there is something in them.
fn files(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if let Some(last) = fs::read(&path).unwrap().iter().rposition(|byte| *byte != 0) {
            found.push((path, last as u64 + 1));
        }
    }
    found.sort();
    found
}

#[test]
fn a_changed_bit_in_any_file_is_harmless_or_named() {
    let written = common::folder();
    let options = || Options { memtable_bytes: 64 << 10, ..Options::default() };
    let state = State::open(written.path(), options()).unwrap();
    let content = |number: u64| content(number).repeat(40);
    for number in 0..COMMITS {
        let mut transaction = state.begin();
        transaction.set("a", &format!("{number:03}"), content(number)).unwrap();
        durable(&state, transaction.commit().unwrap()).unwrap();
    }
    drop(state);
    let length = end_of_journal(written.path(), 0);
    OpenOptions::new().write(true).open(journal(written.path())).unwrap().set_len(length).unwrap();
    let files = files(&written.path().join("state"));
    let mut named = 0;
    for seed in 0..DAMAGES * 2 {
        let mut rng = Random(seed);
        let (path, length) = &files[rng.below(files.len() as u64) as usize];
        let (offset, bit) = (rng.below(*length), rng.below(8));
        let folder = common::folder();
        common::copy(written.path(), folder.path());
        let damaged = folder.path().join(path.strip_prefix(written.path()).unwrap());
        flip(&OpenOptions::new().read(true).write(true).open(&damaged).unwrap(), offset, bit);
        let at = format!("seed {seed}: {} at {offset}, bit {bit}", damaged.display());
        let state = match State::open(folder.path(), options()) {
            Ok(state) => state,
            Err(problem) => {
                let named_so = [Code::StateCorrupt, Code::DataUnusable, Code::DataNewer];
                assert!(named_so.contains(&problem.code), "{at}: {problem}");
                named += 1;
                continue;
            }
        };
        for number in 0..COMMITS {
            match state.begin().get("a", &format!("{number:03}")) {
                Ok(value) => assert_eq!(value, Some(content(number)), "{at}: {number}"),
                Err(state::StoreError::Unavailable(problem)) => {
                    assert_eq!(problem.code, Code::StateCorrupt, "{at}");
                    named += 1;
                    break;
                }
                Err(error) => panic!("{at}: {error}"),
            }
        }
    }
    assert!(named > DAMAGES / 2, "hardly anything was noticed: {named}");
}

#[test]
fn a_damaged_table_is_named_when_it_is_read() {
    let folder = common::folder();
    let options = || Options { memtable_bytes: 64 << 10, ..Options::default() };
    let state = State::open(folder.path(), options()).unwrap();
    for number in 0..200 {
        common::set(&state, &format!("{number:03}"), &"v".repeat(4_000));
    }
    drop(state);
    let tables = folder.path().join("state/keyspaces/1/tables");
    for entry in fs::read_dir(tables).unwrap() {
        let file = OpenOptions::new().read(true).write(true).open(entry.unwrap().path()).unwrap();
        // Further in than the books of the state and well before a table's index, without which it does
        // not open. A table that the last values went to may be shorter than that.
        if file.metadata().unwrap().len() > 40_000 {
            flip(&file, 20_000, 0);
        }
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
