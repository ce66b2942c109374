//! Parts of a transaction: what one of them did can be undone, and nothing of the others goes with it.

use crate::common::{durable, folder, get, open, set};
use event::Event;
use state::{
    BucketConfig, CommitError, Leased, Push, Pushed, QueueConfig, State, StoreError, Transaction, WRITE_BYTES_MAX,
    WRITES_MAX,
};
use std::collections::BTreeMap;
use std::time::Duration;

const NOW: u64 = 1_700_000_000_000;

fn pushed(transaction: &mut Transaction, queue: &str, id: &str) -> Pushed {
    let event = Event { id: id.into(), source: "/test".into(), data: id.into(), ..Event::default() };
    transaction.push(queue, &Push { event, delay: Duration::ZERO, ttl: None }, NOW).unwrap()
}

fn with_queue(state: &State, name: &str, ids: &[&str]) {
    let mut transaction = state.begin();
    ids.iter().for_each(|id| assert_eq!(pushed(&mut transaction, name, id), Pushed::Accepted));
    durable(state, transaction.commit().unwrap()).unwrap();
}

fn leased(state: &State, name: &str, count: usize) -> Vec<Leased> {
    state.queue(name).unwrap().lease(NOW, NOW + 60_000, count).unwrap()
}

fn ready(state: &State, name: &str) -> Vec<String> {
    let listed = state.queue(name).unwrap().list(state::Part::Ready, None, 1_000).unwrap();
    listed.into_iter().map(|listed| listed.event.id).collect()
}

#[test]
fn what_one_part_did_is_undone_and_the_others_are_committed() {
    let folder = folder();
    let state = open(folder.path());
    state
        .queue("out")
        .unwrap()
        .configure(QueueConfig { deduplicate: Some(Duration::from_secs(60)), ..QueueConfig::default() });
    with_queue(&state, "in", &["1", "2", "3"]);
    with_queue(&state, "more", &["x", "y"]);
    set(&state, "kept", "old");
    let events = leased(&state, "in", 3);

    let mut transaction = state.begin();
    transaction.begin_part();
    assert_eq!(transaction.increment("b", "count", 1).unwrap(), 1);
    transaction.set("b", "kept", b"first".to_vec()).unwrap();
    transaction.record("table", "record", Some(b"first".to_vec())).unwrap();
    pushed(&mut transaction, "out", "of 1");
    assert_eq!(transaction.pop("more", NOW, NOW + 60_000).unwrap().unwrap().id, "x");
    transaction.ack(&events[0]);

    transaction.begin_part();
    assert_eq!(transaction.increment("b", "count", 1).unwrap(), 2, "it sees what the part before it did");
    transaction.set("b", "kept", b"second".to_vec()).unwrap();
    transaction.set("b", "new", b"second".to_vec()).unwrap();
    transaction.delete("b", "count").unwrap();
    transaction.record("table", "record", None).unwrap();
    transaction.record("table", "another", Some(b"second".to_vec())).unwrap();
    assert_eq!(pushed(&mut transaction, "out", "of 1"), Pushed::Duplicate);
    assert_eq!(pushed(&mut transaction, "out", "of 2"), Pushed::Accepted);
    assert_eq!(transaction.pop("more", NOW, NOW + 60_000).unwrap().unwrap().id, "y");
    transaction.ack(&events[1]);
    transaction.undo_part();
    assert_eq!(ready(&state, "more"), ["y"], "what it took is back at once");

    transaction.begin_part();
    assert_eq!(transaction.increment("b", "count", 1).unwrap(), 2);
    assert_eq!(transaction.get("b", "new").unwrap(), None);
    assert_eq!(pushed(&mut transaction, "out", "of 2"), Pushed::Accepted, "its id was never pushed");
    transaction.ack(&events[2]);
    durable(&state, transaction.commit().unwrap()).unwrap();

    assert_eq!((get(&state, "count").as_deref(), get(&state, "kept").as_deref()), (Some("2"), Some("first")));
    assert_eq!(get(&state, "new"), None);
    assert_eq!(state.bucket_counts("b").keys, 2, "what is counted is what is there");
    let records = state.records("table");
    assert_eq!(records.get("record").unwrap().as_deref(), Some(&b"first"[..]));
    assert_eq!(records.get("another").unwrap(), None);
    assert_eq!(ready(&state, "out"), ["of 1", "of 2"]);
    assert_eq!(ready(&state, "more"), ["y"]);
    let queue = state.queue("in").unwrap();
    assert_eq!((queue.counts().since_start.acked, queue.counts().leased), (2, 1));
    queue.release(events[1].lease);
    assert_eq!(ready(&state, "in"), ["2"]);
}

#[test]
fn undo_drops_the_present_part_alone() {
    let folder = folder();
    let state = open(folder.path());
    let mut transaction = state.begin();
    transaction.begin_part();
    transaction.set("b", "a", b"1".to_vec()).unwrap();
    transaction.begin_part();
    transaction.set("b", "a", b"2".to_vec()).unwrap();
    transaction.undo();
    transaction.set("b", "c", b"3".to_vec()).unwrap();
    durable(&state, transaction.commit().unwrap()).unwrap();
    assert_eq!((get(&state, "a").as_deref(), get(&state, "c").as_deref()), (Some("1"), Some("3")));
}

#[test]
fn a_part_has_the_bounds_of_a_transaction_whatever_was_done_before_it() {
    let folder = folder();
    let state = open(folder.path());
    let mut transaction = state.begin();
    let fill = |transaction: &mut Transaction, lead: &str| {
        (0..WRITES_MAX).for_each(|number| transaction.set("b", &format!("{lead}{number}"), vec![1]).unwrap());
        transaction.set("b", &format!("{lead}beyond"), vec![1])
    };
    for lead in ["a", "b"] {
        transaction.begin_part();
        assert!(matches!(fill(&mut transaction, lead), Err(StoreError::WriteCount)));
    }
    transaction.undo_part();
    transaction.begin_part();
    let big = |number: usize| format!("big{number}");
    let value = vec![7; 512 << 10];
    let fitting = (0..).take_while(|number| transaction.set("b", &big(*number), value.clone()).is_ok()).count();
    assert!(fitting >= WRITE_BYTES_MAX / value.len() - 1, "{fitting}");
    assert!(matches!(transaction.set("b", "one more", value.clone()), Err(StoreError::WriteBytes)));
    assert!(transaction.part_bytes() >= fitting * value.len());
    transaction.undo_part();
    assert_eq!(transaction.part_bytes(), 0);
    assert_eq!(transaction.write_count(), WRITES_MAX);
}

#[test]
fn a_bucket_that_is_full_refuses_the_part_that_would_go_beyond() {
    let folder = folder();
    let state = open(folder.path());
    state.configure_bucket("b", BucketConfig { keys_max: Some(2), ..BucketConfig::default() }).unwrap();
    let mut transaction = state.begin();
    for (key, is_taken) in [("a", true), ("b", true), ("c", false)] {
        transaction.begin_part();
        let set = transaction.set("b", key, vec![1]);
        assert_eq!(set.is_ok(), is_taken, "{key}: {set:?}");
        if !is_taken {
            transaction.undo_part();
        }
    }
    transaction.begin_part();
    transaction.delete("b", "a").unwrap();
    transaction.set("b", "c", vec![1]).unwrap();
    durable(&state, transaction.commit().unwrap()).unwrap();
    assert_eq!((get(&state, "a"), state.bucket_counts("b").keys), (None, 2));
}

#[test]
fn a_conflict_or_a_lost_lease_of_one_part_refuses_all() {
    let folder = folder();
    let state = open(folder.path());
    with_queue(&state, "in", &["1", "2"]);
    let events = leased(&state, "in", 2);
    let both = |state: &State, meanwhile: &dyn Fn()| {
        let mut transaction = state.begin();
        for event in &events {
            transaction.begin_part();
            transaction.increment("b", "count", 1).unwrap();
            transaction.ack(event);
        }
        meanwhile();
        transaction.commit()
    };
    let refused = both(&state, &|| set(&state, "count", "10"));
    assert!(matches!(refused, Err(CommitError::Conflict)), "{refused:?}");
    let queue = state.queue("in").unwrap();
    assert_eq!((queue.counts().leased, get(&state, "count").as_deref()), (2, Some("10")));
    let refused = both(&state, &|| queue.release(events[1].lease));
    assert!(matches!(refused, Err(CommitError::LeaseLost)), "{refused:?}");
    assert_eq!((queue.counts().leased, get(&state, "count").as_deref()), (1, Some("10")));
    // What a part read stays read when it is undone.
    let mut transaction = state.begin();
    transaction.begin_part();
    transaction.get("b", "count").unwrap();
    transaction.undo_part();
    transaction.set("b", "other", vec![1]).unwrap();
    set(&state, "count", "11");
    assert!(matches!(transaction.commit(), Err(CommitError::Conflict)));
}

/// Random parts, of which some are undone, against a plain map.
#[test]
fn random_parts_leave_what_a_plain_map_says() {
    for seed in 0..200 {
        let mut random = random::Random(seed);
        let folder = folder();
        let state = open(folder.path());
        let mut model: BTreeMap<String, String> = BTreeMap::new();
        for _ in 0..3 {
            let mut transaction = state.begin();
            for part in 0..random.below(6) {
                transaction.begin_part();
                let before = model.clone();
                for step in 0..random.below(6) {
                    let key = format!("k{}", random.below(5));
                    let value = format!("{seed}-{part}-{step}");
                    match random.below(4) {
                        0 => {
                            transaction.delete("b", &key).unwrap();
                            model.remove(&key);
                        }
                        _ => {
                            transaction.set("b", &key, value.clone().into()).unwrap();
                            model.insert(key.clone(), value);
                        }
                    }
                    let read = transaction.get("b", &key).unwrap();
                    assert_eq!(read.as_deref(), model.get(&key).map(String::as_bytes), "seed {seed}");
                }
                if random.below(3) == 0 {
                    transaction.undo_part();
                    model = before;
                }
            }
            durable(&state, transaction.commit().unwrap()).unwrap();
            let page = state.begin().list("b", "", None, 100).unwrap();
            let found: BTreeMap<_, _> =
                page.entries.into_iter().map(|entry| (entry.key, String::from_utf8(entry.value).unwrap())).collect();
            assert_eq!(found, model, "seed {seed}");
            let bytes: usize = model.iter().map(|(key, value)| key.len() + value.len()).sum();
            let counts = state.bucket_counts("b");
            assert_eq!((counts.keys, counts.bytes), (model.len() as u64, bytes as u64), "seed {seed}");
        }
    }
}
