//! A bundle: a function's own code for a base, in one file named by its hash. Its first member says what it is.
//!
//! ```json
//! {"contract":"event","entry":"app:handle","format":1,"python":"3.11","requires":["numpy==2.1.0"]}
//! {"contract":"event","entry":"app.Hello::handle","format":2,"requires":[],"runtime":"java"}
//! {"contract":"event","entry":"app.Faces::count","format":2,"requires":[],"runtime":"android"}
//! ```

use crate::base::Lock;
use crate::{android, jar, tar};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;

/// The member that says what a bundle is.
const ABOUT: &str = "bundle.json";
/// The member with the packages a bundle needs beside the base's own.
pub const LOCK: &str = "requirements.lock";
const FORMAT: u32 = 1;
/// Of bundles that say what they run on.
const FORMAT_JAVA: u32 = 2;
/// Bytes of what a bundle says of itself: read, they take many times as much memory.
const ABOUT_BYTES_MAX: usize = 256 << 10;
/// Bytes of all source together, as in the Python SDK.
pub const BYTES_MAX: usize = 8 << 20;
pub const FILES_MAX: usize = 2_000;
/// Bytes of all jars together, and how many there may be.
pub const JARS_BYTES_MAX: usize = 32 << 20;
const JARS_MAX: usize = 200;
/// Where the jars are that a function's own needs.
const LIBS: &str = "libs/";

/// What a bundle is: `bundle.json`, keys in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    pub contract: Contract,
    /// `module:function`; `pkg.Class::method`.
    pub entry: String,
    pub format: u32,
    /// The Java its classes were compiled for: `17`; without it any will do, until one is too old for them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub java: String,
    /// `3.11`; without it any will do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub python: String,
    /// `numpy==2.1.0`.
    #[serde(default)]
    pub requires: Vec<String>,
    /// The modules in it, as the SDK says for itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    #[serde(default, skip_serializing_if = "Runtime::is_python")]
    pub runtime: Runtime,
    /// In an artefact for Android: the base whose converter has made it. What an image says here is not believed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub converted_by: String,
}

impl About {
    pub fn new(contract: Contract, entry: &str, runtime: Runtime) -> Self {
        Self {
            contract,
            entry: entry.to_owned(),
            format: if runtime.is_python() { FORMAT } else { FORMAT_JAVA },
            java: String::new(),
            python: String::new(),
            requires: Vec::new(),
            modules: Vec::new(),
            runtime,
            converted_by: String::new(),
        }
    }
}

/// What a bundle runs on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    #[default]
    Python,
    Java,
    /// Java with classes of Android.
    Android,
}

impl Runtime {
    fn is_python(&self) -> bool {
        *self == Self::Python
    }
}

/// What the entry takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Contract {
    /// An event, as a handler does.
    Event,
    /// Arguments, as any function does.
    Call,
}

impl Contract {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Call => "call",
        }
    }
}

/// A bundle that was read.
#[derive(Debug)]
pub struct Bundle<'a> {
    pub about: About,
    /// All files but `bundle.json`.
    pub files: BTreeMap<String, &'a [u8]>,
}

impl<'a> Bundle<'a> {
    /// # Errors
    /// [`Code::BundleInvalid`] says what is wrong.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Problem> {
        let members = tar::read(bytes).map_err(|error| invalid(&error))?;
        let mut members = members.into_iter();
        let about = match members.next() {
            Some((name, about)) if name == ABOUT => about,
            _ => return Err(invalid(&format_args!("its first member is not {ABOUT}"))),
        };
        if about.len() > ABOUT_BYTES_MAX {
            let bytes = about.len();
            return Err(invalid(&format_args!("its {ABOUT} has {bytes} bytes, the limit is {ABOUT_BYTES_MAX}")));
        }
        let about: About = serde_json::from_slice(about).map_err(|error| invalid(&format_args!("{ABOUT}: {error}")))?;
        let mut files = BTreeMap::new();
        for (name, content) in members {
            if files.insert(name.clone(), content).is_some() || name == ABOUT {
                return Err(invalid(&format_args!("{name} is in it twice")));
            }
        }
        let bundle = Self { about, files };
        bundle.check()?;
        Ok(bundle)
    }

    /// The same files give the same bytes.
    ///
    /// # Errors
    /// [`Code::BundleInvalid`] says what is wrong.
    pub fn pack(&self) -> Result<Vec<u8>, Problem> {
        self.check()?;
        let about = serde_json::to_vec(&self.about).expect("texts and numbers");
        let files = self.files.iter().map(|(name, content)| (name.as_str(), *content));
        tar::write([(ABOUT, about.as_slice())].into_iter().chain(files)).map_err(|error| invalid(&error))
    }

    pub fn lock(&self) -> Option<&'a [u8]> {
        self.files.get(LOCK).copied()
    }

    fn check(&self) -> Result<(), Problem> {
        let About { format, java, python, requires, runtime, .. } = &self.about;
        let wanted = if runtime.is_python() { FORMAT } else { FORMAT_JAVA };
        if *format != wanted {
            return Err(invalid(&format_args!("it is of format {format}, this node reads {wanted}")));
        }
        for (name, version, example) in [("Python", python, "3.11"), ("Java", java, "17")] {
            let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            if !version.is_empty() && !version.split('.').all(is_number) {
                return Err(invalid(&format_args!("it asks for {name} {version:?}, write it like {example}")));
            }
        }
        if let Some(bad) = requires.iter().find(|wanted| !wanted.contains("==")) {
            return Err(invalid(&format_args!("it requires {bad:?}, write name==version")));
        }
        // Nobody could unpack it.
        let mut folders = self.files.keys().flat_map(|name| name.match_indices('/').map(move |(at, _)| &name[..at]));
        if let Some(both) = folders.find(|folder| self.files.contains_key(*folder)) {
            return Err(invalid(&format_args!("{both} is a file in it, and a folder")));
        }
        let (files_max, bytes_max) = match runtime {
            Runtime::Python => self.check_python().map(|()| (FILES_MAX, BYTES_MAX))?,
            Runtime::Java | Runtime::Android => self.check_java().map(|()| (JARS_MAX, JARS_BYTES_MAX))?,
        };
        let bytes: usize = self.files.values().map(|content| content.len()).sum();
        if bytes > bytes_max || self.files.len() > files_max {
            let files = self.files.len();
            return Err(invalid(&format_args!(
                "it has {files} files with {bytes} bytes, the limits are {files_max} and {bytes_max}"
            )));
        }
        Ok(())
    }

    fn check_python(&self) -> Result<(), Problem> {
        let entry = &self.about.entry;
        let Some((module, _)) = entry.split_once(':').filter(|(module, path)| is_path(module) && is_path(path)) else {
            return Err(invalid(&format_args!("its entry is {entry:?}, write module:function")));
        };
        let file = module.replace('.', "/");
        if ![format!("{file}.py"), format!("{file}/__init__.py")].iter().any(|name| self.files.contains_key(name)) {
            return Err(invalid(&format_args!("its entry is {entry:?}, and it has no {file}.py")));
        }
        if let Some(other) = self.files.keys().find(|name| !name.ends_with(".py") && *name != LOCK) {
            return Err(invalid(&format_args!("{other} is neither Python nor {LOCK}")));
        }
        self.lock().map(Lock::read).transpose().map(drop)
    }

    fn check_java(&self) -> Result<(), Problem> {
        let entry = &self.about.entry;
        let parts = entry.split_once("::").filter(|(class, method)| is_path(class) && is_path(method));
        let Some((class, _)) = parts else {
            return Err(no_jar(&format_args!("its entry is {entry:?}, write package.Class::method")));
        };
        let file = format!("{}.class", class.replace('.', "/"));
        let (mut has_app, mut has_class) = (false, false);
        for (name, content) in &self.files {
            if self.about.runtime == Runtime::Android && android::is_app(name) {
                android::check(name, content).map_err(|why| no_jar(&why))?;
                // Its classes are known once it is converted.
                (has_app, has_class) = (true, true);
                continue;
            }
            let is_lib = name.strip_prefix(LIBS).is_some_and(|lib| lib.ends_with(".jar") && !lib.contains('/'));
            if name != jar::APP && !is_lib {
                return Err(no_jar(&format_args!("{name} is neither {} nor a jar in {LIBS}", jar::APP)));
            }
            let names = jar::names(content).map_err(|error| no_jar(&format_args!("{name}: {error}")))?;
            has_app |= name == jar::APP;
            has_class |= names.contains(file.as_str());
        }
        if !has_app {
            return Err(no_jar(&format_args!("it has no {}", jar::APP)));
        }
        if !has_class {
            let problem = no_jar(&format_args!("its entry is {entry:?}, and none of its jars has {file}"));
            return Err(
                problem.with_hint("`jar --list --file app.jar` names the classes; a class in a class is Outer$Inner")
            );
        }
        Ok(())
    }
}

/// Names with dots between them, as programs have them.
fn is_path(path: &str) -> bool {
    let is_name = |part: &str| {
        let mut letters = part.chars();
        letters.next().is_some_and(|first| matches!(first, '_' | '$') || first.is_alphabetic())
            && letters.all(|letter| matches!(letter, '_' | '$') || letter.is_alphanumeric())
    };
    path.split('.').all(is_name)
}

fn invalid(why: &dyn Display) -> Problem {
    Problem::new(Code::BundleInvalid, format!("the image is not a bundle: {why}"))
}

fn no_jar(why: &dyn Display) -> Problem {
    invalid(why).with_hint("an image in Java is a jar, as `jar --create --file app.jar -C classes .` makes it")
}

/// A bundle of a handler in Python, from files by their names.
///
/// # Errors
/// [`Code::BundleInvalid`] says what is wrong.
pub fn of_handler(entry: &str, files: BTreeMap<String, &[u8]>) -> Result<Vec<u8>, Problem> {
    Bundle { about: About::new(Contract::Event, entry, Runtime::Python), files }.pack()
}

/// A bundle of an apk or a dex file, whose classes a node converts when it is deployed.
///
/// # Errors
/// [`Code::BundleInvalid`] says what is wrong.
pub fn of_app(entry: &str, is_apk: bool, app: &[u8]) -> Result<Vec<u8>, Problem> {
    let name = if is_apk { android::APK } else { android::DEX };
    let files = BTreeMap::from([(name.to_owned(), app)]);
    Bundle { about: About::new(Contract::Event, entry, Runtime::Android), files }.pack()
}

/// A bundle of a function in Java, from jars by their names. The one with the entry's class is the function's own.
///
/// # Errors
/// [`Code::BundleInvalid`] says what is wrong.
pub fn of_jars(entry: &str, runtime: Runtime, jars: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>, Problem> {
    let class = entry.split_once("::").map(|(class, _)| format!("{}.class", class.replace('.', "/")));
    let holds =
        |jar: &[u8]| class.as_deref().is_some_and(|class| jar::names(jar).is_ok_and(|names| names.contains(class)));
    let own = jars.iter().find(|(_, content)| holds(content)).or_else(|| jars.iter().next());
    let own = own.map(|(name, _)| name.as_str()).ok_or_else(|| no_jar(&"there is no jar in it"))?;
    let files = jars.iter().map(|(name, content)| {
        let place = if name == own { jar::APP.to_owned() } else { format!("{LIBS}{name}") };
        (place, content.as_slice())
    });
    Bundle { about: About::new(Contract::Event, entry, runtime), files: files.collect() }.pack()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> BTreeMap<String, &'static [u8]> {
        BTreeMap::from([("app.py".to_owned(), &b"def handle(event): ..."[..])])
    }

    #[test]
    fn a_bundle_reads_back() {
        let bytes = of_handler("app:handle", files()).unwrap();
        let bundle = Bundle::read(&bytes).unwrap();
        assert_eq!((bundle.about.entry.as_str(), bundle.about.contract), ("app:handle", Contract::Event));
        assert_eq!(bundle.files, files());
        assert_eq!(bundle.pack().unwrap(), bytes);
    }

    #[test]
    fn the_jar_with_the_entry_is_the_functions_own() {
        let jar = |class: &str| jar::write(&[(class, b"code", 4)]);
        let jars = BTreeMap::from([
            ("a.jar".to_owned(), jar("other/Thing.class")),
            ("hello.jar".to_owned(), jar("app/Hello.class")),
        ]);
        let bytes = of_jars("app.Hello::handle", Runtime::Java, &jars).unwrap();
        let bundle = Bundle::read(&bytes).unwrap();
        assert_eq!((bundle.about.runtime, bundle.about.format), (Runtime::Java, FORMAT_JAVA));
        assert_eq!(bundle.files.keys().collect::<Vec<_>>(), [jar::APP, "libs/a.jar"]);
        assert_eq!(bundle.files[jar::APP], jars["hello.jar"]);
        let refused = |entry: &str, jars: &BTreeMap<String, Vec<u8>>, word: &str| {
            let problem = of_jars(entry, Runtime::Java, jars).unwrap_err();
            assert_eq!(problem.code, Code::BundleInvalid);
            assert!(problem.detail.contains(word), "{problem}");
        };
        refused("app.Hello:handle", &jars, "package.Class::method");
        refused("app.Missing::handle", &jars, "app/Missing.class");
        refused("app.Hello::handle", &BTreeMap::new(), "no jar");
        refused("app.Hello::handle", &BTreeMap::from([("x.jar".to_owned(), b"PK".to_vec())]), "its end is missing");
    }

    #[test]
    fn what_is_no_bundle_says_why() {
        let refused = |bytes: &[u8], word: &str| {
            let problem = Bundle::read(bytes).unwrap_err();
            assert_eq!(problem.code, Code::BundleInvalid);
            assert!(problem.detail.contains(word), "{problem}");
        };
        refused(b"", "cut off");
        refused(&tar::write([("app.py", &b""[..])]).unwrap(), "bundle.json");
        refused(&tar::write([(ABOUT, &b"{}"[..])]).unwrap(), "contract");
        // It was read into memory, whatever was in it.
        let large = format!("{{\"requires\":[{}\"a==1\"]}}", "\"a==1\",".repeat(ABOUT_BYTES_MAX / 7));
        refused(&tar::write([(ABOUT, large.as_bytes())]).unwrap(), "the limit is 262144");
        for (entry, word) in [("app", "module:function"), ("../app:f", "module:function"), ("other:f", "other.py")] {
            let problem = of_handler(entry, files()).unwrap_err();
            assert!(problem.detail.contains(word), "{problem}");
        }
        let with = |name: &str| BTreeMap::from([("app.py".to_owned(), &b""[..]), (name.to_owned(), &b""[..])]);
        assert!(of_handler("app:f", with("lib.so")).is_err());
        assert!(of_handler("app:f", with(LOCK)).is_ok());
        // Another file may be between them.
        let both = ["app.py", "app.py!.py", "app.py/x.py"].map(|name| (name.to_owned(), &b""[..]));
        let problem = of_handler("app:f", both.into()).unwrap_err();
        assert!(problem.detail.contains("app.py is a file in it, and a folder"), "{problem}");
        let harmful = BTreeMap::from([("app.py".to_owned(), &b""[..]), (LOCK.to_owned(), &b"--no-binary :all:"[..])]);
        assert!(of_handler("app:f", harmful).unwrap_err().detail.contains("line 1"));
    }
}
