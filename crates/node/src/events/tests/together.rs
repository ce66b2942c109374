//! Several events at once: a consumer that takes them, and what becomes of those that do not go well.

use super::*;
use crate::events::past::Ran;
use std::collections::BTreeMap;

/// So many at once.
const BATCH: usize = 8;

impl Script {
    /// Acks those that say "done" in one commit, up to the first that says "stop": what is behind that is not begun.
    pub fn take_together(&self, leased: &[Arc<Leased>], until: Instant) -> Vec<Together> {
        assert!(until > Instant::now() - PATIENCE && leased.len() > 1);
        let word = |leased: &Leased| String::from_utf8_lossy(&leased.event.data).into_owned();
        self.batches.lock().push(leased.iter().map(|leased| (word(leased), leased.event.attempt)).collect());
        let begun = leased.iter().position(|leased| word(leased) == "stop").map_or(leased.len(), |at| at + 1);
        let mut transaction = self.state.get().unwrap().begin();
        let went_well: Vec<bool> = leased[..begun].iter().map(|leased| word(leased) == "done").collect();
        leased.iter().zip(&went_well).filter(|(_, well)| **well).for_each(|(leased, _)| transaction.ack(leased));
        let is_refused = self.refused.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        let is_committed = !is_refused && transaction.commit().is_ok();
        let ran = || Ran { function: "f".to_owned().try_into().unwrap(), version: 1, times: None };
        let became = |well: bool| match well && is_committed {
            true => Together::Acked { ran: ran(), took: Duration::from_micros(1) },
            false => Together::Alone,
        };
        went_well.into_iter().map(became).collect()
    }
}

/// A world whose handlings are known to be short, so that a worker takes several, and of which nobody has pushed yet.
async fn world(script: Script) -> World {
    let world = World::on(Arc::new(state::RealDisk), Script { batch: BATCH, ..script });
    world.shell.handled_together(std::iter::repeat_n(Duration::from_micros(1), 500));
    world
}

#[tokio::test]
async fn what_goes_well_together_is_acked_and_what_does_not_is_decided_alone() {
    let world = world(Script::default()).await;
    let mut words = vec!["done"; 40];
    words.splice(20..20, ["dead", "once", "retry"]);
    world.push(&words).await;
    world.drained().await;
    let counts = world.queue.counts();
    assert_eq!((counts.since_start.acked, counts.since_start.died, counts.leased), (41, 2, 0));
    for (word, attempts) in [("dead", &[1][..]), ("once", &[1, 2]), ("retry", &[1, 2, 3])] {
        assert_eq!(world.script.attempts(word), attempts, "{word}: together with others it was no try");
    }
    let batches = world.script.batches.lock();
    assert!(batches.iter().any(|batch| batch.len() == BATCH), "{batches:?}");
    let mut together: BTreeMap<&str, usize> = BTreeMap::new();
    for (word, attempt) in batches.iter().flatten() {
        assert_eq!(*attempt, 1, "{word} is tried again alone");
        *together.entry(word).or_default() += 1;
    }
    assert!(["dead", "once", "retry"].iter().all(|word| together[word] == 1), "{together:?}");
    assert_eq!(world.shell.numbers.handled.load(SeqCst), 41);
}

#[tokio::test]
async fn those_that_were_not_begun_are_given_back_in_their_places() {
    let world = world(Script::default()).await;
    world.shell.pause(true);
    world.push(&["done", "stop", "done", "done"]).await;
    world.shell.pause(false);
    world.drained().await;
    assert_eq!(world.queue.counts().since_start.acked, 4);
    let batches = world.script.batches.lock();
    let words: Vec<Vec<&str>> = batches.iter().map(|batch| batch.iter().map(|(word, _)| &**word).collect()).collect();
    assert_eq!(words[0], ["done", "stop", "done", "done"]);
    assert_eq!(world.script.count("stop"), 1);
    assert_eq!(world.shell.numbers.lost.load(SeqCst), 0);
}

#[tokio::test]
async fn a_commit_that_is_refused_leaves_each_to_be_handled_alone() {
    let world = world(Script { refused: AtomicU32::new(1), ..Script::default() }).await;
    world.shell.pause(true);
    world.push(&["done"; BATCH]).await;
    world.shell.pause(false);
    world.drained().await;
    assert_eq!(world.script.count("done"), BATCH, "all of them once, alone");
    assert_eq!((world.queue.counts().since_start.acked, world.script.batches.lock().len()), (BATCH as u64, 1));
    world.push(&["done"; BATCH]).await;
    world.drained().await;
    assert_eq!(world.queue.counts().since_start.acked, 2 * BATCH as u64);
}

#[tokio::test]
async fn while_handlings_take_long_workers_take_one_at_a_time() {
    let world = world(Script::default()).await;
    world.shell.handled_together(std::iter::repeat_n(Duration::from_millis(50), 500));
    world.push(&["done"; 20]).await;
    world.drained().await;
    assert_eq!((world.script.count("done"), world.script.batches.lock().len()), (20, 0));
}

/// The node was killed in the middle of a batch: each of its events counts a try, and is then handled alone.
#[tokio::test]
async fn events_in_whose_middle_the_node_ended_are_not_handled_together_again() {
    let script = Script { batch: BATCH, ..Script::default() };
    let world = with_waiting(script, &["first", "second", "other"]).await;
    let leased = world.queue.lease(clock::now_ms(), clock::now_ms() + 60_000, 2).unwrap();
    let leased: Vec<_> = leased.into_iter().map(Arc::new).collect();
    let killed = Running::open(world.folder.path()).unwrap();
    let slot = killed.slot().unwrap();
    slot.take_together(&leased);
    std::mem::forget((slot, killed));
    leased.iter().for_each(|leased| world.queue.release(leased.lease));

    let running = Running::open(world.folder.path()).unwrap();
    let (overloaded, _) = mpsc::channel(1);
    let books = Books { agenda: world.agenda.clone(), running, past: Arc::default(), overloaded };
    let shell = Shell::new(world.queue.clone(), world.state.clone(), cast(world.script.clone()), books, 1);
    shell.handled_together(std::iter::repeat_n(Duration::from_micros(1), 500));
    let _tasks = JoinSet::from_iter([shell.clone().run()]);
    world.drained().await;
    assert_eq!((world.script.attempts("first"), world.script.attempts("second")), (vec![2], vec![2]));
    assert_eq!(world.script.attempts("other"), [1]);
}
