//! Handlers that were written for another platform: where they are, and what they lose here.
//!
//! Nothing of their files is changed. `lighter new --from` writes beside them what hands their events over, and a
//! manifest; `lighter deploy` looks at them again and names what they use and do not have here. Lines are looked at,
//! nothing is run: what is not found this way fails by name, in Python when the function is started, in JavaScript when
//! it is built or when a call comes upon it.

mod javascript;
mod python;

use super::stop::Result;
use clap::ValueEnum;
use manifest::Function;
use problem::{Code, Problem};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The entry of a function in Python that `lighter new --from` began.
pub const ENTRY: &str = "lighter_from:handle";
/// Where the image of one in JavaScript is made, and all that makes it.
pub const FOLDER: &str = "lighter_from";
/// Bytes of a source file that are looked at.
const SOURCE_BYTES_MAX: u64 = 1 << 20;
/// Source files that are looked at.
const SOURCES_MAX: usize = 1_000;
/// Folders that hold no source of the handler's own.
const NO_SOURCES: [&str; 5] = ["__pycache__", "venv", "node_modules", "build", FOLDER];
/// What other platforms are told of a function.
const SETTINGS: [&str; 5] = ["template.yaml", "template.yml", "serverless.yml", "manifest.yaml", "samconfig.toml"];

/// The platform a handler was written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Origin {
    /// AWS Lambda: `handler(event, context)`
    Lambda,
    /// Apache OpenWhisk: `main(args)`
    Openwhisk,
}

/// What a handler is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    Python,
    /// Or TypeScript, whose types the build leaves out.
    Javascript,
}

/// A handler: a module of Python, or a file of JavaScript by its path below the folder, and a function in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerName {
    pub script: Script,
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

impl Script {
    const ALL: [Self; 2] = [Self::Python, Self::Javascript];

    /// Whether a file is one of its sources.
    fn has(self, path: &Path) -> bool {
        let ends = match self {
            Self::Python => python::ENDS,
            Self::Javascript => javascript::ENDS,
        };
        path.extension().and_then(|end| end.to_str()).is_some_and(|end| ends.contains(&end))
    }

    /// Whether a line of its sources begins the function.
    fn begins(self, line: &str, function: &str) -> bool {
        match self {
            Self::Python => python::begins(line, function),
            Self::Javascript => javascript::begins(line, function),
        }
    }

    /// What names the module that a file is, if it can be named.
    fn module_of(self, path: &Path) -> Option<String> {
        match self {
            Self::Python => path.file_stem()?.to_str().filter(|stem| is_module(stem)).map(str::to_owned),
            Self::Javascript => path.to_str().filter(|path| is_path(path)).map(str::to_owned),
        }
    }
}

impl HandlerName {
    /// Reads `module.function`, as Lambda's configuration has it. A file of JavaScript in the folder is found by it.
    ///
    /// # Errors
    /// [`Code::Usage`]: it is no such thing.
    pub fn read(text: &str, folder: &Path) -> Result<Self> {
        let is_plain = |word: &str| {
            word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && word.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
        };
        let refused = || {
            let problem = Problem::new(Code::Usage, format!("{text:?} is not a handler"));
            problem.with_hint("write it as Lambda does: --handler app.lambda_handler, or --handler src/index.handler")
        };
        let (module, function) =
            text.rsplit_once('.').filter(|(_, function)| is_plain(function)).ok_or_else(refused)?;
        if is_path(module)
            && let Some(file) = javascript::file_of(folder, module)
        {
            return Ok(Self { script: Script::Javascript, module: file, function: function.to_owned() });
        }
        let module = module.replace('/', ".");
        if !module.split('.').all(is_module) {
            return Err(refused().into());
        }
        Ok(Self { script: Script::Python, module, function: function.to_owned() })
    }

    /// The one handler at the top of a folder.
    ///
    /// # Errors
    /// [`Code::ImageMissing`]: there is none, or several.
    pub fn find(folder: &Path, origin: Origin) -> Result<Self> {
        let mut nameless = None;
        for function in origin.names() {
            let mut found = Vec::new();
            for script in Script::ALL {
                let has = |source: &Source| source.text.lines().any(|line| script.begins(line, function));
                let top = sources(folder, script).into_iter().filter(|source| source.path.components().count() == 1);
                for Source { path, .. } in top.filter(has) {
                    match script.module_of(&path) {
                        Some(module) => found.push(Self { script, module, function: (*function).to_owned() }),
                        None => nameless = Some(path),
                    }
                }
            }
            match found.as_slice() {
                [] => {}
                [one] => return Ok(one.clone()),
                several => {
                    let modules: Vec<&str> = several.iter().map(|one| one.module.as_str()).collect();
                    let detail = format!("several files have a function {function}: {}", modules.join(", "));
                    let hint = format!("say which: --handler {}", several[0].as_lambda_has_it());
                    return Err(Problem::new(Code::ImageMissing, detail).with_hint(hint).into());
                }
            }
        }
        if let Some(path) = nameless {
            let detail = format!("{} has the handler, and its name is not that of a module", path.display());
            let hint = "rename the file: letters, digits, _ and - stand in the name of a module";
            return Err(Problem::new(Code::ImageMissing, detail).with_hint(hint).into());
        }
        let names = origin.names().join(" or ");
        let detail = format!("no file in Python or JavaScript in {} has a function {names}", folder.display());
        let hint = "name it: --handler MODULE.FUNCTION; handlers in other languages are not carried over";
        Err(Problem::new(Code::ImageMissing, detail).with_hint(hint).into())
    }

    /// As Lambda's configuration has it: a file without its ending.
    pub fn as_lambda_has_it(&self) -> String {
        let module = match self.script {
            Script::Python => &self.module,
            Script::Javascript => self.module.rsplit_once('.').map_or(self.module.as_str(), |(module, _)| module),
        };
        format!("{module}.{}", self.function)
    }
}

/// Whether it can name a module of Python, or a package on the way to one, in letters that mean nothing to Python. It
/// need not be an identifier: importlib takes any name.
fn is_module(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '-'))
}

/// Whether it leads to a file below, in letters that mean nothing to JavaScript.
fn is_path(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    text.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && part.bytes().all(is_plain))
}

/// What `lighter new --from` began the function with, if it did.
pub fn adopted(function: &Function) -> Option<Script> {
    if function.entry.as_deref() == Some(ENTRY) {
        return Some(Script::Python);
    }
    Path::new(&function.image).starts_with(FOLDER).then_some(Script::Javascript)
}

/// What the handler in a folder uses that it does not have here, one sentence each.
///
/// # Errors
/// [`Code::BundleInvalid`], [`Code::HandlerForeign`]: it has native code of its own.
pub fn lacks(folder: &Path, script: Script) -> Result<BTreeSet<String>> {
    let mut lacks = match script {
        Script::Python => python::lacks(folder)?,
        Script::Javascript => javascript::lacks(folder)?,
    };
    for name in SETTINGS {
        if folder.join(name).exists() {
            lacks.insert(format!("{name}: triggers, rights, layers and sizes are those of lighter.toml"));
        }
    }
    Ok(lacks)
}

/// What the lines of all sources ask for and do not get, with their places.
fn lacks_of(folder: &Path, script: Script, lacks: impl Fn(&str) -> Vec<String>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for source in sources(folder, script) {
        for (number, line) in source.text.lines().enumerate() {
            let place = format!("{}:{}", source.path.display(), number + 1);
            all.extend(lacks(line).into_iter().map(|what| format!("{place}: {what}")));
        }
    }
    all
}

/// The first file that ends like native code.
fn native(folder: &Path, ends: &[&str]) -> Option<PathBuf> {
    let is_native = |path: &PathBuf| {
        path.extension().and_then(|extension| extension.to_str()).is_some_and(|extension| ends.contains(&extension))
    };
    files(folder).into_iter().find(is_native)
}

fn sources(folder: &Path, script: Script) -> Vec<Source> {
    let own = files(folder).into_iter().filter(|path| script.has(path));
    let read = |path: PathBuf| {
        let file = folder.join(&path);
        let is_small = fs::metadata(&file).is_ok_and(|about| about.len() <= SOURCE_BYTES_MAX);
        let text = is_small.then(|| fs::read_to_string(file).ok()).flatten()?;
        Some(Source { path, text })
    };
    own.filter_map(read).collect()
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
        assert_eq!(
            found,
            HandlerName { script: Script::Python, module: "lambda_function".into(), function: "lambda_handler".into() }
        );
        assert_eq!(code(HandlerName::find(one.path(), Origin::Openwhisk)), Code::ImageMissing);
        let two = folder(&[("a.py", plain), ("b.py", plain)]);
        assert_eq!(code(HandlerName::find(two.path(), Origin::Lambda)), Code::ImageMissing);
        let action = folder(&[("say-hello.py", "async def main(args):\n    return args\n")]);
        let found = HandlerName::find(action.path(), Origin::Openwhisk).unwrap();
        assert_eq!((found.module.as_str(), found.function.as_str()), ("say-hello", "main"));
    }

    #[test]
    fn a_file_whose_name_would_be_code_is_no_handler() {
        let plain = "def main(args):\n    return args\n";
        for name in ["a\").system(\"x.py", "a b.py", "a.b.py", "a\\x.py", "a\nimport os.py"] {
            let folder = folder(&[(name, plain)]);
            let Err(Stop::Problem(problem)) = HandlerName::find(folder.path(), Origin::Openwhisk) else {
                panic!("{name:?} should be refused")
            };
            assert_eq!(problem.code, Code::ImageMissing);
            assert!(problem.detail.starts_with(name) && problem.hint.contains("rename"), "{problem}");
            fs::write(folder.path().join("ab.py"), plain).unwrap();
            assert_eq!(HandlerName::find(folder.path(), Origin::Openwhisk).unwrap().module, "ab");
        }
    }

    #[test]
    fn a_handler_is_named_as_lambda_names_it() {
        let folder = folder(&[("src/my-app.mjs", ""), ("out/index.js", "")]);
        let read = |text: &str| HandlerName::read(text, folder.path());
        let named = |text: &str| read(text).map(|read| (read.module, read.function)).unwrap();
        assert_eq!(named("src/app.lambda_handler"), ("src.app".into(), "lambda_handler".into()));
        assert_eq!(named("src/my-app.handler"), ("src/my-app.mjs".into(), "handler".into()));
        assert_eq!(named("out/index.main"), ("out/index.js".into(), "main".into()));
        assert_eq!(named("src/other-app.f"), ("src.other-app".into(), "f".into()));
        assert_eq!(named("1.f"), ("1".into(), "f".into()));
        for bad in ["app", "app.", ".f", "a b.f", "app.f()", "../app.f", "a\".f", "app.my-f", "../out/index.f"] {
            assert_eq!(code(read(bad)), Code::Usage, "{bad}");
        }
    }

    #[test]
    fn a_handler_in_javascript_is_found_however_it_is_exported() {
        for source in [
            "exports.handler = async (event) => event;",
            "module.exports.handler = (event, context, callback) => callback(null, event);",
            "module.exports = { handler };",
            "export const handler = async (event) => event;",
            "export async function handler(event) {}",
            "export { handler };",
            "export let handler: Handler = async (event) => event;",
        ] {
            let one = folder(&[("src.py", ""), ("index.mjs", source), ("lighter_from/main.js", source)]);
            let found = HandlerName::find(one.path(), Origin::Lambda).unwrap();
            assert_eq!((found.script, found.module.as_str()), (Script::Javascript, "index.mjs"), "{source}");
            assert_eq!(found.as_lambda_has_it(), "index.handler");
        }
        for source in ["function main(args) {", "async function main({ name }) {", "const main = (args) => args;"] {
            let found = HandlerName::find(folder(&[("hello.js", source)]).path(), Origin::Openwhisk).unwrap();
            assert_eq!((found.module.as_str(), found.function.as_str()), ("hello.js", "main"));
        }
        for source in ["// exports.handler = 1", "    exports.handler = 1;", "function handlers() {}", "handler();"] {
            let none = folder(&[("index.js", source)]);
            assert_eq!(code(HandlerName::find(none.path(), Origin::Lambda)), Code::ImageMissing, "{source}");
        }
        let two = folder(&[("a.py", "def main(args):\n"), ("a.js", "function main(args) {}\n")]);
        assert_eq!(code(HandlerName::find(two.path(), Origin::Openwhisk)), Code::ImageMissing);
    }

    #[test]
    fn what_is_not_carried_over_of_javascript_is_named_with_its_place() {
        let source = "const fs = require('fs');\nimport { spawn } from \"node:child_process\";\n\
            import https from 'https'; // for later\nconst s3 = require(\"@aws-sdk/client-s3\");\n// require('net')\n\
            const path = require('path');\nreturn { statusCode: 200, headers: {} };\nawait import('worker_threads');\n";
        let found = folder(&[("index.js", source), ("lighter_from/x.js", source), ("serverless.yml", "")]);
        let lacks: Vec<String> = lacks(found.path(), Script::Javascript).unwrap().into_iter().collect();
        let places = [
            "index.js:1: fs is not here: a unit has no files",
            "index.js:2: child_process is not here",
            "index.js:3: https is not here: use fetch",
            "index.js:4: services of AWS",
            "index.js:7: headers",
            "index.js:7: statusCode",
            "index.js:8: worker_threads is not here",
            "serverless.yml:",
        ];
        assert_eq!(lacks.len(), places.len(), "{lacks:#?}");
        for (lack, place) in lacks.iter().zip(places) {
            assert!(lack.starts_with(place), "{lack} for {place}");
        }
    }

    #[test]
    fn what_is_not_carried_over_is_named_with_its_place() {
        let source = "import boto3  # for later\nfrom requests import get\nimport os, json\n\
            TABLE = os.environ['TABLE']\n# os.environ\nreturn {'statusCode': 200, 'headers': {}}\n";
        let found = folder(&[("app.py", source), ("requirements.txt", "boto3"), ("template.yaml", "")]);
        let lacks: Vec<String> = lacks(found.path(), Script::Python).unwrap().into_iter().collect();
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
        let plain = folder(&[("app.py", "def main(args): return args")]);
        assert!(super::lacks(plain.path(), Script::Python).unwrap().is_empty());
    }

    #[test]
    fn a_native_module_is_refused() {
        let native = folder(&[("app.py", ""), ("package/fast.cpython-311-x86_64-linux-gnu.so", "")]);
        assert_eq!(code(lacks(native.path(), Script::Python)), Code::BundleInvalid);
        let native = folder(&[("index.js", ""), ("fast.node", "")]);
        assert_eq!(code(lacks(native.path(), Script::Javascript)), Code::HandlerForeign);
    }
}
