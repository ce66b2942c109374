//! Options of `lighter up` as they are asked for: on the command line or in `node.toml`, by the same names.
//!
//! ```text
//! --drain-seconds 5      ─┐
//!                         ├─▶ Asked ─▶ the node's own options ─▶ Config
//! drain_seconds = 5      ─┘       └──▶ those of each isolation class
//! ```
//! Each part of the program reads its own; the command line wins. A key that no part knows is an error.

use super::config::invalid;
use clap::{Arg, ArgMatches, Args, Command};
use manifest::nearest::nearest;
use problem::{Code, Problem};
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Bytes of a `node.toml`; a larger one is refused.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The option that names the file, and so cannot stand in it.
const FILE_OPTION: &str = "config";

/// Options of one part of the program.
pub trait Options: Args + Default + DeserializeOwned {
    /// These; where they say nothing, those of the file.
    #[must_use]
    fn or(self, file: Self) -> Self;
}

/// All that is asked for.
pub struct Asked<'a> {
    line: &'a ArgMatches,
    file: Option<(PathBuf, File)>,
}

impl<'a> Asked<'a> {
    /// Reads the file that the command line names. `command` has all options that there are.
    ///
    /// # Errors
    /// [`Code::ConfigInvalid`]: it cannot be read, is no TOML, or has a key that is no option.
    pub fn new(line: &'a ArgMatches, command: &Command) -> Result<Self, Problem> {
        let path = line.get_one::<PathBuf>(FILE_OPTION);
        let file = path.map(|path| Ok::<_, Problem>((path.clone(), File::read(path, command)?))).transpose()?;
        Ok(Self { line, file })
    }

    /// A warning for a key of the file that has another name now.
    #[must_use]
    pub fn old_key(&self) -> Option<String> {
        let (path, File { old: Some((old, new)), .. }) = self.file.as_ref()? else { return None };
        let path = path.display();
        Some(format!("warning: {path}: the key {old} is called {new} now; {old} works until the next release"))
    }

    /// The options of one part.
    ///
    /// # Errors
    /// [`Code::ConfigInvalid`]: a value in the file is of the wrong type.
    pub fn options<T: Options>(&self) -> Result<T, Problem> {
        let line = T::from_arg_matches(self.line).map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
        let file = self.file.as_ref().map(|(path, file)| file.options().map_err(|problem| in_file(path, problem)));
        Ok(line.or(file.transpose()?.unwrap_or_default()))
    }
}

/// The text of a file whose keys are known.
pub(super) struct File {
    text: String,
    /// The old and the new name of a key that it calls by the old one.
    old: Option<(String, String)>,
}

impl File {
    fn read(path: &Path, command: &Command) -> Result<Self, Problem> {
        let failed = |why: &dyn Display| invalid(format!("{}: {why}", path.display()));
        let size = std::fs::metadata(path).map_err(|error| failed(&error))?.len();
        if size > FILE_BYTES_MAX {
            return Err(failed(&format!("has {size} bytes, the limit is {FILE_BYTES_MAX}")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
        Self::new(text, command).map_err(|problem| in_file(path, problem))
    }

    pub(super) fn new(text: String, command: &Command) -> Result<Self, Problem> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| invalid(located(&text, &error)))?;
        let ids = command.get_arguments().map(|option| option.get_id().as_str());
        let known: Vec<&str> = ids.filter(|id| *id != FILE_OPTION).collect();
        let is_old = |option: &&Arg, key: &str| option.get_all_aliases().is_some_and(|names| names.contains(&key));
        let mut old = None;
        let unknown = table.keys().filter(|key| !known.contains(&key.as_str())).find(|key| {
            let now = command.get_arguments().find(|option| is_old(option, key));
            old = old.take().or(now.map(|option| ((*key).clone(), option.get_id().to_string())));
            now.is_none()
        });
        let Some(key) = unknown else { return Ok(Self { text, old }) };
        let problem = invalid(format!("there is no key {key:?}"));
        Err(match nearest(key, known) {
            Some(near) => problem.with_hint(format!("did you mean {near:?}?")),
            None => problem.with_hint("`lighter up --help` lists the options"),
        })
    }

    pub(super) fn options<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        toml::from_str(&self.text).map_err(|error| invalid(located(&self.text, &error)))
    }
}

fn in_file(path: &Path, problem: Problem) -> Problem {
    Problem { detail: format!("{}: {}", path.display(), problem.detail).into(), ..problem }
}

fn located(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    format!("line {line}: {}", error.message().trim_end_matches('.'))
}
