//! Sockets, pipes and processes as descriptors: the few system calls that have no safe form elsewhere.

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Descriptors sent in one message.
const FDS_MAX: usize = 4;

/// Room for what travels beside a message, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Beside([u8; 256]);

/// Two ends of a socket of packets: each message arrives whole or not at all.
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    pair(libc::SOCK_SEQPACKET)
}

/// Two ends of a stream of bytes.
pub fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    pair(libc::SOCK_STREAM)
}

fn pair(kind: libc::c_int) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two; on success both are open and nobody else's.
    #[expect(unsafe_code, reason = "making a pair of sockets")]
    unsafe {
        check(libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()))?;
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// The reading and the writing end.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: as for `pair`.
    #[expect(unsafe_code, reason = "making a pipe")]
    unsafe {
        check(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open for as long as it is borrowed.
    #[expect(unsafe_code, reason = "changing the flags of a descriptor")]
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        check(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK))
    }
}

/// Makes room for `bytes` on their way to the other end, as far as the system allows.
pub fn set_send_room(fd: impl AsFd, bytes: libc::c_int) {
    // SAFETY: the descriptor is open, the option is a number.
    #[expect(unsafe_code, reason = "setting an option of a socket")]
    unsafe {
        let (fd, size) = (fd.as_fd().as_raw_fd(), size_of_val(&bytes) as libc::socklen_t);
        // As root beyond the system's limit, else up to it.
        if libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, (&raw const bytes).cast(), size) != 0 {
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, (&raw const bytes).cast(), size);
        }
    }
}

/// From now on messages say which process sent them.
pub fn ask_for_senders(fd: impl AsFd, wanted: bool) -> io::Result<()> {
    let on = libc::c_int::from(wanted);
    // SAFETY: the descriptor is open, the option is a number.
    #[expect(unsafe_code, reason = "setting an option of a socket")]
    unsafe {
        let (fd, size) = (fd.as_fd().as_raw_fd(), size_of_val(&on) as libc::socklen_t);
        check(libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_PASSCRED, (&raw const on).cast(), size))
    }
}

/// Sends one message, with descriptors beside it.
pub fn send(socket: impl AsFd, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(fds.len() <= FDS_MAX, "room was made for so many");
    let mut part = libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    let mut beside = Beside([0; 256]);
    // SAFETY: the header points to the message and to `beside`, both alive until the call returns; what is written to
    // `beside` stays within the length that CMSG_SPACE gives, which is far below its size for FDS_MAX descriptors.
    #[expect(unsafe_code, reason = "sending descriptors")]
    unsafe {
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if !fds.is_empty() {
            let bytes = (fds.len() * size_of::<RawFd>()) as libc::c_uint;
            header.msg_control = beside.0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(bytes) as _;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(bytes) as _;
            for (place, fd) in fds.iter().enumerate() {
                libc::CMSG_DATA(first).cast::<RawFd>().add(place).write_unaligned(fd.as_raw_fd());
            }
        }
        let sent = libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL);
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Receives one message, without the descriptors somebody may send along: those are closed.
pub fn receive(socket: impl AsFd, room: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `room` is valid for writes of its length. Without room for them the kernel closes descriptors sent along.
    #[expect(unsafe_code, reason = "receiving one packet")]
    let got = unsafe { libc::recv(socket.as_fd().as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Receives up to `room` bytes, and the number the sender's process has here.
pub fn receive_with_sender(socket: impl AsFd, room: &mut [u8]) -> io::Result<(usize, Option<u32>)> {
    let mut part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut beside = Beside([0; 256]);
    let mut sender = None;
    // SAFETY: the header points to `room` and `beside`, both alive and as large as is said; headers beside the message
    // are those the kernel has written, walked as it wants them walked.
    #[expect(unsafe_code, reason = "receiving who sent it")]
    unsafe {
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = beside.0.as_mut_ptr().cast();
        // No room for more than the credentials: descriptors that are sent along are closed by the kernel.
        header.msg_controllen = libc::CMSG_SPACE(size_of::<libc::ucred>() as libc::c_uint) as _;
        let got = libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC);
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        let mut next = libc::CMSG_FIRSTHDR(&raw const header);
        while !next.is_null() {
            if (*next).cmsg_level == libc::SOL_SOCKET && (*next).cmsg_type == libc::SCM_CREDENTIALS {
                let credentials = libc::CMSG_DATA(next).cast::<libc::ucred>().read_unaligned();
                sender = u32::try_from(credentials.pid).ok().filter(|process| *process != 0);
            }
            next = libc::CMSG_NXTHDR(&raw const header, next);
        }
        Ok((got, sender))
    }
}

/// A descriptor of a process that is there.
pub fn pidfd(process: u32) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers; on success the descriptor is open and nobody else's.
    #[expect(unsafe_code, reason = "no safe call opens a process")]
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, process, 0);
        let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Whether the process has ended, if only a moment ago.
pub fn has_ended(pidfd: impl AsFd) -> bool {
    let mut asked = libc::pollfd { fd: pidfd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, valid for the call.
    #[expect(unsafe_code, reason = "no safe call looks at a descriptor of a process")]
    let ready = unsafe { libc::poll(&raw mut asked, 1, 0) };
    ready != 0
}

/// Whether this system lets us read the memory of that process.
pub fn is_memory_readable(process: u32) -> bool {
    // Nothing is mapped at the lowest address: whoever may read is told just that.
    match read_memory(process, 0, 1, &mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() == Some(libc::EFAULT),
    }
}

/// Appends up to `bytes` bytes that begin at `address` in the memory of a process. Says how many there were; that it was
/// this process's memory is for the caller to make sure of.
pub fn read_memory(process: u32, address: u64, bytes: usize, into: &mut Vec<u8>) -> io::Result<usize> {
    into.reserve(bytes);
    let there = usize::try_from(address).map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
    let process = libc::pid_t::try_from(process).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let room = into.spare_capacity_mut();
    let local = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: bytes };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(there), iov_len: bytes };
    // SAFETY: there is room for so many bytes, and nobody else has it; the other address is looked up in the other
    // process by the kernel, which says so where there is nothing. So many bytes as it says have been written.
    #[expect(unsafe_code, reason = "no safe call reads another process's memory")]
    unsafe {
        let got = libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0);
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        into.set_len(into.len() + got);
        Ok(got)
    }
}

/// Kills the process; one that has ended already is no error.
pub fn kill(pidfd: impl AsFd) {
    // SAFETY: the descriptor is open; a null `siginfo` is allowed.
    #[expect(unsafe_code, reason = "no safe call signals by descriptor")]
    unsafe {
        let nothing = std::ptr::null::<libc::siginfo_t>();
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_fd().as_raw_fd(), libc::SIGKILL, nothing, 0);
    }
}

/// Takes leave of an ended child of this process, so that its number is free again.
pub fn reap(pidfd: impl AsFd) {
    // SAFETY: the descriptor is open, `info` is valid for writes.
    #[expect(unsafe_code, reason = "no safe call waits by descriptor")]
    unsafe {
        let mut info: libc::siginfo_t = zeroed();
        let id = pidfd.as_fd().as_raw_fd() as libc::id_t;
        libc::waitid(libc::P_PIDFD, id, &raw mut info, libc::WEXITED | libc::WNOHANG);
    }
}

/// Sets the priority of all processes of the group that `leader` leads. Where that is not allowed, it stays.
pub fn set_nice(leader: u32, nice: i32) {
    // SAFETY: plain numbers.
    #[expect(unsafe_code, reason = "no safe call sets the priority of a group")]
    unsafe {
        libc::setpriority(libc::PRIO_PGRP, leader, nice);
    }
}

/// CPU time of all threads of a process, in nanoseconds; none once it has ended.
pub fn process_cpu_ns(process: u32) -> Option<u64> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: both numbers are valid for writes.
    #[expect(unsafe_code, reason = "no safe call reads another process's clock")]
    unsafe {
        let mut time: libc::timespec = zeroed();
        let found = libc::clock_getcpuclockid(libc::pid_t::try_from(process).ok()?, &raw mut clock) == 0;
        (found && libc::clock_gettime(clock, &raw mut time) == 0)
            .then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
