//! A disk that fails or stops when it is told to, and keeps a log.

use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use warehouse::{Disk, RealDisk};

#[derive(Clone, Default)]
pub struct FaultyDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    plan: Option<Plan>,
    steps: usize,
    log: Vec<String>,
}

#[derive(Clone, Copy)]
pub enum Plan {
    /// The step of this number fails, the next ones work.
    FailAt(usize, ErrorKind),
    /// From the step of this number on nothing happens any more, as after `kill -9`.
    CrashAt(usize),
}

impl FaultyDisk {
    pub fn plan(&self, plan: Plan) {
        *self.state.lock() = State { plan: Some(plan), ..State::default() };
    }

    /// Did the planned step come?
    pub fn reached(&self) -> bool {
        let state = self.state.lock();
        match state.plan {
            Some(Plan::FailAt(at, _) | Plan::CrashAt(at)) => state.steps > at,
            None => false,
        }
    }

    pub fn log(&self) -> Vec<String> {
        self.state.lock().log.clone()
    }

    fn step(&self, what: &str, path: Option<&Path>) -> io::Result<()> {
        let mut state = self.state.lock();
        let step = state.steps;
        state.steps += 1;
        let name = path.and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned());
        state.log.push(format!("{what} {}", name.unwrap_or_default()).trim().to_owned());
        match state.plan {
            Some(Plan::FailAt(at, kind)) if step == at => Err(kind.into()),
            Some(Plan::CrashAt(at)) if step >= at => Err(io::Error::other("the process is gone")),
            _ => Ok(()),
        }
    }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<File> {
        self.step("create", None)?;
        RealDisk.create(path)
    }

    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.step("write", None) {
            // What stops in the middle of a write has written some of it.
            RealDisk.write(file, &bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        RealDisk.write(file, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.step("sync", None)?;
        RealDisk.sync(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("rename", Some(to))?;
        RealDisk.rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.step("sync folder", Some(path))?;
        RealDisk.sync_folder(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<bool> {
        self.step("create folder", Some(path))?;
        RealDisk.create_folder(path)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        self.step("open", Some(path))?;
        RealDisk.open(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step("remove", None)?;
        RealDisk.remove(path)
    }
}
