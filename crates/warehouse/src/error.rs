//! Disk errors as problems a user can act on.

use problem::{Code, Problem};
use std::io::{self, ErrorKind};
use std::path::Path;

/// What went wrong with `path` while the warehouse tried to `act` ("write", "read", …).
pub(crate) fn from_io(act: &str, path: &Path, error: &io::Error) -> Problem {
    let code = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => Code::DiskFull,
        _ => Code::DiskFailed,
    };
    Problem::new(code, format!("cannot {act} {}: {error}", path.display()))
}

/// The same while the warehouse is opened: then it is the folder that is not right.
pub(crate) fn unusable(act: &str, path: &Path, error: &io::Error) -> Problem {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            Problem::new(Code::DataUnusable, format!("cannot {act} {}: {error}", path.display()))
        }
        _ => from_io(act, path, error),
    }
}

/// Everything in the way is in use, so that no room can be made within the bound.
pub(crate) fn no_room(what: &str, needed_bytes: u64, held_bytes: u64, max_bytes: u64) -> Problem {
    Problem::new(
        Code::DiskFull,
        format!(
            "{needed_bytes} bytes more do not fit: {what} in use take {held_bytes} bytes, the limit is {max_bytes}"
        ),
    )
    .with_hint(format!("raise the node's bound for {what}, or remove functions"))
}
