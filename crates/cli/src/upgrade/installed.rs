//! This program as it is installed on the disk, and what stands beside it: the next program, and the one before.
//!
//! ```text
//!  lighter            a whole program at every instant: it changes by a rename alone
//!  lighter.new        the next one, until it takes the place
//!  lighter.previous   the one before
//!  lighter.older      the one before that, until the upgrade stays or is taken back
//! ```
//! Whatever ends an upgrade in the middle leaves a program that starts. What it leaves of `lighter.new` is overwritten
//! by the next one.

use super::{Says, ask, format_number, older_format};
use crate::stop::{Result, Stop};
use problem::{Code, Problem};
use release::{Archive, ReleaseVersion, Unreadable, processor};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// What a package of Debian has installed, a path on each line.
const PACKAGE_FILES: &str = "/var/lib/dpkg/info/lighterage.list";
/// Bytes of a program that are enough to say for which processor it is.
const HEAD_BYTES: usize = 64;

pub struct Installed {
    pub program: PathBuf,
    folder: PathBuf,
    /// Held open: its lock is this upgrade's.
    lock: File,
}

impl Installed {
    pub fn of_this_program() -> Result<Self> {
        let unknown = |error: &io::Error| Stop::new(Code::FileUnusable, format!("this program's own file: {error}"));
        let program = std::env::current_exe().and_then(|program| program.canonicalize());
        let program = program.map_err(|error| unknown(&error))?;
        let folder = program.parent().unwrap_or(Path::new("/")).to_owned();
        let lock = File::open(&folder).map_err(|error| Stop::file(&folder, &error))?;
        Ok(Self { program, folder, lock })
    }

    fn named(&self, more: &str) -> PathBuf {
        let mut name = self.program.file_name().map_or_else(OsString::new, OsString::from);
        name.push(more);
        self.folder.join(name)
    }

    fn next(&self) -> PathBuf {
        self.named(".new")
    }

    pub fn previous(&self) -> PathBuf {
        self.named(".previous")
    }

    /// The one before that, while an upgrade may still be taken back.
    fn older(&self) -> PathBuf {
        self.named(".older")
    }

    /// A second name of a program, for as long as it changes its first.
    fn kept(&self) -> PathBuf {
        self.named(".keeping")
    }

    /// Two upgrades at once would take each other's files.
    pub fn keep_out_others(&self) -> Result {
        self.lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                let detail = format!("another upgrade of {} is under way", self.program.display());
                Problem::new(Code::FileUnusable, detail).with_hint("wait for it to end").into()
            }
            TryLockError::Error(error) => Stop::file(&self.folder, &error),
        })
    }

    /// A program that a package manager has installed is the manager's to replace.
    pub fn belongs_to_nobody(&self) -> Result {
        let packaged = |hint: String| {
            let detail = format!("{} was installed by a package manager", self.program.display());
            Err(Problem::new(Code::ProgramPackaged, detail).with_hint(hint).into())
        };
        if let Ok(list) = File::open(PACKAGE_FILES) {
            let is_listed = |line: String| fs::canonicalize(line).is_ok_and(|file| file == self.program);
            if BufReader::new(list).lines().map_while(io::Result::ok).any(is_listed) {
                return packaged("upgrade the package: apt install ./lighterage_VERSION_PROCESSOR.deb".to_owned());
            }
        }
        match of_pip(&self.folder) {
            true => packaged("upgrade the wheel: pip install --upgrade 'lighterage[node]'".to_owned()),
            false => Ok(()),
        }
    }

    /// Writes the program beside ours and tries it.
    pub fn put_beside(&self, archive: Archive<'_>, version: &ReleaseVersion) -> Result<Says> {
        self.unpack(archive, &self.next()).and_then(|()| tried(&self.next(), version)).inspect_err(|_| {
            self.remove_beside();
        })
    }

    /// Tries the program in a folder of its own, and leaves nothing.
    pub fn try_elsewhere(&self, archive: Archive<'_>, version: &ReleaseVersion) -> Result<Says> {
        let folder = tempfile::tempdir().map_err(|error| Stop::file(&std::env::temp_dir(), &error))?;
        let file = folder.path().join("lighter");
        self.unpack(archive, &file)?;
        tried(&file, version)
    }

    pub fn remove_beside(&self) {
        fs::remove_file(self.next()).ok();
    }

    /// With the owner and the mode of ours.
    fn unpack(&self, archive: Archive<'_>, to: &Path) -> Result {
        let failed = |error: &io::Error| Stop::file(to, error);
        fs::remove_file(to).or_else(nothing_there).map_err(|error| failed(&error))?;
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o700).open(to).map_err(|error| failed(&error))?;
        let mut head = Vec::new();
        let written = archive.program(|piece| {
            head.extend_from_slice(&piece[..piece.len().min(HEAD_BYTES - head.len())]);
            file.write_all(piece)
        });
        written.map_err(|why| match why {
            Unreadable::Release(problem) => problem.into(),
            Unreadable::Writing(error) => failed(&error),
        })?;
        if processor(&head) != Some(std::env::consts::ARCH) {
            let detail = format!("the release's program is none for {}", std::env::consts::ARCH);
            return Err(Stop::new(Code::ReleaseElsewhere, detail));
        }
        self.take_after(to).and_then(|()| file.sync_all()).map_err(|error| failed(&error))
    }

    fn take_after(&self, file: &Path) -> io::Result<()> {
        let own = fs::metadata(&self.program)?;
        let other = fs::metadata(file)?;
        if (own.uid(), own.gid()) != (other.uid(), other.gid()) {
            chown(file, Some(own.uid()), Some(own.gid()))?;
        }
        fs::set_permissions(file, Permissions::from_mode(own.mode() & 0o777))
    }

    /// What the program before says of itself, if one may go back to it.
    pub fn previous_says(&self, own_format: &str) -> Result<Says> {
        let previous = self.previous();
        if !previous.exists() {
            let detail = format!("there is no {}", previous.display());
            return Err(Stop::new(Code::RollbackMissing, detail));
        }
        let says = ask(&previous)?;
        match format_number(&says.state_format) < format_number(own_format) {
            true => Err(older_format(&says.version, own_format)),
            false => Ok(says),
        }
    }

    /// The program before as the next one.
    pub fn bring_back_beside(&self) -> Result {
        let next = self.next();
        link(&self.previous(), &next).map_err(|error| Stop::file(&next, &error))
    }

    /// The next program takes our place; ours is the one before. What was the one before is kept until this is
    /// [settled](Self::settle) or [undone](Self::undo).
    pub fn swap(&self) -> Result {
        let swap = || {
            link(&self.program, &self.kept())?;
            fs::rename(self.previous(), self.older()).or_else(nothing_there)?;
            rename(&self.kept(), &self.previous())?;
            rename(&self.next(), &self.program)?;
            self.lock.sync_all()
        };
        swap().map_err(|error| Stop::file(&self.program, &error))
    }

    /// Puts the program before back, for good, and the one before that. Where there was none, the name stays with the
    /// program that is in its place: the one that is known to run.
    pub fn undo(&self) -> Result {
        let undo = || {
            link(&self.previous(), &self.kept())?;
            rename(&self.kept(), &self.program)?;
            if self.older().exists() {
                rename(&self.older(), &self.previous())?;
            }
            self.lock.sync_all()
        };
        undo().map_err(|error| Stop::file(&self.program, &error))
    }

    /// The next program stays.
    pub fn settle(&self) -> Result {
        let older = self.older();
        fs::remove_file(&older).or_else(nothing_there).map_err(|error| Stop::file(&older, &error))
    }

    /// Whether a process runs the file that is in our place now. One that has ended runs none, reaped or not.
    pub fn is_run_by(&self, pid: u32) -> bool {
        let file = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let running = file(Path::new(&format!("/proc/{pid}/exe")));
        running.is_some() && running == file(&self.program)
    }
}

fn link(file: &Path, name: &Path) -> io::Result<()> {
    fs::remove_file(name).or_else(nothing_there)?;
    fs::hard_link(file, name)
}

/// Where both are names of one file, nothing is renamed: then the old one is taken away.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    fs::remove_file(from).or_else(nothing_there)
}

fn nothing_there(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn tried(program: &Path, version: &ReleaseVersion) -> Result<Says> {
    let says = ask(program)?;
    if says.version == version.to_string() {
        return Ok(says);
    }
    let detail = format!("the release is called {version}, and its program says it is {}", says.version);
    Err(Stop::new(Code::ReleaseBroken, detail))
}

/// Whether pip has put a program into this folder: its environment knows the wheel.
fn of_pip(folder: &Path) -> bool {
    let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let begins = |entry: &fs::DirEntry, with: &str| entry.file_name().to_string_lossy().starts_with(with);
    entries(folder.join("../lib")).filter(|entry| begins(entry, "python3")).any(|python| {
        ["site-packages", "dist-packages"]
            .iter()
            .any(|packages| entries(python.path().join(packages)).any(|entry| begins(&entry, "lighterage_node-")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locate::is_node;
    use std::process::Command;

    /// An upgrade was undone because the node had not said yet what it is called.
    #[test]
    fn a_process_is_known_by_its_file_until_it_has_ended_reaped_or_not() {
        let program = PathBuf::from("/bin/sleep");
        let (folder, lock) = (PathBuf::from("/bin"), File::open("/bin").unwrap());
        let mut process = Command::new(&program).arg("60").spawn().unwrap();
        let installed = Installed { program, folder, lock };
        assert!(installed.is_run_by(process.id()) && !is_node(process.id()));
        process.kill().unwrap();
        while installed.is_run_by(process.id()) {
            std::thread::yield_now();
        }
        process.wait().unwrap();
        assert!(!installed.is_run_by(process.id()));
    }
}
