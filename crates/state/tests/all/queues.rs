//! Queues: what is pushed is leased in order, once at a time, and goes when it is acked; what fails comes again or
//! dies.

use crate::common;
use crate::common::{open, wait};
use event::Event;
use problem::Code;
use state::{
    CommitError, Discard, Failed, Leased, Part, Push, Pushed, Queue, QueueConfig, REPLAYS, Replay, Replayed, State,
    StoreError,
};
use std::time::Duration;

pub const NOW: u64 = 1_700_000_000_000;

pub fn with_queue(config: QueueConfig, test: impl FnOnce(&State, &Queue)) {
    let folder = tempfile::tempdir().unwrap();
    let state = open(folder.path());
    let queue = state.queue("q").unwrap();
    queue.configure(config);
    test(&state, &queue);
}

pub fn event(id: &str) -> Event {
    Event { id: id.into(), source: "/test".into(), kind: "k".into(), time_ms: NOW, data: id.into(), ..Event::default() }
}

fn keyed(id: &str, key: &str) -> Event {
    Event { subject: Some(key.into()), ..event(id) }
}

pub fn push_of(event: Event) -> Push {
    Push { event, delay: Duration::ZERO, ttl: None }
}

fn push_at(state: &State, push: Push, now_ms: u64) -> Pushed {
    let mut transaction = state.begin();
    let pushed = transaction.push("q", &push, now_ms).unwrap();
    common::durable(state, transaction.commit().unwrap()).unwrap();
    pushed
}

pub fn push(state: &State, id: &str) -> Pushed {
    push_at(state, push_of(event(id)), NOW)
}

pub fn lease_at(queue: &Queue, now_ms: u64) -> Option<Leased> {
    queue.lease(now_ms, now_ms + 30_000, 1).unwrap().pop()
}

fn ack(state: &State, leased: &Leased) -> Result<(), CommitError> {
    let mut transaction = state.begin();
    transaction.ack(leased);
    transaction.commit().map(|ticket| common::durable(state, ticket).unwrap())
}

pub fn fail(state: &State, leased: &Leased, failed: Failed) {
    let mut transaction = state.begin();
    transaction.fail(leased, failed);
    common::durable(state, transaction.commit().unwrap()).unwrap();
}

fn ids(leased: &[Leased]) -> Vec<&str> {
    leased.iter().map(|leased| &*leased.event.id).collect()
}

fn listed(queue: &Queue, part: Part) -> Vec<String> {
    queue.list(part, None, 1_000).unwrap().into_iter().map(|listed| listed.event.id).collect()
}

#[test]
fn events_are_leased_in_order_and_gone_when_acked() {
    with_queue(QueueConfig::default(), |state, queue| {
        for id in ["a", "b", "c"] {
            push(state, id);
        }
        let leased = queue.lease(NOW, NOW + 1_000, 2).unwrap();
        assert_eq!(ids(&leased), ["a", "b"]);
        assert_eq!(leased[0].event, Event { attempt: 1, ..event("a") });
        assert_eq!(listed(queue, Part::Ready), ["c"]);
        for leased in &leased {
            ack(state, leased).unwrap();
        }
        assert_eq!(ack(state, &leased[0]), Err(CommitError::LeaseLost));
        let counts = queue.counts();
        assert_eq!((counts.ready, counts.leased, counts.since_start.pushed, counts.since_start.acked), (1, 0, 3, 2));
        assert_eq!(counts.leasable, 1);
        assert_eq!(lease_at(queue, NOW).unwrap().event.id, "c");
        assert!(lease_at(queue, NOW).is_none());
    });
}

#[test]
fn an_event_comes_again_when_its_lease_ends_and_the_late_ack_is_refused() {
    with_queue(QueueConfig::default(), |state, queue| {
        push(state, "a");
        push(state, "b");
        let first = lease_at(queue, NOW).unwrap();
        assert_eq!(queue.do_due(NOW + 1).unwrap(), Some(NOW + 30_000));
        assert_eq!(queue.do_due(NOW + 30_000).unwrap(), None);
        let second = lease_at(queue, NOW + 30_000).unwrap();
        assert_eq!((&*second.event.id, second.event.attempt), ("a", 2), "at its place, and the try is counted");
        assert_eq!(ack(state, &first), Err(CommitError::LeaseLost));
        ack(state, &second).unwrap();
    });
}

#[test]
fn a_released_event_keeps_its_place_and_its_tries() {
    with_queue(QueueConfig::default(), |state, queue| {
        push(state, "a");
        push(state, "b");
        queue.release(lease_at(queue, NOW).unwrap().lease);
        let again = lease_at(queue, NOW).unwrap();
        assert_eq!((&*again.event.id, again.event.attempt), ("a", 1));
    });
}

#[test]
fn what_fails_comes_again_later_with_its_tries_and_dies_in_the_end() {
    with_queue(QueueConfig::default(), |state, queue| {
        push(state, "a");
        let retry = Failed::Retry { at_ms: NOW + 5_000, reason: "not now".into() };
        fail(state, &lease_at(queue, NOW).unwrap(), retry);
        assert!(lease_at(queue, NOW + 4_999).is_none());
        assert_eq!((queue.counts().ready, queue.counts().delayed), (0, 1));
        let delayed = &queue.list(Part::Delayed, None, 9).unwrap()[0];
        assert_eq!((delayed.at_ms, delayed.reason.as_deref()), (Some(NOW + 5_000), Some("not now")));
        assert_eq!(queue.do_due(NOW + 4_999).unwrap(), Some(NOW + 5_000));
        queue.do_due(NOW + 5_000).unwrap();
        let again = lease_at(queue, NOW + 5_000).unwrap();
        assert_eq!(again.event.attempt, 2);
        fail(state, &again, Failed::Dead { reason: "never".into() });
        let dead = &queue.list(Part::Dead, None, 9).unwrap()[0];
        assert_eq!((&*dead.event.id, dead.reason.as_deref()), ("a", Some("never")));
        assert_eq!(wait(queue.replay(None, NOW)).unwrap(), 1);
        assert_eq!(lease_at(queue, NOW + 5_000).unwrap().event.attempt, 1);
    });
}

#[test]
fn dead_letters_go_back_by_reason_with_other_data_and_not_for_ever() {
    with_queue(QueueConfig::default(), |state, queue| {
        let die = |reason: &str| {
            let failed = Failed::Dead { reason: reason.into() };
            fail(state, &lease_at(queue, NOW).unwrap(), failed);
        };
        for (id, reason) in [("a", "L6003: no number"), ("b", "L6001: trapped"), ("c", "L6003: no unit")] {
            push(state, id);
            die(reason);
        }
        let replay = |replay: Replay<'_>| wait(queue.replay_with(replay, NOW)).unwrap();
        let done = |replayed, stayed| Replayed { replayed, stayed };
        let by_reason = Replay { reason: Some("L6003"), replays_max: Some(2), ..Replay::default() };
        assert_eq!(replay(Replay { dry_run: true, ..by_reason }), done(2, 0));
        assert_eq!((queue.counts().dead, queue.counts().ready), (3, 0));
        assert_eq!(replay(by_reason), done(2, 0));
        assert_eq!((queue.counts().dead, queue.counts().ready), (1, 2));
        // One goes back once more, and then no more unless nobody counts.
        die("again");
        let sequence = queue.list(Part::Dead, None, 9).unwrap().last().unwrap().sequence;
        let edited = Replay { sequences: Some(&[sequence]), data: Some(b"better"), ..by_reason };
        assert_eq!(replay(edited), done(0, 0), "it died for another reason");
        assert_eq!(replay(Replay { reason: None, ..edited }), done(1, 0));
        lease_at(queue, NOW).unwrap();
        let leased = lease_at(queue, NOW).unwrap();
        assert_eq!((leased.event.data.as_slice(), leased.event.attribute(REPLAYS)), (&b"better"[..], Some("2")));
        fail(state, &leased, Failed::Dead { reason: "again".into() });
        let again = Replay { reason: Some("again"), ..by_reason };
        assert_eq!(replay(again), done(0, 1));
        assert_eq!(replay(Replay { replays_max: Some(u32::MAX), ..again }), done(1, 0));
    });
}

/// All at once were a batch that is taken for damage when it is read back.
#[test]
fn large_dead_letters_go_back_a_few_at_a_time() {
    with_queue(QueueConfig::default(), |state, queue| {
        let small: Vec<u64> = (0..40).map(|number| die(state, queue, &number.to_string())).collect();
        let data = vec![7; 1 << 20];
        let commits = |replay: Replay<'_>| {
            let before = state.statistics().commits;
            let replayed = wait(queue.replay_with(replay, NOW)).unwrap().replayed;
            (replayed, state.statistics().commits - before)
        };
        let with = Replay { data: Some(&data), ..Replay::default() };
        let (replayed, steps) = commits(Replay { sequences: Some(&small[..20]), ..with });
        assert!(replayed == 20 && steps >= 10, "{replayed} in {steps}");
        let (replayed, steps) = commits(with);
        assert!(replayed == 20 && steps >= 10, "{replayed} in {steps}");
        assert_eq!((queue.counts().dead, queue.counts().ready), (0, 40));
    });
}

/// The number of an event that has just become a dead letter.
fn die(state: &State, queue: &Queue, id: &str) -> u64 {
    push(state, id);
    let leased = lease_at(queue, NOW).unwrap();
    fail(state, &leased, Failed::Dead { reason: "no luck".to_owned() });
    queue.list(Part::Dead, None, 1_000).unwrap().pop().unwrap().sequence
}

#[test]
fn dead_letters_are_discarded_by_reason_or_by_name_and_a_dry_run_only_counts() {
    with_queue(QueueConfig::default(), |state, queue| {
        for (id, reason) in [("a", "L6003: no number"), ("b", "L6001: trapped"), ("c", "L6003: no unit"), ("d", "x")] {
            push(state, id);
            fail(state, &lease_at(queue, NOW).unwrap(), Failed::Dead { reason: reason.into() });
        }
        let discard = |discard: Discard<'_>| wait(queue.discard(discard)).unwrap();
        let by_reason = Discard { reason: Some("L6003"), ..Discard::default() };
        assert_eq!(discard(Discard { dry_run: true, ..by_reason }), 2);
        assert_eq!(queue.counts().dead, 4);
        assert_eq!(discard(by_reason), 2);
        assert_eq!((listed(queue, Part::Dead), queue.counts().dead), (vec!["b".into(), "d".into()], 2));
        let sequence = queue.list(Part::Dead, None, 9).unwrap()[1].sequence;
        let named = Discard { sequences: Some(&[sequence, sequence, 99]), ..Discard::default() };
        assert_eq!(discard(Discard { reason: Some("L6003"), ..named }), 0, "it died for another reason");
        assert_eq!(discard(named), 1);
        // Those that stay can still go back, and what dies later can still be found.
        assert_eq!(wait(queue.replay(None, NOW)).unwrap(), 1);
        fail(state, &lease_at(queue, NOW).unwrap(), Failed::Dead { reason: "again".into() });
        assert_eq!((discard(Discard::default()), queue.counts().dead, queue.counts().bytes), (1, 0, 0));
    });
}

#[test]
fn a_full_queue_refuses_and_nothing_of_the_transaction_happens() {
    with_queue(QueueConfig { events_max: 2, ..QueueConfig::default() }, |state, queue| {
        push(state, "a");
        let mut transaction = state.begin();
        transaction.set("b", "k", b"v".to_vec()).unwrap();
        transaction.push("q", &push_of(event("b")), NOW).unwrap();
        transaction.push("q", &push_of(event("c")), NOW).unwrap();
        assert!(matches!(transaction.commit(), Err(CommitError::QueueFull(full)) if full.events_max == 2));
        assert_eq!((common::get(state, "k"), queue.counts().ready), (None, 1));
        push(state, "b");
        assert!(matches!(state.begin().push("q", &push_of(event("c")), NOW), Err(StoreError::QueueFull(_))));
        // Making room and taking it in one transaction is fine.
        let mut transaction = state.begin();
        assert_eq!(transaction.pop("q", NOW, NOW + 1_000).unwrap().unwrap().id, "a");
        transaction.push("q", &push_of(event("c")), NOW).unwrap();
        common::durable(state, transaction.commit().unwrap()).unwrap();
        assert_eq!((listed(queue, Part::Ready), queue.counts().since_start.refused), (vec!["b".into(), "c".into()], 2));
    });
}

#[test]
fn what_was_popped_is_given_back_when_the_transaction_is_dropped() {
    with_queue(QueueConfig::default(), |state, queue| {
        push(state, "a");
        let mut transaction = state.begin();
        assert_eq!(transaction.pop("q", NOW, NOW + 1_000).unwrap().unwrap().id, "a");
        assert_eq!(transaction.pop("q", NOW, NOW + 1_000).unwrap(), None);
        assert_eq!(queue.counts().leased, 1);
        drop(transaction);
        assert_eq!((queue.counts().leased, queue.counts().ready), (0, 1));
    });
}

#[test]
fn an_id_is_taken_once_for_as_long_as_it_is_remembered() {
    let config = QueueConfig { deduplicate: Some(Duration::from_secs(60)), ..QueueConfig::default() };
    with_queue(config, |state, queue| {
        assert_eq!(push(state, "a"), Pushed::Accepted);
        assert_eq!(push(state, "a"), Pushed::Duplicate);
        let other = Event { source: "/other".into(), ..event("a") };
        assert_eq!(push_at(state, push_of(other), NOW), Pushed::Accepted);
        // Two who both saw that it was new: the second runs again and sees the first.
        let mut both = [state.begin(), state.begin()].map(|mut transaction| {
            assert_eq!(transaction.push("q", &push_of(event("b")), NOW).unwrap(), Pushed::Accepted);
            Some(transaction)
        });
        assert!(both[0].take().unwrap().commit().is_ok());
        assert_eq!(both[1].take().unwrap().commit(), Err(CommitError::Conflict));
        assert_eq!(push(state, "b"), Pushed::Duplicate);
        assert_eq!(push_at(state, push_of(event("b")), NOW + 59_999), Pushed::Duplicate);
        assert_eq!(push_at(state, push_of(event("b")), NOW + 60_000), Pushed::Accepted);
        assert_eq!(queue.counts().since_start.duplicates, 3);
    });
}

#[test]
fn events_of_one_key_wait_for_each_other_and_others_pass() {
    with_queue(QueueConfig { order_by_key: true, ..QueueConfig::default() }, |state, queue| {
        for (id, key) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")] {
            push_at(state, push_of(keyed(id, key)), NOW);
        }
        let leased = queue.lease(NOW, NOW + 30_000, 9).unwrap();
        assert_eq!(ids(&leased), ["a1", "b1"]);
        let retry = Failed::Retry { at_ms: NOW + 1_000, reason: "later".into() };
        fail(state, &leased[0], retry);
        assert!(lease_at(queue, NOW + 999).is_none(), "the one that failed holds up its key");
        let again = lease_at(queue, NOW + 1_000).unwrap();
        assert_eq!((&*again.event.id, again.event.attempt), ("a1", 2));
        ack(state, &again).unwrap();
        assert_eq!(ids(&queue.lease(NOW, NOW + 30_000, 9).unwrap()), ["a2"]);
    });
}

/// A megabyte of one key that waits keeps no other key from being read.
#[test]
fn a_key_that_fails_holds_up_no_other_however_much_of_it_waits() {
    with_queue(QueueConfig { order_by_key: true, ..QueueConfig::default() }, |state, queue| {
        let large = |id: &str, key: &str| push_of(Event { data: vec![1; 40 << 10], ..keyed(id, key) });
        push_at(state, large("first", "a"), NOW);
        let first = lease_at(queue, NOW).unwrap();
        fail(state, &first, Failed::Retry { at_ms: NOW + 60_000, reason: "no luck".to_owned() });
        for number in 0..100 {
            push_at(state, large(&format!("a{number}"), "a"), NOW);
        }
        for number in 0..60 {
            push_at(state, large(&format!("b{number}"), &format!("b{number}")), NOW);
        }
        for number in 0..60 {
            let leased = lease_at(queue, NOW).unwrap_or_else(|| panic!("b{number} waits"));
            assert_eq!((&*leased.event.id, leased.event.data.len()), (&*format!("b{number}"), 40 << 10));
            ack(state, &leased).unwrap();
        }
        assert!(lease_at(queue, NOW).is_none());
        let counts = queue.counts();
        assert_eq!((counts.ready, counts.leasable, counts.delayed), (100, 0, 1), "nobody starts for what waits");
        for id in ["first", "a0", "a1"] {
            let leased = lease_at(queue, NOW + 60_000).unwrap();
            assert_eq!((&*leased.event.id, leased.event.data.len()), (id, 40 << 10));
            ack(state, &leased).unwrap();
        }
    });
}

#[test]
fn what_waits_too_long_goes_to_the_dead_letters() {
    with_queue(QueueConfig { ttl: Some(Duration::from_secs(10)), ..QueueConfig::default() }, |state, queue| {
        push(state, "a");
        push_at(state, Push { ttl: Some(Duration::from_secs(1)), ..push_of(event("b")) }, NOW);
        assert_eq!(queue.do_due(NOW + 999).unwrap(), Some(NOW + 1_000));
        assert_eq!(queue.do_due(NOW + 1_000).unwrap(), Some(NOW + 10_000));
        assert_eq!(listed(queue, Part::Dead), ["b"]);
        assert!(lease_at(queue, NOW + 10_000).is_none());
        let dead = queue.list(Part::Dead, None, 9).unwrap();
        assert_eq!(dead.iter().map(|dead| dead.reason.as_deref()).collect::<Vec<_>>(), [Some("expired"); 2]);
        assert_eq!((queue.counts().since_start.expired, queue.counts().ready, queue.counts().dead), (2, 0, 2));
    });
}

#[test]
fn the_oldest_dead_letter_goes_when_there_are_too_many() {
    with_queue(QueueConfig { dead_letters_max: 2, ..QueueConfig::default() }, |state, queue| {
        for id in ["a", "b", "c"] {
            push(state, id);
            fail(state, &lease_at(queue, NOW).unwrap(), Failed::Dead { reason: "no".into() });
        }
        assert_eq!(listed(queue, Part::Dead), ["b", "c"]);
        assert_eq!(
            (queue.counts().dead, queue.counts().since_start.died, queue.counts().since_start.dropped),
            (2, 3, 1)
        );
    });
}

#[test]
fn everything_is_there_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let state = open(folder.path());
    for number in 0..2_000 {
        push(&state, &format!("{number:04}"));
    }
    push_at(&state, Push { delay: Duration::from_secs(5), ..push_of(event("late")) }, NOW);
    let queue = state.queue("q").unwrap();
    for leased in queue.lease(NOW, NOW + 1_000, 600).unwrap() {
        ack(&state, &leased).unwrap();
    }
    let leased = queue.lease(NOW, NOW + 1_000, 10).unwrap();
    fail(&state, &leased[3], Failed::Dead { reason: "no".into() });
    let before = queue.counts();
    drop((state, queue));

    let state = open(folder.path());
    assert_eq!(state.queues(), ["q"]);
    let queue = state.queue("q").unwrap();
    let counts = queue.counts();
    assert_eq!((counts.ready, counts.delayed, counts.dead, counts.bytes), (1_399, 1, 1, before.bytes));
    queue.do_due(NOW + 5_000).unwrap();
    let mut all = Vec::new();
    loop {
        let leased = queue.lease(NOW + 5_000, NOW + 9_000, 100).unwrap();
        if leased.is_empty() {
            break;
        }
        all.extend(leased.into_iter().map(|leased| leased.event.id));
    }
    let mut wanted: Vec<String> =
        (600..2_000).filter(|number| *number != 603).map(|number| format!("{number:04}")).collect();
    wanted.push("late".into());
    assert_eq!(all, wanted);
}

#[test]
fn a_purged_queue_is_empty_but_for_what_is_leased() {
    with_queue(QueueConfig::default(), |state, queue| {
        for number in 0..1_500 {
            push(state, &format!("{number}"));
        }
        push_at(state, Push { delay: Duration::from_secs(5), ..push_of(event("late")) }, NOW);
        let leased = lease_at(queue, NOW).unwrap();
        assert_eq!(queue.counts().leasable, 1_499, "those on disk too");
        assert_eq!(wait(queue.purge(&[Part::Ready, Part::Delayed, Part::Dead])).unwrap(), 1_500);
        let counts = queue.counts();
        assert_eq!((counts.ready, counts.delayed, counts.leased), (0, 0, 1));
        ack(state, &leased).unwrap();
        assert_eq!(queue.counts().bytes, 0);
        push(state, "new");
        assert_eq!(lease_at(queue, NOW).unwrap().event.id, "new");
    });
}

/// What was acked between the look at the disk and the commit counted twice, and then there were fewer ready events
/// than leased ones.
#[test]
fn a_queue_is_purged_while_it_is_handled() {
    with_queue(QueueConfig::default(), |state, queue| {
        for _ in 0..30 {
            let mut transaction = state.begin();
            for number in 0..200 {
                transaction.push("q", &push_of(event(&number.to_string())), NOW).unwrap();
            }
            common::durable(state, transaction.commit().unwrap()).unwrap();
            let leased = queue.lease(NOW, NOW + 1_000, 100).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for leased in &leased[..90] {
                        let mut transaction = state.begin();
                        transaction.ack(leased);
                        let _nobody_waits = transaction.commit().unwrap();
                    }
                });
                assert_eq!(wait(queue.purge(&[Part::Ready])).unwrap(), 100);
            });
            let counts = queue.counts();
            assert_eq!((counts.ready, counts.leased), (0, 10));
            leased[90..].iter().for_each(|leased| ack(state, leased).unwrap());
            assert_eq!((queue.counts().leased, queue.counts().bytes), (0, 0));
        }
    });
}

#[test]
fn a_removed_queue_begins_anew() {
    with_queue(QueueConfig::default(), |state, queue| {
        push(state, "a");
        let leased = lease_at(queue, NOW).unwrap();
        wait(queue.remove()).unwrap();
        assert!(state.queues().is_empty());
        assert_eq!(ack(state, &leased), Err(CommitError::LeaseLost));
        push(state, "b");
        let queue = state.queue("q").unwrap();
        assert_eq!(lease_at(&queue, NOW).unwrap().event.id, "b");
        assert_eq!(queue.counts().since_start.pushed, 1);
    });
}

#[test]
fn an_event_that_cannot_be_read_is_named_and_does_not_hold_up_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let state = open(folder.path());
    for id in ["a", "b", "c"] {
        push(&state, id);
    }
    drop(state);
    let database = fjall::Database::builder(folder.path().join("state")).open().unwrap();
    let queues = database.keyspace("queues", fjall::KeyspaceCreateOptions::default).unwrap();
    let entries: Vec<_> = queues.iter().map(|entry| entry.into_inner().unwrap()).collect();
    let (key, _) = entries.into_iter().find(|(_, value)| value.ends_with(b"b")).unwrap();
    queues.insert(key, b"\x01\x00nonsense").unwrap();
    drop((queues, database));

    let state = open(folder.path());
    let queue = state.queue("q").unwrap();
    let problem = queue.lease(NOW, NOW + 1_000, 3).unwrap_err();
    assert_eq!(problem.code, Code::StateCorrupt);
    assert!(problem.detail.contains("\"q\"") && problem.detail.contains("event 1"), "{problem}");
    assert_eq!(ids(&queue.lease(NOW, NOW + 1_000, 3).unwrap()), ["a", "c"]);
    assert_eq!(queue.list(Part::Ready, None, 9).unwrap_err().code, Code::StateCorrupt);
    assert_eq!(wait(queue.purge(&[Part::Ready])).unwrap(), 1);
    assert!(queue.list(Part::Ready, None, 9).unwrap().is_empty());
}

#[test]
fn in_relaxed_mode_nobody_waits_for_the_disk_and_what_was_acknowledged_is_with_the_operating_system() {
    let folder = tempfile::tempdir().unwrap();
    let disk = std::sync::Arc::new(common::GatedDisk::default());
    let options = state::Options { disk: disk.clone(), ..state::Options::default() };
    let state = State::open(folder.path(), options).unwrap();
    state.set_sync_every(Some(Duration::from_secs(3_600)));
    disk.set_shut(true);
    for number in 0..100 {
        push(&state, &format!("{number}"));
    }
    assert_eq!(disk.syncs(), 0);
    // What a process that is killed now leaves behind.
    let copy = tempfile::tempdir().unwrap();
    common::copy(folder.path(), copy.path());
    assert_eq!(open(copy.path()).queue("q").unwrap().counts().ready, 100);
    // Back to strict: the next acknowledgement waits again.
    disk.set_shut(false);
    state.set_sync_every(None);
    push(&state, "last");
    assert!(disk.syncs() > 0);
}

#[test]
fn a_name_that_cannot_be_is_named() {
    with_queue(QueueConfig::default(), |state, _| {
        assert_eq!(state.queue("A").err().unwrap().code, Code::QueueUnknown);
        let error = state.begin().push("a/b", &push_of(event("a")), NOW).unwrap_err();
        assert_eq!(error, StoreError::QueueName { name: "a/b".into() });
    });
}

#[test]
fn somebody_who_watches_is_told_of_what_becomes_ready() {
    with_queue(QueueConfig::default(), |state, queue| {
        let mut watch = queue.watch();
        push(state, "a");
        assert!(watch.has_changed().unwrap());
        watch.mark_unchanged();
        let leased = lease_at(queue, NOW).unwrap();
        assert!(!watch.has_changed().unwrap());
        queue.release(leased.lease);
        assert!(watch.has_changed().unwrap());
        watch.mark_unchanged();
        push_at(state, Push { delay: Duration::from_secs(1), ..push_of(event("b")) }, NOW);
        assert!(watch.has_changed().unwrap(), "whoever calls `do_due` has to know of an earlier time");
        watch.mark_unchanged();
        queue.do_due(NOW + 999).unwrap();
        assert!(!watch.has_changed().unwrap());
        queue.do_due(NOW + 1_000).unwrap();
        assert!(watch.has_changed().unwrap());
    });
}
