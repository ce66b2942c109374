//! A folder's manifest, and the images it names.

use super::bundle::bundle;
use super::component::component;
use super::stop::{Result, Stop};
use super::words;
use manifest::{Function, Isolation, Manifest, Name};
use problem::{Code, Problem};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Bytes of an image; a larger one is not read.
pub const IMAGE_BYTES_MAX: u64 = 1 << 30;

/// A manifest and the folder its paths start from.
pub struct Project {
    pub folder: PathBuf,
    pub manifest: Manifest,
}

/// Reads the manifest in `place`, or the file `place` itself.
pub fn project(place: &Path) -> Result<Project> {
    let (folder, file) = match place.is_dir() {
        true if place == Path::new(".") => (PathBuf::new(), PathBuf::from(manifest::FILE_NAME)),
        true => (place.to_path_buf(), place.join(manifest::FILE_NAME)),
        false => (place.parent().map_or_else(PathBuf::new, Path::to_path_buf), place.to_path_buf()),
    };
    let size = fs::metadata(&file).map(|metadata| metadata.len()).map_err(|error| unreadable(&file, &error))?;
    if size > manifest::MANIFEST_BYTES_MAX as u64 {
        let limit = words::bytes(manifest::MANIFEST_BYTES_MAX as u64);
        let detail = format!("{} has {}, the limit is {limit}", file.display(), words::bytes(size));
        return Err(Problem::new(Code::ManifestSyntax, detail).with_hint(manifest::DIVIDE).into());
    }
    let text = fs::read_to_string(&file).map_err(|error| unreadable(&file, &error))?;
    let manifest = manifest::parse(&text).map_err(|problem| located(&file, problem))?;
    if manifest.function.is_empty() {
        let problem = Problem::new(Code::ManifestValue, format!("{} has no function", file.display()));
        return Err(problem.with_hint("begin one with a line like [function.hello]").into());
    }
    Ok(Project { folder, manifest })
}

impl Project {
    /// Where the image of a function stands.
    pub fn image_path(&self, function: &Function) -> PathBuf {
        self.folder.join(&function.image)
    }
}

/// An image as it will run.
pub struct Image {
    /// A component, or a bundle.
    pub bytes: Vec<u8>,
    /// It was a core module on disk.
    pub converted: bool,
}

/// Reads the image of a function, making a component of a core module and a bundle of Python files.
pub fn image(name: &Name, function: &Function, path: &Path) -> Result<Image> {
    let about = |problem: Problem| Problem {
        detail: format!("function {:?}: {}: {}", name.as_str(), path.display(), problem.detail).into(),
        ..problem
    };
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => missing(name, function, path).into(),
        _ => Stop::file(path, &error),
    })?;
    if metadata.len() > IMAGE_BYTES_MAX {
        let detail = format!("it has {}, the limit is {}", words::bytes(metadata.len()), words::bytes(IMAGE_BYTES_MAX));
        return Err(about(Problem::new(Code::ImageTooLarge, detail)).into());
    }
    if function.isolation == Isolation::Process {
        let bytes = bundle(path, function).map_err(|stop| match stop {
            Stop::Problem(problem) => about(problem).into(),
            other => other,
        })?;
        return Ok(Image { bytes, converted: false });
    }
    let file = fs::read(path).map_err(|error| Stop::file(path, &error))?;
    match component(&file).map_err(about)? {
        std::borrow::Cow::Borrowed(_) => Ok(Image { bytes: file, converted: false }),
        std::borrow::Cow::Owned(bytes) => Ok(Image { bytes, converted: true }),
    }
}

fn missing(name: &Name, function: &Function, path: &Path) -> Problem {
    let detail = format!("function {:?}: there is no {}", name.as_str(), path.display());
    let problem = Problem::new(Code::ImageMissing, detail);
    match (&function.build, function.isolation) {
        (Some(_), _) => problem,
        (None, Isolation::Process) => problem.with_hint("`image` names a Python file, or a folder of them"),
        (None, _) => problem.with_hint(format!(
            "put the image there, or say what makes it: build = \"COMMAND\" in [function.{}]",
            name.as_str()
        )),
    }
}

/// Puts `bytes` in the place of a file, whole or not at all.
///
/// A new file, and not new bytes in the old one: compilers keep further links to what they wrote.
pub fn replace(path: &Path, bytes: &[u8]) -> Result {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().set_permissions(fs::metadata(path)?.permissions())?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|error: io::Error| Stop::file(path, &error))
}

/// SHA-256 in hexadecimal: the name of an image.
pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unreadable(file: &Path, error: &io::Error) -> Stop {
    match error.kind() {
        io::ErrorKind::NotFound => Stop::new(Code::ManifestMissing, format!("there is no {}", file.display())),
        _ => Stop::file(file, error),
    }
}

/// A problem of a manifest says which file it is in.
fn located(file: &Path, problem: Problem) -> Problem {
    Problem { detail: format!("{}: {}", file.display(), problem.detail).into(), ..problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn code<T>(result: Result<T>) -> Code {
        match result {
            Err(Stop::Problem(problem)) => problem.code,
            _ => panic!("it should be refused"),
        }
    }

    #[test]
    fn a_project_is_a_folder_or_its_manifest() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(code(project(folder.path())), Code::ManifestMissing);
        let file = folder.path().join("lighter.toml");
        fs::write(&file, "").unwrap();
        assert_eq!(code(project(folder.path())), Code::ManifestValue);
        fs::write(&file, "[function.f]\nimage = \"out/f.wasm\"").unwrap();
        for place in [folder.path(), &file] {
            let project = project(place).unwrap();
            assert_eq!(project.image_path(&project.manifest.function["f"]), folder.path().join("out/f.wasm"));
        }
        fs::write(&file, "[function.f]\nimgae = \"f.wasm\"").unwrap();
        assert_eq!(code(project(folder.path())), Code::ManifestUnknownKey);
    }

    #[test]
    fn a_missing_or_strange_image_is_found_before_anything_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let (name, path) = ("f".parse().unwrap(), folder.path().join("f.wasm"));
        let image = |path: &Path| super::image(&name, &Function::new("f.wasm"), path);
        let Err(Stop::Problem(missing)) = image(&path) else { panic!("it should be refused") };
        assert_eq!(missing.code, Code::ImageMissing);
        assert!(missing.hint.contains("[function.f]"), "nothing builds it: {missing}");
        fs::write(&path, "#!/bin/sh").unwrap();
        assert_eq!(code(image(&path)), Code::ImageNotWasm);
        fs::File::create(&path).unwrap().set_len(IMAGE_BYTES_MAX + 1).unwrap();
        assert_eq!(code(image(&path)), Code::ImageTooLarge);
    }

    #[test]
    fn replacing_a_file_leaves_its_other_links_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link] = ["a", "b"].map(|name| folder.path().join(name));
        fs::write(&path, "old").unwrap();
        fs::hard_link(&path, &link).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!((fs::read(&path).unwrap(), fs::read(&link).unwrap()), (b"new".to_vec(), b"old".to_vec()));
        assert_eq!(hash(b"new").len(), 64);
    }
}
