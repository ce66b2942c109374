//! From Python files or jars to a bundle, as a node runs it in a process unit.
//!
//! The image of a process function is a Python file, a folder of them, a jar, a folder of jars, or a bundle that
//! something else made.

use cli::folder::{AtPath, Folder, Missed};
use cli::stop::{Result, Stop};
use manifest::{Base, Function};
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use unit_process::bundle::{self, Bundle, Runtime};

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

/// The bundle of a function whose image is at `inner` in `folder`, out of which no link may lead.
///
/// # Errors
/// - [`Code::ImageMissing`]: there is nothing at `inner`.
/// - [`Code::LinkLeaves`]: a file of it is outside of `folder`.
/// - [`Code::BundleInvalid`]: no bundle can be made of it.
pub fn bundle(folder: &Folder, inner: &Path, function: &Function) -> Result<Vec<u8>> {
    let at = folder.find(inner)?;
    let is_jar = |path: &Path| path.extension() == Some(OsStr::new("jar"));
    match (&at, function.base) {
        (AtPath::File(_), _) if is_jar(inner) => return jars(folder, &[inner.to_owned()], function),
        (AtPath::File(_), _) if app_kind(inner).is_some() => return app(folder, inner, function),
        (AtPath::Folder(_), Some(Base::Java | Base::Android)) => {
            let mut found = Vec::new();
            for place in [inner.to_owned(), inner.join("libs")] {
                let names = folder.names(&place).unwrap_or_default();
                found.extend(names.into_iter().map(|name| place.join(name)).filter(|path| is_jar(path)));
            }
            return jars(folder, &found, function);
        }
        _ => {}
    }
    let (files, module) = match at {
        AtPath::Folder(_) => (below(folder, inner)?, MODULE.to_owned()),
        AtPath::File(_) if is_source(inner) => alone(folder, inner)?,
        AtPath::File(_) => {
            let bytes = read(folder, inner, bundle::JARS_BYTES_MAX + (1 << 20))?;
            Bundle::read(&bytes)?;
            return Ok(bytes);
        }
    };
    let entry = function.entry.clone().unwrap_or_else(|| format!("{module}:{HANDLER}"));
    let borrowed = files.iter().map(|(name, content)| (name.clone(), content.as_slice()));
    let made = bundle::of_handler(&entry, borrowed.collect());
    Ok(made.map_err(|problem| match function.entry {
        Some(_) => problem,
        None => problem.with_hint("say which function handles events: entry = \"module:function\""),
    })?)
}

type Files = BTreeMap<String, Vec<u8>>;

/// Whether the file is an apk; none: it is neither that nor a dex file.
fn app_kind(path: &Path) -> Option<bool> {
    match path.extension()?.to_str()? {
        "apk" => Some(true),
        "dex" => Some(false),
        _ => None,
    }
}

/// A bundle of an apk or a dex file.
fn app(folder: &Folder, inner: &Path, function: &Function) -> Result<Vec<u8>> {
    let entry = entry(function)?;
    if function.base != Some(Base::Android) {
        let detail = format!("{} is for Android, and the function's base is not", inner.display());
        return Err(Problem::new(Code::BundleInvalid, detail).with_hint("write base = \"android\"").into());
    }
    let bytes = read(folder, inner, bundle::JARS_BYTES_MAX)?;
    Ok(bundle::of_app(entry, app_kind(inner) == Some(true), &bytes)?)
}

fn entry(function: &Function) -> Result<&str> {
    let hint = "name the method that handles events: entry = \"package.Class::method\"";
    let none = || Problem::new(Code::BundleInvalid, "a function in Java has no entry").with_hint(hint);
    Ok(function.entry.as_deref().ok_or_else(none)?)
}

/// A bundle of jars, by the names of their files.
fn jars(folder: &Folder, found: &[PathBuf], function: &Function) -> Result<Vec<u8>> {
    let entry = entry(function)?;
    let mut jars = Files::new();
    for path in found {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let bytes = read(folder, path, bundle::JARS_BYTES_MAX)?;
        if jars.insert(name.clone(), bytes).is_some() {
            return Err(Problem::new(Code::BundleInvalid, format!("there are two jars of the name {name}")).into());
        }
    }
    let runtime = if function.base == Some(Base::Android) { Runtime::Android } else { Runtime::Java };
    Ok(bundle::of_jars(entry, runtime, &jars)?)
}

/// One file, and the lock file beside it.
fn alone(folder: &Folder, inner: &Path) -> Result<(Files, String)> {
    let stem = inner.file_stem().and_then(OsStr::to_str);
    let stem = stem.ok_or_else(|| {
        Stop::new(Code::BundleInvalid, format!("{} has a name that is no UTF-8", folder.named(inner).display()))
    })?;
    let mut files = Files::from([(format!("{stem}.py"), read(folder, inner, bundle::BYTES_MAX)?)]);
    add_lock(folder, inner.parent().unwrap_or(Path::new("")), &mut files)?;
    Ok((files, stem.to_owned()))
}

/// All Python files below a folder, and its lock file.
fn below(folder: &Folder, top: &Path) -> Result<Files> {
    let mut files = Files::new();
    let mut open = vec![PathBuf::new()];
    while let Some(place) = open.pop() {
        for name in folder.names(&top.join(&place))? {
            let Some(text) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            let path = place.join(text);
            match folder.find(&top.join(&path)) {
                Ok(AtPath::Folder(_)) if NO_SOURCES.contains(&text) => {}
                Ok(AtPath::Folder(_)) => open.push(path),
                _ if text.ends_with(".py") => {
                    let too_many = files.len() >= bundle::FILES_MAX;
                    if too_many {
                        let folder = folder.named(top);
                        let detail = format!("{} has more than {} Python files", folder.display(), bundle::FILES_MAX);
                        return Err(Problem::new(Code::BundleInvalid, detail).into());
                    }
                    files.insert(
                        path.to_string_lossy().into_owned(),
                        read(folder, &top.join(&path), bundle::BYTES_MAX)?,
                    );
                }
                // A folder of sources that would be left out in silence. Any other file is none of ours.
                Err(missed @ Missed::Leaves { .. })
                    if !NO_SOURCES.contains(&text) && folder.named(&top.join(&path)).is_dir() =>
                {
                    return Err(missed.into());
                }
                _ => {}
            }
        }
    }
    add_lock(folder, top, &mut files)?;
    Ok(files)
}

fn add_lock(folder: &Folder, top: &Path, files: &mut Files) -> Result {
    match folder.find(&top.join(bundle::LOCK)) {
        Ok(AtPath::Folder(_)) => return Ok(()),
        Err(missed) if missed.is_not_found() => return Ok(()),
        _ => {}
    }
    files.insert(bundle::LOCK.to_owned(), read(folder, &top.join(bundle::LOCK), bundle::BYTES_MAX)?);
    Ok(())
}

fn read(folder: &Folder, inner: &Path, limit: usize) -> Result<Vec<u8>> {
    match folder.read(inner, limit as u64) {
        Err(Missed::TooLarge { file, bytes }) => {
            let detail = format!("{} has {bytes} bytes, the limit of a bundle is {limit}", file.display());
            Err(Problem::new(Code::BundleInvalid, detail).into())
        }
        read => Ok(read?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn bundle(path: &Path, function: &Function) -> Result<Vec<u8>> {
        super::bundle(&Folder::open(path.parent().unwrap())?, Path::new(path.file_name().unwrap()), function)
    }

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

    #[test]
    fn what_a_link_leads_to_outside_of_the_folder_is_not_bundled() {
        // A repository with `data.py -> /etc/shadow` published that file.
        let folder = tempfile::tempdir().unwrap();
        write(
            folder.path(),
            &[("secret/shadow", "root:x"), ("secret/more.py", ""), ("project/src/app.py", "def handle(event): ...")],
        );
        let src = folder.path().join("project/src");
        let project = Folder::open(&folder.path().join("project")).unwrap();
        let made = || super::bundle(&project, Path::new("src"), &function(None));
        assert!(made().is_ok());
        for (link, target) in [
            ("data.py", "../../secret/shadow"),
            ("requirements.lock", "../../secret/shadow"),
            ("package", "../../secret"),
            ("app.py", "../../secret/shadow"),
        ] {
            let _ = fs::remove_file(src.join(link));
            symlink(target, src.join(link)).unwrap();
            match made() {
                Err(Stop::Problem(problem)) => {
                    assert_eq!(problem.code, Code::LinkLeaves, "{link}");
                    assert!(problem.detail.contains(link) && problem.detail.contains(target), "{}", problem.detail);
                }
                other => panic!("{link}: {other:?}"),
            }
            fs::remove_file(src.join(link)).unwrap();
            write(&src, &[("app.py", "def handle(event): ...")]);
        }
        // What would not be bundled anyway may lead anywhere, and a link within the project is followed.
        write(folder.path(), &[("project/shared/lib.py", "")]);
        symlink("../../secret/shadow", src.join("notes.txt")).unwrap();
        symlink("../../secret", src.join("venv")).unwrap();
        symlink("../shared", src.join("shared")).unwrap();
        let files: Vec<_> = Bundle::read(&made().unwrap()).unwrap().files.into_keys().collect();
        assert_eq!(files, ["app.py", "shared/lib.py"]);
    }
}
