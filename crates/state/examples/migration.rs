//! Measures on this machine how long a data folder of format 1 takes to be carried over, and what that needs.
//!
//! cargo run --release -p state --example migration -- write FOLDER ENTRIES
//! cargo run --release -p state --example migration -- open FOLDER

#[path = "../tests/all/format_one.rs"]
mod format_one;

use format_one::Entry;
use state::{Options, State};
use std::path::Path;
use std::time::Instant;

const BUCKETS: u64 = 10;
const VALUE_BYTES: usize = 100;
/// One key in so many expires.
const EXPIRES: u64 = 10;
const NOW_MS: u64 = 1_700_000_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", folder, entries] => {
            let entries: u64 = entries.parse().expect("a number of entries");
            format_one::write(Path::new(folder), (0..entries).map(entry), NOW_MS);
            // What is in a journal only is in memory after a start, and a node never leaves as much there.
            format_one::write_tables(Path::new(folder));
        }
        ["open", folder] => open(Path::new(folder)),
        _ => panic!("write FOLDER ENTRIES, or open FOLDER"),
    }
}

/// A value that is as hard to press together as numbers from a sensor are.
fn entry(number: u64) -> Entry {
    let random = |at: u64| (number + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let value = (0..).flat_map(|at| random(at).to_string().into_bytes()).take(VALUE_BYTES).collect();
    Entry {
        bucket: format!("bucket-{}", number % BUCKETS),
        key: format!("sensor/{number:08}"),
        value,
        expires_ms: number.is_multiple_of(EXPIRES).then_some(u64::MAX / 2 + number),
    }
}

fn open(folder: &Path) {
    let (before, started) = (disk_kb(folder), Instant::now());
    let state = State::open(folder, Options::default()).expect("the state opens");
    let took = started.elapsed();
    let keys: u64 = state.buckets().iter().map(|(_, counts)| counts.keys).sum();
    println!(
        "{keys} keys open in {took:?}, at most {} kB resident; {before} kB on disk before, {} kB after",
        peak_kb(),
        disk_kb(folder),
    );
    let started = Instant::now();
    drop(state);
    let state = State::open(folder, Options::default()).expect("the state opens");
    println!("closed and open again in {:?}, {} kB on disk", started.elapsed(), state.statistics().disk_bytes >> 10);
}

fn disk_kb(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(folder).expect("the folder is there").flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_kb(&entry.path()),
        Ok(metadata) => metadata.blocks() / 2,
        // Tables come and go.
        Err(_) => 0,
    };
    entries.map(size).sum()
}

fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok()).expect("kB")
}
