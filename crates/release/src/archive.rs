//! The tar of a release: `lighter-VERSION-PROCESSOR-linux/…`, the program below it at `bin/lighter`.
//!
//! It is read as `tools/release` writes it (USTAR: files, folders and links), and one of another form is refused. A
//! general reader would have to decide what long names, sparse files and extended headers mean; here nothing means
//! anything but the program and the folder's name.

use super::gunzip::Gunzip;
use super::version::ReleaseVersion;
use problem::{Code, Problem};
use std::io;

/// Bytes of the program in a release.
pub const PROGRAM_BYTES_MAX: u64 = 256 << 20;
/// Bytes of any other file in it.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// Files, folders and links in it.
const ENTRIES_MAX: usize = 1_000;
/// A tar is made of blocks.
const BLOCK: usize = 512;
/// Zeros at the end of a tar: two blocks, and what fills up a record of twenty.
const END_BYTES_MAX: u64 = 22 * BLOCK as u64;
/// Bytes that are handed on at once.
const PIECE_BYTES: usize = 64 << 10;
/// Processors that a release can be for, by their number in an ELF header.
const PROCESSORS: [(u16, &str); 2] = [(62, "x86_64"), (183, "aarch64")];

/// A release that has begun to be read.
pub struct Archive<'a> {
    from: Gunzip<'a>,
    /// The folder that everything is in, with a slash at its end.
    folder: String,
    version: ReleaseVersion,
    processor: String,
}

/// Why the program could not be taken out of a release.
#[derive(Debug)]
pub enum Unreadable {
    /// The release is not sound.
    Release(Problem),
    /// The program could not be written.
    Writing(io::Error),
}

impl<'a> Archive<'a> {
    /// Reads no further than the name of its folder.
    ///
    /// # Errors
    /// `ReleaseBroken`: it is no release.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Problem> {
        let mut from = Gunzip::new(bytes).ok_or_else(|| broken("it is not packed with gzip"))?;
        let first = Entry::read(&mut from)?.filter(|first| first.kind == Kind::Folder);
        let folder = first.ok_or_else(|| broken("it does not begin with a folder"))?.path;
        let named = folder.trim_end_matches('/').strip_prefix("lighter-").and_then(|rest| rest.strip_suffix("-linux"));
        let named = named.and_then(|rest| rest.rsplit_once('-'));
        let known = |processor: &str| PROCESSORS.iter().any(|(_, known)| *known == processor);
        let (version, processor) = named
            .and_then(|(version, processor)| Some((ReleaseVersion::parse(version)?, processor.to_owned())))
            .filter(|(_, processor)| known(processor))
            .ok_or_else(|| broken(format!("its folder is called {folder:?}")))?;
        let folder = format!("{}/", folder.trim_end_matches('/'));
        Ok(Self { from, folder, version, processor })
    }

    pub fn version(&self) -> &ReleaseVersion {
        &self.version
    }

    /// `x86_64` or `aarch64`.
    pub fn processor(&self) -> &str {
        &self.processor
    }

    /// Hands on the program, piece by piece, and reads the rest to its end.
    ///
    /// # Errors
    /// The release is cut short or has no program, or the program cannot be written: what was handed on is no program.
    pub fn program(mut self, mut write: impl FnMut(&[u8]) -> io::Result<()>) -> Result<(), Unreadable> {
        let wanted = format!("{}bin/lighter", self.folder);
        let mut has_program = false;
        let mut left = ENTRIES_MAX;
        while let Some(entry) = Entry::read(&mut self.from).map_err(Unreadable::Release)? {
            left = left.checked_sub(1).ok_or_else(|| release("it has too many files"))?;
            let inside = entry.path.strip_prefix(&self.folder).unwrap_or("..");
            if inside.split('/').any(|part| part == "..") {
                return Err(release(format!("{:?} lies outside of its folder", entry.path)));
            }
            if entry.path == wanted && entry.kind == Kind::File && !has_program {
                has_program = true;
                self.copy(entry.bytes, PROGRAM_BYTES_MAX, &mut write)?;
            } else {
                self.copy(entry.bytes, FILE_BYTES_MAX, &mut |_| Ok(()))?;
            }
        }
        if !self.from.ends(END_BYTES_MAX) {
            return Err(release("something follows its end, or the end is missing"));
        }
        if has_program { Ok(()) } else { Err(release("there is no program in it")) }
    }

    fn copy(&mut self, bytes: u64, max: u64, write: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<(), Unreadable> {
        if bytes > max {
            return Err(release(format!("a file in it has {bytes} bytes, the limit is {max}")));
        }
        let mut left = usize::try_from(bytes).map_err(|_| release("a file in it is too large"))?;
        let mut piece = vec![0; PIECE_BYTES.min(left.next_multiple_of(BLOCK))];
        while left > 0 {
            // Files are filled up to whole blocks.
            let count = left.next_multiple_of(BLOCK).min(piece.len());
            if !self.from.fill(&mut piece[..count]) {
                return Err(release("it is cut short"));
            }
            let own = count.min(left);
            write(&piece[..own]).map_err(Unreadable::Writing)?;
            left -= own;
        }
        Ok(())
    }
}

/// For which processor a program is; none of what is no program for 64-bit Linux, or for another processor.
pub fn processor(program: &[u8]) -> Option<&'static str> {
    let head = program.get(..20).filter(|head| head.starts_with(b"\x7fELF\x02\x01"))?;
    let machine = u16::from_le_bytes([head[18], head[19]]);
    PROCESSORS.iter().find(|(number, _)| *number == machine).map(|(_, name)| *name)
}

#[derive(PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    Link,
}

struct Entry {
    path: String,
    kind: Kind,
    bytes: u64,
}

impl Entry {
    /// The next one; none at the end of the tar.
    fn read(from: &mut Gunzip<'_>) -> Result<Option<Self>, Problem> {
        let mut block = [0; BLOCK];
        if !from.fill(&mut block) {
            return Err(broken("it is cut short"));
        }
        if block == [0; BLOCK] {
            return Ok(None);
        }
        Self::parse(&block).map(Some).ok_or_else(|| broken("a header in it is not as releases have it"))
    }

    fn parse(block: &[u8; BLOCK]) -> Option<Self> {
        let sum: u64 = block.iter().enumerate().map(|(at, byte)| if in_sum(at) { 32 } else { u64::from(*byte) }).sum();
        if &block[257..263] != b"ustar\0" || octal(&block[148..156])? != sum {
            return None;
        }
        let (name, prefix) = (text(&block[..100])?, text(&block[345..500])?);
        let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
        let bytes = octal(&block[124..136])?;
        let kind = match block[156] {
            b'0' => Kind::File,
            b'5' => Kind::Folder,
            b'2' => Kind::Link,
            _ => return None,
        };
        (!path.is_empty() && (kind == Kind::File || bytes == 0)).then_some(Self { path, kind, bytes })
    }
}

/// Whether the byte is one of the sum itself, which counts as a space.
fn in_sum(at: usize) -> bool {
    (148..156).contains(&at)
}

/// What stands before the first zero.
fn text(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    str::from_utf8(&field[..end]).ok()
}

/// A number of at most eleven octal digits, with a zero or a space behind it.
fn octal(field: &[u8]) -> Option<u64> {
    let end = field.iter().position(|byte| matches!(byte, 0 | b' '))?;
    let digits = &field[..end];
    let is_octal = !digits.is_empty() && digits.iter().all(|digit| (b'0'..=b'7').contains(digit));
    is_octal.then(|| digits.iter().fold(0, |number, digit| number << 3 | u64::from(digit - b'0')))
}

fn release(what: impl Into<String>) -> Unreadable {
    Unreadable::Release(broken(what))
}

fn broken(what: impl Into<String>) -> Problem {
    Problem::new(Code::ReleaseBroken, format!("the file is not a release of lighter: {}", what.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::making;

    fn taken(bytes: &[u8]) -> Result<Vec<u8>, String> {
        let archive = Archive::open(bytes).map_err(|problem| problem.detail.into_owned())?;
        let mut program = Vec::new();
        let write = |piece: &[u8]| {
            program.extend_from_slice(piece);
            Ok(())
        };
        match archive.program(write) {
            Ok(()) => Ok(program),
            Err(Unreadable::Release(problem)) => {
                assert_eq!(problem.code, Code::ReleaseBroken);
                Err(problem.detail.into_owned())
            }
            Err(Unreadable::Writing(error)) => panic!("{error}"),
        }
    }

    fn program() -> Vec<u8> {
        (0..200_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect()
    }

    #[test]
    fn a_release_gives_its_program_its_version_and_its_processor() {
        let made = making::release("0.3.0-rc.2", "aarch64", &program());
        let archive = Archive::open(&made).unwrap();
        assert_eq!((archive.version().to_string().as_str(), archive.processor()), ("0.3.0-rc.2", "aarch64"));
        assert_eq!(taken(&made), Ok(program()));
    }

    #[test]
    fn a_release_that_is_cut_short_anywhere_gives_no_program() {
        let made = making::release("0.3.0", "x86_64", &program());
        for length in (0..made.len()).step_by(997).chain(made.len() - 40..made.len()) {
            assert!(taken(&made[..length]).is_err(), "{length} of {}", made.len());
        }
        assert!(taken(&[made.as_slice(), b"x"].concat()).is_err());
    }

    #[test]
    fn a_tar_of_another_form_is_refused() {
        let tar = |files: &[(&str, u8, &[u8])]| making::gzip(&making::tar(files));
        let folder = ("lighter-1.0.0-x86_64-linux", b'5', &[][..]);
        let lighter = ("lighter-1.0.0-x86_64-linux/bin/lighter", b'0', &b"program"[..]);
        assert_eq!(taken(&tar(&[folder, lighter])), Ok(b"program".to_vec()));
        for (files, why) in [
            (vec![lighter], "does not begin with a folder"),
            (vec![("lighter-1.0-x86_64-linux", b'5', &[][..]), lighter], "is called"),
            (vec![("lighter-1.0.0-mips-linux", b'5', &[][..]), lighter], "is called"),
            (vec![("other", b'5', &[][..]), lighter], "is called"),
            (vec![folder], "no program"),
            (vec![folder, lighter, ("lighter-1.0.0-x86_64-linux/../x", b'0', &[][..])], "outside"),
            (vec![folder, lighter, ("/etc/passwd", b'0', &[][..])], "outside"),
            (vec![folder, lighter, ("lighter-1.0.0-x86_64-linux/x", b'L', &[][..])], "header"),
            (vec![folder, ("lighter-1.0.0-x86_64-linux/bin/lighter", b'2', &[][..])], "no program"),
        ] {
            let said = taken(&tar(&files)).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        assert!(taken(b"").is_err() && taken(b"\x7fELF").is_err());
    }

    #[test]
    fn a_changed_byte_gives_an_error_or_another_program_and_never_more() {
        let made = making::release("0.3.0", "x86_64", b"program");
        for at in 0..made.len() {
            for bit in [1, 0x80] {
                let mut changed = made.clone();
                changed[at] ^= bit;
                assert!(taken(&changed).map_or(0, |program| program.len()) < 4_096, "byte {at}");
            }
        }
    }

    #[test]
    fn a_tar_that_grows_without_end_is_stopped() {
        let mut header = making::header("lighter-1.0.0-x86_64-linux/share/x", b'0', u64::from(u32::MAX));
        let mut bytes = making::header("lighter-1.0.0-x86_64-linux", b'5', 0).to_vec();
        bytes.append(&mut header);
        assert!(taken(&making::gzip(&bytes)).unwrap_err().contains("limit"));
        let link = making::header("lighter-1.0.0-x86_64-linux/x", b'2', 0);
        let many = [making::header("lighter-1.0.0-x86_64-linux", b'5', 0), link.repeat(ENTRIES_MAX + 1)].concat();
        assert!(taken(&making::gzip(&many)).unwrap_err().contains("too many"));
    }

    #[test]
    fn the_processor_stands_in_the_program() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(processor(&own), Some(std::env::consts::ARCH));
        assert_eq!(processor(&own[..19]), None);
        assert_eq!(processor(b"#!/bin/sh\nexit 0\n....................."), None);
    }
}
