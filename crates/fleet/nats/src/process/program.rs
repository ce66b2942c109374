//! Where nats-server is, and whether it is new enough.

use problem::{Code, Problem};
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "nats-server";
/// Earlier ones lose mail where streams of other servers are read again, and know no `sync_interval: always` for some
/// of what they write.
const VERSION_MIN: EngineVersion = EngineVersion(2, 14, 0);

/// A nats-server that is new enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    pub version: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineVersion(u32, u32, u32);

/// The program that is `given`; else the one in `bin` of the data folder; else the first one in `path`.
///
/// # Errors
/// [`Code::EngineMissing`]: there is none, or it is too old. Where one was given, no other is looked for.
pub fn find(given: Option<&Path>, data: &Path, path: Option<&OsStr>) -> Result<Program, Problem> {
    let own = data.join("bin").join(NAME);
    let found = match given {
        Some(given) => Some(given.to_owned()),
        None => std::iter::once(own.clone())
            .chain(path.into_iter().flat_map(std::env::split_paths).map(|folder| folder.join(NAME)))
            .find(|file| file.is_file()),
    };
    let place = found.ok_or_else(|| missing(&format!("there is no {NAME} at {} or in PATH", own.display()), data))?;
    let output = Command::new(&place).arg("--version").output();
    let output = output.map_err(|error| missing(&format!("{} does not run: {error}", place.display()), data))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let version = EngineVersion::read(&said)
        .ok_or_else(|| missing(&format!("{} does not say its version as {NAME} does", place.display()), data))?;
    if version < VERSION_MIN {
        let old = format!("{} is version {version}, {VERSION_MIN} is needed", place.display());
        return Err(missing(&old, data));
    }
    Ok(Program { path: place, version: version.to_string() })
}

fn missing(what: &str, data: &Path) -> Problem {
    let command = format!("`tools/nats-server {}` in the sources of Lighterage builds one", data.join("bin").display());
    Problem::new(Code::EngineMissing, what.to_owned()).with_hint(command)
}

impl EngineVersion {
    /// Reads `nats-server: v2.15.2`, or the same behind a `v` only.
    pub fn read(said: &str) -> Option<Self> {
        let numbers = said.trim().strip_prefix("nats-server: v").unwrap_or(said.trim());
        let mut parts = numbers.split(['.', '-', '+']).map(str::parse);
        let mut part = || parts.next()?.ok();
        Some(Self(part()?, part()?, part()?))
    }

    pub fn is_enough(self) -> bool {
        self >= VERSION_MIN
    }
}

impl fmt::Display for EngineVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn versions_are_read_and_compared_by_their_numbers() {
        assert_eq!(EngineVersion::read("nats-server: v2.15.2\n"), Some(EngineVersion(2, 15, 2)));
        assert_eq!(EngineVersion::read("nats-server: v2.14.0-RC.1"), Some(EngineVersion(2, 14, 0)));
        assert!(
            !EngineVersion(2, 9, 10).is_enough()
                && EngineVersion(2, 14, 0).is_enough()
                && EngineVersion(3, 0, 0).is_enough()
        );
        for wrong in ["", "nats-server", "nats-server: v2.15", "mosquitto version 2.0.11"] {
            assert_eq!(EngineVersion::read(wrong), None, "{wrong}");
        }
    }

    fn program(folder: &Path, says: &str) -> PathBuf {
        fs::create_dir_all(folder).unwrap();
        let file = folder.join(NAME);
        fs::write(&file, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    #[test]
    fn what_is_given_comes_first_then_the_data_folder_then_the_path() {
        let work = tempfile::tempdir().unwrap();
        let [data, given, other] = ["data", "given", "other"].map(|name| work.path().join(name));
        let path = other.clone().into_os_string();
        let none = find(None, &data, Some(&path)).unwrap_err();
        assert!(none.code == Code::EngineMissing && none.hint.contains("tools/nats-server"), "{none:?}");
        let in_path = program(&other, "nats-server: v2.15.2");
        assert_eq!(find(None, &data, Some(&path)).unwrap().path, in_path);
        let own = program(&data.join("bin"), "nats-server: v2.14.1");
        assert_eq!(find(None, &data, Some(&path)), Ok(Program { path: own, version: "2.14.1".to_owned() }));
        let old = program(&given, "nats-server: v2.9.10");
        let refused = find(Some(&old), &data, Some(&path)).unwrap_err();
        assert!(refused.to_string().contains("2.9.10, 2.14.0 is needed"), "{refused}");
        assert_eq!(find(Some(&given.join("none")), &data, Some(&path)).unwrap_err().code, Code::EngineMissing);
    }
}
