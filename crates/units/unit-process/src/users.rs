//! The users of jails, where the node is root: numbers far from those that anybody else has.
//!
//! Each node takes them from a part of its own, which its data folder decides: two nodes on one machine, in containers
//! or not, would else give the same user to jails of both, and what the kernel counts for a user would be shared.

use problem::{Code, Problem};
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The first of all, the parts there are, and the users of each.
const FIRST: u32 = 0x7000_0000;
const PARTS: u32 = 1 << 10;
const USERS: u32 = 1 << 18;

/// One node's part.
#[derive(Debug)]
pub struct Users {
    first: u32,
    given: AtomicU32,
}

impl Users {
    /// Those of the node with this folder: the folder itself counts, and not its name, which others may have as well.
    pub fn of(folder: &Path) -> Result<Self, Problem> {
        let status = fs::metadata(folder)
            .map_err(|error| Problem::new(Code::DataUnusable, format!("{}: {error}", folder.display())))?;
        let mut hash = Sha256::new();
        hash.update(status.dev().to_le_bytes());
        hash.update(status.ino().to_le_bytes());
        let hash = hash.finalize();
        let part = u32::from(u16::from_le_bytes([hash[0], hash[1]])) % PARTS;
        Ok(Self { first: FIRST + part * USERS, given: AtomicU32::new(0) })
    }

    /// The next one.
    pub fn next(&self) -> u32 {
        self.first + self.given.fetch_add(1, Relaxed) % USERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_with_other_folders_have_other_users() {
        let folder = std::env::temp_dir().join(format!("lighter-users-{}", std::process::id()));
        let firsts: Vec<u32> = (0..8)
            .map(|number| {
                let folder = folder.join(number.to_string());
                fs::create_dir_all(&folder).unwrap();
                let users = Users::of(&folder).unwrap();
                let first = users.next();
                assert_eq!((users.next(), Users::of(&folder).unwrap().next()), (first + 1, first));
                assert!((FIRST..=FIRST - 1 + PARTS * USERS).contains(&first));
                first
            })
            .collect();
        assert!(firsts.iter().any(|first| first.abs_diff(firsts[0]) >= USERS), "{firsts:?}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
