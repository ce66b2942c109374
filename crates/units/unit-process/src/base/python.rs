//! The base `python`: an interpreter of this machine, with numpy or with what a lock file names.

use super::commands::{bounded, run, unavailable, watched};
use super::lock::Lock;
use super::{Assignment, Base, Program, normal};
use crate::bundle::About;
use crate::jail::{Bind, SDK};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What a base says of itself, in its folder.
pub const DESCRIPTION: &str = "base.json";

/// The numpy of bases that nobody chose another one for, by the Python it needs.
const NUMPY: [(u32, &str); 2] = [(11, "numpy==2.3.5"), (10, "numpy==2.2.6")];

/// The oldest Python, by its second number.
const PYTHON_MIN: u32 = 10;

/// Says what there is to know of an interpreter: printed as JSON by the interpreter itself.
const PROBE: &str = include_str!("probe.py");

/// Says what is installed in an environment, without running any of it.
const PACKAGES: &str = include_str!("packages.py");

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

/// One that can be used.
#[derive(Debug)]
pub struct PythonBase {
    pub description: Description,
    pub binds: Vec<Bind>,
}

impl Base for PythonBase {
    fn fits(&self, about: &About) -> Result<(), Problem> {
        let Description { python, packages, .. } = &self.description;
        let mismatch = |detail: String, hint: &str| Problem::new(Code::BaseMismatch, detail).with_hint(hint.to_owned());
        let series = |version: &str| version.split('.').take(2).map(str::to_owned).collect::<Vec<_>>();
        if !about.python.is_empty() && series(&about.python) != series(python) {
            let detail = format!("the bundle was made for Python {}, the node's base has {python}", about.python);
            return Err(mismatch(detail, "use the same Python on both sides, or start the node with --python"));
        }
        for wanted in &about.requires {
            let (name, version) = wanted.split_once("==").unwrap_or((wanted, ""));
            let Some(found) = packages.get(&normal(name)) else {
                let detail = format!("the bundle needs {name} {version}, which the node's base does not have");
                return Err(mismatch(detail, "add a requirements.lock to the bundle: the node makes a base of it"));
            };
            let major = |version: &str| version.split('.').next().map(str::to_owned);
            if major(version) != major(found) {
                let detail = format!("the bundle was made with {name} {version}, the node's base has {found}");
                let hint = "use the same version on both sides, or add a requirements.lock to the bundle";
                return Err(mismatch(detail, hint));
            }
        }
        Ok(())
    }

    fn binds(&self) -> &[Bind] {
        &self.binds
    }

    /// The zygote of the Python SDK.
    fn program(&self, assignment: &Assignment<'_>) -> Program {
        let Assignment { about, function, memory_bytes } = assignment;
        let text = |path: &PathBuf| path.display().to_string();
        let paths: Vec<String> =
            std::iter::once(SDK.to_owned()).chain(self.description.paths.iter().map(text)).collect();
        let paths = serde_json::to_string(&paths).expect("texts");
        let script = format!("import sys; sys.path[:0] = {paths}; from lighterage.unit.zygote import main; main()");
        let told = json!({
            "contract": about.contract.as_str(),
            "entry": about.entry,
            "calls": function.units.reuse_calls,
            "memory_bytes": memory_bytes,
        });
        let arguments = ["-I", "-S", "-B", "-X", "utf8", "-W", "ignore::DeprecationWarning:lighterage", "-c", &script];
        Program {
            anew: false,
            path: self.description.executable.clone(),
            arguments: arguments.map(str::to_owned).to_vec(),
            environment: vec![("LIGHTERAGE_UNIT".to_owned(), told.to_string())],
        }
    }
}

/// Makes the base without a lock file, in an empty folder.
pub fn make(folder: &Path, interpreter: Option<&Path>, sdk: &Path) -> Result<Description, Problem> {
    let began = Instant::now();
    let chosen = chosen(interpreter);
    let found = probe(chosen)?;
    check_version(&found)?;
    let description = if interpreter.is_some() && !found.numpy.is_empty() {
        found
    } else {
        let environment = Environment::make(folder, chosen)?;
        environment.install(&[numpy_for(&found.python)])?;
        probe(&environment.python())?
    };
    compile(&description, sdk);
    let speed = speed(&description, sdk)?;
    Ok(finished(Description { speed, ..description }, began))
}

/// Makes the base of a lock file, in an empty folder, beside the plain one. Nothing that it names is run here: one line
/// of a package's `.pth` file would run whenever an interpreter looks for packages.
pub fn derive(
    folder: &Path,
    interpreter: Option<&Path>,
    lock: &Lock,
    plain: &Description,
) -> Result<Description, Problem> {
    let began = Instant::now();
    let environment = Environment::make(folder, chosen(interpreter))?;
    if !lock.names("numpy") {
        environment.install(&[numpy_for(&plain.python)])?;
    }
    let file = folder.join("requirements.lock");
    fs::write(&file, lock.text()).map_err(|error| unavailable(format!("{}: {error}", file.display())))?;
    environment.install(&["--require-hashes", "--requirement", &file.display().to_string()])?;
    let Installed { packages, paths } = environment.installed(plain)?;
    let is_own = |folder: &&PathBuf| !plain.paths.iter().any(|packages| folder.starts_with(packages));
    let description = Description {
        numpy: packages.get("numpy").cloned().unwrap_or_default(),
        libraries: plain.libraries.iter().filter(is_own).cloned().collect(),
        packages,
        paths,
        ..plain.clone()
    };
    Ok(finished(description, began))
}

fn chosen(interpreter: Option<&Path>) -> &Path {
    interpreter.unwrap_or(Path::new("python3"))
}

fn finished(description: Description, began: Instant) -> Description {
    let made_ms = super::now_ms();
    let Description { python, numpy, speed, .. } = &description;
    tracing::info!(target: "lighter::bases", %python, %numpy, speed, seconds = began.elapsed().as_secs(), "a base is made");
    Description { made_ms, ..description }
}

/// A virtual environment that is being made.
pub struct Environment {
    home: PathBuf,
}

/// What is installed in it.
#[derive(Deserialize)]
struct Installed {
    packages: BTreeMap<String, String>,
    paths: Vec<PathBuf>,
}

impl Environment {
    pub fn make(folder: &Path, interpreter: &Path) -> Result<Self, Problem> {
        tracing::info!(target: "lighter::bases", "making a base: a virtual environment with its packages, which takes a while");
        let home = folder.join("venv");
        run(Command::new(interpreter).args(["-I", "-m", "venv"]).arg(&home), "python3 -m venv").map_err(|problem| {
            problem.with_hint(
                "install the package that has venv, on Debian python3-venv, or name another interpreter with --python",
            )
        })?;
        Ok(Self { home })
    }

    fn python(&self) -> PathBuf {
        self.home.join("bin/python")
    }

    /// Wheels alone: a source package would run its own code outside of any jail.
    pub fn install(&self, what: &[&str]) -> Result<(), Problem> {
        let scratch = self.home.join("tmp");
        fs::create_dir(&scratch).map_err(|error| unavailable(format!("{}: {error}", scratch.display())))?;
        let mut pip = bounded(&self.python());
        pip.args(["-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
        pip.args(["--no-cache-dir", "--only-binary", ":all:"]).args(what).env("TMPDIR", &scratch);
        watched(&mut pip, "pip install", Some(&self.home)).map_err(|problem| {
            problem.with_hint("is there a way to the package index? pip's own settings and proxies are used")
        })?;
        fs::remove_dir_all(&scratch).map_err(|error| unavailable(format!("{}: {error}", scratch.display())))
    }

    /// Read by the plain base's interpreter, which looks for no packages of its own.
    fn installed(&self, plain: &Description) -> Result<Installed, Problem> {
        let mut read = bounded(&plain.executable);
        read.args(["-I", "-S", "-B", "-c", PACKAGES]).arg(&self.home);
        let output = run(&mut read, "reading what was installed")?;
        serde_json::from_slice(&output.stdout)
            .map_err(|error| unavailable(format!("what was installed cannot be read: {error}")))
    }
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

/// What a jail may read to run this base: the system's libraries, the interpreter, the packages.
pub fn binds(description: &Description) -> Vec<Bind> {
    let mut more = Vec::new();
    match description.prefix.to_str() {
        Some("/usr") => more.push(description.executable.clone()),
        Some("/usr/local") => more.extend(["/usr/local/lib".into(), description.executable.clone()]),
        _ => more.push(description.prefix.clone()),
    }
    more.extend(description.paths.iter().chain(&description.libraries).cloned());
    super::with_system(more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::{Contract, Runtime};

    fn fit(python: &str, requires: &[&str]) -> Result<(), Problem> {
        let requires = requires.iter().map(|wanted| (*wanted).to_owned()).collect();
        let about = About { python: python.into(), requires, ..About::new(Contract::Call, "a:b", Runtime::Python) };
        let packages = BTreeMap::from([("numpy".to_owned(), "2.3.5".to_owned()), ("a-b".to_owned(), "1.0".to_owned())]);
        let description = Description { python: "3.11.7".into(), packages, ..Description::default() };
        PythonBase { description, binds: Vec::new() }.fits(&about)
    }

    #[test]
    fn a_bundle_fits_the_same_python_and_the_same_major_versions() {
        assert_eq!(fit("", &[]), Ok(()));
        assert_eq!(fit("3.11", &["numpy==2.1.0", "A_b==1.9"]), Ok(()));
        for (python, requires, word) in [
            ("3.12", &[][..], "Python 3.12"),
            ("3.11", &["numpy==1.26.4"], "numpy 1.26.4"),
            ("3.11", &["scipy==1.14.0"], "scipy"),
        ] {
            let problem = fit(python, requires).unwrap_err();
            assert_eq!(problem.code, Code::BaseMismatch);
            assert!(problem.detail.contains(word), "{problem}");
        }
    }
}
