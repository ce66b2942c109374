//! Queues under load: many at once, long, poisoned, and with clocks that jump.

use crate::common::{durable, open, wait};
use event::Event;
use random::Random;
use state::{CommitError, Failed, Options, Part, Push, QueueConfig, State};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const NOW: u64 = 1_700_000_000_000;

fn keyed(number: u64, key: u64) -> Event {
    Event { id: number.to_string(), source: "/load".into(), subject: Some(key.to_string()), ..Event::default() }
}

fn push(state: &State, queue: &str, events: impl Iterator<Item = Event>, now_ms: u64) -> state::Ticket {
    let mut transaction = state.begin();
    for event in events {
        transaction.push(queue, &Push { event, delay: Duration::ZERO, ttl: None }, now_ms).unwrap();
    }
    transaction.commit().unwrap()
}

/// Small tables, so that they are written and merged meanwhile.
fn small(path: &std::path::Path) -> State {
    State::open(path, Options { queue_memtable_bytes: 64 << 10, ..Options::default() }).unwrap()
}

/// Nobody pulls the plug here.
fn relaxed(path: &std::path::Path) -> State {
    let state = open(path);
    state.set_sync_every(Some(Duration::from_millis(100)));
    state
}

#[test]
fn with_many_producers_and_handlers_each_event_has_its_effect_once_and_in_the_order_of_its_key() {
    const PRODUCERS: u64 = 4;
    const EACH: u64 = 400;
    let folder = tempfile::tempdir().unwrap();
    let state = small(folder.path());
    let queue = state.queue("q").unwrap();
    queue.configure(QueueConfig { order_by_key: true, ..QueueConfig::default() });
    let (acked, clock) = (AtomicU64::new(0), AtomicU64::new(NOW));
    let order = Mutex::new(BTreeMap::<String, Vec<u64>>::new());
    std::thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let state = &state;
            scope.spawn(move || {
                for number in 0..EACH {
                    let event = keyed(producer * EACH + number, producer);
                    durable(state, push(state, "q", std::iter::once(event), NOW)).unwrap();
                }
            });
        }
        for handler in 0..6 {
            let (state, queue, acked, clock, order) = (&state, &queue, &acked, &clock, &order);
            scope.spawn(move || {
                let mut rng = Random(handler);
                while acked.load(Ordering::SeqCst) < PRODUCERS * EACH {
                    let now = clock.fetch_add(1, Ordering::SeqCst);
                    // So short that many leases end while their event is handled.
                    for leased in queue.lease(now, now + 1 + rng.below(40), 2).unwrap() {
                        let mut transaction = state.begin();
                        if rng.below(10) == 0 {
                            transaction.fail(&leased, Failed::Retry { at_ms: now + 5, reason: "again".into() });
                        } else {
                            transaction.increment("done", &leased.event.id, 1).unwrap();
                            transaction.ack(&leased);
                        }
                        let is_ack = transaction.write_count() == 2;
                        let mut order = order.lock().unwrap();
                        match transaction.commit() {
                            Ok(_) if is_ack => {
                                order
                                    .entry(leased.event.subject.unwrap())
                                    .or_default()
                                    .push(leased.event.id.parse().unwrap());
                                acked.fetch_add(1, Ordering::SeqCst);
                            }
                            Ok(_) | Err(CommitError::LeaseLost | CommitError::Conflict) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    for (key, numbers) in order.into_inner().unwrap() {
        assert_eq!(numbers.len() as u64, EACH, "key {key}");
        assert!(numbers.is_sorted(), "key {key}: {numbers:?}");
    }
    let mut transaction = state.begin();
    for number in 0..PRODUCERS * EACH {
        assert_eq!(transaction.get("done", &number.to_string()).unwrap().unwrap(), b"1");
    }
    let counts = queue.counts();
    assert_eq!((counts.ready, counts.leased, counts.delayed, counts.bytes), (0, 0, 0, 0));
}

#[test]
fn thousands_of_events_behind_one_that_fails_do_not_hold_up_other_keys() {
    const BEHIND: u64 = 5_000;
    let folder = tempfile::tempdir().unwrap();
    let state = small(folder.path());
    let queue = state.queue("q").unwrap();
    queue.configure(QueueConfig { order_by_key: true, ..QueueConfig::default() });
    let _ = push(&state, "q", (0..BEHIND).map(|number| keyed(number, 1)), NOW);
    let _ = push(&state, "q", std::iter::once(keyed(BEHIND, 2)), NOW);
    let lease = |now: u64| queue.lease(now, now + 1_000, 10).unwrap();
    let first = lease(NOW).remove(0);
    assert_eq!(first.event.id, "0");
    let mut transaction = state.begin();
    transaction.fail(&first, Failed::Retry { at_ms: NOW + 60_000, reason: "poison".into() });
    durable(&state, transaction.commit().unwrap()).unwrap();
    queue.do_due(NOW + 2_000).unwrap();
    let other = lease(NOW + 2_000);
    assert_eq!(other.iter().map(|leased| &*leased.event.id).collect::<Vec<_>>(), [BEHIND.to_string()]);
    let mut transaction = state.begin();
    transaction.ack(&other[0]);
    let _ = transaction.commit().unwrap();
    for number in 0..BEHIND {
        let leased = lease(NOW + 60_000);
        assert_eq!(leased.iter().map(|leased| &*leased.event.id).collect::<Vec<_>>(), [number.to_string()]);
        let mut transaction = state.begin();
        transaction.ack(&leased[0]);
        let _ = transaction.commit().unwrap();
    }
    assert_eq!((queue.counts().ready, queue.counts().bytes), (0, 0));
}

/// `VmRSS: 12345 kB`.
fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find(|line| line.starts_with("VmRSS")).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `LIGHTER_DEAD_LETTERS=1000000 cargo test --release -p state --test all dead_letters -- --nocapture` for a million.
#[test]
fn a_hundred_thousand_dead_letters_are_listed_bounded_replayed_and_purged() {
    let count = std::env::var("LIGHTER_DEAD_LETTERS").map_or(100_000, |count| count.parse::<u64>().unwrap());
    let kept = count / 10 * 9;
    let began = Instant::now();
    let said = |what: &str| println!("{what} after {:.1?}, {}", began.elapsed(), resident());
    let folder = tempfile::tempdir().unwrap();
    let state = small(folder.path());
    let queue = state.queue("q").unwrap();
    let config = QueueConfig { events_max: count, dead_letters_max: kept, ..QueueConfig::default() };
    queue.configure(config.clone());
    for batch in 0..count / 1_000 {
        let _ = push(&state, "q", (0..1_000).map(|number| keyed(batch * 1_000 + number, 0)), NOW);
        let mut transaction = state.begin();
        for leased in queue.lease(NOW, NOW + 1_000, 1_000).unwrap() {
            transaction.fail(&leased, Failed::Dead { reason: "poison".into() });
        }
        durable(&state, transaction.commit().unwrap()).unwrap();
        assert!(queue.counts().dead <= kept);
    }
    let counts = queue.counts();
    assert_eq!(
        (counts.dead, counts.since_start.died, counts.since_start.dropped, counts.bytes),
        (kept, count, count - kept, 0)
    );
    said("all died");
    drop((state, queue));

    let state = small(folder.path());
    let queue = state.queue("q").unwrap();
    queue.configure(config);
    said("started again");
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = queue.list(Part::Dead, after, 1_000).unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.position);
        ids.extend(page.iter().map(|listed| listed.event.id.parse::<u64>().unwrap()));
    }
    assert_eq!(ids, (count - kept..count).collect::<Vec<_>>());
    said("listed in pages of 1,000");
    assert_eq!(wait(queue.replay(None, NOW)).unwrap(), kept);
    said("replayed");
    let counts = queue.counts();
    assert_eq!((counts.dead, counts.ready), (0, kept));
    let first = queue.lease(NOW, NOW + 1_000, 1).unwrap().remove(0);
    assert_eq!((first.event.id, first.event.attempt), ((count - kept).to_string(), 1));
    assert_eq!(wait(queue.purge(&[Part::Ready])).unwrap(), kept - 1);
    said("purged");
}

#[test]
fn whatever_the_clock_does_nothing_is_lost_and_nothing_waits_longer_than_it_was_told() {
    const DELAY_MS_MAX: u64 = 60_000;
    for seed in 0..12 {
        let mut rng = Random(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut state = relaxed(folder.path());
        let mut clock = NOW;
        let mut pushed = BTreeSet::new();
        for number in 0..400 {
            let queue = state.queue("q").unwrap();
            clock = match rng.below(12) {
                // Set by hand, or by a time server after a start without one.
                0 => clock - rng.below(clock),
                1 => clock + rng.below(1 << 40),
                _ => clock + rng.below(500),
            };
            queue.do_due(clock).unwrap();
            match rng.below(4) {
                0 => drop(queue.lease(clock, clock + rng.below(DELAY_MS_MAX), 2).unwrap()),
                1 => {
                    for leased in queue.lease(clock, clock + 1_000, 1).unwrap() {
                        let at_ms = clock + rng.below(DELAY_MS_MAX);
                        let mut transaction = state.begin();
                        transaction.fail(&leased, Failed::Retry { at_ms, reason: "later".into() });
                        durable(&state, transaction.commit().unwrap()).unwrap();
                    }
                }
                _ => {
                    let delay = Duration::from_millis(rng.below(DELAY_MS_MAX));
                    let mut transaction = state.begin();
                    transaction.push("q", &Push { event: keyed(number, 0), delay, ttl: None }, clock).unwrap();
                    durable(&state, transaction.commit().unwrap()).unwrap();
                    pushed.insert(number.to_string());
                }
            }
            if rng.below(40) == 0 {
                drop((state, queue));
                state = relaxed(folder.path());
            }
        }
        // Back to the beginning, and then no longer than the longest delay.
        let queue = state.queue("q").unwrap();
        clock = 1_000;
        queue.do_due(clock).unwrap();
        clock += DELAY_MS_MAX;
        queue.do_due(clock).unwrap();
        let leased = queue.lease(clock, clock + 1, 1_000).unwrap();
        let found: BTreeSet<String> = leased.into_iter().map(|leased| leased.event.id).collect();
        assert_eq!(found, pushed, "seed {seed}");
    }
}

#[test]
fn pushes_of_any_length_come_in_one_order_and_a_reader_misses_none() {
    const PRODUCERS: u64 = 4;
    const EACH: u64 = 3_000;
    let folder = tempfile::tempdir().unwrap();
    let state = small(folder.path());
    let queue = state.queue("q").unwrap();
    let done = Arc::new(AtomicU64::new(0));
    let mut sequences = Vec::new();
    std::thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (state, done) = (&state, Arc::clone(&done));
            scope.spawn(move || {
                let mut rng = Random(producer);
                let mut number = 0;
                while number < EACH {
                    // Sometimes more than the window in memory holds.
                    let count = [1, 7, 700][rng.below(3) as usize].min(EACH - number);
                    let _ = push(state, "q", (number..number + count).map(|number| keyed(number, producer)), NOW);
                    number += count;
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        let mut rng = Random(99);
        loop {
            let is_over = done.load(Ordering::SeqCst) == PRODUCERS;
            let leased = queue.lease(NOW, NOW + 1_000, 1 + rng.below(900) as usize).unwrap();
            if leased.is_empty() && is_over {
                break;
            }
            let mut transaction = state.begin();
            leased.iter().for_each(|leased| transaction.ack(leased));
            let _ = transaction.commit().unwrap();
            sequences.extend(leased.into_iter().map(|leased| (leased.sequence, leased.event)));
        }
    });
    assert_eq!(sequences.len() as u64, PRODUCERS * EACH);
    assert!(sequences.is_sorted_by(|(first, _), (second, _)| first < second));
    for producer in 0..PRODUCERS {
        let subject = Some(producer.to_string());
        let own = sequences.iter().filter(|(_, event)| event.subject == subject);
        let numbers: Vec<u64> = own.map(|(_, event)| event.id.parse().unwrap()).collect();
        assert_eq!(numbers, (0..EACH).collect::<Vec<_>>());
    }
}

#[test]
fn remembered_ids_are_forgotten_when_their_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let state = small(folder.path());
    let queue = state.queue("q").unwrap();
    queue.configure(QueueConfig { deduplicate: Some(Duration::from_secs(10)), ..QueueConfig::default() });
    for batch in 0..20 {
        let mut transaction = state.begin();
        for number in 0..1_000 {
            let event = keyed(batch * 1_000 + number, 0);
            let push = Push { event, delay: Duration::ZERO, ttl: None };
            transaction.push("q", &push, NOW + batch * 1_000).unwrap();
        }
        durable(&state, transaction.commit().unwrap()).unwrap();
        queue.do_due(NOW + batch * 1_000).unwrap();
    }
    let remembered = queue.remembered_ids();
    assert!((10_000..=20_000).contains(&remembered), "{remembered}");
    // Called as often as it asks for.
    let mut now = NOW + 40_000;
    for _ in 0..20 {
        now = queue.do_due(now).unwrap().unwrap_or(now + 1_000);
    }
    assert_eq!(queue.remembered_ids(), 0);
    wait(queue.purge(&[Part::Ready])).unwrap();
    assert_eq!(queue.do_due(now).unwrap(), None);
}
