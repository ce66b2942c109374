//! Bases that were made ahead: built once, carried as one file, and imported where they could not be made.
//!
//! ```text
//!   a JDK, Libdroid ──build──▶ DATA/bases/ready-android-ID/ ──export──▶ android.base ──import──▶ the same, elsewhere
//! ```
//! The file is a tar: `contents.json`, then the files that it lists, in its order and with its hashes; nothing else. ID
//! is a part of the SHA-256 of `contents.json`, so a name says every byte. What depends on the machine or on this
//! program is not in it, and is made when it is imported: the unit half in Java, and the archive from which units
//! start.

mod places;

use super::commands::folder_bytes;
use super::java::{Description, unit_id};
use super::python::DESCRIPTION;
use super::runtime::{check_version, fetch, home_of, link, on_path, release, unavailable};
use super::{make_folder, short};
use crate::bundle::{About, Bundle, Contract, Runtime};
use crate::{jar, tar};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Write as _};
use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use places::{finish, into_place};
pub(super) use places::{remove_older, take_back};

/// The first member, and the name of the list in a base.
const CONTENTS: &str = "contents.json";
const FORMAT: u32 = 1;
const PREFIX: &str = "ready-";
/// Bytes of the list, files in it, and bytes of all of them.
const CONTENTS_BYTES_MAX: usize = 2 << 20;
const FILES_MAX: usize = 4_000;
const BYTES_MAX: u64 = 512 << 20;
/// What is made on each machine, and not carried.
const OWN: [&str; 4] = [CONTENTS, DESCRIPTION, "unit.jar", "unit.jsa"];
/// The entry of the converter of dex, and the bundle that it is.
pub const CONVERTER_ENTRY: &str = "lighterage.convert.Converter::convert";
pub const CONVERTER: &str = "converter.tar";

/// What a base made ahead is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Java,
    Android,
}

const KINDS: [Kind; 2] = [Kind::Java, Kind::Android];

impl Kind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Java => "java",
            Self::Android => "android",
        }
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is in a base, and what it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    format: u32,
    kind: Kind,
    /// As in `17.0.15`.
    java: String,
    /// The processor its programs are for, as in `x86_64`.
    machine: String,
    files: Vec<Listed>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    path: String,
    bytes: u64,
    /// In hexadecimal digits.
    sha256: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    executable: bool,
}

/// A base that is there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ready {
    pub kind: Kind,
    /// Names its contents.
    pub id: String,
    /// As in `17.0.15`.
    pub java: String,
    /// Of all files, with those made on this machine.
    pub bytes: u64,
    pub made_ms: u64,
}

/// All bases made ahead in this folder, the newest of each kind last.
pub fn list(folder: &Path) -> Vec<Ready> {
    let ready = |(kind, id, Description { java, made_ms, .. }): (Kind, String, Description)| {
        let bytes = folder_bytes(&place(folder, kind, &id));
        Ready { kind, id, java, bytes, made_ms }
    };
    all(folder).into_iter().map(ready).collect()
}

/// What they say of themselves, in the same order.
fn all(folder: &Path) -> Vec<(Kind, String, Description)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let (kind, id) = name.strip_prefix(PREFIX)?.split_once('-')?;
        let kind = KINDS.into_iter().find(|one| one.as_str() == kind)?;
        Some((kind, id.to_owned(), describe(&entry.path())?))
    });
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|(kind, _, description)| (kind.as_str(), description.made_ms));
    found
}

/// The newest of a kind, made to fit this program; none: there is none.
///
/// # Errors
/// Its unit half is of another program, and cannot be made anew.
pub fn newest(folder: &Path, kind: Kind) -> Result<Option<(Description, PathBuf)>, Problem> {
    let found = all(folder).into_iter().rfind(|(one, ..)| *one == kind);
    let Some((_, id, description)) = found else { return Ok(None) };
    let place = place(folder, kind, &id);
    let is_finished = description.unit == unit_id();
    let description = if is_finished { description } else { finish(&place, &place, kind)? };
    Ok(Some((description, place)))
}

fn describe(place: &Path) -> Option<Description> {
    let mut description: Description = serde_json::from_slice(&fs::read(place.join(DESCRIPTION)).ok()?).ok()?;
    description.home = place.join("runtime");
    description.home.join("bin/java").exists().then_some(description)
}

fn place(folder: &Path, kind: Kind, id: &str) -> PathBuf {
    folder.join(format!("{PREFIX}{kind}-{id}"))
}

/// Builds a base of the Java that `chosen` names, or of the one on the path, or of the one that pip brings; for
/// Android, with the Libdroid in the folder that `tools/libdroid` made.
///
/// # Errors
/// [`Code::BaseUnavailable`] says what it wanted for.
pub fn build(folder: &Path, kind: Kind, chosen: Option<&Path>, libdroid: Option<&Path>) -> Result<Ready, Problem> {
    into_place(folder, |new| {
        let found = chosen.map_or_else(|| Ok(on_path()), |chosen| home_of(chosen).map(Some))?;
        if let Some(home) = &found {
            check_version(home)?;
        }
        // A JRE as it is would stay where it is, and not be in the base.
        let is_linked = found.as_deref().is_some_and(|home| link(home, &new.join("runtime")));
        if !is_linked {
            fetch(new)?;
        }
        resolve_links(&new.join("runtime"), new).map_err(at(new))?;
        if let Some(libdroid) = libdroid {
            add_libdroid(libdroid, new)?;
        }
        let (_, java) = release(&new.join("runtime"))?;
        fs::remove_file(new.join("requirements.lock")).ok();
        let files = listed(new).map_err(at(new))?;
        Ok(Contents { format: FORMAT, kind, java, machine: std::env::consts::ARCH.to_owned(), files })
    })
}

/// Takes what this machine needs of Libdroid.
fn add_libdroid(libdroid: &Path, new: &Path) -> Result<(), Problem> {
    let copy = |from: &str, to: &str| {
        let source = libdroid.join(from);
        let hint = "`tools/libdroid` in the sources of Lighterage makes that folder";
        let missing = |error: io::Error| unavailable(format!("{}: {error}", source.display())).with_hint(hint);
        fs::copy(&source, new.join(to)).map(drop).map_err(missing)
    };
    let native = format!("{}/libdroid.so", std::env::consts::ARCH);
    for (from, to) in [
        ("libdroid.jar", "libdroid.jar"),
        (&native, "libdroid.so"),
        ("classes.txt", "classes.txt"),
        ("NOTICE", "NOTICE"),
    ] {
        copy(from, to)?;
    }
    let licences = libdroid.join("licences");
    make_folder(&new.join("licences")).map_err(at(new))?;
    for entry in fs::read_dir(&licences).map_err(at(&licences))?.flatten() {
        fs::copy(entry.path(), new.join("licences").join(entry.file_name())).map_err(at(&licences))?;
    }
    let converter = fs::read(libdroid.join("converter.jar")).map_err(at(libdroid))?;
    let files = BTreeMap::from([(jar::APP.to_owned(), converter.as_slice())]);
    let bundle = Bundle { about: About::new(Contract::Event, CONVERTER_ENTRY, Runtime::Java), files }.pack()?;
    fs::write(new.join(CONVERTER), bundle).map_err(at(new))
}

/// Writes the newest base of a kind to a file that [`import`] reads.
///
/// # Errors
/// There is none, or the file cannot be written.
pub fn export(folder: &Path, kind: Kind, file: &Path) -> Result<Ready, Problem> {
    let Some(ready) = list(folder).into_iter().rfind(|ready| ready.kind == kind) else {
        let detail = format!("there is no base for {kind} that was built ahead");
        return Err(Problem::new(Code::BaseUnavailable, detail).with_hint("`lighter base build` makes one"));
    };
    let place = place(folder, kind, &ready.id);
    let text = fs::read(place.join(CONTENTS)).map_err(at(&place))?;
    let contents = read_contents(&text)?;
    let write = || {
        let mut out = BufWriter::new(File::create(file)?);
        member(&mut out, CONTENTS, text.len() as u64, &mut text.as_slice())?;
        for Listed { path, bytes, .. } in &contents.files {
            member(&mut out, path, *bytes, &mut File::open(place.join(path))?)?;
        }
        out.write_all(&[0; 2 * tar::BLOCK])?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    };
    let written = write().map_err(|error| Problem::new(Code::FileUnusable, format!("{}: {error}", file.display())));
    written.map(|()| ready)
}

fn member(out: &mut impl Write, name: &str, bytes: u64, content: &mut impl Read) -> io::Result<()> {
    let header = tar::header(name, bytes as usize).map_err(|error| io::Error::other(error.to_string()))?;
    out.write_all(&header)?;
    if io::copy(&mut content.take(bytes), out)? != bytes {
        return Err(io::Error::other(format!("{name} has other bytes than the base was made with")));
    }
    out.write_all(&[0; tar::BLOCK][..padding(bytes)])
}

fn padding(bytes: u64) -> usize {
    (bytes.next_multiple_of(tar::BLOCK as u64) - bytes) as usize
}

/// Brings a base that [`export`] has written, and makes it ready here. `id`: it is to be this one.
///
/// Its Java is run once, outside of any jail, to make the archive from which units start: import what you have built,
/// or what has the id that you were told.
///
/// # Errors
/// [`Code::BaseInvalid`]: the file is not such a base, is damaged, or is for another processor. Nothing is kept then.
pub fn import(folder: &Path, file: &Path, id: Option<&str>) -> Result<Ready, Problem> {
    let unusable = |error: io::Error| Problem::new(Code::FileUnusable, format!("{}: {error}", file.display()));
    let mut tar = BufReader::new(File::open(file).map_err(unusable)?);
    into_place(folder, |new| unpack(&mut tar, new, id))
}

/// Unpacks a file that [`export`] has written into an empty folder, each byte checked; runs nothing of it. A folder in
/// which it failed may hold a part.
///
/// # Errors
/// [`Code::BaseInvalid`], as [`import`] has it.
pub fn check(tar: &mut impl Read, new: &Path) -> Result<Kind, Problem> {
    unpack(tar, new, None).map(|contents| contents.kind)
}

/// Unpacks what the list names, and nothing else, into the empty folder `new`.
fn unpack(tar: &mut impl Read, new: &Path, id: Option<&str>) -> Result<Contents, Problem> {
    let text = first(tar)?;
    let contents = read_contents(&text)?;
    let found = id_of(&text);
    if let Some(wanted) = id.filter(|wanted| *wanted != found) {
        return Err(invalid(&format_args!("it is {found}, and not {wanted}")));
    }
    if contents.machine != std::env::consts::ARCH {
        let (its, here) = (&contents.machine, std::env::consts::ARCH);
        let problem = invalid(&format_args!("it is for {its}, and this machine is {here}"));
        return Err(problem.with_hint("build it on a machine with the same processor"));
    }
    for listed in &contents.files {
        match header(tar)? {
            Some((name, bytes)) if name == listed.path && bytes == listed.bytes => take(tar, new, listed)?,
            _ => return Err(invalid(&format_args!("{} is not where its list says", listed.path))),
        }
    }
    match header(tar)? {
        None => Ok(contents),
        Some((name, _)) => Err(invalid(&format_args!("{name} is not in its list"))),
    }
}

fn first(tar: &mut impl Read) -> Result<Vec<u8>, Problem> {
    let bytes = match header(tar)? {
        Some((name, bytes)) if name == CONTENTS && bytes <= CONTENTS_BYTES_MAX as u64 => bytes,
        _ => return Err(invalid(&format_args!("its first member is not a {CONTENTS}"))),
    };
    let mut text = vec![0; bytes as usize + padding(bytes)];
    tar.read_exact(&mut text).map_err(cut_off)?;
    text.truncate(bytes as usize);
    Ok(text)
}

fn header(tar: &mut impl Read) -> Result<Option<(String, u64)>, Problem> {
    let mut header = [0; tar::BLOCK];
    tar.read_exact(&mut header).map_err(cut_off)?;
    let member = tar::member(&header).map_err(|error| invalid(&error))?;
    Ok(member.map(|(name, bytes)| (name, bytes as u64)))
}

/// Writes one file, and checks its hash on the way.
fn take(tar: &mut impl Read, new: &Path, listed: &Listed) -> Result<(), Problem> {
    let path = new.join(&listed.path);
    let mut hash = Sha256::new();
    let mut left = listed.bytes;
    path.parent().map_or(Ok(()), make_folder).map_err(at(&path))?;
    let mut out = File::create_new(&path).map_err(at(&path))?;
    let mut block = vec![0; 64 << 10];
    while left > 0 {
        let part = &mut block[..left.min(64 << 10) as usize];
        tar.read_exact(part).map_err(cut_off)?;
        hash.update(&*part);
        out.write_all(part).map_err(at(&path))?;
        left -= part.len() as u64;
    }
    tar.read_exact(&mut [0; tar::BLOCK][..padding(listed.bytes)]).map_err(cut_off)?;
    if hex(&hash.finalize()) != listed.sha256 {
        return Err(invalid(&format_args!("{} has another hash than its list says", listed.path)));
    }
    let mode = if listed.executable { 0o755 } else { 0o644 };
    out.set_permissions(Permissions::from_mode(mode)).and_then(|()| out.sync_all()).map_err(at(&path))
}

/// Reads a list, and checks that unpacking it writes plain files below one folder, within every bound.
fn read_contents(text: &[u8]) -> Result<Contents, Problem> {
    let contents: Contents =
        serde_json::from_slice(text).map_err(|error| invalid(&format_args!("{CONTENTS}: {error}")))?;
    let Contents { format, kind, files, .. } = &contents;
    if *format != FORMAT {
        return Err(invalid(&format_args!("its format is {format}, this program reads {FORMAT}")));
    }
    if files.len() > FILES_MAX {
        return Err(invalid(&format_args!("it has {} files, the limit is {FILES_MAX}", files.len())));
    }
    let bytes = files.iter().fold(0_u64, |bytes, file| bytes.saturating_add(file.bytes));
    if bytes > BYTES_MAX {
        return Err(invalid(&format_args!("it has {bytes} bytes, the limit is {BYTES_MAX}")));
    }
    let mut paths = BTreeSet::new();
    for Listed { path, .. } in files {
        if !tar::is_plain(path) || OWN.contains(&path.as_str()) || path.starts_with("unit.") {
            return Err(invalid(&format_args!("{path:?} is no name of a file in a base")));
        }
        if !paths.insert(path.as_str()) {
            return Err(invalid(&format_args!("{path} is in it twice")));
        }
    }
    let libdroid: &[&str] = match kind {
        Kind::Java => &[],
        Kind::Android => &["libdroid.jar", "libdroid.so", "classes.txt", CONVERTER],
    };
    let wanted = ["runtime/bin/java", "runtime/release"].iter().chain(libdroid);
    match wanted.copied().find(|wanted| !paths.contains(wanted)) {
        Some(missing) => Err(invalid(&format_args!("it has no {missing}"))),
        None => Ok(contents),
    }
}

/// The files below a folder, in the order of their names, with their hashes.
fn listed(folder: &Path) -> io::Result<Vec<Listed>> {
    let (mut open, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(place) = open.pop() {
        for entry in fs::read_dir(&place)? {
            let path = entry?.path();
            let kind = fs::symlink_metadata(&path)?;
            if kind.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).map_err(io::Error::other)?;
            let content = fs::read(&path)?;
            files.push(Listed {
                path: name.to_string_lossy().into_owned(),
                bytes: content.len() as u64,
                sha256: hex(&Sha256::digest(&content)),
                executable: kind.permissions().mode() & 0o100 != 0,
            });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// Puts a copy in the place of each link; one that leads out of `top` is removed.
fn resolve_links(folder: &Path, top: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let kind = fs::symlink_metadata(&path)?;
        if kind.is_dir() {
            resolve_links(&path, top)?;
        } else if kind.is_symlink() {
            let target = path.canonicalize().ok().filter(|target| target.starts_with(top) && target.is_file());
            fs::remove_file(&path)?;
            if let Some(target) = target {
                fs::copy(target, &path)?;
            }
        }
    }
    Ok(())
}

fn id_of(contents: &[u8]) -> String {
    short(&Sha256::digest(contents))
}

fn hex(hash: &[u8]) -> String {
    hash.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

fn at(path: &Path) -> impl Fn(io::Error) -> Problem {
    let path = path.display().to_string();
    move |error| unavailable(format!("{path}: {error}"))
}

fn cut_off(error: io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => invalid(&"it is cut off"),
        _ => Problem::new(Code::FileUnusable, error.to_string()),
    }
}

fn invalid(why: &dyn Display) -> Problem {
    Problem::new(Code::BaseInvalid, format!("the file is no base that can be used here: {why}"))
}

#[cfg(test)]
mod tests;
