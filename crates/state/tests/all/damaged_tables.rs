//! One changed bit in a table costs what stood in that block, and nothing else: other data is read and written, tables
//! are merged, the queue is handled around it and can be purged, and the state opens again.
//!
//! The story: a bit flipped in one table of one queue stopped the queue, then the merge of tables, and with that every
//! write of the node, for good.

use crate::common;
use crate::common::{durable, wait};
use event::Event;
use problem::Code;
use state::salvage::{Found, What, salvage};
use state::{Options, Part, Push, QueueConfig, State};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const EVENTS: u64 = 300;
const KEYS: u64 = 150;
/// Blocks damaged in turn, of each part.
const BLOCKS_MAX: usize = 16;
/// How long tables may take to be merged on a machine that is busy with other work.
const MERGED_WITHIN: Duration = Duration::from_secs(60);
const NOW_MS: u64 = 1_700_000_000_000;
/// Each block of a table begins so.
const BLOCK: &[u8] = b"LSM\x03";

fn options() -> Options {
    Options { memtable_bytes: 32 << 10, queue_memtable_bytes: 32 << 10, ..Options::default() }
}

fn value(number: u64) -> Vec<u8> {
    (0..1_500).map(|at| (number * 31 + at * 7) as u8).collect()
}

fn push(state: &State, queue: &str, number: u64) -> Result<(), problem::Problem> {
    let data = value(number).into();
    let event = Event { id: number.to_string(), source: "/test".into(), data, ..Event::default() };
    let mut transaction = state.begin();
    transaction.push(queue, &Push { event, delay: Default::default(), ttl: None }, NOW_MS).unwrap();
    durable(state, transaction.commit()?)
}

fn set(state: &State, bucket: &str, number: u64) -> Result<(), problem::Problem> {
    let mut transaction = state.begin();
    transaction.set(bucket, &format!("{number:04}"), value(number)).map_err(problem::Problem::from)?;
    durable(state, transaction.commit()?)
}

/// A folder with several tables of a bucket and of a queue.
fn written() -> tempfile::TempDir {
    let folder = common::folder();
    let state = State::open(folder.path(), options()).unwrap();
    for number in 0..KEYS {
        set(&state, "kept", number).unwrap();
    }
    for number in 0..EVENTS {
        push(&state, "food", number).unwrap();
    }
    drop(state);
    let newest = fs::read_dir(folder.path().join("state")).unwrap().map(|entry| entry.unwrap().path());
    let journal = newest.filter(|path| path.extension().is_some_and(|end| end == "jnl")).max().unwrap();
    // Most of its length is made ahead, and slow to copy.
    let bytes = fs::read(&journal).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
    OpenOptions::new().write(true).open(journal).unwrap().set_len(end).unwrap();
    folder
}

/// The blocks of all tables of a part: a table, and where in it a block begins.
fn blocks(folder: &Path, part: u32) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder.join(format!("state/keyspaces/{part}/tables"))).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let starts = bytes.windows(BLOCK.len()).enumerate().filter(|(_, window)| *window == BLOCK);
        found.extend(starts.map(|(at, _)| (path.strip_prefix(folder).unwrap().to_owned(), at as u64)));
    }
    found.sort();
    assert!(!found.is_empty(), "there is no table");
    found
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

/// Reads every key: each is right, or its table is named. Says how many are lost.
fn read_all(state: &State, path: &Path) -> u64 {
    let mut lost = 0;
    for number in 0..KEYS {
        match state.begin().get("kept", &format!("{number:04}")) {
            Ok(found) => assert_eq!(found, Some(value(number)), "key {number}"),
            Err(state::StoreError::Unavailable(problem)) => {
                assert_eq!(problem.code, Code::StateCorrupt, "{problem}");
                assert!(problem.detail.contains(path.to_str().unwrap()), "{problem}");
                lost += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    lost
}

/// Leases all that can be leased and acks it. Says how many.
fn handle_all(state: &State, queue: &str) -> u64 {
    let (queue, mut handled, mut last) = (state.queue(queue).unwrap(), 0, None);
    loop {
        let leased = queue.lease(NOW_MS, NOW_MS + 60_000, 16).unwrap();
        if leased.is_empty() {
            return handled;
        }
        let mut transaction = state.begin();
        for leased in &leased {
            let number: u64 = leased.event.id.parse().unwrap();
            assert_eq!(*leased.event.data, *value(number), "event {number}");
            assert!(last < Some(number), "{number} after {last:?}");
            last = Some(number);
            transaction.ack(leased);
            handled += 1;
        }
        durable(state, transaction.commit().unwrap()).unwrap();
    }
}

/// Writes enough for many tables, so that tables are merged.
fn write_much(state: &State) {
    for number in 0..200 {
        push(state, "other", number).unwrap();
        set(state, "other", number).unwrap();
    }
    assert_eq!(handle_all(state, "other"), 200);
    assert!(!state.statistics().stopped, "{:?}", state.stopped());
}

#[test]
fn a_changed_bit_costs_its_block_and_nothing_else() {
    let written = written();
    let (mut refused, mut lost_keys, mut lost_events) = (0, 0, 0);
    let some = |part| {
        let all = blocks(written.path(), part);
        let step = all.len().div_ceil(BLOCKS_MAX);
        all.into_iter().step_by(step)
    };
    let all: Vec<_> = [1, 3].into_iter().flat_map(some).collect();
    let count = all.len();
    let tables = all.iter().map(|(table, _)| table.clone()).collect::<BTreeSet<_>>().len();
    for (table, offset) in all {
        let folder = common::folder();
        common::copy(written.path(), folder.path());
        let path = folder.path().join(&table);
        flip(&path, offset + 40);
        let at = format!("{} at {offset}", table.display());
        let state = match State::open(folder.path(), options()) {
            Ok(state) => state,
            Err(problem) => {
                // The first block of a table has the numbers of queues or the books of buckets; the last one says what
                // the table is. Without these the state would have to guess.
                assert_eq!(problem.code, Code::StateCorrupt, "{at}: {problem}");
                assert!(problem.detail.contains(path.to_str().unwrap()), "{at}: {problem}");
                refused += 1;
                continue;
            }
        };
        let keys = read_all(&state, &path);
        write_much(&state);
        let handled = handle_all(&state, "food");
        let queue = state.queue("food").unwrap();
        let counts = queue.counts();
        assert_eq!((handled + counts.damaged, counts.ready), (EVENTS, 0), "{at}: {counts:?}");
        if keys + counts.damaged > 0 {
            assert_eq!(state.statistics().tables_damaged, 1, "{at}");
        }
        (lost_keys, lost_events) = (lost_keys + keys, lost_events + counts.damaged);
        drop(queue);
        drop(state);
        let state = State::open(folder.path(), options()).unwrap();
        assert_eq!(read_all(&state, &path), keys, "{at}: another loss after a restart");
        write_much(&state);
        push(&state, "food", EVENTS).unwrap();
        assert_eq!(handle_all(&state, "food"), 1, "{at}: what comes later");
        let queue = state.queue("food").unwrap();
        assert_eq!(queue.counts().damaged, counts.damaged, "{at}: {:?}", queue.counts());
        let purged = wait(queue.purge(&[Part::Ready, Part::Delayed, Part::Dead])).unwrap();
        assert_eq!(purged, counts.damaged, "{at}");
        assert_eq!((queue.counts().damaged, queue.counts().ready, queue.counts().bytes), (0, 0, 0), "{at}");
        wait(queue.remove()).unwrap();
        assert!(!state.statistics().stopped, "{at}: {:?}", state.stopped());
    }
    println!("{count} blocks: {refused} refused at the start, {lost_keys} keys and {lost_events} events lost");
    // How many tables there are is a matter of when they were merged.
    assert!(refused <= 2 * tables && refused * 2 < count, "{refused} of {count} refused, in {tables} tables");
    assert!(lost_keys > 0 && lost_events > 0, "nothing was damaged");
}

#[test]
fn many_tables_are_written_above_damaged_ones() {
    let folder = written();
    let all = blocks(folder.path(), 3);
    // The second block of each table: the first one has the numbers of the queues.
    let seconds: Vec<_> = all.windows(2).filter(|pair| pair[0].1 == 0).map(|pair| pair[1].clone()).collect();
    for (table, offset) in &seconds {
        flip(&folder.path().join(table), offset + 40);
    }
    let state = State::open(folder.path(), options()).unwrap();
    state.queue("other").unwrap().configure(QueueConfig { bytes_max: u64::MAX, ..QueueConfig::default() });
    // Some seventy tables: the database halts at thirty that are not merged.
    for number in 0..1_500 {
        push(&state, "other", number).unwrap();
    }
    assert_eq!(handle_all(&state, "other"), 1_500);
    assert!(handle_all(&state, "food") > EVENTS / 4);
    assert_eq!(state.statistics().tables_damaged, seconds.len() as u64);
    // Tables are merged beside the writing, and on a busy machine long after it. Writing goes on meanwhile: a newest
    // table that is much smaller than the others is merged once more have come, and what is merged begins with it.
    let tables = || fs::read_dir(folder.path().join("state/keyspaces/3/tables")).unwrap().count();
    let deadline = Instant::now() + MERGED_WITHIN;
    let mut number = 1_500;
    while tables() >= 45 {
        assert!(Instant::now() < deadline, "{} tables are left unmerged", tables());
        push(&state, "other", number).unwrap();
        number += 1;
        thread::sleep(Duration::from_millis(20));
    }
}

/// Every file below `folder`, and what is in it.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(contents(&path)) } else { found.push((path.clone(), fs::read(path).unwrap())) }
    }
    found.sort();
    found
}

/// What a salvage finds: keys and events by number, and how many of them are doubtful.
fn salvaged(folder: &Path) -> (BTreeSet<u64>, BTreeSet<u64>, usize, Vec<String>) {
    let (mut keys, mut events, mut doubtful) = (BTreeSet::new(), BTreeSet::new(), 0);
    let damage = salvage(folder, |Found { what, is_doubtful }| {
        doubtful += usize::from(is_doubtful);
        match what {
            What::Key { bucket, line } => {
                assert_eq!(bucket, "kept");
                let key = String::from_utf8_lossy(&line).split('"').nth(3).unwrap().parse().unwrap();
                assert!(keys.insert(key), "key {key} twice");
            }
            What::Event { queue, part, event } => {
                assert_eq!((queue.as_str(), part), ("food", Part::Ready));
                let number = event.id.parse().unwrap();
                assert_eq!(*event.data, *value(number));
                assert!(events.insert(number), "event {number} twice");
            }
            What::Record { .. } => {}
        }
        Ok(())
    });
    (keys, events, doubtful, damage.unwrap())
}

#[test]
fn what_is_readable_is_salvaged_and_the_folder_stays_as_it_is() {
    let folder = written();
    let (keys, events, doubtful, damage) = salvaged(folder.path());
    assert_eq!((keys.len() as u64, events.len() as u64, doubtful), (KEYS, EVENTS, 0));
    assert_eq!(damage, Vec::<String>::new());

    // Without the journal there is what is in tables, and that the journal is missing is said.
    for (path, _) in contents(&folder.path().join("state")) {
        if path.extension().is_some_and(|end| end == "jnl") {
            fs::remove_file(path).unwrap();
        }
    }
    let (_, in_tables, doubtful, damage) = salvaged(folder.path());
    assert!(!in_tables.is_empty() && doubtful == 0 && damage.len() == 1, "{damage:?}");

    let all = blocks(folder.path(), 3);
    let (table, offset) = all.windows(2).find(|pair| pair[0].1 == 0).map(|pair| pair[1].clone()).unwrap();
    flip(&folder.path().join(&table), offset + 40);
    let before = contents(folder.path());
    let (_, events, doubtful, damage) = salvaged(folder.path());
    assert_eq!(contents(folder.path()), before, "the damaged folder is as it was");
    let lost = in_tables.len() - events.len();
    assert!((1..20).contains(&lost) && events.is_subset(&in_tables), "{lost} lost");
    assert!(doubtful < 100, "only what may have stood in the block is in doubt: {doubtful}");
    let place = format!("{} is damaged at byte {offset}", folder.path().join(&table).display());
    assert!(damage.contains(&place), "{damage:?}");

    // A table that is cut short has what is left of it.
    OpenOptions::new().write(true).open(folder.path().join(&table)).unwrap().set_len(offset).unwrap();
    let (_, fewer, _, _) = salvaged(folder.path());
    assert!(!fewer.is_empty() && fewer.is_subset(&events));
}
