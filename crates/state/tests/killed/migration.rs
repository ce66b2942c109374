//! `kill -9` at random moments of a first start on a folder of format 1: however often it is killed, everything is
//! there once a start got through.

use crate::common::{Rng, open};
use crate::format_one::{self, Entry};
use state::{Disk, Options, RealDisk, State};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const ENTRIES: u64 = 40_000;
const KILLS: u64 = 8;
const FOLDER: &str = "STATE_MIGRATION_FOLDER";

#[test]
fn child_opens_a_folder_and_is_killed() {
    // Does nothing unless the test below started it.
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let options = Options { disk: Arc::new(TalkingDisk), ..Options::default() };
    drop(State::open(Path::new(&folder), options).unwrap());
}

/// Says whenever it is asked for space: that is before each batch.
struct TalkingDisk;

impl Disk for TalkingDisk {
    fn sync(&self, journal: &File) -> io::Result<()> {
        RealDisk.sync(journal)
    }

    fn bytes_free(&self, _: &Path) -> io::Result<u64> {
        writeln!(io::stdout().lock(), "another batch").unwrap();
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
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "migration::child_opens_a_folder_and_is_killed", "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut rng = Rng(seed);
        let (wanted, pause) = (1 + rng.below(4) as usize, Duration::from_micros(rng.below(1_500)));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut batches = lines.filter(|line| line.contains("another batch"));
        assert!(batches.nth(wanted - 1).is_some(), "it ended before batch {wanted}");
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
