//! A zygote as the node sees it: a process in a jail that has loaded a function, and forks a child when it is told to.
//!
//! ```text
//!   start: spawn ─▶ settings ─▶ (map the user) ─▶ walls stand ─▶ ready
//!   fork:  "fork SLOT READ" + a socket and two pipes ─▶ the child says it is ready, and the kernel says which process it is
//!   end:   dropping it kills its process 1, and with it everything in its jail
//! ```
//! The function's code runs in it, so nothing it says or does can be trusted. The node ends it when it sends an
//! unexpected message, and when it uses CPU time that no call asked for.

use crate::allowance::Allowance;
use crate::base::Base;
use crate::building::{Jail, broken, settings, step_back};
use crate::bundle::About;
use crate::cgroup::{Bounds, Family, Group};
use crate::child::{Child, Unborn};
use crate::descriptors as fd;
use crate::jail::MESSAGE_BYTES_MAX;
use crate::keeper::Keeper;
use crate::loading::watch_loading;
use crate::process::{Namespace, Process};
use crate::slot::Slot;
use crate::{ProcessInner, pump};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, oneshot};
use tokio::task::spawn_blocking;
use unit::{Deployed, Level, Output};
use unit_host::pool::Spares;

/// How long a function may take to be loaded.
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// Children of one zygote at once; the next call waits.
const SLOTS_MAX: u32 = 64;
/// Memory of a zygote beside what the function's own limit says.
pub const BASE_BYTES: u64 = 192 << 20;
/// Children by which the memory of a family is bounded anew.
const FAMILY_STEP: u64 = 8;
/// How long a slot may take to be emptied; how often it is looked at before it is given up, for what is being closed.
const EMPTY_TIME_MAX: Duration = Duration::from_secs(5);
const EMPTY_TRIES: u32 = 20;
const EMPTY_PAUSE: Duration = Duration::from_millis(10);
/// Slots given up before the zygote is: their files are memory that nobody uses.
const GIVEN_UP_MAX: u32 = 4;
/// Children in a row that worked before their first call, after which the zygote is ended: they are all made like that.
const RESTLESS_MAX: u32 = 4;
/// How often who waits for a slot looks whether there is still a zygote.
const SLOT_LOOK_EVERY: Duration = Duration::from_millis(200);
/// Bytes of log output while a function is loaded.
const LOG_BYTES_MAX: u64 = 64 << 10;

/// What is the same in every start of a function.
pub struct Recipe {
    pub deployed: Arc<Deployed>,
    pub about: About,
    pub base: Arc<dyn Base>,
    pub code: File,
}

impl Recipe {
    /// What each unit may use: what the function's limits say, and what its base takes for itself.
    pub fn bounds(&self) -> Bounds {
        let (limits, beside) = (&self.deployed.function.limits, self.base.beside());
        let processes = u64::from(limits.processes) + u64::from(beside.processes);
        Bounds { memory_bytes: limits.memory_bytes.saturating_add(beside.memory_bytes), processes }
    }

    /// How many children are made ahead: those of the base, and those that the function keeps warm.
    pub fn spares(&self) -> Spares {
        self.base.spares().with_warm(self.deployed.function.warm())
    }

    /// How many children may live at once.
    pub fn slots(&self) -> u32 {
        self.deployed.function.limits.concurrency.saturating_add(self.spares().most()).min(SLOTS_MAX)
    }
}

pub struct Zygote {
    /// Whether it is the jail's own, and each child a program started anew.
    starts_anew: bool,
    control: Arc<AsyncFd<OwnedFd>>,
    family: Family,
    namespace: Namespace,
    keeper: Keeper,
    process: Process,
    group: Group,
    /// What it may use beside its calls, and how many children it has forked.
    allowance: Mutex<Allowance>,
    children: AtomicU64,
    /// Whether a child of it was ever ready, and whether it was told that none was.
    has_served: AtomicBool,
    has_failed: AtomicBool,
    ends: Arc<Ends>,
    memory: Mutex<FamilyMemory>,
    /// Held while the family is bounded, so that the last bound is that of the last count.
    bounding: Mutex<()>,
    slots: Vec<Slot>,
    free: Mutex<Vec<u32>>,
    /// Slots that could not be proved empty.
    given_up: AtomicU32,
    /// Children that worked before their first call.
    restless: AtomicU32,
    /// Told when a slot is free, and when there will be none any more.
    freed: Notify,
    /// Whether this system lets the node read its children's memory, as the last of them showed.
    pub can_read: AtomicBool,
}

/// What a zygote and its children may have together: what it was loaded with, and what those may use that there are.
struct FamilyMemory {
    base_bytes: u64,
    child_bytes: u64,
    children: u64,
}

impl FamilyMemory {
    const fn new(base_bytes: u64, child_bytes: u64) -> Self {
        Self { base_bytes, child_bytes, children: 0 }
    }

    /// In steps: most children that come and go change nothing.
    fn bytes(&self) -> u64 {
        let children = self.children.max(1).next_multiple_of(FAMILY_STEP);
        self.base_bytes.saturating_add(self.child_bytes.saturating_mul(children))
    }
}

/// The ends of a zygote and its children.
struct Ends {
    /// Who waits for which child to end.
    waiting: Mutex<HashMap<u32, oneshot::Sender<i32>>>,
    /// Who waits for which slot to be emptied.
    emptying: Mutex<HashMap<u32, oneshot::Sender<Emptied>>>,
    dead: AtomicBool,
    /// What the node has ended it for.
    why: OnceLock<Problem>,
    pidfd: Arc<AsyncFd<OwnedFd>>,
    deployed: Arc<Deployed>,
    output: Arc<Output>,
}

impl Zygote {
    /// Starts a jail and loads the function in it.
    ///
    /// # Errors
    /// - [`Code::JailIncomplete`]: this system refuses a protection, and the node was not told to go on.
    /// - [`Code::StartFailed`], [`Code::MemoryExceeded`], [`Code::TimeExceeded`]: the function does not load.
    pub async fn start(shared: &Arc<ProcessInner>, recipe: &Recipe) -> Result<Arc<Self>, Problem> {
        let starting = Self::start_now(shared, recipe);
        tokio::time::timeout(START_TIME_MAX, starting).await.unwrap_or_else(|_| {
            let detail = format!("the function was not loaded after {} s", START_TIME_MAX.as_secs());
            Err(Problem::new(Code::TimeExceeded, detail).with_hint("do less when the module is imported"))
        })
    }

    async fn start_now(shared: &Arc<ProcessInner>, recipe: &Recipe) -> Result<Arc<Self>, Problem> {
        let deployed = &recipe.deployed;
        let code =
            File::open(format!("/proc/self/fd/{}", recipe.code.as_raw_fd())).map_err(broken("opening the bundle"))?;
        let slots = recipe.slots();
        let settings = settings(shared, recipe, slots);
        let starts_anew = settings.anew;
        let jail = Jail::start(shared, settings, code).await?;
        let output = Output::new(deployed.log.clone(), 0, "start".into(), LOG_BYTES_MAX);
        let output = Arc::new(output);
        let [stdout, stderr] = [(jail.stdout, unit::Stream::Stdout), (jail.stderr, unit::Stream::Stderr)]
            .map(|(pipe, stream)| tokio::spawn(pump::all(pipe, output.clone(), stream)));
        shared.allow(&jail.missing)?;
        let started = tokio::select! {
            started = listen(&jail.control, &jail.group) => started,
            problem = watch_loading(|| cpu(&jail.group, &jail.process)) => Err(problem),
        };
        // What it wrote while it was loaded is in the pipes by now.
        tokio::task::yield_now().await;
        drop((stdout, stderr));
        started?;
        // Calls are as much worth as the node's own work. What loading has left running is not.
        step_back(&jail.family, &jail.process, false);
        // From now on children are born in its group.
        jail.group.bound_processes(jail.processes + u64::from(slots)).map_err(broken("bounding a zygote"))?;
        let base_bytes = BASE_BYTES.saturating_add(deployed.function.limits.scratch_bytes);
        let memory = FamilyMemory::new(base_bytes, recipe.bounds().memory_bytes);
        let (family, bytes) = (jail.family, memory.bytes());
        let bounded = spawn_blocking(move || family.bound_memory(bytes).map(|()| family)).await;
        let family = bounded.unwrap_or_else(|error| Err(io::Error::other(error)));
        let family = family.map_err(broken("bounding a zygote"))?;
        let ends = Arc::new(Ends {
            waiting: Mutex::default(),
            emptying: Mutex::default(),
            dead: AtomicBool::new(false),
            why: OnceLock::new(),
            pidfd: jail.guard.release(),
            deployed: deployed.clone(),
            output,
        });
        let control = Arc::new(jail.control);
        tokio::spawn(hear_ends(control.clone(), ends.clone()));
        let (process, group) = (jail.process, jail.group);
        let allowance = Mutex::new(Allowance::new(Instant::now(), cpu(&group, &process)));
        Ok(Arc::new(Self {
            starts_anew,
            control,
            family,
            namespace: jail.namespace,
            keeper: jail.keeper,
            process,
            allowance,
            group,
            children: AtomicU64::new(0),
            has_served: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            ends,
            memory: Mutex::new(memory),
            bounding: Mutex::default(),
            slots: jail.slots,
            free: Mutex::new((0..slots).rev().collect()),
            given_up: AtomicU32::new(0),
            restless: AtomicU32::new(0),
            freed: Notify::new(),
            can_read: AtomicBool::new(false),
        }))
    }

    /// Waits for a slot, forks a child and waits until it is ready.
    ///
    /// # Errors
    /// The zygote is no more, or the system is out of something.
    pub async fn fork(self: &Arc<Self>, shared: &Arc<ProcessInner>, bounds: &Bounds) -> Result<Child, Problem> {
        let slot = self.slot().await?;
        let (exit, exited) = oneshot::channel();
        self.ends.waiting.lock().insert(slot, exit);
        self.children.fetch_add(1, Relaxed);
        self.count_child(1).await;
        let (problem, is_given_up) = match Child::fork(shared, self, slot, exited, bounds).await {
            Ok(child) => {
                self.has_served.store(true, Relaxed);
                return Ok(child);
            }
            Err(Unborn::NotBegun(problem)) => {
                self.give_back(slot).await;
                (problem, false)
            }
            // What it has started itself may keep it from ever forking again: it goes with its last child.
            Err(Unborn::NotForked(problem)) => {
                self.give_back(slot).await;
                (problem, self.memory.lock().children == 0)
            }
            Err(Unborn::Refused(problem)) => (problem, false),
            // Whatever became of it, its slot may still be in use.
            Err(Unborn::Lost(problem)) => (problem, true),
        };
        if is_given_up && !self.is_dead() {
            fd::kill(self.ends.pidfd.get_ref());
        }
        Err(problem)
    }

    /// Whether each child is a program started anew, which loads the function itself.
    pub fn starts_anew(&self) -> bool {
        self.starts_anew
    }

    /// Where output goes that belongs to no call.
    pub fn output(&self) -> &Arc<Output> {
        &self.ends.output
    }

    pub fn deployed(&self) -> &Arc<Deployed> {
        &self.ends.deployed
    }

    /// Whether a child of it was ever ready.
    pub fn has_served(&self) -> bool {
        self.has_served.load(Relaxed)
    }

    /// That its first children failed; the first time it is asked.
    pub fn fails_first(&self) -> bool {
        !self.has_served() && !self.has_failed.swap(true, Relaxed)
    }

    /// Bounds the family by the children it has. What is over that is memory of calls that have ended, held by the
    /// module or hidden in folders: the zygote goes, and all of it with it.
    async fn count_child(self: &Arc<Self>, change: i64) {
        let has_changed = {
            let mut memory = self.memory.lock();
            let before = memory.bytes();
            memory.children = memory.children.saturating_add_signed(change);
            memory.bytes() != before
        };
        if !has_changed || self.is_dead() {
            return;
        }
        let zygote = self.clone();
        // The kernel frees what is over a new bound before it answers.
        let bounded = spawn_blocking(move || {
            let _turn = zygote.bounding.lock();
            let bytes = zygote.memory.lock().bytes();
            zygote.family.bound_memory(bytes)
        });
        if bounded.await.is_ok_and(|bounded| bounded.is_err()) {
            self.ends.end("holds memory of calls that have ended");
        }
    }

    async fn slot(&self) -> Result<u32, Problem> {
        loop {
            // Before it is looked, so that none is freed unheard.
            let freed = self.freed.notified();
            if let Some(slot) = self.free.lock().pop() {
                return Ok(slot);
            }
            let gone = || Problem::new(Code::ZygoteEnded, "the process that has loaded the function ended");
            if self.is_dead() {
                return Err(gone());
            }
            // Now and then, for one that ends by itself tells nobody.
            tokio::time::timeout(SLOT_LOOK_EVERY, freed).await.ok();
        }
    }

    /// Looks at what it has used since the last look, and ends it if that is too much. To be called every few seconds.
    pub fn look(&self, now: Instant) {
        let used = cpu(&self.group, &self.process);
        if self.is_dead() || self.allowance.lock().suffices(now, used, self.children.load(Relaxed)) {
            return;
        }
        self.ends.end("uses CPU time that no call asked for");
    }

    /// A child of it has used CPU time while it waited, and is ended.
    pub fn has_restless_child(&self, is_new: bool) {
        self.ends.output.note(Level::Warn, "a unit was ended: it used CPU time while it waited for a call");
        if is_new && self.restless.fetch_add(1, Relaxed) + 1 >= RESTLESS_MAX && !self.is_dead() {
            self.ends.end("makes units that use CPU time before they have a call");
        }
    }

    /// A new child of it has waited for a call and done nothing: those before it were made like that by chance.
    pub fn has_resting_child(&self) {
        self.restless.store(0, Relaxed);
    }

    /// What the node has ended it for, if it has.
    pub fn why_ended(&self) -> Option<&Problem> {
        self.ends.why.get()
    }

    /// Tells the zygote to fork, and gives it what the child is to have.
    pub async fn send(&self, slot: u32, fds: [BorrowedFd<'_>; 3]) -> io::Result<()> {
        let message = format!("fork {slot} {}", u8::from(self.can_read.load(SeqCst)));
        self.control.async_io(Interest::WRITABLE, |control| fd::send(control, message.as_bytes(), &fds)).await
    }

    pub fn family(&self) -> &Family {
        &self.family
    }

    pub fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// In which all its processes are.
    pub fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// The child of this slot and all it has started are gone, or its first process alone: has its folder emptied, and
    /// looks whether it is. What is not proved empty is never used again, and a zygote without slots is ended.
    pub async fn clear(self: &Arc<Self>, slot: u32, are_all_gone: bool) {
        // Once more: another call of the function may have touched the folder meanwhile, for their user is the same.
        // Not where the zygote has said nothing: it would answer twice.
        let is_free = match self.is_emptied(slot, are_all_gone).await {
            Some(false) => self.is_emptied(slot, are_all_gone).await == Some(true),
            first => first == Some(true),
        };
        if is_free {
            self.free.lock().push(slot);
        } else {
            self.give_up(slot, "a scratch folder could not be emptied");
        }
        self.count_child(-1).await;
        self.freed.notify_one();
    }

    /// A slot that nothing was done with is free again.
    async fn give_back(self: &Arc<Self>, slot: u32) {
        self.ends.waiting.lock().remove(&slot);
        self.free.lock().push(slot);
        self.count_child(-1).await;
        self.freed.notify_one();
    }

    /// None where the zygote has not answered.
    async fn is_emptied(&self, slot: u32, are_all_gone: bool) -> Option<bool> {
        let is_proved = match self.empty(slot, !are_all_gone).await? {
            Emptied::Whole => true,
            Emptied::ButForProcesses => are_all_gone,
        };
        let folder = &self.slots[slot as usize];
        // What was mapped or is being closed takes a moment to go.
        for _ in 0..EMPTY_TRIES {
            if !is_proved || folder.is_empty() {
                return Some(is_proved);
            }
            tokio::time::sleep(EMPTY_PAUSE).await;
        }
        Some(false)
    }

    /// A slot is not used again for now. Where that are too many, there is another zygote, with slots of its own.
    pub fn give_up(&self, slot: u32, why: &str) {
        if self.is_dead() {
            return;
        }
        let given_up = self.given_up.fetch_add(1, Relaxed) + 1;
        let function = self.ends.deployed.name.as_str();
        tracing::warn!(target: "lighter::jails", function, slot, "{why}; its slot is not used again");
        if given_up >= GIVEN_UP_MAX.min(self.slots.len() as u32) {
            self.ends.end("has too many scratch folders that cannot be used again");
        }
    }

    /// One that was given up can be used again after all, once it is [cleared](Self::clear).
    pub fn take_back(&self) {
        self.given_up.fetch_sub(1, Relaxed);
    }

    async fn empty(&self, slot: u32, alone: bool) -> Option<Emptied> {
        let (sender, emptied) = oneshot::channel();
        self.ends.emptying.lock().insert(slot, sender);
        let message = format!("empty {slot} {}", u8::from(alone));
        let asked = async {
            self.control
                .async_io(Interest::WRITABLE, |control| fd::send(control, message.as_bytes(), &[]))
                .await
                .ok()?;
            emptied.await.ok()
        };
        tokio::time::timeout(EMPTY_TIME_MAX, asked).await.ok()?
    }

    pub fn is_dead(&self) -> bool {
        self.ends.dead.load(SeqCst)
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        fd::kill(self.ends.pidfd.get_ref());
    }
}

/// CPU time of all its processes but its children, or of its first one where they are not counted together.
fn cpu(group: &Group, process: &Process) -> Duration {
    group.cpu().or_else(|| process.cpu()).unwrap_or_default()
}

/// What a zygote says of a slot.
enum Emptied {
    Whole,
    /// Something that its child has started may go on.
    ButForProcesses,
}

impl Ends {
    /// `exited SLOT STATUS`, `emptied SLOT` or `kept SLOT`, to who waits for it; none if nobody does.
    fn hand_on(&self, message: &[u8]) -> Option<()> {
        let mut words = std::str::from_utf8(message).ok()?.split(' ');
        let (verb, slot) = (words.next()?, words.next()?.parse::<u32>().ok()?);
        match (verb, words.next().map(str::parse::<i32>), words.next()) {
            ("exited", Some(Ok(status)), None) => self.waiting.lock().remove(&slot)?.send(status).ok(),
            ("emptied", None, None) => self.emptying.lock().remove(&slot)?.send(Emptied::Whole).ok(),
            ("kept", None, None) => self.emptying.lock().remove(&slot)?.send(Emptied::ButForProcesses).ok(),
            _ => return None,
        };
        Some(())
    }

    /// Ends it for what it does, and says so in the logs of the function and of the node.
    fn end(&self, what: &str) {
        let problem = Problem::new(Code::ZygoteEnded, format!("the process that has loaded the function {what}"));
        if self.why.set(problem.clone()).is_err() {
            return;
        }
        self.dead.store(true, SeqCst);
        fd::kill(self.pidfd.get_ref());
        self.emptying.lock().clear();
        self.output.note(Level::Error, &problem.to_string());
        let function = self.deployed.name.as_str();
        tracing::warn!(target: "lighter::jails", function, code = %problem.code, "a zygote was ended: {}", problem.detail);
    }
}

async fn hear(control: &AsyncFd<OwnedFd>) -> io::Result<Vec<u8>> {
    let mut room = vec![0; MESSAGE_BYTES_MAX];
    let got = control.async_io(Interest::READABLE, |control| fd::receive(control, &mut room)).await?;
    room.truncate(got);
    Ok(room)
}

/// Waits until the function is loaded.
async fn listen(control: &AsyncFd<OwnedFd>, group: &Group) -> Result<(), Problem> {
    let message = hear(control).await.map_err(broken("hearing a zygote"))?;
    let text = String::from_utf8_lossy(&message);
    if text == "ready" {
        return Ok(());
    }
    if group.memory_exceeded() || text.starts_with("failed memory") {
        return Err(Problem::new(Code::MemoryExceeded, "the function ran out of memory while it was loaded"));
    }
    let why = match text.split_once('\n') {
        Some((_, why)) => why,
        None if message.is_empty() => "its process ended",
        None => "its process said what makes no sense",
    };
    let problem = Problem::new(Code::StartFailed, format!("the function cannot be loaded: {}", unit::cut(why, 2_000)));
    Err(problem.with_hint("`lighter logs` has the traceback"))
}

/// Hands on which child has ended and how, until the zygote is gone; then all of them have. A zygote that says anything
/// else is ended: listening to it would cost the node time that no limit counts.
async fn hear_ends(control: Arc<AsyncFd<OwnedFd>>, ends: Arc<Ends>) {
    while let Ok(message) = hear(&control).await {
        if message.is_empty() {
            break;
        }
        if ends.hand_on(&message).is_none() {
            ends.end("says what nobody waits for");
            break;
        }
    }
    ends.dead.store(true, SeqCst);
    ends.waiting.lock().clear();
    ends.emptying.lock().clear();
}
