//! What lies in the folder when the warehouse is opened: finds what is stored and sweeps out what is not.
//!
//! ```text
//! warehouse                        says that the folders beside it are ours
//! incoming/<process>-<number>      being written; swept out at open
//! images/ab/<sha-256>.wasm
//! artefacts/<class>-<fingerprint>/<sha-256 of the image>-<blake3 of the artefact>
//! ```
//! The hash of an artefact is part of its name: one rename puts both in place at once, the file is nothing but what is
//! mapped, and the hash covers all of it.

use crate::error::unusable;
use crate::hash::{ImageHash, from_hex};
use problem::{Code, Problem};
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

const MARKER: &str = "warehouse";
const MARKER_TEXT: &str = "lighter warehouse 1\n";
const FOLDERS: [&str; 3] = ["incoming", "images", "artefacts"];

pub(crate) struct Inventory {
    pub images: Vec<FoundFile<ImageHash>>,
    pub artefacts: Vec<FoundFile<FoundArtefact>>,
}

pub(crate) struct FoundFile<N> {
    pub name: N,
    pub bytes: u64,
    pub used: SystemTime,
}

#[derive(Clone)]
pub(crate) struct FoundArtefact {
    pub shelf: Arc<str>,
    pub image: ImageHash,
    pub hash: [u8; 32],
}

/// Makes sure the folders are there and ours, sweeps them and lists what they hold.
///
/// # Errors
/// [`Code::DataNewer`] when a later version wrote them; [`Code::DataUnusable`] when they cannot be used, or hold what
/// someone else put there.
pub(crate) fn open(root: &Path) -> Result<Inventory, Problem> {
    claim(root)?;
    for entry in list(&root.join(FOLDERS[0]))? {
        sweep(&entry)?;
    }
    Ok(Inventory { images: images(&root.join(FOLDERS[1]))?, artefacts: artefacts(&root.join(FOLDERS[2]))? })
}

pub(crate) fn incoming_path(root: &Path, number: u64) -> PathBuf {
    root.join(FOLDERS[0]).join(format!("{}-{number}", std::process::id()))
}

pub(crate) fn images_path(root: &Path) -> PathBuf {
    root.join(FOLDERS[1])
}

pub(crate) fn image_path(root: &Path, hash: &ImageHash) -> PathBuf {
    let name = hash.to_string();
    root.join(FOLDERS[1]).join(&name[..2]).join(format!("{name}.wasm"))
}

pub(crate) fn artefacts_path(root: &Path) -> PathBuf {
    root.join(FOLDERS[2])
}

pub(crate) fn shelf_path(root: &Path, shelf: &str) -> PathBuf {
    root.join(FOLDERS[2]).join(shelf)
}

pub(crate) fn artefact_path(root: &Path, shelf: &str, image: &ImageHash, hash: &[u8; 32]) -> PathBuf {
    // A BLAKE3 is written like a SHA-256.
    shelf_path(root, shelf).join(format!("{image}-{}", ImageHash(*hash)))
}

/// Sweeping must never meet a folder that is not ours, such as someone's `images`.
fn claim(root: &Path) -> Result<(), Problem> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    let create = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    create(root).map_err(|error| unusable("make the folder", root, &error))?;
    let marker = root.join(MARKER);
    match fs::read_to_string(&marker) {
        Ok(text) if text == MARKER_TEXT => {}
        // A crash while it was written.
        Ok(text) if MARKER_TEXT.starts_with(&text) && !any_folder(root) => write_marker(&marker)?,
        Ok(text) if is_newer(&text) => {
            let detail =
                format!("{} is of format {:?}, this version reads {MARKER_TEXT:?}", root.display(), text.trim());
            return Err(Problem::new(Code::DataNewer, detail));
        }
        Ok(_) => {
            let detail = format!("{} is of a format this version does not know", root.display());
            return Err(Problem::new(Code::DataUnusable, detail).with_hint("use the version of lighter that wrote it"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && !any_folder(root) => write_marker(&marker)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let detail = format!("{} holds `images` or `artefacts` that no node made", root.display());
            return Err(Problem::new(Code::DataUnusable, detail).with_hint("choose another folder with --data-folder"));
        }
        Err(error) => return Err(unusable("read", &marker, &error)),
    }
    for folder in FOLDERS.map(|name| root.join(name)) {
        // Artefacts are code that will run: nobody else may write here, whatever the umask was.
        create(&folder)
            .and_then(|()| fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)))
            .and_then(|()| fs::File::open(&folder)?.sync_all())
            .map_err(|error| unusable("use the folder", &folder, &error))?;
    }
    Ok(())
}

/// Whether a later version wrote this marker.
fn is_newer(text: &str) -> bool {
    let number = |text: &str| text.trim().strip_prefix("lighter warehouse ")?.parse::<u64>().ok();
    number(text) > number(MARKER_TEXT)
}

fn any_folder(root: &Path) -> bool {
    FOLDERS.iter().any(|name| root.join(name).symlink_metadata().is_ok())
}

fn write_marker(marker: &Path) -> Result<(), Problem> {
    let write = || {
        fs::write(marker, MARKER_TEXT)?;
        fs::File::open(marker)?.sync_all()?;
        fs::File::open(marker.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|error| unusable("write", marker, &error))
}

fn images(folder: &Path) -> Result<Vec<FoundFile<ImageHash>>, Problem> {
    let mut found = Vec::new();
    for (prefix, entry) in folders(folder)? {
        for file in list(&entry.path())? {
            let name = file.file_name().to_str().and_then(|name| name.strip_suffix(".wasm")?.parse::<ImageHash>().ok());
            match (name.filter(|hash| hash.to_string().starts_with(&prefix)), regular(&file)?) {
                (Some(name), Some(data)) => found.push(FoundFile { name, bytes: data.len(), used: used(&data) }),
                _ => sweep(&file)?,
            }
        }
    }
    Ok(found)
}

fn artefacts(folder: &Path) -> Result<Vec<FoundFile<FoundArtefact>>, Problem> {
    let mut found: Vec<FoundFile<FoundArtefact>> = Vec::new();
    for (shelf, entry) in folders(folder)? {
        let shelf: Arc<str> = shelf.into();
        let mut newest = std::collections::HashMap::<ImageHash, (SystemTime, DirEntry, usize)>::new();
        for file in list(&entry.path())? {
            let (Some(name), Some(data)) = (artefact_name(&shelf, &file), regular(&file)?) else {
                sweep(&file)?;
                continue;
            };
            let written = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let image = name.image;
            let next = FoundFile { name, bytes: data.len(), used: used(&data) };
            // Two for one image: a crash came between putting the new one in place and removing the old one.
            match newest.remove(&image) {
                Some((older, old_file, index)) if older <= written => {
                    sweep(&old_file)?;
                    found[index] = next;
                    newest.insert(image, (written, file, index));
                }
                Some(newer) => {
                    sweep(&file)?;
                    newest.insert(image, newer);
                }
                None => {
                    newest.insert(image, (written, file, found.len()));
                    found.push(next);
                }
            }
        }
        // Only an empty folder goes; a shelf that is opened makes its own again.
        let _ = fs::remove_dir(entry.path());
    }
    Ok(found)
}

fn artefact_name(shelf: &Arc<str>, file: &DirEntry) -> Option<FoundArtefact> {
    let name = file.file_name();
    let (image, hash) = name.to_str()?.split_once('-')?;
    Some(FoundArtefact { shelf: shelf.clone(), image: image.parse().ok()?, hash: from_hex(hash)? })
}

/// The folders in `folder` with their names; files between them are swept out.
fn folders(folder: &Path) -> Result<Vec<(String, DirEntry)>, Problem> {
    let mut found = Vec::new();
    for entry in list(folder)? {
        let is_folder = entry.file_type().map_err(|error| unusable("look at", &entry.path(), &error))?.is_dir();
        match entry.file_name().into_string() {
            Ok(name) if is_folder => found.push((name, entry)),
            _ => sweep(&entry)?,
        }
    }
    Ok(found)
}

fn list(folder: &Path) -> Result<Vec<DirEntry>, Problem> {
    let failed = |error: io::Error| unusable("list", folder, &error);
    fs::read_dir(folder).map_err(failed)?.collect::<io::Result<_>>().map_err(failed)
}

/// None for anything that is not a file; links are not followed.
fn regular(entry: &DirEntry) -> Result<Option<Metadata>, Problem> {
    let data = entry.metadata().map_err(|error| unusable("look at", &entry.path(), &error))?;
    Ok(data.is_file().then_some(data))
}

/// Readers set the time of access, so that the order of use survives a restart.
fn used(data: &Metadata) -> SystemTime {
    let times = [data.accessed(), data.modified()];
    times.into_iter().flatten().max().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Removes a file that has no business here. A folder stays, unless it is empty: we make none of that name.
fn sweep(entry: &DirEntry) -> Result<(), Problem> {
    let path = entry.path();
    let is_folder = entry.file_type().map_err(|error| unusable("look at", &path, &error))?.is_dir();
    if is_folder {
        if let Err(error) = fs::remove_dir(&path) {
            tracing::warn!(path = %path.display(), %error, "a folder in the warehouse is not ours, left alone");
        }
        return Ok(());
    }
    tracing::info!(path = %path.display(), "removed a leftover from the warehouse");
    fs::remove_file(&path).map_err(|error| unusable("remove", &path, &error))
}
