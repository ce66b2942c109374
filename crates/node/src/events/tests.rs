//! A shell with a real queue and a consumer that does as the data of each event says: what sinks rely on.

mod disk;
mod permits;
mod together;

use super::agenda::{self, Agenda};
use super::consumer::{Consumer, Outcome, Together, Tried};
use super::running::Running;
use super::shell::{Books, Cast, Shell};
use crate::clock;
use event::Event;
use futures_util::future::BoxFuture;
use manifest::{Retry, Span};
use orchestrator::{Latency, LatencyConfig};
use parking_lot::Mutex;
use problem::{Code, Problem};
use state::{Leased, Push, Queue, State, Ticket};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

/// Notes what it is given, and at most how much at once.
#[derive(Default)]
struct Script {
    heard: Mutex<Vec<(String, u32)>>,
    at_once: AtomicU32,
    at_once_max: AtomicU32,
    retry: Retry,
    state: OnceLock<State>,
    /// What "fill" does, once.
    fill: Option<Box<dyn Fn(&State) -> Ticket + Send + Sync>>,
    /// It runs nobody's code, and handles one event at a time.
    is_in_order: bool,
    /// Events it takes at once; 0 is one.
    batch: usize,
    /// Those it was given together.
    batches: Mutex<Vec<Vec<(String, u32)>>>,
    /// So many of their commits are refused.
    refused: AtomicU32,
}

impl Consumer for Script {
    fn time_max(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn workers_max(&self) -> u32 {
        if self.is_in_order { 1 } else { 4 }
    }

    fn may_end_node(&self) -> bool {
        !self.is_in_order
    }

    fn retry(&self) -> &Retry {
        &self.retry
    }

    fn batch_max(&self) -> usize {
        self.batch.max(1)
    }

    fn handle_together(self: Arc<Self>, leased: Vec<Arc<Leased>>, until: Instant) -> BoxFuture<'static, Vec<Together>> {
        Box::pin(async move { self.take_together(&leased, until) })
    }

    fn handle(self: Arc<Self>, leased: Arc<Leased>) -> BoxFuture<'static, Tried> {
        Box::pin(async move {
            let word = String::from_utf8_lossy(&leased.event.data).into_owned();
            let attempt = leased.event.attempt;
            self.heard.lock().push((word.clone(), attempt));
            let at_once = self.at_once.fetch_add(1, SeqCst) + 1;
            self.at_once_max.fetch_max(at_once, SeqCst);
            sleep(Duration::from_millis(2)).await;
            self.at_once.fetch_sub(1, SeqCst);
            let problem = Problem::new(Code::UnitRetry, "as told");
            let outcome = match word.as_str() {
                "fill" if self.count("fill") == 1 => {
                    let state = self.state.get().unwrap();
                    state.durable(self.fill.as_ref().unwrap()(state)).await.unwrap();
                    Outcome::Done
                }
                "dead" => Outcome::Dead(problem),
                "retry" => Outcome::Retry { problem, after: None },
                "once" if attempt == 1 => Outcome::Retry { problem, after: None },
                "not-yet" if self.count("not-yet") < 3 => Outcome::Postponed { problem, after: None },
                "panic" if self.count("panic") == 1 => panic!("as told"),
                _ => Outcome::Done,
            };
            outcome.into()
        })
    }
}

impl Script {
    fn count(&self, word: &str) -> usize {
        self.heard.lock().iter().filter(|(heard, _)| heard == word).count()
    }

    fn attempts(&self, word: &str) -> Vec<u32> {
        self.heard.lock().iter().filter(|(heard, _)| heard == word).map(|(_, attempt)| *attempt).collect()
    }
}

struct World {
    state: State,
    queue: Queue,
    shell: Arc<Shell>,
    script: Arc<Script>,
    agenda: Arc<Agenda>,
    tasks: JoinSet<()>,
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        Self::on(Arc::new(state::RealDisk), Script::default())
    }

    fn on(disk: Arc<dyn state::Disk>, script: Script) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path(), state::Options { disk, ..Default::default() }).unwrap();
        let queue = state.queue("q").unwrap();
        let retry = Retry { attempts: 3, pause: Span::from_ms(5), pause_max: Span::from_ms(10) };
        let script = Arc::new(Script { retry, state: state.clone().into(), ..script });
        let agenda: Arc<Agenda> = Arc::default();
        let (overloaded, _) = mpsc::channel(1);
        let running = Running::open(folder.path()).unwrap();
        let cast = cast(script.clone());
        let past = Arc::default();
        let books = Books { agenda: agenda.clone(), running, past, overloaded };
        let shell = Shell::new(queue.clone(), state.clone(), cast, books, 1);
        let mut tasks = JoinSet::new();
        tasks.spawn(agenda::run(state.clone(), agenda.clone()));
        tasks.spawn(shell.clone().run());
        Self { state, queue, shell, script, agenda, tasks, folder }
    }

    async fn push(&self, words: &[&str]) {
        self.state.durable(push_of(&self.state, words)).await.unwrap();
    }

    async fn drained(&self) {
        let drained = async {
            loop {
                let counts = self.queue.counts();
                if counts.ready + counts.delayed + counts.leased == 0 {
                    return;
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, drained).await.unwrap_or_else(|_| panic!("it stays {:?}", self.queue.counts()));
    }
}

fn push_of(state: &State, words: &[&str]) -> Ticket {
    let mut transaction = state.begin();
    for (place, word) in words.iter().enumerate() {
        let event = Event { id: place.to_string(), data: word.as_bytes().to_vec(), attempt: 1, ..Event::default() };
        let push = Push { event, delay: Duration::ZERO, ttl: None };
        transaction.push("q", &push, clock::now_ms()).unwrap();
    }
    transaction.commit().unwrap()
}

fn cast(consumer: Arc<Script>) -> Cast {
    let maximum = consumer.workers_max();
    let policy = Latency::new(LatencyConfig { maximum, target: Duration::from_millis(5), ends_workflow: false });
    Cast { consumer, policy: Box::new(policy), dead_to: None, permits: None }
}

#[tokio::test]
async fn outcomes_become_acks_tries_and_dead_letters() {
    let world = World::new();
    world.push(&["done", "once", "retry", "dead"]).await;
    world.drained().await;
    let counts = world.queue.counts();
    assert_eq!(
        (counts.since_start.acked, counts.since_start.retried, counts.since_start.died, counts.dead),
        (2, 3, 2, 2)
    );
    assert_eq!(world.script.attempts("once"), [1, 2]);
    assert_eq!(world.script.attempts("retry"), [1, 2, 3]);
    assert_eq!(world.script.attempts("dead"), [1]);
}

#[tokio::test]
async fn what_is_postponed_counts_no_try_and_keeps_its_place() {
    let world = World::new();
    world.push(&["not-yet"]).await;
    world.drained().await;
    assert_eq!(world.script.attempts("not-yet"), [1, 1, 1]);
    assert_eq!((world.queue.counts().since_start.acked, world.queue.counts().since_start.retried), (1, 0));
}

#[tokio::test]
async fn a_consumer_that_panics_loses_no_event() {
    let world = World::new();
    world.push(&["panic", "done", "done"]).await;
    world.drained().await;
    assert_eq!(world.queue.counts().since_start.acked, 3);
    assert_eq!(world.script.count("panic"), 2);
}

#[tokio::test]
async fn there_are_never_more_at_once_than_the_maximum_and_none_when_it_is_empty() {
    let world = World::new();
    world.push(&["done"; 300]).await;
    world.drained().await;
    let at_once = world.script.at_once_max.load(SeqCst);
    assert!((2..=4).contains(&at_once), "{at_once} at once");
    timeout(PATIENCE, world.shell.ended()).await.unwrap();
    assert!(!world.shell.is_working());
}

#[tokio::test]
async fn a_replaced_consumer_gets_what_is_leased_from_then_on() {
    let world = World::new();
    let next = Arc::new(Script::default());
    world.push(&["done"]).await;
    world.drained().await;
    world.shell.replace(cast(next.clone()));
    world.push(&["done", "done"]).await;
    world.drained().await;
    assert_eq!((world.script.count("done"), next.count("done")), (1, 2));
}

#[tokio::test]
async fn a_retired_shell_lets_handlings_end_and_leases_nothing_more() {
    let mut world = World::new();
    world.push(&["done"; 200]).await;
    while world.queue.counts().since_start.acked == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    world.shell.retire();
    timeout(PATIENCE, world.shell.ended()).await.unwrap();
    let counts = world.queue.counts();
    assert_eq!(counts.leased, 0);
    assert_eq!(counts.since_start.acked + counts.ready, 200);
    assert!(counts.ready > 0, "it was too fast for this test");
    world.tasks.shutdown().await;
}

#[tokio::test]
async fn a_paused_shell_leases_nothing_and_goes_on_when_it_is_resumed() {
    let world = World::new();
    world.shell.pause(true);
    world.push(&["done"; 3]).await;
    sleep(Duration::from_millis(50)).await;
    assert_eq!((world.queue.counts().ready, world.script.count("done")), (3, 0));
    world.shell.pause(false);
    world.drained().await;
    assert_eq!(world.script.count("done"), 3);
}

/// Starts a shell as after a kill in the middle of events: those at these places, each in this try.
async fn killed(world: &World, in_hand: &[(usize, u32)]) -> (Arc<Shell>, Arc<Running>, JoinSet<()>) {
    // What a killed node leaves behind: slots that nobody emptied.
    let leased = world.queue.lease(clock::now_ms(), clock::now_ms() + 60_000, 3).unwrap();
    let killed = Running::open(world.folder.path()).unwrap();
    let slots: Vec<_> = in_hand
        .iter()
        .map(|(at, attempt)| {
            let mut leased = leased[*at].clone();
            leased.event.attempt = *attempt;
            let slot = killed.slot().unwrap();
            slot.take(&leased);
            slot
        })
        .collect();
    std::mem::forget((slots, killed));
    leased.iter().for_each(|leased| world.queue.release(leased.lease));

    let running = Running::open(world.folder.path()).unwrap();
    let (overloaded, _) = mpsc::channel(1);
    let (state, cast) = (world.state.clone(), cast(world.script.clone()));
    let (agenda, past) = (world.agenda.clone(), Arc::default());
    let books = Books { agenda, running: running.clone(), past, overloaded };
    let shell = Shell::new(world.queue.clone(), state, cast, books, 1);
    let tasks = JoinSet::from_iter([shell.clone().run()]);
    (shell, running, tasks)
}

/// A world in which nobody handles what was pushed.
async fn with_waiting(script: Script, words: &[&str]) -> World {
    let world = World::on(Arc::new(state::RealDisk), script);
    world.shell.retire();
    timeout(PATIENCE, world.shell.ended()).await.unwrap();
    world.push(words).await;
    world
}

/// The node was killed in the middle of an event, again and again: each start handled it anew, as a first try.
#[tokio::test]
async fn an_event_in_whose_middle_the_node_ended_counts_a_try_and_is_a_dead_letter_after_the_last() {
    let world = with_waiting(Script::default(), &["first", "last", "other"]).await;
    let (shell, running, _tasks) = killed(&world, &[(0, 1), (1, 3)]).await;
    world.drained().await;
    assert_eq!(world.script.attempts("first"), [2]);
    assert_eq!(world.script.attempts("other"), [1]);
    assert_eq!((world.script.count("last"), running.suspected()), (0, 0));
    let dead = world.queue.list(state::Part::Dead, None, 10).unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].reason.as_deref(), Some("L7011: the node ended while it handled the event (try 3 of 3)"));
    // What became of them is written: a node that is killed now blames nobody.
    timeout(PATIENCE, shell.ended()).await.unwrap();
    assert_eq!(Running::open(world.folder.path()).unwrap().suspected(), 0);
}

/// A node that was killed while an event became a letter took that for the event's fault: the event was tried again
/// after those behind it, and arrived at its home after them.
#[tokio::test]
async fn where_no_handling_can_end_the_node_its_end_costs_no_event_its_place() {
    let script = Script { is_in_order: true, ..Script::default() };
    let world = with_waiting(script, &["first", "second", "third"]).await;
    let (_shell, running, _tasks) = killed(&world, &[(0, 1)]).await;
    world.drained().await;
    let heard: Vec<_> = world.script.heard.lock().clone();
    assert_eq!(heard, ["first", "second", "third"].map(|word| (word.to_owned(), 1)));
    assert_eq!(running.suspected(), 0);
}
