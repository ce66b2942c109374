//! Where bases made ahead are put: what has its name is whole, whenever the power fails.
//!
//! ```text
//!   .new-ready-PROCESS/ ── finished, synced ──▶ ready-KIND-ID/     the one that was there: .new-before-KIND-ID/
//! ```
//! What one program has finished another may finish again, where it is. Its description is written last, and names
//! the program's unit half.

use super::{CONTENTS, Contents, KINDS, Kind, Listed, PREFIX, Ready, all, at, describe, hex, id_of, list, place};
use crate::base::java::{Description, UNIT, unit_id};
use crate::base::python::DESCRIPTION;
use crate::base::runtime::{archive, release, unavailable};
use crate::base::{NEW, gone_is_fine, make_folder, now_ms, open_for_reading, put_in_place};
use crate::descriptors as fd;
use problem::Problem;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// One that stood where the same is being put.
const BEFORE: &str = ".new-before-";

/// Makes a base beside its place. Those of its kind that were there before stay until the node starts the next time:
/// functions that are loaded run on them.
pub fn into_place(folder: &Path, make: impl FnOnce(&Path) -> Result<Contents, Problem>) -> Result<Ready, Problem> {
    make_folder(folder).map_err(at(folder))?;
    let folder = folder.canonicalize().map_err(at(folder))?;
    let new = folder.join(format!("{NEW}{PREFIX}{}", std::process::id()));
    fs::remove_dir_all(&new).or_else(gone_is_fine).map_err(at(&new))?;
    make_folder(&new).map_err(at(&new))?;
    let made = make(&new).and_then(|contents| put(&folder, &new, &contents));
    fs::remove_dir_all(&new).ok();
    let (kind, id) = made?;
    let this = list(&folder).into_iter().find(|ready| ready.kind == kind && ready.id == id);
    this.ok_or_else(|| unavailable(format!("the base for {kind} has gone")))
}

/// Removes all but the newest of each kind, on which functions of a running node may be.
pub fn remove_older(folder: &Path) {
    for kind in KINDS {
        let mut found: Vec<_> = all(folder).into_iter().filter(|(one, ..)| *one == kind).collect();
        found.pop();
        for (_, id, _) in found {
            let gone = folder.join(format!("{NEW}gone-{id}"));
            if fs::rename(place(folder, kind, &id), &gone).is_ok() {
                fs::remove_dir_all(&gone).ok();
            }
        }
    }
}

/// Gives those their names back that stood where the same was being put, and had not come there when the node ended.
pub fn take_back(folder: &Path) -> io::Result<()> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let paths: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    // While one is finished, a link stands in its place.
    let is_link = |path: &&PathBuf| fs::read_link(path).is_ok_and(|to| name(&to).starts_with(NEW));
    for link in paths.iter().filter(is_link) {
        fs::remove_file(link)?;
    }
    for before in &paths {
        let Some(place) = name(before).strip_prefix(BEFORE).map(|name| folder.join(format!("{PREFIX}{name}"))) else {
            continue;
        };
        if !place.exists() {
            fs::rename(before, place)?;
        }
    }
    Ok(())
}

fn put(folder: &Path, new: &Path, contents: &Contents) -> Result<(Kind, String), Problem> {
    let text = serde_json::to_vec(contents).expect("texts and numbers");
    let (kind, id) = (contents.kind, id_of(&text));
    let place = place(folder, kind, &id);
    let is_there = |found: &Description| found.unit == unit_id() && is_whole(&place, contents);
    if let Some(description) = describe(&place).filter(is_there) {
        // What runs on it keeps it as it is, and it is the newest again.
        write(&place, &Description { made_ms: after_all(folder), ..description })?;
        return Ok((kind, id));
    }
    fs::write(new.join(CONTENTS), text).map_err(at(new))?;
    // A part of it may be there already. It stays where this one turns out to be of no use.
    let before = folder.join(format!("{BEFORE}{kind}-{id}"));
    fs::remove_dir_all(&before).or_else(gone_is_fine).map_err(at(&before))?;
    fs::rename(&place, &before).or_else(gone_is_fine).map_err(at(&place))?;
    let finished = finish_in_place(new, &place, kind);
    match &finished {
        Ok(()) => put_in_place(new, &place).map_err(at(&place))?,
        Err(_) => fs::rename(&before, &place).or_else(gone_is_fine).map_err(at(&place))?,
    }
    fs::remove_dir_all(&before).ok();
    finished.map(|()| (kind, id))
}

/// Whether all that a list says is in its place, byte for byte.
fn is_whole(place: &Path, contents: &Contents) -> bool {
    let is_there = |Listed { path, sha256, .. }: &Listed| {
        fs::read(place.join(path)).is_ok_and(|content| hex(&Sha256::digest(&content)) == *sha256)
    };
    contents.files.iter().all(is_there)
}

/// Now, or later than all that are there: a clock may go back, and the newest is the one that counts.
fn after_all(folder: &Path) -> u64 {
    let later = all(folder).iter().map(|(.., description)| description.made_ms.saturating_add(1)).max();
    later.unwrap_or(0).max(now_ms())
}

/// Writes what a base says of itself, in one step, after all else is on the disk.
fn write(place: &Path, description: &Description) -> Result<(), Problem> {
    let text = serde_json::to_vec_pretty(&Description { home: "runtime".into(), ..description.clone() });
    let beside = place.join(format!("{NEW}{DESCRIPTION}"));
    let write = || {
        fs::write(&beside, text.expect("texts and numbers"))?;
        let folder = File::open(place)?;
        fd::sync_file_system(&folder)?;
        fs::rename(&beside, place.join(DESCRIPTION))?;
        folder.sync_all()
    };
    write().map_err(at(place))
}

/// The archive names jars where the base will be: a link stands there meanwhile.
fn finish_in_place(new: &Path, place: &Path, kind: Kind) -> Result<(), Problem> {
    symlink(new, place).map_err(at(place))?;
    let finished = finish(new, place, kind);
    fs::remove_file(place).map_err(at(place))?;
    finished?;
    open_for_reading(new).map_err(at(new))
}

/// Adds to a base in `new`, which is or will be `place`, what is this machine's and this program's own.
pub fn finish(new: &Path, place: &Path, kind: Kind) -> Result<Description, Problem> {
    let home = place.join("runtime");
    fs::write(new.join("unit.jar"), UNIT).map_err(at(new))?;
    let has_archive = archive(&home, place, true, kind == Kind::Android)
        .inspect_err(|problem| tracing::warn!(target: "lighter::bases", "{}", problem.detail))
        .is_ok();
    if !has_archive && kind == Kind::Android {
        // What cannot be rehearsed would fail in every unit too.
        let jar = place.join("libdroid.jar");
        return Err(unavailable(format!("Libdroid does not start on this machine: {}", jar.display())));
    }
    let (_, java) = release(&home)?;
    let has_libdroid = kind == Kind::Android;
    let made_ms = place.parent().map_or_else(now_ms, after_all);
    let unit = unit_id().to_owned();
    let description = Description { java, home, has_archive, has_libdroid, unit, made_ms };
    write(new, &description)?;
    Ok(description)
}
