//! The boards this node has been given: their keys and the kernels it trusts on them, in a folder of small files.
//!
//! ```text
//!   boards/node.key     32 secret bytes: who the node is to its boards, and who signs their code
//!   boards/NAME.toml    one board: id, channel key, kernels
//! ```
//! `lighter flash` and `lighter boot` write here, the node reads. A file is written beside its place and renamed.

use board_link::{BoardId, Destination, Hash, Keys, Policy, PublicKey, Settings};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use whole_file::write_new;

/// Boards of one node.
pub const BOARDS_MAX: usize = 128;
const NAME_BYTES_MAX: usize = board_link::NAME_BYTES_MAX;
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Kernels of a board that stay trusted: the one it runs, and those it may be given next or go back to.
const KERNELS_MAX: usize = 8;

/// The folder.
#[derive(Clone)]
pub struct Enrolled {
    folder: PathBuf,
    keys: Keys,
}

/// One board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolledBoard {
    pub name: String,
    pub id: BoardId,
    pub channel_key: PublicKey,
    pub kernels: Vec<Hash>,
    /// The kind of board.
    pub machine: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    machine: String,
    id: String,
    channel_key: String,
    kernels: Vec<String>,
}

impl Enrolled {
    /// Opens the folder, making it and the node's key if they are not there.
    ///
    /// # Errors
    /// [`Code::DataUnusable`].
    pub fn open(folder: &Path) -> Result<Self, Problem> {
        let failed = |error: io::Error| unusable(folder, &error);
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let path = folder.join("node.key");
        if !path.exists() {
            write_new(folder, "node.key", &random()?).map_err(failed)?;
        }
        let mut seed = [0; 32];
        File::open(&path).and_then(|mut file| file.read_exact(&mut seed)).map_err(failed)?;
        Ok(Self { folder: folder.to_owned(), keys: Keys::from_seed(&seed) })
    }

    /// Who the node is to its boards, and who signs their code.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Enrols a new board, or one that is given a new kernel: makes its settings, of which the seed is kept nowhere
    /// else. `kernel` is what it will run; kernels
    /// it was trusted with before stay trusted.
    ///
    /// # Errors
    /// [`Code::DataUnusable`], [`Code::Usage`]: the name is none.
    pub fn enrol(&self, name: &str, machine: &str, kernel: Hash) -> Result<Settings, Problem> {
        check_name(name)?;
        let settings = Settings {
            name: name.to_owned(),
            seed: random()?,
            nodes: vec![self.keys.channel_public()],
            signers: vec![self.keys.id().0],
            ..Settings::default()
        };
        let all = self.all()?;
        if all.len() >= BOARDS_MAX && all.iter().all(|entry| entry.name != name) {
            return Err(Problem::new(Code::Usage, format!("there are {BOARDS_MAX} boards, which is the limit")));
        }
        let mut kernels = vec![kernel];
        let before = all.into_iter().find(|entry| entry.name == name).map_or_else(Vec::new, |entry| entry.kernels);
        kernels.extend(before.into_iter().filter(|known| *known != kernel));
        kernels.truncate(KERNELS_MAX);
        let keys = Keys::from_seed(&settings.seed);
        let stored = Stored {
            machine: machine.to_owned(),
            id: hex(&keys.id().0),
            channel_key: hex(&keys.channel_public()),
            kernels: kernels.iter().map(|kernel| hex(kernel)).collect(),
        };
        let text = toml::to_string(&stored).map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        let file = format!("{name}.toml");
        write_new(&self.folder, &file, text.as_bytes()).map_err(|error| unusable(&self.folder.join(file), &error))?;
        Ok(settings)
    }

    /// All of them, by name.
    ///
    /// # Errors
    /// [`Code::DataUnusable`]: a file cannot be read, or is not what was written.
    pub fn all(&self) -> Result<Vec<EnrolledBoard>, Problem> {
        let failed = |error: io::Error| unusable(&self.folder, &error);
        let mut entries = Vec::new();
        for file in fs::read_dir(&self.folder).map_err(failed)? {
            let path = file.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".toml")).map(str::to_owned);
            let Some(name) = name.filter(|_| entries.len() < BOARDS_MAX) else { continue };
            entries.push(read(&path, name).map_err(|error| unusable(&path, &error))?);
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }
}

impl EnrolledBoard {
    /// What it takes to trust it. The kernel's own word for its hash has to do: no board has more to give yet.
    pub fn policy(&self) -> Policy {
        Policy { kernels: self.kernels.clone(), accepts_software_root: true }
    }
}

/// Where a board in QEMU finds a node on the same machine.
pub fn host_destination(port: u16) -> Destination {
    Destination { address: crate::qemu::HOST_SEEN, port }
}

fn read(path: &Path, name: String) -> io::Result<EnrolledBoard> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    let stored: Stored = toml::from_str(&text).map_err(|error| invalid(error.message()))?;
    let key = |text: &str| unhex(text).ok_or_else(|| invalid("a key is not 64 hexadecimal digits"));
    Ok(EnrolledBoard {
        name,
        id: BoardId(key(&stored.id)?),
        channel_key: key(&stored.channel_key)?,
        kernels: stored.kernels.iter().map(|kernel| key(kernel)).collect::<io::Result<_>>()?,
        machine: stored.machine,
    })
}

fn check_name(name: &str) -> Result<(), Problem> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !is_plain {
        let detail = format!("{name:?} is no name of a board: 1 to {NAME_BYTES_MAX} of a-z, 0-9 and -");
        return Err(Problem::new(Code::Usage, detail));
    }
    Ok(())
}

fn random() -> Result<[u8; 32], Problem> {
    let mut bytes = [0; 32];
    let failed =
        |error: getrandom::Error| Problem::new(Code::Internal, format!("the system has no randomness: {error}"));
    getrandom::fill(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn unusable(path: &Path, error: &io::Error) -> Problem {
    Problem::new(Code::DataUnusable, format!("{}: {error}", path.display()))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_enrolled_is_there_when_the_folder_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let enrolled = Enrolled::open(folder.path()).unwrap();
        let settings = enrolled.enrol("shed", "qemu-arm", [1; 32]).unwrap();
        let again = Enrolled::open(folder.path()).unwrap();
        assert_eq!(again.keys().id(), enrolled.keys().id());
        let [entry] = &again.all().unwrap()[..] else { panic!("one board") };
        assert_eq!((entry.id, &entry.kernels[..]), (Keys::from_seed(&settings.seed).id(), &[[1; 32]][..]));
        // A new kernel: a new identity; the kernel it had stays trusted.
        again.enrol("shed", "qemu-arm", [2; 32]).unwrap();
        assert_eq!(enrolled.all().unwrap()[0].kernels, [[2; 32], [1; 32]]);
    }

    #[test]
    fn names_are_plain_and_files_are_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let enrolled = Enrolled::open(folder.path()).unwrap();
        for name in ["", "../up", "Shed", &"x".repeat(33)] {
            assert_eq!(enrolled.enrol(name, "qemu-arm", [1; 32]).unwrap_err().code, Code::Usage, "{name}");
        }
        std::fs::write(folder.path().join("torn.toml"), "machine = \"qemu-arm\"").unwrap();
        assert_eq!(enrolled.all().unwrap_err().code, Code::DataUnusable);
    }
}
