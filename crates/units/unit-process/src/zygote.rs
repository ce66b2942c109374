//! A zygote as the node sees it: a process in a jail that has loaded a function, and forks a child when it is told to.
//!
//! ```text
//!   start: spawn ─▶ settings ─▶ (map the user) ─▶ walls stand ─▶ ready
//!   fork:  "fork SLOT READ" + a socket and two pipes ─▶ the child says it is ready, and the kernel says which process it is
//!   end:   dropping it kills its process 1, and with it everything in its jail
//! ```
//! The function's code runs in it, so whatever it says or does is the function's word. It is ended when it says what nobody
//! waits for, and when it uses CPU time that no call asked for.

use crate::allowance::Allowance;
use crate::base::Base;
use crate::bundle::About;
use crate::cgroup::{Bounds, Family, Group};
use crate::child::Child;
use crate::descriptors as fd;
use crate::jail::{self, MESSAGE_BYTES_MAX, Missing, Report, SDK, Settings};
use crate::spawn::{Inherited, Started};
use crate::{Shared, pump};
use parking_lot::Mutex;
use problem::{Code, Problem};
use serde_json::json;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use unit::{Deployed, Level};
use unit_host::Output;

/// How long a function may take to be loaded.
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// Children of one zygote at once; the next call waits.
const SLOTS_MAX: u32 = 64;
/// Children beyond those that calls need: spares.
pub const SPARES_MAX: u32 = 8;
/// Memory of a zygote beside what the function's own limit says.
const BASE_BYTES: u64 = 192 << 20;
/// Processes and threads of a zygote, children that were just forked among them.
const PROCESSES: u64 = 128;
/// Bytes of log output while a function is loaded.
const LOG_BYTES_MAX: u64 = 64 << 10;
/// Users of jails, where the node is root: far from those that anybody else has.
const FIRST_USER: u32 = 0x7000_0000;
const USERS: u32 = 0x0010_0000;

/// What helps where there can be no jail at all.
const NAMESPACES_HINT: &str = "run the node as root, or allow user namespaces (kernel.unprivileged_userns_clone, user.max_user_namespaces, AppArmor)";

static NEXT_USER: AtomicU32 = AtomicU32::new(0);

/// How many children may live at once.
pub fn slots(deployed: &Deployed) -> u32 {
    deployed.function.limits.concurrency.saturating_add(SPARES_MAX).min(SLOTS_MAX)
}

/// What is the same in every start of a function.
pub struct Recipe {
    pub deployed: Arc<Deployed>,
    pub about: About,
    pub base: Arc<Base>,
    pub code: File,
}

pub struct Zygote {
    control: Arc<AsyncFd<OwnedFd>>,
    family: Family,
    /// Its process, by the number it has here.
    process: u32,
    group: Group,
    /// What it may use beside its calls, and how many children it has forked.
    allowance: Mutex<Allowance>,
    children: AtomicU64,
    ends: Arc<Ends>,
    free: Mutex<Vec<u32>>,
    /// Whether this system lets the node read its children's memory, as the last of them showed.
    pub can_read: AtomicBool,
}

/// The ends of a zygote and its children.
struct Ends {
    /// Who waits for which child to end.
    waiting: Mutex<HashMap<u32, oneshot::Sender<i32>>>,
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
    pub async fn start(shared: &Arc<Shared>, recipe: &Recipe) -> Result<Arc<Self>, Problem> {
        let starting = Self::start_now(shared, recipe);
        tokio::time::timeout(START_TIME_MAX, starting).await.unwrap_or_else(|_| {
            let detail = format!("the function was not loaded after {} s", START_TIME_MAX.as_secs());
            Err(Problem::new(Code::TimeExceeded, detail).with_hint("do less when the module is imported"))
        })
    }

    async fn start_now(shared: &Arc<Shared>, recipe: &Recipe) -> Result<Arc<Self>, Problem> {
        let deployed = &recipe.deployed;
        let code =
            File::open(format!("/proc/self/fd/{}", recipe.code.as_raw_fd())).map_err(broken("opening the bundle"))?;
        let slots = slots(deployed);
        let settings = settings(shared, recipe, slots);
        let jail = Jail::start(shared, settings, code).await?;
        let output = Output::new(deployed.log.clone(), 0, "start".into(), LOG_BYTES_MAX);
        let output = Arc::new(output);
        let [stdout, stderr] = [(jail.stdout, unit::Stream::Stdout), (jail.stderr, unit::Stream::Stderr)]
            .map(|(pipe, stream)| tokio::spawn(pump::all(pipe, output.clone(), stream)));
        shared.allow(&jail.missing)?;
        let started = listen(&jail.control, &jail.group).await;
        // What it wrote while it was loaded is in the pipes by now.
        tokio::task::yield_now().await;
        drop((stdout, stderr));
        started?;
        let ends = Arc::new(Ends {
            waiting: Mutex::default(),
            dead: AtomicBool::new(false),
            why: OnceLock::new(),
            pidfd: jail.guard.release(),
            deployed: deployed.clone(),
            output,
        });
        let control = Arc::new(jail.control);
        tokio::spawn(hear_exits(control.clone(), ends.clone()));
        let (process, group) = (jail.process, jail.group);
        Ok(Arc::new(Self {
            control,
            family: jail.family,
            process,
            allowance: Mutex::new(Allowance::new(Instant::now(), cpu(&group, process))),
            group,
            children: AtomicU64::new(0),
            ends,
            free: Mutex::new((0..slots).rev().collect()),
            can_read: AtomicBool::new(false),
        }))
    }

    /// Forks a child and waits until it is ready; none while there is no slot for one.
    ///
    /// # Errors
    /// The zygote is no more, or the system is out of something.
    pub async fn fork(self: &Arc<Self>, shared: &Arc<Shared>, bounds: &Bounds) -> Result<Option<Child>, Problem> {
        let Some(slot) = self.free.lock().pop() else { return Ok(None) };
        let (exit, exited) = oneshot::channel();
        self.ends.waiting.lock().insert(slot, exit);
        self.children.fetch_add(1, Relaxed);
        let forked = Child::fork(shared, self, slot, exited, bounds).await;
        if forked.is_err() && !self.is_dead() {
            // Whatever became of it, its slot may still be in use: the whole zygote is given up.
            fd::kill(self.ends.pidfd.get_ref());
        }
        forked.map(Some)
    }

    /// Looks at what it has used since the last look, and ends it if that is too much. To be called every few seconds.
    pub fn look(&self, now: Instant) {
        let used = cpu(&self.group, self.process);
        if self.is_dead() || self.allowance.lock().suffices(now, used, self.children.load(Relaxed)) {
            return;
        }
        self.ends.end("uses CPU time that no call asked for");
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

    /// The child of this slot is gone, and its scratch folder is empty.
    pub fn free(&self, slot: u32) {
        self.free.lock().push(slot);
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
fn cpu(group: &Group, process: u32) -> Duration {
    group.cpu().or_else(|| fd::process_cpu_ns(process).map(Duration::from_nanos)).unwrap_or_default()
}

impl Ends {
    /// Ends it for what it does, and says so in the logs of the function and of the node.
    fn end(&self, what: &str) {
        let problem = Problem::new(Code::ZygoteEnded, format!("the process that has loaded the function {what}"));
        if self.why.set(problem.clone()).is_err() {
            return;
        }
        self.dead.store(true, SeqCst);
        fd::kill(self.pidfd.get_ref());
        self.output.note(Level::Error, &problem.to_string());
        let function = self.deployed.name.as_str();
        tracing::warn!(target: "lighter::jails", function, code = %problem.code, "a zygote was ended: {}", problem.detail);
    }
}

/// Kills and reaps process 1 of a jail that is not to be, or hands it on.
struct Guard(Option<Arc<AsyncFd<OwnedFd>>>);

impl Guard {
    /// Kills on drop from now on; another task takes leave of it when it has ended.
    fn new(pidfd: OwnedFd) -> io::Result<Self> {
        let pidfd = Arc::new(registered(pidfd)?);
        let ended = pidfd.clone();
        tokio::spawn(async move {
            if ended.readable().await.is_ok() {
                fd::reap(ended.get_ref());
            }
        });
        Ok(Self(Some(pidfd)))
    }

    fn release(mut self) -> Arc<AsyncFd<OwnedFd>> {
        self.0.take().expect("released once")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(pidfd) = &self.0 {
            fd::kill(pidfd.get_ref());
        }
    }
}

/// A jail whose walls stand.
struct Jail {
    process: u32,
    control: AsyncFd<OwnedFd>,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
    guard: Guard,
    family: Family,
    group: Group,
    missing: Vec<Missing>,
}

impl Jail {
    async fn start(shared: &Arc<Shared>, mut settings: Settings, code: File) -> Result<Self, Problem> {
        let number = shared.next_number();
        let family = shared.groups().0.family(&format!("zygote-{number}")).map_err(broken("making a control group"))?;
        let bounds = Bounds { memory_bytes: settings_memory(&settings), processes: PROCESSES };
        let group = family.member("zygote", &bounds).map_err(broken("making a control group"))?;
        let (ours, control) = fd::packet_pair().map_err(broken("making a socket"))?;
        let (stdout, out) = fd::pipe().map_err(broken("making a pipe"))?;
        let (stderr, err) = fd::pipe().map_err(broken("making a pipe"))?;
        let inherited = Inherited { control, stdout: out, stderr: err, code: code.into() };
        let Started { process, pidfd, in_user_namespace } = shared.spawner.spawn(inherited).await.map_err(|error| {
            let detail = format!("this system refuses the namespaces of a jail: {error}");
            Problem::new(Code::JailIncomplete, detail).with_hint(NAMESPACES_HINT)
        })?;
        let guard = Guard::new(pidfd).map_err(broken("watching a jail"))?;
        let joined = tokio::task::spawn_blocking(move || group.add(process).map(|()| group)).await;
        let group = joined
            .map_err(|error| broken("joining a control group")(io::Error::other(error)))?
            .map_err(broken("joining a control group"))?;
        let outer_user =
            if in_user_namespace { None } else { Some(FIRST_USER + NEXT_USER.fetch_add(1, SeqCst) % USERS) };
        if in_user_namespace {
            map_user(process, None).map_err(broken("mapping the jail's user"))?;
        }
        settings.outer_user = outer_user;
        for end in [&ours, &stdout, &stderr] {
            fd::set_nonblocking(end).map_err(broken("a descriptor of a jail"))?;
        }
        let control = registered(ours).map_err(broken("a socket of a jail"))?;
        let message = serde_json::to_vec(&settings).expect("texts and numbers");
        fd::send(control.get_ref(), &message, &[]).map_err(broken("telling a jail its settings"))?;
        let missing = loop {
            match report(&control).await? {
                Report::Map => {
                    map_user(process, outer_user).map_err(broken("mapping the jail's user"))?;
                    fd::send(control.get_ref(), b"null", &[]).map_err(broken("telling a jail to go on"))?;
                }
                Report::Stands { missing } => break missing,
                Report::Failed { step, why } => {
                    let detail = format!("a jail cannot be built here, {step}: {why}");
                    return Err(Problem::new(Code::JailIncomplete, detail).with_hint(NAMESPACES_HINT));
                }
            }
        };
        let receiver = |pipe| pipe::Receiver::from_owned_fd(pipe).map_err(broken("a pipe of a jail"));
        let (stdout, stderr) = (receiver(stdout)?, receiver(stderr)?);
        Ok(Self { process, control, stdout, stderr, guard, family, group, missing })
    }
}

/// Which walls this system refuses, found out by building some for nobody.
///
/// # Errors
/// There can be no jail at all.
pub async fn probe(shared: &Arc<Shared>) -> Result<Vec<Missing>, Problem> {
    let settings = Settings {
        staging: shared.bases.staging(),
        binds: Vec::new(),
        slots: 1,
        scratch_bytes: 1 << 20,
        processes: PROCESSES,
        outer_user: None,
        program: "/".into(),
        arguments: Vec::new(),
        environment: Vec::new(),
        probe: true,
    };
    let nothing = File::open("/dev/null").map_err(broken("opening /dev/null"))?;
    Jail::start(shared, settings, nothing).await.map(|jail| jail.missing)
}

fn settings(shared: &Shared, recipe: &Recipe, slots: u32) -> Settings {
    let Recipe { deployed, about, base, .. } = recipe;
    let limits = &deployed.function.limits;
    let text = |path: &std::path::Path| path.display().to_string();
    let paths: Vec<String> =
        std::iter::once(SDK.to_owned()).chain(base.description.paths.iter().map(|path| text(path))).collect();
    let paths = serde_json::to_string(&paths).expect("texts");
    let script = format!("import sys; sys.path[:0] = {paths}; from lighterage.unit.zygote import main; main()");
    let memory_bytes = (!shared.counts_memory()).then_some(limits.memory_bytes);
    let told = json!({
        "contract": about.contract.as_str(),
        "entry": about.entry,
        "calls": deployed.function.units.reuse_calls,
        "memory_bytes": memory_bytes,
    });
    let fixed = [
        ("LIGHTERAGE_UNIT", told.to_string()),
        ("HOME", jail::SCRATCH.to_owned()),
        ("LANG", "C.UTF-8".into()),
        ("PATH", String::new()),
    ];
    let environment = deployed.function.environment.iter().map(|(name, value)| (name.clone(), value.clone()));
    let environment = environment.chain(fixed.map(|(name, value)| (name.to_owned(), value))).collect();
    let arguments = ["-I", "-S", "-B", "-X", "utf8", "-W", "ignore::DeprecationWarning:lighterage", "-c", &script];
    Settings {
        staging: shared.bases.staging(),
        binds: base.binds.clone(),
        slots,
        scratch_bytes: limits.scratch_bytes,
        processes: PROCESSES + u64::from(slots) * u64::from(limits.processes),
        outer_user: None,
        program: base.description.executable.clone(),
        arguments: arguments.map(str::to_owned).to_vec(),
        environment,
        probe: false,
    }
}

fn settings_memory(settings: &Settings) -> u64 {
    BASE_BYTES + settings.scratch_bytes
}

/// Writes which user of this machine the jail's own user is; none: the node's own.
fn map_user(process: u32, outer: Option<u32>) -> io::Result<()> {
    let file = |name: &str| format!("/proc/{process}/{name}");
    let (user, group) = match outer {
        Some(outer) => (outer, outer),
        None => {
            fs::write(file("setgroups"), "deny")?;
            let status = fs::metadata(file(""))?;
            use std::os::unix::fs::MetadataExt;
            (status.uid(), status.gid())
        }
    };
    fs::write(file("uid_map"), format!("{} {user} 1", jail::USER))?;
    fs::write(file("gid_map"), format!("{} {group} 1", jail::USER))
}

async fn hear(control: &AsyncFd<OwnedFd>) -> io::Result<Vec<u8>> {
    let mut room = vec![0; MESSAGE_BYTES_MAX];
    let got = control.async_io(Interest::READABLE, |control| fd::receive(control, &mut room)).await?;
    room.truncate(got);
    Ok(room)
}

async fn report(control: &AsyncFd<OwnedFd>) -> Result<Report, Problem> {
    let message = hear(control).await.map_err(broken("hearing a jail"))?;
    serde_json::from_slice(&message).map_err(|_| {
        let detail = if message.is_empty() { "it ended before its walls stood" } else { "it said what makes no sense" };
        Problem::new(Code::JailIncomplete, format!("a jail cannot be built here: {detail}"))
    })
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
    let problem =
        Problem::new(Code::StartFailed, format!("the function cannot be loaded: {}", unit_host::cut(why, 2_000)));
    Err(problem.with_hint("`lighter logs` has the traceback"))
}

/// Hands on which child has ended and how, until the zygote is gone; then all of them have. A zygote that says anything
/// else is ended: listening to it would cost the node time that no limit counts.
async fn hear_exits(control: Arc<AsyncFd<OwnedFd>>, ends: Arc<Ends>) {
    while let Ok(message) = hear(&control).await {
        if message.is_empty() {
            break;
        }
        match exited(&message).and_then(|(slot, status)| Some((ends.waiting.lock().remove(&slot)?, status))) {
            Some((waiting, status)) => _ = waiting.send(status),
            None => {
                ends.end("says what nobody waits for");
                break;
            }
        }
    }
    ends.dead.store(true, SeqCst);
    ends.waiting.lock().clear();
}

/// Slot and status of `exited SLOT STATUS`.
fn exited(message: &[u8]) -> Option<(u32, i32)> {
    let mut words = std::str::from_utf8(message).ok()?.strip_prefix("exited ")?.split(' ');
    let said = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some(said)
}

fn registered(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: it owns its descriptor, and stays the same descriptor until it is dropped with its registration.
    #[expect(unsafe_code, reason = "telling the runtime of a descriptor that is no socket or pipe of its own")]
    let registered = unsafe { AsyncFd::register(descriptor) };
    registered.map_err(|error| io::Error::other(error.to_string()))
}

fn broken(what: &'static str) -> impl Fn(io::Error) -> Problem {
    move |error| Problem::new(Code::Internal, format!("{what}: {error}"))
}
