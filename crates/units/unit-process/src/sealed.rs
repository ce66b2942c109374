//! Files in memory that only the node can write to, and that the kernel knows the readers of.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;

const NAME: &CStr = c"lighter-arena";

/// A file in memory of so many bytes, all zeros.
pub fn memory(bytes: usize) -> io::Result<File> {
    // SAFETY: the name ends with a zero; on success the descriptor is open and nobody else's.
    #[expect(unsafe_code, reason = "no safe call makes a file in memory")]
    let made = unsafe {
        let fd = libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from_raw_fd(fd)
    };
    made.set_len(bytes as u64)?;
    // Opened by its name, for the kernel counts only those who have opened a file so.
    File::options().read(true).write(true).open(path_of(&made))
}

/// From now on nobody can write to it, map it to be written to, or change its length: only what is mapped already is
/// still written to. There is no way back.
pub fn seal(file: &File) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;
    control(file, libc::F_ADD_SEALS, seals)
}

/// The same file, opened to be read.
pub fn reader(file: &File) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_CLOEXEC).open(path_of(file))
}

/// Whether nobody else has it: no descriptor in any process or on its way to one, and no mapping but those of this very
/// descriptor. The kernel grants a lease to write only then. Where it grants none at all, the answer is no.
pub fn is_ours_alone(file: &File) -> bool {
    let granted = control(file, libc::F_SETLEASE, libc::F_WRLCK).is_ok();
    granted && control(file, libc::F_SETLEASE, libc::F_UNLCK).is_ok()
}

fn control(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open; these commands take a number.
    #[expect(unsafe_code, reason = "no safe call seals or leases a file")]
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn path_of(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
