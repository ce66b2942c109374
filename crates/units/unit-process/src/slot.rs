//! A slot: the scratch folder that one child of a zygote has at a time, as the node sees it from outside.
//!
//! ```text
//!   the jail is built ─▶ opened, new ─▶ child ─▶ its processes are gone ─▶ the zygote empties it ─▶ is it as new? ─▶ next child
//!                                                                                             no └▶ given up
//! ```
//! The zygote runs the function's code, so its word is not enough. The folder is the root of a file system of its own,
//! which says how many files and blocks there are: files that are hidden, removed but open, or too deep for a path
//! count as well.

use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// A slot's folder, opened before any code of the function ran.
#[derive(Debug)]
pub struct Slot {
    folder: File,
    new: Content,
}

/// What a file system says of its content, and its root of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Content {
    files: u64,
    blocks: u64,
    mode: u32,
    owner: u32,
    links: u64,
}

impl Slot {
    /// Opens a slot of a jail whose walls stand and which runs nothing of the function yet.
    pub fn open(process: u32, slot: u32) -> io::Result<Self> {
        let path = format!("/proc/{process}/root{}/{slot}", crate::jail::SCRATCH);
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let folder = File::options().read(true).custom_flags(flags).open(path)?;
        let new = content(&folder)?;
        Ok(Self { folder, new })
    }

    /// Whether it is as it was when it was new, but for times that say when it was emptied.
    pub fn is_empty(&self) -> bool {
        let is_marked = self.folder.metadata().is_ok_and(|status| (status.mtime(), status.mtime_nsec()) == (0, 0));
        is_marked && content(&self.folder).is_ok_and(|content| content == self.new)
    }
}

fn content(folder: &File) -> io::Result<Content> {
    // SAFETY: the descriptor is open, the structure is valid for writes.
    #[expect(unsafe_code, reason = "no safe call asks a file system")]
    let system = unsafe {
        let mut system: libc::statfs = zeroed();
        if libc::fstatfs(folder.as_raw_fd(), &raw mut system) != 0 {
            return Err(io::Error::last_os_error());
        }
        system
    };
    let status = folder.metadata()?;
    Ok(Content {
        files: system.f_files.saturating_sub(system.f_ffree),
        blocks: system.f_blocks.saturating_sub(system.f_bfree),
        mode: status.mode(),
        owner: status.uid(),
        links: status.nlink(),
    })
}
