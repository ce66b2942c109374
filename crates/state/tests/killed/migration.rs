//! `kill -9` at random moments of a first start on a folder of format 1: however often it is killed, everything is
//! there once a start got through.

use crate::common::open;
use crate::format_one::{self, Entry};
use random::Random;
use state::{Disk, Options, RealDisk, State};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const ENTRIES: u64 = 40_000;
const KILLS: u64 = 8;
const FOLDER: &str = "STATE_MIGRATION_FOLDER";
/// In which batch the child is killed.
const BATCH: &str = "STATE_MIGRATION_BATCH";

#[test]
fn child_opens_a_folder_and_is_killed() {
    // Does nothing unless the test below started it.
    let (Ok(folder), Ok(batch)) = (std::env::var(FOLDER), std::env::var(BATCH)) else { return };
    let disk = Arc::new(WaitingDisk { batch: batch.parse().unwrap(), asked: AtomicU64::new(0) });
    drop(State::open(Path::new(&folder), Options { disk, ..Options::default() }).unwrap());
}

/// It is asked for space before each batch. It says when that batch begins, and has the one after it wait for ever: so
/// the child does not get to the end, however long it takes until it is killed.
struct WaitingDisk {
    batch: u64,
    asked: AtomicU64,
}

impl Disk for WaitingDisk {
    fn sync(&self, journal: &File) -> io::Result<()> {
        RealDisk.sync(journal)
    }

    fn bytes_free(&self, _: &Path) -> io::Result<u64> {
        let batch = 1 + self.asked.fetch_add(1, Ordering::SeqCst);
        if batch == self.batch {
            writeln!(io::stdout().lock(), "the batch begins").unwrap();
        }
        while batch > self.batch {
            std::thread::park();
        }
        Ok(u64::MAX)
    }
}

fn entry(number: u64) -> Entry {
    let value = number.to_string().repeat(10).into_bytes();
    // Lives long, so that the note of it comes along.
    let expires_ms = number.is_multiple_of(3).then(|| u64::MAX / 2 + number);
    Entry { bucket: format!("b{}", number % 3), key: format!("{number:06}"), value, expires_ms }
}

#[test]
fn a_migration_that_is_killed_again_and_again_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    format_one::write(folder.path(), (0..ENTRIES).map(entry), 1_700_000_000_000);
    let mut under_way = 0;
    for seed in 0..KILLS {
        let mut rng = Random(seed);
        let (batch, pause) = (1 + rng.below(4), Duration::from_micros(rng.below(1_500)));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "migration::child_opens_a_folder_and_is_killed", "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder.path())
            .env(BATCH, batch.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("the batch begins")), "it ended before batch {batch}");
        // So that it is killed at another place of it each time.
        std::thread::sleep(pause);
        child.kill().unwrap();
        child.wait().unwrap();
        under_way += u64::from(format_one::stored(folder.path())[&b"\x03format"[..]] == b"1 to 2");
    }
    assert!(under_way > KILLS / 2, "only {under_way} of {KILLS} starts had begun when they were killed");
    let state = open(folder.path());
    for bucket in 0..3 {
        let (name, mut after, mut found) = (format!("b{bucket}"), None::<String>, 0);
        loop {
            let page = state.begin().list(&name, "", after.as_deref(), 1_000).unwrap();
            for stored in page.entries {
                let number = stored.key.parse().unwrap();
                assert_eq!((stored.value, number % 3), (entry(number).value, bucket));
                found += 1;
            }
            let Some(next) = page.next else { break };
            after = Some(next);
        }
        assert_eq!(
            (found, state.bucket_counts(&name).keys),
            ((0..ENTRIES).filter(|n| n % 3 == bucket).count() as u64, found)
        );
    }
    drop(state);
    let stored = format_one::stored(folder.path());
    let of = |kind: u8| stored.keys().filter(|key| key[0] == kind).count() as u64;
    assert_eq!((of(2), of(4), stored.len() as u64 - of(2) - of(4)), (ENTRIES.div_ceil(3), ENTRIES, 6));
}
