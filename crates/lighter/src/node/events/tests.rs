//! A shell with a real queue and a consumer that does as the data of each event says: what sinks rely on.

use super::clock::{self, Agenda};
use super::consumer::{Consumer, Outcome};
use super::shell::{Cast, Shell};
use event::Event;
use futures_util::future::BoxFuture;
use manifest::{Retry, Span};
use orchestrator::{Latency, LatencyConfig};
use parking_lot::Mutex;
use problem::{Code, Problem};
use state::{Leased, Push, Queue, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;
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
}

impl Consumer for Script {
    fn time_max(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn workers_max(&self) -> u32 {
        4
    }

    fn retry(&self) -> &Retry {
        &self.retry
    }

    fn handle(self: Arc<Self>, leased: Arc<Leased>) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            let word = String::from_utf8_lossy(&leased.event.data).into_owned();
            let attempt = leased.event.attempt;
            self.heard.lock().push((word.clone(), attempt));
            let at_once = self.at_once.fetch_add(1, SeqCst) + 1;
            self.at_once_max.fetch_max(at_once, SeqCst);
            sleep(Duration::from_millis(2)).await;
            self.at_once.fetch_sub(1, SeqCst);
            let problem = Problem::new(Code::UnitRetry, "as told");
            match word.as_str() {
                "dead" => Outcome::Dead(problem),
                "retry" => Outcome::Retry { problem, after: None },
                "once" if attempt == 1 => Outcome::Retry { problem, after: None },
                "not-yet" if self.count("not-yet") < 3 => Outcome::Postponed { problem, after: None },
                "panic" if self.count("panic") == 1 => panic!("as told"),
                _ => Outcome::Done,
            }
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
    tasks: JoinSet<()>,
    _folder: TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path(), state::Options::default()).unwrap();
        let queue = state.queue("q").unwrap();
        let retry = Retry { attempts: 3, pause: Span::from_ms(5), pause_max: Span::from_ms(10) };
        let script = Arc::new(Script { retry, ..Script::default() });
        let agenda: Arc<Agenda> = Arc::default();
        let (overflowed, _) = mpsc::channel(1);
        let shell = Shell::new(queue.clone(), state.clone(), cast(script.clone()), agenda.clone(), overflowed, 1);
        let mut tasks = JoinSet::new();
        tasks.spawn(clock::run(state.clone(), agenda));
        tasks.spawn(shell.clone().run());
        Self { state, queue, shell, script, tasks, _folder: folder }
    }

    async fn push(&self, words: &[&str]) {
        let mut transaction = self.state.begin();
        for (place, word) in words.iter().enumerate() {
            let event = Event { id: place.to_string(), data: word.as_bytes().to_vec(), attempt: 1, ..Event::default() };
            let push = Push { event, delay: Duration::ZERO, ttl: None };
            transaction.push("q", push, clock::now_ms()).unwrap();
        }
        self.state.durable(transaction.commit().unwrap()).await.unwrap();
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

fn cast(consumer: Arc<Script>) -> Cast {
    let policy = Latency::new(LatencyConfig { maximum: 4, target: Duration::from_millis(5), ends_workflow: false });
    Cast { consumer, policy: Box::new(policy), dead_to: None }
}

#[tokio::test]
async fn outcomes_become_acks_tries_and_dead_letters() {
    let world = World::new();
    world.push(&["done", "once", "retry", "dead"]).await;
    world.drained().await;
    let counts = world.queue.counts();
    assert_eq!((counts.acked, counts.retried, counts.died, counts.dead), (2, 3, 2, 2));
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
    assert_eq!((world.queue.counts().acked, world.queue.counts().retried), (1, 0));
}

#[tokio::test]
async fn a_consumer_that_panics_loses_no_event() {
    let world = World::new();
    world.push(&["panic", "done", "done"]).await;
    world.drained().await;
    assert_eq!(world.queue.counts().acked, 3);
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
    while world.queue.counts().acked == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    world.shell.retire();
    timeout(PATIENCE, world.shell.ended()).await.unwrap();
    let counts = world.queue.counts();
    assert_eq!(counts.leased, 0);
    assert_eq!(counts.acked + counts.ready, 200);
    assert!(counts.ready > 0, "it was too fast for this test");
    world.tasks.shutdown().await;
}
