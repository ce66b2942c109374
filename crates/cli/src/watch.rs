//! Which sources a folder has, and whether they changed.
//!
//! Compared by content: a build that writes a source file anew, with what it held before, is no change.

use super::stop::{Result, Stop};
use problem::{Code, Problem};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Files one folder may have; with more it is not a function's source.
const FILES_MAX: usize = 20_000;
/// Bytes of a file compared by content; a larger one by size and time.
const HASHED_BYTES_MAX: u64 = 1 << 20;
/// Folders that hold no sources: what tools build and fetch.
const NO_SOURCES: [&str; 6] = ["build", "target", "node_modules", "__pycache__", "dist", "vendor"];

/// A folder's sources at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    files: BTreeMap<PathBuf, Mark>,
    /// Folders to watch.
    pub folders: Vec<PathBuf>,
}

#[derive(Debug, PartialEq, Eq)]
enum Mark {
    Content([u8; 32]),
    Written(u64, Option<SystemTime>),
}

/// Looks at every source under `folder`, but not at the files in `without`.
///
/// # Errors
/// The folder cannot be read, or holds too much. A file that vanishes meanwhile is no error.
pub fn snapshot(folder: &Path, without: &[PathBuf]) -> Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    let mut open = vec![folder.to_path_buf()];
    fs::read_dir(folder).map_err(|error| Stop::file(folder, &error))?;
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let Ok(kind) = entry.file_type() else { continue };
            if name.starts_with('.') || name.ends_with('~') || without.contains(&path) {
                continue;
            }
            if kind.is_dir() {
                if !NO_SOURCES.contains(&name.as_ref()) {
                    open.push(path);
                }
            } else if let Some(mark) = mark(&path) {
                snapshot.files.insert(path, mark);
            }
        }
        snapshot.folders.push(folder);
        if snapshot.files.len() > FILES_MAX {
            let problem = Problem::new(Code::FileUnusable, format!("there are more than {FILES_MAX} files to watch"));
            return Err(problem.with_hint("name the folder of the function alone").into());
        }
    }
    snapshot.folders.sort();
    Ok(snapshot)
}

fn mark(path: &Path) -> Option<Mark> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    if metadata.len() > HASHED_BYTES_MAX {
        return Some(Mark::Written(metadata.len(), metadata.modified().ok()));
    }
    Some(Mark::Content(Sha256::digest(fs::read(path).ok()?).into()))
}

impl Snapshot {
    /// Files that are new, different or gone in `later`.
    pub fn changed<'a>(&'a self, later: &'a Self) -> Vec<&'a Path> {
        let gone = self.files.keys().filter(|path| !later.files.contains_key(*path));
        let other =
            later.files.iter().filter(|(path, mark)| self.files.get(*path) != Some(*mark)).map(|(path, _)| path);
        gone.chain(other).map(PathBuf::as_path).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_new_a_different_or_a_missing_source_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), text).unwrap();
        };
        let look = || snapshot(folder.path(), &[at("f.wasm")]).unwrap();
        write("src/lib.rs", "one");
        write("old.rs", "");
        let before = look();
        for (name, text) in [
            ("f.wasm", "x"),
            ("target/f", "x"),
            (".git/x", "x"),
            ("src/.lib.rs.swp", "x"),
            ("a~", "x"),
            ("src/lib.rs", "one"),
        ] {
            write(name, text);
        }
        assert_eq!(before.changed(&look()), Vec::<&Path>::new(), "what is built or left by editors is no source");
        write("src/lib.rs", "two");
        write("new/main.rs", "x");
        fs::remove_file(at("old.rs")).unwrap();
        let after = look();
        assert_eq!(before.changed(&after), [at("old.rs"), at("new/main.rs"), at("src/lib.rs")]);
        assert!(after.folders.contains(&at("new")) && !after.folders.contains(&at("target")));
    }
}
