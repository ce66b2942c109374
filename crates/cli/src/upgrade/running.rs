//! The node that runs with the program, if there is one: restarted, and watched.

use super::installed::Installed;
use super::started::Started;
use crate::Session;
use crate::locate::{data_folder, is_node, known_node};
use crate::stop::{Result, Stop};
use problem::{Code, Problem};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(100);
/// How long a node that was ready may not be.
const ABSENCE_MAX: Duration = Duration::from_secs(5);
/// How long a node that is sent away may take before it is ended.
const DEPARTURE_MAX: Duration = Duration::from_secs(15);

/// How long is waited for what.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For the node to stop and to become ready.
    pub ready: Duration,
    /// For which it must stay so.
    pub watch: Duration,
}

pub struct RunningNode {
    pub pid: u32,
    folder: PathBuf,
    started: Started,
    patience: Patience,
}

impl RunningNode {
    /// The node of the data folder; none if none runs.
    ///
    /// # Errors
    /// It runs another program, or is not well before anything was done.
    pub fn find(session: &Session, installed: &Installed, patience: Patience) -> Result<Option<Self>> {
        let folder = data_folder(session.global.data_folder.as_deref())?;
        let Some(known) = known_node(&folder).filter(|known| is_node(known.pid)) else { return Ok(None) };
        let pid = known.pid;
        let runs = fs::read_link(format!("/proc/{pid}/exe")).map_err(|error| {
            let problem = Problem::new(Code::FileUnusable, format!("process {pid}, the node: {error}"));
            Stop::from(problem.with_hint("upgrade as the user that the node runs as, or as root"))
        })?;
        if !installed.is_run_by(pid) {
            let detail = format!("the node runs {}, and this is {}", runs.display(), installed.program.display());
            let hint = "upgrade with the program that the node runs; if that was replaced, restart the node first";
            return Err(Problem::new(Code::Usage, detail).with_hint(hint).into());
        }
        // The one that is asked, restarted and backed up has to be the one whose program changes.
        let asked = session.address()?.url;
        if asked != known.api {
            let detail =
                format!("{} is the node of the data folder, and --node or LIGHTER_NODE names {asked}", known.api);
            let hint = "leave both out: an upgrade is of this machine's node";
            return Err(Problem::new(Code::Usage, detail).with_hint(hint).into());
        }
        let started =
            Started::of(pid).map_err(|error| Stop::new(Code::FileUnusable, format!("process {pid}: {error}")))?;
        session.client()?.send("GET", "/readyz", ())?;
        Ok(Some(Self { pid, folder, started, patience }))
    }

    /// Has the node run what is in the program's place now, and watches it. Why it is not healthy, otherwise.
    pub fn restart(&self, session: &Session, installed: &Installed) -> std::result::Result<(), String> {
        session
            .client()
            .and_then(|client| client.send("POST", "/v1/restart", &[]))
            .map_err(|stop| format!("the node does not restart: {}", said(&stop)))?;
        self.watch(session, installed, self.pid)
    }

    /// Ends what is left of the new program, and starts the node with the one before.
    pub fn start_before(&self, session: &Session, installed: &Installed) -> std::result::Result<(), String> {
        // A restart that was refused, or has not come yet, has left the node as it was.
        let is_still_well = installed.is_run_by(self.pid) && self.is_ready(session, self.pid);
        if !is_still_well {
            self.end();
            let pid = self.started.again(&installed.program)?;
            return self.watch(session, installed, pid);
        }
        Ok(())
    }

    fn end(&self) {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return };
        for signal in [Signal::TERM, Signal::KILL] {
            let since = Instant::now();
            if is_node(self.pid) {
                kill_process(pid, signal).ok();
            }
            while is_node(self.pid) && since.elapsed() < DEPARTURE_MAX {
                thread::sleep(POLL);
            }
        }
    }

    fn watch(&self, session: &Session, installed: &Installed, pid: u32) -> std::result::Result<(), String> {
        let progress = session.out.progress();
        progress.step("waiting for the node to become ready");
        let since = Instant::now();
        let mut pid = pid;
        while !(installed.is_run_by(pid) && self.is_ready(session, pid)) {
            if !is_there(installed, pid) {
                // A service manager may have started it as another process, which is the one to look at.
                match known_node(&self.folder).filter(|known| known.pid != pid && self.started.may_be(known.pid)) {
                    Some(known) => pid = known.pid,
                    None if self.started.is_service() && since.elapsed() < self.patience.ready => {}
                    None => return Err("the node ended before it was ready".to_owned()),
                }
            }
            if since.elapsed() > self.patience.ready {
                return Err(format!("the node was not ready within {} s", self.patience.ready.as_secs()));
            }
            thread::sleep(POLL);
        }
        progress.step("watching the node");
        let (since, mut seen) = (Instant::now(), Instant::now());
        while since.elapsed() < self.patience.watch {
            thread::sleep(POLL);
            if !is_there(installed, pid) {
                return Err("the node ended soon after it was ready".to_owned());
            }
            if self.is_ready(session, pid) {
                seen = Instant::now();
            } else if seen.elapsed() > ABSENCE_MAX {
                return Err("the node did not stay ready".to_owned());
            }
        }
        Ok(())
    }

    /// Whether this process is the node of the data folder and takes calls.
    fn is_ready(&self, session: &Session, pid: u32) -> bool {
        known_node(&self.folder).is_some_and(|known| known.pid == pid)
            && session.client().is_ok_and(|client| client.silent().send("GET", "/readyz", ()).is_ok())
    }
}

/// Whether the node has not ended. In its first moment with another program it is called as that program's file is,
/// and not as nodes are: it is known by its file then.
fn is_there(installed: &Installed, pid: u32) -> bool {
    is_node(pid) || installed.is_run_by(pid)
}

fn said(stop: &Stop) -> String {
    match stop {
        Stop::Problem(problem) => problem.detail.to_string(),
        other => format!("{other:?}"),
    }
}

/// Where no node of the data folder runs: warns of one with another.
pub fn warn_of_others(session: &Session, installed: &Installed, running: Option<&RunningNode>) {
    if running.is_none()
        && let Some((pid, of)) = other_node(installed)
    {
        session.out.complain(format!(
            "warning: process {pid} is a node of this program with another data folder ({of}), and is not restarted; \
             --data-folder names it"
        ));
    }
}

/// A process that is a node of this program, and its data folder as far as its command line says.
pub fn other_node(installed: &Installed) -> Option<(u32, String)> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok().filter(|_| installed.is_run_by(pid))?;
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        words.iter().skip(1).find(|word| *word == "up")?;
        let folder = words.iter().skip_while(|word| *word != "--data-folder").nth(1);
        Some((pid, folder.map_or_else(|| "the user's own".to_owned(), ToString::to_string)))
    })
}
