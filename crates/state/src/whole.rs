//! Before the database opens its folder: is all there that has to be?
//!
//! The database makes anew what it does not find, and takes a part without its head for one that was never finished and
//! removes it. Right after a power cut in the very first moments; not when a file of a state in use has gone missing. And
//! it trusts the file that says which tables a part has, though it has written down its checksum.

use crate::error::from_io;
use crate::journal::{self, Checked};
use problem::{Code, Problem};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// The file without which the database begins anew.
const VERSION: &str = "version";
/// Where its parts are, one folder each.
pub const PARTS: &str = "keyspaces";
/// The part that names the others; it has no journal.
const NAMES: &str = "0";
/// The file without which a part begins anew: the number of the list of its tables 8, the list's checksum (XXH3, 128
/// bits) 16, and 0; numbers low byte first. The list is in a file named `v` and its number.
const CURRENT: &str = "current";
const CURRENT_BYTES: usize = 25;
const TABLES: &str = "tables";

/// Checks the database's folder. None when there is nothing in it yet; what a first start left unfinished is removed.
///
/// # Errors
/// `StateCorrupt` names what is missing or damaged; and those of the disk.
pub fn check(folder: &Path) -> Result<Option<Checked>, Problem> {
    let failed = |error: io::Error| from_io(&format!("check {}", folder.display()), &error);
    if !folder.try_exists().map_err(failed)? {
        return Ok(None);
    }
    let Some(checked) = journal::check(folder)? else {
        if let Some(path) = first_content(folder).map_err(failed)? {
            let missing = folder.join(journal::MARK_NAME);
            let detail = format!(
                "{} is missing and {} is not empty: written by an older version of lighter, or damaged",
                missing.display(),
                path.display()
            );
            return Err(Problem::new(Code::StateCorrupt, detail));
        }
        // Commits are taken only after the first mark: there has never been one.
        fs::remove_dir_all(folder).map_err(failed)?;
        return Ok(None);
    };
    if let Some(path) = missing(folder).map_err(failed)? {
        return Err(Problem::new(Code::StateCorrupt, format!("{} is missing", path.display())));
    }
    for part in parts(folder).map_err(failed)? {
        if let Some(path) = damaged(&part).map_err(failed)? {
            return Err(Problem::new(Code::StateCorrupt, format!("{} is damaged", path.display())));
        }
    }
    Ok(Some(checked))
}

/// The file of `part` that is not as it was written, of those that say which tables it has.
fn damaged(part: &Path) -> io::Result<Option<PathBuf>> {
    let current = part.join(CURRENT);
    let bytes = match fs::read(&current) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let Ok(bytes): Result<[u8; CURRENT_BYTES], _> = bytes.try_into() else { return Ok(Some(current)) };
    let (number, rest) = bytes.split_first_chunk().expect("it is longer");
    let (checksum, kind) = rest.split_first_chunk().expect("it is longer");
    let list = part.join(format!("v{}", u64::from_le_bytes(*number)));
    match File::open(&list) {
        Ok(file) if kind == [0] && checksum_of(&file)? == u128::from_le_bytes(*checksum) => Ok(None),
        Ok(_) => Ok(Some(list)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(list)),
        Err(error) => Err(error),
    }
}

fn checksum_of(mut file: &File) -> io::Result<u128> {
    let (mut checksum, mut bytes) = (Xxh3::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(checksum.digest128()),
            length => checksum.update(&bytes[..length]),
        }
    }
}

fn missing(folder: &Path) -> io::Result<Option<PathBuf>> {
    let names = folder.join(PARTS).join(NAMES);
    for needed in [folder.join(VERSION), names.join(CURRENT)] {
        if !needed.try_exists()? {
            return Ok(Some(needed));
        }
    }
    for part in parts(folder)? {
        let current = part.join(CURRENT);
        if !current.try_exists()? && first_file(&part.join(TABLES))?.is_some() {
            return Ok(Some(current));
        }
    }
    Ok(None)
}

/// A file that only commits can have made.
fn first_content(folder: &Path) -> io::Result<Option<PathBuf>> {
    for number in journal::numbers(folder)? {
        let path = journal::path_of(folder, number);
        if !is_zero(&path)? {
            return Ok(Some(path));
        }
    }
    for part in parts(folder)?.into_iter().filter(|part| !part.ends_with(NAMES)) {
        if let Some(table) = first_file(&part.join(TABLES))? {
            return Ok(Some(table));
        }
    }
    Ok(None)
}

fn parts(folder: &Path) -> io::Result<Vec<PathBuf>> {
    list(&folder.join(PARTS))
}

fn first_file(folder: &Path) -> io::Result<Option<PathBuf>> {
    Ok(list(folder)?.into_iter().next())
}

fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn is_zero(path: &Path) -> io::Result<bool> {
    let (mut file, mut bytes) = (File::open(path)?, vec![0; 256 << 10]);
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(true),
            length if bytes[..length].iter().any(|byte| *byte != 0) => return Ok(false),
            _ => {}
        }
    }
}
