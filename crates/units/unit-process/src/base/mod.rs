//! Bases: the interpreters, virtual machines and packages that bundles run on, made once and kept in the node's data
//! folder.
//!
//! ```text
//!   DATA/bases/
//!     python-KEY/        a virtual environment with numpy, or with what a bundle's lock file adds; base.json says what it is
//!     sdk-HASH/          the Python SDK of this program
//!     java-KEY/          a runtime, the unit half of this program in Java, and the archive from which both start
//!     ready-KIND-ID/     one that was built ahead or imported, named by what is in it
//!     root/              empty: jails mount their own root over it
//! ```
//! A base is named by what it is made of, so the same lock file is installed once. It is made beside its place,
//! synced and then renamed: a base with its name is complete. Bases of lock files that were not used lately are
//! removed.

mod commands;
mod java;
mod lock;
mod python;
pub mod ready;
mod runtime;

pub use java::{JavaBase, JavaBases};
pub use lock::Lock;
pub use python::{Description, PythonBase};

use crate::bundle::About;
use crate::descriptors as fd;
use crate::jail::Bind;
use manifest::Function;
use parking_lot::Mutex;
use problem::{Code, Problem};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use unit_host::pool::Spares;

include!(concat!(env!("OUT_DIR"), "/sdk.rs"));

/// Changed when what is in a base changes though its parts do not.
const LAYOUT: &str = "2";
/// A base in its place.
const BASE: &str = "python-";
/// One that is being made, or removed: not there after a restart.
const NEW: &str = ".new-";
/// Bases of lock files that are kept.
const DERIVED_MAX: usize = 8;

/// What bundles run on. One instance serves all functions that run on it, and is asked again for each jail.
pub trait Base: Send + Sync + 'static {
    /// Whether a bundle can run on it; asked when the bundle is deployed, and when it is loaded.
    ///
    /// # Errors
    /// [`Code::BaseMismatch`] says what there is and what the bundle wants.
    fn fits(&self, about: &About) -> Result<(), Problem>;

    /// What a jail may read to run it.
    fn binds(&self) -> &[Bind];

    /// What runs a function in a jail.
    fn program(&self, assignment: &Assignment<'_>) -> Program;

    /// What a unit takes on it beside what the function's limits say: nothing, unless it says so.
    fn beside(&self) -> Beside {
        Beside::default()
    }

    /// How many units beyond those that calls need are made ahead of need.
    fn spares(&self) -> Spares {
        Spares::new(2, 8)
    }

    /// How long after a call began or ended the units ahead of need are made. Where that takes as much of a processor
    /// as many calls, the call and its reply go first.
    fn spare_pause(&self) -> Duration {
        Duration::ZERO
    }
}

/// What a unit of a base takes for itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beside {
    pub memory_bytes: u64,
    pub processes: u32,
}

/// The function that a base is to run.
pub struct Assignment<'a> {
    pub about: &'a About,
    pub function: &'a Function,
    /// What each unit may have, where no control group bounds it and the base has to.
    pub memory_bytes: Option<u64>,
}

/// A program with its arguments, and with what its environment has beside the function's own.
pub struct Program {
    /// It is started for each unit, which finds its socket at descriptor 0, and says that it is ready or why it never
    /// will be. Else it is a zygote: it is started once, and finds the control socket there.
    pub anew: bool,
    pub path: PathBuf,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
}

/// All bases of a node.
pub struct Bases {
    folder: PathBuf,
    interpreter: Option<PathBuf>,
    sdk: PathBuf,
    /// By key.
    known: Mutex<BTreeMap<String, Arc<PythonBase>>>,
    /// Held while the plain base is made: two deployments do not install the same packages twice.
    making: Mutex<()>,
    /// Held while one is made of a lock file. One after the other: on a small machine two would be no faster.
    deriving: Mutex<()>,
}

impl Bases {
    /// Opens the folder; makes nothing yet but small things. `interpreter` takes the place of `python3`.
    pub fn open(folder: &Path, interpreter: Option<PathBuf>) -> Result<Self, Problem> {
        let failed = |error: io::Error| Problem::new(Code::DataUnusable, format!("{}: {error}", folder.display()));
        make_folder(folder).map_err(failed)?;
        let folder = folder.canonicalize().map_err(failed)?;
        ready::take_back(&folder).map_err(failed)?;
        for entry in fs::read_dir(&folder).map_err(failed)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(NEW) {
                fs::remove_dir_all(entry.path()).map_err(failed)?;
            }
        }
        // Nothing runs on any of them yet.
        ready::remove_older(&folder);
        make_folder(&folder.join("root")).map_err(failed)?;
        let sdk = folder.join(format!("sdk-{}", sdk_hash()));
        if !sdk.exists() {
            unpack_sdk(&folder, &sdk).map_err(failed)?;
        }
        Ok(Self {
            folder,
            interpreter,
            sdk,
            known: Mutex::default(),
            making: Mutex::default(),
            deriving: Mutex::default(),
        })
    }

    pub fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    /// The folder over which jails mount their root.
    pub fn staging(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// The plain base if it is there already: a question that takes no time.
    pub fn there(&self) -> Option<Arc<PythonBase>> {
        self.kept(&self.key(None))
    }

    /// The base for a bundle with this lock file; made if it is not there, which may take minutes.
    ///
    /// # Errors
    /// [`Code::BundleInvalid`]: the lock file has more than packages and hashes. [`Code::BaseUnavailable`] says what it
    /// wanted for.
    pub fn get(&self, lock: Option<&[u8]>) -> Result<Arc<PythonBase>, Problem> {
        let Some(lock) = lock else { return self.plain() };
        let lock = Lock::read(lock)?;
        let key = self.key(Some(&lock));
        let base = match self.kept(&key) {
            Some(base) => base,
            None => {
                let plain = self.plain()?;
                let _turn = self.deriving.lock();
                // Another one may have made it meanwhile.
                self.kept(&key).map_or_else(|| self.derive(&key, &lock, &plain), Ok)?
            }
        };
        self.used(&key);
        Ok(base)
    }

    fn plain(&self) -> Result<Arc<PythonBase>, Problem> {
        let key = self.key(None);
        if let Some(base) = self.kept(&key) {
            return Ok(base);
        }
        let _turn = self.making.lock();
        self.kept(&key)
            .map_or_else(|| self.make(&key, |new| python::make(new, self.interpreter.as_deref(), &self.sdk)), Ok)
    }

    fn derive(&self, key: &str, lock: &Lock, plain: &PythonBase) -> Result<Arc<PythonBase>, Problem> {
        let derive = |new: &Path| python::derive(new, self.interpreter.as_deref(), lock, &plain.description);
        let base = self.make(key, derive)?;
        self.tidy();
        Ok(base)
    }

    /// The base of this key, if it is there.
    fn kept(&self, key: &str) -> Option<Arc<PythonBase>> {
        let mut known = self.known.lock();
        if let Some(base) = known.get(key).filter(|base| base.description.executable.exists()) {
            return Some(base.clone());
        }
        let base = Arc::new(self.base(self.read(key)?));
        known.insert(key.to_owned(), base.clone());
        Some(base)
    }

    /// Removes the bases of lock files that were not asked for the longest, over [`DERIVED_MAX`]. One that a function
    /// holds stays; a function that has lost its base while it was idle gets it made again.
    fn tidy(&self) {
        let plain = self.key(None);
        let mut known = self.known.lock();
        let mut found: Vec<(SystemTime, String)> = fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let key = entry.file_name().to_str()?.strip_prefix(BASE)?.to_owned();
                let used = fs::metadata(entry.path().join(python::DESCRIPTION)).and_then(|file| file.modified());
                (key != plain).then_some((used.unwrap_or(SystemTime::UNIX_EPOCH), key))
            })
            .collect();
        found.sort();
        let mut over = found.len().saturating_sub(DERIVED_MAX);
        let mut gone = Vec::new();
        for (_, key) in found {
            if over == 0 {
                break;
            }
            if known.get(&key).is_some_and(|base| Arc::strong_count(base) > 1) {
                continue;
            }
            known.remove(&key);
            let place = self.folder.join(format!("{NEW}gone-{key}"));
            if fs::rename(self.place(&key), &place).is_ok() {
                gone.push((key, place));
                over -= 1;
            }
        }
        drop(known);
        for (key, place) in gone {
            tracing::info!(target: "lighter::bases", base = %key, "removed: {DERIVED_MAX} bases of lock files were used since");
            if let Err(error) = fs::remove_dir_all(&place) {
                tracing::warn!(target: "lighter::bases", "{}: {error}", place.display());
            }
        }
    }

    /// Notes when a base was asked for, for [`Bases::tidy`].
    fn used(&self, key: &str) {
        let file = File::open(self.place(key).join(python::DESCRIPTION));
        if let Err(error) = file.and_then(|file| file.set_modified(SystemTime::now())) {
            tracing::warn!(target: "lighter::bases", base = %key, "noting that it is used: {error}");
        }
    }

    fn place(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{BASE}{key}"))
    }

    fn base(&self, description: Description) -> PythonBase {
        let sdk = Bind::Path { source: self.sdk.clone(), target: crate::jail::SDK.into() };
        let binds = python::binds(&description).into_iter().chain([sdk]).collect();
        PythonBase { description, binds }
    }

    /// What a base is made of, as a name.
    fn key(&self, lock: Option<&Lock>) -> String {
        let mut hash = Sha256::new();
        let interpreter = self.interpreter.as_deref().unwrap_or(Path::new("python3"));
        let lock = lock.map(Lock::text).unwrap_or_default();
        for part in [LAYOUT.as_bytes(), interpreter.as_os_str().as_encoded_bytes(), lock.as_bytes()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        short(&hash.finalize())
    }

    fn read(&self, key: &str) -> Option<Description> {
        let text = fs::read(self.place(key).join(python::DESCRIPTION)).ok()?;
        let description: Description = serde_json::from_slice(&text).ok()?;
        (description.executable.exists() && description.paths.iter().all(|path| path.exists())).then_some(description)
    }

    /// Makes a base beside its place.
    fn make(
        &self,
        key: &str,
        make: impl FnOnce(&Path) -> Result<Description, Problem>,
    ) -> Result<Arc<PythonBase>, Problem> {
        let failed =
            |error: io::Error| Problem::new(Code::BaseUnavailable, format!("{}: {error}", self.folder.display()));
        let (new, place) = (self.folder.join(format!("{NEW}{key}")), self.place(key));
        fs::remove_dir_all(&place).or_else(gone_is_fine).map_err(failed)?;
        make_folder(&new).map_err(failed)?;
        let made = make(&new).and_then(|description| {
            // Its paths are those it will have.
            let description = description.moved(&new, &place);
            let text = serde_json::to_vec_pretty(&description).expect("texts and numbers");
            fs::write(new.join(python::DESCRIPTION), text).map_err(failed)?;
            open_for_reading(&new).map_err(failed)?;
            put_in_place(&new, &place).map_err(failed)?;
            Ok(description)
        });
        if made.is_err() {
            fs::remove_dir_all(&new).ok();
        }
        let base = Arc::new(self.base(made?));
        self.known.lock().insert(key.to_owned(), base.clone());
        Ok(base)
    }
}

/// What a jail may read: the system's libraries, and what of these there is beside them.
fn with_system(more: Vec<PathBuf>) -> Vec<Bind> {
    let mut binds = Vec::new();
    for folder in ["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64"].map(Path::new) {
        match fs::read_link(folder) {
            Ok(to) => binds.push(Bind::Link { at: folder.into(), to }),
            Err(_) if folder.is_dir() => binds.push(Bind::same(folder)),
            Err(_) => {}
        }
    }
    let system = ["/etc/ld.so.cache", "/usr/share/zoneinfo"].map(PathBuf::from);
    for path in system.into_iter().chain(more).filter(|path| path.exists()) {
        let covered = binds.iter().any(|bind| match bind {
            Bind::Path { target, .. } => path.starts_with(target),
            Bind::Link { at, .. } => path.starts_with(at),
        });
        if !covered {
            binds.push(Bind::same(path));
        }
    }
    binds
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A package's name as indexes compare it.
pub fn normal(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

fn sdk_hash() -> String {
    let mut hash = Sha256::new();
    for (path, content) in SDK {
        hash.update((path.len() as u64).to_le_bytes());
        hash.update(path);
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(content);
    }
    short(&hash.finalize())
}

/// What artefacts depend on: bundles are taken as they are.
pub fn fingerprint() -> String {
    format!("bundle-{LAYOUT}")
}

fn short(hash: &[u8]) -> String {
    hash.iter().take(8).fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

fn unpack_sdk(folder: &Path, place: &Path) -> io::Result<()> {
    let new = folder.join(format!("{NEW}sdk"));
    for (path, content) in SDK {
        let path = new.join(path);
        path.parent().map_or(Ok(()), make_folder)?;
        fs::write(path, content)?;
    }
    open_for_reading(&new)?;
    put_in_place(&new, place)
}

/// Gives what was made at `new` its name, once all of it is on the disk: what has it after a power cut is whole.
fn put_in_place(new: &Path, place: &Path) -> io::Result<()> {
    fd::sync_file_system(File::open(new)?)?;
    fs::rename(new, place)?;
    place.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// Whoever a jail's user is may read what is in it; the data folder itself stays closed.
fn open_for_reading(path: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(path)?;
    if kind.is_symlink() {
        return Ok(());
    }
    let mode = kind.permissions().mode();
    let more = if kind.is_dir() || mode & 0o100 != 0 { 0o555 } else { 0o444 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode | more))?;
    if kind.is_dir() {
        for entry in fs::read_dir(path)? {
            open_for_reading(&entry?.path())?;
        }
    }
    Ok(())
}

fn gone_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
