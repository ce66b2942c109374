//! A folder that somebody else may have written: no link in it makes us read what lies outside.
//!
//! `lighter deploy` sends what it reads to a node, which serves it. A repository with `data.py -> /etc/shadow` must not
//! publish that file, so paths are walked one name at a time, from open folder to open folder. Nobody can change the
//! way behind our back, and a link that leads out is named in the error.
//!
//! ```text
//! root ─open─▶ src ─open─▶ link ─read─▶ "../lib.py" ─▶ walked on from here; `..` goes back, never above root
//! ```
//!
//! A hard link cannot be told from the file it names. Linux lets nobody make one to another user's file
//! (`fs.protected_hardlinks`). If one exists all the same, the file has another owner than the folder, and is refused.

use super::stop::Stop;
use super::words;
use problem::{Code, Problem};
use rustix::fs::{Dir, FileType, Mode, OFlags, fstat, open, openat, readlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Links on the way to one file, as in the kernel. With more it is a circle.
const LINKS_MAX: usize = 40;

/// A folder, and everything below it that no link leads out to.
pub struct Folder {
    /// As it was named, for messages.
    path: PathBuf,
    /// Without links, to know links to itself by.
    real: PathBuf,
    root: OwnedFd,
}

/// What stands at a path.
pub enum AtPath {
    File(File),
    Folder(OwnedFd),
}

/// Why nothing was read.
#[derive(Debug)]
pub enum Missed {
    /// This link leads out of the folder, to there.
    Leaves {
        folder: PathBuf,
        link: PathBuf,
        target: PathBuf,
    },
    /// This file is another owner's, and was linked here.
    Foreign {
        file: PathBuf,
    },
    TooLarge {
        file: PathBuf,
        bytes: u64,
    },
    Failed {
        path: PathBuf,
        error: io::Error,
    },
}

impl Folder {
    /// Opens a folder. Links on the way to it are followed: whoever runs this named it.
    pub fn open(path: &Path) -> Result<Self, Missed> {
        let named = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let failed = |error| Missed::Failed { path: path.to_owned(), error };
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(named, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        let real = fs::canonicalize(named).map_err(failed)?;
        Ok(Self { path: path.to_owned(), real, root })
    }

    /// The folder at `inner`, which is a boundary of its own from now on.
    pub fn below(&self, inner: &Path) -> Result<Self, Missed> {
        match self.find(inner)? {
            AtPath::Folder(root) => Ok(Self { path: self.path.join(inner), real: self.real.join(inner), root }),
            AtPath::File(_) => Err(self.failed(inner, Errno::NOTDIR)),
        }
    }

    /// The path of `inner` as messages name it.
    pub fn named(&self, inner: &Path) -> PathBuf {
        if inner.as_os_str().is_empty() { self.path.clone() } else { self.path.join(inner) }
    }

    /// What stands at `inner`. Anything but a file or a folder is refused without being opened for long: a pipe would
    /// wait.
    pub fn find(&self, inner: &Path) -> Result<AtPath, Missed> {
        let mut walk = Walk { folder: self, whole: inner, passed: Vec::new(), links: 0 };
        walk.go(inner, (inner, inner))?;
        walk.open()
    }

    /// The bytes of the file at `inner`, if it has no more than `bytes_max`.
    pub fn read(&self, inner: &Path, bytes_max: u64) -> Result<Vec<u8>, Missed> {
        let AtPath::File(file) = self.find(inner)? else { return Err(self.failed(inner, Errno::ISDIR)) };
        let failed = |error| Missed::Failed { path: self.named(inner), error };
        let size = file.metadata().map_err(failed)?.len();
        let mut bytes = Vec::new();
        if size <= bytes_max {
            // It may grow while it is read.
            file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
        }
        match size.max(bytes.len() as u64) {
            size if size > bytes_max => Err(Missed::TooLarge { file: self.named(inner), bytes: size }),
            _ => Ok(bytes),
        }
    }

    /// The names in the folder at `inner`, in order.
    pub fn names(&self, inner: &Path) -> Result<Vec<OsString>, Missed> {
        let AtPath::Folder(folder) = self.find(inner)? else { return Err(self.failed(inner, Errno::NOTDIR)) };
        let failed = |error| self.failed(inner, error);
        let mut names = Vec::new();
        for entry in Dir::read_from(&folder).map_err(failed)? {
            let name = OsStr::from_bytes(entry.map_err(failed)?.file_name().to_bytes()).to_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn failed(&self, inner: &Path, error: Errno) -> Missed {
        Missed::Failed { path: self.named(inner), error: error.into() }
    }
}

/// A way from a folder's root, by names that were opened.
struct Walk<'a> {
    folder: &'a Folder,
    /// What is looked for, for messages.
    whole: &'a Path,
    passed: Vec<(OsString, OwnedFd)>,
    links: usize,
}

impl Walk<'_> {
    /// Goes on along `path`, which the link `via` named, with its target.
    fn go(&mut self, path: &Path, via: (&Path, &Path)) -> Result<(), Missed> {
        for part in path.components() {
            match part {
                Component::CurDir => {}
                Component::Normal(name) => self.enter(name)?,
                Component::ParentDir if self.passed.pop().is_some() => {}
                _ => return Err(self.leaves(via)),
            }
        }
        Ok(())
    }

    fn enter(&mut self, name: &OsStr) -> Result<(), Missed> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(self.here(), name, flags, Mode::empty()).map_err(|error| self.failed(error))?;
        let stat = fstat(&opened).map_err(|error| self.failed(error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            self.passed.push((name.to_owned(), opened));
            return Ok(());
        }
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(self.failed(Errno::LOOP));
        }
        let target = readlinkat(&opened, "", Vec::new()).map_err(|error| self.failed(error))?;
        let target = PathBuf::from(OsStr::from_bytes(target.to_bytes()));
        let link: PathBuf = self.passed.iter().map(|(name, _)| name.as_os_str()).chain([name]).collect();
        let Ok(inner) = target.strip_prefix(&self.folder.real) else { return self.go(&target, (&link, &target)) };
        self.passed.clear();
        self.go(inner, (&link, &target))
    }

    fn open(self) -> Result<AtPath, Missed> {
        let failed = |error| self.failed(error);
        let Some((name, last)) = self.passed.last() else {
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            return Ok(AtPath::Folder(openat(&self.folder.root, ".", flags, Mode::empty()).map_err(failed)?));
        };
        let kind = FileType::from_raw_mode(fstat(last).map_err(failed)?.st_mode);
        if kind == FileType::Directory {
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            return Ok(AtPath::Folder(openat(last, ".", flags, Mode::empty()).map_err(failed)?));
        }
        // By its name once more: whatever it has become, it is no link, and it does not make us wait.
        let above = self.passed.iter().rev().nth(1).map_or(self.folder.root.as_fd(), |(_, above)| above.as_fd());
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(openat(above, name, flags, Mode::empty()).map_err(failed)?);
        let about = file.metadata().map_err(|error| Missed::Failed { path: self.folder.named(self.whole), error })?;
        if !about.is_file() {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "it is neither a file nor a folder");
            return Err(Missed::Failed { path: self.folder.named(self.whole), error });
        }
        let owner = fstat(&self.folder.root).map_err(failed)?.st_uid;
        if about.nlink() > 1 && about.uid() != owner {
            return Err(Missed::Foreign { file: self.folder.named(self.whole) });
        }
        Ok(AtPath::File(file))
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.passed.last().map_or(self.folder.root.as_fd(), |(_, folder)| folder.as_fd())
    }

    fn leaves(&self, (link, target): (&Path, &Path)) -> Missed {
        Missed::Leaves { folder: self.folder.path.clone(), link: link.to_owned(), target: target.to_owned() }
    }

    fn failed(&self, error: Errno) -> Missed {
        self.folder.failed(self.whole, error)
    }
}

impl Missed {
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Failed { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }
}

impl From<Missed> for Stop {
    fn from(missed: Missed) -> Self {
        match missed {
            Missed::Failed { path, error } => Self::file(&path, &error),
            Missed::TooLarge { file, bytes } => Self::new(
                Code::FileUnusable,
                format!("{} has {}, which is too much", file.display(), words::bytes(bytes)),
            ),
            Missed::Leaves { folder, link, target } => {
                let place = folder.join(&link);
                let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
                let detail = format!(
                    "{} is a link to {}, which is outside of the folder {}",
                    place.display(),
                    target.display(),
                    folder.display()
                );
                Problem::new(Code::LinkLeaves, detail).into()
            }
            Missed::Foreign { file } => {
                let detail = format!("{} is a hard link to a file of another user", file.display());
                Problem::new(Code::LinkLeaves, detail).with_hint("copy the file into the folder").into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// `inside/` with links of every kind, beside `outside/secret.py`.
    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("inside/src/deep")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        fs::write(at("inside/src/own.py"), "own").unwrap();
        fs::write(at("outside/secret.py"), "secret").unwrap();
        for (link, target) in [
            ("inside/absolute.py", at("outside/secret.py")),
            ("inside/relative.py", "../outside/secret.py".into()),
            ("inside/src/deep/up.py", "../../../outside/secret.py".into()),
            ("inside/folder", "../outside".into()),
            ("inside/twice.py", "relative.py".into()),
            ("inside/round.py", "round.py".into()),
            ("inside/back.py", "src/deep/../own.py".into()),
            ("inside/named.py", fs::canonicalize(at("inside")).unwrap().join("src/own.py")),
            ("inside/src/deep/top", "../..".into()),
        ] {
            symlink(target, at(link)).unwrap();
        }
        place
    }

    fn refused(folder: &Folder, inner: &str) -> (PathBuf, PathBuf) {
        match folder.read(Path::new(inner), 100) {
            Err(Missed::Leaves { link, target, .. }) => (link, target),
            other => panic!("{inner}: {other:?}"),
        }
    }

    #[test]
    fn a_link_that_leaves_the_folder_is_named_and_not_read() {
        let place = place();
        let folder = Folder::open(&place.path().join("inside")).unwrap();
        let secret = place.path().join("outside/secret.py");
        let relative = (PathBuf::from("relative.py"), PathBuf::from("../outside/secret.py"));
        assert_eq!(refused(&folder, "absolute.py"), ("absolute.py".into(), secret));
        assert_eq!(refused(&folder, "relative.py"), relative);
        assert_eq!(refused(&folder, "twice.py"), relative, "the link that leaves is named, not the one before it");
        assert_eq!(refused(&folder, "folder/secret.py"), ("folder".into(), "../outside".into()));
        assert_eq!(refused(&folder, "src/deep/up.py").0, Path::new("src/deep/up.py"));
        assert_eq!(refused(&folder, "src/deep/top/relative.py").0, Path::new("relative.py"));
        assert!(matches!(folder.names(Path::new("folder")), Err(Missed::Leaves { .. })));
        let narrow = folder.below(Path::new("src")).unwrap();
        assert!(matches!(narrow.find(Path::new("deep/top")), Err(Missed::Leaves { .. })));
    }

    #[test]
    fn a_link_that_stays_in_the_folder_is_followed() {
        let place = place();
        let folder = Folder::open(&place.path().join("inside")).unwrap();
        for inner in ["src/own.py", "./src/./own.py", "back.py", "named.py", "src/deep/top/src/own.py"] {
            assert_eq!(folder.read(Path::new(inner), 100).unwrap(), b"own", "{inner}");
        }
        assert_eq!(folder.names(Path::new("src/deep")).unwrap(), ["top", "up.py"]);
        assert!(matches!(folder.read(Path::new("round.py"), 100), Err(Missed::Failed { .. })));
    }

    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let place = place();
        let pipe = place.path().join("inside/pipe.py");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let folder = Folder::open(&place.path().join("inside")).unwrap();
        assert!(matches!(folder.read(Path::new("pipe.py"), 100), Err(Missed::Failed { .. })));
    }

    #[test]
    fn a_file_that_is_swapped_for_a_link_is_never_read_through() {
        // The author of the folder changes it while it is read.
        let place = place();
        let inside = place.path().join("inside");
        let folder = Folder::open(&inside).unwrap();
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    fs::write(inside.join("new"), "own").unwrap();
                    fs::rename(inside.join("new"), inside.join("swapped.py")).unwrap();
                    symlink("../outside/secret.py", inside.join("link")).unwrap();
                    fs::rename(inside.join("link"), inside.join("swapped.py")).unwrap();
                }
            });
            for _ in 0..5_000 {
                if let Ok(bytes) = folder.read(Path::new("swapped.py"), 100) {
                    assert_eq!(bytes, b"own");
                }
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
