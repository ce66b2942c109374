//! From Python files to a bundle, as a node runs it in a process unit.
//!
//! The image of a process function is a Python file, a folder of them, or a bundle that something else made.

use super::stop::{Result, Stop};
use manifest::Function;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use unit_process::bundle::{self, Bundle};

/// The handler where the manifest does not say.
const HANDLER: &str = "handle";
/// The module of a folder where the manifest does not say.
const MODULE: &str = "app";
/// Folders that hold no source of the function.
const NO_SOURCES: [&str; 4] = ["__pycache__", "venv", "node_modules", "build"];

/// Whether `path` is Python source, and no bundle that was made of it.
pub fn is_source(path: &Path) -> bool {
    path.is_dir() || path.extension() == Some(OsStr::new("py"))
}

/// The bundle of a function whose image is at `path`.
///
/// # Errors
/// - [`Code::ImageMissing`]: there is nothing at `path`.
/// - [`Code::BundleInvalid`]: no bundle can be made of it.
pub fn bundle(path: &Path, function: &Function) -> Result<Vec<u8>> {
    if !is_source(path) {
        let bytes = fs::read(path).map_err(|error| Stop::file(path, &error))?;
        Bundle::read(&bytes)?;
        return Ok(bytes);
    }
    let (files, module) = if path.is_dir() { (below(path)?, MODULE.to_owned()) } else { alone(path)? };
    let entry = function.entry.clone().unwrap_or_else(|| format!("{module}:{HANDLER}"));
    let borrowed = files.iter().map(|(name, content)| (name.clone(), content.as_slice()));
    let made = bundle::of_handler(&entry, borrowed.collect());
    Ok(made.map_err(|problem| match function.entry {
        Some(_) => problem,
        None => problem.with_hint("say which function handles events: entry = \"module:function\""),
    })?)
}

type Files = BTreeMap<String, Vec<u8>>;

/// One file, and the lock file beside it.
fn alone(path: &Path) -> Result<(Files, String)> {
    let stem = path.file_stem().and_then(OsStr::to_str);
    let stem =
        stem.ok_or_else(|| Stop::new(Code::BundleInvalid, format!("{} has a name that is no UTF-8", path.display())))?;
    let mut files = Files::from([(format!("{stem}.py"), read(path)?)]);
    add_lock(path.parent().unwrap_or(Path::new("")), &mut files)?;
    Ok((files, stem.to_owned()))
}

/// All Python files below a folder, and its lock file.
fn below(folder: &Path) -> Result<Files> {
    let mut files = Files::new();
    let mut open = vec![PathBuf::new()];
    while let Some(inner) = open.pop() {
        let place = folder.join(&inner);
        for entry in fs::read_dir(&place).map_err(|error| Stop::file(&place, &error))? {
            let entry = entry.map_err(|error| Stop::file(&place, &error))?;
            let (name, path) = (entry.file_name(), inner.join(entry.file_name()));
            let Some(text) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            if folder.join(&path).is_dir() {
                if !NO_SOURCES.contains(&text) {
                    open.push(path);
                }
            } else if text.ends_with(".py") {
                let too_many = files.len() >= bundle::FILES_MAX;
                if too_many {
                    let detail = format!("{} has more than {} Python files", folder.display(), bundle::FILES_MAX);
                    return Err(Problem::new(Code::BundleInvalid, detail).into());
                }
                files.insert(path.to_string_lossy().into_owned(), read(&folder.join(&path))?);
            }
        }
    }
    add_lock(folder, &mut files)?;
    Ok(files)
}

fn add_lock(folder: &Path, files: &mut Files) -> Result {
    let lock = folder.join(bundle::LOCK);
    if lock.is_file() {
        files.insert(bundle::LOCK.to_owned(), read(&lock)?);
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let size = fs::metadata(path).map_err(|error| Stop::file(path, &error))?.len();
    if size > bundle::BYTES_MAX as u64 {
        let detail = format!("{} has {size} bytes, the limit of a bundle is {}", path.display(), bundle::BYTES_MAX);
        return Err(Problem::new(Code::BundleInvalid, detail).into());
    }
    fs::read(path).map_err(|error| Stop::file(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(entry: Option<&str>) -> Function {
        Function { entry: entry.map(str::to_owned), ..Function::new("x") }
    }

    fn write(folder: &Path, files: &[(&str, &str)]) {
        for (name, content) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }

    #[test]
    fn a_file_a_folder_and_a_bundle_are_images() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &[("hello.py", "def handle(event): ..."), ("requirements.lock", "")]);
        let alone = bundle(&folder.path().join("hello.py"), &function(None)).unwrap();
        let read = Bundle::read(&alone).unwrap();
        assert_eq!(read.about.entry, "hello:handle");
        assert!(read.lock().is_some());

        let src = folder.path().join("src");
        write(
            &src,
            &[("app.py", ""), ("a/b.py", ""), ("a/__pycache__/b.py", ""), (".git/c.py", ""), ("notes.txt", "")],
        );
        let whole = bundle(&src, &function(Some("a.b:f"))).unwrap();
        let files: Vec<_> = Bundle::read(&whole).unwrap().files.into_keys().collect();
        assert_eq!(files, ["a/b.py", "app.py"]);

        let made = folder.path().join("made.tar");
        fs::write(&made, &whole).unwrap();
        assert_eq!(bundle(&made, &function(None)).unwrap(), whole);
    }

    #[test]
    fn what_makes_no_bundle_says_how_to_say_it() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &[("src/main.py", ""), ("x.tar", "no tar")]);
        for image in ["src", "x.tar"] {
            match bundle(&folder.path().join(image), &function(None)) {
                Err(Stop::Problem(problem)) => assert_eq!(problem.code, Code::BundleInvalid),
                other => panic!("{other:?}"),
            }
        }
    }
}
