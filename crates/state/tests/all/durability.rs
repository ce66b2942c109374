//! One sync serves many commits; a disk that is full, failed or slow is named, and reads go on.

use crate::common;
use crate::common::{FaultyDisk, GatedDisk, durable, get, open, set, wait};
use event::Event;
use problem::{Code, Problem};
use state::{Batch, CommitError, Disk, Options, Push, QueueConfig, RealDisk, State};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn on_disk(path: &Path, disk: Arc<dyn Disk>) -> State {
    State::open(path, Options { disk, ..Options::default() }).unwrap()
}

fn write(state: &State, key: &str) -> Result<state::Ticket, CommitError> {
    let mut transaction = state.begin();
    transaction.set("b", key, b"v".to_vec()).unwrap();
    transaction.commit()
}

fn code(result: Result<state::Ticket, CommitError>) -> Option<Code> {
    match result {
        Err(CommitError::Unavailable(problem)) => Some(problem.code),
        Err(other) => panic!("{other}"),
        Ok(_) => None,
    }
}

#[test]
fn commits_made_while_the_disk_is_busy_share_the_next_sync() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(GatedDisk::default());
    let state = on_disk(folder.path(), disk.clone());
    disk.set_shut(true);
    let first = write(&state, "first").unwrap();
    disk.wait_for_syncs(1);
    let later: Vec<_> = (0..50).map(|number| write(&state, &format!("{number}")).unwrap()).collect();
    // Neither reading nor committing waits for the disk, nor does a transaction that only reads.
    assert_eq!(get(&state, "49").unwrap(), "v");
    durable(&state, state.begin().commit().unwrap()).unwrap();
    disk.set_shut(false);
    for ticket in later {
        durable(&state, ticket).unwrap();
    }
    durable(&state, first).unwrap();
    assert_eq!(disk.syncs(), 2);
    assert_eq!(state.statistics().syncs, 2);
}

#[test]
fn a_commit_is_not_durable_before_its_sync() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(GatedDisk::default());
    let state = on_disk(folder.path(), disk.clone());
    disk.set_shut(true);
    let ticket = write(&state, "k").unwrap();
    disk.wait_for_syncs(1);
    let mut waiting = Box::pin(state.durable(ticket));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    disk.set_shut(false);
    wait(waiting).unwrap();
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_and_reads_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::new());
    let state = on_disk(folder.path(), disk.clone());
    set(&state, "before", "v");
    let acknowledged = write(&state, "acknowledged").unwrap();
    durable(&state, acknowledged).unwrap();
    disk.fails.store(true, Ordering::SeqCst);
    let lost = write(&state, "lost").unwrap();
    assert_eq!(durable(&state, lost).unwrap_err().code, Code::DiskFailed);

    // The disk recovers, but what it was asked to keep may be gone from the kernel's memory: it is not asked again.
    disk.fails.store(false, Ordering::SeqCst);
    let syncs = disk.syncs.load(Ordering::SeqCst);
    assert_eq!(code(write(&state, "after")), Some(Code::DiskFailed));
    assert_eq!(durable(&state, lost).unwrap_err().code, Code::DiskFailed);
    assert_eq!(wait(state.records("tokens").put(&[("t", b"v")])).unwrap_err().code, Code::DiskFailed);
    assert_eq!(disk.syncs.load(Ordering::SeqCst), syncs);
    durable(&state, acknowledged).unwrap();
    assert_eq!(get(&state, "before").unwrap(), "v");
    assert!(state.statistics().stopped);
    drop(state);

    let state = open(folder.path());
    assert_eq!(get(&state, "acknowledged").unwrap(), "v");
    set(&state, "again", "v");
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::new());
    let state = on_disk(folder.path(), disk.clone());
    set(&state, "before", "v");
    disk.bytes_free.store(1_000, Ordering::SeqCst);
    // The sync of this commit finds out.
    durable(&state, write(&state, "last").unwrap()).unwrap();
    assert_eq!(code(write(&state, "refused")), Some(Code::DiskFull));
    assert!(state.statistics().disk_full);
    assert_eq!(get(&state, "before").unwrap(), "v");
    assert_eq!(get(&state, "refused"), None);

    disk.bytes_free.store(u64::MAX, Ordering::SeqCst);
    set(&state, "after", "v");
    assert!(!state.statistics().disk_full && !state.statistics().stopped);
}

#[test]
fn a_large_commit_counts_its_own_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::new());
    let state = on_disk(folder.path(), disk.clone());
    disk.bytes_free.store((64 << 20) + (3 << 20), Ordering::SeqCst);
    let of_megabytes = |count: usize| {
        let mut transaction = state.begin();
        for number in 0..count {
            transaction.set("b", &format!("{number}"), vec![0; 1 << 20]).unwrap();
        }
        code(transaction.commit())
    };
    assert_eq!([of_megabytes(4), of_megabytes(2)], [Some(Code::DiskFull), None]);
    set(&state, "small", "v");
}

#[test]
fn more_than_the_memory_holds_goes_to_tables_and_is_all_there() {
    let folder = tempfile::tempdir().unwrap();
    let options = || Options { memtable_bytes: 256 << 10, ..Options::default() };
    let state = State::open(folder.path(), options()).unwrap();
    // Many more commits than the database's mailbox holds, so many times over its memory.
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let state = &state;
            scope.spawn(move || (0..400).for_each(|number| fill(state, &format!("{thread}/{number:04}"))));
        }
    });
    let check = |state: &State| {
        for thread in 0..8 {
            let page = state.begin().list("b", &format!("{thread}/"), None, 1_000).unwrap();
            let all =
                |page: &state::Page| page.entries.iter().all(|entry| entry.value == entry.key.repeat(100).as_bytes());
            assert_eq!((page.entries.len(), all(&page)), (400, true));
        }
    };
    check(&state);
    drop(state);
    assert!(tables(folder.path()) > 0);
    check(&State::open(folder.path(), options()).unwrap());
}

fn fill(state: &State, key: &str) {
    let mut transaction = state.begin();
    transaction.set("b", key, key.repeat(100).into_bytes()).unwrap();
    durable(state, transaction.commit().unwrap()).unwrap();
}

#[test]
fn large_transactions_from_many_threads_all_get_through_in_bounded_memory() {
    const THREADS: usize = 6;
    const EACH: usize = 3;
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(folder.path(), Options { memtable_bytes: 256 << 10, ..Options::default() }).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let state = &state;
            scope.spawn(move || (0..EACH).for_each(|number| write_large(state, thread * EACH + number)));
        }
    });
    for number in 0..THREADS * EACH {
        assert_eq!(state.begin().list(&format!("{number}"), "", None, 8).unwrap().entries.len(), 1);
        assert_eq!(state.begin().get(&format!("{number}"), "7").unwrap().unwrap().len(), 1 << 20);
    }
}

fn write_large(state: &State, bucket: usize) {
    loop {
        let mut transaction = state.begin();
        for number in 0..8 {
            transaction.set(&format!("{bucket}"), &format!("{number}"), vec![7; 1 << 20]).unwrap();
        }
        match transaction.commit() {
            Ok(ticket) => return durable(state, ticket).unwrap(),
            Err(CommitError::Unavailable(problem)) if problem.code == Code::StateBusy => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn tables(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("state/keyspaces/1/tables")).unwrap().count()
}

/// Remembers which file it was asked to make durable.
#[derive(Default)]
struct WatchedDisk {
    inode: AtomicU64,
}

impl Disk for WatchedDisk {
    fn sync(&self, journal: &File) -> io::Result<()> {
        self.inode.store(journal.metadata()?.ino(), Ordering::SeqCst);
        RealDisk.sync(journal)
    }

    fn bytes_free(&self, _: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

#[test]
fn when_the_database_begins_another_journal_that_one_is_synced() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(WatchedDisk::default());
    let state =
        State::open(folder.path(), Options { disk: disk.clone(), memtable_bytes: 1 << 20, ..Options::default() });
    let state = state.unwrap();
    let newest = || {
        let files = std::fs::read_dir(folder.path().join("state")).unwrap().map(|entry| entry.unwrap().path());
        let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok();
        files.filter_map(|path| Some((number(&path)?, path))).max().unwrap()
    };
    // A journal is full at 64 MB; when exactly the next one is begun is up to the database.
    for bucket in 0..40 {
        write_large(&state, bucket);
        let before = newest();
        common::set(&state, "small", "v");
        if before.0 > 0 && newest() == before {
            assert_eq!(disk.inode.load(Ordering::SeqCst), std::fs::metadata(before.1).unwrap().ino());
            return;
        }
    }
    panic!("the database never began another journal");
}

#[test]
fn what_was_committed_is_there_after_reopening_even_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let state = open(folder.path());
    let tickets: Vec<_> = (0..100).map(|number| write(&state, &format!("{number}")).unwrap()).collect();
    assert!(tickets.is_sorted());
    drop(state);
    let state = open(folder.path());
    assert!((0..100).all(|number| get(&state, &format!("{number}")).as_deref() == Some("v")));
}

#[test]
fn a_second_opener_is_refused_and_told_who_holds_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let state = open(folder.path());
    let problem = State::open(folder.path(), Options::default()).err().unwrap();
    assert_eq!(problem.code, Code::DataLocked);
    assert!(problem.detail.contains(&format!("process {}", std::process::id())), "{problem}");
    // A transaction keeps the folder as well as the state does.
    let transaction = state.begin();
    drop(state);
    assert!(State::open(folder.path(), Options::default()).is_err());
    drop(transaction);
    open(folder.path());
}

#[test]
fn a_folder_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "not a folder").unwrap();
    let problem = State::open(&file.join("data"), Options::default()).err().unwrap();
    assert_eq!(problem.code, Code::DataUnusable);
    assert!(problem.detail.contains("file"), "{problem}");
    open(&folder.path().join("made/on/the/way"));
}

#[test]
fn records_are_durable_together_and_apart_from_buckets() {
    let folder = tempfile::tempdir().unwrap();
    let state = open(folder.path());
    let functions = state.records("functions");
    wait(functions.put(&[("hello", b"1"), ("world", b"2")])).unwrap();
    let mut batch = Batch::default();
    batch.put("functions", "hello", b"3".to_vec()).unwrap();
    batch.delete("functions", "world").unwrap();
    batch.put("tokens", "t", b"secret".to_vec()).unwrap();
    wait(state.write_records(batch)).unwrap();
    drop((state, functions));

    let state = open(folder.path());
    let functions = state.records("functions");
    assert_eq!(functions.get("hello").unwrap().unwrap(), b"3");
    assert_eq!(functions.get("world").unwrap(), None);
    let page = functions.list("", None, 10).unwrap();
    assert_eq!(page.entries.iter().map(|entry| &*entry.key).collect::<Vec<_>>(), ["hello"]);
    assert_eq!(state.begin().get("tokens", "t").unwrap(), None);
    wait(state.records("tokens").delete(&["t", "never there"])).unwrap();
    assert_eq!(state.records("tokens").get("t").unwrap(), None);
}

#[test]
fn records_commit_together_with_buckets_and_queues() {
    let folder = tempfile::tempdir().unwrap();
    let state = open(folder.path());
    state.queue("q").unwrap().configure(QueueConfig { events_max: 1, ..QueueConfig::default() });
    let push = || Push { event: Event { id: "1".into(), ..Event::default() }, delay: Duration::ZERO, ttl: None };
    let commit = |value: &[u8]| {
        let mut transaction = state.begin();
        transaction.record("seen", "k", Some(value.to_vec())).unwrap();
        transaction.set("b", "k", value.to_vec()).unwrap();
        transaction.push("q", &push(), 1).map_err(Problem::from)?;
        Ok::<_, Problem>(transaction.commit()?)
    };
    let ticket = commit(b"1").unwrap();
    assert!(ticket.number() > 0);
    assert!(wait(state.durable_number(ticket.number())).unwrap() >= ticket.number());
    // The queue is full: nothing else happens either.
    assert_eq!(commit(b"2").unwrap_err().code, Code::QueueFull);
    drop(state);
    let state = open(folder.path());
    assert_eq!(state.records("seen").get("k").unwrap().unwrap(), b"1");
    let mut transaction = state.begin();
    transaction.record("seen", "k", None).unwrap();
    wait(state.durable(transaction.commit().unwrap())).unwrap();
    assert_eq!(state.records("seen").get("k").unwrap(), None);
}

#[test]
fn a_transaction_can_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    let folder = tempfile::tempdir().unwrap();
    let state = open(folder.path());
    is_send(&state.begin());
    is_send(&state.durable(state::Ticket::NOTHING_WRITTEN));
}
