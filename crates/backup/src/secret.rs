//! What a sealed piece holds once it is open: records of the node, or a file with keys.
//!
//! ```text
//! 0 · entries                                 records, as in a piece of entries
//! 1 · length of the name 2 · name · bytes     a file; the length low byte first
//! ```

use crate::entries::{self, Entries};
use crate::read::broken;
use problem::Problem;

const RECORDS: u8 = 0;
const FILE: u8 = 1;

/// Folders of the data folder with keys, and how they are called where they are left out. A backup has files of no
/// other folder: what lies elsewhere may be run.
pub const KEY_FOLDERS: [(&str, &str); 3] = [
    ("fleet", "the node's key in its fleet"),
    ("fleet/deployments", "what is deployed over the fleet"),
    ("boards", "the keys of boards"),
];

/// Most bytes of a file's name.
const NAME_BYTES_MAX: usize = 200;

/// What is for the owner of a backup alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secret {
    /// Keys and values of the node's own records.
    Records(Vec<(Vec<u8>, Vec<u8>)>),
    /// A file of one of the [`KEY_FOLDERS`], such as `fleet/node.key`.
    File { name: String, bytes: Vec<u8> },
}

impl Secret {
    /// The bytes that are sealed.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Records(all) => {
                let mut bytes = vec![RECORDS];
                all.iter().for_each(|(key, value)| entries::put(&mut bytes, key, value));
                bytes
            }
            Self::File { name, bytes } => {
                let length = u16::try_from(name.len()).expect("names of files are short").to_le_bytes();
                [&[FILE], &length[..], name.as_bytes(), bytes].concat()
            }
        }
    }

    /// Reads what [`Secret::to_bytes`] wrote. A file is one with keys, whoever wrote it.
    ///
    /// # Errors
    /// `BackupBroken`: it is none of these.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Problem> {
        match bytes.split_first() {
            Some((&RECORDS, entries)) => {
                let owned = |entry: Result<(&[u8], &[u8]), _>| entry.map(|(key, value)| (key.to_vec(), value.to_vec()));
                Entries::new(entries).map(owned).collect::<Result<_, _>>().map(Self::Records)
            }
            Some((&FILE, rest)) => file(rest).ok_or_else(|| broken("a file in it is none with keys")),
            _ => Err(broken("a sealed piece holds nothing that is known")),
        }
    }
}

fn file(bytes: &[u8]) -> Option<Secret> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (name, bytes) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    let name = std::str::from_utf8(name).ok().filter(|name| is_key_file(name))?;
    Some(Secret::File { name: name.to_owned(), bytes: bytes.to_vec() })
}

/// Whether it is a plain word, in one of the [`KEY_FOLDERS`] and no folder below.
pub fn is_key_file(name: &str) -> bool {
    let Some((folder, file)) = name.rsplit_once('/') else { return false };
    let letters = file.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    let is_plain = letters && !file.is_empty() && !file.starts_with('.');
    is_plain && name.len() <= NAME_BYTES_MAX && KEY_FOLDERS.iter().any(|(known, _)| *known == folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let records = Secret::Records(vec![(b"secrets\0A".to_vec(), b"1".to_vec()), (b"b".to_vec(), Vec::new())]);
        let file = Secret::File { name: "fleet/node.key".to_owned(), bytes: vec![0; 32] };
        for secret in [records, file] {
            let bytes = secret.to_bytes();
            assert_eq!(Secret::from_bytes(&bytes).unwrap(), secret);
        }
        for bytes in [&b""[..], b"\x02", b"\x01", b"\x01\x05\x00ab", b"\x00\x01"] {
            assert!(Secret::from_bytes(bytes).is_err(), "{bytes:?}");
        }
    }

    fn is_read(name: &str) -> bool {
        let secret = Secret::File { name: name.to_owned(), bytes: Vec::new() };
        Secret::from_bytes(&secret.to_bytes()).is_ok()
    }

    #[test]
    fn a_file_stays_below_the_folder_it_is_for() {
        for name in ["../x", "/etc/passwd", "fleet/../../x", "fleet//x", "fleet/.ssh", "token", "", "fleet/a\0b"] {
            assert!(!is_read(name), "{name:?}");
        }
    }

    /// Any path below the data folder was taken once: compiled code, or a program that the node starts.
    #[test]
    fn a_file_is_one_with_keys() {
        for name in ["fleet/node.key", "fleet/deployments/door.7", "boards/kitchen.toml"] {
            assert!(is_read(name), "{name:?}");
        }
        for name in ["warehouse/artefacts/wasm-f1/x", "bin/nats-server", "state/x", "fleet/js/x", "boards"] {
            assert!(!is_read(name), "{name:?}");
        }
    }
}
