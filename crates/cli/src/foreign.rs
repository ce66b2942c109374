//! Handlers that were written for another platform: where they stand, and what of them is not carried over.
//!
//! Nothing of their files is changed. `lighter new --from` writes a module beside them that hands their events over,
//! and a manifest; `lighter deploy` looks at them again and names what they use and do not have here. Lines are looked
//! at, nothing is run: what is not found this way fails when the function is started, by name.

use super::stop::Result;
use clap::ValueEnum;
use problem::{Code, Problem};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The entry of a function that `lighter new --from` began.
pub const ENTRY: &str = "lighter_from:handle";
/// Bytes of a source file that are looked at.
const SOURCE_BYTES_MAX: u64 = 1 << 20;
/// Source files that are looked at.
const SOURCES_MAX: usize = 1_000;
/// Folders that hold no source of the handler's own.
const NO_SOURCES: [&str; 4] = ["__pycache__", "venv", "node_modules", "build"];

/// The platform a handler was written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Origin {
    /// AWS Lambda: `handler(event, context)`
    Lambda,
    /// Apache OpenWhisk: `main(args)`
    Openwhisk,
}

/// A handler in Python, as `module.function`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerName {
    pub module: String,
    pub function: String,
}

/// A source file, by its path below the folder.
struct Source {
    path: PathBuf,
    text: String,
}

impl Origin {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lambda => "lambda",
            Self::Openwhisk => "openwhisk",
        }
    }

    /// Names that handlers usually have, the surest first.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Lambda => &["lambda_handler", "handler"],
            Self::Openwhisk => &["main"],
        }
    }
}

impl HandlerName {
    /// Reads `module.function`, as Lambda's configuration has it.
    ///
    /// # Errors
    /// [`Code::Usage`]: it is no such thing.
    pub fn read(text: &str) -> Result<Self> {
        let is_plain = |word: &str| {
            word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && word.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
        };
        let parts = text
            .rsplit_once('.')
            .filter(|(module, function)| module.replace('/', ".").split('.').all(is_plain) && is_plain(function));
        let Some((module, function)) = parts else {
            let problem = Problem::new(Code::Usage, format!("{text:?} is no handler"));
            return Err(problem.with_hint("write it as Lambda does: --handler app.lambda_handler").into());
        };
        Ok(Self { module: module.replace('/', "."), function: function.to_owned() })
    }

    /// The one handler in Python at the top of a folder.
    ///
    /// # Errors
    /// [`Code::ImageMissing`]: there is none, or several.
    pub fn find(folder: &Path, origin: Origin) -> Result<Self> {
        let top: Vec<Source> =
            sources(folder).into_iter().filter(|source| source.path.components().count() == 1).collect();
        for name in origin.names() {
            let (start, later) = (format!("def {name}("), format!("async def {name}("));
            let has =
                |source: &&Source| source.text.lines().any(|line| line.starts_with(&start) || line.starts_with(&later));
            let modules: Vec<String> = top.iter().filter(has).filter_map(|source| module_of(&source.path)).collect();
            match modules.as_slice() {
                [] => {}
                [module] => return Ok(Self { module: module.clone(), function: (*name).to_owned() }),
                several => {
                    let detail = format!("several files have a function {name}: {}", several.join(", "));
                    let hint = format!("say which: --handler {}.{name}", several[0]);
                    return Err(Problem::new(Code::ImageMissing, detail).with_hint(hint).into());
                }
            }
        }
        let names = origin.names().join(" or ");
        let detail = format!("no Python file in {} has a function {names}", folder.display());
        let hint = "name it: --handler MODULE.FUNCTION; handlers in other languages than Python are not carried over";
        Err(Problem::new(Code::ImageMissing, detail).with_hint(hint).into())
    }
}

/// What the handler in a folder uses that it does not have here, one sentence each.
///
/// # Errors
/// [`Code::BundleInvalid`]: it has native code of its own.
pub fn lacks(folder: &Path) -> Result<BTreeSet<String>> {
    if let Some(native) = files(folder).into_iter().find(|path| is_native(path)) {
        let detail = format!("{} is native code, which a bundle cannot hold", native.display());
        let hint = "name its package in requirements.lock: the node installs wheels into the function's base";
        return Err(Problem::new(Code::BundleInvalid, detail).with_hint(hint).into());
    }
    let mut lacks = BTreeSet::new();
    for source in sources(folder).iter().filter(|source| source.path != Path::new("lighter_from.py")) {
        for (number, line) in source.text.lines().enumerate() {
            let place = format!("{}:{}", source.path.display(), number + 1);
            lacks.extend(lacks_of(line).into_iter().map(|what| format!("{place}: {what}")));
        }
    }
    if folder.join("requirements.txt").exists() && !folder.join("requirements.lock").exists() {
        let what =
            "requirements.txt: packages come from requirements.lock alone; `pip-compile --generate-hashes` makes it";
        lacks.insert(what.to_owned());
    }
    for name in ["template.yaml", "template.yml", "serverless.yml", "manifest.yaml", "samconfig.toml"] {
        if folder.join(name).exists() {
            lacks.insert(format!("{name}: triggers, rights, layers and sizes are those of lighter.toml"));
        }
    }
    Ok(lacks)
}

/// What one line of Python asks for and does not get.
fn lacks_of(line: &str) -> Vec<String> {
    let code = line.split('#').next().unwrap_or_default().trim();
    let mut lacks = Vec::new();
    let mut lack = |what: &str| lacks.push(what.to_owned());
    if let Some(package) = imported(code) {
        match package {
            "boto3" | "botocore" | "aws_xray_sdk" | "aws_lambda_powertools" => {
                lack("services of AWS are not here: lighterage.unit has store, queue and http");
            }
            "requests" | "urllib3" | "httpx" | "aiohttp" | "socket" | "smtplib" => {
                lack("a unit has no network: lighterage.unit.http reaches hosts of grants.hosts");
            }
            _ => {}
        }
    }
    if code.contains("urllib.request") || code.contains("http.client") {
        lack("a unit has no network: lighterage.unit.http reaches hosts of grants.hosts");
    }
    if code.contains("statusCode") {
        lack("statusCode is not passed on: below 400 the reply is 200, else a failure (422, 500 or 503)");
    }
    if code.contains("\"headers\":") || code.contains("'headers':") {
        lack("headers of the reply are left out: `reply_type` of the route says its media type");
    }
    if ["context.identity", "context.client_context"].iter().any(|field| code.contains(field)) {
        lack("the context has no identity and no client: it is None");
    }
    if code.contains("os.environ") || code.contains("os.getenv") {
        lack("environment variables come from [function.NAME.environment] in lighter.toml");
    }
    if code.contains("\"/tmp") || code.contains("'/tmp") {
        lack("files are gone after the call: keep what is to stay in lighterage.unit.store");
    }
    lacks
}

/// The package that a line imports.
fn imported(code: &str) -> Option<&str> {
    let rest = code.strip_prefix("import ").or_else(|| code.strip_prefix("from "))?;
    rest.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next().filter(|name| !name.is_empty())
}

fn is_native(path: &Path) -> bool {
    path.extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| ["so", "pyd", "dylib"].contains(&extension))
}

fn module_of(path: &Path) -> Option<String> {
    Some(path.file_stem()?.to_str()?.to_owned())
}

fn sources(folder: &Path) -> Vec<Source> {
    let python = files(folder).into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "py"));
    let read = |path: PathBuf| {
        let file = folder.join(&path);
        let is_small = fs::metadata(&file).is_ok_and(|about| about.len() <= SOURCE_BYTES_MAX);
        let text = is_small.then(|| fs::read_to_string(file).ok()).flatten()?;
        Some(Source { path, text })
    };
    python.filter_map(read).collect()
}

/// Files below a folder, in order, without those of tools. Links are not followed.
fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(place) = open.pop() {
        let Ok(entries) = fs::read_dir(folder.join(&place)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.') && !NO_SOURCES.contains(name)) else {
                continue;
            };
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(place.join(name)),
                Ok(kind) if kind.is_file() && found.len() < SOURCES_MAX => found.push(place.join(name)),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::Stop;
    use tempfile::TempDir;

    fn folder(files: &[(&str, &str)]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        folder
    }

    fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
        match result {
            Err(Stop::Problem(problem)) => problem.code,
            other => panic!("it should be refused: {other:?}"),
        }
    }

    #[test]
    fn a_handler_is_found_by_the_names_they_have_and_named_where_there_are_several() {
        let plain = "import json\n\ndef lambda_handler(event, context):\n    return {}\n";
        let helper = "def handler(x):\n    return x\n";
        let one =
            folder(&[("lambda_function.py", plain), ("tools.py", helper), ("venv/app.py", plain), ("a/b.py", plain)]);
        let found = HandlerName::find(one.path(), Origin::Lambda).unwrap();
        assert_eq!(found, HandlerName { module: "lambda_function".into(), function: "lambda_handler".into() });
        assert_eq!(code(HandlerName::find(one.path(), Origin::Openwhisk)), Code::ImageMissing);
        let two = folder(&[("a.py", plain), ("b.py", plain)]);
        assert_eq!(code(HandlerName::find(two.path(), Origin::Lambda)), Code::ImageMissing);
        let action = folder(&[("hello.py", "async def main(args):\n    return args\n")]);
        assert_eq!(HandlerName::find(action.path(), Origin::Openwhisk).unwrap().function, "main");
    }

    #[test]
    fn a_handler_is_named_as_lambda_names_it() {
        let read = HandlerName::read("src/app.lambda_handler").unwrap();
        assert_eq!((read.module.as_str(), read.function.as_str()), ("src.app", "lambda_handler"));
        for bad in ["app", "app.", ".f", "a b.f", "app.f()", "../app.f", "1.f"] {
            assert_eq!(code(HandlerName::read(bad)), Code::Usage, "{bad}");
        }
    }

    #[test]
    fn what_is_not_carried_over_is_named_with_its_place() {
        let source = "import boto3  # for later\nfrom requests import get\nimport os, json\n\
            TABLE = os.environ['TABLE']\n# os.environ\nreturn {'statusCode': 200, 'headers': {}}\n";
        let found = folder(&[("app.py", source), ("requirements.txt", "boto3"), ("template.yaml", "")]);
        let lacks: Vec<String> = lacks(found.path()).unwrap().into_iter().collect();
        let places = [
            "app.py:1: services",
            "app.py:2: a unit has no network",
            "app.py:4: environment",
            "app.py:6: headers",
            "app.py:6: statusCode",
            "requirements.txt:",
            "template.yaml:",
        ];
        assert_eq!(lacks.len(), places.len(), "{lacks:#?}");
        for (lack, place) in lacks.iter().zip(places) {
            assert!(lack.starts_with(place), "{lack} for {place}");
        }
        assert!(super::lacks(folder(&[("app.py", "def main(args): return args")]).path()).unwrap().is_empty());
    }

    #[test]
    fn a_native_module_is_refused() {
        let native = folder(&[("app.py", ""), ("package/fast.cpython-311-x86_64-linux-gnu.so", "")]);
        assert_eq!(code(lacks(native.path())), Code::BundleInvalid);
    }
}
