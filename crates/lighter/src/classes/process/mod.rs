//! `process`: Python and Java in a jail.

mod bases;
mod bundle;

use super::{Class, Open, Opened};
use api_types::{MissingProtection, NodeInfo, PythonInfo};
use clap::Args;
use cli::folder::Folder;
use cli::{Brought, MakesImages};
use futures_util::future::{BoxFuture, FutureExt};
use manifest::{Function, Isolation};
use node::ClassMemory;
use node::config::{Config, invalid};
use node::options::{Asked, Options};
use problem::Problem;
use serde::Deserialize;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use unit::IsolationClass;
use unit_process::ProcessClass;

/// The hidden command by which this program becomes a jail.
const JAIL: &str = "jail";

pub const CLASS: Class = Class {
    options: Some(JailOptions::augment_args),
    configure,
    command_line: Some(|brought: &mut Brought| {
        brought.images.0.push((Isolation::Process, &Bundles));
        brought.commands.push(bases::command());
    }),
    document: None,
    compiler: None,
    program: Some((JAIL, unit_process::jail::main)),
};

/// Its options of `lighter up`.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(default)]
struct JailOptions {
    /// Interpreter for process functions: one with numpy is used as it is; for any other the node makes an environment
    /// [default: python3]
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Home of a JDK or JRE for functions in Java, or its program java [default: the java on the path]
    #[arg(long, value_name = "FILE")]
    java: Option<PathBuf>,
    /// Run process functions even if this system refuses some of their protections; `lighter version` names them
    #[arg(long)]
    allow_weaker_jail: bool,
}

impl Options for JailOptions {
    fn or(self, file: Self) -> Self {
        Self {
            python: self.python.or(file.python),
            java: self.java.or(file.java),
            allow_weaker_jail: self.allow_weaker_jail || file.allow_weaker_jail,
        }
    }
}

struct Process(ProcessClass);

fn configure(asked: &Asked<'_>) -> Result<Open, Problem> {
    let JailOptions { python, java, allow_weaker_jail } = asked.options()?;
    let python = python.map(interpreter).transpose()?;
    if let Some(java) = java.as_ref().filter(|java| !java.exists()) {
        return Err(invalid(format!("java is {}, where there is nothing", java.display())));
    }
    Ok(Box::new(move |config| open(config, python, java, allow_weaker_jail)))
}

/// A file that can be run; a name without a folder is looked for where programs are.
fn interpreter(python: PathBuf) -> Result<PathBuf, Problem> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = match python.components().count() {
        1 => std::env::split_paths(&path).any(|folder| folder.join(&python).is_file()),
        _ => python.is_file(),
    };
    match is_there {
        true => Ok(python),
        false => Err(invalid(format!("python is {}, where there is no such program", python.display()))),
    }
}

fn open(
    config: &Config,
    python: Option<PathBuf>,
    java: Option<PathBuf>,
    allow_weaker: bool,
) -> Result<Opened, Problem> {
    let class = ProcessClass::new(unit_process::Config {
        folder: config.data.join("bases"),
        python,
        java,
        allow_weaker,
        units_bytes_max: budget::Purpose::Units.part_of(config.memory_bytes_max),
        jail: vec![JAIL.to_owned()],
    })?;
    Ok(Opened::new(Process(class)))
}

impl node::Class for Process {
    fn units(&self) -> Arc<dyn IsolationClass> {
        Arc::new(self.0.clone())
    }

    fn describe<'a>(&'a self, info: &'a mut NodeInfo) -> BoxFuture<'a, ()> {
        async move {
            info.missing_protections = self.missing().await;
            info.python = self.0.python().map(|python| PythonInfo {
                version: python.version,
                implementation: python.implementation,
                numpy: python.numpy,
                packages: python.packages,
                speed: python.speed,
            });
        }
        .boxed()
    }

    fn memory(&self) -> Option<ClassMemory> {
        let (bytes, bytes_max) = (self.0.memory_bytes()?, self.0.memory_bytes_max());
        Some(ClassMemory { word: "process_units", bytes, bytes_max })
    }

    fn leaves_dumps(&self) -> bool {
        false
    }
}

impl Process {
    async fn missing(&self) -> Vec<MissingProtection> {
        match self.0.missing().await {
            Ok(missing) => missing
                .into_iter()
                .map(|missing| MissingProtection {
                    protection: missing.protection.as_str().to_owned(),
                    why: missing.why,
                })
                .collect(),
            Err(problem) => vec![MissingProtection { protection: "jail".to_owned(), why: problem.detail.into_owned() }],
        }
    }
}

/// Its images are bundles of Python files, of jars, or of an app for Android.
struct Bundles;

impl MakesImages for Bundles {
    fn image(&self, folder: &Folder, inner: &Path, function: &Function) -> cli::stop::Result<Vec<u8>> {
        bundle::bundle(folder, inner, function)
    }

    fn is_source(&self, path: &Path) -> bool {
        path.extension() == Some(OsStr::new("py"))
    }

    fn hint(&self) -> &'static str {
        "`image` names a Python file or a folder of them, a jar or a folder of them, an apk or a dex file"
    }

    fn media_type(&self) -> &'static str {
        "application/x-tar"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use problem::Code;

    #[test]
    fn an_interpreter_that_is_not_there_is_refused_by_its_name() {
        let problem = interpreter("/nowhere/python3".into()).unwrap_err();
        assert_eq!(problem.code, Code::ConfigInvalid);
        assert!(problem.detail.contains("/nowhere/python3"), "{problem:?}");
        assert!(interpreter("sh".into()).is_ok() && interpreter("no-such-program".into()).is_err());
    }
}
