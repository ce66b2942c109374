//! One handled queue at work: looks at it, asks the policy, and starts workers.
//!
//! ```text
//!   something is ready · a worker ended · it is time to look ──▶ Policy ──▶ workers start
//! ```
//! A queue with nothing in it costs a task that sleeps: no timer, no worker, no unit.

use super::agenda::Agenda;
use super::consumer::Consumer;
use super::failure;
use super::past::Past;
use super::running::Running;
use super::together::TogetherRule;
use super::worker::Worker;
use super::workflow::{Starving, Taking, UnitPermits};
use crate::clock;
use crate::ids::Ids;
use manifest::Name;
use orchestrator::{Decision, Mean, Observation, Overload, Policy, Rate};
use parking_lot::{Mutex, RwLock};
use state::{Queue, State};
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// While somebody works, what becomes ready is looked at this often at most.
const LOOK_EVERY: Duration = Duration::from_millis(1);

pub struct Shell {
    pub name: Arc<str>,
    pub queue: Queue,
    pub state: State,
    pub numbers: Numbers,
    consumer: RwLock<Arc<dyn Consumer>>,
    policy: Mutex<Box<dyn Policy>>,
    dead_to: RwLock<Option<Name>>,
    pub(super) permits: RwLock<Option<Arc<UnitPermits>>>,
    measured: Mutex<Measured>,
    rest: Mutex<Rest>,
    to_stop: AtomicU32,
    /// Events that were delayed at the last look.
    delayed: AtomicU64,
    is_retired: AtomicBool,
    is_paused: AtomicBool,
    pub together: TogetherRule,
    pub books: Books,
    changed: Notify,
    /// Told when the last worker has ended.
    last_ended: Notify,
    random: Ids,
    started: Instant,
}

/// What all shells of a node write into.
#[derive(Clone)]
pub struct Books {
    pub agenda: Arc<Agenda>,
    /// What is being handled, for the next start.
    pub running: Arc<Running>,
    /// What became of the last handlings.
    pub past: Arc<Past>,
    /// Hears the name of a queue whose workflow is to end, and why.
    pub overloaded: mpsc::Sender<(Arc<str>, Overload)>,
}

/// Who handles a queue, and how.
pub struct Cast {
    pub consumer: Arc<dyn Consumer>,
    pub policy: Box<dyn Policy>,
    /// The queue for events that cannot be handled, if they are to go on.
    pub dead_to: Option<Name>,
    /// Those of its workflow, if that has a maximum.
    pub permits: Option<Arc<UnitPermits>>,
}

/// What is counted of a handled queue since the node started, or since it was first handled.
#[derive(Default)]
pub struct Numbers {
    pub workers: AtomicU32,
    pub busy: AtomicU32,
    /// Workers that have ended.
    pub ended: AtomicU64,
    pub handled: AtomicU64,
    pub retried: AtomicU64,
    pub died: AtomicU64,
    pub postponed: AtomicU64,
    /// Handlings undone because their lease had ended.
    pub lost: AtomicU64,
    /// When a worker last took an event, since the start of the shell.
    pub last_lease_us: AtomicU64,
}

#[derive(Default)]
struct Measured {
    service_time: Mean,
    arrivals: Rate,
}

/// What a look came to.
#[derive(Default)]
struct Decided {
    decision: Decision,
    started: Vec<Worker>,
    /// Whose permits are all taken, though there would be something to do.
    lacks: Option<Arc<UnitPermits>>,
}

/// After an event that could not be begun.
#[derive(Default)]
struct Rest {
    until: Option<Instant>,
    in_a_row: u32,
}

impl Shell {
    pub fn new(queue: Queue, state: State, cast: Cast, books: Books, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            name: queue.name().clone(),
            queue,
            state,
            numbers: Numbers::default(),
            consumer: RwLock::new(cast.consumer),
            policy: Mutex::new(cast.policy),
            dead_to: RwLock::new(cast.dead_to),
            permits: RwLock::new(cast.permits),
            measured: Mutex::default(),
            rest: Mutex::default(),
            to_stop: AtomicU32::new(0),
            delayed: AtomicU64::new(0),
            is_retired: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            together: TogetherRule::default(),
            books,
            changed: Notify::new(),
            last_ended: Notify::new(),
            random: Ids::new(seed),
            started: Instant::now(),
        })
    }

    /// Events leased from now on go to this consumer.
    pub fn replace(&self, cast: Cast) {
        *self.consumer.write() = cast.consumer;
        *self.policy.lock() = cast.policy;
        *self.dead_to.write() = cast.dead_to;
        *self.permits.write() = cast.permits;
        *self.rest.lock() = Rest::default();
        self.wake();
    }

    /// Nothing is leased any more. Handlings that run may end; [`Shell::run`] ends after the last.
    pub fn retire(&self) {
        self.is_retired.store(true, Relaxed);
        self.wake();
    }

    /// While it is paused nothing is leased. Handlings that run end.
    pub fn pause(&self, paused: bool) {
        if self.is_paused.swap(paused, Relaxed) != paused {
            self.wake();
        }
    }

    /// Runs until the shell is retired. Dropping the future drops the handlings; their events are ready again.
    pub async fn run(self: Arc<Self>) {
        let mut ready = self.queue.watch();
        let mut workers = JoinSet::new();
        let mut starving = None;
        loop {
            while let Some(ended) = workers.try_join_next() {
                if let Err(error) = ended {
                    // The event has been given back; it is tried again like any other.
                    tracing::error!(queue = %self.name, "a worker gave up: {error}");
                    self.rest(None);
                }
            }
            let is_retired = self.is_retired.load(Relaxed);
            if is_retired && self.numbers.workers.load(Relaxed) == 0 {
                return;
            }
            ready.borrow_and_update();
            let rests = is_retired || self.is_paused.load(Relaxed);
            let Decided { decision, started, lacks } =
                if rests { Decided::default() } else { self.decide(Instant::now(), starving.as_ref()) };
            // The place in the line is kept for as long as there is none to be had.
            starving = lacks.as_ref().filter(|_| !self.is_working()).map(|permits| {
                starving
                    .take()
                    .filter(|starving: &Starving| starving.is_of(permits))
                    .unwrap_or_else(|| permits.starve())
            });
            self.to_stop.fetch_add(decision.stop, Relaxed);
            if let Some(overload) = decision.ends_workflow {
                // If there is no room, it is said again at the next look.
                self.books.overloaded.try_send((self.name.clone(), overload)).ok();
            }
            for worker in started {
                workers.spawn(worker.run());
            }
            self.until_something_happens(&mut ready, decision.look_after, lacks, starving.as_ref()).await;
        }
    }

    /// Asks the policy, and makes the workers that it starts: nobody else takes their permits meanwhile.
    fn decide(self: &Arc<Self>, now: Instant, starving: Option<&Starving>) -> Decided {
        let rest = self.resting(now);
        if !rest.is_zero() {
            let decision = Decision { look_after: Some(rest), ..Decision::default() };
            return Decided { decision, ..Decided::default() };
        }
        let permits = self.permits.read().clone();
        let starving = |permits| starving.filter(|starving| starving.is_of(permits));
        let mut taking = permits.as_ref().map(|permits| permits.hold(starving(permits)));
        let (since, seen) = self.observe(now, taking.as_ref().map(Taking::left));
        let decision = self.policy.lock().decide(since, &seen);
        let worker = |_| match &mut taking {
            None => Some(Worker::new(self.clone(), None)),
            Some(taking) => taking.take().map(|permit| Worker::new(self.clone(), Some(permit))),
        };
        let started = (0..decision.start).map_while(worker).collect();
        let is_held = seen.ready > 0 && seen.workflow_room == Some(0);
        drop(taking);
        Decided { decision, started, lacks: permits.filter(|_| is_held) }
    }

    /// What the policy is to know, and the time it knows.
    fn observe(&self, now: Instant, workflow_room: Option<u32>) -> (Duration, Observation) {
        let counts = self.queue.counts();
        self.watch_delayed(counts.delayed);
        let since = now.saturating_duration_since(self.started);
        let workers = self.numbers.workers.load(Relaxed);
        let age_ms = counts.oldest_ms.map_or(0, |oldest_ms| clock::now_ms().saturating_sub(oldest_ms));
        let mut measured = self.measured.lock();
        measured.arrivals.note(since, counts.since_start.pushed);
        let seen = Observation {
            ready: counts.leasable,
            oldest_age: Duration::from_millis(age_ms),
            last_lease: Duration::from_micros(self.numbers.last_lease_us.load(Relaxed)),
            // Those who have been told to end do not count, or they would be told again.
            workers: workers.saturating_sub(self.to_stop.load(Relaxed)),
            busy: self.numbers.busy.load(Relaxed).min(workers),
            ended: self.numbers.ended.load(Relaxed),
            workflow_room,
            refused: counts.since_start.refused,
            service_time: measured.service_time.get(),
            arrival_rate: measured.arrivals.per_second(),
        };
        (since, seen)
    }

    /// An event was pushed that is not ready yet: the clock finds out when it will be.
    fn watch_delayed(&self, delayed: u64) {
        if delayed > self.delayed.swap(delayed, Relaxed) {
            self.books.agenda.add(&self.name, Duration::ZERO);
        }
    }

    async fn until_something_happens(
        &self,
        ready: &mut watch::Receiver<u64>,
        look_after: Option<Duration>,
        lacks: Option<Arc<UnitPermits>>,
        starving: Option<&Starving>,
    ) {
        let is_working = self.numbers.workers.load(Relaxed) > 0;
        let becomes_ready = async {
            if is_working {
                sleep(LOOK_EVERY).await;
            }
            if ready.changed().await.is_err() {
                pending::<()>().await;
            }
        };
        let time_to_look = async {
            match look_after {
                Some(after) => sleep(after).await,
                None => pending().await,
            }
        };
        let has_room = async {
            match lacks {
                Some(permits) => permits.has_room(starving).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = self.changed.notified() => {}
            () = has_room => {}
            () = becomes_ready => {}
            () = time_to_look => {}
        }
    }

    pub fn wake(&self) {
        self.changed.notify_one();
        if !self.is_working() {
            self.last_ended.notify_waiters();
        }
    }

    pub fn is_working(&self) -> bool {
        self.numbers.workers.load(Relaxed) > 0
    }

    /// Waits until nobody works.
    pub async fn ended(&self) {
        loop {
            let mut ended = pin!(self.last_ended.notified());
            // Listen first, then look: who ends in between wakes us.
            ended.as_mut().enable();
            if !self.is_working() {
                return;
            }
            ended.await;
        }
    }

    /// Whether a worker may take another event; one that may not ends.
    pub fn may_lease(&self) -> bool {
        let is_told = || self.to_stop.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1)).is_ok();
        let may = !self.is_retired.load(Relaxed) && !self.is_paused.load(Relaxed);
        may && self.resting(Instant::now()).is_zero() && !is_told()
    }

    pub fn consumer(&self) -> Arc<dyn Consumer> {
        self.consumer.read().clone()
    }

    /// The queue for events that cannot be handled, if they are to go on.
    pub fn dead_to(&self) -> Option<Name> {
        self.dead_to.read().clone()
    }

    /// Nothing is leased for a while.
    pub fn rest(&self, after: Option<Duration>) {
        let mut rest = self.rest.lock();
        rest.in_a_row = rest.in_a_row.saturating_add(1);
        let until = Instant::now() + after.unwrap_or_else(|| failure::rest(rest.in_a_row));
        rest.until = Some(rest.until.map_or(until, |earlier| earlier.max(until)));
    }

    /// How much longer the queue rests.
    fn resting(&self, now: Instant) -> Duration {
        self.rest.lock().until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// A handling was begun, and took so long.
    pub fn handled(&self, took: Duration) {
        self.measured.lock().service_time.add(took);
        let mut rest = self.rest.lock();
        if rest.in_a_row > 0 {
            *rest = Rest::default();
        }
    }

    /// So many events were handled together and are acked; `took` has the time of each.
    pub fn handled_together(&self, took: impl Iterator<Item = Duration>) {
        let mut measured = self.measured.lock();
        took.for_each(|took| measured.service_time.add(took));
        drop(measured);
        let mut rest = self.rest.lock();
        if rest.in_a_row > 0 {
            *rest = Rest::default();
        }
    }

    pub fn service_time(&self) -> Option<Duration> {
        self.measured.lock().service_time.get()
    }

    pub fn us(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.started).as_micros()).unwrap_or(u64::MAX)
    }

    pub fn random(&self) -> u64 {
        self.random.next()
    }
}
