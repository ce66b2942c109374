//! What a sealed piece holds once it is open: records of the node, or a file of the data folder.
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

/// Most bytes of a file's name.
const NAME_BYTES_MAX: usize = 200;

/// What is for the owner of a backup alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secret {
    /// Keys and values of the node's own records.
    Records(Vec<(Vec<u8>, Vec<u8>)>),
    /// A file below the data folder, such as `fleet/node.key`.
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

    /// Reads what [`Secret::to_bytes`] wrote. The name of a file stays below the folder it is for, whoever wrote it.
    ///
    /// # Errors
    /// `BackupBroken`: it is none of these.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Problem> {
        match bytes.split_first() {
            Some((&RECORDS, entries)) => {
                let owned = |entry: Result<(&[u8], &[u8]), _>| entry.map(|(key, value)| (key.to_vec(), value.to_vec()));
                Entries::new(entries).map(owned).collect::<Result<_, _>>().map(Self::Records)
            }
            Some((&FILE, rest)) => file(rest).ok_or_else(|| broken("a file in it has no name")),
            _ => Err(broken("a sealed piece holds nothing that is known")),
        }
    }
}

fn file(bytes: &[u8]) -> Option<Secret> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (name, bytes) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    let name = std::str::from_utf8(name).ok().filter(|name| is_inside(name))?;
    Some(Secret::File { name: name.to_owned(), bytes: bytes.to_vec() })
}

/// Whether it is a path of plain words, at least two, that leads nowhere but below where it begins.
pub fn is_inside(name: &str) -> bool {
    let is_plain = |word: &str| {
        let letters = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
        letters && !word.is_empty() && !word.starts_with('.')
    };
    name.len() <= NAME_BYTES_MAX && name.contains('/') && name.split('/').all(is_plain)
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

    #[test]
    fn a_file_stays_below_the_folder_it_is_for() {
        for name in ["../x", "/etc/passwd", "fleet/../../x", "fleet//x", "fleet/.ssh", "token", "", "fleet/a\0b"] {
            let secret = Secret::File { name: name.to_owned(), bytes: Vec::new() };
            assert!(Secret::from_bytes(&secret.to_bytes()).is_err(), "{name:?}");
        }
    }
}
