//! Any bytes are the file of a base or a typed error, and nothing is written beside its folder.
//!
//! An input is taken in two ways: as the file itself, with the checksums of its headers mended; and as names and
//! contents, of which a file is made with its list and hashes right, so that what is refused is refused for its names.
#![no_main]

use lighter_fuzz::fuzz_target;
use problem::Code;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use unit_process::ready;

const BLOCK: usize = 512;
const CHECKSUM: std::ops::Range<usize> = 148..156;

fuzz_target!(|bytes: &[u8]| {
    unpacked(&mended(bytes));
    let files = files(bytes);
    let (kind, written) = unpacked(&made(&files));
    if kind.is_some() {
        assert_eq!(written, files, "each file is written with its bytes, and nothing else");
    }
});

/// The bytes with the checksums of all headers mended, as far as there are headers.
fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut file = bytes.to_vec();
    let mut at = 0;
    while let Some(header) = file.get_mut(at..at + BLOCK) {
        mend(header);
        let size = std::str::from_utf8(&header[124..135]).ok().and_then(|size| usize::from_str_radix(size, 8).ok());
        let Some(padded) = size.and_then(|size| size.checked_next_multiple_of(BLOCK)) else { break };
        at += BLOCK + padded;
    }
    file
}

/// Unpacks a file; its kind if it is a base, and what was written by its name below the folder.
fn unpacked(file: &[u8]) -> (Option<ready::Kind>, BTreeMap<String, Vec<u8>>) {
    // In memory where there is such a place: each file is made durable.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
    let top = place.join(format!("lighter-fuzz-base-{}", process::id()));
    let folder = top.join("in/a/folder");
    fs::create_dir_all(&folder).expect("a folder");
    let kind = match ready::check(&mut &*file, &folder) {
        Ok(kind) => Some(kind),
        Err(problem) => {
            // Two names that cannot both be: a file, and a folder of the same name.
            assert!([Code::BaseInvalid, Code::BaseUnavailable].contains(&problem.code), "{problem}");
            None
        }
    };
    let mut written = BTreeMap::new();
    collect(&top, &mut |path, content| {
        let below = path.strip_prefix(&folder).expect("nothing is written beside the folder");
        written.insert(below.to_str().expect("its list is UTF-8").to_owned(), content);
    });
    fs::remove_dir_all(&top).expect("own");
    (kind, written)
}

fn collect(folder: &Path, found: &mut impl FnMut(PathBuf, Vec<u8>)) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let kind = entry.file_type().expect("there");
        assert!(!kind.is_symlink(), "a base has no links");
        if kind.is_dir() {
            collect(&entry.path(), found);
        } else {
            let content = fs::read(entry.path()).expect("plain");
            found(entry.path(), content);
        }
    }
}

/// What each base has, and after it the names and contents of an input, one in each line: `NAME=CONTENT`.
fn files(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for line in String::from_utf8_lossy(bytes).lines().take(16) {
        let (name, content) = line.split_once('=').unwrap_or((line, ""));
        files.insert(name.to_owned(), content.as_bytes().to_vec());
    }
    for name in ["runtime/bin/java", "runtime/release"] {
        files.entry(name.to_owned()).or_default();
    }
    files
}

/// A base of these files, all of it right but, perhaps, their names.
fn made(files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let listed = files.iter().map(|(path, content)| {
        let sha256: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
        json!({"path": path, "bytes": content.len(), "sha256": sha256})
    });
    let list = json!({
        "format": 1, "kind": "java", "java": "17.0.15", "machine": env::consts::ARCH, "files": listed.collect::<Vec<_>>(),
    });
    let mut file = Vec::new();
    member(&mut file, "contents.json", list.to_string().as_bytes());
    files.iter().for_each(|(name, content)| member(&mut file, name, content));
    file.resize(file.len() + 2 * BLOCK, 0);
    file
}

fn member(file: &mut Vec<u8>, name: &str, content: &[u8]) {
    let mut header = [0; BLOCK];
    let short = name.len().min(100);
    header[..short].copy_from_slice(&name.as_bytes()[..short]);
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[156] = b'0';
    mend(&mut header);
    file.extend_from_slice(&header);
    file.extend_from_slice(content);
    file.resize(file.len().next_multiple_of(BLOCK), 0);
}

/// Writes the checksum that a header of these bytes has; one of zeros is the end, and stays.
fn mend(header: &mut [u8]) {
    if header.iter().all(|byte| *byte == 0) {
        return;
    }
    header[CHECKSUM].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}
