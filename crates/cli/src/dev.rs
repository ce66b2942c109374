//! `lighter dev`: build and deploy whenever a source changes, and show the log of the functions meanwhile.
//!
//! ```text
//! file system ──wake──▶ compare sources ──changed──▶ build ─▶ deploy ─▶ wait again
//!                                                       └─ a failure is shown, and the last good version goes on
//! ```

use super::client::Client;
use super::stop::{Result, Stop};
use super::watch::{Snapshot, snapshot};
use super::{Session, build, deploy, images, logs};
use clap::Args;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use problem::{Code, Problem};
use rustix::process::{Pid, Signal, getpid, kill_process};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io, thread};
use tokio::signal::unix::{SignalKind, signal};

/// An editor writes a file in several steps; what follows within this time belongs to it.
const SETTLE: Duration = Duration::from_millis(150);
/// Builds in a row because sources changed while building. A build that changes its own sources ends here.
const AT_ONCE_MAX: usize = 2;
/// Pause before the log is asked for again when the node went away.
const LOG_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub struct Dev {
    /// Folder with lighter.toml
    #[arg(default_value = ".", hide_default_value = true)]
    dir: PathBuf,
}

enum Wake {
    Changed,
    Ended(Stop),
}

type Names = Arc<Mutex<BTreeSet<String>>>;

impl Dev {
    /// Returns only with an error: the user ends it with Ctrl-C, a service manager with SIGTERM.
    pub fn run(&self, session: &Session) -> Result {
        let client = session.client()?;
        images::project(&self.dir, &session.brought.images)?;
        let folder = self.folder();
        let (sender, wakes) = sync_channel(1);
        let mut watched = Watched::new(sender.clone())?;
        let names = Names::default();
        follow_logs(session, Arc::clone(&names), sender)?;
        end_with_the_build().map_err(|error| Stop::new(Code::Internal, format!("signals cannot be heard: {error}")))?;
        let (mut at_once, mut outputs) = (0, Vec::new());
        loop {
            outputs = self.outputs(session).unwrap_or(outputs);
            let before = snapshot(&folder, &outputs)?;
            watched.watch(&before)?;
            self.attempt(session, &client, &names)?;
            let mut after = snapshot(&folder, &outputs)?;
            at_once = if before.changed(&after).is_empty() || at_once == AT_ONCE_MAX { 0 } else { at_once + 1 };
            if at_once == 0 {
                let start = std::mem::take(&mut after);
                session.out.say("waiting for a change (Ctrl-C ends)");
                after = wait(&wakes, &start, || snapshot(&folder, &outputs))?;
                tell(session, &start, &after, &folder);
            } else {
                tell(session, &before, &after, &folder);
            }
        }
    }

    fn folder(&self) -> PathBuf {
        match self.dir.is_dir() {
            true => self.dir.clone(),
            false => self
                .dir
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty())
                .unwrap_or(Path::new("."))
                .to_path_buf(),
        }
    }

    /// Images are what a build makes, not what it is made of. While the manifest is broken, nobody knows which they
    /// are.
    fn outputs(&self, session: &Session) -> Option<Vec<PathBuf>> {
        let project = images::project(&self.dir, &session.brought.images).ok()?;
        let images = project.manifest.function.values().map(|function| self.folder().join(&function.image));
        Some(images.filter(|path| !project.images.is_source(path)).collect())
    }

    /// Builds and deploys once. What is wrong with the function is shown; only a closed pipe ends it all.
    fn attempt(&self, session: &Session, client: &Client, names: &Names) -> Result {
        let since = Instant::now();
        let deployed = images::project(&self.dir, &session.brought.images).and_then(|project| {
            let known = project.manifest.function.keys().map(ToString::to_string);
            *names.lock().unwrap_or_else(PoisonError::into_inner) = known.collect();
            build::build(&project, session.out)?;
            deploy::deploy(&project, client, &session.out.progress_in_lines())
        });
        match deployed {
            Ok(functions) => {
                for function in functions {
                    session.out.say(format!(
                        "{} version {} runs  {}",
                        function.name,
                        function.version,
                        function.urls.join(" ")
                    ));
                }
                session.out.say(format!("ready in {}", super::words::duration(since.elapsed())));
                Ok(())
            }
            Err(Stop::Problem(problem)) => {
                session.out.problem(&problem);
                Ok(())
            }
            Err(stop) => Err(stop),
        }
    }
}

/// Waits until the sources differ from what they were.
fn wait(wakes: &Receiver<Wake>, start: &Snapshot, look: impl Fn() -> Result<Snapshot>) -> Result<Snapshot> {
    loop {
        match wakes.recv() {
            Ok(Wake::Changed) => {}
            Ok(Wake::Ended(stop)) => return Err(stop),
            Err(_) => return Err(Stop::Interrupted),
        }
        thread::sleep(SETTLE);
        let now = look()?;
        if !start.changed(&now).is_empty() {
            return Ok(now);
        }
    }
}

fn tell(session: &Session, before: &Snapshot, after: &Snapshot, folder: &Path) {
    let changed = before.changed(after);
    let names: Vec<String> =
        changed.iter().take(3).map(|path| path.strip_prefix(folder).unwrap_or(path).display().to_string()).collect();
    let more =
        if changed.len() > names.len() { format!(" and {} more", changed.len() - names.len()) } else { String::new() };
    session.out.say(format!("\nchanged: {}{more}", names.join(", ")));
}

/// The folders the file system is asked to tell about.
struct Watched {
    watcher: RecommendedWatcher,
    folders: BTreeSet<PathBuf>,
}

impl Watched {
    fn new(sender: SyncSender<Wake>) -> Result<Self> {
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading is what our own looks do. A full channel has a wake in it already.
            if event.map_or(true, |event| !event.kind.is_access()) {
                let _ = sender.try_send(Wake::Changed);
            }
        });
        Ok(Self { watcher: watcher.map_err(|error| failed(&error))?, folders: BTreeSet::new() })
    }

    /// Watches the folders that are new; those that are gone the system has forgotten by itself.
    fn watch(&mut self, snapshot: &Snapshot) -> Result {
        for folder in &snapshot.folders {
            if self.folders.contains(folder) {
                continue;
            }
            match self.watcher.watch(folder, RecursiveMode::NonRecursive) {
                Err(notify::Error { kind: notify::ErrorKind::PathNotFound, .. }) => {}
                watched => watched.map_err(|error| failed(&error))?,
            }
        }
        self.folders = snapshot.folders.iter().cloned().collect();
        Ok(())
    }
}

fn failed(error: &notify::Error) -> Stop {
    let problem = Problem::new(Code::FileUnusable, format!("the folder cannot be watched: {error}"));
    problem.with_hint("if there are too many watches, raise the sysctl fs.inotify.max_user_watches").into()
}

/// Prints what the project's functions write, in a thread of its own, for as long as somebody reads it.
fn follow_logs(session: &Session, names: Names, sender: SyncSender<Wake>) -> Result {
    let (client, out) = (session.client()?.silent(), session.out);
    thread::spawn(move || {
        loop {
            let known = |name: &String| names.lock().unwrap_or_else(PoisonError::into_inner).contains(name);
            match logs::print(&client, out, None, true, 0, |line| known(&line.function)) {
                // The node may be started again any time; what is wrong with it the deployment says.
                Ok(()) | Err(Stop::Problem(Problem { code: Code::NodeUnreachable | Code::Draining, .. })) => {
                    thread::sleep(LOG_PAUSE)
                }
                Err(Stop::Problem(problem)) => {
                    out.complain(format!("the log cannot be shown: {problem}"));
                    return;
                }
                Err(stop) => {
                    let _ = sender.send(Wake::Ended(stop));
                    return;
                }
            }
        }
    });
    Ok(())
}

/// Ctrl-C comes to the build command too. SIGTERM comes to this process alone, which from now on takes the build along.
fn end_with_the_build() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut terminate = runtime.block_on(async { signal(SignalKind::terminate()) })?;
    thread::spawn(move || {
        runtime.block_on(terminate.recv());
        end_descendants();
        std::process::exit(Stop::Interrupted.exit_code().into())
    });
    Ok(())
}

/// Ends all descendants. They are stopped first, so that none begins another meanwhile.
fn end_descendants() {
    let mut stopped = Vec::new();
    loop {
        let new: Vec<Pid> = descendants().into_iter().filter(|pid| !stopped.contains(pid)).collect();
        if new.is_empty() {
            break;
        }
        send(&new, Signal::STOP);
        stopped.extend(new);
    }
    send(&stopped, Signal::TERM);
    send(&stopped, Signal::CONT);
}

fn send(processes: &[Pid], signal: Signal) {
    for pid in processes {
        // It may have ended by itself.
        kill_process(*pid, signal).ok();
    }
}

/// What this process has started, and what those have.
fn descendants() -> Vec<Pid> {
    let child_and_parent = |entry: fs::DirEntry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // `PID (NAME) STATE PARENT …`: the name may hold anything.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Some((pid, Pid::from_raw(parent)?))
    };
    let processes: Vec<(Pid, Pid)> =
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(child_and_parent).collect();
    let mut found = vec![getpid()];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(processes.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}
