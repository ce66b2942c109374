//! Before the database opens its folder: is everything there that must be?
//!
//! The database makes missing files anew, and takes a part without its head for an unfinished one and removes it. That
//! is right after a power cut in the very first moments, but not when a file of a state in use has gone missing. It
//! also trusts the file that lists the tables of a part, although it has written down that file's checksum.

use crate::error::{from_database, from_io};
use crate::journal::{self, Checked};
use fjall::{AbstractTree, SeqNo};
use lsm_tree::Guard;
use problem::{Code, Problem};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// The file without which the database begins anew.
const VERSION: &str = "version";
const VERSION_CONTENT: &[u8] = b"FJL\x03";
/// Where its parts are, one folder each.
pub const PARTS: &str = "keyspaces";
/// The part that names the others; it has no journal.
const NAMES: &str = "0";
/// The file without which a part begins anew: the number of the list of its tables 8, the list's checksum (XXH3, 128
/// bits) 16, and 0; numbers low byte first. The list is in a file named `v` and its number.
const CURRENT: &str = "current";
const CURRENT_BYTES: usize = 25;
/// What keys begin with that tell the name of a part: there follows its number, 8 bytes, high first.
const NAME_PREFIX: &[u8] = b"n";
pub const TABLES: &str = "tables";

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
        return Err(corrupt(&path, "is missing"));
    }
    let version = folder.join(VERSION);
    if fs::read(&version).map_err(failed)? != VERSION_CONTENT {
        return Err(corrupt(&version, "is damaged"));
    }
    let names = folder.join(PARTS).join(NAMES);
    look_at(&names).map_err(failed)??;
    // There has been a mark, so all of these had been made and their names were durable before.
    for part in registered(&names)? {
        look_at(&folder.join(PARTS).join(part)).map_err(failed)??;
    }
    Ok(Some(checked))
}

fn corrupt(path: &Path, what: &str) -> Problem {
    Problem::new(Code::StateCorrupt, format!("{} {what}", path.display()))
}

/// Looks at the files that say which tables `part` has.
fn look_at(part: &Path) -> io::Result<Result<(), Problem>> {
    let current = part.join(CURRENT);
    let bytes = match fs::read(&current) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Err(corrupt(&current, "is missing")));
        }
        Err(error) => return Err(error),
    };
    let Ok(bytes): Result<[u8; CURRENT_BYTES], _> = bytes.try_into() else {
        return Ok(Err(corrupt(&current, "is damaged")));
    };
    let (number, rest) = bytes.split_first_chunk().expect("it is longer");
    let (checksum, kind) = rest.split_first_chunk().expect("it is longer");
    if kind != [0] {
        return Ok(Err(corrupt(&current, "is damaged")));
    }
    let list = part.join(format!("v{}", u64::from_le_bytes(*number)));
    let file = match File::open(&list) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Where there is another list, it is the name of it that is wrong.
            let has_other = self::list(part)?.iter().any(|path| is_list(path));
            let problem = if has_other { corrupt(&current, "is damaged") } else { corrupt(&list, "is missing") };
            return Ok(Err(problem));
        }
        Err(error) => return Err(error),
    };
    if checksum_of(&file)? == u128::from_le_bytes(*checksum) {
        return Ok(Ok(()));
    }
    let what = format!("or {} is damaged: they do not fit together", list.display());
    Ok(Err(corrupt(&current, &what)))
}

fn is_list(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix('v').is_some_and(|number| number.parse::<u64>().is_ok())
}

/// The numbers of all parts, as the part with their names has them. The database makes a part anew that it does not
/// find, and removes what is left of one without its head: so it is asked before.
fn registered(names: &Path) -> Result<Vec<String>, Problem> {
    let read = || -> lsm_tree::Result<Vec<String>> {
        let tree = lsm_tree::Config::new(names, Default::default(), Default::default()).open()?;
        let mut numbers = Vec::new();
        for guard in tree.prefix(NAME_PREFIX, SeqNo::MAX, None) {
            let key = guard.key()?;
            let number = key.get(NAME_PREFIX.len()..).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
            numbers.extend(number.map(|number| number.to_string()));
        }
        Ok(numbers)
    };
    let given_up = || corrupt(names, "is damaged: the database gave up on it");
    let numbers = std::panic::catch_unwind(read).map_err(|_| given_up())?;
    numbers.map_err(|error| from_database("read which parts there are", &error.into()))
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
