//! A folder's manifest, and the images it names.

use super::brought::Images;
use super::component::component;
use super::folder::{AtPath, Folder, Missed};
use super::stop::{Result, Stop};
use super::words;
use manifest::{Function, Manifest, Name};
use problem::{Code, Problem};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// Bytes of an image; a larger one is not read.
pub const IMAGE_BYTES_MAX: u64 = 1 << 30;

/// A manifest and the folder its paths start from.
pub struct Project {
    pub folder: PathBuf,
    pub manifest: Manifest,
    /// What makes images that are no components.
    pub images: Images,
}

/// Reads the manifest in `place`, or the file `place` itself.
pub fn project(place: &Path, images: &Images) -> Result<Project> {
    let (folder, file) = match place.is_dir() {
        true if place == Path::new(".") => (PathBuf::new(), PathBuf::from(manifest::FILE_NAME)),
        true => (place.to_path_buf(), place.join(manifest::FILE_NAME)),
        false => (place.parent().map_or_else(PathBuf::new, Path::to_path_buf), place.to_path_buf()),
    };
    let text = text(place, &file)?;
    let manifest = manifest::parse(&text).map_err(|problem| located(&file, problem))?;
    if manifest.function.is_empty() {
        let problem = Problem::new(Code::ManifestValue, format!("{} has no function", file.display()));
        return Err(problem.with_hint("begin one with a line like [function.hello]").into());
    }
    Ok(Project { folder, manifest, images: images.clone() })
}

/// The text of a manifest. One that was found in a folder may be no link out of it; one that was named may be any file.
fn text(place: &Path, file: &Path) -> Result<String> {
    let limit = manifest::MANIFEST_BYTES_MAX as u64;
    let (folder, name) = match place.is_dir() {
        true => (place.to_path_buf(), PathBuf::from(manifest::FILE_NAME)),
        false => {
            let real = fs::canonicalize(file).map_err(|error| unreadable(place, file, &error))?;
            (
                real.parent().unwrap_or(Path::new("/")).to_path_buf(),
                real.file_name().map(PathBuf::from).unwrap_or_default(),
            )
        }
    };
    let bytes = match Folder::open(&folder).and_then(|folder| folder.read(&name, limit)) {
        Err(Missed::TooLarge { bytes, .. }) => {
            let (size, limit) = (words::bytes(bytes), words::bytes(limit));
            let detail = format!("{} has {size}, the limit is {limit}", file.display());
            return Err(Problem::new(Code::ManifestSyntax, detail).with_hint(manifest::DIVIDE).into());
        }
        Err(Missed::Failed { error, .. }) => return Err(unreadable(place, file, &error)),
        read => read?,
    };
    let strange = || match place.is_dir() {
        true => Stop::new(Code::ManifestSyntax, format!("{} is not UTF-8 text", file.display())),
        false => Stop::new(Code::ManifestMissing, format!("{} is neither a folder nor a manifest", file.display())),
    };
    String::from_utf8(bytes).map_err(|_| strange())
}

impl Project {
    /// Where the image of a function stands.
    pub fn image_path(&self, function: &Function) -> PathBuf {
        self.folder.join(&function.image)
    }

    /// The folder that no link of an image may lead out of, and the image's path in it.
    ///
    /// A path that is written in the manifest may lead out of the project: whoever reads it sees that. The folder is
    /// then the image's own, or the one that it is in.
    fn source(&self, function: &Function) -> std::result::Result<(Folder, PathBuf), Missed> {
        let mut above = 0;
        let mut inner = PathBuf::new();
        for part in Path::new(&function.image).components() {
            match part {
                Component::Normal(name) => inner.push(name),
                Component::ParentDir if !inner.pop() => above += 1,
                Component::ParentDir | Component::CurDir => {}
                Component::RootDir | Component::Prefix(_) => inner = PathBuf::from("/"),
            }
        }
        if above == 0 && inner.is_relative() {
            return Ok((Folder::open(&self.folder)?, inner));
        }
        if inner.is_absolute() {
            let folder = if inner.is_dir() { inner.as_path() } else { inner.parent().unwrap_or(&inner) };
            let rest = inner.strip_prefix(folder).map(Path::to_owned).unwrap_or_default();
            return Ok((Folder::open(folder)?, rest));
        }
        let top = Folder::open(&self.folder.join("../".repeat(above)))?;
        match top.find(&inner)? {
            AtPath::Folder(_) => Ok((top.below(&inner)?, PathBuf::new())),
            AtPath::File(_) => {
                let name = inner.file_name().map(PathBuf::from).unwrap_or_default();
                Ok((top.below(inner.parent().unwrap_or(Path::new("")))?, name))
            }
        }
    }
}

/// An image as it will run.
pub struct Image {
    /// A component, or a bundle.
    pub bytes: Vec<u8>,
    /// It was a core module on disk.
    pub converted: bool,
}

/// Reads the image of a function, making a component of a core module, or what its class makes of its files.
pub fn image(project: &Project, name: &Name, function: &Function) -> Result<Image> {
    let path = project.image_path(function);
    let about = |problem: Problem| Problem {
        detail: format!("function {:?}: {}: {}", name.as_str(), path.display(), problem.detail).into(),
        ..problem
    };
    let read = || {
        let (folder, inner) = project.source(function)?;
        folder.find(&inner).map(|_| (folder, inner))
    };
    let (folder, inner) = read().map_err(|missed| match missed.is_not_found() {
        true => missing(project, name, function).into(),
        false => Stop::from(missed).about(name),
    })?;
    if let Some(makes) = project.images.of(function.isolation) {
        let bytes = makes.image(&folder, &inner, function).map_err(|stop| match stop {
            Stop::Problem(problem) => about(problem).into(),
            other => other,
        })?;
        return Ok(Image { bytes, converted: false });
    }
    let file = match folder.read(&inner, IMAGE_BYTES_MAX) {
        Err(Missed::TooLarge { bytes, .. }) => {
            let detail = format!("it has {}, the limit is {}", words::bytes(bytes), words::bytes(IMAGE_BYTES_MAX));
            return Err(about(Problem::new(Code::ImageTooLarge, detail)).into());
        }
        read => read.map_err(|missed| Stop::from(missed).about(name))?,
    };
    match component(&file).map_err(about)? {
        std::borrow::Cow::Borrowed(_) => Ok(Image { bytes: file, converted: false }),
        std::borrow::Cow::Owned(bytes) => Ok(Image { bytes, converted: true }),
    }
}

fn missing(project: &Project, name: &Name, function: &Function) -> Problem {
    let detail = format!("function {:?}: there is no {}", name.as_str(), project.image_path(function).display());
    let problem = Problem::new(Code::ImageMissing, detail);
    match (&function.build, project.images.of(function.isolation)) {
        (Some(_), _) => problem,
        (None, Some(makes)) => problem.with_hint(makes.hint()),
        (None, None) => problem.with_hint(format!(
            "put the image there, or say what makes it: build = \"COMMAND\" in [function.{}]",
            name.as_str()
        )),
    }
}

/// Puts `bytes` in the place of a file, whole or not at all.
///
/// A new file, and not new bytes in the old one: compilers keep further links to what they wrote. A link that stands
/// there is replaced, and what it names stays as it is.
pub fn replace(path: &Path, bytes: &[u8]) -> Result {
    /// Of a file that is new, less what the user's mask takes.
    const MODE: u32 = 0o666;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || {
        let mut file = tempfile::Builder::new().permissions(fs::Permissions::from_mode(MODE)).tempfile_in(folder)?;
        file.write_all(bytes)?;
        if let Ok(old) = fs::symlink_metadata(path)
            && old.is_file()
        {
            file.as_file().set_permissions(old.permissions())?;
        }
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|error: io::Error| Stop::file(path, &error))
}

/// SHA-256 in hexadecimal: the name of an image.
pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unreadable(place: &Path, file: &Path, error: &io::Error) -> Stop {
    let detail = match error.kind() {
        io::ErrorKind::NotFound if place.is_dir() => format!("there is no {}", file.display()),
        io::ErrorKind::NotFound => format!("there is no folder or manifest {}", place.display()),
        _ => return Stop::file(file, error),
    };
    Stop::new(Code::ManifestMissing, detail)
}

/// A problem of a manifest says which file it is in.
fn located(file: &Path, problem: Problem) -> Problem {
    Problem { detail: format!("{}: {}", file.display(), problem.detail).into(), ..problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn project(place: &Path) -> Result<Project> {
        super::project(place, &Images::default())
    }

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
        fs::write(folder.path().join("lighter.toml"), "[function.f]\nimage = \"f.wasm\"").unwrap();
        let project = project(folder.path()).unwrap();
        let image = || super::image(&project, &name, &project.manifest.function["f"]);
        let Err(Stop::Problem(missing)) = image() else { panic!("it should be refused") };
        assert_eq!(missing.code, Code::ImageMissing);
        assert!(missing.hint.contains("[function.f]"), "nothing builds it: {missing}");
        fs::write(&path, "#!/bin/sh").unwrap();
        assert_eq!(code(image()), Code::ImageNotWasm);
        fs::File::create(&path).unwrap().set_len(IMAGE_BYTES_MAX + 1).unwrap();
        assert_eq!(code(image()), Code::ImageTooLarge);
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

    #[test]
    fn an_image_that_a_link_takes_out_of_the_project_is_refused_and_one_that_the_manifest_names_is_not() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("repository/project")).unwrap();
        fs::create_dir(at("other")).unwrap();
        fs::write(at("other/f.wasm"), b"\0asm\x0d\0\x01\0").unwrap();
        fs::write(at("repository/own.wasm"), b"\0asm\x0d\0\x01\0").unwrap();
        symlink("../../other/f.wasm", at("repository/project/link.wasm")).unwrap();
        symlink("../../other", at("repository/project/target")).unwrap();
        symlink("../other/f.wasm", at("repository/shared.wasm")).unwrap();
        symlink("own.wasm", at("repository/latest.wasm")).unwrap();
        let image = |image: &str| {
            let text = format!("[function.f]\nimage = {image:?}");
            fs::write(at("repository/project/lighter.toml"), text).unwrap();
            let project = project(&at("repository/project")).unwrap();
            super::image(&project, &"f".parse().unwrap(), &project.manifest.function["f"])
        };
        let absolute = at("other/f.wasm");
        for named in
            ["../../other/f.wasm", "../own.wasm", "../latest.wasm", "x/../../own.wasm", absolute.to_str().unwrap()]
        {
            assert!(image(named).is_ok(), "{named}");
        }
        for linked in ["link.wasm", "target/f.wasm", "../shared.wasm"] {
            assert_eq!(code(image(linked)), Code::LinkLeaves, "{linked}");
        }
        fs::remove_file(at("repository/project/lighter.toml")).unwrap();
        symlink("../../other/f.wasm", at("repository/project/lighter.toml")).unwrap();
        assert_eq!(code(project(&at("repository/project"))), Code::LinkLeaves);
    }

    #[test]
    fn a_folder_that_is_not_there_is_said_to_be_none() {
        let folder = tempfile::tempdir().unwrap();
        let said = |place: &Path| match project(place) {
            Err(Stop::Problem(problem)) => problem.detail.to_string(),
            _ => panic!("it should be refused"),
        };
        assert!(said(&folder.path().join("nothere")).starts_with("there is no folder or manifest "));
        fs::write(folder.path().join("f.wasm"), b"\0asm\xff").unwrap();
        assert!(said(&folder.path().join("f.wasm")).ends_with("f.wasm is neither a folder nor a manifest"));
    }

    #[test]
    fn what_is_written_beside_an_image_goes_through_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["f.payload", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "other").unwrap();
        symlink(&other, &path).unwrap();
        replace(&path, b"payload").unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read(&other).unwrap()), (b"payload".to_vec(), b"other".to_vec()));
    }
}
