//! A data folder of format 1 has all that it had after its first start with this version, wherever that start ends.
//!
//! `tests/format-1` was written by the last version that wrote that format.

use crate::common::{self, durable};
use crate::format_one::{self, Entry};
use problem::Code;
use random::Random;
use state::salvage::{Found, What, salvage};
use state::{BucketCounts, Clock, Disk, Options, Part, RealDisk, State};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NOW_MS: u64 = 1_700_000_000_000;
const BUCKETS: [&str; 4] = ["a", "ab", "a.b", ".results.f"];
/// Some batches of a migration.
const ENTRIES: u64 = 3_500;

/// Both clocks go together.
struct Hands(AtomicU64);

impl Clock for Hands {
    fn wall_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn steady_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

fn at(ms: u64) -> (Arc<Hands>, Options) {
    let clock = Arc::new(Hands(AtomicU64::new(ms)));
    (clock.clone(), Options { clock, memtable_bytes: 64 << 10, ..Options::default() })
}

fn entries() -> Vec<Entry> {
    let mut rng = Random(7);
    let entry = |number: u64| Entry {
        bucket: BUCKETS[rng.below(4) as usize].to_owned(),
        key: format!("{number:05}{}", ["", "\0", "é"][rng.below(3) as usize]),
        value: (0..rng.below(40)).map(|_| rng.next() as u8).collect(),
        expires_ms: (rng.below(3) == 0).then(|| NOW_MS + 1 + rng.below(10_000)),
    };
    (0..ENTRIES).map(entry).collect()
}

/// A folder of format 1 with these entries.
fn written(entries: &[Entry]) -> tempfile::TempDir {
    let folder = common::folder();
    format_one::write(folder.path(), entries.iter().cloned(), NOW_MS);
    folder
}

fn counts<'a>(entries: impl Iterator<Item = &'a Entry>) -> BTreeMap<String, BucketCounts> {
    let mut counts = BTreeMap::<_, BucketCounts>::new();
    for Entry { bucket, key, value, .. } in entries {
        let held = counts.entry(bucket.clone()).or_default();
        *held = BucketCounts { keys: held.keys + 1, bytes: held.bytes + (key.len() + value.len()) as u64 };
    }
    counts
}

fn read(state: &State) -> BTreeSet<(String, String, Vec<u8>)> {
    let mut found = BTreeSet::new();
    for bucket in BUCKETS {
        let mut after = None::<String>;
        loop {
            let page = state.begin().list(bucket, "", after.as_deref(), 1_000).unwrap();
            for entry in page.entries {
                let again = state.begin().get(bucket, &entry.key).unwrap();
                assert_eq!(again.as_ref(), Some(&entry.value));
                assert!(found.insert((bucket.to_owned(), entry.key, entry.value)));
            }
            let Some(next) = page.next else { break };
            after = Some(next);
        }
    }
    found
}

/// Opens `folder` and compares everything in it with `entries`, now and in five seconds.
fn check(folder: &Path, entries: &[Entry]) {
    let (clock, options) = at(NOW_MS);
    let state = State::open(folder, options).unwrap();
    assert_eq!(state.buckets().into_iter().collect::<BTreeMap<_, _>>(), counts(entries.iter()));
    for now_ms in [NOW_MS, NOW_MS + 5_000] {
        clock.0.store(now_ms, Ordering::SeqCst);
        let lives = entries.iter().filter(|entry| entry.expires_ms.is_none_or(|at| at > now_ms));
        let place = |entry: &Entry| (entry.bucket.clone(), entry.key.clone(), entry.value.clone());
        assert_eq!(read(&state), lives.clone().map(place).collect());
        while state.sweep().unwrap().next == Some(Duration::ZERO) {}
        assert_eq!(state.buckets().into_iter().collect::<BTreeMap<_, _>>(), counts(lives));
    }
    drop(state);
    // Nothing has a key of format 1, and every note is about an entry that is there.
    let stored = format_one::stored(folder);
    assert_eq!(stored.get(&b"\x03format"[..]).unwrap(), b"2");
    assert_eq!(stored.keys().filter(|key| key[0] > 4).count(), 0);
    let notes: Vec<_> = stored.keys().filter(|key| key[0] == 2).collect();
    assert_eq!(notes.len(), stored.iter().filter(|(key, value)| key[0] == 4 && value[0] == 2).count());
    assert!(notes.into_iter().all(|note| stored[&note[9..]][1..9] == note[1..9]));
}

#[test]
fn what_the_last_version_of_format_1_wrote_is_all_there() {
    let folder = common::folder();
    common::copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format-1"), folder.path());
    // Folders without a file are not in the repository.
    (1..4).for_each(|part| fs::create_dir_all(folder.path().join(format!("state/keyspaces/{part}/tables"))).unwrap());
    let (clock, options) = at(NOW_MS + 30_000);
    for start in 0..2 {
        let state = State::open(folder.path(), options.clone()).unwrap();
        let held: Vec<_> = state.buckets().into_iter().map(|(name, held)| (name, held.keys, held.bytes)).collect();
        let right = [(".results.f", 5, 80), ("a", 39, 27_422), ("a.b", 3, 27), ("ab", 5, 34), ("count", 1, 3)];
        let right = right.into_iter().chain([("lives", 3, 27)]);
        assert_eq!(held, right.map(|(name, keys, bytes)| (name.to_owned(), keys, bytes)).collect::<Vec<_>>());
        let get = |bucket: &str, key: &str| state.begin().get(bucket, key).unwrap();
        assert_eq!([get("a", "k00"), get("a", "k01")], [Some(b"again".to_vec()), None]);
        assert_eq!(get("a", "k02"), Some("a 2 ".repeat(150).into_bytes()));
        assert_eq!([get("ab", "é\0"), get("ab", "empty")], [Some(vec![0, 255]), Some(vec![])]);
        assert_eq!([get("count", "n"), get("gone", "k")], [Some(b"42".to_vec()), None]);
        let lives = || ["short", "long", "overwritten"].map(|key| get("lives", key).is_some());
        assert_eq!(lives(), [true; 3]);
        let events = state.queue("q").unwrap().list(Part::Ready, None, 9).unwrap();
        assert_eq!(events.into_iter().map(|listed| listed.event.id).collect::<Vec<_>>(), ["0", "1", "2"]);
        assert_eq!(state.records("tokens").get("t").unwrap().unwrap(), b"secret");
        if start == 1 {
            clock.0.fetch_add(31_000, Ordering::SeqCst);
            assert_eq!(lives(), [false, true, true]);
            assert_eq!(state.sweep().unwrap().keys, 1);
            assert_eq!(state.bucket_counts("lives").keys, 2);
            let mut transaction = state.begin();
            assert_eq!(transaction.increment("count", "n", 1), Ok(43));
            durable(&state, transaction.commit().unwrap()).unwrap();
        }
    }
}

#[test]
fn every_entry_has_its_new_key_its_expiry_and_its_count() {
    let entries = entries();
    let folder = written(&entries);
    check(folder.path(), &entries);
    let (none, of_none) = (written(&[]), []);
    check(none.path(), &of_none);
}

/// Copies the folder whenever it is asked for space, as `kill -9` would leave it: that is before each batch.
struct CopyingDisk {
    folder: PathBuf,
    images: Mutex<Vec<tempfile::TempDir>>,
}

impl Disk for CopyingDisk {
    fn sync(&self, journal: &File) -> io::Result<()> {
        RealDisk.sync(journal)
    }

    fn bytes_free(&self, _: &Path) -> io::Result<u64> {
        let image = common::folder();
        copy_written(&self.folder, image.path());
        self.images.lock().unwrap().push(image);
        Ok(u64::MAX)
    }
}

/// As [`common::copy`], without the space that a journal has ahead, and of what is there at this moment.
fn copy_written(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy_written(&source, &target);
        } else if let Ok(bytes) = fs::read(&source) {
            let is_journal = source.extension().is_some_and(|extension| extension == "jnl");
            let end = bytes.iter().rposition(|byte| *byte != 0 || !is_journal).map_or(0, |last| last + 1);
            fs::write(target, &bytes[..end]).unwrap();
        }
    }
}

/// Opens `folder`; what is in it at each moment when a batch is about to be written.
fn images(folder: &Path) -> Vec<tempfile::TempDir> {
    let disk = Arc::new(CopyingDisk { folder: folder.to_owned(), images: Mutex::default() });
    // Tables come and go while a folder is copied: here there are none before the end.
    let options = Options { memtable_bytes: 8 << 20, disk: disk.clone(), ..at(NOW_MS).1 };
    drop(State::open(folder, options).unwrap());
    std::mem::take(&mut *disk.images.lock().unwrap())
}

#[test]
fn a_start_that_ends_before_any_batch_is_gone_on_with() {
    let entries = entries();
    let folder = written(&entries);
    let images = images(folder.path());
    // Before the first, before each of the entries, and once when all is done.
    assert_eq!(images.len() as u64, 1 + ENTRIES.div_ceil(1_000) + 1);
    let format = |image: &tempfile::TempDir| format_one::stored(image.path())[&b"\x03format"[..]].clone();
    let formats: BTreeSet<_> = images.iter().map(format).collect();
    assert_eq!(formats, [&b"1"[..], b"1 to 2", b"2"].map(Vec::from).into(), "no version takes the second for its own");
    for image in &images {
        // The second start ends early as well, in the middle of what is left.
        let again = self::images(image.path());
        check(image.path(), &entries);
        check(again[again.len() / 2].path(), &entries);
    }
    check(folder.path(), &entries);
}

#[test]
fn without_enough_space_nothing_changes_and_the_space_is_said() {
    let entries = entries();
    let folder = written(&entries);
    let before = format_one::stored(folder.path());
    let disk = Arc::new(common::FaultyDisk::new());
    disk.bytes_free.store((64 << 20) + 1_000, Ordering::SeqCst);
    let options = Options { disk: disk.clone(), ..at(NOW_MS).1 };
    let problem = State::open(folder.path(), options).err().unwrap();
    assert_eq!(problem.code, Code::DiskFull);
    assert!(problem.detail.contains("67109864 bytes are free"), "{problem}");
    assert_eq!(format_one::stored(folder.path()), before);
    check(folder.path(), &entries);
}

/// Has space when it is asked for the first time, and `times` more, and none afterwards.
struct FillingDisk {
    times: u64,
    asked: AtomicU64,
}

impl Disk for FillingDisk {
    fn sync(&self, journal: &File) -> io::Result<()> {
        RealDisk.sync(journal)
    }

    fn bytes_free(&self, _: &Path) -> io::Result<u64> {
        Ok(if self.asked.fetch_add(1, Ordering::SeqCst) <= self.times { u64::MAX } else { 1_000 })
    }
}

#[test]
fn a_disk_that_fills_up_meanwhile_ends_the_start_and_the_next_one_goes_on() {
    let entries = entries();
    for times in 0..4 {
        let folder = written(&entries);
        // The second start finds the disk full again, one batch later.
        for _ in 0..2 {
            let disk = Arc::new(FillingDisk { times, asked: AtomicU64::new(0) });
            let Some(problem) = State::open(folder.path(), Options { disk, ..at(NOW_MS).1 }).err() else { continue };
            assert_eq!(problem.code, Code::DiskFull);
            assert!(problem.detail.contains("1000 bytes are free"), "{problem}");
            assert_eq!(format_one::stored(folder.path())[&b"\x03format"[..]], b"1 to 2");
        }
        check(folder.path(), &entries);
    }
}

#[test]
fn another_format_is_refused_by_its_name_and_stays_as_it_is() {
    let entries = entries();
    let folder = written(&entries);
    for format in ["3", "2 to 3", "0"] {
        format_one::set_format(folder.path(), format.as_bytes());
        let before = format_one::stored(folder.path());
        for _ in 0..2 {
            let problem = State::open(folder.path(), at(NOW_MS).1).err().unwrap();
            // An older program on the folder of a newer one says that it is older.
            let (code, hint) = match format {
                "0" => (Code::DataUnusable, "use the version of lighter that wrote it"),
                _ => (Code::DataNewer, "use that version of lighter or a newer one"),
            };
            assert_eq!(problem.code, code, "{format}");
            let right = format!("is written in format {format:?}, this version reads formats 1 and 2");
            assert!(problem.detail.ends_with(&right), "{problem}");
            assert!(problem.hint.contains(hint), "{problem:?}");
            assert_eq!(format_one::stored(folder.path()), before);
        }
    }
    // The version that wrote it finds all of it.
    format_one::set_format(folder.path(), b"1");
    check(folder.path(), &entries);
}

fn salvaged(folder: &Path) -> (BTreeMap<String, Vec<u8>>, Vec<String>) {
    let mut lines = BTreeMap::<String, Vec<u8>>::new();
    let damage = salvage(folder, |Found { what, .. }| {
        let What::Key { bucket, line } = what else { return Ok(()) };
        lines.entry(bucket).or_default().extend(line);
        Ok(())
    });
    (lines, damage.unwrap())
}

#[test]
fn a_damaged_folder_stays_as_it_is_and_is_salvaged_in_either_format() {
    let entries = entries();
    let (old, new) = (written(&entries), written(&entries));
    drop(State::open(new.path(), at(NOW_MS).1).unwrap());
    assert_eq!(salvaged(old.path()), salvaged(new.path()));
    assert_eq!(salvaged(old.path()).0.len(), BUCKETS.len());

    format_one::write_tables(old.path());
    let before = format_one::stored(old.path());
    let tables = fs::read_dir(old.path().join("state/keyspaces/1/tables")).unwrap();
    let table = tables.map(|entry| entry.unwrap().path()).max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    flip(&table, fs::metadata(&table).unwrap().len() / 2);
    let problem = State::open(old.path(), at(NOW_MS).1).err().unwrap();
    assert_eq!(problem.code, Code::StateCorrupt);
    assert!(problem.detail.contains(table.to_str().unwrap()), "{problem}");
    assert!(problem.hint.contains("lighter salvage"), "{problem:?}");
    assert!(problem.hint.contains("start the version of lighter that wrote it"), "{problem:?}");
    let (lines, damage) = salvaged(old.path());
    assert!(!lines.is_empty() && damage.len() == 1, "{damage:?}");
    flip(&table, fs::metadata(&table).unwrap().len() / 2);
    assert_eq!(format_one::stored(old.path()), before, "nothing was changed");
    check(old.path(), &entries);
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}
