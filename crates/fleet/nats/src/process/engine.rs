//! The thread that runs nats-server, and starts it again when it has ended.

use super::config::{EngineConfig, MEMORY_BYTES};
use super::launch::Launcher;
use super::program::Program;
use super::report;
use crate::FleetKeys;
use problem::{Code, Problem};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde::Deserialize;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

/// How long a server may take until it says how it runs. It reads its journals first.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_millis(50);
/// How long it may take to end when it is told to.
const END_TIMEOUT: Duration = Duration::from_secs(10);
const REST_FIRST: Duration = Duration::from_millis(500);
const REST_MAX: Duration = Duration::from_secs(30);
/// A server that ran so long did not fail at once: its rests begin anew.
const GOOD_RUN: Duration = Duration::from_secs(60);

/// What an engine is doing.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineState {
    Starting,
    /// Started, and as it must be.
    Up {
        process: u32,
        /// Where it listens for nodes.
        listen: SocketAddr,
        /// Where it listens for the servers of other anchors.
        routes: Option<SocketAddr>,
    },
    /// Not there. It is started again soon.
    Resting(Problem),
    /// Told to end.
    Ended,
}

/// An anchor's nats-server, kept running. It ends when this is dropped.
pub struct Engine {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<Told>,
    changed: Condvar,
}

struct Told {
    state: EngineState,
    is_wanted: bool,
    /// Not yet waited for, so that its number is nobody else's.
    process: Option<Pid>,
}

type Find = Box<dyn Fn() -> Result<Program, Problem> + Send>;

/// Where a server listens.
#[derive(Clone, Copy)]
struct Places {
    listen: SocketAddr,
    monitor: SocketAddr,
    routes: Option<SocketAddr>,
}

/// What nats-server writes of its ports: URLs.
#[derive(Deserialize)]
struct Ports {
    nats: Vec<String>,
    monitoring: Vec<String>,
    #[serde(default)]
    cluster: Vec<String>,
}

/// What one start needs.
struct Runner {
    config: EngineConfig,
    keys: Arc<FleetKeys>,
    find: Find,
    launcher: Launcher,
    shared: Arc<Shared>,
}

impl Engine {
    /// Starts it, and again whenever it has ended. `find` looks for the program before each start: one that was
    /// missing may have come.
    ///
    /// # Errors
    /// [`Code::EngineUnsound`]: it must not run so.
    pub fn start(
        config: EngineConfig,
        keys: Arc<FleetKeys>,
        find: impl Fn() -> Result<Program, Problem> + Send + 'static,
        launcher: Launcher,
    ) -> Result<Self, Problem> {
        if let Some(fault) = config.fault() {
            return Err(unsound(&format!("it is not started: {fault}")));
        }
        let told = Told { state: EngineState::Starting, is_wanted: true, process: None };
        let shared = Arc::new(Shared { state: Mutex::new(told), changed: Condvar::new() });
        let runner = Runner { config, keys, find: Box::new(find), launcher, shared: Arc::clone(&shared) };
        let thread = thread::Builder::new().name("engine".to_owned()).spawn(move || runner.run());
        let thread = thread.map_err(|error| unsound(&format!("no thread for it: {error}")))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    pub fn state(&self) -> EngineState {
        self.shared.lock().state.clone()
    }

    /// Waits until it is known whether it is up, and no longer than `timeout`.
    pub fn wait_known(&self, timeout: Duration) -> EngineState {
        let is_open = |told: &mut Told| told.state == EngineState::Starting;
        let told = self.shared.changed.wait_timeout_while(self.shared.lock(), timeout, is_open);
        told.unwrap_or_else(PoisonError::into_inner).0.state.clone()
    }

    /// Tells it to end, and waits until it has: a quarter of a second, and 10 s at most. Then it is killed.
    pub fn end(&self) {
        let mut told = self.shared.lock();
        told.is_wanted = false;
        told.signal(Signal::TERM);
        drop(told);
        self.shared.changed.notify_all();
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let deadline = Instant::now() + END_TIMEOUT;
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(ASK_EVERY);
        }
        self.shared.lock().signal(Signal::KILL);
        // A panic in there was printed where it happened.
        let _ = thread.join();
    }

    /// Waits until it is up.
    ///
    /// # Errors
    /// It was not within `timeout`; why it was not the last time.
    pub fn wait_up(&self, timeout: Duration) -> Result<u32, Problem> {
        let deadline = Instant::now() + timeout;
        let mut told = self.shared.lock();
        loop {
            if let EngineState::Up { process, .. } = told.state {
                return Ok(process);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(match &told.state {
                    EngineState::Resting(why) => why.clone(),
                    other => unsound(&format!("it is {other:?} after {timeout:?}")),
                });
            }
            told = self.shared.changed.wait_timeout(told, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is still wanted.
    fn tell(&self, state: EngineState) -> bool {
        let mut told = self.lock();
        told.state = if told.is_wanted { state } else { EngineState::Ended };
        let is_wanted = told.is_wanted;
        drop(told);
        self.changed.notify_all();
        is_wanted
    }
}

impl Told {
    fn signal(&self, signal: Signal) {
        if let Some(process) = self.process {
            // It may have ended, and was not waited for.
            let _ = kill_process(process, signal);
        }
    }
}

impl Runner {
    fn run(self) {
        let (mut failures, mut last) = (0, None);
        loop {
            let began = Instant::now();
            let why = self.run_once();
            failures = if began.elapsed() >= GOOD_RUN { 1 } else { failures + 1 };
            if !self.shared.tell(EngineState::Resting(why.clone())) {
                return;
            }
            let rest = rest(failures);
            // Once for each reason: a program that is missing stays missing for long.
            if last.as_ref() != Some(&why) {
                tracing::error!("{} {}; {}", why.code, why.detail, why.hint);
            }
            tracing::debug!(%why, "the fleet's engine is started again in {rest:?}");
            last = Some(why);
            let told = self.shared.lock();
            let until = self.shared.changed.wait_timeout_while(told, rest, |told| told.is_wanted);
            drop(until);
            if !self.shared.tell(EngineState::Starting) {
                return;
            }
        }
    }

    /// Runs it until it ends. Why it did.
    fn run_once(&self) -> Problem {
        let program = match (self.find)() {
            Ok(program) => program,
            Err(problem) => return problem,
        };
        let mut child = match self.write_config().and_then(|config| self.spawn(&program, config)) {
            Ok(child) => child,
            Err(error) => return unsound(&format!("it cannot be started: {error}")),
        };
        let id = Pid::from_child(&child);
        if !self.is_noted(id) {
            let _ = child.kill();
        }
        let fault = self.wait_sound(&program, &mut child);
        if fault.is_some() {
            self.shared.lock().signal(Signal::KILL);
        }
        // Waits and leaves its number taken, so that no signal goes to another process.
        while matches!(
            waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT),
            Err(rustix::io::Errno::INTR)
        ) {}
        let mut told = self.shared.lock();
        told.process = None;
        let ended = child.wait();
        drop(told);
        let ended = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        fault.unwrap_or_else(|| unsound(&format!("it has ended ({ended}){}", self.last_words())))
    }

    /// Whether it is wanted at all.
    fn is_noted(&self, id: Pid) -> bool {
        let mut told = self.shared.lock();
        told.process = Some(id);
        told.is_wanted
    }

    /// Waits until it says how it runs. What is wrong with that, or none, if it has ended too.
    fn wait_sound(&self, program: &Program, child: &mut Child) -> Option<Problem> {
        let deadline = Instant::now() + START_TIMEOUT;
        let mut last = "it does not answer".to_owned();
        while Instant::now() < deadline {
            if has_ended(child) {
                return None;
            }
            let places = self.places(program, child.id());
            match places.and_then(|places| Ok((places, report::ask(places.monitor)?))) {
                Ok((_, report)) if !report::is_whole(&report) => last = "it does not begin to keep anything".to_owned(),
                Ok((Places { listen, routes, .. }, report)) => match report::fault(&report, &self.config) {
                    None => {
                        tracing::info!(version = program.version, "the fleet's engine is up");
                        self.shared.tell(EngineState::Up { process: child.id(), listen, routes });
                        return None;
                    }
                    Some(fault) => return Some(unsound(&fault)),
                },
                Err(error) => last = format!("it does not answer: {error}"),
            }
            thread::sleep(ASK_EVERY);
        }
        Some(unsound(&last))
    }

    /// Only its owner may read it, from its first byte on.
    fn write_config(&self) -> io::Result<PathBuf> {
        let folder = &self.config.folder;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let (path, partial) = (folder.join("nats.conf"), folder.join("nats.conf.partial"));
        let _ = fs::remove_file(&partial);
        // Of earlier sets of anchors: nothing lies there alone.
        if self.config.set > 0 {
            let store = self.config.store();
            let earlier = fs::read_dir(folder.join("js")).into_iter().flatten().flatten().map(|entry| entry.path());
            for path in earlier.filter(|path| *path != store) {
                fs::remove_dir_all(&path)?;
            }
        }
        // Of a server that was killed.
        for entry in fs::read_dir(folder)?.flatten().filter(|entry| is_ports_file(&entry.path())) {
            let _ = fs::remove_file(entry.path());
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
        file.write_all(self.config.text(&self.keys, SystemTime::now()).as_bytes())?;
        fs::rename(&partial, &path)?;
        Ok(path)
    }

    fn spawn(&self, program: &Program, config: PathBuf) -> io::Result<Child> {
        let words = fs::File::create(self.words())?;
        let mut command = self.launcher.command(&program.path);
        command.arg("--config").arg(config);
        command.env_clear().env("GOMEMLIMIT", MEMORY_BYTES.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(words).spawn()
    }

    /// Where this process listens. Which ports the system gave it, it writes into a file of its number.
    fn places(&self, program: &Program, process: u32) -> io::Result<Places> {
        let EngineConfig { listen, monitor, folder, .. } = &self.config;
        let routes = self.config.routes.as_ref().map(|routes| routes.listen);
        if listen.port() != 0 && monitor.port() != 0 && routes.is_none_or(|routes| routes.port() != 0) {
            return Ok(Places { listen: *listen, monitor: *monitor, routes });
        }
        let name = program.path.file_name().unwrap_or_default().to_string_lossy();
        let ports: Ports = serde_json::from_slice(&fs::read(folder.join(format!("{name}_{process}.ports")))?)?;
        let first = |urls: &[String]| urls.first()?.split("//").nth(1)?.parse().ok();
        let places = first(&ports.nats).zip(first(&ports.monitoring));
        let (listen, monitor) =
            places.ok_or_else(|| io::Error::other("it does not say its ports as nats-server does"))?;
        Ok(Places { listen, monitor, routes: first(&ports.cluster) })
    }

    fn words(&self) -> PathBuf {
        self.config.folder.join("nats.stderr")
    }

    /// What it said last, if it said anything.
    fn last_words(&self) -> String {
        let said = [self.words(), self.config.folder.join("nats.log")].map(|file| fs::read(file).unwrap_or_default());
        let last = |said: &Vec<u8>| Some(String::from_utf8_lossy(said).lines().last()?.chars().take(300).collect());
        said.iter().find_map(last).map(|line: String| format!(": {line}")).unwrap_or_default()
    }
}

/// Its number stays taken until it is waited for.
fn has_ended(child: &Child) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::Pid(Pid::from_child(child)), options), Ok(Some(_)))
}

fn is_ports_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "ports")
}

fn rest(failures: u32) -> Duration {
    REST_FIRST.saturating_mul(1 << (failures - 1).min(16)).min(REST_MAX)
}

fn unsound(what: &str) -> Problem {
    Problem::new(Code::EngineUnsound, format!("the fleet's engine: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_are_doubled_up_to_their_bound() {
        assert_eq!(
            [1, 2, 3, 7, 8, 1_000].map(rest).map(|rest| rest.as_millis()),
            [500, 1_000, 2_000, 30_000, 30_000, 30_000]
        );
    }
}
