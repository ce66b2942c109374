//! Whoever is told "done" is told what is durable: answers wait for what they rest on, and for nothing else.
//!
//! Once a duplicate was confirmed while the first was still on its way to the disk, and also after its write had
//! failed.

use crate::common::{FaultyDisk, GatedDisk, durable};
use event::Event;
use problem::Code;
use state::{Disk, Options, Push, Pushed, QueueConfig, State, Ticket, Transaction};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const NOW_MS: u64 = 1_700_000_000_000;

fn on_disk(path: &Path, disk: Arc<dyn Disk>) -> State {
    let state = State::open(path, Options { disk, ..Options::default() }).unwrap();
    let config = QueueConfig { deduplicate: Some(Duration::from_secs(60)), ..QueueConfig::default() };
    state.queue("q").unwrap().configure(config);
    state
}

fn ticket(state: &State, work: impl FnOnce(&mut Transaction)) -> Ticket {
    let mut transaction = state.begin();
    work(&mut transaction);
    transaction.commit().unwrap()
}

fn push(transaction: &mut Transaction, id: &str) -> Pushed {
    let event = Event { id: id.to_owned(), source: "/s".to_owned(), kind: "k".to_owned(), ..Event::default() };
    transaction.push("q", &Push { event, delay: Duration::ZERO, ttl: None }, NOW_MS).unwrap()
}

fn first(transaction: &mut Transaction) {
    assert_eq!(push(transaction, "1"), Pushed::Accepted);
}

fn again(transaction: &mut Transaction, id: &str) {
    assert_eq!(push(transaction, id), Pushed::Duplicate);
}

fn answers(state: &State, ticket: Ticket) -> bool {
    let polled = pin!(state.durable(ticket)).poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Ok(())))
}

/// A state whose disk confirmed key `old` and event `old`, and does not answer since; `new` and the event `new` wait
/// for it.
fn waiting(folder: &Path) -> (State, Arc<GatedDisk>) {
    let disk = Arc::new(GatedDisk::default());
    let state = on_disk(folder, disk.clone());
    let write = |name: &str| {
        ticket(&state, |transaction| {
            transaction.set(name, name, b"v".to_vec()).unwrap();
            push(transaction, name);
        })
    };
    durable(&state, write("old")).unwrap();
    let first = state.queue("q").unwrap().lease(NOW_MS, NOW_MS + 1, 1).unwrap();
    durable(&state, ticket(&state, |transaction| transaction.ack(&first[0]))).unwrap();
    disk.set_shut(true);
    let _waits_with_the_others = write("new");
    (state, disk)
}

type Work = fn(&mut Transaction);

/// What rests on the commit that is on its way to the disk.
const NEW: [(&str, Work); 6] = [
    ("a duplicate", |transaction| again(transaction, "new")),
    ("a key", |transaction| drop(transaction.get("new", "new").unwrap().unwrap())),
    ("a list", |transaction| assert_eq!(transaction.list("new", "n", None, 9).unwrap().entries.len(), 1)),
    ("an empty list", |transaction| assert!(transaction.list("new", "o", None, 9).unwrap().entries.is_empty())),
    ("a comparison", |transaction| assert!(!transaction.compare_and_set("new", "new", None, None).unwrap())),
    ("old and new", |transaction| {
        again(transaction, "new");
        again(transaction, "old");
    }),
];

/// What rests on what was durable before.
const OLD: [(&str, Work); 6] = [
    ("nothing", |_| {}),
    ("a duplicate", |transaction| again(transaction, "old")),
    ("a key", |transaction| drop(transaction.get("old", "old").unwrap().unwrap())),
    ("a missing key", |transaction| assert!(transaction.get("old", "no").unwrap().is_none())),
    ("a list", |transaction| assert_eq!(transaction.list("old", "", None, 9).unwrap().entries.len(), 1)),
    ("a comparison", |transaction| assert!(!transaction.compare_and_set("old", "old", None, None).unwrap())),
];

#[test]
fn an_answer_waits_for_the_commits_it_has_seen_something_of() {
    let folder = tempfile::tempdir().unwrap();
    let (state, disk) = waiting(folder.path());
    let new = NEW.map(|(what, work)| (what, ticket(&state, work)));
    for (what, ticket) in new {
        assert!(!answers(&state, ticket), "{what}");
    }
    disk.set_shut(false);
    for (_, ticket) in new {
        durable(&state, ticket).unwrap();
    }
    disk.set_shut(true);
    for (what, work) in NEW {
        assert!(answers(&state, ticket(&state, work)), "{what}, once it was durable");
    }
    disk.set_shut(false);
}

/// Places are shared by hash: with one other commit on its way a collision is rare, and several in a row are no
/// accident.
#[test]
fn an_answer_waits_for_nothing_it_does_not_rest_on() {
    let waits = |what: &(&str, Work)| {
        let folder = tempfile::tempdir().unwrap();
        let (state, disk) = waiting(folder.path());
        let answers = answers(&state, ticket(&state, what.1));
        disk.set_shut(false);
        !answers
    };
    for what in &OLD {
        assert!((0..3).any(|_| !waits(what)), "{}", what.0);
    }
}

#[test]
fn who_finds_an_empty_queue_waits_for_who_emptied_it() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(GatedDisk::default());
    let state = on_disk(folder.path(), disk.clone());
    durable(&state, ticket(&state, first)).unwrap();
    disk.set_shut(true);
    let pop = |transaction: &mut Transaction| transaction.pop("q", NOW_MS, NOW_MS + 1).unwrap().is_some();
    let first = ticket(&state, |transaction| assert!(pop(transaction)));
    let second = ticket(&state, |transaction| assert!(!pop(transaction)));
    assert!(!answers(&state, first) && !answers(&state, second));
    let queue = state.queue("q").unwrap();
    assert!(pin!(queue.purge(&[state::Part::Ready])).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    disk.set_shut(false);
    durable(&state, second).unwrap();
}

#[test]
fn a_leased_event_says_from_when_on_it_is_durable() {
    let folder = tempfile::tempdir().unwrap();
    let (state, disk) = waiting(folder.path());
    let leased = state.queue("q").unwrap().lease(NOW_MS, NOW_MS + 1, 1).unwrap();
    assert!(!answers(&state, leased[0].ticket));
    disk.set_shut(false);
    durable(&state, leased[0].ticket).unwrap();
}

#[test]
fn after_a_failed_write_nobody_is_told_that_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::new());
    let state = on_disk(folder.path(), disk.clone());
    let write = |name: &str| {
        ticket(&state, |transaction| {
            transaction.set(name, name, b"v".to_vec()).unwrap();
            push(transaction, name);
        })
    };
    durable(&state, write("old")).unwrap();
    disk.fails.store(true, Ordering::SeqCst);
    let failed = |ticket| durable(&state, ticket).unwrap_err().code == Code::DiskFailed;
    assert!(failed(write("new")));
    for (what, work) in NEW {
        assert!(failed(ticket(&state, work)), "{what}");
    }
    let leased = state.queue("q").unwrap().lease(NOW_MS, NOW_MS + 1, 2).unwrap();
    assert!(answers(&state, leased[0].ticket) && failed(leased[1].ticket));
    assert_eq!(state.takes_writes().unwrap_err().code, Code::DiskFailed);
    let read = OLD.into_iter().filter(|(_, work)| answers(&state, ticket(&state, work))).count();
    assert!(read > OLD.len() / 2, "reads go on: {read}");
}

#[test]
fn in_relaxed_mode_nobody_waits_for_a_sync() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(GatedDisk::default());
    let state = on_disk(folder.path(), disk.clone());
    state.set_sync_every(Some(Duration::from_secs(3_600)));
    disk.set_shut(true);
    durable(&state, ticket(&state, first)).unwrap();
    assert!(answers(&state, ticket(&state, |transaction| again(transaction, "1"))));
    disk.set_shut(false);
}
