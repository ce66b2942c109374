//! Builds a jail around a zygote, as the node does it: its control group, its namespaces, its user, its walls.

use crate::ProcessInner;
use crate::base::Assignment;
use crate::cgroup::{Bounds, Family, Group};
use crate::child::NICE;
use crate::descriptors::{self as fd, Sender};
use crate::jail::{self, MESSAGE_BYTES_MAX, Missing, Report, Settings};
use crate::keeper::Keeper;
use crate::process::{Namespace, Process};
use crate::slot::Slot;
use crate::spawn::{Inherited, Started};
use crate::zygote::{BASE_BYTES, Recipe};
use problem::{Code, Problem};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::task::spawn_blocking;

/// Processes and threads that a jail needs beside what the function's own limit says, and beside one for each
/// processor, as libraries start them: the keeper, the zygote, and room for a helper or two.
const PROCESSES: u64 = 8;
/// What helps where there can be no jail at all.
const NAMESPACES_HINT: &str = "run the node as root, or allow user namespaces (kernel.unprivileged_userns_clone, \
    user.max_user_namespaces, AppArmor)";

/// Kills and reaps process 1 of a jail that is not to be, or hands it on.
pub struct Guard(Option<Arc<AsyncFd<OwnedFd>>>);

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

    pub fn release(mut self) -> Arc<AsyncFd<OwnedFd>> {
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
pub struct Jail {
    pub process: Process,
    pub processes: u64,
    pub slots: Vec<Slot>,
    pub namespace: Namespace,
    pub keeper: Keeper,
    pub control: AsyncFd<OwnedFd>,
    pub stdout: pipe::Receiver,
    pub stderr: pipe::Receiver,
    pub guard: Guard,
    pub family: Family,
    pub group: Group,
    pub missing: Vec<Missing>,
}

impl Jail {
    pub async fn start(shared: &Arc<ProcessInner>, mut settings: Settings, code: File) -> Result<Self, Problem> {
        let number = shared.next_number();
        let processes = settings.loading_processes;
        let bounds = Bounds { memory_bytes: settings_memory(&settings), processes };
        let making = spawn_blocking({
            let shared = shared.clone();
            move || {
                let family = shared.groups().0.family(&format!("zygote-{number}"))?;
                let group = family.member("zygote", &bounds)?;
                Ok((family, group))
            }
        });
        let made = making.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let (family, group) = made.map_err(broken("making a control group"))?;
        let (ours, control) = fd::packet_pair().map_err(broken("making a socket"))?;
        let (stdout, out) = fd::pipe().map_err(broken("making a pipe"))?;
        let (stderr, err) = fd::pipe().map_err(broken("making a pipe"))?;
        let (keeper, kept) = fd::packet_pair().map_err(broken("making a socket"))?;
        let inherited = Inherited { control, stdout: out, stderr: err, code: code.into(), keeper: kept };
        let started = shared.spawner.spawn(inherited).await;
        let Started { process, pidfd, in_user_namespace } = started.map_err(|error| not_started(&error))?;
        let guard = Guard::new(pidfd).map_err(broken("watching a jail"))?;
        let namespace = Namespace::of(process).map_err(broken("looking at a jail"))?;
        let joined = spawn_blocking(move || group.add(process).map(|()| group)).await;
        let group = joined
            .map_err(|error| broken("joining a control group")(io::Error::other(error)))?
            .map_err(broken("joining a control group"))?;
        let outer_user = (!in_user_namespace).then(|| shared.users.next());
        if in_user_namespace {
            map_user(process, None).map_err(broken("mapping the jail's user"))?;
        }
        settings.outer_user = outer_user;
        for end in [&ours, &stdout, &stderr, &keeper] {
            fd::set_nonblocking(end).map_err(broken("a descriptor of a jail"))?;
        }
        fd::ask_for_senders(&ours, true).map_err(broken("a socket of a jail"))?;
        let control = registered(ours).map_err(broken("a socket of a jail"))?;
        let keeper = Keeper::new(registered(keeper).map_err(broken("a socket of a jail"))?);
        let (missing, sender) = raise_walls(&control, &settings, process).await?;
        // It waits, and is not the interpreter yet: what it says is not a unit's word.
        let process = Process::of_sender(sender, namespace).map_err(broken("looking at a zygote"))?;
        let slots = (0..settings.slots).map(|slot| Slot::open(process.number(), slot));
        let slots = slots.collect::<io::Result<_>>().map_err(broken("looking at a scratch folder"))?;
        let receiver = |pipe| pipe::Receiver::from_owned_fd(pipe).map_err(broken("a pipe of a jail"));
        let (stdout, stderr) = (receiver(stdout)?, receiver(stderr)?);
        let jail = Self {
            process,
            processes,
            slots,
            namespace,
            keeper,
            control,
            stdout,
            stderr,
            guard,
            family,
            group,
            missing,
        };
        step_back(&jail.family, &jail.process, true);
        fd::send(jail.control.get_ref(), b"null", &[]).map_err(broken("telling a jail to go on"))?;
        Ok(jail)
    }
}

/// Why there is no process for a jail: the system has too little of something now, or it refuses its namespaces.
fn not_started(error: &io::Error) -> Problem {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => {
            Problem::new(Code::NodeFull, format!("no room for another jail: {error}"))
        }
        _ => {
            let detail = format!("this system refuses the namespaces of a jail: {error}");
            Problem::new(Code::JailIncomplete, detail).with_hint(NAMESPACES_HINT)
        }
    }
}

/// Tells a jail its settings, and waits until its walls stand: which ones this system refuses, and who says so.
async fn raise_walls(
    control: &AsyncFd<OwnedFd>,
    settings: &Settings,
    process: u32,
) -> Result<(Vec<Missing>, Option<Sender>), Problem> {
    fd::send(control.get_ref(), &message(settings)?, &[]).map_err(broken("telling a jail its settings"))?;
    loop {
        let (said, sender) = report(control).await?;
        match said {
            Report::Map => {
                map_user(process, settings.outer_user).map_err(broken("mapping the jail's user"))?;
                fd::send(control.get_ref(), b"null", &[]).map_err(broken("telling a jail to go on"))?;
            }
            Report::Stands { missing } => {
                fd::ask_for_senders(control.get_ref(), false).map_err(broken("a socket of a jail"))?;
                return Ok((missing, sender));
            }
            Report::Failed { step, why } => {
                let detail = format!("a jail cannot be built here, {step}: {why}");
                return Err(Problem::new(Code::JailIncomplete, detail).with_hint(NAMESPACES_HINT));
            }
        }
    }
}

/// Lets the node and calls go first while the function is loaded, whatever that starts, or no longer.
pub fn step_back(family: &Family, process: &Process, wanted: bool) {
    family.weigh(wanted);
    if fd::can_raise_priority() {
        process.set_nice_alone(if wanted { NICE } else { 0 });
    }
}

/// Which walls this system refuses, found out by building some for nobody.
///
/// # Errors
/// There can be no jail at all.
pub async fn probe(shared: &Arc<ProcessInner>) -> Result<Vec<Missing>, Problem> {
    let settings = Settings {
        staging: shared.bases.staging(),
        binds: Vec::new(),
        slots: 1,
        scratch_bytes: 1 << 20,
        loading_processes: PROCESSES,
        processes: PROCESSES,
        outer_user: None,
        anew: false,
        program: "/".into(),
        arguments: Vec::new(),
        environment: Vec::new(),
        probe: true,
    };
    let nothing = File::open("/dev/null").map_err(broken("opening /dev/null"))?;
    Jail::start(shared, settings, nothing).await.map(|jail| jail.missing)
}

/// Whether a jail for this function can be told what it needs to know.
///
/// # Errors
/// [`Code::ManifestValue`]: it has too large an environment.
pub fn check(shared: &ProcessInner, recipe: &Recipe) -> Result<(), Problem> {
    // With as long a number of a user as there may be.
    let settings = Settings { outer_user: Some(u32::MAX), ..settings(shared, recipe, recipe.slots()) };
    message(&settings).map(drop)
}

/// The settings as a jail hears them: in one message.
fn message(settings: &Settings) -> Result<Vec<u8>, Problem> {
    let message = serde_json::to_vec(settings).expect("texts and numbers");
    if message.len() > MESSAGE_BYTES_MAX {
        let (bytes, most) = (message.len(), MESSAGE_BYTES_MAX);
        let detail = format!("its environment, with what its base adds, has {bytes} bytes, the limit is {most}");
        let hint = "shorten `environment`; what is long can stand in `config`";
        return Err(Problem::new(Code::ManifestValue, detail).with_hint(hint));
    }
    Ok(message)
}

pub fn settings(shared: &ProcessInner, recipe: &Recipe, slots: u32) -> Settings {
    let Recipe { deployed, about, base, .. } = recipe;
    let function = &deployed.function;
    let limits = &function.limits;
    let each = u64::from(limits.processes + base.beside().processes);
    let loading_processes = PROCESSES + each + u64::from(crate::attempt::cores());
    let memory_bytes = (!shared.counts_memory()).then_some(limits.memory_bytes);
    let program = base.program(&Assignment { about, function, memory_bytes });
    let fixed = [("HOME", jail::SCRATCH), ("LANG", "C.UTF-8"), ("PATH", "")];
    let fixed = fixed.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let own = function.environment.iter().map(|(name, value)| (name.clone(), value.clone()));
    Settings {
        staging: shared.bases.staging(),
        binds: base.binds().to_vec(),
        slots,
        scratch_bytes: limits.scratch_bytes,
        loading_processes,
        // Slots that are about to be left, and those that are about to be used.
        processes: loading_processes + 2 * u64::from(slots) * each,
        outer_user: None,
        anew: program.anew,
        program: program.path,
        arguments: program.arguments,
        environment: own.chain(program.environment).chain(fixed).collect(),
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

/// What a jail that is being built says, and which of its processes does.
async fn report(control: &AsyncFd<OwnedFd>) -> Result<(Report, Option<Sender>), Problem> {
    let mut message = vec![0; MESSAGE_BYTES_MAX];
    let receive = |control: &OwnedFd| fd::receive_beside(control, &mut message);
    let received = control.async_io(Interest::READABLE, receive).await.map_err(broken("hearing a jail"))?;
    message.truncate(received.bytes);
    let said = serde_json::from_slice(&message).map(|report| (report, received.sender));
    said.map_err(|_| {
        let detail = if message.is_empty() { "it ended before its walls stood" } else { "it said what makes no sense" };
        Problem::new(Code::JailIncomplete, format!("a jail cannot be built here: {detail}"))
    })
}

fn registered(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: it owns its descriptor, and stays the same descriptor until it is dropped with its registration.
    #[expect(unsafe_code, reason = "telling the runtime of a descriptor that is no socket or pipe of its own")]
    let registered = unsafe { AsyncFd::register(descriptor) };
    registered.map_err(|error| io::Error::other(error.to_string()))
}

pub fn broken(what: &'static str) -> impl Fn(io::Error) -> Problem {
    move |error| Problem::new(Code::Internal, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system that was full for a moment was said to lack what a setting of its kernel gives.
    #[test]
    fn a_full_system_is_told_from_one_that_refuses_namespaces() {
        let told = |number| not_started(&io::Error::from_raw_os_error(number));
        for full in [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENFILE] {
            let problem = told(full);
            assert!(problem.code == Code::NodeFull && !problem.hint.contains("namespaces"), "{problem}");
        }
        // There may be no more namespaces at all, or none for this user.
        for refused in [libc::EPERM, libc::ENOSPC] {
            let problem = told(refused);
            assert!(problem.code == Code::JailIncomplete && problem.hint.contains("namespaces"), "{problem}");
        }
    }

    /// A jail heard the beginning of a longer message, and said that it made no sense.
    #[test]
    fn an_environment_that_no_jail_can_be_told_is_refused() {
        let with = |bytes: usize| Settings {
            staging: "/root".into(),
            binds: Vec::new(),
            slots: 1,
            scratch_bytes: 1,
            loading_processes: 1,
            processes: 1,
            outer_user: None,
            anew: false,
            program: "/python".into(),
            arguments: Vec::new(),
            environment: vec![("NAME".to_owned(), "x".repeat(bytes))],
            probe: false,
        };
        let beside = message(&with(0)).unwrap().len();
        assert_eq!(message(&with(MESSAGE_BYTES_MAX - beside)).unwrap().len(), MESSAGE_BYTES_MAX);
        let problem = message(&with(MESSAGE_BYTES_MAX - beside + 1)).unwrap_err();
        assert_eq!(problem.code, Code::ManifestValue);
        assert!(problem.detail.contains("65537 bytes, the limit is 65536"), "{problem}");
    }
}
