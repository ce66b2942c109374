//! The keeper: process 1 of a jail, which runs no code of a unit and therefore does what the node relies on.
//!
//! ```text
//!   node ── add PROCESS + files of control groups ──▶ keeper ── done, or why not ──▶ node
//!   node dies, or closes its end ──▶ keeper ends ──▶ the kernel ends all of the jail
//! ```
//! The signal by which the kernel tells of a parent's death belongs to one thread of one process, and code that runs
//! there can lose it: by asking, or by becoming another program from another thread. Here nobody can ask, and the
//! socket tells it as well. Numbers of processes mean something here that they mean nowhere else: whichever process has
//! one, it is of this jail. So it is the keeper that writes them to control groups.

use super::inside::Failed;
use crate::descriptors as fd;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Where a jail is born with the keeper's socket.
const SOCKET: RawFd = 4;
/// What the zygote goes on with: the control socket and the pipes of its output.
const THE_ZYGOTES: [RawFd; 3] = [0, 1, 2];
/// Bytes of a request, and of an answer.
pub const MESSAGE_BYTES_MAX: usize = 256;
/// The answer to what was done; any other says why it was not.
pub const DONE: &[u8] = b"done";

/// Splits this process, which is process 1, in two: returns in its child alone, which may go on to what it likes. Both
/// have given up what the jail may not have.
pub fn part() -> Result<(), Failed> {
    // SAFETY: whoever starts a jail opens this descriptor for it, and nothing else in this process knows of it.
    #[expect(unsafe_code, reason = "taking over an inherited descriptor")]
    let node = unsafe { OwnedFd::from_raw_fd(SOCKET) };
    // SAFETY: plain numbers; the process has one thread, so that its copy lacks nothing. Not to be looked into is for
    // both, and ends for the one that becomes another program.
    #[expect(unsafe_code, reason = "no safe call forks")]
    let child = unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::fork()
    };
    match u32::try_from(child) {
        Err(_) => Err(Failed::at("the jail's keeper")(io::Error::last_os_error())),
        Ok(0) => {
            drop(node);
            adopt_orphans().map_err(Failed::at("adopting what its children leave"))
        }
        Ok(child) => {
            let zygote = fd::pidfd(child).map_err(Failed::at("watching the zygote"))?;
            keep(&node, &zygote)
        }
    }
}

/// What a child leaves behind becomes a child of the process that forked it, and not of the keeper.
fn adopt_orphans() -> io::Result<()> {
    // SAFETY: plain numbers.
    #[expect(unsafe_code, reason = "no safe call adopts orphans")]
    let done = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Serves the node until either the zygote or the node is gone. Ending ends the jail.
fn keep(node: &OwnedFd, zygote: &OwnedFd) -> ! {
    // SAFETY: these descriptors are the zygote's now, and nothing here uses them any more. No signal from inside is
    // heard: the kernel keeps those away from a process 1 that has no handlers, and the standard library has put up
    // two.
    #[expect(unsafe_code, reason = "between fork and the end")]
    unsafe {
        for descriptor in THE_ZYGOTES {
            libc::close(descriptor);
        }
        libc::prctl(libc::PR_SET_NAME, c"keeper".as_ptr(), 0, 0, 0);
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
    loop {
        let mut waiting =
            [node, zygote].map(|one| libc::pollfd { fd: one.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        // SAFETY: two structures, valid for the call.
        #[expect(unsafe_code, reason = "no safe call waits for two descriptors")]
        let ready = unsafe { libc::poll(waiting.as_mut_ptr(), 2, -1) };
        if ready < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            continue;
        }
        let [asked, ended] = waiting;
        if ready < 0 || ended.revents != 0 || (asked.revents != 0 && !serve(node)) {
            end();
        }
    }
}

fn end() -> ! {
    // SAFETY: ends the process without running anything that was meant for the program it was a copy of.
    #[expect(unsafe_code, reason = "ending without cleaning up")]
    unsafe {
        libc::_exit(0)
    }
}

/// Does one thing for the node; false once it is gone.
fn serve(node: &OwnedFd) -> bool {
    let mut room = [0; MESSAGE_BYTES_MAX];
    let Ok(received @ fd::Received { bytes: 1.., .. }) = fd::receive_beside(node, &mut room) else { return false };
    let answer = match add(&room[..received.bytes], received.descriptors) {
        Ok(()) => DONE.to_vec(),
        Err(error) => error.to_string().into_bytes(),
    };
    fd::send(node, &answer[..answer.len().min(MESSAGE_BYTES_MAX)], &[]).is_ok()
}

/// `add PROCESS`: to each of the groups whose files came with it.
fn add(message: &[u8], groups: Vec<OwnedFd>) -> io::Result<()> {
    let number = std::str::from_utf8(message).ok().and_then(|text| text.strip_prefix("add ")?.parse::<u32>().ok());
    let number = number.ok_or(io::ErrorKind::InvalidInput)?.to_string();
    groups.into_iter().try_for_each(|group| File::from(group).write_all(number.as_bytes()))
}
