//! A process that has as many files open as it may: what is written waits in memory, then is refused with a code, and
//! goes on as soon as files are closed.
//!
//! The story: idle connections took the last file, a sync failed with "too many open files", and that was taken for a
//! broken disk: all writes were refused until a restart.

#[path = "all/common/mod.rs"]
mod common;

use common::durable;
use problem::{Code, Problem};
use rustix::process::{Resource, getrlimit, setrlimit};
use state::{Options, State};
use std::fs::File;
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 900_000;
/// Keys of one commit: few large commits fill the memory sooner than many small ones, each of which waits.
const PARTS: usize = 12;
const PATIENCE: Duration = Duration::from_secs(60);

fn set(state: &State, number: usize) -> Result<(), Problem> {
    let mut transaction = state.begin();
    for part in 0..PARTS {
        let key = format!("{number:04}/{part}");
        transaction.set("b", &key, vec![number as u8; VALUE_BYTES]).map_err(Problem::from)?;
    }
    durable(state, transaction.commit()?)
}

fn take_all_files() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn without_a_file_left_writes_wait_are_refused_and_go_on() {
    let folder = common::folder();
    let options = || Options { memtable_bytes: 1 << 20, queue_memtable_bytes: 1 << 20, ..Options::default() };
    let state = State::open(folder.path(), options()).unwrap();
    (0..2).for_each(|number| set(&state, number).unwrap());
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(200);
    setrlimit(Resource::Nofile, limit).unwrap();
    let (mut written, mut refused) = (2, None);
    let mut taken = take_all_files();
    assert!(!taken.is_empty());
    while refused.is_none() && written < 50 {
        match set(&state, written) {
            Ok(()) => written += 1,
            Err(problem) => refused = Some(problem),
        }
        // What the state had open and has closed since is taken as well.
        taken.extend(take_all_files());
    }
    let refused = refused.expect("no memory is without an end");
    assert_eq!(refused.code, Code::FilesExhausted, "{refused}");
    assert!(written > 3, "it waits in memory first: {written}");
    assert_eq!(state.stopped(), None);
    drop(taken);
    let since = Instant::now();
    while set(&state, written).is_err() {
        assert!(since.elapsed() < PATIENCE, "{:?}", set(&state, written));
        std::thread::sleep(Duration::from_millis(5));
    }
    for number in 0..=written {
        let value = state.begin().get("b", &format!("{number:04}/0")).unwrap();
        assert_eq!(value, Some(vec![number as u8; VALUE_BYTES]), "{number}");
    }
    assert_eq!(state.stopped(), None);
    drop(state);
    let state = State::open(folder.path(), options()).unwrap();
    assert_eq!(state.bucket_counts("b").keys, ((written + 1) * PARTS) as u64);
}
