//! A function ready to run: its zygote, its children, and calls that wait for one.

use crate::ProcessInner;
use crate::arena::Arena;
use crate::attach;
use crate::attempt::attempt;
use crate::bundle::Runtime;
use crate::cgroup::{Bounds, Controller};
use crate::child::Child;
use crate::process::Process;
use crate::rack::Rack;
use crate::zygote::{Recipe, Zygote};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::sleep;
use unit::{Attempt, Deployed, Host, Prepared, Running, Seen, UnitStatus};
use unit_host::pool::{Pool, Spare, Taken};
use unit_host::{Desk, RosterEntry};

/// How long a zygote stays without a call.
const ZYGOTE_IDLE: Duration = Duration::from_secs(120);

/// How long a function that does not load is left alone: after the first time, and at most; twice as long each time.
const LOAD_PAUSE_MIN: Duration = Duration::from_secs(1);
const LOAD_PAUSE_MAX: Duration = Duration::from_secs(60);

/// When units are looked at that have just been made, one after the other; later each sweep looks.
const LOOK_PAUSES: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(1)];

pub struct PreparedProcess {
    shared: Arc<ProcessInner>,
    recipe: Recipe,
    pool: Pool<Child>,
    /// What large calls are lent to units in.
    pub arenas: Arc<Rack<Arena>>,
    /// Those that serve a call.
    pub at_work: Arc<Desk<Arc<Process>>>,
    /// Held while the zygote is started.
    zygote: AsyncMutex<Option<Arc<Zygote>>>,
    failed: Mutex<Failed>,
    /// Whether units that wait are being looked at.
    is_looking: AtomicBool,
    /// It was unloaded or replaced: only calls that came before that still have units made.
    is_over: AtomicBool,
}

impl PreparedProcess {
    pub fn new(shared: Arc<ProcessInner>, recipe: Recipe) -> Arc<Self> {
        let function = &recipe.deployed.function;
        // A zygote has no more children, so no more are kept.
        let kept_max = function.limits.concurrency.min(recipe.slots());
        let pool = Pool::new(function.units.reuse_calls, recipe.spares(), kept_max as usize);
        Arc::new(Self {
            shared,
            recipe,
            pool,
            arenas: Arc::default(),
            at_work: Arc::default(),
            zygote: AsyncMutex::default(),
            failed: Mutex::default(),
            is_looking: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        })
    }

    /// Whether a unit is lent its large call: it has to be a copy of the zygote, which knows how, and to serve no
    /// call after this one, for it may keep what it maps.
    pub fn lends_to(&self, child: &Child) -> bool {
        self.recipe.about.runtime == Runtime::Python && child.calls + 1 >= self.deployed().function.units.reuse_calls
    }

    /// Whether the kernel bounds the memory of each unit.
    pub fn counts_memory(&self) -> bool {
        self.shared.counts_memory()
    }

    /// A child for one call: one kept for reuse, a spare, or the next one that is forked or kept.
    ///
    /// # Errors
    /// There can be none.
    pub async fn take(self: &Arc<Self>, request_id: &Arc<str>) -> Result<(Child, RosterEntry), Problem> {
        let taken = self.pool.take(request_id);
        if !matches!(taken, Taken::Again(..)) {
            self.top_up(true);
        }
        let (child, entry) = self.pool.wait(taken, request_id).await?;
        // One that has served may still let others go first.
        child.life.step_back(false);
        Ok((child, entry))
    }

    /// Keeps the child for its next call, or ends it.
    pub fn put_back(self: &Arc<Self>, mut child: Child, entry: RosterEntry) {
        child.has_served();
        if child.calls < self.deployed().function.units.reuse_calls && !self.is_over.load(Relaxed) {
            self.pool.keep(child, entry);
        } else {
            drop(entry);
            // Ending it takes a dozen system calls, for which nobody who waits for the reply should wait.
            tokio::spawn(async move { drop(child) });
        }
        self.returned();
    }

    /// A call has no child any more.
    pub fn returned(self: &Arc<Self>) {
        self.top_up(false);
    }

    /// Makes units for calls that wait, at once, and then those ahead of need.
    fn top_up(self: &Arc<Self>, in_call: bool) {
        let pause = self.recipe.base.spare_pause();
        if pause.is_zero() {
            return self.make(self.missing(in_call));
        }
        self.make(self.pool.missing_now());
        if !self.pool.is_missing(in_call) {
            return;
        }
        let prepared = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep(pause).await;
            if let Some(prepared) = prepared.upgrade() {
                prepared.make(prepared.missing(in_call));
            }
        });
    }

    /// How many to begin making; once it is over, none ahead of need.
    fn missing(&self, in_call: bool) -> u32 {
        if self.is_over.load(Relaxed) { self.pool.missing_now() } else { self.pool.missing(in_call) }
    }

    fn make(self: &Arc<Self>, units: u32) {
        for _ in 0..units {
            let prepared = self.clone();
            tokio::spawn(async move {
                let coming = Coming(Some(prepared.clone()));
                let forked = prepared.fork().await;
                coming.ends(forked);
            });
        }
    }

    /// Looks at the units that wait before the next sweep does: what works in each new one has the machine until
    /// then.
    fn look_soon(self: &Arc<Self>) {
        if self.is_looking.swap(true, Relaxed) {
            return;
        }
        let prepared = Arc::downgrade(self);
        tokio::spawn(async move {
            for pause in LOOK_PAUSES {
                sleep(pause).await;
                let Some(prepared) = prepared.upgrade() else { return };
                if !prepared.pool.end_restless(Instant::now()) {
                    break;
                }
            }
            if let Some(prepared) = prepared.upgrade() {
                prepared.is_looking.store(false, Relaxed);
            }
        });
    }

    async fn fork(self: &Arc<Self>) -> Result<Child, Problem> {
        let bounds = self.recipe.bounds();
        let zygote = self.zygote().await?;
        match self.fork_of(&zygote, &bounds).await {
            // It may have been killed for its memory, or by itself: one more is started.
            Err(_) if zygote.is_dead() && zygote.has_served() => {
                let next = self.zygote().await?;
                self.fork_of(&next, &bounds).await
            }
            forked => forked,
        }
    }

    /// A function is loaded once a child of it is ready: one that ends its zygote at the first fork would else be
    /// loaded again for every call, without a pause.
    async fn fork_of(&self, zygote: &Arc<Zygote>, bounds: &Bounds) -> Result<Child, Problem> {
        let was_first = !zygote.has_served();
        let forked = zygote.fork(&self.shared, bounds).await;
        if forked.is_ok() && was_first {
            self.failed.lock().note(Instant::now(), None);
        }
        if let Err(problem) = &forked
            && [Code::StartFailed, Code::CpuExceeded].contains(&problem.code)
            && zygote.fails_first()
        {
            self.failed.lock().note(Instant::now(), Some(problem));
        }
        forked
    }

    async fn zygote(self: &Arc<Self>) -> Result<Arc<Zygote>, Problem> {
        let mut place = self.zygote.lock().await;
        if let Some(zygote) = place.as_ref().filter(|zygote| !zygote.is_dead()) {
            return Ok(zygote.clone());
        }
        *place = None;
        self.failed.lock().pause(Instant::now()).map_or(Ok(()), Err)?;
        let started = Zygote::start(&self.shared, &self.recipe).await;
        if let Err(problem) = &started {
            self.failed.lock().note(Instant::now(), Some(problem));
        }
        let zygote = started?;
        *place = Some(zygote.clone());
        Ok(zygote)
    }

    /// Memory of one unit, with what its base takes.
    pub fn memory_bytes_max(&self) -> u64 {
        self.recipe.bounds().memory_bytes
    }
}

/// A unit that is being made. If it gets lost, as by a panic, who waits is told: it would count as coming for ever.
struct Coming(Option<Arc<PreparedProcess>>);

impl Coming {
    fn ends(mut self, forked: Result<Child, Problem>) {
        if let Some(prepared) = self.0.take() {
            prepared.pool.came(Some(forked));
            prepared.look_soon();
        }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if let Some(prepared) = self.0.take() {
            // No other one is made for it at once: that may be lost the same way, without end.
            prepared.pool.came(Some(Err(Problem::new(Code::Internal, "a unit got lost while it was made"))));
        }
    }
}

/// What came of loading the function lately: one that does not load must not take the machine by being tried all the
/// time.
#[derive(Debug, Default)]
struct Failed {
    /// Times in a row, and how it was the last time.
    times: u32,
    last: Option<(Instant, Problem)>,
}

impl Failed {
    /// The problem of the last time, while it is too early for the next.
    fn pause(&self, now: Instant) -> Option<Problem> {
        let (when, problem) = self.last.as_ref()?;
        let pause = LOAD_PAUSE_MIN.saturating_mul(1 << self.times.saturating_sub(1).min(16)).min(LOAD_PAUSE_MAX);
        (now.saturating_duration_since(*when) < pause).then(|| problem.clone())
    }

    fn note(&mut self, now: Instant, problem: Option<&Problem>) {
        // What this machine lacks is no fault of the function.
        let own = [Code::StartFailed, Code::TimeExceeded, Code::CpuExceeded, Code::MemoryExceeded];
        match problem.filter(|problem| own.contains(&problem.code)) {
            Some(problem) => {
                self.times = self.times.saturating_add(1);
                self.last = Some((now, problem.clone()));
            }
            None => *self = Self::default(),
        }
    }
}

impl Spare for Child {
    fn number(&self) -> u64 {
        self.number
    }

    fn is_there(&mut self) -> bool {
        self.life.is_there()
    }

    fn rests(&mut self, now: Instant) -> bool {
        Child::rests(self, now)
    }
}

impl Prepared for PreparedProcess {
    fn deployed(&self) -> &Arc<Deployed> {
        &self.recipe.deployed
    }

    fn try_start(self: Arc<Self>, _: Arc<dyn Host>) -> BoxFuture<'static, Result<Duration, Problem>> {
        Box::pin(async move {
            let began = Instant::now();
            let (child, entry) = self.take(&"deploy".into()).await?;
            let took = began.elapsed();
            // Nobody has used it: it is the first call's.
            drop(entry);
            self.pool.give_back(child);
            self.top_up(false);
            Ok(took)
        })
    }

    fn attempt(self: Arc<Self>, one: Attempt) -> Box<dyn Running> {
        unit_host::run(one, |one| attempt(self, one))
    }

    fn warm_up(self: Arc<Self>) {
        self.pool.forget_gone();
        self.top_up(false);
    }

    fn units(&self) -> Vec<UnitStatus> {
        self.pool.units()
    }

    /// A process leaves its traceback in the log, and no dump.
    fn dump(&self) -> Option<Arc<Vec<u8>>> {
        None
    }

    fn attach(self: Arc<Self>, unit: u64, wants_core: bool) -> BoxFuture<'static, Result<Seen, Problem>> {
        let runtime = self.recipe.about.runtime;
        Box::pin(attach::attach(self, runtime, unit, wants_core))
    }

    fn sweep(&self, now: Instant, all: bool) {
        if all {
            self.is_over.store(true, Relaxed);
        }
        let idle = Duration::from_millis(self.deployed().function.units.reuse_idle_ms);
        let is_idle = self.pool.sweep(now, all, idle, ZYGOTE_IDLE);
        self.pool.end_restless(now);
        self.arenas.sweep(now, all);
        // One that is just being started is looked at the next time.
        let Ok(mut place) = self.zygote.try_lock() else { return };
        if let Some(zygote) = &*place {
            zygote.look(now);
            if is_idle || zygote.is_dead() {
                *place = None;
                drop(place);
                self.pool.forget_gone();
            }
        }
    }
}

impl ProcessInner {
    /// Whether the kernel bounds the memory of each unit.
    pub fn counts_memory(&self) -> bool {
        self.groups().0.has(Controller::Memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Assignment, Base, Beside, Program};
    use crate::bundle::{About, Contract};
    use crate::jail::Bind;
    use crate::{Config, ProcessClass};
    use budget::Budget;
    use manifest::{Function, Name};
    use std::fs::File;
    use std::sync::atomic::AtomicU32;
    use tempfile::TempDir;
    use unit::{LogLine, LogWriter};

    /// A base on which no unit can be made: whoever begins to make one panics.
    #[derive(Default)]
    struct Broken {
        asked: AtomicU32,
    }

    impl Base for Broken {
        fn fits(&self, _: &About) -> Result<(), Problem> {
            Ok(())
        }

        fn binds(&self) -> &[Bind] {
            &[]
        }

        fn program(&self, _: &Assignment<'_>) -> Program {
            unreachable!("no zygote is started")
        }

        fn beside(&self) -> Beside {
            self.asked.fetch_add(1, Relaxed);
            panic!("as the test has it")
        }
    }

    struct Silent;

    impl LogWriter for Silent {
        fn write(&self, _: LogLine<'_>) {}
    }

    /// A function on it, and the folder of its class.
    fn prepared(base: &Arc<Broken>) -> (Arc<PreparedProcess>, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let class = ProcessClass::new(Config {
            folder: folder.path().join("bases"),
            python: None,
            java: None,
            allow_weaker: true,
            units_bytes_max: 1 << 30,
            jail: Vec::new(),
        });
        let deployed = Deployed {
            name: Name::try_from("broken".to_owned()).unwrap(),
            version: 1,
            function: Arc::new(Function::new("broken")),
            contract: unit::Contract::Unit,
            secrets: Arc::default(),
            log: Arc::new(Silent),
            budget: Budget::unbounded(),
        };
        let recipe = Recipe {
            deployed: Arc::new(deployed),
            about: About::new(Contract::Event, "app:handle", Runtime::Python),
            base: base.clone(),
            code: File::open("/dev/null").unwrap(),
        };
        (PreparedProcess::new(class.unwrap().shared.clone(), recipe), folder)
    }

    /// A call of it, which finds no unit.
    async fn refused(prepared: &Arc<PreparedProcess>) -> Code {
        let taken = tokio::time::timeout(Duration::from_secs(10), prepared.take(&"r".into())).await;
        taken.expect("who waits is told").err().expect("no unit can be made").code
    }

    /// Units that got lost counted as coming for ever: no others were made, and calls waited until their deadlines.
    #[tokio::test]
    async fn a_unit_that_is_lost_while_it_is_made_keeps_none_from_being_made() {
        let base = Arc::new(Broken::default());
        let (prepared, _folder) = prepared(&base);
        // For the first call, and two ahead of need: each of them tells one call. Then others are begun.
        for _ in 0..6 {
            assert_eq!(refused(&prepared).await, Code::Internal);
        }
        assert!(base.asked.load(Relaxed) > 3);
    }

    /// The end of each of its last calls made units ahead of need of an unloaded version, and loaded it again.
    #[tokio::test]
    async fn what_was_unloaded_makes_units_for_its_last_calls_alone() {
        let base = Arc::new(Broken::default());
        let (prepared, _folder) = prepared(&base);
        assert!(prepared.pool.is_missing(false));
        prepared.sweep(Instant::now(), true);
        prepared.returned();
        tokio::task::yield_now().await;
        assert_eq!(base.asked.load(Relaxed), 0);
        assert_eq!(refused(&prepared).await, Code::Internal, "a call that came upon its end has one made");
        tokio::task::yield_now().await;
        assert_eq!(base.asked.load(Relaxed), 1);
    }

    /// Finding R12: each call loaded it again.
    #[test]
    fn a_function_that_does_not_load_is_tried_less_and_less() {
        let begun = Instant::now();
        let problem = Problem::new(Code::StartFailed, "no luck");
        let mut failed = Failed::default();
        let (mut now, mut loads) = (begun, 0);
        while now < begun + Duration::from_secs(600) {
            if failed.pause(now).is_none() {
                failed.note(now, Some(&problem));
                loads += 1;
            }
            assert_eq!(failed.pause(now).map(|said| said.detail), Some(problem.detail.clone()));
            now += Duration::from_millis(100);
        }
        assert_eq!(loads, 6 + 9, "after 1, 2, 4, 8, 16, 32 s, then every minute");
        failed.note(now, None);
        assert!(failed.pause(now).is_none());
        failed.note(now, Some(&Problem::new(Code::JailIncomplete, "no fault of its own")));
        assert!(failed.pause(now).is_none());
    }
}
