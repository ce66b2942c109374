//! Removes all that a child has left in its scratch folder, and what it left on the folder itself.
//!
//! What is in a folder is brought up before the folder is removed: no path is long, however deep they lie, and no more
//! than two are open. What may not be entered is opened first; it all belongs to the same user.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How often a folder is looked into again, when something goes on putting things there.
const TURNS_MAX: u32 = 20_000;
const OPEN: libc::mode_t = 0o700;

pub fn empty(folder: &Path) -> io::Result<()> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a NUL.
    #[expect(unsafe_code, reason = "a call on a path, as those below are on descriptors")]
    check(unsafe { libc::chmod(path.as_ptr(), OPEN) })?;
    let root = open(libc::AT_FDCWD, &path)?;
    let mut brought = 0;
    for _ in 0..TURNS_MAX {
        let names = names(&root)?;
        if names.is_empty() {
            break;
        }
        for name in names {
            remove(&root, &name, &mut brought)?;
        }
    }
    let zero = [libc::timespec { tv_sec: 0, tv_nsec: 0 }; 2];
    // SAFETY: two structures, valid for the call.
    #[expect(unsafe_code, reason = "no safe call sets both times of a folder that is open")]
    check(unsafe { libc::futimens(root.as_raw_fd(), zero.as_ptr()) })
}

/// Removes a file; or a folder, once what is in it was brought up.
fn remove(root: &OwnedFd, name: &CStr, brought: &mut u64) -> io::Result<()> {
    if unlink(root, name, 0)? {
        return Ok(());
    }
    let folder = enter(root, name)?;
    for inner in names(&folder)? {
        if !unlink(&folder, &inner, 0)? {
            drop(enter(&folder, &inner)?);
            bring_up(&folder, &inner, root, brought)?;
        }
    }
    drop(folder);
    unlink(root, name, libc::AT_REMOVEDIR).map(drop)
}

/// False: it is a folder.
fn unlink(folder: &OwnedFd, name: &CStr, flags: libc::c_int) -> io::Result<bool> {
    // SAFETY: the name ends with a NUL.
    #[expect(unsafe_code, reason = "no safe call removes in a folder that is open")]
    match check(unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), flags) }) {
        Err(error) if error.raw_os_error() == Some(libc::EISDIR) => Ok(false),
        done => done.map(|()| true),
    }
}

/// Opens a folder in a folder, whatever its mode was.
fn enter(folder: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name ends with a NUL.
    #[expect(unsafe_code, reason = "no safe call changes modes in a folder that is open")]
    check(unsafe { libc::fchmodat(folder.as_raw_fd(), name.as_ptr(), OPEN, 0) })?;
    open(folder.as_raw_fd(), name)
}

/// Moves a folder up to the root, under a name that nothing has there.
fn bring_up(folder: &OwnedFd, name: &CStr, root: &OwnedFd, brought: &mut u64) -> io::Result<()> {
    loop {
        *brought += 1;
        let place = CString::new(format!("brought-{brought}"))?;
        // SAFETY: the names end with a NUL.
        #[expect(unsafe_code, reason = "no safe call moves between folders that are open")]
        let moved =
            check(unsafe { libc::renameat(folder.as_raw_fd(), name.as_ptr(), root.as_raw_fd(), place.as_ptr()) });
        match moved.map_err(|error| error.raw_os_error()) {
            Ok(()) => return Ok(()),
            Err(Some(libc::EEXIST | libc::ENOTEMPTY | libc::ENOTDIR)) => {}
            Err(error) => return Err(io::Error::from_raw_os_error(error.unwrap_or(libc::EIO))),
        }
    }
}

fn open(folder: RawFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the name ends with a NUL; the descriptor is new and nobody else's.
    #[expect(unsafe_code, reason = "no safe call opens in a folder that is open")]
    unsafe {
        let opened = libc::openat(folder, name.as_ptr(), flags);
        if opened < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(opened)) }
    }
}

fn names(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    // It is read from its beginning, whoever has read it before.
    let folder = open(folder.as_raw_fd(), c".")?.into_raw_fd();
    let mut names = Vec::new();
    // SAFETY: the stream owns the descriptor and is closed once; an entry is valid until the next one is read, and its
    // name ends with a NUL.
    #[expect(unsafe_code, reason = "no safe call lists a folder that is open")]
    unsafe {
        let stream = libc::fdopendir(folder);
        if stream.is_null() {
            let error = io::Error::last_os_error();
            libc::close(folder);
            return Err(error);
        }
        loop {
            let entry = libc::readdir64(stream);
            if entry.is_null() {
                break;
            }
            let name = CStr::from_ptr((*entry).d_name.as_ptr());
            if name != c"." && name != c".." {
                names.push(name.to_owned());
            }
        }
        libc::closedir(stream);
    }
    Ok(names)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn all_that_can_be_left_is_removed_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let (scratch, beside) = (folder.path().join("scratch"), folder.path().join("beside"));
        fs::create_dir_all(scratch.join("a/b/c")).unwrap();
        fs::create_dir_all(&beside).unwrap();
        fs::write(beside.join("kept"), "").unwrap();
        fs::write(scratch.join("a/b/file"), "x").unwrap();
        fs::write(scratch.join("brought-1"), "x").unwrap();
        symlink(&beside, scratch.join("link")).unwrap();
        symlink(&beside, scratch.join("a/link")).unwrap();
        fs::set_permissions(scratch.join("a/b"), fs::Permissions::from_mode(0)).unwrap();
        fs::set_permissions(&scratch, fs::Permissions::from_mode(0o500)).unwrap();
        empty(&scratch).unwrap();
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
        assert!(beside.join("kept").exists());
        let status = fs::metadata(&scratch).unwrap();
        assert_eq!(status.permissions().mode() & 0o777, OPEN);
        assert_eq!(status.modified().unwrap(), std::time::UNIX_EPOCH);
    }

    #[test]
    fn folders_deeper_than_any_path_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let root = CString::new(folder.path().as_os_str().as_bytes()).unwrap();
        let mut place = open(libc::AT_FDCWD, &root).unwrap();
        for _ in 0..3_000 {
            // SAFETY: the name ends with a NUL.
            #[expect(unsafe_code, reason = "no path is as long")]
            check(unsafe { libc::mkdirat(place.as_raw_fd(), c"deeper".as_ptr(), OPEN) }).unwrap();
            place = open(place.as_raw_fd(), c"deeper").unwrap();
        }
        drop(place);
        empty(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
