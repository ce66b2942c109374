//! A bundle: a function's own code for a base, in one file named by its hash. Its first member says what it is.
//!
//! ```json
//! {"contract":"event","entry":"app:handle","format":1,"python":"3.11","requires":["numpy==2.1.0"]}
//! ```

use crate::base::Lock;
use crate::tar;
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;

/// The member that says what a bundle is.
const ABOUT: &str = "bundle.json";
/// The member with the packages a bundle needs beside the base's own.
pub const LOCK: &str = "requirements.lock";
const FORMAT: u32 = 1;
/// Bytes of all source together, as in the Python SDK.
pub const BYTES_MAX: usize = 8 << 20;
pub const FILES_MAX: usize = 2_000;

/// What a bundle is: `bundle.json`, keys in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    pub contract: Contract,
    /// `module:function`.
    pub entry: String,
    pub format: u32,
    /// `3.11`; without it any will do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub python: String,
    /// `numpy==2.1.0`.
    #[serde(default)]
    pub requires: Vec<String>,
    /// The modules in it, as the SDK says for itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
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
        let About { format, entry, python, requires, .. } = &self.about;
        if *format != FORMAT {
            return Err(invalid(&format_args!("it is of format {format}, this node reads {FORMAT}")));
        }
        let is_path = |path: &str| {
            let is_name = |part: &str| {
                let mut letters = part.chars();
                letters.next().is_some_and(|first| first == '_' || first.is_alphabetic())
                    && letters.all(|letter| letter == '_' || letter.is_alphanumeric())
            };
            path.split('.').all(is_name)
        };
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
        self.lock().map(Lock::read).transpose()?;
        let bytes: usize = self.files.values().map(|content| content.len()).sum();
        if bytes > BYTES_MAX || self.files.len() > FILES_MAX {
            let files = self.files.len();
            return Err(invalid(&format_args!(
                "it has {files} files with {bytes} bytes, the limits are {FILES_MAX} and {BYTES_MAX}"
            )));
        }
        let is_version =
            |text: &str| text.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
        if !python.is_empty() && !is_version(python) {
            return Err(invalid(&format_args!("it asks for Python {python:?}, write it like 3.11")));
        }
        if let Some(bad) = requires.iter().find(|wanted| !wanted.contains("==")) {
            return Err(invalid(&format_args!("it requires {bad:?}, write name==version")));
        }
        Ok(())
    }
}

fn invalid(why: &dyn Display) -> Problem {
    Problem::new(Code::BundleInvalid, format!("the image is not a bundle: {why}"))
}

/// A bundle of a handler, from files by their names.
///
/// # Errors
/// [`Code::BundleInvalid`] says what is wrong.
pub fn of_handler(entry: &str, files: BTreeMap<String, &[u8]>) -> Result<Vec<u8>, Problem> {
    let about = About {
        contract: Contract::Event,
        entry: entry.to_owned(),
        format: FORMAT,
        python: String::new(),
        requires: Vec::new(),
        modules: Vec::new(),
    };
    Bundle { about, files }.pack()
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
    fn what_is_no_bundle_says_why() {
        let refused = |bytes: &[u8], word: &str| {
            let problem = Bundle::read(bytes).unwrap_err();
            assert_eq!(problem.code, Code::BundleInvalid);
            assert!(problem.detail.contains(word), "{problem}");
        };
        refused(b"", "cut off");
        refused(&tar::write([("app.py", &b""[..])]).unwrap(), "bundle.json");
        refused(&tar::write([(ABOUT, &b"{}"[..])]).unwrap(), "contract");
        for (entry, word) in [("app", "module:function"), ("../app:f", "module:function"), ("other:f", "other.py")] {
            let problem = of_handler(entry, files()).unwrap_err();
            assert!(problem.detail.contains(word), "{problem}");
        }
        let with = |name: &str| BTreeMap::from([("app.py".to_owned(), &b""[..]), (name.to_owned(), &b""[..])]);
        assert!(of_handler("app:f", with("lib.so")).is_err());
        assert!(of_handler("app:f", with(LOCK)).is_ok());
        let harmful = BTreeMap::from([("app.py".to_owned(), &b""[..]), (LOCK.to_owned(), &b"--no-binary :all:"[..])]);
        assert!(of_handler("app:f", harmful).unwrap_err().detail.contains("line 1"));
    }
}
