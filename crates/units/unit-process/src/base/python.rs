//! The base `python`: an interpreter of this machine, with numpy or with what a lock file names.

use crate::jail::Bind;
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What a base says of itself, in its folder.
pub const DESCRIPTION: &str = "base.json";

/// The numpy of bases that nobody chose another one for, by the Python it needs.
const NUMPY: [(u32, &str); 2] = [(11, "numpy==2.3.5"), (10, "numpy==2.2.6")];

/// The oldest Python, by its second number.
const PYTHON_MIN: u32 = 10;

/// Says what there is to know of an interpreter: printed as JSON by the interpreter itself.
const PROBE: &str = include_str!("probe.py");

/// What a base is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Description {
    pub python: String,
    pub implementation: String,
    /// Empty without numpy.
    pub numpy: String,
    /// Versions by name.
    pub packages: BTreeMap<String, String>,
    /// The real interpreter.
    pub executable: PathBuf,
    /// Where the interpreter's own files are.
    pub prefix: PathBuf,
    /// Folders of packages, as they go before the standard library's.
    pub paths: Vec<PathBuf>,
    /// Folders of libraries that the interpreter and numpy map.
    pub libraries: BTreeSet<PathBuf>,
    /// `lighterage.benchmark.speed()` on this machine.
    pub speed: f64,
    pub made_ms: u64,
}

impl Description {
    /// The same after its folder was renamed.
    pub fn moved(mut self, from: &Path, to: &Path) -> Self {
        let moved = |path: &PathBuf| path.strip_prefix(from).map_or_else(|_| path.clone(), |below| to.join(below));
        self.paths = self.paths.iter().map(moved).collect();
        self.libraries = self.libraries.iter().map(moved).collect();
        self
    }
}

/// Makes a base in an empty folder.
pub fn make(
    folder: &Path,
    interpreter: Option<&Path>,
    lock: Option<&[u8]>,
    sdk: &Path,
) -> Result<Description, Problem> {
    let began = Instant::now();
    let chosen = interpreter.unwrap_or(Path::new("python3"));
    let found = probe(chosen)?;
    check_version(&found)?;
    let description = match (interpreter, lock) {
        (Some(_), None) if !found.numpy.is_empty() => found,
        _ => {
            tracing::info!(target: "lighter::bases", python = %found.python, "making a base: a virtual environment with its packages, which takes a while");
            install(folder, chosen, &found, lock)?
        }
    };
    compile(&description, sdk);
    let speed = speed(&description, sdk)?;
    let made_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let Description { python, numpy, .. } = &description;
    tracing::info!(target: "lighter::bases", %python, %numpy, speed, seconds = began.elapsed().as_secs(), "a base is made");
    Ok(Description { speed, made_ms, ..description })
}

fn install(folder: &Path, chosen: &Path, found: &Description, lock: Option<&[u8]>) -> Result<Description, Problem> {
    let home = folder.join("venv");
    let path = |path: &Path| path.display().to_string();
    run(Command::new(chosen).args(["-I", "-m", "venv", &path(&home)]), "python3 -m venv").map_err(|problem| {
        problem.with_hint(
            "install the package that has venv, on Debian python3-venv, or name another interpreter with --python",
        )
    })?;
    let python = home.join("bin/python");
    let pip = |arguments: &[&str]| {
        let mut pip = Command::new(&python);
        // Wheels alone: a source package would run its own code outside of any jail.
        pip.args(["-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
        pip.args(["--only-binary", ":all:"]).args(arguments);
        run(&mut pip, "pip install").map_err(|problem| {
            problem.with_hint("is there a way to the package index? pip's own settings and proxies are used")
        })
    };
    let locked = lock.map(String::from_utf8_lossy).unwrap_or_default();
    if !locked.lines().any(|line| line.trim_start().starts_with("numpy==")) {
        pip(&[numpy_for(&found.python)])?;
    }
    if lock.is_some() {
        let file = folder.join("requirements.lock");
        fs::write(&file, locked.as_bytes()).map_err(|error| unavailable(format!("{}: {error}", file.display())))?;
        pip(&["--require-hashes", "--requirement", &path(&file)])?;
    }
    probe(&python)
}

fn numpy_for(python: &str) -> &'static str {
    let minor = minor(python);
    NUMPY.iter().find(|(since, _)| minor >= *since).unwrap_or(&NUMPY[NUMPY.len() - 1]).1
}

fn minor(python: &str) -> u32 {
    python.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0)
}

fn check_version(found: &Description) -> Result<(), Problem> {
    let Description { python, implementation, executable, .. } = found;
    if implementation != "CPython" || !python.starts_with("3.") || minor(python) < PYTHON_MIN {
        let detail = format!(
            "{} is {implementation} {python}, a base needs CPython 3.{PYTHON_MIN} or newer",
            executable.display()
        );
        return Err(unavailable(detail).with_hint("name another interpreter with --python"));
    }
    Ok(())
}

fn probe(interpreter: &Path) -> Result<Description, Problem> {
    let output = run(Command::new(interpreter).args(["-I", "-c", PROBE]), "python3")
        .map_err(|problem| problem.with_hint("install Python 3, or name an interpreter with --python"))?;
    serde_json::from_slice(&output.stdout)
        .map_err(|error| unavailable(format!("{} does not say what it is: {error}", interpreter.display())))
}

/// Bytecode of the SDK for this interpreter. Without it all works, and starts a little later.
fn compile(description: &Description, sdk: &Path) {
    let mut compile = Command::new(&description.executable);
    compile.args(["-I", "-S", "-m", "compileall", "-q"]).arg(sdk);
    if let Err(problem) = run(&mut compile, "python3 -m compileall") {
        tracing::warn!(target: "lighter::bases", "{}", problem.detail);
    }
}

fn speed(description: &Description, sdk: &Path) -> Result<f64, Problem> {
    let paths: Vec<String> =
        std::iter::once(sdk).chain(description.paths.iter().map(PathBuf::as_path)).map(quoted).collect();
    let script = format!(
        "import sys; sys.path[:0] = [{}]; from lighterage.benchmark import speed; print(speed())",
        paths.join(", ")
    );
    let output = run(
        Command::new(&description.executable).args(["-I", "-S", "-B", "-c", &script]),
        "the benchmark of the base",
    )?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| unavailable(format!("the benchmark of the base says {text:?}")))
}

/// A path as a literal of Python.
fn quoted(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}

fn run(command: &mut Command, what: &str) -> Result<Output, Problem> {
    // Virtual environments of whoever started the node are no business of its bases.
    let output = command
        .stdin(Stdio::null())
        .env_remove("PYTHONHOME")
        .env_remove("PYTHONPATH")
        .env_remove("VIRTUAL_ENV")
        .output();
    let output = output.map_err(|error| unavailable(format!("{what}: {:?}: {error}", command.get_program())))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = if said.trim().is_empty() { String::from_utf8_lossy(&output.stdout) } else { said };
        let last: Vec<&str> = said.trim().lines().rev().take(5).collect();
        let last = last.into_iter().rev().collect::<Vec<_>>().join(" | ");
        return Err(unavailable(format!("{what} ended with {}: {last}", output.status)));
    }
    Ok(output)
}

fn unavailable(detail: String) -> Problem {
    Problem::new(Code::BaseUnavailable, detail)
}

/// What a jail may read to run this base: the system's libraries, the interpreter, the packages.
pub fn binds(description: &Description) -> Vec<Bind> {
    let mut binds = Vec::new();
    for folder in ["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64"].map(Path::new) {
        match fs::read_link(folder) {
            Ok(to) => binds.push(Bind::Link { at: folder.into(), to }),
            Err(_) if folder.is_dir() => binds.push(Bind::same(folder)),
            Err(_) => {}
        }
    }
    let mut more: Vec<PathBuf> = ["/etc/ld.so.cache", "/usr/share/zoneinfo"].map(PathBuf::from).to_vec();
    match description.prefix.to_str() {
        Some("/usr") => more.push(description.executable.clone()),
        Some("/usr/local") => more.extend(["/usr/local/lib".into(), description.executable.clone()]),
        _ => more.push(description.prefix.clone()),
    }
    more.extend(description.paths.iter().chain(&description.libraries).cloned());
    for path in more.into_iter().filter(|path| path.exists()) {
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
