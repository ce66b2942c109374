//! `process`: Python in a jail.

mod bundle;

use super::{Class, Opened};
use api_types::{MissingProtection, NodeInfo, PythonInfo};
use cli::folder::Folder;
use cli::{Brought, MakesImages};
use futures_util::future::{BoxFuture, FutureExt};
use manifest::{Function, Isolation};
use node::Memory;
use node::config::Config;
use problem::Problem;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use unit::UnitKind;
use unit_process::ProcessKind;

/// The hidden command by which this program becomes a jail.
const JAIL: &str = "jail";

pub const CLASS: Class = Class {
    open,
    command_line: Some(|brought: &mut Brought| brought.images.0.push((Isolation::Process, &Bundles))),
    document: None,
    compiler: None,
    program: Some((JAIL, unit_process::jail::main)),
};

struct Process(ProcessKind);

fn open(config: &Config) -> Result<Opened, Problem> {
    let kind = ProcessKind::new(unit_process::Config {
        folder: config.data.join("bases"),
        python: config.python.clone(),
        allow_weaker: config.allow_weaker_jail,
        units_bytes_max: budget::Purpose::Units.part_of(config.memory_bytes_max),
        jail: vec![JAIL.to_owned()],
    })?;
    Ok(Opened::new(Process(kind)))
}

impl node::Class for Process {
    fn units(&self) -> Arc<dyn UnitKind> {
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

    fn memory(&self) -> Option<Memory> {
        let (bytes, bytes_max) = (self.0.memory_bytes()?, self.0.memory_bytes_max());
        Some(Memory { word: "process_units", bytes, bytes_max })
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

/// Its images are bundles of Python files.
struct Bundles;

impl MakesImages for Bundles {
    fn image(&self, folder: &Folder, inner: &Path, function: &Function) -> cli::stop::Result<Vec<u8>> {
        bundle::bundle(folder, inner, function)
    }

    fn is_source(&self, path: &Path) -> bool {
        path.extension() == Some(OsStr::new("py"))
    }

    fn hint(&self) -> &'static str {
        "`image` names a Python file, or a folder of them"
    }

    fn media_type(&self) -> &'static str {
        "application/x-tar"
    }
}
