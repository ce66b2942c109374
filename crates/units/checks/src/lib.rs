//! What an isolation class must do. The tests of every class call [`run`], which goes through [`ALL`].
//!
//! A check that not every class can pass names the [`Trait`] it needs. A class without the trait skips the check; the
//! trait's own text says what it does instead.
//!
//! The images are the same functions in every class's own form: `hello`, `counter` and `attack` of `guests/`.

mod queues;
mod wasi;

use budget::{Budget, Purpose};
use event::Event;
use handling::{Call, Caller, Content, Ended, Handler, Reply, Work};
use manifest::{Function, Name};
use problem::{Code, Problem};
use state::{Options, State};
use std::fs::File;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use unit::{Artefact, Contract, Deployed, IsolationClass, LogLine, LogWriter, Prepared};

/// What not every class has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trait {
    /// Its units are there before the first call. Boards are found when a call comes.
    Start,
    /// Units are used again. A board links the function anew for each call.
    Reuse,
    /// CPU time is counted apart from wall time. A board has only a watchdog, which ends what outlasts the call's time.
    CpuTime,
    /// A unit that nobody waits for is stopped at once. A board that computes hears nothing, and goes on until its
    /// watchdog ends it.
    Stop,
    /// Units work side by side. A board runs one call at a time.
    SideBySide,
    /// A unit starts in a millisecond or two. A virtual machine takes some thirty, and longer beside units that are
    /// busy: where many calls follow one another, it is used again.
    QuickStart,
    /// A trap is told with source lines. A board names the functions alone, and keeps no image.
    SourceLines,
    /// Components that import WASI 0.2 run. What processes and boards run has no such imports.
    Wasi,
}

/// The images of one class, and what it lacks.
pub struct Images<'a> {
    /// Replies `hello, NAME`.
    pub hello: &'a [u8],
    /// Counts in the bucket `counters`.
    pub counter: &'a [u8],
    /// Misbehaves as its data says.
    pub attack: &'a [u8],
    /// How a backtrace names the source of `attack`, as `lib.rs:`.
    pub attack_source: &'a str,
    /// Whether the class keeps a core dump when it is asked to. One that does not refuses to be asked.
    pub dumps: bool,
    pub lacks: &'a [Trait],
    /// None for a class that lacks WASI.
    pub wasi: Option<WasiImages<'a>>,
    /// Ready once what the check before left running cannot disturb the next one.
    pub settles: &'a (dyn Fn() -> Running<'static> + 'a),
}

/// Images that import WASI.
#[derive(Clone, Copy)]
pub struct WasiImages<'a> {
    /// Uses WASI as its data says.
    pub probe: &'a [u8],
    /// Takes a random number in its start function and one in its call, and replies with both.
    pub start_random: &'a [u8],
}

/// For a class whose units are gone when their calls are.
pub fn settled() -> Running<'static> {
    Box::pin(async {})
}

pub type Running<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
type Check = for<'a> fn(&'a Stage<'a>) -> Running<'a>;

/// The claims, by name, each with what a class needs to be held to it.
pub const ALL: &[(&str, &[Trait], Check)] = &[
    ("an_event_is_answered", &[], |stage| Box::pin(an_event_is_answered(stage))),
    ("every_call_has_fresh_memory", &[], |stage| Box::pin(every_call_has_fresh_memory(stage))),
    ("a_unit_is_used_again_only_as_often_as_allowed", &[Trait::Reuse], |stage| {
        Box::pin(a_unit_is_used_again_only_as_often_as_allowed(stage))
    }),
    ("an_endless_loop_ends_at_its_cpu_limit", &[Trait::CpuTime], |stage| {
        Box::pin(an_endless_loop_ends_at_its_cpu_limit(stage))
    }),
    ("an_endless_loop_ends_at_its_time_limit", &[], |stage| Box::pin(an_endless_loop_ends_at_its_time_limit(stage))),
    ("a_loop_of_host_calls_ends_too", &[Trait::CpuTime], |stage| Box::pin(a_loop_of_host_calls_ends_too(stage))),
    ("memory_and_stack_are_bounded", &[], |stage| Box::pin(memory_and_stack_are_bounded(stage))),
    ("a_crash_is_a_problem_with_a_backtrace", &[], |stage| Box::pin(a_crash_is_a_problem_with_a_backtrace(stage))),
    ("a_log_flood_is_cut_and_said", &[], |stage| Box::pin(a_log_flood_is_cut_and_said(stage))),
    ("a_reply_over_the_limit_is_refused", &[], |stage| Box::pin(a_reply_over_the_limit_is_refused(stage))),
    ("failures_keep_their_meaning", &[], |stage| Box::pin(failures_keep_their_meaning(stage))),
    ("nothing_is_granted_by_default", &[], |stage| Box::pin(nothing_is_granted_by_default(stage))),
    ("a_crash_undoes_its_writes", &[], |stage| Box::pin(a_crash_undoes_its_writes(stage))),
    ("increments_at_once_all_count", &[], |stage| Box::pin(increments_at_once_all_count(stage))),
    ("a_dropped_call_stops_its_unit", &[Trait::Stop], |stage| Box::pin(a_dropped_call_stops_its_unit(stage))),
    ("an_attacker_does_not_stop_its_neighbour", &[Trait::SideBySide], |stage| {
        Box::pin(an_attacker_does_not_stop_its_neighbour(stage))
    }),
    ("pushing_and_popping_need_a_grant", &[], |stage| Box::pin(queues::pushing_and_popping_need_a_grant(stage))),
    ("what_is_pushed_says_where_it_comes_from", &[], |stage| {
        Box::pin(queues::what_is_pushed_says_where_it_comes_from(stage))
    }),
    ("a_failure_undoes_pushes", &[], |stage| Box::pin(queues::a_failure_undoes_pushes(stage))),
    ("ack_writes_and_pushes_are_one", &[], |stage| Box::pin(queues::ack_writes_and_pushes_are_one(stage))),
    ("a_handling_that_only_acks_commits", &[], |stage| Box::pin(queues::a_handling_that_only_acks_commits(stage))),
    ("a_failed_handling_keeps_its_lease", &[], |stage| Box::pin(queues::a_failed_handling_keeps_its_lease(stage))),
    ("a_lost_lease_undoes_everything", &[], |stage| Box::pin(queues::a_lost_lease_undoes_everything(stage))),
    ("a_conflict_runs_a_leased_event_again", &[], |stage| {
        Box::pin(queues::a_conflict_runs_a_leased_event_again(stage))
    }),
    ("reruns_are_bounded", &[], |stage| Box::pin(queues::reruns_are_bounded(stage))),
    ("what_was_popped_comes_back_on_failure", &[], |stage| {
        Box::pin(queues::what_was_popped_comes_back_on_failure(stage))
    }),
    ("a_full_queue_refuses", &[], |stage| Box::pin(queues::a_full_queue_refuses(stage))),
    ("events_at_once_are_each_handled_once", &[], |stage| {
        Box::pin(queues::events_at_once_are_each_handled_once(stage))
    }),
    ("a_unit_sees_what_its_manifest_says_and_no_more", &[Trait::Wasi], |stage| {
        Box::pin(wasi::a_unit_sees_what_its_manifest_says_and_no_more(stage))
    }),
    ("time_is_the_time_of_now_and_can_be_waited_for", &[Trait::Wasi], |stage| {
        Box::pin(wasi::time_is_the_time_of_now_and_can_be_waited_for(stage))
    }),
    ("no_two_units_share_a_seed", &[Trait::Wasi], |stage| Box::pin(wasi::no_two_units_share_a_seed(stage))),
    ("misuse_ends_the_unit_alone", &[Trait::Wasi], |stage| Box::pin(wasi::misuse_ends_the_unit_alone(stage))),
    ("what_is_no_image_is_refused", &[], |stage| Box::pin(what_is_no_image_is_refused(stage))),
];

/// Runs every check, each with a data folder of its own below `folder`, and names those that fail by panicking.
pub async fn run(class: &dyn IsolationClass, images: &Images<'_>, folder: &Path) {
    for (name, needs, check) in ALL {
        let word = class.isolation().as_str();
        if let Some(missing) = needs.iter().find(|needed| images.lacks.contains(needed)) {
            println!("check {word} {name}: not held to it, because it lacks {missing:?}");
            continue;
        }
        println!("check {word} {name}");
        (images.settles)().await;
        let stage = Stage::new(class, images, folder.join(name));
        check(&stage).await;
        gives_back(&stage.budget).await;
    }
}

/// Memory that the units of one check and their host may hold together: for the most that are used at once.
const BUDGET_BYTES: u64 = 8 << 30;

/// Whatever went wrong in a check, nothing is held when its units are gone. They may be on their way for a moment.
async fn gives_back(budget: &Budget) {
    let until = Instant::now() + Duration::from_secs(20);
    while budget.total_bytes() > 0 {
        let held = Purpose::ALL.map(|purpose| (purpose.word(), budget.used_bytes(purpose)));
        assert!(Instant::now() < until, "still held: {held:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Where one check plays: a store, a log, and a way to call.
pub struct Stage<'a> {
    class: &'a dyn IsolationClass,
    images: &'a Images<'a>,
    folder: std::path::PathBuf,
    state: State,
    handler: Handler,
    log: Arc<Lines>,
    budget: Arc<Budget>,
}

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl LogWriter for Lines {
    fn write(&self, line: LogLine<'_>) {
        self.0.lock().expect("not poisoned").push(line.message.to_owned());
    }
}

/// Keeps how the call ended.
#[derive(Clone, Default)]
struct Watcher(Arc<Mutex<Option<Ended>>>);

impl Caller for Watcher {
    fn ended(self, ended: Ended) {
        *self.0.lock().expect("not poisoned") = Some(ended);
    }
}

impl<'a> Stage<'a> {
    fn new(class: &'a dyn IsolationClass, images: &'a Images<'a>, folder: std::path::PathBuf) -> Self {
        std::fs::create_dir_all(&folder).expect("a folder for the check");
        let state = State::open(&folder.join("state"), Options::default()).expect("a store for the check");
        let (handler, budget) = (Handler::new(state.clone()), Budget::new(BUDGET_BYTES));
        Self { class, images, folder, state, handler, log: Arc::default(), budget }
    }

    fn prepare(&self, name: &str, image: &[u8], change: impl FnOnce(&mut Function)) -> Ready {
        let shape = self.class.check(image).expect("a good image");
        assert_eq!(shape.contract, Contract::Unit);
        // Beside the folders of all checks: what one has compiled the next ones use.
        let path = self.folder.with_file_name(format!("{name}.artefact"));
        if !path.exists() {
            std::fs::write(&path, self.class.compile(image).expect("it compiles")).expect("room for the artefact");
        }
        let mut function = Function::new(name);
        change(&mut function);
        let deployed = Deployed {
            name: Name::try_from(name.to_owned()).expect("a name"),
            version: 1,
            function: Arc::new(function),
            contract: shape.contract,
            secrets: Arc::default(),
            log: self.log.clone(),
            budget: self.budget.clone(),
        };
        let file = File::open(&path).expect("the artefact is there");
        let prepared = self.class.load(Artefact { path, file }, deployed).expect("it loads");
        Ready { prepared, handler: self.handler.clone() }
    }

    fn attack(&self, change: impl FnOnce(&mut Function)) -> Ready {
        self.prepare("attack", self.images.attack, change)
    }

    fn has(&self, wanted: Trait) -> bool {
        !self.images.lacks.contains(&wanted)
    }

    fn log(&self) -> String {
        self.log.0.lock().expect("not poisoned").join("\n")
    }
}

/// A function ready to be called.
#[derive(Clone)]
struct Ready {
    prepared: Arc<dyn Prepared>,
    handler: Handler,
}

impl Ready {
    /// Calls it, for at most this long.
    fn send(&self, data: &str, time_max: Duration, watcher: Watcher) -> Handled {
        let event = Event { data: data.into(), attempt: 1, ..Event::default() };
        let deadline = Instant::now() + time_max;
        self.handle(Call { request_id: "check".into(), work: Work::Event(event), deadline, lease: None }, watcher)
    }

    fn handle(&self, call: Call, caller: impl Caller) -> Handled {
        let Self { prepared, handler } = self.clone();
        Box::pin(async move { handler.handle(prepared, call, caller).await })
    }

    /// Calls it, and says what it replied.
    async fn call(&self, data: &str) -> Result<String, Problem> {
        let watcher = Watcher::default();
        let result = self.send(data, LONG, watcher.clone()).await;
        let ended = watcher.0.lock().expect("not poisoned").take().expect("the caller hears of the end");
        assert_eq!(ended.result.is_ok(), result.is_ok(), "both ways of hearing of it say the same");
        result.map(text)
    }

    fn units(&self) -> usize {
        self.prepared.units().len()
    }
}

type Handled = Pin<Box<dyn Future<Output = Result<Reply, Problem>> + Send>>;

/// No check waits for this long.
const LONG: Duration = Duration::from_secs(60);

fn text(reply: Reply) -> String {
    match reply.content {
        Content::Bytes(bytes) => String::from_utf8(bytes.into()).expect("text"),
        Content::Http(_) => panic!("a lighter:unit function replies with bytes"),
    }
}

#[track_caller]
fn is(result: Result<String, Problem>, code: Code) {
    match result {
        Err(problem) => assert_eq!(problem.code, code, "{problem}"),
        Ok(reply) => panic!("{code} was expected, the reply is {} bytes", reply.len()),
    }
}

async fn an_event_is_answered(stage: &Stage<'_>) {
    let hello = stage.prepare("hello", stage.images.hello, |_| {});
    let start = stage.handler.try_start(&hello.prepared).await.expect("it starts");
    assert_eq!(start > Duration::ZERO, stage.has(Trait::Start));
    assert_eq!(hello.call("world").await.unwrap().trim(), "hello, world");
    assert_eq!(hello.units(), 0, "the unit is gone after its call");
}

async fn every_call_has_fresh_memory(stage: &Stage<'_>) {
    let attack = stage.attack(|_| {});
    for _ in 0..3 {
        assert_eq!(attack.call("remember").await.unwrap(), "1");
    }
}

async fn a_unit_is_used_again_only_as_often_as_allowed(stage: &Stage<'_>) {
    let attack = stage.attack(|function| function.units.reuse_calls = 3);
    let mut replies = Vec::new();
    for _ in 0..7 {
        replies.push(attack.call("remember").await.unwrap());
    }
    assert_eq!(replies, ["1", "2", "3", "1", "2", "3", "1"]);
    assert_eq!(attack.units(), 1, "the last one waits for its next call");
    is(attack.call("unreachable").await, Code::UnitTrapped);
    assert_eq!(attack.call("remember").await.unwrap(), "1", "a unit that crashed is not used again");
    attack.prepared.sweep(Instant::now(), true);
    assert_eq!(attack.units(), 0);
}

async fn an_endless_loop_ends_at_its_cpu_limit(stage: &Stage<'_>) {
    let attack = stage.attack(|function| function.limits.cpu_ms = 50);
    let began = Instant::now();
    is(attack.call("loop").await, Code::CpuExceeded);
    assert!(began.elapsed() >= Duration::from_millis(50), "not before its time");
}

async fn an_endless_loop_ends_at_its_time_limit(stage: &Stage<'_>) {
    let attack = stage.attack(|_| {});
    is(attack.send("loop", Duration::from_millis(80), Watcher::default()).await.map(text), Code::TimeExceeded);
}

async fn a_loop_of_host_calls_ends_too(stage: &Stage<'_>) {
    let attack = stage.attack(|function| function.limits.cpu_ms = 50);
    is(attack.call("clock-loop").await, Code::CpuExceeded);
}

async fn memory_and_stack_are_bounded(stage: &Stage<'_>) {
    let attack = stage.attack(|_| {});
    is(attack.call("memory").await, Code::MemoryExceeded);
    is(attack.call("recurse").await, Code::StackExceeded);
}

async fn a_crash_is_a_problem_with_a_backtrace(stage: &Stage<'_>) {
    let dumps = stage.images.dumps;
    let attack = stage.attack(|function| function.units.dump = dumps);
    assert!(attack.prepared.dump().is_none());
    for word in ["unreachable", "out-of-bounds", "panic", "random-huge"] {
        is(attack.call(word).await, Code::UnitTrapped);
    }
    assert!(stage.log().contains("read_out_of_bounds"), "the log names the function: {}", stage.log());
    if stage.has(Trait::SourceLines) {
        assert!(stage.log().contains(stage.images.attack_source), "and the source line: {}", stage.log());
    }
    assert_eq!(attack.prepared.dump().is_some_and(|dump| !dump.is_empty()), dumps);
}

async fn a_log_flood_is_cut_and_said(stage: &Stage<'_>) {
    let attack = stage.attack(|function| function.limits.log_bytes = 1_000);
    attack.call("log-flood 1000").await.unwrap();
    let log = stage.log();
    assert!(log.len() < 2_000, "{} bytes", log.len());
    assert!(log.contains("bytes of log output dropped"), "{log}");
}

async fn a_reply_over_the_limit_is_refused(stage: &Stage<'_>) {
    let attack = stage.attack(|function| function.limits.body_bytes = 1_000);
    assert_eq!(attack.call("big-reply 1000").await.unwrap().len(), 1_000);
    is(attack.call("big-reply 1001").await, Code::ReplyTooLarge);
}

async fn failures_keep_their_meaning(stage: &Stage<'_>) {
    let attack = stage.attack(|_| {});
    is(attack.call("invalid").await, Code::UnitInvalid);
    is(attack.call("retry").await, Code::UnitRetry);
    is(attack.call("fatal").await, Code::UnitFatal);
}

async fn nothing_is_granted_by_default(stage: &Stage<'_>) {
    let counter = stage.prepare("counter", stage.images.counter, |_| {});
    let problem = counter.call("").await.unwrap_err();
    assert!(problem.detail.contains("grants.stores"), "{problem}");
}

async fn a_crash_undoes_its_writes(stage: &Stage<'_>) {
    let attack = stage.attack(|function| function.grants.stores = vec!["attack".into()]);
    is(attack.call("store-set-then-trap").await, Code::UnitTrapped);
    assert_eq!(stage.state.begin().get("attack", "key").unwrap(), None);
    assert_eq!(attack.call("store-set").await.unwrap(), "written");
    assert_eq!(stage.state.begin().get("attack", "key").unwrap(), Some(b"written".to_vec()));
}

async fn increments_at_once_all_count(stage: &Stage<'_>) {
    let counter =
        stage.prepare("counter", stage.images.counter, |function| function.grants.stores = vec!["counters".into()]);
    let calls = (0..40).map(|_| tokio::spawn(counter.send("key", LONG, Watcher::default())));
    let mut counted = 0;
    for call in calls.collect::<Vec<_>>() {
        counted += u64::from(call.await.expect("it ran").is_ok());
    }
    assert_eq!(stage.state.begin().get("counters", "key").unwrap(), Some(counted.to_string().into_bytes()));
    assert!(counted > 0);
}

async fn a_dropped_call_stops_its_unit(stage: &Stage<'_>) {
    let attack = stage.attack(|_| {});
    let running = tokio::spawn(attack.send("loop", LONG, Watcher::default()));
    wait_until(|| attack.units() > 0).await;
    running.abort();
    wait_until(|| attack.units() == 0).await;
}

async fn an_attacker_does_not_stop_its_neighbour(stage: &Stage<'_>) {
    // The loops outlast the calls on however busy a machine: they end with this check, not by themselves.
    let attack = stage.attack(|function| (function.limits.cpu_ms, function.limits.time_ms) = (600_000, 600_000));
    let hello = stage.prepare("hello", stage.images.hello, |function| {
        function.units.reuse_calls = if stage.has(Trait::QuickStart) { 1 } else { 50 };
    });
    // As every deployment does.
    stage.handler.try_start(&hello.prepared).await.expect("it starts");
    let attackers: Vec<_> = (0..8).map(|_| tokio::spawn(attack.send("loop", 10 * LONG, Watcher::default()))).collect();
    wait_until(|| attack.units() == 8).await;
    for _ in 0..100 {
        assert_eq!(hello.call("world").await.unwrap().trim(), "hello, world");
    }
    assert_eq!(attack.units(), 8, "the loops ran beside every call");
    for attacker in attackers {
        attacker.abort();
    }
    wait_until(|| attack.units() == 0).await;
}

async fn what_is_no_image_is_refused(stage: &Stage<'_>) {
    for image in [&b""[..], b"not an image", &stage.images.hello[..stage.images.hello.len() / 2]] {
        let refused = stage.class.check(image).is_err() || stage.class.compile(image).is_err();
        assert!(refused, "{} bytes", image.len());
    }
}

/// Waits for what must come; a check that hangs here has failed.
async fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}
